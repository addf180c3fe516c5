"""Choice of the frames that name a call site: frames of the program, not of runtimes, allocators or interpreters."""


import json
import pickle

import base

SITE = 0x7f0000000000


def native(name, file="??"):
    return {"name": name, "filename": file, "line": 0}


def python(name, file, line):
    return {"name": name, "filename": file, "line": line}


# Frames that PyTorch records around each request with stacks of C++ and Python.
TORCH = [native("torch::unwind::unwind()"),
         native("torch::CapturedTraceback::gather(bool, bool, bool)"),
         native("torch::cuda::(anonymous namespace)::gather_with_cpp()"),
         native("c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::malloc"
                "(signed char, unsigned long, CUstream_st*)"),
         native("at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*, "
                "c10::DispatchKeySet, c10::ScalarType, std::optional<c10::MemoryFormat>)"),
         native("at::native::empty_cuda(c10::ArrayRef<long>)"),
         native("torch::autograd::THPVariable_empty(_object*, _object*, _object*)"),
         native("cfunction_call", "/usr/local/src/conda/python-3.10.8/Objects/methodobject.c"),
         native("_PyEval_EvalFrameDefault")]
LINEAR = python("forward", "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/linear.py", 114)
FORWARD = python("forward", "/home/u/model.py", 33)
OUTER = [python("step", "/home/u/train.py", 80), python("<module>", "/home/u/train.py", 99),
         native("PyRun_SimpleFileExFlags"), native("Py_BytesMain"), native("__libc_start_main"), native("_start")]

CASES = (
    # frames, expected name of the site
    (TORCH + [LINEAR, FORWARD] + OUTER, "forward (model.py:33) < step < <module>"),
    (TORCH + OUTER[2:], "at::detail::_empty_generic<long> < at::native::empty_cuda < "
                        "torch::autograd::THPVariable_empty"),
    (TORCH[:2], "torch::unwind::unwind < torch::CapturedTraceback::gather"),
    # The wrapper of cuda_runtime.h, a C++ allocator, and the frame that calls main.
    ([native("cudaMalloc", "/usr/lib/libcudart.so.13+0xf521"),
      native("cudaError cudaMalloc<float>(float**, unsigned long)", "/home/u/app+0x1300"),
      native("operator new(unsigned long, gpu_t)", "/home/u/app+0x1310"),
      native("__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)", "/home/u/app+0x1320"),
      native("std::vector<int, gpu<int> >::_M_realloc_insert(int&&)", "/home/u/app+0x1330"),
      native("Tensor::Tensor(unsigned long)", "/home/u/app+0x1340"),
      native("std::unique_ptr<Tensor> make<Tensor, int>(int) const", "/home/u/app+0x1350"),
      native("KVCache::append(int (*)(int))", "/home/u/app+0x1360"),
      native("main", "/home/u/app+0x1370"), native("libc.so.6+0x27249", "/usr/lib/libc.so.6+0x27249")],
     "Tensor::Tensor (app+0x1340) < make<Tensor, int> < KVCache::append"),
    # Functions with brackets and blanks in their names.
    ([native("std::function<void ()> Pool::operator()<int>(int)", "/p/app+0x1"),
      native("main::{lambda(int)#1}::operator()(int) const", "/p/app+0x2"),
      native("(anonymous namespace)::fill(std::pair<int, char>)", "/p/app+0x3")],
     "Pool::operator()<int> (app+0x1) < main::{lambda(int)#1}::operator() < (anonymous namespace)::fill"),
    # ctypes and libffi; a package that wraps the driver; the interpreter's standard library.
    ([native("libffi.so.8+0x6f79", "/usr/lib/libffi.so.8+0x6f79"),
      native("PyInit__ctypes", "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so+0x99"),
      native("_PyEval_EvalFrameDefault", "/usr/bin/python3.11+0x1234"),
      python("cuMemAlloc", "/v/lib/python3.11/site-packages/numba_cuda/numba/cuda/driver.py", 7),
      python("inner", "/usr/lib/python3.11/contextlib.py", 81), python("cache", "/home/u/f.py", 6)],
     "cache (f.py:6)"),
    # A package outside CUDA counts as part of the program: its functions name the site.
    ([python("load", "/v/lib/python3.11/site-packages/engine/kv.py", 5), python("<module>", "/home/u/serve.py", 1)],
     "load (kv.py:5) < <module>"),
    # A program without symbols.
    ([native("app+0x12", "/p/app+0x12"), native("app+0x34", "/p/app+0x34"), native("_start", "/p/app+0x1")],
     "app+0x12 < app+0x34"),
)


class Naming(base.CommandTest):
    def snapshot(self, frames):
        blocks = [{"address": SITE, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames}]
        return {"segments": [{"device": 0, "address": SITE, "total_size": 512, "stream": 0, "segment_type": "small",
                              "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}],
                "device_traces": [[{"action": "alloc", "addr": SITE, "size": 512, "stream": 0, "time_us": 1,
                                    "frames": frames}]]}

    def test_where(self):
        for frames, site in CASES:
            with self.subTest(site=site):
                source = self.write("s.pickle", pickle.dumps(self.snapshot(frames), 4))
                shown = json.loads(self.expect(0, "where", "--json", hex(SITE), source).stdout)
                self.assertEqual((shown["block"]["module"], shown["newest"]["asked_by"]), (site, site))

    def test_tracks(self):
        for frames, site in CASES:
            with self.subTest(site=site):
                source = self.write("s.pickle", pickle.dumps(self.snapshot(frames), 4))
                out = json.loads(self.expect(0, "export", "-f", "perfetto", source).stdout)
                self.assertIn(f"device 0 {site}", [e["name"] for e in out["traceEvents"] if e["ph"] == "C"])

    def test_flame_graph(self):
        """Flame graphs omit wrappers but keep libraries, which show the purpose of the memory."""
        def folded(frames):
            source = self.write("s.pickle", pickle.dumps(self.snapshot(frames), 4))
            return self.expect(0, "export", "-f", "folded", source).stdout
        self.assertEqual(folded([TORCH[0], TORCH[6], TORCH[8], LINEAR, FORWARD, *OUTER]),
                         "device 0;<module> (train.py:99);step (train.py:80);forward (model.py:33);"
                         "forward (linear.py:114);"
                         "torch::autograd::THPVariable_empty(_object*, _object*, _object*) 512\n")
        self.assertEqual(folded(CASES[3][0]),
                         "device 0;main (app);KVCache::append(int (*)(int)) (app);"
                         "std::unique_ptr<Tensor> make<Tensor, int>(int) const (app);Tensor::Tensor(unsigned long) (app);"
                         "std::vector<int, gpu<int> >::_M_realloc_insert(int&&) (app) 512\n")
        self.assertEqual(folded(TORCH[:2]), "device 0;torch::CapturedTraceback::gather(bool, bool, bool);"
                                            "torch::unwind::unwind() 512\n")

    def test_many_sites(self):
        """The sites outnumber the module numbers that a block can store."""
        frames = [[python(f"f{i}", "/home/u/a.py", i + 1)] for i in range(700)]
        whole = self.snapshot([])
        whole["segments"][0]["total_size"] = 512 * 700
        whole["segments"][0]["blocks"] = [{"address": SITE + 512 * i, "size": 512, "requested_size": 512,
                                           "state": "active_allocated", "frames": f} for i, f in enumerate(frames)]
        source = self.write("s.pickle", pickle.dumps(whole, 4))
        shown = json.loads(self.expect(0, "where", "--json", hex(SITE + 512 * 699), source).stdout)
        self.assertEqual(shown["block"]["module"], "f699 (a.py:700)")


if __name__ == "__main__":
    base.main()
