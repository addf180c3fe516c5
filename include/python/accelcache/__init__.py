"""The C API of libaccelcache.so, by ctypes alone.

Works with the library that the process was started under (LD_PRELOAD, `accelcache run`), and else
loads it: the file that ACCELCACHE_LIBRARY names, the one next to this package, or the system's.  Sizes
are bytes, devices CUDA ordinals, pointers and streams numbers; a call that fails raises Error or one of its
subclasses (OutOfMemoryError is a MemoryError as well), and ImportError where there is no library.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import time
from typing import Any, Dict, Iterator, Optional, Tuple, Union

from ._library import (BUSY as _BUSY, INVALID as _INVALID, NO_DRIVER as _NO_DRIVER,
                       BusyError, Error, InvalidError, NoDriverError, OutOfMemoryError, PointerError,
                       PoolId as _PoolId, UnsupportedError, call as _call, check as _check,
                       error as _error, lib as _lib, library, library_path, taken as _taken)
from .devices import (Stream, current_device, device_count, device_guard, device_or_current as _device,
                      enable_peer_access, exchange_device, get_accelerator, get_stream,
                      maybe_exchange_device, name, set_device, set_stream, stream_guard, synchronize)
from .memory import (Allocation, PointerInfo, SegmentSize, allocate, base_allocation, close_ipc_ptr,
                     copy_data, expandable_segment_sizes, get_ipc_ptr, ipc_memory, memcpy_async,
                     pointer_info, raw_alloc, raw_delete, raw_deleter, record_stream, share_ipc_handle)
from .observers import (Observer, TraceAction, TraceEntry, add_free_callback, attach_oom_observer,
                        attach_trace_tracker)
from .pools import Checkpoint, CheckpointDelta, Pool, pool_empty

__all__ = ["Allocation", "BusyError", "Checkpoint", "CheckpointDelta", "Error", "InvalidError", "MemPool",
           "NoDriverError", "Observer", "OutOfMemoryError", "PointerError", "PointerInfo", "Pool",
           "SegmentSize", "Stream", "TraceAction", "TraceEntry", "UnsupportedError",
           "add_free_callback", "allocate", "annotate", "attach_oom_observer", "attach_trace_tracker",
           "base_allocation", "check", "close_ipc_ptr", "copy_data", "cuda_core_resource",
           "current_device", "device_count", "device_guard", "driver_memory_info", "dump", "empty_cache", "enable",
           "enable_peer_access", "exchange_device", "expandable_segment_sizes", "get_accelerator",
           "get_ipc_ptr", "get_memory_fraction", "get_stream", "initialized", "ipc_memory",
           "is_enabled", "is_history_enabled", "largest_block", "library", "library_path",
           "maybe_exchange_device", "memcpy_async", "memory_info", "name", "numba_manager",
           "phase", "pluggable_allocator", "pointer_info", "pool_empty", "raw_alloc", "raw_delete",
           "raw_deleter", "record", "record_history", "record_stream", "reset_accumulated_stats",
           "reset_peak_stats", "rmm_resource", "set_device", "set_memory_fraction", "set_settings",
           "set_stream", "share_ipc_handle", "snapshot", "stats", "stats_document", "stream_guard",
           "synchronize", "use_in_cuda_core", "use_in_cupy", "use_in_jax", "use_in_numba",
           "use_in_rmm", "use_in_torch", "use_mem_pool", "version"]


def __getattr__(attribute: str) -> str:
    if attribute != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    return "{}.{}".format(*version())


def version() -> Tuple[int, int]:
    """(major, minor) of the library."""
    return divmod(_call("accel_version"), 1000)


def initialized() -> bool:
    """Whether the cache is active; starts nothing."""
    return bool(_call("accel_initialized"))


def empty_cache() -> None:
    """Give idle memory of all devices back to the driver."""
    _call("accel_empty_cache")


def _memory_info(function, device):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(function, _device(device), ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def memory_info(device: Optional[int] = None) -> Tuple[int, int]:
    """(bytes that requests could obtain, bytes in total)."""
    return _memory_info("accel_get_memory_info", device)


def driver_memory_info(device: Optional[int] = None) -> Tuple[int, int]:
    """(bytes that the driver has free, bytes in total): idle memory in the cache is not free."""
    return _memory_info("accel_get_device_memory_info", device)


def largest_block(device: Optional[int] = None) -> int:
    """Bytes of the largest block that a request could obtain."""
    largest = ctypes.c_size_t()
    _call("accel_cache_info", _device(device), ctypes.byref(largest))
    return largest.value


def stats_document() -> Dict[str, Any]:
    """All that a dump has, of this moment."""
    text = ctypes.c_void_p()
    _call("accel_stats_json", ctypes.byref(text))
    return _taken(text)


def stats(device: Optional[int] = None) -> Dict[str, Any]:
    """Statistics of a device, nested as torch.accelerator.memory_stats has them before it makes them
    flat; {} for one that was not used."""
    device = _device(device)
    if not device_count():
        _check(_NO_DRIVER, "accel_device_count")
    if device_count() <= device or device < 0:
        raise _error(_INVALID, f"there is no device {device}: device_count() says how many there are")
    for entry in stats_document()["devices"]:
        if entry["ordinal"] == device:
            return entry["stats"]
    return {}


def reset_peak_stats(device: Optional[int] = None) -> None:
    """Sets peaks to the current values."""
    _call("accel_reset_peak_stats", _device(device))


def reset_accumulated_stats(device: Optional[int] = None) -> None:
    """Sets sums and counts to 0."""
    _call("accel_reset_accumulated_stats", _device(device))


def set_memory_fraction(fraction: float, device: Optional[int] = None) -> None:
    """The share of the device's memory that this process may reserve."""
    _call("accel_set_memory_fraction", fraction, _device(device))


def get_memory_fraction(device: Optional[int] = None) -> float:
    """The share that was set; 1 if none was."""
    fraction = ctypes.c_double()
    _call("accel_get_memory_fraction", ctypes.byref(fraction), _device(device))
    return fraction.value


def set_settings(text: str) -> None:
    """Replace the settings by those of `text`, written as ACCEL_ALLOC_CONF."""
    message = ctypes.create_string_buffer(256)
    status = _lib().accel_set_allocator_settings(text.encode(), message, len(message))
    _check(status, "accel_set_allocator_settings", message.value.decode() or None)


_Recorder = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_CONTEXTS = (None, "state", "alloc", "all")
_recorders = []  # another thread may still be in a former one


class _History(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("enabled", ctypes.c_int), ("most", ctypes.c_size_t),
                ("when", ctypes.c_int), ("clear", ctypes.c_int), ("recorder", _Recorder),
                ("arg", ctypes.c_void_p)]


def record_history(most=100000, *, enabled=True, context="all", clear=False, recorder=None):
    """Keep the newest entries about memory for snapshots; 0, or not `enabled`: none.

    `context` is what has frames, as in PyTorch: None, "state", "alloc" or "all".  `recorder` returns a text about
    what the thread is doing, or None.  `clear` drops the entries so far.
    """
    if ctypes.c_size_t(most).value != most:
        raise _error(_INVALID, f"accel_record_history: {most} is out of range")
    if context not in _CONTEXTS:
        raise _error(_INVALID, f"accel_record_history: context is {context!r}, not one of {_CONTEXTS}")
    strdup = ctypes.CDLL(None).strdup
    strdup.restype, strdup.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)

    def record(_):
        text = recorder()
        return None if text is None else strdup(text.encode(errors="replace"))

    history = _History(ctypes.sizeof(_History), bool(enabled and most), most, _CONTEXTS.index(context),
                       bool(clear), _Recorder(record) if recorder else _Recorder())
    if recorder:
        _recorders.append(history.recorder)
    _call("accel_record_history", ctypes.byref(history))


def annotate(text: str) -> None:
    """Adds an entry with the text to the history of the current device, and tells it to trace trackers."""
    _call("accel_annotate", text.encode())


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """`with phase("forward"):` names what this thread does inside the block.

    What the settings `stacks` and `history` record of a request has the phases that its thread has open: reports,
    flame graphs and `accelcache diff` show call sites by phase.  Phases nest; 16 are named, with 63 bytes of each name.
    An empty name raises InvalidError.
    """
    _call("accel_phase_push", name.encode(errors="replace"))
    try:
        yield
    finally:
        _call("accel_phase_pop")


def snapshot(pool: Tuple[int, int] = (0, 0)) -> Dict[str, Any]:
    """Segments, blocks and the history, in the layout of PyTorch's memory snapshots."""
    text = ctypes.c_void_p()
    _call("accel_snapshot", _PoolId(*pool), ctypes.byref(text))
    return _taken(text)


def is_history_enabled() -> bool:
    """Returns True if entries are kept."""
    return bool(_call("accel_is_history_enabled"))


def enable(enabled: bool = True) -> None:
    """Serve from the cache, or leave all requests to the driver; what is held stays valid."""
    _call("accel_enable", bool(enabled))


def is_enabled() -> bool:
    """Returns True if the cache serves requests."""
    return bool(_call("accel_is_enabled"))


def check() -> None:
    """Compare the records of the cache with its figures; what is wrong raises Error.

    While a thread is kept from running inside the cache nothing can be compared: it is asked again, for
    half a minute at most."""
    message = ctypes.create_string_buffer(256)
    until = time.monotonic() + 30
    status = _lib().accel_check(message, len(message))
    while status == _BUSY and time.monotonic() < until:
        time.sleep(0.01)
        status = _lib().accel_check(message, len(message))
    _check(status, "accel_check", message.value.decode() or None)


def dump(path: Union[None, str, bytes, os.PathLike] = None) -> None:
    """Writes the statistics to a file; without a path to where `dump` of the settings says.

    Raises Error with the name of the file if it cannot be written.
    """
    try:
        _call("accel_dump", None if path is None else os.fsencode(path))
    except Error as error:
        if path is None:
            raise
        raise type(error)(error.status, f"{os.fsdecode(path)}: {error}") from None


@contextlib.contextmanager
def record(path: Union[str, bytes, os.PathLike], most: int = 100000) -> Iterator[None]:
    """`with record("step.json"):` writes a snapshot of what the block did with device memory.

    Drops the history so far and keeps the newest `most` entries of each device, with call stacks if the setting
    `stacks:all` is on.  When the block ends, also by an exception, it writes the file and switches the history off.
    `accelcache stat FILE` and `accelcache report FILE` show which call sites held the memory.  One recording at a
    time, on any thread.  Raises OSError if the file cannot be written, and else what `snapshot` raises.
    """
    snapshot()  # its errors come before the file is opened
    with open(path, "w", encoding="utf-8") as file:
        record_history(most, clear=True)
        try:
            yield
        finally:
            json.dump(snapshot(), file)
            record_history(0)


from .frameworks import (MemPool, cuda_core_resource, numba_manager,  # noqa: E402 (it needs what is above)
                         pluggable_allocator, rmm_resource, use_in_cuda_core, use_in_cupy, use_in_jax,
                         use_in_numba, use_in_rmm, use_in_torch, use_mem_pool)
