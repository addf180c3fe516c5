#!/usr/bin/env python3
"""Kernels written in Python, with Numba; app.py documents the options.

    kernels   arrays made, filled by a kernel, smoothed by another one, copied back and dropped

Numba has no cache of device memory.  With --device cpu its simulator runs the kernels."""
import os
import sys

import app

CASES = ("kernels",)
cuda = None  # a global, because Numba's simulator replaces it inside the kernels


def open_device(options):
    global cuda
    if options.device == "cpu":
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    try:
        import numba
        import numpy
        from numba import cuda as module
    except ImportError as error:
        app.leave(f"no Numba in Python: {error}")
    cuda = module
    if not cuda.is_available():
        app.leave("Numba finds no GPU")
    return numpy, numba


class Kernels:
    def __init__(self, numpy, options):
        self.numpy = numpy
        random = numpy.random.default_rng(options.seed)
        most = max(64, int((1 << 20) * options.scale))
        self.sizes = random.integers(most // 2, most + 1, 48)

        @cuda.jit
        def fill(values, seed):
            i = cuda.grid(1)
            if i < values.size:
                values[i] = ((i * 2654435761 + seed * 40503) & 0xFFFF) / 65536.0

        @cuda.jit
        def smooth(values, result):
            i = cuda.grid(1)
            if i < values.size:
                before, after = max(i - 1, 0), min(i + 1, values.size - 1)
                result[i] = (values[before] + values[i] + values[after]) / 3
        self.fill, self.smooth = fill, smooth

    def step(self, number):
        size = int(self.sizes[number % len(self.sizes)])
        blocks = (size + 127) // 128
        values = cuda.device_array(size, self.numpy.float64)
        self.fill[blocks, 128](values, number)
        for _ in range(4):
            result = cuda.device_array(size, self.numpy.float64)
            self.smooth[blocks, 128](values, result)
            values = result
        return values.copy_to_host().sum()


def main():
    options = app.options(__doc__, CASES)
    numpy, numba = open_device(options)
    work = Kernels(numpy, options)
    fields = app.measure(options, "kernels", work.step, cuda.synchronize)
    fields["peak"] = None
    name = "cpu" if options.device == "cpu" else cuda.get_current_device().name
    fields["device"] = name.decode() if isinstance(name, bytes) else name
    fields["versions"] = {"numba": numba.__version__}
    app.tell(fields)


if __name__ == "__main__":
    sys.exit(main())
