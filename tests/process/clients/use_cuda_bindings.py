"""cuda.bindings' driver API: plain, stream-ordered, pitched and managed memory, what pointers say.

Prints answers and contents, no addresses and no times.
"""
import hashlib
import sys

import numpy
from cuda.bindings import driver


def call(function, *arguments):
    """Returns the answer of a call that must succeed."""
    result, *values = function(*arguments)
    if result != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"{function.__name__}: {result.name}")
    return values[0] if len(values) == 1 else values


def answer(function, *arguments):
    result, *values = function(*arguments)
    print(function.__name__, result.name)
    return values


def contents(pointer, size):
    out = numpy.empty(size, dtype=numpy.uint8)
    call(driver.cuMemcpyDtoH, out.ctypes.data, pointer, size)
    return hashlib.md5(out.tobytes()).hexdigest()[:12]


def plain(stream):
    kept = []
    for number in range(60):
        size = 1 + number * number * 3001
        pointer = call(driver.cuMemAlloc, size)
        data = numpy.full(size, number, dtype=numpy.uint8)
        call(driver.cuMemcpyHtoDAsync, pointer, data.ctypes.data, size, stream)
        call(driver.cuStreamSynchronize, stream)
        kept.append((pointer, size))
        if number % 3 == 2:
            gone, _ = kept.pop(number // 3)
            call(driver.cuMemFree, gone)
    for pointer, size in kept:
        base, length = call(driver.cuMemGetAddressRange, int(pointer) + size // 2)
        print("plain", size, contents(pointer, size), int(base) == int(pointer), length == size)
    for pointer, _ in kept:
        call(driver.cuMemFree, pointer)


def ordered(stream):
    for size in (1, 4096, 1 << 20, 5 << 20):
        pointer = call(driver.cuMemAllocAsync, size, stream)
        call(driver.cuMemsetD8Async, pointer, 9, size, stream)
        call(driver.cuStreamSynchronize, stream)
        print("ordered", size, contents(pointer, size))
        call(driver.cuMemFreeAsync, pointer, stream)
    pool = call(driver.cuDeviceGetDefaultMemPool, 0)
    pointer = call(driver.cuMemAllocFromPoolAsync, 1000, pool, stream)
    call(driver.cuMemFreeAsync, pointer, stream)
    call(driver.cuStreamSynchronize, stream)
    name = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    print("pool", int(call(driver.cuMemPoolGetAttribute, pool, name)))


def attributes(stream):
    names = driver.CUpointer_attribute
    asked = [names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, names.CU_POINTER_ATTRIBUTE_IS_MANAGED,
             names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, names.CU_POINTER_ATTRIBUTE_MAPPED,
             names.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
             names.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
             names.CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES]
    pitched, _ = call(driver.cuMemAllocPitch, 100, 50, 16)
    managed = call(driver.cuMemAllocManaged, 5000, 1)
    for kind, pointer in (("plain", call(driver.cuMemAlloc, 10000)), ("pitched", pitched),
                          ("managed", managed),
                          ("ordered", call(driver.cuMemAllocAsync, 10000, stream))):
        for name in asked:
            result, value = driver.cuPointerGetAttribute(name, pointer)
            print(kind, name.name, result.name, int(value) if value is not None else None)
        call(driver.cuMemFree, pointer)


def refusals(context):
    print("refusals")
    answer(driver.cuMemAlloc, 0)
    answer(driver.cuMemAlloc, 1 << 50)
    answer(driver.cuMemFree, 4096)
    pointer = call(driver.cuMemAlloc, 4096)
    answer(driver.cuMemFree, int(pointer) + 512)
    answer(driver.cuMemFree, pointer)
    answer(driver.cuCtxSetCurrent, 0)
    answer(driver.cuMemAlloc, 4096)
    answer(driver.cuCtxSetCurrent, context)


def main():
    call(driver.cuInit, 0)
    context = call(driver.cuDevicePrimaryCtxRetain, 0)
    call(driver.cuCtxSetCurrent, context)
    stream = call(driver.cuStreamCreate, 1)
    plain(stream)
    ordered(stream)
    attributes(stream)
    refusals(context)
    free, total = call(driver.cuMemGetInfo)
    print("memory", total, free <= total)
    call(driver.cuStreamDestroy, stream)
    call(driver.cuDevicePrimaryCtxRelease, 0)


main()
