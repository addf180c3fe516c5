"""The library adds at most 1 ms to the start of a program that does not use CUDA.

Bare and preloaded starts alternate, so that both see the same machine; the median of the
differences counts.  A busy machine can spoil a round: one good round of three is enough.

usage: start.py LIBRARY"""

import os
import statistics
import sys
import time

PAIRS = 200
LIMIT_MS = 1.0


def once(command, env):
    begin = time.perf_counter_ns()
    pid = os.posix_spawn(command[0], command, env)
    _, status = os.waitpid(pid, 0)
    spent = time.perf_counter_ns() - begin
    if status:
        sys.exit(f"start: {command} ended with status {status:#x}")
    return spent / 1e6


def median_difference(command, bare, preloaded):
    differences = []
    for i in range(PAIRS):
        if i % 2:
            without, with_library = once(command, bare), once(command, preloaded)
        else:
            with_library, without = once(command, preloaded), once(command, bare)
        differences.append(with_library - without)
    return statistics.median(differences)


def main():
    library = sys.argv[1]
    if not os.path.isfile(library):
        sys.exit(f"start: no {library}")
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "ACCEL_"))}
    preloaded = dict(bare, LD_PRELOAD=library)
    failed = False
    for command in (["/bin/true"], ["/bin/bash", "-c", "true"]):
        for _ in range(3):
            more = median_difference(command, bare, preloaded)
            if more <= LIMIT_MS:
                break
        print(f"{' '.join(command)}: {more:.3f} ms more (median of {PAIRS} pairs)")
        failed = failed or more > LIMIT_MS
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
