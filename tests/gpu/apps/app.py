"""Common code of the applications in this folder.  Each application is a program

    PROGRAM [--device NAME] [--steps N] [--seconds S] [--seed N] CASE...

that does the same work in every run of a case, and prints one JSON object a line on stdout:

    {"case": "resnet", "losses": ["0x1.8p+1", ...], "step_ms": [...], "peak": bytes or null,
     "device": "...", "versions": {"torch": "..."}, "before": {...}, "after": {...}}

`losses` has the exact results of all steps.  `step_ms` has the time of a step in each measured block of
steps, after the warm-up.  `peak` is the most that the framework's own allocator took from the device, or
null if it does not tell or has no cache.  `before` and `after` are the library's statistics around the
measured blocks, or null if the library is not loaded.

A program that runs out of --seconds does fewer steps, but at least two blocks.  If something that it
needs is missing on the machine, its exit status is 77, with the reason on stderr."""
import argparse
import ctypes
import json
import sys
import time


def leave(reason):
    print(reason, file=sys.stderr)
    sys.exit(77)


def options(doc, cases, argv=None):
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to see that it runs")
    parser.add_argument("--steps", type=int, default=60, help="at the most, the warm-up included")
    parser.add_argument("--warmup", type=int, default=10, help="steps that are not timed")
    parser.add_argument("--block", type=int, default=5, help="steps between two looks at the clock")
    parser.add_argument("--seconds", type=float, default=20.0, help="begin no block later than this")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("case", nargs="+", choices=sorted(cases))
    return parser.parse_args(argv)


# Every run measures at least this number of blocks, even if its time is over.
LEAST_BLOCKS = 2


class Library:
    """The library's C API, if the library is loaded in this process."""

    def __init__(self):
        self.api = ctypes.CDLL(None)
        self.there = hasattr(self.api, "accel_stats_json")

    def statistics(self):
        """Returns counters and peak; None without the library or before CUDA was used."""
        if not self.there:
            return None
        text = ctypes.c_void_p()
        if self.api.accel_stats_json(ctypes.byref(text)) or not text.value:
            return None
        try:
            document = json.loads(ctypes.string_at(text.value))
        finally:
            self.api.free(text)
        device = document["devices"][0] if document["devices"] else {"stats": {}, "counters": {}}
        reserved = device["stats"].get("reserved_bytes", {}).get("all", {})
        return {"counters": {**document["counters"], **device["counters"]},
                "reserved_peak": reserved.get("peak", 0)}

    def fresh(self):
        """Returns idle memory to the driver and resets the peaks, so that all cases begin alike."""
        if self.there:
            self.api.accel_empty_cache()
            self.api.accel_reset_peak_stats(0)


library = Library()


def measure(options_, case, step, synchronise, value=float):
    """Runs a case and returns the fields that all frameworks share.

    step(i) begins step number i and returns its loss, which `value` later turns into a float."""
    losses, blocks = [], []
    for i in range(min(options_.warmup, options_.steps)):
        losses.append(step(i))
    synchronise()
    before, end = library.statistics(), time.monotonic() + options_.seconds
    while len(losses) + options_.block <= options_.steps and \
            (time.monotonic() < end or len(blocks) < LEAST_BLOCKS):
        begin = time.perf_counter()
        for _ in range(options_.block):
            losses.append(step(len(losses)))
        synchronise()
        blocks.append((time.perf_counter() - begin) * 1000 / options_.block)
    return {"case": case, "losses": [float(value(loss)).hex() for loss in losses],
            "step_ms": blocks, "measured_steps": len(blocks) * options_.block, "before": before,
            "after": library.statistics()}


def tell(fields):
    print(json.dumps(fields), flush=True)
