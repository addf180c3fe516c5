#!/usr/bin/env python3
"""Checks with valgrind that 64 thread caches add at most 5 % to the instructions of a stream-ordered pair.

  count_async.py PROGRAM
"""
import re
import subprocess
import sys

FEW, MANY, CACHES = 500, 1500, 64


def total(caches, pairs):
    out = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                          sys.argv[1], str(caches), str(pairs)], check=True,
                         stderr=subprocess.PIPE, text=True).stderr
    return int(re.search(r"Collected : (\d+)", out)[1])


def pair(caches):
    return (total(caches, MANY) - total(caches, FEW)) / (MANY - FEW)


alone, beside = pair(0), pair(CACHES)
print(f"a pair takes {alone:.0f} instructions, beside {CACHES} caches {beside:.0f}")
sys.exit(beside > alone * 1.05)
