"""Checks that each test has its own folder for the files that the library shows to other processes.
ac_test_defaults sets it. Without it, a test that is killed could leave a page in /dev/shm, which later
programs of this machine would find.

usage: folders.py CTEST BUILD
"""
import json
import subprocess
import sys


def live_dir(test):
    settings = [value for one in test.get("properties", []) if one["name"] == "ENVIRONMENT"
                for value in one["value"]]
    named = [value.partition("=")[2] for value in settings if value.startswith("ACCEL_LIVE_DIR=")]
    return named[-1] if named else None


def main(ctest, build):
    listed = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True,
                            stdout=subprocess.PIPE, text=True)
    tests = json.loads(listed.stdout)["tests"]
    without = [test["name"] for test in tests if not live_dir(test)]
    for name in without:
        print(f"{name}: no ACCEL_LIVE_DIR; its environment is appended to what ac_test_defaults sets")
    print(f"{len(tests)} tests, {len(without)} without a folder")
    return 1 if without or len(tests) < 10 else 0


sys.exit(main(*sys.argv[1:]))
