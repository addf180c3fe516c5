#!/usr/bin/env python3
"""Checks that a free of another module's block takes at most MOST instructions more than a free of
the current module's block; valgrind counts them.  Also checks that the figures of both modules add up.

  turns.py TURNS OTHER LIBRARY plain|async MOST
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

FEW, MANY, BLOCKS = 100, 1100, 8


def counted(program, other, library, case, way, rounds):
    """Instructions inside of all frees."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run(["env", "LD_PRELOAD=" + library, f"ACCEL_ALLOC_CONF=dump:{folder}/dump.json",
                        "ACCEL_SIM=clock:virtual,log:none", "ACCEL_LIVE_DIR=" + folder,
                        "valgrind", "--tool=callgrind", "--callgrind-out-file=" + out,
                        "--toggle-collect=turns_free", program, other, case, way, str(rounds)],
                       check=True, stderr=subprocess.DEVNULL)
        with open(glob.glob(f"{folder}/dump*.json")[0], encoding="utf-8") as file:
            device = json.load(file)["devices"][0]
        allocs = [0, 0]
        for module in device["modules"]:
            is_other = module["name"] == os.path.basename(other)
            allocs[is_other] += module["num_allocs"]
            assert module["allocated_bytes"]["current"] == 0, module
        half = rounds * BLOCKS // 2
        assert allocs == ([half, half] if case == "other" else [2 * half, 0]), device["modules"]
        with open(out, encoding="utf-8") as file:
            return int(re.search(r"^(?:totals|summary): (\d+)", file.read(), re.MULTILINE).group(1))


def main():
    program, other, library, way, most = sys.argv[1:]
    frees = (MANY - FEW) * BLOCKS
    own, both = ((counted(program, other, library, case, way, MANY) -
                  counted(program, other, library, case, way, FEW)) / frees
                 for case in ("own", "other"))
    more = 2 * (both - own)
    print(f"{way}: {own:.1f} instructions a free; {more:.1f} more of another module's block, {most} at most")
    return not (own > 0 and more <= float(most))


if __name__ == "__main__":
    sys.exit(main())
