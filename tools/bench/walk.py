#!/usr/bin/env python3
"""Counts with callgrind the functions of the library that a call runs: at most MOST, each once.

  walk.py WALK LIBRARY CASE=MOST...

WALK is the program of walk.c.  Functions that the compiler inlined do not show, so the figures hold
for one compiler with one set of flags.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

CALLS = {"hit": "walked_take", "free": "walked_give", "miss": "walked_take"}


def named(text, names):
    """The name of a compressed entry of callgrind's: "(7) name", and "(7)" from then on."""
    number, name = re.match(r"\((\d+)\)(?: (.*))?$", text).groups()
    if name:
        names[number] = name
    return names[number]


def read(path, functions, objects, library):
    """{function of the library: calls} of a part; names last from part to part."""
    inside, calls, ours, called, place = None, collections.Counter(), set(), False, ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.rstrip("\n").partition("=")
            if key == "ob":
                place = named(value, objects)
            elif key == "cob":
                named(value, objects)
            elif key == "fn":
                inside = named(value, functions)
                if os.path.realpath(place) == os.path.realpath(library):
                    ours.add(inside)
            elif key == "cfn":
                callee = named(value, functions)
            elif key == "calls":
                calls[callee] += int(value.split()[0])
    return {name: calls[name] for name in ours}


def walk(program, library, case):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run(["env", "LD_PRELOAD=" + library, "ACCEL_ALLOC_CONF=dump:none",
                        "ACCEL_SIM=clock:virtual,log:none", "ACCEL_LIVE_DIR=" + folder,
                        "valgrind", "--tool=callgrind", "--callgrind-out-file=" + out,
                        "--dump-before=" + CALLS[case], "--dump-after=" + CALLS[case],
                        program, case], check=True, stderr=subprocess.DEVNULL)
        functions, objects = {}, {}
        read(out + ".1", functions, objects, library)
        return read(out + ".2", functions, objects, library)


def main():
    program, library, *cases = sys.argv[1:]
    failed = 0
    for case in cases:
        name, most = case.split("=")
        calls = walk(program, library, name)
        print(f"{name}: {len(calls)} functions, {most} at most: {' '.join(sorted(calls))}")
        again = sorted(function for function, count in calls.items() if count > 1)
        if again:
            print(f"{name}: more than once: {' '.join(again)}")
        failed |= not calls or len(calls) > int(most) or bool(again)
    return failed


if __name__ == "__main__":
    sys.exit(main())
