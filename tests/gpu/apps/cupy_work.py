#!/usr/bin/env python3
"""Filters, sorts and sums pictures with CuPy; app.py documents the options.

    filters   FFT, element-wise functions, sorting and sums over arrays of changing sizes

ACCEL_CUPY_POOL=off switches CuPy's memory pools off."""
import os
import sys

import app

CASES = ("filters",)


def open_device(options):
    """Returns the array module and the function that waits for its work."""
    if options.device == "cpu":
        try:
            import numpy
        except ImportError as error:
            app.leave(f"no NumPy in Python: {error}")
        return numpy, lambda: None
    try:
        import cupy
    except ImportError as error:
        app.leave(f"no CuPy in Python: {error}")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        app.leave(f"CuPy finds no GPU: {error}")
    if os.environ.get("ACCEL_CUPY_POOL") == "off":
        cupy.cuda.set_allocator(None)
    return cupy, cupy.cuda.Device().synchronize


class Filters:
    def __init__(self, xp, options):
        self.xp, self.side = xp, max(64, int(1024 * options.scale))
        import numpy
        self.random = numpy.random.default_rng(options.seed)
        self.pictures = [self.random.random((self.side, self.side), dtype=numpy.float32)
                         for _ in range(4)]
        self.sides = self.random.integers(self.side // 2, self.side + 1, 64)

    def step(self, number):
        xp, side = self.xp, int(self.sides[number % len(self.sides)])
        picture = xp.asarray(self.pictures[number % len(self.pictures)])[:side, :side]
        waves = xp.fft.rfft2(picture)
        waves *= xp.exp(-xp.abs(xp.arange(waves.shape[1], dtype=xp.float32) / side) ** 2)
        smooth = xp.fft.irfft2(waves, s=picture.shape)
        edges = xp.abs(picture - smooth)
        order = xp.sort(edges.ravel())
        middle = order[order.size // 2]
        kept = xp.where(edges > middle, edges, xp.float32(0))
        rows = kept.sum(axis=1)  # scans add in an order of their own
        return rows.mean() + xp.sqrt(kept.var())


def main():
    options = app.options(__doc__, CASES)
    xp, synchronise = open_device(options)
    work = Filters(xp, options)
    fields = app.measure(options, "filters", work.step, synchronise)
    gpu = options.device != "cpu"
    pool = gpu and os.environ.get("ACCEL_CUPY_POOL") != "off"
    # The pool never returns memory here, so its final size is its peak.
    fields["peak"] = xp.get_default_memory_pool().total_bytes() if pool else None
    fields["device"] = "cpu"
    if gpu:
        fields["device"] = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    fields["versions"] = {xp.__name__: xp.__version__}
    app.tell(fields)


if __name__ == "__main__":
    sys.exit(main())
