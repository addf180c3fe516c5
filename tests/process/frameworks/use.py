"""Allocates arrays of one framework under the library, and prints the bytes that each side counted.

usage: use.py CASE      a name of CASES; prints a line of JSON:
    asked     bytes that the program asked the framework for
    served    bytes that the framework asked the library for
    counted   bytes that the library counts as held, after rounding
    unseen    bytes that the device has less, and the library does not count
    left      bytes that the library counts after all arrays have been freed
The case torch-reference prints instead the rows of ../api/reference.py that PyTorch answers differently.
"""
import gc
import json
import os
import sys
import tempfile

import accelcache

SIZES = (1000, 100_000, 3 << 20, 50 << 20)


class Skip(Exception):
    """Raised if the machine lacks something that the framework needs."""


def figures():
    stats = accelcache.stats(0)
    free, total = accelcache.driver_memory_info(0)
    if not stats:  # the device was not used
        return {"served": 0, "counted": 0, "unseen": total - free}
    return {"served": stats["requested_bytes"]["all"]["allocated"],
            "counted": stats["allocated_bytes"]["all"]["current"],
            "unseen": total - free - stats["reserved_bytes"]["all"]["current"]}


def expect(condition, what):
    if not condition:
        sys.exit(f"wrong: {what}")


def raises(kind, call, what):
    try:
        call()
    except kind:
        return
    sys.exit(f"no error: {what}")


def measure(make, finish=lambda: None, before=None):
    """Prints a case's figures.  make(size) returns an object with `size` bytes of the device."""
    first = make(512)  # what is loaded and taken with the first use counts nowhere, without `before`
    accelcache.synchronize(0)
    before = before or figures()
    held = [make(size) for size in SIZES]
    accelcache.synchronize(0)
    there = figures()
    del held
    gc.collect()
    finish()
    accelcache.synchronize(0)
    print(json.dumps({"asked": sum(SIZES),
                      **{name: there[name] - before[name] for name in there},
                      "left": figures()["counted"] - before["counted"]}))
    del first
    accelcache.check()


# ---- PyTorch

def torch_module():
    try:
        import torch
    except ImportError as error:  # a version that wants more than the stand-in of the runtime has
        raise Skip(str(error)) from error
    return torch


def torch_arrays():
    torch = torch_module()
    measure(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"),
            torch.cuda.empty_cache)


def torch_adapter():
    torch = torch_module()
    accelcache.use_in_torch()
    torch_arrays()

    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    raises(RuntimeError, lambda: empty(1 << 45), "more than the device has")
    data = torch.arange(5000)
    there = empty(40000)
    there.view(torch.int64).copy_(data)
    expect(torch.equal(there.view(torch.int64).cpu(), data), "bytes")
    # PyTorch records a stream on the block. The block is reusable after that stream's work completes.
    stream = torch.cuda.Stream()
    there.record_stream(stream)
    del there
    torch.cuda.empty_cache()
    # A pool holds a graph's memory. PyTorch's filter selects the streams with requests for the pool.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = empty(3 << 20)
        kept.zero_()
    other = empty(3 << 20)
    pools = [accelcache.pointer_info(one.data_ptr()).pool for one in (kept, other)]
    expect(pools[0] != (0, 0) == pools[1], f"pools {pools}")
    graph.replay()
    torch.cuda.synchronize()
    del kept, other, graph
    gc.collect()
    accelcache.check()


def torch_autoload():
    """The entry point, as the wheel has it, which `import torch` calls."""
    with tempfile.TemporaryDirectory() as folder:
        info = os.path.join(folder, "accelcache-0.dist-info")
        os.mkdir(info)
        for name, text in (("METADATA", "Metadata-Version: 2.1\nName: accelcache\nVersion: 0\n"),
                           ("entry_points.txt",
                            "[torch.backends]\naccelcache = accelcache.frameworks:autoload\n")):
            with open(os.path.join(info, name), "w", encoding="utf-8") as file:
                file.write(text)
        sys.path.append(folder)
        torch_arrays()


def torch_pool():
    torch = torch_module()
    pool = accelcache.MemPool()

    def make(size):
        with accelcache.use_mem_pool(pool):
            return torch.empty(size, dtype=torch.uint8, device="cuda")
    measure(make)


def torch_reference():
    """Prints the result of the comparison with PyTorch in ../api/reference.py."""
    torch = torch_module()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
    import reference
    wrong, rows = reference.compare(torch, accelcache)
    print(json.dumps({"version": torch.__version__, "rows": rows, "wrong": wrong}, default=str))


# ---- JAX

def jax_arrays(preallocates=False):
    import numpy
    from jax._src import hardware_utils
    hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for device files
    before = figures() if preallocates else None  # what it takes at the start is what there is to see
    import jax
    device = jax.devices("cuda")[0]
    measure(lambda size: jax.device_put(numpy.zeros(size, "uint8"), device).block_until_ready(),
            before=before)


def jax_adapter():
    import jax
    accelcache.use_in_jax()
    jax_arrays()
    raises(accelcache.Error, accelcache.use_in_jax, "JAX has its device")


# ---- NCCL

def nccl_buffers():
    """Needs the real driver: NCCL's own copy of the CUDA runtime uses private tables of NVIDIA's driver,
    which the simulated device lacks."""
    import ctypes
    import glob
    import os
    import nvidia.nccl
    path, = glob.glob(os.path.join(list(nvidia.nccl.__path__)[0], "lib/libnccl.so.2"))
    nccl = ctypes.CDLL(path)
    accelcache.set_device(0)
    version, pointer = ctypes.c_int(), ctypes.c_void_p()
    expect(nccl.ncclGetVersion(ctypes.byref(version)) == 0, "ncclGetVersion")
    nccl.ncclMemAlloc.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
    nccl.ncclMemFree.argtypes = (ctypes.c_void_p,)
    status = nccl.ncclMemAlloc(ctypes.byref(pointer), 512)
    if status == 1:  # ncclUnhandledCudaError
        raise Skip(f"NCCL {version.value} stops in its CUDA runtime's first call")
    expect(status == 0, f"ncclMemAlloc => {status}")

    class Buffer:
        def __init__(self, size):
            self.pointer = ctypes.c_void_p()
            expect(nccl.ncclMemAlloc(ctypes.byref(self.pointer), size) == 0, "ncclMemAlloc")

        def __del__(self):
            nccl.ncclMemFree(self.pointer)
    measure(Buffer)
    nccl.ncclMemFree(pointer)


# ---- the others

def cupy_adapter():
    import cupy
    accelcache.use_in_cupy()
    measure(lambda size: cupy.ndarray((size,), dtype=cupy.uint8))
    raises(MemoryError, lambda: cupy.ndarray((1 << 45,), dtype=cupy.uint8), "too much")
    expect(cupy.ndarray((0,), dtype=cupy.uint8).nbytes == 0, "nothing")


def rmm_module():
    """RMM asks its own copy of the CUDA runtime which device is current; the simulated one does not load
    it, so that the answer is given here."""
    import rmm
    from rmm._cuda import gpu

    class Runtime:
        def __getattr__(self, name):
            return getattr(real, name)

        def cudaGetDevice(self):
            return real.cudaError_t.cudaSuccess, 0
    real, gpu.runtime = gpu.runtime, Runtime()
    accelcache.set_device(0)
    return rmm


def rmm_adapter():
    rmm = rmm_module()
    accelcache.use_in_rmm()
    measure(lambda size: rmm.DeviceBuffer(size=size))
    raises(MemoryError, lambda: rmm.DeviceBuffer(size=1 << 45), "too much")


def numba_arrays():
    import numpy
    from numba import cuda
    measure(lambda size: cuda.device_array(size, dtype=numpy.uint8),
            lambda: cuda.current_context().memory_manager.deallocations.clear())


def numba_adapter():
    import numpy
    from numba import cuda
    accelcache.use_in_numba()
    numba_arrays()
    data = numpy.arange(1000)
    there = cuda.to_device(data)
    expect((there.copy_to_host() == data).all(), "bytes")
    expect(cuda.current_context().get_memory_info() == accelcache.memory_info(0), "memory_info")
    handle = there.get_ipc_handle()
    expect(handle._ipc_handle.size == data.nbytes and handle._ipc_handle.offset == 0, "handle")
    raises(MemoryError, lambda: cuda.device_array(1 << 45, dtype=numpy.uint8), "too much")
    del there, handle
    cuda.close()  # gives up what the context holds


def cuda_core_buffers(resource):
    from cuda.core import Device
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    if isinstance(resource, type):
        resource = resource(device)
    resource = resource or device.memory_resource
    measure(lambda size: resource.allocate(size, stream=stream))


def cuda_core_adapter():
    from cuda.core import Device
    Device(0).set_current()
    resource = accelcache.use_in_cuda_core()
    expect(Device(0).memory_resource is resource, "the device's resource")
    cuda_core_buffers(None)
    stream = Device(0).create_stream()
    raises(MemoryError, lambda: resource.allocate(1 << 45, stream=stream), "too much")
    buffer = resource.allocate(5000, stream=stream)
    expect(buffer.size == 5000 and buffer.device_id == 0 and not buffer.is_host_accessible, "buffer")
    other = resource.allocate(5000, stream=stream)
    buffer.copy_to(other, stream=stream)
    buffer.close(stream)
    other.close()


def cuda_core_virtual():
    from cuda.core import VirtualMemoryResource
    cuda_core_buffers(VirtualMemoryResource)


CASES = {"torch": torch_arrays, "torch-adapter": torch_adapter, "torch-pool": torch_pool,
         "torch-reference": torch_reference, "torch-autoload": torch_autoload,
         "jax": jax_arrays, "jax-preallocates": lambda: jax_arrays(True), "jax-adapter": jax_adapter,
         "nccl": nccl_buffers, "cupy-adapter": cupy_adapter, "rmm-adapter": rmm_adapter,
         "numba": numba_arrays, "numba-adapter": numba_adapter,
         "cuda-core": lambda: cuda_core_buffers(None), "cuda-core-adapter": cuda_core_adapter,
         "cuda-core-virtual": cuda_core_virtual}

if __name__ == "__main__":
    try:
        CASES[sys.argv[1]]()
    except Skip as reason:
        print(reason)
        sys.exit(77)
