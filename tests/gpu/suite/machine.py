#!/usr/bin/env python3
"""Prints the driver and its devices as one JSON object: machine.py [--hold] [LIBCUDA]

With --hold the program stays until its standard input ends, and keeps the devices initialised.
Without it and without a daemon, each process would initialise the device again.

This is a separate process because a driver may crash or hang.  If there is no driver or no device,
the exit status is 77, with one line on stderr."""
import ctypes
import glob
import json
import os
import sys

PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
          "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib/nvidia", "/opt/nvidia/lib64")
MAJOR, MINOR, MULTIPROCESSORS, POOLS, VMM = 75, 76, 16, 115, 102


def leave(reason):
    print("no GPU: " + reason, file=sys.stderr)
    sys.exit(77)


def load(given):
    tried = [given] if given else ["libcuda.so.1"] + [
        path for place in PLACES for path in sorted(glob.glob(place + "/libcuda.so.1"))]
    for name in tried:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = error
    leave("no libcuda.so.1 can be loaded (%s)" % (reason if given else "not found"))


def loaded_path():
    """Returns the path of the mapped driver; None if /proc does not show it."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for row in file:
            path = row.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(("libcuda.so", "libcuda.")):
                return path
    return None


def kernel_module():
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def device(cuda, number):
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 256, number)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), number)

    def attribute(which):
        value = ctypes.c_int()
        return None if cuda.cuDeviceGetAttribute(ctypes.byref(value), which, number) \
            else value.value

    return {"name": name.value.decode("utf-8", "replace"), "memory": memory.value,
            "compute": "%s.%s" % (attribute(MAJOR), attribute(MINOR)),
            "multiprocessors": attribute(MULTIPROCESSORS),
            "memory_pools": bool(attribute(POOLS)), "virtual_memory": bool(attribute(VMM))}


def main():
    given = [word for word in sys.argv[1:] if word != "--hold"]
    cuda = load(given[0] if given else None)
    version, count = ctypes.c_int(), ctypes.c_int()
    error = cuda.cuInit(0)
    if error:
        leave("cuInit answers %d" % error)
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        leave("the driver knows no device")
    cuda.cuDriverGetVersion(ctypes.byref(version))
    handles = []
    for number in range(count.value):
        handle = ctypes.c_int()
        if cuda.cuDeviceGet(ctypes.byref(handle), number):
            leave("device %d cannot be had" % number)
        handles.append(handle)
    if not given and not loaded_path():
        leave("the file of the driver is not known (is /proc mounted?)")
    print(json.dumps({
        "driver_path": os.path.realpath(given[0]) if given else loaded_path(),
        "driver": kernel_module(),
        "cuda": "%d.%d" % (version.value // 1000, version.value % 1000 // 10),
        "simulated": hasattr(cuda, "simcuda_register_kernel"),
        "devices": [device(cuda, handle) for handle in handles]}), flush=True)
    if "--hold" in sys.argv:
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
