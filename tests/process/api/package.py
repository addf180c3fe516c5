#!/usr/bin/env python3
"""The Python package, in a process that runs under the library on the simulated device.

usage: package.py LIBRARY PACKAGES

A module `torch` that has PyTorch's calls, and no more, stands in for PyTorch: its allocator finds
functions by path and name, and calls by address what the setters were given.
"""
import ctypes
import os
import subprocess
import sys
import types

failed = 0


def expect(condition, what):
    global failed
    if not condition:
        failed = 1
        print(f"wrong: {what}", file=sys.stderr)


def raises(kind, call, what):
    try:
        call()
    except kind:
        return
    except Exception as error:
        what += f" ({error!r})"
    expect(False, what)


SIGNATURES = {
    "set_init_fn": (None, ctypes.c_int),
    "set_reset_fn": (None,),
    "set_memory_fraction_fn": (None, ctypes.c_double, ctypes.c_int),
    "set_base_alloc_fn": (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)),
    "set_record_stream_fn": (None, ctypes.c_void_p, ctypes.c_void_p),
    "set_begin_allocate_to_pool": (None,),
    "set_end_allocate_to_pool_fn": (None,),
    "set_release_pool": (None,),
}


class Inner:
    """What CUDAPluggableAllocator.allocator() gives."""

    def __init__(self):
        self.function = {}
        for setter, signature in SIGNATURES.items():
            setattr(self, setter, lambda address, setter=setter, signature=signature:
                    self.function.__setitem__(setter, ctypes.CFUNCTYPE(*signature)(address)))


class Pluggable:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self.malloc, self.free = getattr(library, malloc), getattr(library, free)
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        self.free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        self.names = malloc, free
        self.inner = Inner()

    def allocator(self):
        return self.inner


def stand_in():
    torch, changed = types.ModuleType("torch"), []
    torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(
        CUDAPluggableAllocator=Pluggable, change_current_allocator=changed.append))
    sys.modules["torch"] = torch
    return changed


def plain(accelcache):
    expect(accelcache.version() == (0, 1), "version")
    expect(not accelcache.initialized(), "nothing is started")
    expect(accelcache.device_count() == 2, "devices")
    expect(accelcache.current_device() == 0, "the first device, without a context")
    accelcache.set_device(1)
    expect(accelcache.current_device() == 1, "device 1")
    accelcache.set_device(-1)
    expect(accelcache.current_device() == 1, "a negative device")
    free, total = accelcache.memory_info()
    expect(0 < free <= total == 1 << 30, "memory_info")
    expect(accelcache.largest_block() > 900 << 20, "largest_block")
    expect(accelcache.driver_memory_info() == (free, total), "driver_memory_info")
    raises(accelcache.Error, lambda: accelcache.synchronize(7), "device 7")
    raises(accelcache.Error, lambda: accelcache.stats(7), "figures of device 7")
    raises(accelcache.Error, lambda: accelcache.set_settings("memory_limt:1G"), "a wrong key")
    accelcache.set_memory_fraction(0.5)
    expect(accelcache.get_memory_fraction() == 0.5, "fraction")
    accelcache.set_memory_fraction(1.0)


def as_torch(accelcache, changed):
    allocator = accelcache.use_in_torch()
    expect(changed == [allocator], "the allocator was changed")
    expect(allocator.names[0] == "accel_torch_malloc_or_throw", "it throws")
    function = allocator.inner.function
    expect(function.keys() == SIGNATURES.keys(), "all setters")
    function["set_init_fn"](2)
    accelcache.record_history(10, recorder=lambda: "step 7")
    block = allocator.malloc(5000, 1, None)
    expect(accelcache.stats(1)["allocation"]["all"]["current"] == 1, "it is counted")
    size = ctypes.c_size_t()
    expect(function["set_base_alloc_fn"](block + 100, ctypes.byref(size)) == block, "base")
    expect(size.value == 5000, "its size")
    function["set_record_stream_fn"](block, None)
    snapshot = accelcache.snapshot()
    blocks = [one for segment in snapshot["segments"] for one in segment["blocks"]
              if one["state"] == "active_allocated"]
    expect([one["address"] for one in blocks] == [block], "snapshot")
    actions = [entry["action"] for entry in snapshot["device_traces"][1]]
    expect("segment_alloc" in actions and "alloc" in actions, "history")
    expect([one["frames"][0]["name"] for one in blocks] == ["step 7"], "recorder")
    raises(accelcache.Error, lambda: accelcache.record_history(10, context="some"), "context")
    accelcache.record_history(10, context=None, clear=True)
    expect({entry["action"] for trace in accelcache.snapshot()["device_traces"] for entry in trace} == {"snapshot"},
           "clear")
    allocator.free(block, 5000, 1, None)
    function["set_memory_fraction_fn"](0.25, 1)
    expect(accelcache.get_memory_fraction(1) == 0.25, "fraction by PyTorch")
    accelcache.synchronize(1)
    function["set_reset_fn"]()
    expect(accelcache.stats(1)["reserved_bytes"]["all"]["current"] == 0, "reset")
    accelcache.reset_peak_stats(1)
    accelcache.reset_accumulated_stats(1)
    expect(accelcache.stats(1)["allocation"]["all"]["allocated"] == 0, "reset of sums")
    expect(accelcache.pluggable_allocator().names[0] == "accel_torch_malloc", "for pools")
    del SIGNATURES["set_record_stream_fn"]
    raises(accelcache.Error, accelcache.use_in_torch, "a PyTorch without set_record_stream_fn")


# ---- stand-ins of the other frameworks, as far as the package calls them

class Stream:
    """CUDA's protocol for streams: the legacy default one."""

    def __cuda_stream__(self):
        return 0, 0


def held(accelcache):
    stats = accelcache.stats(0)  # {}: the device was not used
    return stats["allocation"]["all"]["current"] if stats else 0


def as_jax(accelcache, preloaded):
    """It is told by its environment, as long as it has no device, and not where nothing would be served."""
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge._backends = {}
    sys.modules["jax._src.xla_bridge"] = bridge
    if not preloaded:
        raises(accelcache.Error, accelcache.use_in_jax, "JAX in a process that is not under the library")
        return
    accelcache.use_in_jax()
    expect(os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] == "cuda_async", "JAX is told")
    bridge._backends["cuda"] = None
    raises(accelcache.Error, accelcache.use_in_jax, "JAX has its device")


def as_cupy(accelcache):
    cupy, chosen = types.ModuleType("cupy"), []
    cupy.cuda = types.SimpleNamespace(
        UnownedMemory=lambda pointer, size, owner, device: (pointer, size, owner, device),
        MemoryPointer=lambda memory, offset: memory, set_allocator=chosen.append)
    sys.modules["cupy"] = cupy
    accelcache.use_in_cupy()
    before = held(accelcache)
    pointer, size, owner, device = chosen[0](5000)
    expect(pointer == owner.pointer and size == 5000 and device == 0, "CuPy's memory")
    expect(held(accelcache) == before + 1, "CuPy is served")
    del owner
    expect(held(accelcache) == before, "CuPy's memory is freed with its owner")
    expect(chosen[0](0)[0] == 0, "CuPy asks for nothing")
    raises(MemoryError, lambda: chosen[0](1 << 40), "CuPy asks for too much")


def as_rmm(accelcache):
    rmm, chosen = types.ModuleType("rmm"), []
    rmm.mr = types.SimpleNamespace(CallbackMemoryResource=lambda *functions: functions,
                                   set_current_device_resource=chosen.append)
    sys.modules["rmm"] = rmm
    allocate, deallocate = accelcache.use_in_rmm()
    expect(chosen == [(allocate, deallocate)], "RMM's resource")
    before = held(accelcache)
    pointer = allocate(5000, Stream())
    expect(pointer and held(accelcache) == before + 1, "RMM is served")
    deallocate(pointer, 5000, Stream())
    expect(held(accelcache) == before, "RMM frees")
    raises(MemoryError, lambda: allocate(1 << 40, Stream()), "RMM asks for too much")


def as_cuda_core(accelcache):
    core = types.ModuleType("cuda.core")
    core.MemoryResource = object
    core.Buffer = types.SimpleNamespace(from_handle=lambda *arguments, **named: (arguments, named))
    core.Device = lambda number: device
    device = types.SimpleNamespace(memory_resource=None)
    sys.modules["cuda"], sys.modules["cuda.core"] = types.ModuleType("cuda"), core
    resource, stream = accelcache.use_in_cuda_core(), Stream()
    expect(device.memory_resource is resource and resource.device_id == 0, "cuda.core's resource")
    before = held(accelcache)
    (pointer, size, whose), named = resource.allocate(5000, stream=stream)
    expect(whose is resource and size == 5000 and named == {"stream": stream}, "cuda.core's buffer")
    expect(held(accelcache) == before + 1, "cuda.core is served")
    resource.deallocate(pointer, size, stream=stream)
    expect(held(accelcache) == before, "cuda.core frees")
    raises(MemoryError, lambda: resource.allocate(1 << 40, stream=stream), "too much for cuda.core")


def asked_again(accelcache):
    """A thread that is kept from running inside its cache is no error of the records."""
    answers = [10, 10, 0, 8]
    library = types.SimpleNamespace(accel_check=lambda message, size: answers.pop(0),
                                    accel_status_string=lambda status: b"wrong")
    ours, accelcache._library = accelcache._library, library
    accelcache.check()
    expect(answers == [8], "check() asks again")
    raises(accelcache.Error, accelcache.check, "records that are wrong")
    accelcache._library = ours


def main(library, packages):
    if "AC_PACKAGE_CHILD" not in os.environ:
        environment = dict(os.environ, AC_PACKAGE_CHILD="1", PYTHONDONTWRITEBYTECODE="1")
        preloaded = subprocess.run([sys.executable, *sys.argv],
                                   env=dict(environment, LD_PRELOAD=library))
        loaded = subprocess.run([sys.executable, *sys.argv],
                                env=dict(environment, ACCELCACHE_LIBRARY=library))
        missing = subprocess.run(
            [sys.executable, "-c", "import accelcache; accelcache.device_count()"],
            env=dict(environment, ACCELCACHE_LIBRARY="/no/such", PYTHONPATH=packages),
            capture_output=True, text=True)
        expect("ACCELCACHE_LIBRARY" in missing.stderr and missing.returncode, "no library")
        return failed or preloaded.returncode or loaded.returncode
    sys.path.insert(0, packages)
    import accelcache
    expect(os.path.samefile(accelcache.library_path(), library), "library_path")
    plain(accelcache)
    as_torch(accelcache, stand_in())
    accelcache.set_device(0)
    accelcache.enable(False)
    expect(not accelcache.is_enabled(), "disabled")
    accelcache.enable()
    expect(accelcache.is_enabled(), "enabled")
    as_jax(accelcache, "accelcache" in os.environ.get("LD_PRELOAD", ""))
    as_cupy(accelcache)
    as_rmm(accelcache)
    as_cuda_core(accelcache)
    accelcache.check()
    asked_again(accelcache)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
