"""The library adds at most 1 ms to the start of a program that does not use CUDA, nor more than doubles it
on a slow machine, and waits for nothing.

The processor's time counts, which other programs change little, by the median of PAIRS starts; that
nothing is waited for is told by how often a process gave the processor up.

usage: start.py LIBRARY"""

import os
import statistics
import sys

PAIRS = 200
LIMIT_MS = 1.0


def once(command, env):
    """(milliseconds of processor time, waits)"""
    pid = os.posix_spawn(command[0], command, env)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"start: {command} ended with status {status:#x}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_nvcsw


def medians(command, bare, preloaded):
    """(time, waits) of bare starts and of preloaded ones; they alternate."""
    starts = [(once(command, bare), once(command, preloaded)) for _ in range(PAIRS)]
    return [[statistics.median(start[kind][i] for start in starts) for i in range(2)]
            for kind in range(2)]


def main():
    library = sys.argv[1]
    if not os.path.isfile(library):
        sys.exit(f"start: no {library}")
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "ACCEL_"))}
    preloaded = dict(bare, LD_PRELOAD=library)
    failed = False
    for command in (["/bin/true"], ["/bin/bash", "-c", "true"]):
        (alone, waits), (both, more_waits) = medians(command, bare, preloaded)
        print(f"{' '.join(command)}: {both - alone:.3f} ms more than {alone:.3f} ms, {more_waits - waits:g} "
              f"more waits (medians of {PAIRS} pairs)")
        failed = failed or both - alone > max(LIMIT_MS, alone) or more_waits > waits
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
