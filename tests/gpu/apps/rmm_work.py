#!/usr/bin/env python3
"""Writes RMM buffers and reads them back; app.py documents the options.

    buffers   hundreds of buffers live, random ones replaced, their contents checked by sums

ACCEL_RMM names the resource: pool (RMM's own cache), async (the driver's), cuda (none)."""
import os
import sys
import zlib

import app

CASES = ("buffers",)


def open_device(options):
    if options.device == "cpu":
        app.leave("RMM works on a GPU only")
    try:
        import rmm
    except ImportError as error:
        app.leave(f"no RMM in Python: {error}")
    try:
        upstream = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        kind = os.environ.get("ACCEL_RMM", "pool")
        resource = {"pool": lambda: rmm.mr.PoolMemoryResource(upstream, initial_pool_size=1 << 26),
                    "async": rmm.mr.CudaAsyncMemoryResource,
                    "cuda": rmm.mr.CudaMemoryResource}[kind]()
    except (MemoryError, RuntimeError) as error:
        app.leave(f"RMM finds no GPU: {error}")
    rmm.mr.set_current_device_resource(resource)
    return rmm, upstream if kind == "pool" else None


class Buffers:
    LIVE, CHANGED = 300, 40

    def __init__(self, rmm, options):
        import random
        self.rmm, self.random = rmm, random.Random(options.seed)
        self.text = self.random.randbytes(1 << 22)
        self.live = [self.make() for _ in range(self.LIVE)]

    def make(self):
        size = int(2 ** self.random.uniform(9, 22))
        at = self.random.randrange(len(self.text) - size + 1)
        return self.rmm.DeviceBuffer.to_device(self.text[at:at + size])

    def step(self, _):
        total = 0
        for _ in range(self.CHANGED):
            slot = self.random.randrange(self.LIVE)
            total += zlib.crc32(self.live[slot].tobytes())
            self.live[slot] = self.make()
        return total / 2.0**16


def main():
    options = app.options(__doc__, CASES)
    rmm, upstream = open_device(options)
    work = Buffers(rmm, options)
    fields = app.measure(options, "buffers", work.step, lambda: None)
    fields["peak"] = upstream.allocation_counts.peak_bytes if upstream else None
    fields["device"], fields["versions"] = "GPU", {"rmm": rmm.__version__}
    app.tell(fields)


if __name__ == "__main__":
    sys.exit(main())
