#!/usr/bin/env python3
"""Tests that the GPU's tests exit with status 77 if there is no driver or no device.

usage: without.py FOLDER BUILD"""
import os
import subprocess
import sys


def main():
    folder, build = sys.argv[1:]
    driver = os.path.join(build, "sim", "libcuda.so.1")
    missing = {"LD_LIBRARY_PATH": "", "LIBCUDA": "/nonexistent/libcuda.so.1"}
    if subprocess.run(["sh", "-c", "ldconfig -p | grep -q libcuda.so.1"], check=False,
                      env=dict(os.environ, PATH=os.environ["PATH"] + ":/sbin")).returncode == 0:
        missing = None  # the loader finds a driver: test only the case "no device"
    empty = {"LD_LIBRARY_PATH": os.path.dirname(driver), "LIBCUDA": driver,
             "ACCEL_SIM": "devices:0"}
    programs = ([os.path.join(build, "tests/gpu/stream_stress")],
                [os.path.join(folder, "run_stress"), build], [os.path.join(folder, "litmus"), build])
    wrong = 0
    for extra in filter(None, (missing, empty)):
        for program in programs:
            done = subprocess.run(program, env=dict(os.environ, **extra), capture_output=True,
                                  text=True, check=False, timeout=60)
            if done.returncode != 77:
                print(program, extra, "exit status", done.returncode, done.stdout, done.stderr)
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
