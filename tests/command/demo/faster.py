#!/usr/bin/env python3
"""Checks that the demonstration runs at least 3 times faster under the library, with equal results.
The device is simulated, with published driver costs. One good round of three is enough, because a
busy machine can spoil a round.

usage: faster.py DEMO LIBRARY"""
import json
import os
import subprocess
import sys

LEAST = 3.0


def run(demo, **variables):
    environment = dict(os.environ, ACCEL_SIM="clock:real,costs:published",
                       ACCEL_ALLOC_CONF="dump:none", **variables)
    done = subprocess.run([demo, "--json", "--iterations", "100"], check=True, env=environment,
                          capture_output=True, text=True)
    result = json.loads(done.stdout)
    if not result["simulated"]:
        sys.exit("this is not the simulated device")
    return result


def main():
    demo, library = sys.argv[1:]
    for _ in range(3):
        without, preloaded = run(demo), run(demo, LD_PRELOAD=library)
        gain = without["seconds"] / preloaded["seconds"]
        print(f"without {without['seconds']:.3f} s, with {preloaded['seconds']:.3f} s: {gain:.1f}x")
        if without["checksum"] != preloaded["checksum"]:
            print("different results")
            return 1
        if gain >= LEAST:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
