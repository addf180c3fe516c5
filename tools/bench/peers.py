#!/usr/bin/env python3
"""RMM and PyTorch as peers of `accelcache-dev bench`, on a GPU: the workloads `hot`, `replace` and `info`
of work.h, called from Python.  The interpreter's own calls, some tens of ns, are part of the
figures.

    peers.py rmm|torch WORKLOAD [KEY=VALUE...] [+ KEY=VALUE...]...    as in work.h

Exit status 77 if the module is not installed."""

import json
import sys
import time

DEFAULTS = {"bytes": 1 << 20, "low": 512, "high": 64 << 20, "live": 1000, "us": 10000,
            "pairs": 0, "passes": 3, "cpu": 0}
SIZES = 1 << 14


def leave(reason):
    print(reason, file=sys.stderr)
    sys.exit(77)


def open_rmm():
    try:
        import rmm
    except ImportError as error:
        leave(f"no RMM in Python: {error}")
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource())

    def take(size):
        return pool.allocate(size), size

    def give(block):
        pool.deallocate(*block)
    return take, give


def open_torch():
    try:
        import torch
    except ImportError as error:
        leave(f"no PyTorch in Python: {error}")
    if not torch.cuda.is_available():
        leave("PyTorch finds no GPU")
    torch.cuda.init()
    return torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete


class Random:
    """Draws the same values as the C programs."""

    def __init__(self, state):
        self.state = state

    def next(self):
        state = self.state
        state ^= (state << 13) & (2**64 - 1)
        state ^= state >> 7
        state ^= (state << 17) & (2**64 - 1)
        self.state = state
        return state


def sizes(keys):
    random, ratio = Random(88172645463325252), keys["high"] / keys["low"]
    return [int(keys["low"] * ratio ** ((random.next() >> 11) / 2**53)) for _ in range(SIZES)]


class Work:
    def __init__(self, keys, take, give):
        self.keys, self.take, self.give = keys, take, give
        self.sizes, self.random, self.at = sizes(keys), Random(2463534242), 0
        self.slots = [take(self.draw()) for _ in range(keys["live"])]

    def draw(self):
        self.at += 1
        return self.sizes[(self.at - 1) % SIZES]

    def hot(self, pairs):
        take, give, size = self.take, self.give, self.keys["bytes"]
        begin = time.perf_counter_ns()
        for _ in range(pairs):
            give(take(size))
        return time.perf_counter_ns() - begin

    def replace(self, pairs):
        # Draws happen before the clock starts: in Python they would take most of the time.
        slots, take, give = self.slots, self.take, self.give
        draws = [((self.random.next() >> 32) * len(slots) >> 32, self.draw())
                 for _ in range(pairs)]
        begin = time.perf_counter_ns()
        for slot, size in draws:
            give(slots[slot])
            slots[slot] = take(size)
        return time.perf_counter_ns() - begin

    def measure(self, one):
        pairs, target = self.keys["pairs"], self.keys["us"] * 1000
        if not pairs:
            pairs = 16
            while one(pairs) < target:
                pairs *= 2
        one(pairs)
        return {"pairs": pairs, "ns": [one(pairs) / pairs for _ in range(self.keys["passes"])]}

    def close(self):
        for block in self.slots:
            self.give(block)


def main():
    openers = {"rmm": open_rmm, "torch": open_torch}
    if len(sys.argv) < 3 or sys.argv[1] not in openers or \
            sys.argv[2] not in ("hot", "replace", "info"):
        print(__doc__, file=sys.stderr)
        return 2
    turns = [dict(DEFAULTS)]
    for argument in sys.argv[3:]:
        name, _, value = argument.partition("=")
        if argument == "+":
            turns.append(dict(turns[-1]))
        elif name not in DEFAULTS or not value.isdigit():
            print(f"{argument}: no such key, or no number", file=sys.stderr)
            return 2
        else:
            turns[-1][name] = int(value)
    take, give = openers[sys.argv[1]]()
    for keys in turns:
        result = {"peer": sys.argv[1], "workload": sys.argv[2]}
        if sys.argv[2] == "info":
            give(take(keys["bytes"]))
            result.update(device_memory=True, simulated=False, library=False)
        else:
            work = Work(keys, take, give)
            result.update(work.measure(getattr(work, sys.argv[2])))
            work.close()
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
