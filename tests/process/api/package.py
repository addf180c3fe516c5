#!/usr/bin/env python3
"""The Python package, in a process that runs under the library on the simulated device.

usage: package.py LIBRARY PACKAGES

A module `torch` with PyTorch's calls, and no more, stands in for PyTorch. Its allocator finds functions by path and
name. It calls the addresses that its setters received.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
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
    """The object that CUDAPluggableAllocator.allocator() returns."""

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


# ---- stand-ins of the other frameworks, with the calls that the package uses

class Stream:
    """CUDA's protocol for streams, for the legacy default stream."""

    def __cuda_stream__(self):
        return 0, 0


def held(accelcache):
    stats = accelcache.stats(0)  # {}: the device was not used
    return stats["allocation"]["all"]["current"] if stats else 0


def as_jax(accelcache, preloaded):
    """The environment configures JAX. The call fails if JAX has a device or nothing would be served."""
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


# ---- devices, streams, memory, pools and observers: each function of the package

MIB = 1 << 20


def new_stream():
    """Returns a new CUstream of the current context."""
    handle = ctypes.c_void_p()
    driver = ctypes.CDLL("libcuda.so.1")
    expect(driver.cuStreamCreate(ctypes.byref(handle), 1) == 0, "a stream")
    return handle.value


def devices(accelcache):
    expect(accelcache.name() == "accelcache" and accelcache.get_accelerator() == "cuda", "names")
    accelcache.set_device(0)
    expect(accelcache.exchange_device(1) == 0 and accelcache.current_device() == 1, "exchange_device")
    expect(accelcache.maybe_exchange_device(-1) == -1, "a negative device changes nothing")
    expect(accelcache.maybe_exchange_device(0) == 1, "maybe_exchange_device")
    raises(accelcache.InvalidError, lambda: accelcache.exchange_device(-1), "exchange of a negative one")
    raises(accelcache.InvalidError, lambda: accelcache.maybe_exchange_device(7), "exchange of no device")
    with accelcache.device_guard(1):
        expect(accelcache.current_device() == 1, "device guard")
        raises(accelcache.Error, accelcache.device_guard(7).__enter__, "guard of no device")
    expect(accelcache.current_device() == 0, "device guard left")
    try:
        with accelcache.device_guard(1):
            raise KeyError
    except KeyError:
        expect(accelcache.current_device() == 0, "device guard left by an exception")
    stream = accelcache.Stream(new_stream(), 0)
    expect(stream.__cuda_stream__() == (0, stream.handle), "CUDA's protocol")
    expect(accelcache.get_stream() == (0, 0), "the default stream")
    accelcache.set_stream(stream)
    expect(accelcache.get_stream(0) == stream, "set_stream")
    accelcache.set_stream(None, 1)
    expect(accelcache.current_device() == 1, "the device follows the stream")
    with accelcache.stream_guard(stream):
        expect(accelcache.get_stream() == stream, "stream guard")
    expect(accelcache.get_stream() == (0, 1), "stream guard left")
    accelcache.set_device(0)
    accelcache.set_stream(types.SimpleNamespace(cuda_stream=0))  # as PyTorch's streams
    expect(accelcache.get_stream() == (0, 0), "PyTorch's stream")
    raises(accelcache.InvalidError, lambda: accelcache.set_stream(4711), "no stream")
    accelcache.enable_peer_access(0, 1)
    raises(accelcache.Error, lambda: accelcache.enable_peer_access(0, 7), "no peer")
    return stream


def memory(accelcache, stream):
    before = held(accelcache)
    block = accelcache.raw_alloc(3000, stream)
    expect(accelcache.raw_alloc(0) == 0, "0 bytes")
    info = accelcache.pointer_info(block + 2999)
    expect(info[:2] == (block, 3000) and info.allocated >= 3000, f"pointer_info {info}")
    expect(info[3:] == (0, True, stream.handle, (0, 0)), f"pointer_info {info}")
    expect(accelcache.base_allocation(block + 7) == (block, 3000), "base_allocation")
    raises(accelcache.PointerError, lambda: accelcache.base_allocation(4096), "foreign memory")
    accelcache.record_stream(block, None)
    raises(accelcache.PointerError, lambda: accelcache.record_stream(4096, None), "foreign memory")
    raises(accelcache.PointerError, lambda: accelcache.raw_delete(block + 512), "inside a block")
    accelcache.raw_delete(block)
    raises(accelcache.PointerError, lambda: accelcache.raw_delete(block), "freed twice")
    accelcache.raw_delete(0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(accelcache.raw_deleter())(accelcache.raw_alloc(100))
    raises(accelcache.OutOfMemoryError, lambda: accelcache.raw_alloc(1 << 40), "too much")
    raises(MemoryError, lambda: accelcache.allocate(1 << 40), "too much")
    text = ctypes.create_string_buffer(b"there and back", 64)
    back = ctypes.create_string_buffer(64)
    with accelcache.allocate(64) as here, accelcache.device_guard(1), accelcache.allocate(64) as there:
        expect((here.device, there.device, len(here)) == (0, 1, 64), "owners")
        accelcache.copy_data(here.pointer, ctypes.addressof(text), 64)
        accelcache.set_device(0)
        accelcache.memcpy_async(there.pointer, 1, here.pointer, 0, 64, stream, True)
        accelcache.synchronize()
        accelcache.copy_data(ctypes.addressof(back), there.pointer, 64)
        expect(back.value == text.value, "copies")
    expect(here.pointer == 0 and held(accelcache) == before, "owners free")
    raises(accelcache.InvalidError, lambda: accelcache.copy_data(0, 0, 64), "a copy of NULL")
    owner = accelcache.allocate(5000, stream)
    expect(owner.stream == stream and accelcache.get_stream() == (0, 0), "owner of a stream")
    owner.record_stream(0)
    expect(held(accelcache) == before + 1, "an owner holds its memory")
    del owner
    expect(held(accelcache) == before, "an owner that has gone")
    expect(not accelcache.allocate(0).pointer, "an owner of nothing")


def shared(accelcache):
    """DLPack and __cuda_array_interface__."""
    before = held(accelcache)
    pythonapi = ctypes.pythonapi
    pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    pythonapi.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    pythonapi.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
    stream = new_stream()
    owner = accelcache.allocate(5000)
    interface = owner.__cuda_array_interface__
    expect(interface["data"] == (owner.pointer, False) and interface["shape"] == (5000,) and
           interface["typestr"] == "|u1" and interface["stream"] == 1, f"interface {interface}")
    with accelcache.stream_guard(stream):
        with accelcache.allocate(10) as other:
            expect(other.__cuda_array_interface__["stream"] == stream, "the stream of an interface")
    expect(owner.__dlpack_device__() == (2, 0), "DLPack's device")
    raises(BufferError, lambda: owner.__dlpack__(copy=True), "a copy")
    raises(BufferError, lambda: owner.__dlpack__(dl_device=(1, 0)), "another device")
    capsule = owner.__dlpack__()
    del capsule  # that no consumer took
    expect(held(accelcache) == before + 1, "the owner stays")
    # Another stream may use the memory at once, and the free waits for this stream.
    module, calls = accelcache.memory, []
    ours = module.synchronize, module.record_stream
    module.synchronize = lambda device: calls.append(("synchronize", device))
    module.record_stream = lambda *what: calls.append(what)
    for same in (None, 1, -1):
        owner.__dlpack__(stream=same)
    expect(not calls, "the same stream, or none")
    owner.__dlpack__(stream=stream)
    expect(calls == [("synchronize", 0), (owner.pointer, stream)], f"another stream: {calls}")
    module.synchronize, module.record_stream = ours
    capsule = owner.__dlpack__(stream=stream)
    managed = pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
    words = ctypes.cast(managed, ctypes.POINTER(ctypes.c_uint64))
    shape = ctypes.cast(words[3], ctypes.POINTER(ctypes.c_int64))
    expect(words[0] == owner.pointer and words[1] == 2 and shape[0] == 5000, "a DLTensor")
    expect(words[2] == 1 + (1 << 32) + (8 << 40) + (1 << 48), "one dimension of uint8")
    used = ctypes.c_char_p(b"used_dltensor")
    pythonapi.PyCapsule_SetName(capsule, used)
    del capsule, owner
    expect(held(accelcache) == before + 1, "the consumer holds it")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(words[7])(managed)
    expect(held(accelcache) == before, "the consumer frees it")


def pools(accelcache, stream):
    other = new_stream()
    # The pool takes this stream's requests. The filter is asked about each stream that requests memory.
    asked = []
    with accelcache.Pool(no_split=True) as pool:
        expect(pool.use_count == 1 and pool.id[0] | pool.id[1], "a new pool")
        with pool.allocating(filter=lambda handle: asked.append(handle) or handle == stream.handle):
            expect(pool.use_count == 2, "a user more")
            block, out = (accelcache.raw_alloc(1000, one) for one in (stream, other))
            raises(accelcache.BusyError, pool.begin, "it takes requests already")
        expect(asked == [stream.handle, other], f"streams {asked}")
        expect(pool.use_count == 1, "as before")
        expect(accelcache.pointer_info(block).pool == pool.id, "in the pool")
        expect(accelcache.pointer_info(out).pool == (0, 0), "not in the pool")
        pool.check_live([block])
        raises(accelcache.InvalidError, lambda: pool.check_live([]), "another block")
        expect(pool.bytes() == (2 * MIB, 2 * MIB), f"bytes {pool.bytes()}")
        checkpoint = pool.checkpoint()
        accelcache.raw_delete(block)
        pool.check_live([])
        expect(checkpoint.restore() == ([], [block]), "restored")
        pool.check_live([block])
        checkpoint.release()
        expect(len(accelcache.snapshot(pool.id)["segments"]) == 1, "snapshot of the pool")
        accelcache.raw_delete(block)
        accelcache.raw_delete(out)
        pool.set_flags(use_on_oom=True)
        pool.empty()
        expect(pool.bytes() == (0, 0), "emptied")
        pool.begin(filter=lambda handle: 1 / 0)  # said to sys.unraisablehook
        hook, seen = sys.unraisablehook, []
        sys.unraisablehook = seen.append
        out = accelcache.raw_alloc(1000, other)
        sys.unraisablehook = hook
        expect(seen and seen[0].exc_type is ZeroDivisionError, "an error in a filter")
        expect(accelcache.pointer_info(out).pool == (0, 0), "an error is no")
        pool.end()
        pool.release_user()
        accelcache.raw_delete(out)
        pool.begin()
        block = accelcache.raw_alloc(1000)
        pool.end()
        expect(accelcache.pointer_info(block).pool == pool.id, "without a filter all")
        accelcache.raw_delete(block)
        pool.release_user()
        accelcache.pool_empty(pool.id)
        pool.retain()
        pool.release_user()
        raises(accelcache.InvalidError, lambda: accelcache.Pool.end(pool), "it has ended")
    expect(pool.use_count == 0, "released")
    raises(accelcache.InvalidError, lambda: pool.checkpoint(), "it has gone")
    same = accelcache.Pool(id=(4711, 1))
    expect(same.id == (4711, 1) and same.use_count == 1, "a pool of that number")
    del same
    expect(accelcache.Pool(id=(4711, 1)).use_count == 1, "the one before has gone")
    accelcache.pool_empty()


def recorded(accelcache):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        with accelcache.record(path):
            expect(accelcache.is_history_enabled(), "the history is on")
            accelcache.raw_delete(accelcache.raw_alloc(5 * MIB))
        expect(not accelcache.is_history_enabled(), "the history is off again")
        with open(path, encoding="utf-8") as file:
            entries = [entry for trace in json.load(file)["device_traces"] for entry in trace]
        expect([entry["action"] for entry in entries if entry["size"] == 5 * MIB][:2] == ["alloc", "free_requested"],
               "the request and its free")
        missing = os.path.join(folder, "none", "step.json")
        raises(FileNotFoundError, accelcache.record(missing).__enter__, "no folder")
        try:
            accelcache.dump(missing)
        except accelcache.Error as error:
            expect(missing in str(error), str(error))
        else:
            expect(False, "no folder")
        expect(not accelcache.is_history_enabled(), "off after a failure")
    expect(accelcache.__version__ == "{}.{}".format(*accelcache.version()), "version")


def observers(accelcache):
    seen, asked, traced = [], [], []
    hold = accelcache.raw_alloc(100 * MIB)
    accelcache.record_history(100)
    expect(accelcache.is_history_enabled(), "history")

    def too_much():
        raises(accelcache.OutOfMemoryError, lambda: accelcache.raw_alloc(1 << 30), "too much")
    watching = accelcache.attach_oom_observer(lambda *what: seen.append(what))
    with accelcache.add_free_callback(asked.append), accelcache.attach_trace_tracker(traced.append):
        accelcache.raw_delete(accelcache.raw_alloc(1000))
        too_much()
    expect(len(seen) == 1 and seen[0][0] == 0 and seen[0][1] >= 1 << 30 > seen[0][3], f"oom {seen}")
    expect(asked and set(asked) == {0}, f"asked {asked}")
    actions = accelcache.TraceAction
    entries = [entry for entry in traced if "SEGMENT" not in entry.action.name]
    expect([entry.action for entry in entries] == [actions.ALLOC, actions.FREE_REQUESTED,
                                                   actions.FREE_COMPLETED, actions.OOM], f"{entries}")
    expect(entries[0][1:6] == (0, entries[1].address, 1000, 0, (0, 0)), f"{entries[0]}")
    watching.detach()
    watching.detach()
    known = len(asked), len(traced)
    too_much()
    expect((len(seen), len(asked), len(traced)) == (1, *known), "nothing is called any more")
    # The free callback frees memory, and the request succeeds.
    freed = []

    def frees(device):
        freed.append(accelcache.raw_delete(hold)) if not freed else None
        return len(freed) == 1
    with accelcache.add_free_callback(frees):
        accelcache.raw_delete(accelcache.raw_alloc(950 * MIB))
    expect(freed, "the program was asked")
    kept = [accelcache.attach_oom_observer(print) for _ in range(8)]
    raises(accelcache.Error, lambda: accelcache.attach_oom_observer(print), "more than 8")
    for one in kept:
        one.detach()
    # Python threads continue during calls of the library.
    calls, threads = [], []
    with accelcache.attach_trace_tracker(lambda entry: calls.append(entry.action)):
        for _ in range(4):
            threads.append(threading.Thread(target=lambda: [
                accelcache.raw_delete(accelcache.raw_alloc(1000)) for _ in range(50)]))
            threads[-1].start()
        for thread in threads:
            thread.join()
    expect(calls.count(actions.ALLOC) == calls.count(actions.FREE_REQUESTED) == 200, "of four threads")
    accelcache.record_history(0)
    expect(not accelcache.observers._functions, "no function is kept")
    # The interpreter detaches this tracker before its own end.
    accelcache.attach_trace_tracker(calls.append)


def segments(accelcache, stream):
    expect(accelcache.expandable_segment_sizes() == [], "no expandable segments")
    accelcache.set_settings("dump:none,expandable_segments:true")
    accelcache.empty_cache()  # idle native segments would serve the request
    block = accelcache.raw_alloc(4 * MIB, stream)
    sizes = accelcache.expandable_segment_sizes(0)
    expect(accelcache.SegmentSize(stream.handle, False, 4 * MIB) in sizes, f"sizes {sizes}")
    accelcache.raw_delete(block)
    accelcache.empty_cache()
    accelcache.set_settings("dump:none")


IMPORTER = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import accelcache
value = ctypes.c_int()
with accelcache.ipc_memory(bytes.fromhex(sys.argv[2])) as pointer:
    accelcache.copy_data(ctypes.addressof(value), pointer, 4)
sys.exit(0 if value.value == 4711 else 1)
"""


def sharing(accelcache, packages):
    """Another process reads the memory behind the handle."""
    with accelcache.allocate(4096) as block:
        value = ctypes.c_int(4711)
        accelcache.copy_data(block.pointer + 256, ctypes.addressof(value), 4)
        handle = accelcache.share_ipc_handle(block.pointer + 256)
        done = subprocess.run([sys.executable, "-c", IMPORTER, packages, handle.hex()], check=False)
        expect(done.returncode == 0, "another process reads it")
    raises(accelcache.PointerError, lambda: accelcache.share_ipc_handle(4096), "foreign memory")
    raises(ValueError, lambda: accelcache.get_ipc_ptr(b"short"), "no handle")
    raises(accelcache.Error, lambda: accelcache.close_ipc_ptr(4096), "what is not open")


def autoload(accelcache, packages):
    """`import torch` calls the entry point: it does nothing without ACCELCACHE_TORCH=1, and no failure
    of it ends the import."""
    import warnings
    from accelcache.frameworks import autoload as load
    changed = stand_in()
    for value in (None, "0", "", "yes"):
        os.environ.pop("ACCELCACHE_TORCH", None)
        if value is not None:
            os.environ["ACCELCACHE_TORCH"] = value
        load()
    expect(not changed, "nothing without ACCELCACHE_TORCH=1")
    os.environ["ACCELCACHE_TORCH"] = "1"
    load()
    expect(len(changed) == 1 and isinstance(changed[0], Pluggable), "PyTorch is told")
    del sys.modules["torch"].cuda
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load()
    expect(len(told) == 1 and "ACCELCACHE_TORCH" in str(told[0].message), f"told {told}")
    del os.environ["ACCELCACHE_TORCH"]


def asked_again(accelcache):
    """A record that is busy for a short time is read again."""
    answers = [10, 10, 0, 8]
    library = types.SimpleNamespace(accel_check=lambda message, size: answers.pop(0),
                                    accel_status_string=lambda status: b"wrong")
    ours, accelcache._library._loaded = accelcache._library._loaded, library
    accelcache.check()
    expect(answers == [8], "check() asks again")
    raises(accelcache.Error, accelcache.check, "records that are wrong")
    accelcache._library._loaded = ours


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
    autoload(accelcache, packages)
    as_torch(accelcache, stand_in())
    accelcache.set_device(0)
    accelcache.enable(False)
    expect(not accelcache.is_enabled(), "disabled")
    accelcache.enable()
    expect(accelcache.is_enabled(), "enabled")
    stream = devices(accelcache)
    memory(accelcache, stream)
    shared(accelcache)
    pools(accelcache, stream)
    observers(accelcache)
    recorded(accelcache)
    segments(accelcache, stream)
    sharing(accelcache, packages)
    as_jax(accelcache, "accelcache" in os.environ.get("LD_PRELOAD", ""))
    as_cupy(accelcache)
    as_rmm(accelcache)
    as_cuda_core(accelcache)
    accelcache.check()
    asked_again(accelcache)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
