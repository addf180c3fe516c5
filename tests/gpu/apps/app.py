"""What the applications of this folder share.  Each is a program

    PROGRAM [--device NAME] [--steps N] [--seconds S] [--seed N] CASE...

that does the same work in every run of a case, and prints one JSON object a line on stdout:

    {"case": "resnet", "losses": ["0x1.8p+1", ...], "step_ms": [...], "peak": bytes or null,
     "device": "...", "versions": {"torch": "..."}, "before": {...}, "after": {...}}

`losses` are the results of all steps, exactly; `step_ms` the time of a step in each measured block
of steps, after the warm-up; `peak` what the framework's own allocator took from the device at most
(null: it does not tell, or has no cache); `before` and `after` the library's statistics around the
measured blocks, null where it is not in the process.  A program that runs out of --seconds does fewer
steps, but two blocks at the least.  Exit status 77, the reason on stderr: what it needs is not on this machine."""
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


# Also where the time is up.
LEAST_BLOCKS = 2


class Library:
    """The C API of the library, where it is in this process."""

    def __init__(self):
        self.api = ctypes.CDLL(None)
        self.there = hasattr(self.api, "accel_stats_json")

    def statistics(self):
        """The statistics document; None before CUDA was used or without the library."""
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
        """Give idle memory back and forget the peaks: the next case begins as the first did."""
        if self.there:
            self.api.accel_empty_cache()
            self.api.accel_reset_peak_stats(0)


library = Library()


def measure(options_, case, step, synchronise, value=float):
    """Run a case: step(i) begins step number i and answers its loss, which `value` turns into a float
    afterwards.  The fields that are the same for all frameworks."""
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
