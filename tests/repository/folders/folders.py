"""Every test keeps what the library shows to other processes in a folder of its own (ac_test_defaults): one
that is killed leaves no page in /dev/shm, where later programs of this machine would find it.

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
