#!/usr/bin/env python3
"""Tests gpu_guesses: the simulated device gives the table of guesses unchanged, and a driver with
other answers changes its rows.

usage: check_guesses.py GPU_GUESSES SIM_FOLDER LIAR_FOLDER GUESSES.def"""
import json
import os
import re
import subprocess
import sys
import tempfile

SIM = "clock:virtual,log:none"
ERROR = re.compile(r"\b(?!NOT_READY|HOST_POINTER|SYNC_MEMOPS|IS_MANAGED)(?:[A-Z]+(?:_[A-Z]+)+|DEINITIALIZED)\b")
ROW = re.compile(r'^SIM_GUESS\((\w+), \w+, "(?:[^"]*)",\s*"([^"]*)"\)$', re.M)


def main():
    program, sim, liar, table = sys.argv[1:]
    wrong = []
    with open(table, encoding="utf-8") as file:
        text = file.read()
    rows = dict(ROW.findall(text))
    if len(rows) != text.count("\nSIM_GUESS(") or not rows:
        wrong.append(f"{len(rows)} rows were read of {text.count('SIM_GUESS(')}")

    def run(folder, *arguments, **environment):
        with tempfile.TemporaryDirectory() as out:
            path = os.path.join(out, "guesses.def")
            done = subprocess.run(
                [program, *arguments], check=False, text=True, capture_output=True, timeout=100,
                env=dict(os.environ, **{"ACCEL_SIM": SIM, "LD_LIBRARY_PATH": folder,
                                        "QUALIFY_OUT": out,
                                        "LIAR_DRIVER": os.path.join(sim, "libcuda.so.1"),
                                        **environment}))
            with open(path, encoding="utf-8") as file:
                written = file.read()
        lines = {line["check"][6:]: line["result"]
                 for line in map(json.loads, done.stdout.splitlines())}
        if set(lines) != set(rows):
            wrong.append(f"{arguments} {environment}: lines {sorted(set(lines) ^ set(rows))}")
        return done.returncode, lines, written

    for folder in (sim, liar):
        status, lines, written = run(folder, "--judge")
        bad = sorted(row for row in lines if lines[row] != "pass")
        if status or bad or written != text:
            wrong.append(f"in {folder}: exit status {status}, {bad}, the table is "
                         f"{'the same' if written == text else 'another one:' + written}")
    status, lines, _ = run(sim)
    if status or set(lines.values()) != {"skip"}:
        wrong.append("rows were said to be known without a GPU")

    def expect(what, meant, folder, **environment):
        _, lines, written = run(folder, "--judge", **environment)
        failed = {row for row in lines if lines[row] == "fail"}
        after = dict(ROW.findall(written))
        changed = {row for row in rows if after.get(row) != rows[row]}
        if failed != meant or changed != meant:
            wrong.append(f"{what}: failed {sorted(failed ^ meant)} against what was meant, "
                         f"changed {sorted(changed ^ meant)}")

    expect("cuMemFree does not wait", {"free_waits", "free_host_waits"}, sim,
           ACCEL_SIM=SIM + ",free_sync:false")
    expect("unmapping does not wait", {"unmap_waits", "unmap_part", "access_plain"}, liar, LIE="late_unmap")
    named = {row for row, answer in rows.items() if ERROR.search(answer)}
    expect("errors with another name", named, liar, LIE="renamed_errors")
    for line in wrong:
        print(line)
    print(f"{len(rows)} rows, {len(named)} of them with errors, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
