#!/usr/bin/env python3
"""Tests answers.py on the simulated device.

The library answers as the driver does.  Other answers are detected and proposed as rows.

usage: check_answers.py BUILD SIM_FOLDER LIBRARY OTHER"""
import json
import os
import subprocess
import sys
import tempfile


def run(build, sim, library, **more):
    with tempfile.TemporaryDirectory() as out:
        environment = dict(os.environ, QUALIFY_BUILD=build, LD_LIBRARY_PATH=sim, QUALIFY_OUT=out,
                           QUALIFY_LIBRARY=library, **more)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "answers.py")
        done = subprocess.run([sys.executable, script], env=environment, check=False, text=True,
                              capture_output=True, timeout=100)
        path = os.path.join(out, "answers_allowed.txt")
        rows = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
    lines = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
    return lines, rows, done


def main():
    build, sim, library, other = sys.argv[1:]
    same, as_simulated = "answers.same_with_library", "answers.as_simulated"
    lines, rows, done = run(build, sim, library, QUALIFY_SIM="1")
    assert lines[same]["result"] == "pass", done
    assert lines[as_simulated]["result"] == "skip" and not rows, done
    lines, rows, done = run(build, sim, other, QUALIFY_SIM="1")
    assert lines[same]["result"] == "fail" and done.returncode == 1, done
    assert rows and all(row.startswith("guess | ") for row in rows), rows
    # A different device: it has more memory than the recorded one, and is the only one.
    lines, rows, done = run(build, sim, library, ACCEL_SIM="clock:virtual,memory:64G,log:none")
    assert lines[same]["result"] == "pass", done
    assert lines[as_simulated]["result"] == "fact" and lines[as_simulated]["value"] > 0, done
    assert "devices" in lines[same]["evidence"], done


main()
