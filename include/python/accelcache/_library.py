"""Finds and loads libaccelcache.so, and calls its functions by ctypes.

ctypes releases the interpreter's lock during every call, so that other Python threads run, and the
library may call functions of this package from any thread.
"""
from __future__ import annotations

import ctypes
import glob
import json
import os
from typing import Any, List, Optional, Tuple

INVALID, NO_DRIVER, NOT_OURS, CUDA, SETTINGS, OUT_OF_MEMORY, IO = 1, 2, 3, 4, 5, 6, 7
DEVICE_MEMORY, BUSY, UNSUPPORTED, DOUBLE_FREE, INTERIOR = 9, 10, 11, 12, 13


class PoolId(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


class StreamStruct(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_void_p), ("device", ctypes.c_int)]


class GuardStruct(ctypes.Structure):
    _fields_ = [("before", StreamStruct), ("context", ctypes.c_void_p), ("entered", ctypes.c_int),
                ("chosen", ctypes.c_int)]


class PointerInfoStruct(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
                ("allocated", ctypes.c_size_t), ("device", ctypes.c_int), ("ordered", ctypes.c_int),
                ("stream", ctypes.c_void_p), ("pool", PoolId)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DataStruct(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("deleter", Deleter), ("device", ctypes.c_int)]


class SegmentSizeStruct(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_void_p), ("small", ctypes.c_int), ("bytes", ctypes.c_size_t)]


class IpcHandleStruct(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64), ("offset", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 3)]


class DeltaStruct(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("freed", ctypes.POINTER(ctypes.c_void_p)),
                ("freed_count", ctypes.c_size_t), ("allocated", ctypes.POINTER(ctypes.c_void_p)),
                ("allocated_count", ctypes.c_size_t)]


class TraceEntryStruct(ctypes.Structure):
    _fields_ = [("action", ctypes.c_int), ("device", ctypes.c_int), ("address", ctypes.c_uint64),
                ("bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p), ("pool", PoolId),
                ("time_us", ctypes.c_uint64), ("text", ctypes.c_char_p), ("stack", ctypes.c_uint32)]


# Functions of the program.  The last argument is the key of a Python function (observers.py).
StreamFilter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
OomObserver = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t,
                               ctypes.c_void_p)
FreeCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
TraceTracker = ctypes.CFUNCTYPE(None, ctypes.POINTER(TraceEntryStruct), ctypes.c_void_p)

_INT, _SIZE, _POINTER = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_TO_SIZE, _TO_POINTER = ctypes.POINTER(_SIZE), ctypes.POINTER(_POINTER)

# name: (result, arguments).  A result of None is a status, and an error is raised for it.
_FUNCTIONS = {
    "accel_version": (_INT, ()),
    "accel_name": (ctypes.c_char_p, ()),
    "accel_get_accelerator": (ctypes.c_char_p, ()),
    "accel_initialized": (_INT, ()),
    "accel_device_count": (_INT, ()),
    "accel_current_device": (_INT, ()),
    "accel_set_device": (None, (_INT,)),
    "accel_exchange_device": (_INT, (_INT,)),
    "accel_maybe_exchange_device": (_INT, (_INT,)),
    "accel_synchronize_device": (None, (_INT,)),
    "accel_get_stream": (None, (_INT, ctypes.POINTER(StreamStruct))),
    "accel_set_stream": (None, (StreamStruct,)),
    "accel_guard_enter": (None, (ctypes.POINTER(GuardStruct), _INT)),
    "accel_guard_enter_stream": (None, (ctypes.POINTER(GuardStruct), StreamStruct)),
    "accel_enable_peer_access": (None, (_INT, _INT)),
    "accel_empty_cache": (None, ()),
    "accel_reset_peak_stats": (None, (_INT,)),
    "accel_reset_accumulated_stats": (None, (_INT,)),
    "accel_get_memory_info": (None, (_INT, _TO_SIZE, _TO_SIZE)),
    "accel_get_device_memory_info": (None, (_INT, _TO_SIZE, _TO_SIZE)),
    "accel_cache_info": (None, (_INT, _TO_SIZE)),
    "accel_set_memory_fraction": (None, (ctypes.c_double, _INT)),
    "accel_get_memory_fraction": (None, (ctypes.POINTER(ctypes.c_double), _INT)),
    "accel_record_history": (None, (_POINTER,)),
    "accel_annotate": (None, (ctypes.c_char_p,)),
    "accel_is_history_enabled": (_INT, ()),
    "accel_phase_push": (None, (ctypes.c_char_p,)),
    "accel_phase_pop": (None, ()),
    "accel_enable": (None, (_INT,)),
    "accel_is_enabled": (_INT, ()),
    "accel_malloc": (None, (_TO_POINTER, _SIZE)),
    "accel_malloc_async": (None, (_TO_POINTER, _SIZE, _POINTER)),
    "accel_free": (None, (_POINTER,)),
    "accel_free_async": (None, (_POINTER, _POINTER)),
    "accel_record_stream": (None, (_POINTER, _POINTER)),
    "accel_raw_alloc": (None, (_TO_POINTER, _SIZE)),
    "accel_raw_alloc_with_stream": (None, (_TO_POINTER, _SIZE, _POINTER)),
    "accel_raw_delete": (None, (_POINTER,)),
    "accel_raw_deleter": (_POINTER, ()),
    "accel_allocate": (None, (_SIZE, ctypes.POINTER(DataStruct))),
    "accel_pointer_info": (None, (_POINTER, ctypes.POINTER(PointerInfoStruct))),
    "accel_get_base_allocation": (None, (_POINTER, _TO_POINTER, _TO_SIZE)),
    "accel_copy_data": (None, (_POINTER, _POINTER, _SIZE)),
    "accel_memcpy_async": (None, (_POINTER, _INT, _POINTER, _INT, _SIZE, _POINTER, _INT)),
    "accel_get_expandable_segment_sizes":
        (None, (_INT, ctypes.POINTER(ctypes.POINTER(SegmentSizeStruct)), _TO_SIZE)),
    "accel_share_ipc_handle": (None, (_POINTER, ctypes.POINTER(IpcHandleStruct))),
    "accel_get_ipc_ptr": (None, (ctypes.POINTER(IpcHandleStruct), _TO_POINTER)),
    "accel_close_ipc_ptr": (None, (_POINTER,)),
    "accel_attach_oom_observer": (None, (OomObserver, _POINTER)),
    "accel_detach_oom_observer": (None, (OomObserver, _POINTER)),
    "accel_add_free_callback": (None, (FreeCallback, _POINTER)),
    "accel_remove_free_callback": (None, (FreeCallback, _POINTER)),
    "accel_attach_trace_tracker": (None, (TraceTracker, _POINTER)),
    "accel_detach_trace_tracker": (None, (TraceTracker, _POINTER)),
    "accel_pool_create": (None, (ctypes.c_uint, _POINTER, ctypes.POINTER(PoolId))),
    "accel_pool_retain": (None, (PoolId,)),
    "accel_pool_release": (None, (PoolId,)),
    "accel_pool_use_count": (_INT, (PoolId,)),
    "accel_pool_set_flags": (None, (PoolId, ctypes.c_uint)),
    "accel_begin_allocate_to_pool": (None, (_INT, PoolId, StreamFilter, _POINTER)),
    "accel_end_allocate_to_pool": (None, (_INT, PoolId)),
    "accel_pool_empty": (None, (PoolId,)),
    "accel_pool_bytes": (None, (PoolId, _INT, _TO_SIZE, _TO_SIZE)),
    "accel_pool_check_live": (None, (PoolId, _INT, _TO_POINTER, _SIZE)),
    "accel_get_checkpoint_state": (None, (_INT, PoolId, _TO_POINTER)),
    "accel_set_checkpoint_pool_state": (None, (_POINTER, ctypes.POINTER(DeltaStruct))),
    "accel_check": (None, (ctypes.c_char_p, _SIZE)),
    "accel_dump": (None, (ctypes.c_char_p,)),
    "accel_stats_json": (None, (_TO_POINTER,)),
    "accel_snapshot": (None, (PoolId, _TO_POINTER)),
    "accel_set_allocator_settings": (None, (ctypes.c_char_p, ctypes.c_char_p, _SIZE)),
    "accel_status_string": (ctypes.c_char_p, (_INT,)),
}
# Functions without a result.
_PROCEDURES = {
    "accel_guard_leave": (ctypes.POINTER(GuardStruct),),
    "accel_release_checkpoint_state": (_POINTER,),
}


class Error(RuntimeError):
    """A call failed; `status` is its accel_status_t."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class InvalidError(Error, ValueError):
    """An argument or a setting is wrong."""


class NoDriverError(Error):
    """There is no CUDA driver or no device, or the cache cannot run here."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of the device or of the host is short."""


class PointerError(Error, ValueError):
    """The pointer is not the beginning of memory that the program holds."""


class BusyError(Error):
    """Something else has to end first; the call may be repeated."""


class UnsupportedError(Error):
    """The device, the driver or the allocator in use cannot do it."""


_KINDS = {INVALID: InvalidError, SETTINGS: InvalidError, NO_DRIVER: NoDriverError,
          OUT_OF_MEMORY: OutOfMemoryError, DEVICE_MEMORY: OutOfMemoryError, NOT_OURS: PointerError,
          DOUBLE_FREE: PointerError, INTERIOR: PointerError, BUSY: BusyError,
          UNSUPPORTED: UnsupportedError}


def error(status: int, message: str) -> Error:
    """The exception for a status."""
    return _KINDS.get(status, Error)(status, message)


def _candidates() -> List[str]:
    if os.environ.get("ACCELCACHE_LIBRARY"):
        return [os.environ["ACCELCACHE_LIBRARY"]]
    here = os.path.dirname(os.path.abspath(__file__))
    patterns = ("libaccelcache.so", "lib/libaccelcache.so", "install/lib*/**/libaccelcache.so")
    return [path for pattern in patterns
            for path in sorted(glob.glob(os.path.join(here, pattern), recursive=True))
            ] + ["libaccelcache.so"]


def library() -> str:
    """What to name in LD_PRELOAD; loads nothing."""
    return _candidates()[0]


def _open() -> Tuple[ctypes.CDLL, bool]:
    """The library, and whether it was there when the process began to load others: calls of the CUDA
    driver come to it only then."""
    present = ctypes.CDLL(None, use_errno=True)
    if hasattr(present, "accel_version"):
        return present, True
    failures = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL, use_errno=True), False
        except OSError as failure:
            failures.append(str(failure))
    raise ImportError("libaccelcache.so was not found; start the program by `accelcache run`, or name "
                      "the file in ACCELCACHE_LIBRARY: " + "; ".join(failures))


_loaded: Optional[Any] = None
_from_the_start = False


def lib() -> Any:
    """The library, loaded by the first call."""
    global _loaded, _from_the_start
    if _loaded is None:
        loaded, _from_the_start = _open()
        prototypes = dict(_FUNCTIONS)
        prototypes.update((name, ("none", kinds)) for name, kinds in _PROCEDURES.items())
        for name, (result, arguments) in prototypes.items():
            function = getattr(loaded, name, None)
            if function is None:
                raise ImportError(f"the library has no {name}: it is no libaccelcache.so, or of another "
                                  "version than this package; name the right one in ACCELCACHE_LIBRARY")
            function.restype = None if result == "none" else result or _INT
            function.argtypes = arguments
        _loaded = loaded
    return _loaded


def check(status: int, name: str, what: Optional[str] = None) -> None:
    """Raises the error that a status stands for."""
    if not status:
        return
    said = what or lib().accel_status_string(status).decode()
    if status == IO and ctypes.get_errno():
        said = f"{os.strerror(ctypes.get_errno())} ({said})"
    raise error(status, f"{name}: {said}")


_NUMBERS = (ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p)


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the table above, and raises its error."""
    result, kinds = _FUNCTIONS[name]
    for kind, value in zip(kinds, arguments):
        # ctypes would pass another number instead.
        if kind in _NUMBERS and isinstance(value, int) and (kind(value).value or 0) != value:
            raise InvalidError(INVALID, f"{name}: {value} is out of range")
    answer = getattr(lib(), name)(*arguments)
    if result is None:
        check(answer, name)
    return answer


def free_text(pointer: Any) -> None:
    """Frees what the library allocated for its caller."""
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    free(ctypes.cast(pointer, ctypes.c_void_p))


def taken(pointer: ctypes.c_void_p) -> Any:
    """The JSON text at `pointer`, which is freed."""
    try:
        return json.loads(ctypes.string_at(pointer))
    finally:
        free_text(pointer)


def serves_all() -> bool:
    """Returns True if the library also serves requests of other code in this process."""
    lib()
    return _from_the_start


def library_path() -> str:
    """The file of the library in use."""
    class Info(ctypes.Structure):
        _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                    ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
    info = Info()
    address = ctypes.cast(lib().accel_version, ctypes.c_void_p)
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(Info))
    if not dladdr(address, ctypes.byref(info)):
        raise Error(0, "the loader does not tell where the library is")
    return os.fsdecode(info.file)


def handle_of(stream: Any) -> int:
    """The CUstream of a number, or of an object that has CUDA's protocol for streams or PyTorch's
    attribute; None is the default stream."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    return int(getattr(stream, "cuda_stream", stream))
