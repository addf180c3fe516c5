"""Tests that compare.py reports which run does not end, before ctest ends it.

usage: compare_limit.py COMPARE ALLOWED"""
import os
import subprocess
import sys
import tempfile

compare, allowed = sys.argv[1:]
own = float(os.environ["AC_TEST_LIMIT"])  # CMake sets it for every test
assert own > 0
with tempfile.TemporaryDirectory() as folder:
    program = os.path.join(folder, "program")
    for bare, run in ((True, "without"), (False, "with")):
        with open(program, "w", encoding="utf-8") as file:
            goes_on = "-z" if bare else "-n"
            file.write(f"#!/bin/sh\necho 'question => answer'\n[ {goes_on} \"$LD_PRELOAD\" ] && exec sleep {10 * own}\n"
                       "exit 0\n")
        os.chmod(program, 0o755)
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        done = subprocess.run([sys.executable, compare, program, "/dev/null", allowed],
                              env=dict(environment, AC_TEST_LIMIT="2"), capture_output=True, text=True, check=False)
        wanted = f"the run {run} the library was not over 2 s after the test began; the last that it printed: question"
        if done.returncode != 1 or wanted not in done.stderr:
            sys.exit(f"not said: {wanted}\nbut: {done.stdout}{done.stderr}")
