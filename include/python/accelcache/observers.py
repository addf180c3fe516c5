"""Functions of the program that the library calls: observers, free callbacks and filters of streams.

A function is called by the thread that made the request, or by any thread for a filter, with the
interpreter's lock and without a lock of the library.  An exception in it goes to sys.unraisablehook; the
answer is "no" then.  Every function is removed before the interpreter ends.
"""
from __future__ import annotations

import atexit
import enum
import itertools
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

from ._library import FreeCallback, OomObserver, StreamFilter, TraceTracker, call

# Python functions by the key that the library hands through.  The C functions below live as long as the
# process, since a call may still be under way in another thread after a function was removed.
_functions: Dict[int, Callable] = {}
_keys = itertools.count(1)


def keep(function: Callable) -> int:
    """A key for the function, until forget()."""
    key = next(_keys)
    _functions[key] = function
    return key


def forget(key: int) -> None:
    _functions.pop(key, None)


class TraceAction(enum.IntEnum):
    """Kinds of events."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SNAPSHOT = 5
    OOM = 6
    SEGMENT_MAP = 7
    SEGMENT_UNMAP = 8
    USER_DEFINED = 9


class TraceEntry(NamedTuple):
    """One event of memory; for OOM `address` is what the device has free.
    `text` is what annotate() was given, or what a recorder returned."""

    action: Union[TraceAction, int]
    device: int
    address: int
    bytes: int
    stream: int
    pool: Tuple[int, int]
    time_us: int
    text: Optional[str]


def _action(number: int) -> Union[TraceAction, int]:
    """A newer library may have actions that this package has no name for."""
    try:
        return TraceAction(number)
    except ValueError:
        return number


@StreamFilter
def stream_filter(stream, key):
    function = _functions.get(key)
    return bool(function and function(stream or 0))


@OomObserver
def _on_oom(device, size, limit, available, key):
    function = _functions.get(key)
    if function:
        function(device, size, limit, available)


@FreeCallback
def _on_shortage(device, key):
    function = _functions.get(key)
    return bool(function and function(device))


@TraceTracker
def _on_trace(entry, key):
    function = _functions.get(key)
    if function:
        it = entry.contents
        function(TraceEntry(_action(it.action), it.device, it.address, it.bytes, it.stream or 0,
                            (it.pool.first, it.pool.second), it.time_us,
                            it.text and it.text.decode(errors="replace")))


class Observer:
    """A function that the library calls, until detach() or the end of a `with` block."""

    def __init__(self, attach: str, detach: str, entry: Any, function: Callable) -> None:
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
        self._detach, self._entry, self._key = detach, entry, keep(function)
        try:
            call(attach, entry, self._key)
        except BaseException:
            forget(self._key)
            raise
        atexit.register(self.detach)

    def detach(self) -> None:
        """No call begins after this; one may still be under way in another thread."""
        key, self._key = self._key, 0
        if key:
            atexit.unregister(self.detach)
            call(self._detach, self._entry, key)
            forget(key)

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *error: Any) -> None:
        self.detach()


def attach_oom_observer(observer: Callable[[int, int, int, int], Any]) -> Observer:
    """Calls observer(device, bytes, limit, available) for each request that fails for lack of memory."""
    return Observer("accel_attach_oom_observer", "accel_detach_oom_observer", _on_oom, observer)


def add_free_callback(callback: Callable[[int], Any]) -> Observer:
    """Calls callback(device) when free memory in the cache does not serve a request.  It may free memory
    of the program, and returns true if it did."""
    return Observer("accel_add_free_callback", "accel_remove_free_callback", _on_shortage, callback)


def attach_trace_tracker(tracker: Callable[[TraceEntry], Any]) -> Observer:
    """Calls tracker(TraceEntry) for each event of memory."""
    return Observer("accel_attach_trace_tracker", "accel_detach_trace_tracker", _on_trace, tracker)
