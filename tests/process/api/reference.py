"""The interface of PyTorch 2.15's accelerator allocator, row by row: the equivalent functions and fields
here.  run_reference.py calls each row; tests/repository/readme writes the table of README.md.

A row: name in the reference; name in C; name in Python; source file of the suite that tries the C function at
length; a function that calls both and gives both answers, which have to be equal.  `w` is run_reference.World.
"""
import ctypes
import types

SIZE, POINTER, TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
MIB = 1 << 20


class Row:
    def __init__(self, reference, c, python, suite, call):
        self.reference, self.c, self.python, self.suite, self.call = reference, c, python, suite, call


# --- devices and streams ---

def exchanged(c, python):
    def call(w):
        w.a.set_device(0)
        first = w.c(c, 1), w.c("accel_current_device")
        w.a.set_device(0)
        return first, (getattr(w.a, python)(1), w.a.current_device())
    return call


def current_stream(w):
    w.a.set_stream(w.stream)
    found = w.out(w.l.StreamStruct, "accel_get_stream", -1, w.OUT)
    return (found.stream, found.device), tuple(w.a.get_stream())


def chosen_stream(w):
    w.a.set_stream(None, 0)
    w.ok("accel_set_stream", w.l.StreamStruct(w.stream.handle, 0))
    first = w.a.get_stream()
    w.a.set_stream(None, 0)
    w.a.set_stream(w.stream)
    return first, w.a.get_stream()


def device_guard(w):
    w.a.set_device(0)
    guard = w.l.GuardStruct()
    w.ok("accel_guard_enter", ctypes.byref(guard), 1)
    inside = w.a.current_device()
    w.l.lib().accel_guard_leave(ctypes.byref(guard))
    with w.a.device_guard(1):
        again = w.a.current_device()
    return (inside, 0), (again, w.a.current_device())


def stream_guard(w):
    w.a.set_stream(None, 0)
    guard = w.l.GuardStruct()
    w.ok("accel_guard_enter_stream", ctypes.byref(guard), w.l.StreamStruct(w.stream.handle, 0))
    inside = w.a.get_stream()
    w.l.lib().accel_guard_leave(ctypes.byref(guard))
    with w.a.stream_guard(w.stream):
        again = w.a.get_stream()
    return (inside, (0, 0)), (again, w.a.get_stream())


def refused(w):
    """Returns status and message for a malformed setting."""
    message = ctypes.create_string_buffer(256)
    status = w.c("accel_set_allocator_settings", b"memory_limt:1G", message, 256)
    try:
        w.a.set_settings("memory_limt:1G")
    except w.a.InvalidError as error:
        return (status, message.value.decode()), (error.status, str(error).split(": ", 1)[1])
    return status, None


DEVICES = [
    Row("`getAccelerator`", "accel_get_accelerator", "get_accelerator", "check_raw.c",
        lambda w: (w.c("accel_get_accelerator").decode(), w.a.get_accelerator())),
    Row("`deviceCount`", "accel_device_count", "device_count", "check_api.c",
        lambda w: (w.c("accel_device_count"), w.a.device_count())),
    Row("`setDeviceIndex`", "accel_set_device", "set_device", "check_api.c",
        lambda w: ((w.c("accel_set_device", 1), w.a.current_device()),
                   (w.a.set_device(1) or 0, w.a.current_device()))),
    Row("`getDeviceIndex`", "accel_current_device", "current_device", "check_api.c",
        lambda w: (w.c("accel_current_device"), w.a.current_device())),
    Row("`exchangeDevice`", "accel_exchange_device", "exchange_device", "check_api.c",
        exchanged("accel_exchange_device", "exchange_device")),
    Row("`maybeExchangeDevice`", "accel_maybe_exchange_device", "maybe_exchange_device", "check_api.c",
        exchanged("accel_maybe_exchange_device", "maybe_exchange_device")),
    Row("`synchronizeDevice`", "accel_synchronize_device", "synchronize", "check_api.c",
        lambda w: (w.c("accel_synchronize_device", 0), w.a.synchronize(0) or 0)),
    Row("`getCurrentStream`", "accel_get_stream", "get_stream", "check_raw.c", current_stream),
    Row("`setCurrentStream`", "accel_set_stream", "set_stream", "check_raw.c", chosen_stream),
    Row("`DeviceGuard`", "accel_guard_enter", "device_guard", "check_raw.c", device_guard),
    Row("`StreamGuard`", "accel_guard_enter_stream", "stream_guard", "check_raw.c", stream_guard),
    Row("`emptyCache`", "accel_empty_cache", "empty_cache", "check_api.c",
        lambda w: (w.c("accel_empty_cache"), w.a.empty_cache() or 0)),
    Row("`getMemoryInfo`", "accel_get_memory_info", "memory_info", "check_api.c",
        lambda w: (w.pair("accel_get_memory_info"), w.a.memory_info(0))),
    Row("`getMemoryInfo`, the driver's", "accel_get_device_memory_info", "driver_memory_info", "check_api.c",
        lambda w: (w.pair("accel_get_device_memory_info"), w.a.driver_memory_info(0))),
    Row("`resetAccumulatedStats`", "accel_reset_accumulated_stats", "reset_accumulated_stats", "check_api.c",
        lambda w: (w.c("accel_reset_accumulated_stats", 0), w.a.reset_accumulated_stats(0) or 0)),
    Row("`resetPeakStats`", "accel_reset_peak_stats", "reset_peak_stats", "check_api.c",
        lambda w: (w.c("accel_reset_peak_stats", 0), w.a.reset_peak_stats(0) or 0)),
    Row("`setAllocatorSettings`", "accel_set_allocator_settings", "set_settings", "check_api.c", refused),
    Row("`getDeviceStats`", "accel_get_device_stats", "stats", "check_api.c",
        lambda w: (list(w.c_stats(0)), [name for name in w.a.stats(0) if name in w.c_stats(0)])),
]

# --- statistics: every field, in C and in Python ---

COUNTS = ("num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc",
          "num_device_free")
POOLS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment", "active",
         "inactive_split", "inactive_split_bytes")
SINGLE = ("oversize_allocations", "oversize_segments")


def figure(*path):
    def call(w):
        c, python = w.c_stats(0), w.a.stats(0)
        for name in path:
            c, python = c[name], python[name]
        return c, python
    return call


def stat_row(reference, *path):
    return Row(f"`{reference}`", "accel_device_stats_t." + ".".join(path),
               "stats()" + "".join(f'["{name}"]' for name in path), "check_api.c", figure(*path))


STATISTICS = [stat_row("DeviceStats::" + name, name) for name in COUNTS + POOLS + SINGLE]
STATISTICS += [stat_row("StatType::" + kind, "allocation", member) for kind, member in (
    ("AGGREGATE", "all"), ("SMALL_POOL", "small_pool"), ("LARGE_POOL", "large_pool"))]
STATISTICS += [stat_row("Stat::" + name, "allocation", "all", name)
               for name in ("current", "peak", "allocated", "freed")]


# --- memory ---

def allocated(c, python):
    """Allocates and frees 3,000 bytes; returns the properties of the block."""
    def call(w):
        pointer = w.out(POINTER, c, w.OUT, 3000).value
        first = w.a.pointer_info(pointer)[1:]
        w.a.raw_delete(pointer)
        pointer = getattr(w.a, python)(3000)
        second = w.a.pointer_info(pointer)[1:]
        w.a.raw_delete(pointer)
        return first, second
    return call


def with_stream(w):
    pointer = w.out(POINTER, "accel_raw_alloc_with_stream", w.OUT, 3000, w.stream.handle).value
    first = w.a.pointer_info(pointer).stream
    w.a.raw_delete(pointer)
    pointer = w.a.raw_alloc(3000, w.stream)
    second = w.a.pointer_info(pointer).stream
    w.a.raw_delete(pointer)
    return first, second


def owned(w):
    data = w.out(w.l.DataStruct, "accel_allocate", 3000, w.OUT)
    first = data.device, w.a.pointer_info(data.pointer).bytes
    data.deleter(data.pointer)
    with w.a.allocate(3000) as block:
        return first, (block.device, w.a.pointer_info(block.pointer).bytes)


def capsule(w):
    with w.a.allocate(3000) as block:
        return (2, w.a.pointer_info(block.pointer).device), block.__dlpack_device__()


def deleted(w):
    one, two = w.a.raw_alloc(100), w.a.raw_alloc(100)
    return w.c("accel_raw_delete", one), w.a.raw_delete(two) or 0


def recorded(w):
    block = w.a.raw_alloc(100)
    answers = w.c("accel_record_stream", block, w.stream.handle), w.a.record_stream(block, w.stream) or 0
    w.a.raw_delete(block)
    return answers


def base(w):
    block = w.a.raw_alloc(3000)
    size = SIZE()
    found = w.out(POINTER, "accel_get_base_allocation", block + 5, w.OUT, ctypes.byref(size)).value
    second = w.a.base_allocation(block + 5)
    w.a.raw_delete(block)
    return (found, size.value), second


def described(w):
    block = w.a.raw_alloc(3000)
    info = w.l.PointerInfoStruct(size=ctypes.sizeof(w.l.PointerInfoStruct))
    w.ok("accel_pointer_info", block, ctypes.byref(info))
    second = w.a.pointer_info(block)
    w.a.raw_delete(block)
    return (info.base, info.bytes, info.allocated, info.device), second[:4]


def copied(copy_c, copy_python):
    def call(w):
        text, back = ctypes.create_string_buffer(b"there", 64), ctypes.create_string_buffer(64)
        there, answers = w.a.raw_alloc(64), []
        other = w.a.raw_alloc(64)
        w.a.copy_data(there, ctypes.addressof(text), 64)
        for copy in copy_c, copy_python:
            copy(w, other, there)
            w.a.synchronize()
            w.a.copy_data(ctypes.addressof(back), other, 64)
            answers.append(back.value)
        w.a.raw_delete(there)
        w.a.raw_delete(other)
        return tuple(answers)
    return call


def fraction(w):
    w.ok("accel_set_memory_fraction", 0.25, 0)
    first = w.a.get_memory_fraction(0)
    w.a.set_memory_fraction(0.25, 0)
    second = w.a.get_memory_fraction(0)
    w.a.set_memory_fraction(1.0, 0)
    return first, second


def switched(w):
    w.ok("accel_enable", 0)
    first = w.a.is_enabled()
    w.a.enable(False)
    second = w.a.is_enabled()
    w.a.enable()
    return first, second


def sizes(w):
    count, found = SIZE(), ctypes.POINTER(w.l.SegmentSizeStruct)()
    w.ok("accel_get_expandable_segment_sizes", 0, ctypes.byref(found), ctypes.byref(count))
    return count.value, len(w.a.expandable_segment_sizes(0))


def handle(w):
    with w.a.allocate(4096) as block:
        first = w.out(w.l.IpcHandleStruct, "accel_share_ipc_handle", block.pointer + 8, w.OUT)
        return bytes(first), w.a.share_ipc_handle(block.pointer + 8)


def no_handle(w):
    """Both refuse bytes that are not a handle, with one status."""
    status = w.c("accel_get_ipc_ptr", ctypes.byref(w.l.IpcHandleStruct()), ctypes.byref(POINTER()))
    return status, w.status(w.a.get_ipc_ptr, bytes(96))


MEMORY = [
    Row("`name`", "accel_name", "name", "check_raw.c",
        lambda w: (w.c("accel_name").decode(), w.a.name())),
    Row("`initialized`", "accel_initialized", "initialized", "check_api.c",
        lambda w: (bool(w.c("accel_initialized")), w.a.initialized())),
    Row("`allocate`, a `DataPtr`", "accel_allocate", "allocate", "allocators.cc", owned),
    Row("DLPack", "accel_allocate", "Allocation.__dlpack_device__", "allocators.cc",
        lambda w: (owned(w), capsule(w))[1]),
    Row("`raw_alloc`", "accel_raw_alloc", "raw_alloc", "check_raw.c", allocated("accel_raw_alloc", "raw_alloc")),
    Row("`raw_alloc_with_stream`", "accel_raw_alloc_with_stream", "raw_alloc", "check_raw.c", with_stream),
    Row("`raw_delete`", "accel_raw_delete", "raw_delete", "check_raw.c", deleted),
    Row("`raw_deleter`", "accel_raw_deleter", "raw_deleter", "check_raw.c",
        lambda w: (w.c("accel_raw_deleter"), w.a.raw_deleter())),
    Row("`recordStream`", "accel_record_stream", "record_stream", "check_api.c", recorded),
    Row("`getBaseAllocation`", "accel_get_base_allocation", "base_allocation", "check_raw.c", base),
    Row("none", "accel_pointer_info", "pointer_info", "check_raw.c", described),
    Row("`copy_data`", "accel_copy_data", "copy_data", "check_raw.c", copied(
        lambda w, to, source: w.ok("accel_copy_data", to, source, 64),
        lambda w, to, source: w.a.copy_data(to, source, 64))),
    Row("`memcpyAsync`", "accel_memcpy_async", "memcpy_async", "check_raw.c", copied(
        lambda w, to, source: w.ok("accel_memcpy_async", to, 0, source, 0, 64, w.stream.handle, 0),
        lambda w, to, source: w.a.memcpy_async(to, 0, source, 0, 64, w.stream))),
    Row("`enablePeerAccess`", "accel_enable_peer_access", "enable_peer_access", "check_raw.c",
        lambda w: (w.c("accel_enable_peer_access", 0, 1), w.a.enable_peer_access(0, 1) or 0)),
    Row("`cacheInfo`", "accel_cache_info", "largest_block", "check_snapshot.c",
        lambda w: (w.out(SIZE, "accel_cache_info", 0, w.OUT).value, w.a.largest_block(0))),
    Row("`setMemoryFraction`", "accel_set_memory_fraction", "set_memory_fraction", "check_pools.c", fraction),
    Row("`getMemoryFraction`", "accel_get_memory_fraction", "get_memory_fraction", "check_pools.c",
        lambda w: (w.out(ctypes.c_double, "accel_get_memory_fraction", w.OUT, 0).value,
                   w.a.get_memory_fraction(0))),
    Row("`enable`", "accel_enable", "enable", "check_pools.c", switched),
    Row("`isEnabled`", "accel_is_enabled", "is_enabled", "check_pools.c",
        lambda w: (bool(w.c("accel_is_enabled")), w.a.is_enabled())),
    Row("`getExpandableSegmentSizes`", "accel_get_expandable_segment_sizes", "expandable_segment_sizes",
        "check_checkpoints.c", sizes),
    Row("`shareIpcHandle`", "accel_share_ipc_handle", "share_ipc_handle", "check_raw.c", handle),
    Row("`getIpcDevPtr`", "accel_get_ipc_ptr", "get_ipc_ptr", "check_raw.c", no_handle),
    Row("end of a `getIpcDevPtr`", "accel_close_ipc_ptr", "close_ipc_ptr", "check_raw.c",
        lambda w: (w.c("accel_close_ipc_ptr", 4096), w.status(w.a.close_ipc_ptr, 4096))),
]


# --- pools and checkpoints ---

def pool_id(w, pool):
    return w.l.PoolId(*pool.id)


def counted(w):
    with w.a.Pool() as pool:
        w.ok("accel_pool_retain", pool_id(w, pool))
        first = w.c("accel_pool_use_count", pool_id(w, pool))
        w.ok("accel_pool_release", pool_id(w, pool))
        pool.retain()
        second = pool.use_count
        pool.release_user()
        return (first, 1), (second, pool.use_count)


def created(w):
    made = w.l.PoolId()
    w.ok("accel_pool_create", 0, None, ctypes.byref(made))
    first = w.c("accel_pool_use_count", made)
    w.ok("accel_pool_release", made)
    pool = w.a.Pool()
    second = pool.use_count
    pool.release()
    return (first, 0), (second, pool.use_count)


def flagged(w):
    """In a pool without splits, a small block takes a whole segment."""
    answers = []
    for flag in (lambda pool: w.ok("accel_pool_set_flags", pool_id(w, pool), 2),
                 lambda pool: pool.set_flags(no_split=True)):
        with w.a.Pool() as pool:
            flag(pool)
            with pool.allocating(0):
                block = w.a.raw_alloc(1000)
            answers.append(pool.bytes(0))
            w.a.raw_delete(block)
    return tuple(answers)


def directed(w):
    """The pool serves requests between begin and end, and none afterwards."""
    answers = []
    with w.a.Pool() as pool:
        for begin, end in ((lambda: w.ok("accel_begin_allocate_to_pool", 0, pool_id(w, pool),
                                         w.l.StreamFilter(), None),
                            lambda: w.ok("accel_end_allocate_to_pool", 0, pool_id(w, pool))),
                           (lambda: pool.begin(0), lambda: pool.end(0))):
            begin()
            inside = w.a.raw_alloc(1000)
            end()
            outside = w.a.raw_alloc(1000)
            answers.append([w.a.pointer_info(one).pool == pool.id for one in (inside, outside)])
            w.a.raw_delete(inside)
            w.a.raw_delete(outside)
            pool.release_user()
    return tuple(answers)


def live(w):
    with w.a.Pool() as pool:
        with pool.allocating(0):
            block = w.a.raw_alloc(1000)
        array = (POINTER * 1)(block)
        first = [w.c("accel_pool_check_live", pool_id(w, pool), 0, array, count) for count in (1, 0)]
        second = [w.status(pool.check_live, blocks, 0) for blocks in ([block], [])]
        w.a.raw_delete(block)
        return first, second


def emptied(w):
    answers = []
    for empty in (lambda pool: w.ok("accel_pool_empty", pool_id(w, pool)), lambda pool: pool.empty(),
                  lambda pool: w.a.pool_empty(pool.id)):
        with w.a.Pool() as pool:
            with pool.allocating(0):
                w.a.raw_delete(w.a.raw_alloc(1000))
            before = pool.bytes(0)
            empty(pool)
            answers.append((before, pool.bytes(0)))
    return answers[0] if answers[0] == answers[1] else None, answers[2]


def pool_bytes(w):
    with w.a.Pool() as pool:
        with pool.allocating(0):
            block = w.a.raw_alloc(1000)
        reserved, held = SIZE(), SIZE()
        w.ok("accel_pool_bytes", pool_id(w, pool), 0, ctypes.byref(reserved), ctypes.byref(held))
        second = pool.bytes(0)
        w.a.raw_delete(block)
        return (reserved.value, held.value), second


def restored(w):
    with w.a.Pool() as pool:
        with pool.allocating(0):
            block = w.a.raw_alloc(1000)
        state = w.out(POINTER, "accel_get_checkpoint_state", 0, pool_id(w, pool), w.OUT)
        with pool.checkpoint(0) as checkpoint:
            w.a.raw_delete(block)
            delta = w.l.DeltaStruct(size=ctypes.sizeof(w.l.DeltaStruct))
            w.ok("accel_set_checkpoint_pool_state", state, ctypes.byref(delta))
            first = delta.freed_count, delta.allocated[0]
            w.l.free_text(delta.freed)
            w.l.free_text(delta.allocated)
            w.a.raw_delete(block)
            freed, held = checkpoint.restore()
        w.l.lib().accel_release_checkpoint_state(state)
        w.a.raw_delete(block)
        return first, (len(freed), held[0])


POOL_ROWS = [
    Row("`MemPool`", "accel_pool_create", "Pool", "check_pools.c", created),
    Row("`createOrIncrefPool`", "accel_pool_retain", "Pool.retain", "check_pools.c", counted),
    Row("`releasePool`", "accel_pool_release", "Pool.release_user", "check_pools.c", counted),
    Row("`getPoolUseCount`", "accel_pool_use_count", "Pool.use_count", "check_pools.c", counted),
    Row("`setUseOnOOM`, `setNoSplit`", "accel_pool_set_flags", "Pool.set_flags", "check_pools.c", flagged),
    Row("`beginAllocateToPool`", "accel_begin_allocate_to_pool", "Pool.begin", "check_pools.c", directed),
    Row("`endAllocateToPool`", "accel_end_allocate_to_pool", "Pool.end", "check_pools.c", directed),
    Row("`emptyCache(MempoolId_t)`", "accel_pool_empty", "pool_empty", "check_pools.c", emptied),
    Row("none", "accel_pool_bytes", "Pool.bytes", "check_pools.c", pool_bytes),
    Row("`checkPoolLiveAllocations`", "accel_pool_check_live", "Pool.check_live", "check_pools.c", live),
    Row("`getCheckpointState`", "accel_get_checkpoint_state", "Pool.checkpoint", "check_checkpoints.c", restored),
    Row("`setCheckpointPoolState`", "accel_set_checkpoint_pool_state", "Checkpoint.restore",
        "check_checkpoints.c", restored),
]


# --- observers, history, snapshots ---

def too_much(w):
    w.status(w.a.raw_alloc, 1 << 40)


def observed(attach, detach, prototype, python, count, provoke=too_much, answer=lambda *what: 0):
    """Returns how often each observer was called."""
    def call(w):
        seen = []
        function = getattr(w.l, prototype)(lambda *what: seen.append(1) or answer())
        w.ok(attach, function, None)
        provoke(w)
        w.ok(detach, function, None)
        first = len(seen)
        with getattr(w.a, python)(lambda *what: seen.append(1) or answer()):
            provoke(w)
        return (first >= count, first), (first >= count, len(seen) - first)
    return call


def one_block(w):
    w.a.raw_delete(w.a.raw_alloc(1000))


def recorded_history(w):
    history = w.a._History(ctypes.sizeof(w.a._History), 1, 10)
    w.ok("accel_record_history", ctypes.byref(history))
    first = w.a.is_history_enabled()
    w.a.record_history(0)
    w.a.record_history(10)
    second = w.a.is_history_enabled()
    w.a.record_history(0)
    return first, second


def annotated(w):
    seen = []
    with w.a.attach_trace_tracker(lambda entry: seen.append((entry.action, entry.text))):
        w.ok("accel_annotate", b"step 7")
        w.a.annotate("step 7")
    return seen[0], seen[1]


def snapshots(w):
    """Takes both snapshots, with one block held and one history entry."""
    w.a.record_history(100)
    block = w.a.raw_alloc(1000)
    c, python = w.c_snapshot(), w.a.snapshot()
    w.a.raw_delete(block)
    w.a.record_history(0)
    return c, python


def field(part, name):
    def call(w):
        c, python = (one[0] if part == "device_traces" else one for one in (
            whole["device_traces" if part == "device_traces" else "segments"] for whole in snapshots(w)))
        if part == "blocks":
            c, python = c[0]["blocks"], python[0]["blocks"]
        return c[0][name], python[0][name]
    return call


def snapshot_rows(kind, part, names):
    return [Row(f"`{kind}::{reference}`", f"accel_snapshot: {part}[].{name}",
                f'snapshot()["{part}"]' if part == "segments" and not name else
                {"segments": f'snapshot()["segments"][]["{name}"]',
                 "blocks": f'snapshot()["segments"][]["blocks"][]["{name}"]',
                 "device_traces": f'snapshot()["device_traces"][][]["{name}"]'}[part],
                "check_pools.c", field(part, name)) for reference, name in names]


OBSERVERS = [
    Row("`attachOutOfMemoryObserver`", "accel_attach_oom_observer", "attach_oom_observer", "check_pools.c",
        observed("accel_attach_oom_observer", "accel_detach_oom_observer", "OomObserver",
                 "attach_oom_observer", 1)),
    Row("its end", "accel_detach_oom_observer", "Observer.detach", "check_pools.c",
        observed("accel_attach_oom_observer", "accel_detach_oom_observer", "OomObserver",
                 "attach_oom_observer", 1)),
    Row("`FreeMemoryCallback`", "accel_add_free_callback", "add_free_callback", "check_pools.c",
        observed("accel_add_free_callback", "accel_remove_free_callback", "FreeCallback",
                 "add_free_callback", 1)),
    Row("its end", "accel_remove_free_callback", "Observer.detach", "check_pools.c",
        observed("accel_add_free_callback", "accel_remove_free_callback", "FreeCallback",
                 "add_free_callback", 1)),
    Row("`attachAllocatorTraceTracker`", "accel_attach_trace_tracker", "attach_trace_tracker", "check_pools.c",
        observed("accel_attach_trace_tracker", "accel_detach_trace_tracker", "TraceTracker",
                 "attach_trace_tracker", 3, one_block)),
    Row("its end", "accel_detach_trace_tracker", "Observer.detach", "check_snapshot.c",
        observed("accel_attach_trace_tracker", "accel_detach_trace_tracker", "TraceTracker",
                 "attach_trace_tracker", 3, one_block)),
    Row("`recordHistory`", "accel_record_history", "record_history", "check_records.c", recorded_history),
    Row("`recordAnnotation`", "accel_annotate", "annotate", "check_records.c", annotated),
    Row("`isHistoryEnabled`", "accel_is_history_enabled", "is_history_enabled", "check_snapshot.c",
        lambda w: (bool(w.c("accel_is_history_enabled")), w.a.is_history_enabled())),
    Row("`snapshot`", "accel_snapshot", "snapshot", "check_pools.c",
        lambda w: [whole["segments"] for whole in snapshots(w)]),
]
OBSERVERS += snapshot_rows("SegmentInfo", "segments", [
    (name, name) for name in ("device", "address", "total_size", "allocated_size", "active_size",
                              "requested_size", "stream", "is_expandable", "blocks")])
OBSERVERS += snapshot_rows("SegmentInfo", "segments", [("is_large", "segment_type"),
                                                       ("owner_private_pool_id", "segment_pool_id")])
OBSERVERS += snapshot_rows("BlockInfo", "blocks", [
    ("size", "size"), ("requested_size", "requested_size"), ("allocated, active", "state")])
OBSERVERS += snapshot_rows("TraceEntry", "device_traces", [
    ("action_", "action"), ("addr_", "addr"), ("size_", "size"), ("stream_", "stream"), ("time_", "time_us")])


# --- CUDAPluggableAllocator ---

SETTERS = {
    "set_init_fn": "init", "set_reset_fn": "reset", "set_memory_fraction_fn": "memory_fraction",
    "set_base_alloc_fn": "base_alloc", "set_record_stream_fn": "record_stream",
    "set_begin_allocate_to_pool": "begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "end_allocate_to_pool", "set_release_pool": "release_pool"}


def given(w, use):
    """Returns what the package passes to PyTorch's allocator: names, and an address for each setter."""
    found = {}

    class Allocator:
        def __init__(self, path, malloc, free):
            found.update(malloc=malloc, free=free)

        def allocator(self):
            return types.SimpleNamespace(**{
                setter: lambda address, setter=setter: found.__setitem__(setter, address)
                for setter in SETTERS})
    with w.stand_in("torch", cuda=types.SimpleNamespace(memory=types.SimpleNamespace(
            CUDAPluggableAllocator=Allocator, change_current_allocator=lambda one: None))):
        use()
    return found


def set_by(setter):
    return lambda w: (w.address("accel_torch_" + SETTERS[setter]),
                      given(w, w.a.pluggable_allocator)[setter])


def served(malloc, use):
    """Uses the named function to serve a request, and another one to free it."""
    def call(w):
        function = w.function(malloc, POINTER, SIZE, ctypes.c_int, POINTER)
        free = w.function("accel_torch_free", None, POINTER, SIZE, ctypes.c_int, POINTER)
        block = function(1000, 0, None)
        size = w.a.pointer_info(block).bytes
        free(block, 1000, 0, None)
        found = given(w, getattr(w.a, use))
        return (malloc, "accel_torch_free", size), (found["malloc"], found["free"], 1000)
    return call


PLUGGABLE = [
    Row("`malloc_fn`", "accel_torch_malloc", "pluggable_allocator", "torch.cc",
        served("accel_torch_malloc", "pluggable_allocator")),
    Row("`malloc_fn` that throws", "accel_torch_malloc_or_throw", "use_in_torch", "torch.cc",
        served("accel_torch_malloc_or_throw", "use_in_torch")),
    Row("`free_fn`", "accel_torch_free", "pluggable_allocator", "torch.cc",
        served("accel_torch_malloc", "pluggable_allocator")),
] + [Row(f"`{setter}`", "accel_torch_" + name, "pluggable_allocator", "api_complete.c", set_by(setter))
     for setter, name in SETTERS.items()]

GROUPS = [("DeviceAccelerator, devices", DEVICES), ("DeviceStats", STATISTICS),
          ("CachingDeviceAllocator: memory", MEMORY), ("CachingDeviceAllocator: pools", POOL_ROWS),
          ("CachingDeviceAllocator: observers, history, snapshots", OBSERVERS),
          ("CUDAPluggableAllocator", PLUGGABLE)]


# --- comparison with PyTorch itself ---
#
# reference name: (call in PyTorch, call here).  PyTorch uses the simulated device, and the library serves its
# cache.  Each allocator has its own figures, so only the names and types of figures are compared.

def there_and_back(exchange, current):
    """Exchanges devices 0 and 1; returns the results, each with the current device."""
    first, now = exchange(1), current()
    return first, now, exchange(0), current()


def shape(value):
    """Returns names and types, without figures."""
    if isinstance(value, dict):
        return {name: shape(value[name]) for name in sorted(value)}
    return type(value).__name__


def inside(guard, current):
    with guard(1):
        now = current()
    return now, current()


def one_stat(path):
    def of(stats):
        for name in path:
            stats = stats[name]
        return shape(stats)
    return (lambda t: of(t.cuda.memory.memory_stats_as_nested_dict(0)), lambda a: of(a.stats(0)))


def stream_of_thread(set_stream, get_stream, make):
    stream = make()
    before = get_stream()
    set_stream(stream)
    same = get_stream() == stream
    set_stream(before)
    return same, get_stream() == before


def told(attach, fail):
    """Returns the number of figures that an observer gets, the device, and whether the size is right."""
    seen = []
    attach(lambda *figures: seen.append(figures))
    fail()
    return len(seen[0]), seen[0][0], seen[0][1] >= 1 << 40


def failing(call, kinds):
    def fail():
        try:
            call()
        except kinds:
            return
        raise AssertionError("no error")
    return fail


def name_in(part, name, snapshot):
    rows = snapshot["segments" if part == "blocks" else part]
    rows = rows[0] if part == "device_traces" else rows
    rows = rows[0]["blocks"] if part == "blocks" else rows
    return name if name in rows[0] else sorted(rows[0])


IN_PYTORCH = {
    "`getAccelerator`": (lambda t: t.accelerator.current_accelerator().type, lambda a: a.get_accelerator()),
    "`deviceCount`": (lambda t: t.accelerator.device_count(), lambda a: a.device_count()),
    "`getDeviceIndex`": (lambda t: t.accelerator.current_device_index(), lambda a: a.current_device()),
    "`setDeviceIndex`": (lambda t: [(t.accelerator.set_device_index(one), t.accelerator.current_device_index())
                                    for one in (1, -1, 0)],
                         lambda a: [(a.set_device(one), a.current_device()) for one in (1, -1, 0)]),
    "`exchangeDevice`": (lambda t: there_and_back(t.cuda._exchange_device, t.accelerator.current_device_index),
                         lambda a: there_and_back(a.exchange_device, a.current_device)),
    "`maybeExchangeDevice`": (
        lambda t: there_and_back(t.cuda._maybe_exchange_device, t.accelerator.current_device_index),
        lambda a: there_and_back(a.maybe_exchange_device, a.current_device)),
    "`DeviceGuard`": (lambda t: inside(t.accelerator.device_index, t.accelerator.current_device_index),
                      lambda a: inside(a.device_guard, a.current_device)),
    "`setCurrentStream`": (
        lambda t: stream_of_thread(t.accelerator.set_stream, t.accelerator.current_stream, t.Stream),
        lambda a: stream_of_thread(a.set_stream, a.get_stream, lambda: a.Stream(1, 0))),
    "`synchronizeDevice`": (lambda t: t.accelerator.synchronize(0), lambda a: a.synchronize(0)),
    "`emptyCache`": (lambda t: t.accelerator.empty_cache(), lambda a: a.empty_cache()),
    "`resetPeakStats`": (lambda t: t.accelerator.reset_peak_memory_stats(0), lambda a: a.reset_peak_stats(0)),
    "`resetAccumulatedStats`": (lambda t: t.accelerator.reset_accumulated_memory_stats(0),
                                lambda a: a.reset_accumulated_stats(0)),
    "`getMemoryInfo`": (lambda t: (t.accelerator.get_memory_info(0)[1], 2),
                        lambda a: (a.memory_info(0)[1], len(a.memory_info(0)))),
    "`getMemoryFraction`": (
        lambda t: (t.cuda.set_per_process_memory_fraction(0.25, 0), t.cuda.get_per_process_memory_fraction(0),
                   t.cuda.set_per_process_memory_fraction(1.0, 0)),
        lambda a: (a.set_memory_fraction(0.25, 0), a.get_memory_fraction(0), a.set_memory_fraction(1.0, 0))),
    "`getPoolUseCount`": (lambda t: (t.cuda.MemPool().use_count(), len(t.cuda.MemPool().id)),
                          lambda a: (a.Pool().use_count, len(a.Pool().id))),
    "`attachOutOfMemoryObserver`": (
        lambda t: told(t._C._cuda_attach_out_of_memory_observer,
                       failing(lambda: t.empty(1 << 40, dtype=t.uint8, device="cuda"), RuntimeError)),
        lambda a: told(a.attach_oom_observer, failing(lambda: a.raw_alloc(1 << 40), MemoryError))),
}
IN_PYTORCH.update((row.reference, one_stat(row.python.split('"')[1::2])) for row in STATISTICS)
for row in OBSERVERS:
    if row.python.startswith("snapshot()"):
        path = row.python.split('"')
        IN_PYTORCH[row.reference] = (
            lambda t, path=path: name_in(path[-4], path[-2], t.cuda.memory._snapshot()),
            lambda a, path=path: name_in(path[-4], path[-2], a.snapshot()))


def compare(torch, accelcache):
    """Returns the rows with different answers in PyTorch and the package, with both answers, and the number of
    rows."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(max_entries=100)
    accelcache.record_history(100)
    held = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda"), accelcache.allocate(3 << 20)]
    wrong = {}
    for name, (there, here) in IN_PYTORCH.items():
        answers = []
        for call, package in (there, torch), (here, accelcache):
            accelcache.set_device(0)
            try:
                answers.append(call(package))
            except Exception as error:
                answers.append(repr(error))
                wrong[name] = answers
        if answers[0] != answers[1]:
            wrong[name] = answers
    del held
    return wrong, len(IN_PYTORCH)


def table():
    """Returns all rows as Markdown."""
    lines = ["| reference | in C | in Python | test |", "|---|---|---|---|"]
    for title, rows in GROUPS:
        lines.append(f"| **{title}** | | | |")
        lines += [f"| {row.reference} | `{row.c}` | `{row.python}` | `{row.suite}` |" for row in rows]
    return "\n".join(lines) + "\n"
