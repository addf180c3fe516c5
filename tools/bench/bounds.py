#!/usr/bin/env python3
"""Checks that a row of `accelcache-dev bench` takes at most the instructions of its bound (bounds.txt).
valgrind counts them.  The library reads the time now and then, so a busy machine adds instructions.
The least of a few counts is the row's figure.

  bounds.py ACCELCACHE TABLE ROW
"""
import json
import os
import subprocess
import sys

command, table, row = sys.argv[1:]
with open(table, encoding="utf-8") as lines:
    bounds = dict(line.split() for line in lines if line.strip() and not line.startswith("#"))
if row == "brief" and os.geteuid() != 0:
    print("skipped: valgrind maps the rows of threads in the live page for root only")
    sys.exit(77)
for _ in range(4):
    done = subprocess.run([command, "bench", "--sim", "--rounds", "1", "--pass-us", "1", "--json",
                           "--only", row, "--instructions", "--without", "cub,rmm_pool"],
                          check=True, stdout=subprocess.PIPE)
    counted = json.loads(done.stdout)["row_instructions"][row]["accelcache"]
    print(f"{row}: {counted:.0f} instructions, {bounds[row]} at most")
    if 0 < counted <= float(bounds[row]):
        sys.exit(0)
sys.exit(1)
