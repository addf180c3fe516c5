#!/usr/bin/env python3
"""Checks that observing takes at most the instructions of bounds_observe.txt; valgrind counts them.

  observed.py ACCELCACHE TABLE ROWS: bench_observe.def
"""
import json
import re
import subprocess
import sys
import tempfile

command, table, rows = sys.argv[1:]
with open(table, encoding="utf-8") as lines:
    bounds = dict(line.split() for line in lines if line.strip() and not line.startswith("#"))
with open(rows, encoding="utf-8") as text:
    settings = dict(re.findall(r'BENCH_OBSERVE\((\w+), "([^"]*)"', text.read()))
wrong = 0
with tempfile.TemporaryDirectory() as folder:
    for row, most in bounds.items():
        conf = settings[row].replace("%s", f"{folder}/observed")
        done = subprocess.run([command, "bench", "--sim", "--rounds", "1", "--pass-us", "1", "--pairs", "300",
                               "--json", "--only", "hot", "--instructions", "--without", "cub,rmm_pool"] +
                              (["--conf", conf] if conf else []), check=True, stdout=subprocess.PIPE)
        counted = json.loads(done.stdout)["row_instructions"]["hot"]["accelcache"]
        print(f"{row}: {counted:.0f} instructions, {most} at most")
        wrong += not 0 < counted <= float(most)
sys.exit(wrong != 0)
