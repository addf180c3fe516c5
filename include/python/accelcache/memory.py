"""Memory: raw memory, which a pointer alone is enough to free, copies, and memory of other processes."""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._library import (DataStruct, IpcHandleStruct, PointerInfoStruct, SegmentSizeStruct, call,
                       free_text, handle_of)
from .devices import device_or_current, get_stream, stream_guard, synchronize

# --- raw memory ---


def raw_alloc(size: int, stream: Any = None) -> int:
    """The address of memory on the current device, for the thread's current stream there or for `stream`;
    0 for 0 bytes."""
    pointer = ctypes.c_void_p()
    if stream is None:
        call("accel_raw_alloc", ctypes.byref(pointer), size)
    else:
        call("accel_raw_alloc_with_stream", ctypes.byref(pointer), size, handle_of(stream) or None)
    return pointer.value or 0


def raw_delete(pointer: int) -> None:
    """Frees raw memory in the order of its stream; 0 may be freed."""
    call("accel_raw_delete", pointer or None)


def raw_deleter() -> int:
    """The address of a C function `void (*)(void *)` that frees raw memory."""
    return call("accel_raw_deleter")


def record_stream(pointer: int, stream: Any) -> None:
    """Tells that work on `stream` uses the block at `pointer`.  A later free waits for that work, on the
    device, before the memory serves again."""
    call("accel_record_stream", pointer or None, handle_of(stream) or None)


class PointerInfo(NamedTuple):
    """A block: its address, bytes that were asked for, bytes that it takes, device, whether it was
    allocated in the order of `stream`, and the private pool's number, (0, 0) for none."""

    base: int
    bytes: int
    allocated: int
    device: int
    ordered: bool
    stream: int
    pool: Tuple[int, int]


def pointer_info(pointer: int) -> PointerInfo:
    """Describes the block that the pointer lies in."""
    info = PointerInfoStruct(size=ctypes.sizeof(PointerInfoStruct))
    call("accel_pointer_info", pointer, ctypes.byref(info))
    return PointerInfo(info.base or 0, info.bytes, info.allocated, info.device, bool(info.ordered),
                       info.stream or 0, (info.pool.first, info.pool.second))


def base_allocation(pointer: int) -> Tuple[int, int]:
    """(address, bytes) of the block that the pointer lies in."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    call("accel_get_base_allocation", pointer, ctypes.byref(base), ctypes.byref(size))
    return base.value or 0, size.value


# --- an owner ---

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_DLPACK_CUDA, _DLPACK_UINT, _NAME = 2, 1, b"dltensor"
# The structures of DLPack that a consumer holds: the structure, its shape and the owner, by the
# structure's address.
_exported: Dict[int, Tuple[Any, Any, Any]] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete_export(managed: int) -> None:
    """DLManagedTensor.deleter."""
    _exported.pop(managed, None)


# Not ctypes.py_object: that would hold a new reference to a capsule that is being destroyed.
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete_capsule(capsule: int) -> None:
    """A consumer renames the capsule, and calls the deleter itself."""
    if _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(capsule, _NAME):
        get = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
        _exported.pop(get(capsule, _NAME), None)


def _api(function: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((function, ctypes.pythonapi))


class Allocation:
    """Memory that is freed with this object, or at the end of a `with` block.

    Other packages take it as an array of bytes, by DLPack (`torch.from_dlpack`) or by
    `__cuda_array_interface__` (`cupy.asarray`).  They keep this object; free() is for memory that nothing
    uses any more.
    """

    def __init__(self, size: int) -> None:
        self._data = DataStruct()
        call("accel_allocate", size, ctypes.byref(self._data))
        self.size = size
        self.device: int = self._data.device
        self.stream = get_stream(self.device)

    @property
    def pointer(self) -> int:
        """The address; 0 after free() and for 0 bytes."""
        return self._data.pointer or 0

    def free(self) -> None:
        """Frees the memory now, in the order of its stream."""
        pointer, self._data.pointer = self._data.pointer, None
        if pointer:
            self._data.deleter(pointer)

    __del__ = free

    def __enter__(self) -> "Allocation":
        return self

    def __exit__(self, *error: Any) -> None:
        self.free()

    def __len__(self) -> int:
        return self.size

    def record_stream(self, stream: Any) -> None:
        """Work on `stream` uses the memory; its free waits for that."""
        record_stream(self.pointer, stream)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _DLPACK_CUDA, self.device

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Any = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule "dltensor".  A consumer with another stream may use the memory at once: this call
        waits for the device, and the free waits for the consumer's stream."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the memory is not copied, and stays on its device")
        if stream != -1:
            handle = 0 if stream in (None, 1) else stream
            if handle != self.stream.handle:
                synchronize(self.device)
                record_stream(self.pointer, handle)
        shape = (ctypes.c_int64 * 1)(self.size)
        managed = _DLManagedTensor()
        managed.tensor = _DLTensor(self._data.pointer, _DLPACK_CUDA, self.device, 1, _DLPACK_UINT, 8, 1,
                                   ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0)
        managed.deleter = ctypes.cast(_delete_export, ctypes.c_void_p)
        address = ctypes.addressof(managed)
        new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        _exported[address] = (managed, shape, self)
        try:
            return new(address, _NAME, ctypes.cast(_delete_capsule, ctypes.c_void_p))
        except BaseException:
            del _exported[address]
            raise

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        # 1 is the legacy default stream there, and 0 is not allowed.
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False), "version": 3,
                "stream": self.stream.handle or 1}


def allocate(size: int, stream: Any = None) -> Allocation:
    """Memory with an owner, for the thread's current stream or for `stream`."""
    if stream is None:
        return Allocation(size)
    with stream_guard(stream):
        return Allocation(size)


# --- copies ---

def copy_data(to: int, source: int, size: int) -> None:
    """Copies between device memory, or device and host memory, before the call returns."""
    call("accel_copy_data", to, source, size)


def memcpy_async(to: int, to_device: int, source: int, source_device: int, size: int,
                 stream: Any = None, peer_enabled: bool = False) -> None:
    """Copies in the order of `stream` of the current device.  Device -1 is pinned host memory."""
    call("accel_memcpy_async", to, to_device, source, source_device, size, handle_of(stream) or None,
         bool(peer_enabled))


# --- expandable segments ---

class SegmentSize(NamedTuple):
    """Mapped bytes of expandable segments: of one stream, of small requests or not."""

    stream: int
    small: bool
    bytes: int


def expandable_segment_sizes(device: Optional[int] = None) -> List[SegmentSize]:
    """Bytes of pages in expandable segments of the device, by stream."""
    sizes, count = ctypes.POINTER(SegmentSizeStruct)(), ctypes.c_size_t()
    call("accel_get_expandable_segment_sizes", device_or_current(device), ctypes.byref(sizes),
         ctypes.byref(count))
    try:
        return [SegmentSize(sizes[i].stream or 0, bool(sizes[i].small), sizes[i].bytes)
                for i in range(count.value)]
    finally:
        free_text(sizes)


# --- sharing with other processes ---

def share_ipc_handle(pointer: int) -> bytes:
    """A handle of the memory at `pointer` for other processes of the machine."""
    handle = IpcHandleStruct()
    call("accel_share_ipc_handle", pointer, ctypes.byref(handle))
    return bytes(handle)


def get_ipc_ptr(handle: bytes) -> int:
    """The address of another process's memory in this one, until close_ipc_ptr."""
    pointer = ctypes.c_void_p()
    if len(handle) != ctypes.sizeof(IpcHandleStruct):
        raise ValueError(f"a handle has {ctypes.sizeof(IpcHandleStruct)} bytes, not {len(handle)}")
    call("accel_get_ipc_ptr", ctypes.byref(IpcHandleStruct.from_buffer_copy(handle)),
         ctypes.byref(pointer))
    return pointer.value or 0


def close_ipc_ptr(pointer: int) -> None:
    """Closes memory of get_ipc_ptr; as often as it was opened."""
    call("accel_close_ipc_ptr", pointer)


@contextlib.contextmanager
def ipc_memory(handle: bytes) -> Iterator[int]:
    """`with ipc_memory(handle) as pointer:` opens the memory for the block."""
    pointer = get_ipc_ptr(handle)
    try:
        yield pointer
    finally:
        close_ipc_ptr(pointer)
