#!/usr/bin/env python3
"""An application of the miniature framework (fakeframe.py); app.py documents the options.

FAKEFRAME_FAULT     a fault under the library only: wrong, crash, hang, absent, text, early (few steps)
FAKEFRAME_ABSENT    the framework is missing, with the library and without
FAKEFRAME_SLOW      no step ends"""
import ctypes
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app  # noqa: E402
import fakeframe  # noqa: E402

CASES = ("line", "curve")


class Training:
    def __init__(self, case, options):
        self.fault = os.environ.get("FAKEFRAME_FAULT") if app.library.there else None
        self.case, self.count = case, int(2000 * options.scale)
        self.state = fakeframe.Array.of([i / self.count for i in range(self.count)])

    def step(self, number):
        if number == 7 and self.fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if os.environ.get("FAKEFRAME_SLOW") or (number == 7 and self.fault == "hang"):
            signal.pause()
        parts = [self.state.copy() for _ in range(1 + number % 3)]
        values = [sum(columns) / len(parts) for columns in zip(*(part.values() for part in parts))]
        loss = sum(value * value for value in values) / self.count
        if number == 7 and self.fault == "wrong":
            loss += loss * 2.0**-40
        power = 1.5 if self.case == "curve" else 1.0
        self.state = fakeframe.Array.of([value**power * 0.97 for value in values])
        return loss


def main():
    options = app.options(__doc__, CASES)
    if os.environ.get("FAKEFRAME_ABSENT") or \
            (app.library.there and os.environ.get("FAKEFRAME_FAULT") == "absent"):
        app.leave("no such framework")
    try:
        fakeframe.open_device()
    except fakeframe.Gone as error:
        app.leave(str(error))
    for case in options.case:
        app.library.fresh()
        training = Training(case, options)
        if training.fault == "early":
            options.steps = 2
        fields = app.measure(options, case, training.step, fakeframe.synchronize)
        fields["peak"] = fakeframe.allocator.taken if fakeframe.allocator.caches else None
        fields.update(device="in miniature", versions={"fakeframe": "1"})
        app.tell(fields)
        if training.fault == "text":
            print("a word too many")
    del training
    ctypes.CDLL(None).cuCtxSynchronize()


if __name__ == "__main__":
    sys.exit(main())
