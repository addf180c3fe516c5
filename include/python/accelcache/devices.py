"""Devices, and the current stream that each thread has on every device."""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Iterator, NamedTuple, Optional, Tuple, Union

from ._library import (INVALID, NO_DRIVER, GuardStruct, StreamStruct, call, error, handle_of, lib)


class Stream(NamedTuple):
    """A stream of a device; handle 0 is the legacy default stream."""

    handle: int
    device: int

    def __cuda_stream__(self) -> Tuple[int, int]:
        """CUDA's protocol for streams: (version, CUstream)."""
        return 0, self.handle


def name() -> str:
    """The library's name."""
    return call("accel_name").decode()


def get_accelerator() -> Optional[str]:
    """The kind of device that memory is served for, "cuda"; None without a driver or a device."""
    kind = call("accel_get_accelerator")
    return kind and kind.decode()


def device_count() -> int:
    """Number of devices; 0 without a driver."""
    return call("accel_device_count")


def current_device() -> int:
    """The thread's device, 0 if it named none; -1: there is no driver."""
    return call("accel_current_device")


def set_device(device: int) -> None:
    """Make the device current; a negative one changes nothing."""
    call("accel_set_device", device)


def _exchange(function: str, device: int) -> int:
    before = call(function, device)
    if before == -2:
        status = INVALID if device_count() else NO_DRIVER
        raise error(status, f"{function}: {lib().accel_status_string(status).decode()}")
    return before


def exchange_device(device: int) -> int:
    """Makes the device current, and returns the device that was current before."""
    return _exchange("accel_exchange_device", device)


def maybe_exchange_device(device: int) -> int:
    """Like exchange_device, but makes no context.  A negative device changes nothing and returns -1."""
    return _exchange("accel_maybe_exchange_device", device)


def device_or_current(device: Optional[int]) -> int:
    return max(current_device(), 0) if device is None else device


def synchronize(device: Optional[int] = None) -> None:
    """Wait for all work of the device."""
    call("accel_synchronize_device", device_or_current(device))


def _stream_struct(stream: Any, device: Optional[int]) -> StreamStruct:
    if isinstance(stream, Stream) and device is None:
        device = stream.device
    device = device_or_current(device)
    if ctypes.c_int(device).value != device:
        raise error(INVALID, f"accel_stream_t: device {device} is out of range")
    return StreamStruct(handle_of(stream) or None, device)


def get_stream(device: Optional[int] = None) -> Stream:
    """The thread's current stream on the device."""
    found = StreamStruct()
    call("accel_get_stream", -1 if device is None else device, ctypes.byref(found))
    return Stream(found.stream or 0, found.device)


def set_stream(stream: Any, device: Optional[int] = None) -> None:
    """Makes the stream the thread's current one on its device, and that device current.  `stream` is a
    Stream, a CUstream as a number, None (the default stream), or another package's object; without
    `device` one that is no Stream belongs to the current device."""
    call("accel_set_stream", _stream_struct(stream, device))


@contextlib.contextmanager
def _guarded(function: str, what: Union[int, StreamStruct]) -> Iterator[None]:
    guard = GuardStruct()
    call(function, ctypes.byref(guard), what)
    try:
        yield
    finally:
        lib().accel_guard_leave(ctypes.byref(guard))


def device_guard(device: int) -> contextlib.AbstractContextManager:
    """`with device_guard(1):` makes the device current inside the block, and brings back device, stream and
    context.  A negative device changes nothing.  One thread enters and leaves."""
    return _guarded("accel_guard_enter", device)


def stream_guard(stream: Any, device: Optional[int] = None) -> contextlib.AbstractContextManager:
    """`with stream_guard(stream):` makes the stream and its device current inside the block."""
    return _guarded("accel_guard_enter_stream", _stream_struct(stream, device))


def enable_peer_access(device: int, peer: int) -> None:
    """Work of `device` may use memory of `peer` from now on."""
    call("accel_enable_peer_access", device, peer)
