#!/usr/bin/env python3
"""Checks that a malloc+free pair that hits takes at most MOST instructions, at every size.  valgrind
counts them, and gets the same number each time.

  hit.py ACCELCACHE MOST
"""
import json
import subprocess
import sys

command, most = sys.argv[1], int(sys.argv[2])
peers = ("static", "driver", "c_api", "bare", "cudart", "cub", "glibc", "mimalloc")
out = subprocess.run([command, "bench", "--sim", "--quick", "--json", "--only", "instructions",
                      "--without", ",".join(peers)], check=True, stdout=subprocess.PIPE).stdout
counted = json.loads(out)["instructions"]
for size, peer in counted.items():
    print(f"{size:>9} B: {peer['accelcache']:.0f} instructions, {most} at most")
sys.exit(not counted or any(peer["accelcache"] > most for peer in counted.values()))
