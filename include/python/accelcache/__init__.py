"""The C API of libaccelcache.so, by ctypes alone.

Works with the library that the process was started under (LD_PRELOAD, `accelcache run`), and else
loads it: the file that ACCELCACHE_LIBRARY names, the one beside this package, or the system's.  Sizes
are bytes, devices CUDA ordinals; a call that fails raises Error, MemoryError where memory is short, and
ImportError where there is no library.
"""
import ctypes
import glob
import json
import os
import time

__all__ = ["Error", "MemPool", "check", "cuda_core_resource", "current_device", "device_count", "dump",
           "driver_memory_info", "empty_cache", "enable", "get_memory_fraction", "initialized", "is_enabled", "largest_block",
           "library", "library_path", "memory_info", "numba_manager", "pluggable_allocator",
           "record_history", "reset_accumulated_stats", "reset_peak_stats", "rmm_resource", "set_device",
           "set_memory_fraction", "set_settings", "snapshot", "stats", "stats_document", "synchronize",
           "use_in_cuda_core", "use_in_cupy", "use_in_jax", "use_in_numba", "use_in_rmm",
           "use_in_torch", "use_mem_pool", "version"]

_INVALID, _NO_DRIVER, _CUDA, _OUT_OF_MEMORY, _IO, _DEVICE_MEMORY, _BUSY = 1, 2, 4, 6, 7, 9, 10

# name: (result, arguments).  A result of None is a status, which is looked at.
_FUNCTIONS = {
    "accel_version": (ctypes.c_int, ()),
    "accel_initialized": (ctypes.c_int, ()),
    "accel_device_count": (ctypes.c_int, ()),
    "accel_current_device": (ctypes.c_int, ()),
    "accel_set_device": (None, (ctypes.c_int,)),
    "accel_synchronize_device": (None, (ctypes.c_int,)),
    "accel_empty_cache": (None, ()),
    "accel_reset_peak_stats": (None, (ctypes.c_int,)),
    "accel_reset_accumulated_stats": (None, (ctypes.c_int,)),
    "accel_get_memory_info": (None, (ctypes.c_int, ctypes.POINTER(ctypes.c_size_t),
                                     ctypes.POINTER(ctypes.c_size_t))),
    "accel_get_device_memory_info": (None, (ctypes.c_int, ctypes.POINTER(ctypes.c_size_t),
                                            ctypes.POINTER(ctypes.c_size_t))),
    "accel_cache_info": (None, (ctypes.c_int, ctypes.POINTER(ctypes.c_size_t))),
    "accel_set_memory_fraction": (None, (ctypes.c_double, ctypes.c_int)),
    "accel_get_memory_fraction": (None, (ctypes.POINTER(ctypes.c_double), ctypes.c_int)),
    "accel_record_history": (None, (ctypes.c_void_p,)),
    "accel_enable": (None, (ctypes.c_int,)),
    "accel_is_enabled": (ctypes.c_int, ()),
    "accel_malloc": (None, (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)),
    "accel_malloc_async": (None, (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p)),
    "accel_free": (None, (ctypes.c_void_p,)),
    "accel_free_async": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "accel_check": (None, (ctypes.c_char_p, ctypes.c_size_t)),
    "accel_dump": (None, (ctypes.c_char_p,)),
    "accel_stats_json": (None, (ctypes.POINTER(ctypes.c_void_p),)),
}


class Error(RuntimeError):
    """A call failed; `status` is its accel_status_t."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _PoolId(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def _candidates():
    if os.environ.get("ACCELCACHE_LIBRARY"):
        return [os.environ["ACCELCACHE_LIBRARY"]]
    here = os.path.dirname(os.path.abspath(__file__))
    patterns = ("libaccelcache.so", "lib/libaccelcache.so", "install/lib*/**/libaccelcache.so")
    return [path for pattern in patterns
            for path in sorted(glob.glob(os.path.join(here, pattern), recursive=True))
            ] + ["libaccelcache.so"]


def library():
    """What to name in LD_PRELOAD; loads nothing."""
    return _candidates()[0]


def _open():
    """The library, and whether it was there when the process began to load others: calls of the CUDA
    driver come to it only then."""
    present = ctypes.CDLL(None, use_errno=True)
    if hasattr(present, "accel_version"):
        return present, True
    failures = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL, use_errno=True), False
        except OSError as error:
            failures.append(str(error))
    raise ImportError("libaccelcache.so was not found; start the program by `accelcache run`, or name "
                      "the file in ACCELCACHE_LIBRARY: " + "; ".join(failures))


_library = None
_from_the_start = False


def _lib():
    global _library, _from_the_start
    if _library is None:
        library, _from_the_start = _open()
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise ImportError(f"the library has no {name}: it is no libaccelcache.so, or of another "
                                  "version than this package; name the right one in ACCELCACHE_LIBRARY")
            function.restype = result or ctypes.c_int
            function.argtypes = arguments
        library.accel_set_allocator_settings.argtypes = (ctypes.c_char_p, ctypes.c_char_p,
                                                         ctypes.c_size_t)
        library.accel_snapshot.argtypes = (_PoolId, ctypes.POINTER(ctypes.c_void_p))
        library.accel_status_string.argtypes = (ctypes.c_int,)
        library.accel_status_string.restype = ctypes.c_char_p
        _library = library
    return _library


def _check(status, name, what=None):
    if not status:
        return
    said = what or _lib().accel_status_string(status).decode()
    if status == _IO and ctypes.get_errno():
        said = f"{os.strerror(ctypes.get_errno())} ({said})"
    short = status in (_OUT_OF_MEMORY, _DEVICE_MEMORY)
    raise MemoryError(f"{name}: {said}") if short else Error(status, f"{name}: {said}")


def _call(name, *arguments):
    result, kinds = _FUNCTIONS[name]
    for kind, value in zip(kinds, arguments):
        # ctypes would take another number in its place.
        if kind in (ctypes.c_int, ctypes.c_size_t) and kind(value).value != value:
            raise Error(_INVALID, f"{name}: {value} is out of range")
    status = getattr(_lib(), name)(*arguments)
    if result is None:
        _check(status, name)
    return status


def _taken(pointer):
    """The text at `pointer`, which is freed."""
    try:
        return json.loads(ctypes.string_at(pointer))
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes, free.restype = (ctypes.c_void_p,), None
        free(pointer)


def _serves_all():
    """Whether requests of others in this process are served, too."""
    _lib()
    return _from_the_start


def library_path():
    """The file of the library in use."""
    class Info(ctypes.Structure):
        _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                    ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
    info = Info()
    address = ctypes.cast(_lib().accel_version, ctypes.c_void_p)
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(Info))
    if not dladdr(address, ctypes.byref(info)):
        raise Error(0, "the loader does not tell where the library is")
    return os.fsdecode(info.file)


def version():
    """(major, minor) of the library."""
    return divmod(_call("accel_version"), 1000)


def initialized():
    """Whether the cache is active; starts nothing."""
    return bool(_call("accel_initialized"))


def device_count():
    """Number of devices; 0 without a driver."""
    return _call("accel_device_count")


def current_device():
    """The thread's device, 0 if it named none; -1: there is no driver."""
    return _call("accel_current_device")


def set_device(device):
    """Make the device current; a negative one changes nothing."""
    _call("accel_set_device", device)


def _device(device):
    return max(current_device(), 0) if device is None else device


def synchronize(device=None):
    """Wait for all work of the device."""
    _call("accel_synchronize_device", _device(device))


def empty_cache():
    """Give idle memory of all devices back to the driver."""
    _call("accel_empty_cache")


def _memory_info(function, device):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(function, _device(device), ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def memory_info(device=None):
    """(bytes that requests could obtain, bytes in total)."""
    return _memory_info("accel_get_memory_info", device)


def driver_memory_info(device=None):
    """(bytes that the driver has free, bytes in total): idle memory in the cache is not free."""
    return _memory_info("accel_get_device_memory_info", device)


def largest_block(device=None):
    """Bytes of the largest block that a request could obtain."""
    largest = ctypes.c_size_t()
    _call("accel_cache_info", _device(device), ctypes.byref(largest))
    return largest.value


def stats_document():
    """All that a dump has, of this moment."""
    text = ctypes.c_void_p()
    _call("accel_stats_json", ctypes.byref(text))
    return _taken(text)


def stats(device=None):
    """Statistics of a device, nested as torch.accelerator.memory_stats has them before it makes them
    flat; {} for one that was not used."""
    device = _device(device)
    if not device_count():
        _check(_NO_DRIVER, "accel_device_count")
    if device_count() <= device or device < 0:
        raise Error(_INVALID, f"there is no device {device}: device_count() says how many there are")
    for entry in stats_document()["devices"]:
        if entry["ordinal"] == device:
            return entry["stats"]
    return {}


def reset_peak_stats(device=None):
    """Peaks begin anew at what is held now."""
    _call("accel_reset_peak_stats", _device(device))


def reset_accumulated_stats(device=None):
    """Sums and counts begin anew at 0."""
    _call("accel_reset_accumulated_stats", _device(device))


def set_memory_fraction(fraction, device=None):
    """The share of the device's memory that this process may reserve."""
    _call("accel_set_memory_fraction", fraction, _device(device))


def get_memory_fraction(device=None):
    """The share that was set; 1 if none was."""
    fraction = ctypes.c_double()
    _call("accel_get_memory_fraction", ctypes.byref(fraction), _device(device))
    return fraction.value


def set_settings(text):
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
        raise Error(_INVALID, f"accel_record_history: {most} is out of range")
    if context not in _CONTEXTS:
        raise Error(_INVALID, f"accel_record_history: context is {context!r}, not one of {_CONTEXTS}")
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


def snapshot(pool=(0, 0)):
    """Segments, blocks and the history, in the layout of PyTorch's memory snapshots."""
    text = ctypes.c_void_p()
    _check(_lib().accel_snapshot(_PoolId(*pool), ctypes.byref(text)), "accel_snapshot")
    return _taken(text)


def enable(enabled=True):
    """Serve from the cache, or leave all requests to the driver; what is held stays valid."""
    _call("accel_enable", bool(enabled))


def is_enabled():
    """Whether requests are served from the cache."""
    return bool(_call("accel_is_enabled"))


def check():
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


def dump(path=None):
    """Write the statistics to a file; without a path to where `dump` of the settings says."""
    _call("accel_dump", None if path is None else os.fsencode(path))


from .frameworks import (MemPool, cuda_core_resource, numba_manager,  # noqa: E402 (it needs what is above)
                         pluggable_allocator, rmm_resource, use_in_cuda_core, use_in_cupy, use_in_jax,
                         use_in_numba, use_in_rmm, use_in_torch, use_mem_pool)
