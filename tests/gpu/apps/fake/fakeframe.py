"""A miniature framework on the driver's API: device memory, a stream, a cache of its own.

It replaces real frameworks in tests, because their kernels cannot run on the simulated device.  A
step copies device memory, and computes on the host.

FAKEFRAME_CACHE=off makes every array one allocation by the driver."""
import ctypes
import os
import struct

_cuda = None


class Gone(Exception):
    """Raised if there is no driver or no device."""


def call(name, *arguments):
    code = getattr(_cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


def open_device():
    global _cuda
    try:
        # The lookup covers the whole process, so a preloaded library comes first.
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Gone(str(error)) from error
    _cuda = ctypes.CDLL(None)
    count, context = ctypes.c_int(), ctypes.c_void_p()
    if _cuda.cuInit(0) or _cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise Gone("no device")
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Allocator:
    """Caches freed memory by size; `taken` counts the bytes allocated from the driver."""

    def __init__(self):
        self.caches, self.free, self.taken = os.environ.get("FAKEFRAME_CACHE") != "off", {}, 0

    def take(self, size):
        kept = self.free.get(size)
        if kept:
            return kept.pop()
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.taken += size
        return address.value

    def give(self, address, size):
        if self.caches:
            self.free.setdefault(size, []).append(address)
        else:
            call("cuMemFree_v2", ctypes.c_uint64(address))


allocator = Allocator()


class Array:
    """An array of doubles in device memory, freed with the object."""

    def __init__(self, count):
        self.count, self.size = count, count * 8
        self.address = allocator.take(self.size)

    def __del__(self):
        allocator.give(self.address, self.size)

    @staticmethod
    def of(values):
        array = Array(len(values))
        text = struct.pack(f"{len(values)}d", *values)
        call("cuMemcpyHtoD_v2", ctypes.c_uint64(array.address), text, ctypes.c_size_t(array.size))
        return array

    def copy(self):
        other = Array(self.count)
        call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(other.address), ctypes.c_uint64(self.address),
             ctypes.c_size_t(self.size), None)
        return other

    def values(self):
        text = ctypes.create_string_buffer(self.size)
        call("cuMemcpyDtoH_v2", text, ctypes.c_uint64(self.address), ctypes.c_size_t(self.size))
        return struct.unpack(f"{self.count}d", text.raw)


def synchronize():
    call("cuCtxSynchronize")
