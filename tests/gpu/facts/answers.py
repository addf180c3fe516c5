#!/usr/bin/env python3
"""Compares the driver's answers without and with the library, and with the simulated device's.

The program gpu_answers makes the calls of tests/contract/answers/edges.c (PROTOCOL.md).

    answers.py        needs gpu_answers, answers_allowed.txt and answers_simulated.txt in tests/gpu
                      of the build folder

A difference fails if no row of answers_allowed.txt (tests/contract/answers/allowed.txt) allows it.
The row that would allow it goes to answers_allowed.txt in QUALIFY_OUT, as a guess to be judged.  All
answers of the device go to answers.txt there."""
import concurrent.futures
import os
import re
import subprocess
import sys

FOLDER = os.path.join(os.environ["QUALIFY_BUILD"], "tests", "gpu")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import report

# A case that fails on the bare driver or the device proves nothing.
BROKEN = re.compile(r"^(.*): (?:CRASHED|FAILED)\b|^SETUP FAILED")


def run(preload):
    environment = dict(os.environ, ACCEL_ALLOC_CONF="dump:none,log_level:none")
    if preload:
        first = environment.get("AC_SANITIZER_RUNTIME")
        environment["LD_PRELOAD"] = f"{first}:{preload}" if first else preload
    if "QUALIFY_SIM" in os.environ:
        environment["ACCEL_SIM"] = "clock:virtual,devices:2,memory:1G,log:none"
    done = subprocess.run([os.path.join(FOLDER, "gpu_answers")], env=environment, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False)
    return cases(done.stdout.splitlines())


def cases(lines):
    """Maps each case to its lines; a case's name ends at the first colon."""
    found, name = {}, ""
    for line in lines:
        if not line.startswith("SETUP FAILED"):
            name = line.split(":", 1)[0]
        found.setdefault(name, []).append(line)
    return found


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read().splitlines()


def allowed_rows():
    rows = []
    for line in read("answers_allowed.txt"):
        if line.strip() and not line.startswith("#"):
            _, *patterns, _ = [field.strip() for field in line.split(" | ")]
            rows.append([re.compile(pattern + r"\Z") for pattern in patterns])
    return rows


def split(line):
    question, _, answer = line.partition(" => ")
    return question, answer


def differences(bare, other, allowed):
    """Returns (question, answer, other answer) for each difference that no row allows."""
    if len(bare) != len(other):
        return [(split(bare[0])[0].split(":")[0], f"{len(bare)} lines", f"{len(other)} lines")]
    found = []
    for one, two in zip(bare, other):
        (question, answer), (same, second) = split(one), split(two)
        if one != two and not (question == same and any(
                q.match(question) and a.match(answer) and b.match(second)
                for q, a, b in allowed)):
            found.append((question, answer, second))
    return found


def keep(name, lines):
    folder = os.environ.get("QUALIFY_OUT")
    if folder and lines:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def main():
    # Both run at once.  Each case is a process, and opening the device takes most of its time.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        bare, ours = pool.map(run, (None, os.environ["QUALIFY_LIBRARY"]))
    simulated, allowed = cases(read("answers_simulated.txt")), allowed_rows()
    if not bare:
        report.nothing("gpu_answers said nothing")
    broken = sorted(name for name in bare if any(BROKEN.match(line) for line in bare[name]))
    asked = [name for name in bare if name not in broken]
    keep("answers.txt", [line for name in bare for line in bare[name]])

    apart = [row for name in asked for row in differences(bare[name], ours.get(name, []), allowed)]
    keep("answers_allowed.txt", [
        " | ".join(["guess", *map(re.escape, row), "A device said so; to be judged."])
        for row in apart])
    count = sum(len(bare[name]) for name in asked)
    seen = f"{count} answers of {len(asked)} cases"
    if broken:
        seen += "; not to be asked here: " + ", ".join(broken)
    if apart or not count:
        report.failed("answers.same_with_library", "%d of %s differ: %s" % (
            len(apart), seen, "; ".join("%s: %s, with the library %s" % row for row in apart[:8])))
    else:
        report.passed("answers.same_with_library", evidence=seen)

    apart = [row for name in asked
             for row in differences(bare[name], simulated.get(name, []), [])]
    text = "; ".join("%s: %s, simulated %s" % row for row in apart[:12])
    if "QUALIFY_SIM" in os.environ and not apart:
        report.skipped("answers.as_simulated", "needs a GPU")
    elif "QUALIFY_SIM" in os.environ:
        report.failed("answers.as_simulated", f"{len(apart)} differ from what was recorded: {text}")
    else:
        report.figure("answers.as_simulated", len(apart), "answers",
                      evidence=f"of {seen} are not the simulated device's: {text}")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
