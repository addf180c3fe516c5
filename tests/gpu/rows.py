#!/usr/bin/env python3
"""stream_stress and the litmus programs as checks of the suite (PROTOCOL.md).

    rows.py stress NAME CONF [OPTION VALUE...]     one run of stream_stress, line stress_NAME
    rows.py litmus NAME CONF                       all litmus programs, line litmus_NAME

CONF are settings of the library; "none" is a run without it."""
import concurrent.futures
import glob
import os
import subprocess
import sys
import time

import report

BUILD, LIBRARY = os.environ["QUALIFY_BUILD"], os.environ["QUALIFY_LIBRARY"]
SIMULATED = "QUALIFY_SIM" in os.environ
END = time.monotonic() + float(os.environ["QUALIFY_SECONDS"])


def environment(conf, sim, **more):
    env = dict(os.environ, **more)
    if conf != "none":
        env.update(LD_PRELOAD=LIBRARY, ACCEL_ALLOC_CONF="dump:none," + conf)
    if SIMULATED:
        env["ACCEL_SIM"] = sim
    return env


def left(reserve):
    return max(1.0, END - time.monotonic() - reserve)


def last_line(text):
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def stress(name, conf, given):
    # On the simulated device kernels are slow host functions, so buffers are small.  Other tests
    # run stream_stress for longer there.
    usual = ["--max-bytes", "65536", "--ops", "20000"] if SIMULATED else []
    if SIMULATED:
        conf = conf.replace("memory_limit:1G", "memory_limit:24M")
    # The rest is for the driver's start and for work that is pending at the end.
    seconds = max(1, int(left(0) * 0.4))
    command = [os.path.join(BUILD, "tests", "gpu", "stream_stress"), *usual, *given,
               "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment(conf, "clock:virtual,log:none"), check=False,
                          capture_output=True, text=True)
    if done.returncode == 77:
        report.nothing(last_line(done.stderr))
    said = [row for row in done.stdout.splitlines() if not row.startswith("device:")]
    found = {key: value.strip() for key, _, value in (row.partition(":") for row in said)}
    if "library is not loaded" in done.stdout and conf != "none":
        report.failed("stress_" + name, "the library was not loaded")
    elif done.returncode != 0 or found.get("mismatches") != "0":
        report.failed("stress_" + name, "exit status %d; %s; %s" % (
            done.returncode, "; ".join(said), " | ".join(done.stderr.splitlines()[:4])))
    else:
        allocations = int(found["allocations"].split(",")[0])
        report.passed("stress_" + name, value=allocations, unit="allocations",
                      evidence="; ".join(said[1:]))


def one_litmus(program, conf):
    env = environment(conf, "clock:virtual,devices:2,race_detector:on,log:none",
                      LITMUS="" if conf == "none" else "allocator")
    try:
        done = subprocess.run([program], env=env, capture_output=True, text=True, check=False,
                              timeout=left(0.5))
    except subprocess.TimeoutExpired:
        return "fail", "not done in time"
    if done.returncode == 77:
        return "skip", last_line(done.stdout + done.stderr)
    return ("fail" if done.returncode else "pass",
            "exit status %d: %s" % (done.returncode, last_line(done.stdout + done.stderr)))


def litmus(name, conf):
    # Two programs need the simulated device: its time and its race detector.
    programs = [path for path in sorted(glob.glob(os.path.join(BUILD, "tests/litmus/litmus_*")))
                if not path.endswith(("_stress", "_churn"))]
    if not programs:
        report.failed("litmus_" + name, "no litmus program is in tests/litmus of the build")
        return
    # Only values are judged, not time, so several programs run at once.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda path: one_litmus(path, conf), programs))
    texts = {"pass": [], "fail": [], "skip": []}
    for path, (result, text) in zip(programs, found):
        texts[result].append("%s (%s)" % (os.path.basename(path)[len("litmus_"):], text))
    skipped = "; skipped: " + ", ".join(texts["skip"]) if texts["skip"] else ""
    said = "%d of %d programs%s" % (len(texts["pass"]), len(programs), skipped)
    if texts["fail"]:
        report.failed("litmus_" + name, ", ".join(texts["fail"]), evidence=said)
    elif not texts["pass"]:
        report.skipped("litmus_" + name, "every program left itself out" + skipped)
    else:
        report.passed("litmus_" + name, said)


def main():
    kind, name, conf, *given = sys.argv[1:]
    if kind == "stress":
        stress(name, conf, given)
    else:
        litmus(name, conf)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
