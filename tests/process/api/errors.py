#!/usr/bin/env python3
"""What each function of the Python package raises, by whatever it fails: without a library, with one that is
none, without a driver, by wrong arguments, for want of memory.  The text says the cause and what to do, and
nothing stays allocated.

usage: errors.py LIBRARY PACKAGES
"""
import ctypes
import os
import subprocess
import sys
import types

failed = 0
INVALID, NO_DRIVER, NOT_OURS, SETTINGS, IO, BUSY, UNSUPPORTED, DOUBLE_FREE, INTERIOR = (
    1, 2, 3, 5, 7, 10, 11, 12, 13)
MUCH = 1 << 40


def expect(condition, what):
    global failed
    if not condition:
        failed = 1
        print(f"wrong: {what}", file=sys.stderr)


def raised(call, kind, status, words, what):
    """`call` raises that kind, with the status (None: it has none), and all the words in its text."""
    try:
        result = call()
    except kind as error:
        text = str(error)
        expect(status is None or error.status == status, f"{what}: status of {error!r}")
        for word in words:
            expect(word in text, f"{what}: {word!r} is not in {text!r}")
    except Exception as error:
        expect(False, f"{what}: {error!r}")
    else:
        expect(False, f"{what}: no error, but {result!r}")


# Names of the package that call nothing of the library, or that a framework's module is needed for.
APART = {"Error", "MemPool", "library", "cuda_core_resource", "numba_manager", "pluggable_allocator",
         "rmm_resource", "use_in_cuda_core", "use_in_cupy", "use_in_numba", "use_in_rmm",
         "use_in_torch", "use_mem_pool"}
ARGUMENTS = {"set_device": (0,), "set_memory_fraction": (1.0,), "set_settings": ("",),
             "dump": ("/no/such/folder/x.json",)}
# What these answer without a driver; all others raise.
WITHOUT_DRIVER = {"current_device": -1, "device_count": 0, "initialized": False, "is_enabled": False,
                  "library_path": str, "version": tuple, "set_settings": None}


def plain(accelcache):
    for name in sorted(set(accelcache.__all__) - APART):
        yield name, lambda name=name: getattr(accelcache, name)(*ARGUMENTS.get(name, ()))


def no_library(accelcache):
    expect(accelcache.library() == os.environ["ACCELCACHE_LIBRARY"], "library() loads nothing")
    for name, call in plain(accelcache):
        raised(call, ImportError, None, ["ACCELCACHE_LIBRARY", "accelcache run", "/no/such"],
               f"{name} without a library")


def other_library(accelcache):
    for name, call in plain(accelcache):
        raised(call, ImportError, None, ["accel_version", "another version", "ACCELCACHE_LIBRARY"],
               f"{name} of another library")


def no_driver(accelcache):
    for name, call in plain(accelcache):
        if name in WITHOUT_DRIVER:
            wanted, answer = WITHOUT_DRIVER[name], call()
            expect(isinstance(answer, wanted) if isinstance(wanted, type) else answer == wanted,
                   f"{name} without a driver: {answer!r}")
        elif name in ("record_history", "synchronize"):
            call()  # they need none
        elif name == "use_in_jax" and "LD_PRELOAD" in os.environ:
            call()
        else:
            words = ["from the start"] if name == "use_in_jax" else ["driver", "accelcache run --sim"]
            raised(call, accelcache.Error, NO_DRIVER, words, f"{name} without a driver")


class Stream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


class Old:
    """A PyTorch whose allocator lacks what the package needs."""
    def __init__(self, *_):
        pass

    def allocator(self):
        return self


def stand_ins():
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(CUDAPluggableAllocator=Old))
    cupy, rmm, core = types.ModuleType("cupy"), types.ModuleType("rmm"), types.ModuleType("cuda.core")
    chosen = []
    cupy.cuda = types.SimpleNamespace(UnownedMemory=lambda *memory: memory, set_allocator=chosen.append,
                                      MemoryPointer=lambda memory, offset: memory)
    rmm.mr = types.SimpleNamespace(CallbackMemoryResource=lambda *functions: functions)
    core.MemoryResource, core.Buffer = object, types.SimpleNamespace(from_handle=lambda *a, **b: a)
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge._backends = {"cuda": None}
    sys.modules.update({"torch": torch, "cupy": cupy, "rmm": rmm, "cuda": types.ModuleType("cuda"),
                        "cuda.core": core, "jax._src.xla_bridge": bridge})
    return chosen


def held(accelcache):
    return accelcache.stats(0)["allocation"]["all"]["current"]


def wrong_use(accelcache):
    driver, chosen = ctypes.CDLL("libcuda.so.1"), stand_ins()
    accelcache.set_device(0)
    allocate, deallocate = accelcache.rmm_resource()
    resource = accelcache.cuda_core_resource()
    accelcache.use_in_cupy()
    handle = ctypes.c_void_p()
    expect(driver.cuStreamCreate(ctypes.byref(handle), 1) == 0, "a stream")
    here, gone = Stream(0), Stream(handle.value)
    block = allocate(5000, gone)
    expect(driver.cuStreamDestroy_v2(handle) == 0, "its end")
    freed = allocate(5000, here)
    deallocate(freed, 5000, here)
    before = held(accelcache)
    Error, ours = accelcache.Error, "accelcache.h"
    row = [
        ("set_device", lambda: accelcache.set_device(7), Error, INVALID, ["accel_set_device", ours]),
        ("set_device", lambda: accelcache.set_device(1 << 32), Error, INVALID, ["out of range"]),
        ("synchronize", lambda: accelcache.synchronize(7), Error, INVALID, ["accel_synchronize", ours]),
        ("memory_info", lambda: accelcache.memory_info(2), Error, INVALID, ["accel_get_memory_info", ours]),
        ("memory_info", lambda: accelcache.memory_info(-1), Error, INVALID, [ours]),
        ("driver_memory_info", lambda: accelcache.driver_memory_info(2), Error, INVALID,
         ["accel_get_device_memory_info", ours]),
        ("largest_block", lambda: accelcache.largest_block(7), Error, INVALID, ["accel_cache_info", ours]),
        ("stats", lambda: accelcache.stats(7), Error, INVALID, ["device 7", "device_count()"]),
        ("stats", lambda: accelcache.stats(-1), Error, INVALID, ["device -1"]),
        ("reset_peak_stats", lambda: accelcache.reset_peak_stats(7), Error, INVALID, [ours]),
        ("reset_accumulated_stats", lambda: accelcache.reset_accumulated_stats(7), Error, INVALID, [ours]),
        ("set_memory_fraction", lambda: accelcache.set_memory_fraction(1.5), Error, INVALID, [ours]),
        ("set_memory_fraction", lambda: accelcache.set_memory_fraction(.5, 7), Error, INVALID, [ours]),
        ("get_memory_fraction", lambda: accelcache.get_memory_fraction(7), Error, INVALID, [ours]),
        ("set_settings", lambda: accelcache.set_settings("memory_limt:1G"), Error, SETTINGS,
         ["memory_limt", "memory_limit"]),
        ("set_settings", lambda: accelcache.set_settings("dump:none,pinned_cache:true"), Error, SETTINGS,
         ["pinned_cache"]),
        ("record_history", lambda: accelcache.record_history(MUCH), Error, INVALID, ["record_history"]),
        ("record_history", lambda: accelcache.record_history(-1), Error, INVALID, ["out of range"]),
        ("snapshot", lambda: accelcache.snapshot((7, 8)), Error, INVALID, ["accel_snapshot", "pool"]),
        ("dump", lambda: accelcache.dump("/no/such/folder/x.json"), Error, IO, ["No such file"]),
        ("use_in_jax", accelcache.use_in_jax, Error, BUSY, ["before"]),
        ("pluggable_allocator", accelcache.pluggable_allocator, Error, UNSUPPORTED,
         ["set_record_stream_fn"]),
        ("use_in_torch", accelcache.use_in_torch, Error, UNSUPPORTED, ["PyTorch"]),
        ("use_in_cupy", lambda: chosen[0](MUCH), MemoryError, None, ["accel_malloc", "memory_limit"]),
        ("use_in_cupy", lambda: chosen[0](-1), Error, INVALID, ["out of range"]),
        ("rmm_resource", lambda: allocate(MUCH, here), MemoryError, None, ["accel_malloc_async", "short"]),
        ("rmm_resource", lambda: allocate(100, gone), Error, INVALID, ["stream"]),
        ("rmm_resource", lambda: deallocate(freed, 5000, here), Error, DOUBLE_FREE, ["free it once"]),
        ("rmm_resource", lambda: deallocate(block + 512, 1, here), Error, INTERIOR, ["request returned"]),
        ("rmm_resource", lambda: deallocate(4096, 1, here), Error, NOT_OURS, ["where it came from"]),
        ("cuda_core_resource", lambda: resource.allocate(MUCH, stream=here), MemoryError, None, ["short"]),
        ("cuda_core_resource", lambda: resource.allocate(1, stream=gone), Error, INVALID, ["stream"]),
        ("cuda_core_resource", lambda: resource.deallocate(freed, 1, stream=here), Error, DOUBLE_FREE,
         ["once"]),
    ]
    if not accelcache._serves_all():  # calls of the driver go unseen then, as the stream's end
        row = [one for one in row if one[0] != "use_in_jax" and one[4] != ["stream"]]
        raised(accelcache.use_in_jax, Error, NO_DRIVER, ["accelcache run"], "JAX that is not served")
    for name, call, kind, status, words in row:
        raised(call, kind, status, words, name)
        expect(held(accelcache) == before, f"{name} leaves something allocated")
    # A free says nothing of a stream that has gone, but the memory comes back.
    deallocate(block, 5000, gone)
    expect(held(accelcache) == before - 1, "memory of a stream that has gone")
    resource.deallocate(resource.allocate(1000, stream=here)[0], 1000, stream=gone)
    expect(held(accelcache) == before - 1, "a free on a stream that has gone")
    accelcache.check()
    tested = {one[0] for one in row} | {"use_in_jax"}
    cannot = set(WITHOUT_DRIVER) | {
        "Error", "library", "empty_cache", "enable", "check", "stats_document",  # their ways to fail: no driver
        "MemPool", "use_mem_pool", "use_in_cuda_core", "use_in_rmm",  # by the functions above
        "numba_manager", "use_in_numba"}  # as CuPy
    expect(set(accelcache.__all__) == tested | cannot,
           f"not tried: {set(accelcache.__all__) ^ (tested | cannot)}")


WORLDS = {"no_library": no_library, "other_library": other_library, "no_driver": no_driver,
          "wrong_use": wrong_use}


def main(library, packages):
    world = os.environ.get("AC_ERRORS_WORLD")
    if world:
        sys.path.insert(0, packages)
        import accelcache
        WORLDS[world](accelcache)
        return failed
    no_cuda = {"LD_LIBRARY_PATH": ""}
    has_cuda = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"],
                              env=dict(os.environ, **no_cuda), capture_output=True).returncode == 0
    runs = [("no_library", {"ACCELCACHE_LIBRARY": "/no/such"}),
            ("other_library", {"ACCELCACHE_LIBRARY": "libm.so.6"}),
            ("wrong_use", {"LD_PRELOAD": library}), ("wrong_use", {"ACCELCACHE_LIBRARY": library})]
    if not has_cuda:
        runs += [("no_driver", dict(no_cuda, LD_PRELOAD=library)),
                 ("no_driver", dict(no_cuda, ACCELCACHE_LIBRARY=library))]
    result = 0
    for world, changes in runs:
        environment = dict(os.environ, AC_ERRORS_WORLD=world, PYTHONDONTWRITEBYTECODE="1", **changes)
        result |= subprocess.run([sys.executable, *sys.argv], env=environment).returncode
    return result


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
