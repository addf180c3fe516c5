"""Private pools: memory of its own for the raw requests of some streams; and checkpoints of pools."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ._library import DeltaStruct, PoolId, call, free_text, lib
from .devices import device_or_current
from .observers import forget, keep, stream_filter

USE_ON_OOM, NO_SPLIT = 1, 2


class CheckpointDelta(NamedTuple):
    """Addresses of blocks that restore() freed, and of all that the program holds of the pool now."""

    freed: List[int]
    allocated: List[int]


class Checkpoint:
    """The blocks of a pool that the program holds on a device, to be restored later."""

    def __init__(self, pool: "Pool", device: Optional[int] = None) -> None:
        self._state = ctypes.c_void_p()
        call("accel_get_checkpoint_state", device_or_current(device), pool._id,
             ctypes.byref(self._state))

    def restore(self) -> CheckpointDelta:
        """Frees every block that the program holds of the pool, and hands out the blocks of the
        checkpoint."""
        delta = DeltaStruct(size=ctypes.sizeof(DeltaStruct))
        call("accel_set_checkpoint_pool_state", self._state, ctypes.byref(delta))
        try:
            return CheckpointDelta(delta.freed[:delta.freed_count],
                                   delta.allocated[:delta.allocated_count])
        finally:
            free_text(delta.freed)
            free_text(delta.allocated)

    def release(self) -> None:
        """The checkpoint is not needed any more."""
        state = getattr(self, "_state", None)
        if state:
            lib().accel_release_checkpoint_state(state)
            state.value = None

    __del__ = release

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()


class Pool:
    """A private pool, of which this object is one user, until release() or the end of a `with` block.

        with Pool() as pool, pool.allocating():
            block = accelcache.allocate(1 << 20)
    """

    def __init__(self, use_on_oom: bool = False, no_split: bool = False, *,
                 id: Optional[Tuple[int, int]] = None) -> None:
        """A new pool; with `id` the one of that number, which is created if it does not exist.

        use_on_oom: its free memory serves others before a request of theirs fails.  no_split: each block
        is a whole segment."""
        self._held = False
        self._filters: Dict[int, Tuple[int, Any]] = {}
        if id is None:
            self._id = PoolId()
            flags = self._flags(use_on_oom, no_split)
            call("accel_pool_create", flags, None, ctypes.byref(self._id))
            self._held = True
        else:
            self._id = PoolId(*id)
            self.retain()
            self._held = True
            if use_on_oom or no_split:
                self.set_flags(use_on_oom, no_split)

    @staticmethod
    def _flags(use_on_oom: bool, no_split: bool) -> int:
        return USE_ON_OOM * bool(use_on_oom) + NO_SPLIT * bool(no_split)

    @property
    def id(self) -> Tuple[int, int]:
        """The pool's number, as snapshot() takes it."""
        return self._id.first, self._id.second

    def set_flags(self, use_on_oom: bool = False, no_split: bool = False) -> None:
        """The flags of the pool from now on."""
        call("accel_pool_set_flags", self._id, self._flags(use_on_oom, no_split))

    def retain(self) -> None:
        """Adds a user."""
        call("accel_pool_retain", self._id)

    def release_user(self) -> None:
        """Removes a user that retain() or begin() added."""
        call("accel_pool_release", self._id)

    def release(self) -> None:
        """This object is no user any more.  Blocks stay valid."""
        if self._held:
            self.release_user()
            self._held = False

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()

    @property
    def use_count(self) -> int:
        """Users; 0: the pool no longer exists."""
        return call("accel_pool_use_count", self._id)

    def begin(self, device: Optional[int] = None,
              filter: Optional[Callable[[int], Any]] = None) -> None:
        """Raw requests on the device go to the pool until end(): those for streams that filter(handle)
        is true of, or all.  The pool gets one user more, which stays after end()."""
        device = device_or_current(device)
        key = 0 if filter is None else keep(filter)
        entry = ctypes.cast(stream_filter if filter else None, type(stream_filter))
        try:
            call("accel_begin_allocate_to_pool", device, self._id, entry, key or None)
        except BaseException:
            forget(key)
            raise
        if filter:
            at_exit = functools.partial(self.end, device)
            self._filters[device] = key, atexit.register(at_exit)

    def end(self, device: Optional[int] = None) -> None:
        """Requests do not go to the pool any more."""
        device = device_or_current(device)
        call("accel_end_allocate_to_pool", device, self._id)
        if device in self._filters:
            key, at_exit = self._filters.pop(device)
            atexit.unregister(at_exit)
            forget(key)

    @contextlib.contextmanager
    def allocating(self, device: Optional[int] = None,
                   filter: Optional[Callable[[int], Any]] = None) -> Iterator["Pool"]:
        """Raw requests on the device go to the pool inside the block."""
        device = device_or_current(device)
        self.begin(device, filter)
        try:
            yield self
        finally:
            self.end(device)
            self.release_user()

    def empty(self) -> None:
        """Gives idle segments of the pool back."""
        call("accel_pool_empty", self._id)

    def bytes(self, device: Optional[int] = None) -> Tuple[int, int]:
        """Bytes on the device: (in segments, in blocks that the program holds)."""
        reserved, allocated = ctypes.c_size_t(), ctypes.c_size_t()
        call("accel_pool_bytes", self._id, device_or_current(device), ctypes.byref(reserved),
             ctypes.byref(allocated))
        return reserved.value, allocated.value

    def check_live(self, blocks: Iterable[int], device: Optional[int] = None) -> None:
        """Raises InvalidError if the blocks that the program holds of the pool are not those."""
        addresses = list(blocks)
        array = (ctypes.c_void_p * len(addresses))(*addresses)
        call("accel_pool_check_live", self._id, device_or_current(device), array, len(addresses))

    def checkpoint(self, device: Optional[int] = None) -> Checkpoint:
        """The blocks that the program holds of the pool on the device now."""
        return Checkpoint(self, device)


def pool_empty(pool: Tuple[int, int] = (0, 0)) -> None:
    """Gives idle segments of the pool of that number back; (0, 0): of the cache, on all devices."""
    call("accel_pool_empty", PoolId(*pool))
