#!/usr/bin/env python3
"""Tests the checks of this folder on the simulated device.

Claims get the assumed answers.  Each lie (lies.def, SETTINGS) makes its own claims fail, no others.

usage: check_facts.py GPU_FACTS SIM_FOLDER LIAR_FOLDER LIBRARY MUTE [FACT...]

MUTE is a library in front of the shared runtime that swallows a call."""
import json
import os
import re
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIM = "clock:virtual,devices:2,rdma:true,log:none"
FACTS = range(1, 13)

# Settings of the simulated device and of the library that act as lies:
# (fact, setting of ACCEL_SIM, of ACCEL_ALLOC_CONF, claims)
SETTINGS = (
    (3, "", "enabled:false", "shared_cudart_allocations static_cudart_allocations"),
    (4, "free_sync:false", "", "waits_legacy_stream waits_blocking_stream "
                               "waits_nonblocking_stream waits_other_context waits_small_block"),
)


def run(program, folder, fact, judge=True, **environment):
    done = subprocess.run([program] + ["--judge"] * judge + [str(fact)], check=False, text=True,
                          capture_output=True, timeout=100,
                          env=dict(os.environ, LD_LIBRARY_PATH=folder, **environment))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode not in (0, 1):
        sys.exit(f"fact {fact} {environment}: exit status {done.returncode}\n{done.stderr}")
    return {line["check"]: line for line in lines}


def main():
    program, sim, liar, library, mute, *only = sys.argv[1:]
    facts = [int(word) for word in only] or FACTS
    base = {"ACCEL_SIM": SIM, "ACCEL_ALLOC_CONF": "dump:none,log_level:none",
            "QUALIFY_LIBRARY": library, "LIAR_DRIVER": os.path.join(sim, "libcuda.so.1")}
    rows = [line.split("\t") for line in subprocess.run(
        [program, "--list"], check=True, text=True, capture_output=True).stdout.splitlines()]
    wrong = []

    def expect(what, lines, fact, failing):
        names = {row[0] for row in rows if row[0].startswith(f"fact{fact:02}.")}
        if set(lines) != names:
            wrong.append(f"{what}: lines {sorted(set(lines) ^ names)} are missing or too many")
        failed = {name for name in lines if lines[name]["result"] == "fail"}
        meant = {f"fact{fact:02}.{name}" for name in failing.split()}
        # Programs that need nvcc may be missing.
        meant -= {name for name in lines if "not built" in lines[name].get("reason", "")}
        if failed != meant:
            wrong.append(f"{what}: failed {sorted(failed)}, meant {sorted(meant)}:" + "".join(
                f"\n    {name}: {lines[name]}" for name in sorted(failed ^ meant)
                if name in lines))

    for fact in facts:
        for folder in (sim, liar):
            expect(f"fact {fact} in {folder}", run(program, folder, fact, **base), fact, "")
        quiet = run(program, sim, fact, judge=False, **base)
        loud = [name for name in quiet if quiet[name]["result"] != "skip"]
        if loud:
            wrong.append(f"fact {fact}: {loud} say more than the simulated device knows")
    with open(os.path.join(FOLDER, "lies.def"), encoding="utf-8") as file:
        lies = re.findall(r'^LIE\((\w+), (\d+),\s*((?:"[^"]*"\s*)+)\)$', file.read(), re.M)
    for name, fact, claims in lies:
        if int(fact) in facts:
            text = "".join(re.findall(r'"([^"]*)"', claims))
            lines = run(program, liar, fact, LIE=name, **base)
            expect(f"lie {name}", lines, int(fact), text)
            if name == "early_indeed" and lines["fact11.begins_early"]["result"] != "pass":
                wrong.append(f"lie {name}: {lines['fact11.begins_early']}")
    for fact, setting, conf, claims in SETTINGS:
        if fact in facts:
            changed = dict(base, ACCEL_SIM=f"{SIM},{setting}" if setting else SIM,
                           ACCEL_ALLOC_CONF=base["ACCEL_ALLOC_CONF"] + (conf and "," + conf))
            expect(f"{setting}{conf}", run(program, sim, fact, **changed), fact, claims)
    if 3 in facts:
        silent = dict(base, QUALIFY_LIBRARY=f"{mute}:{library}")
        expect("a mute runtime", run(program, sim, 3, **silent), 3, "shared_cudart_submissions")
    for text in wrong:
        print(text)
    print(f"{len(facts)} facts, {len(lies)} lies, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
