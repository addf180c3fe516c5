#!/usr/bin/env python3
"""Exceptions of every function of the Python package, for each cause: no library, a wrong library, no driver, wrong
arguments, out of memory.  The text gives the cause and the remedy, and nothing stays allocated.

usage: errors.py LIBRARY PACKAGES
"""
import ctypes
import os
import subprocess
import sys
import types

failed = 0
INVALID, NO_DRIVER, NOT_OURS, SETTINGS, IO, SHORT, BUSY, UNSUPPORTED, DOUBLE_FREE, INTERIOR = (
    1, 2, 3, 5, 7, 9, 10, 11, 12, 13)
MUCH = 1 << 40


def expect(condition, what):
    global failed
    if not condition:
        failed = 1
        print(f"wrong: {what}", file=sys.stderr)


def raised(call, kind, status, words, what):
    """Checks that `call` raises this kind, with this status (None: it has none) and all these words in its text."""
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


ERRORS = {"Error", "InvalidError", "NoDriverError", "OutOfMemoryError", "PointerError", "BusyError",
          "UnsupportedError"}
RECORDS = {"CheckpointDelta", "Observer", "PointerInfo", "SegmentSize", "Stream", "TraceAction", "TraceEntry"}
# Names that call nothing of the library, or that need a framework's module.
APART = ERRORS | RECORDS | {
         "MemPool", "library", "cuda_core_resource", "numba_manager", "pluggable_allocator",
         "rmm_resource", "use_in_cuda_core", "use_in_cupy", "use_in_numba", "use_in_rmm",
         "use_in_torch", "use_mem_pool"}
ARGUMENTS = {"set_device": (0,), "set_memory_fraction": (1.0,), "set_settings": ("",),
             "dump": ("/no/such/folder/x.json",), "exchange_device": (0,), "maybe_exchange_device": (0,),
             "set_stream": (None,), "enable_peer_access": (0, 1), "allocate": (1,), "Allocation": (1,),
             "raw_alloc": (1,), "raw_delete": (4096,), "record_stream": (4096, None), "pointer_info": (4096,),
             "base_allocation": (4096,), "copy_data": (4096, 4096, 1),
             "memcpy_async": (4096, 0, 4096, 0, 1), "share_ipc_handle": (4096,),
             "get_ipc_ptr": (bytes(96),), "close_ipc_ptr": (4096,), "attach_oom_observer": (print,),
             "add_free_callback": (print,), "attach_trace_tracker": (print,), "annotate": ("x",), "phase": ("x",),
             "record": (os.devnull,), "device_guard": (0,),
             "stream_guard": (None,), "ipc_memory": (bytes(96),)}
# Answers of these functions without a driver; all others raise.
WITHOUT_DRIVER = {"current_device": -1, "device_count": 0, "initialized": False, "is_enabled": False,
                  "library_path": str, "version": tuple, "set_settings": None, "name": "accelcache",
                  "get_accelerator": None, "is_history_enabled": False, "raw_deleter": int, "annotate": None, "phase": None,
                  "attach_oom_observer": object, "add_free_callback": object,
                  "attach_trace_tracker": object}
UNKNOWN = {"base_allocation", "pointer_info", "record_stream"}  # no driver, no memory of ours


def plain(accelcache):
    for name in sorted(set(accelcache.__all__) - APART):
        yield name, lambda name=name: called(accelcache, name)


def called(accelcache, name):
    """Returns the function's result.  For a context manager, enters it and returns the result of that."""
    if name == "Checkpoint":
        return accelcache.Checkpoint(accelcache.Pool())
    answer = getattr(accelcache, name)(*ARGUMENTS.get(name, ()))
    if name in ("device_guard", "stream_guard", "ipc_memory", "phase", "record"):
        with answer as answer:
            return answer
    return answer


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
        elif name in UNKNOWN:
            raised(call, accelcache.PointerError, NOT_OURS, ["handed out"], f"{name} without a driver")
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
    """A PyTorch allocator without the calls that the package needs."""
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
    Error, ours, pool = accelcache.Error, "accelcache.h", accelcache.Pool()
    Invalid, Pointer, Short = accelcache.InvalidError, accelcache.PointerError, accelcache.OutOfMemoryError
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
        ("exchange_device", lambda: accelcache.exchange_device(-1), Invalid, INVALID, ["accel_exchange", ours]),
        ("exchange_device", lambda: accelcache.exchange_device(2), Invalid, INVALID, [ours]),
        ("maybe_exchange_device", lambda: accelcache.maybe_exchange_device(7), Invalid, INVALID, [ours]),
        ("device_guard", lambda: accelcache.device_guard(7).__enter__(), Invalid, INVALID, [ours]),
        ("stream_guard", lambda: accelcache.stream_guard(gone).__enter__(), Invalid, INVALID, [ours]),
        ("set_stream", lambda: accelcache.set_stream(gone), Invalid, INVALID, ["accel_set_stream", ours]),
        ("set_stream", lambda: accelcache.set_stream(None, 1 << 32), Invalid, INVALID, ["out of range"]),
        ("get_stream", lambda: accelcache.get_stream(7), Invalid, INVALID, [ours]),
        ("enable_peer_access", lambda: accelcache.enable_peer_access(0, 7), Invalid, INVALID, [ours]),
        ("allocate", lambda: accelcache.allocate(MUCH), Short, SHORT, ["accel_allocate", "memory_limit"]),
        ("allocate", lambda: accelcache.allocate(1, gone), Invalid, INVALID, [ours]),
        ("Allocation", lambda: accelcache.Allocation(-1), Invalid, INVALID, ["out of range"]),
        ("raw_alloc", lambda: accelcache.raw_alloc(MUCH), Short, SHORT, ["accel_raw_alloc"]),
        ("raw_alloc", lambda: accelcache.raw_alloc(1, gone), Invalid, INVALID, ["stream"]),
        ("raw_delete", lambda: accelcache.raw_delete(freed), Pointer, DOUBLE_FREE, ["free it once"]),
        ("raw_delete", lambda: accelcache.raw_delete(block + 512), Pointer, INTERIOR, ["request returned"]),
        ("raw_delete", lambda: accelcache.raw_delete(-1), Invalid, INVALID, ["out of range"]),
        ("record_stream", lambda: accelcache.record_stream(4096, None), Pointer, NOT_OURS, ["came from"]),
        ("record_stream", lambda: accelcache.record_stream(block, gone), Invalid, INVALID, ["stream"]),
        ("pointer_info", lambda: accelcache.pointer_info(freed), Pointer, NOT_OURS, ["came from"]),
        ("base_allocation", lambda: accelcache.base_allocation(4096), Pointer, NOT_OURS, ["came from"]),
        ("copy_data", lambda: accelcache.copy_data(0, block, 1), Invalid, INVALID, [ours]),
        ("memcpy_async", lambda: accelcache.memcpy_async(block, 7, block, 0, 1), Invalid, INVALID, [ours]),
        ("expandable_segment_sizes", lambda: accelcache.expandable_segment_sizes(7), Invalid, INVALID, [ours]),
        ("share_ipc_handle", lambda: accelcache.share_ipc_handle(4096), Pointer, NOT_OURS, ["came from"]),
        ("get_ipc_ptr", lambda: accelcache.get_ipc_ptr(b"x"), ValueError, None, ["96"]),
        ("ipc_memory", lambda: accelcache.ipc_memory(b"x").__enter__(), ValueError, None, ["96"]),
        ("close_ipc_ptr", lambda: accelcache.close_ipc_ptr(4096), Error, None, ["accel_close_ipc_ptr"]),
        ("attach_oom_observer", lambda: accelcache.attach_oom_observer(7), TypeError, None, ["called"]),
        ("add_free_callback", lambda: accelcache.add_free_callback(None), TypeError, None, ["called"]),
        ("attach_trace_tracker", lambda: accelcache.attach_trace_tracker("x"), TypeError, None, ["called"]),
        ("Pool", lambda: accelcache.Pool(id=(0, 0)), Invalid, INVALID, ["accel_pool_retain", ours]),
        ("Pool", lambda: pool.begin(7), Invalid, INVALID, [ours]),
        ("Pool", lambda: pool.end(0), Invalid, INVALID, ["accel_end_allocate_to_pool"]),
        ("Pool", lambda: pool.bytes(7), Invalid, INVALID, [ours]),
        ("Pool", lambda: pool.check_live([block]), Invalid, INVALID, [ours]),
        ("Checkpoint", lambda: pool.checkpoint(7), Invalid, INVALID, ["accel_get_checkpoint_state", ours]),
        ("pool_empty", lambda: accelcache.pool_empty((7, 8)), Invalid, INVALID, ["accel_pool_empty"]),
        ("record_history", lambda: accelcache.record_history(MUCH), Error, INVALID, ["record_history"]),
        ("record_history", lambda: accelcache.record_history(-1), Error, INVALID, ["out of range"]),
        ("record", accelcache.record("/no/such/folder/x.json").__enter__, OSError, None, ["/no/such/folder"]),
        ("record", accelcache.record(os.devnull, MUCH).__enter__, Error, INVALID, ["record_history"]),
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
    if not accelcache._library.serves_all():  # calls of the driver go unseen then, as the stream's end
        row = [one for one in row if one[0] != "use_in_jax" and one[4] != ["stream"]]
        raised(accelcache.use_in_jax, Error, NO_DRIVER, ["accelcache run"], "JAX that is not served")
    for name, call, kind, status, words in row:
        raised(call, kind, status, words, name)
        expect(held(accelcache) == before, f"{name} leaves something allocated")
    # A free does not depend on a destroyed stream, and the memory is returned.
    deallocate(block, 5000, gone)
    expect(held(accelcache) == before - 1, "memory of a stream that has gone")
    resource.deallocate(resource.allocate(1000, stream=here)[0], 1000, stream=gone)
    expect(held(accelcache) == before - 1, "a free on a stream that has gone")
    accelcache.check()
    tested = {one[0] for one in row} | {"use_in_jax"}
    cannot = set(WITHOUT_DRIVER) | ERRORS | RECORDS | {
        "library", "annotate", "phase", "empty_cache", "enable", "check", "stats_document",  # their ways to fail: no driver
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
