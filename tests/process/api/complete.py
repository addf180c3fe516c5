#!/usr/bin/env python3
"""Every function of the C API is called by one program, which finds each answer right, and stands in
include/README.md.

usage: complete.py LIBRARY PROGRAM PAGE      prints the functions that are not, and exits 1

The program is linked so that a function is bound when it is first called; the loader writes down which
ones are.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE,
                         text=True).stdout
    return set(re.findall(r"\bT (accel_\w+)$", out, re.M))


def called(program):
    """Returns the functions that the program and its fork children bound."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        done = subprocess.run([program], check=False, env={
            **os.environ, "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": log}).returncode
        if done:
            sys.exit(done if done > 0 else 1)
        text = ""
        for path in glob.glob(log + ".*"):
            with open(path, encoding="utf-8", errors="replace") as file:
                text += file.read()
    row = r"binding file \S*" + re.escape(os.path.basename(program)) + r" .*symbol `(accel_\w+)'"
    return set(re.findall(row, text))


def main(library, program, page):
    names = exported(library)
    with open(page, encoding="utf-8") as file:
        listed = set(re.findall(r"`(\w+)`", file.read()))
    unlisted = sorted(name for name in names if name[len("accel_"):] not in listed)
    for name in unlisted:
        print(f"{os.path.basename(page)} does not list {name}")
    missing = sorted(names - called(program))
    for name in missing:
        print(f"{os.path.basename(program)} does not call {name}")
    print(f"{len(names) - len(missing)} of {len(names)} functions are called")
    return 1 if missing or unlisted or len(names) < 60 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
