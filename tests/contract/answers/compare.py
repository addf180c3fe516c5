"""Runs a program without and with the library and compares the two outputs, line by line.

usage: compare.py PROGRAM LIBRARY ALLOWED[,ALLOWED...] [arguments...]

A line is "question => answer".  If the runs differ in a line, a row of a file ALLOWED must name the
difference (see there).  Both runs together have nine tenths of ctest's own limit, AC_TEST_LIMIT, so that this
script can report a run that does not end."""
import os
import re
import subprocess
import sys
import time

LIMIT = 0.9 * float(os.environ.get("AC_TEST_LIMIT", 240))
BEGIN = time.monotonic()


def run(command, preload):
    env = dict(os.environ)
    if preload:
        runtime = env.get("AC_SANITIZER_RUNTIME")
        env["LD_PRELOAD"] = f"{runtime}:{preload}" if runtime else preload
    # Without this a process with threads ends a second late; some programs here start thousands.
    env.setdefault("TSAN_OPTIONS", "atexit_sleep_ms=0")
    env["ACCEL_ALLOC_CONF"] = env.get("ACCEL_ALLOC_CONF", "dump:none,log_level:none")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            out = process.communicate(timeout=max(LIMIT - (time.monotonic() - BEGIN), 0))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            last = (process.communicate()[0].splitlines() or ["nothing"])[-1]
            sys.exit(f"the run {'with' if preload else 'without'} the library was not over {LIMIT:.0f} s after the "
                     f"test began; the last that it printed: {last}")
    return process.returncode, out.splitlines()


def read_allowed(path):
    """Rows "kind | question | bare answer | answer with the library | reason"."""
    rows = []
    with open(path) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                kind, *patterns, reason = [field.strip() for field in line.split(" | ")]
                if kind not in ("exception", "guess") or len(patterns) != 3 or not reason:
                    sys.exit(f"{path}: malformed row: {line}")
                rows.append([re.compile(p + r"\Z") for p in patterns])
    return rows


def split(line):
    question, _, answer = line.partition(" => ")
    return question, answer


def main():
    program, library, allowed_path, *arguments = sys.argv[1:]
    allowed = [row for path in allowed_path.split(",") for row in read_allowed(path)]
    command = [program, *arguments]
    bare_status, bare = run(command, None)
    status, lines = run(command, library)
    wrong = []
    if status != bare_status:
        wrong.append(f"exit status {bare_status} without, {status} with")
    if len(bare) != len(lines):
        wrong.append(f"{len(bare)} lines without, {len(lines)} with")
    if len(bare) < 5:
        wrong.append("hardly anything was printed")
    for a, b in zip(bare, lines):
        if "SETUP FAILED" in a + b or "CRASHED" in b and "CRASHED" not in a:
            wrong.append(f"without: {a}\n  with:    {b}")
            continue
        if a == b:
            continue
        (question, one), (same, other) = split(a), split(b)
        if question == same and any(
                q.match(question) and x.match(one) and y.match(other) for q, x, y in allowed):
            continue
        wrong.append(f"without: {a}\n  with:    {b}")
    for text in wrong[:60]:
        print(text)
    print(f"{len(bare)} answers, {len(wrong)} differ")
    return 1 if wrong else 0


sys.exit(main())
