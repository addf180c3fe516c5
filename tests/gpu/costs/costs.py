#!/usr/bin/env python3
"""Measures driver calls on this machine's GPU, and the time that the library adds to each of them.

    costs.py [--table FILE] [--passes N]

The program prints lines of PROTOCOL.md and writes the table <gpu>.csv.  The simulated device
(ACCEL_SIM=costs:FILE), `accelcache replay --costs FILE` and tune read this table.  Figures are
medians.  The table holds straight lines; <gpu>.jsonl next to it holds all figures.  On the simulated
device everything runs, but no figure is reported."""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report  # noqa: E402
import table  # noqa: E402

TURNS = 3
MIB = 1 << 20


def fail(text):
    print(f"costs.py: {text}", file=sys.stderr)
    sys.exit(3)


class Program:
    def __init__(self, build, library, limit):
        self.path = os.path.join(build, "tests/gpu/gpu_costs")
        self.library, self.end = library, time.monotonic() + limit

    def left(self):
        return self.end - time.monotonic()

    def run(self, *arguments, preload=False):
        env = dict(os.environ, ACCEL_ALLOC_CONF="dump:none")
        env.setdefault("ACCEL_LIVE_DIR", os.getcwd())  # a killed process leaves files here
        first = os.environ.get("AC_SANITIZER_RUNTIME")
        if preload:
            env["LD_PRELOAD"] = ":".join(filter(None, (first, self.library)))
        # There is no timeout here: the suite ends a check that takes too long.
        try:
            done = subprocess.run([self.path, *arguments], env=env, text=True,
                                  capture_output=True, stdin=subprocess.DEVNULL, check=False)
        except OSError as error:
            fail(error)
        if done.returncode == 77:
            report.nothing(done.stderr.strip())
        if done.returncode:
            fail(f"gpu_costs {' '.join(arguments)}: status {done.returncode}: {done.stderr}")
        return done.stdout


def size_name(size):
    for unit, name in ((MIB, "mib"), (1024, "kib")):
        if size >= unit:
            return f".{size // unit}{name}"
    return f".{size}b" if size else ""


def line_name(*parts):
    text = re.sub(r"[^a-z0-9_.-]+", "_", ".".join(filter(None, parts)).lower())
    return text[:60].strip("._")


def report_calls(figures, simulated):
    for (call, kind), points in figures.items():
        for size, ns in points.items():
            name = line_name("cost." + call + size_name(size), kind)
            if simulated:
                report.skipped(name, "needs a GPU")
            else:
                report.figure(name, round(ns, 1), "ns", evidence=kind or None)


def report_hooks(program, passes, simulated):
    """Measures hooks without and with the library in turns, so that disturbances affect both.

    It makes as many turns as the time allows, up to TURNS."""
    seen, took, turns = {False: {}, True: {}}, 0.0, 0
    while turns < TURNS and (not turns or program.left() > 1.3 * took):
        begin = time.monotonic()
        for preload in (False, True):
            text = program.run("hooks", str(passes), preload=preload)
            for (call, _), points in table.read(text).items():
                seen[preload].setdefault(call, []).append(points[0])
        turns, took = turns + 1, time.monotonic() - begin
    for call, bare in seen[False].items():
        name = line_name("hook." + call.replace("cu", "", 1).replace("+cu", "_"))
        with_it = seen[True].get(call)
        if simulated and with_it:
            report.skipped(name, "needs a GPU")
        elif not with_it:
            report.failed(name, f"{call} was not measured under the library")
        else:
            one, other = statistics.median(bare), statistics.median(with_it)
            report.figure(name, round(other - one, 1), "ns", peers={"without": round(one, 1)},
                          evidence=f"{call}: {one:.0f} ns without the library, {other:.0f} ns with "
                                   f"it; {turns} runs of each in turns, {passes} passes of 256 at most")


def where_of(device, passes):
    driver = f"driver of CUDA {device['driver'] // 1000}.{device['driver'] % 1000 // 10}"
    return f"{device['device']}, {driver}, {time.strftime('%Y-%m-%d', time.gmtime())}, " \
           f"medians of up to {passes} passes"


def write_table(path, rows, raw):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
    with open(os.path.splitext(path)[0] + ".jsonl", "w", encoding="utf-8") as file:
        file.write(raw)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="where the table goes (QUALIFY_OUT/costs/GPU.csv)")
    parser.add_argument("--passes", type=int, default=15)
    options = parser.parse_args()
    build, library = os.environ.get("QUALIFY_BUILD"), os.environ.get("QUALIFY_LIBRARY")
    if not build or not library:
        fail("QUALIFY_BUILD and QUALIFY_LIBRARY name the build folder and the library")
    program = Program(build, library, float(os.environ.get("QUALIFY_SECONDS", 60)) - 1)
    simulated = os.environ.get("QUALIFY_SIM") == "1"
    device = table.json.loads(program.run("device"))
    raw = program.run("calls", str(options.passes))
    figures = table.read(raw)
    report_calls(figures, simulated)
    path = options.table
    if not path and os.environ.get("QUALIFY_OUT") and not simulated:
        name = re.sub(r"[^a-z0-9]+", "-", device["device"].lower()).strip("-")
        path = os.path.join(os.environ["QUALIFY_OUT"], "costs", name + ".csv")
    if path:
        write_table(path, table.lines(figures, where_of(device, options.passes)), raw)
        report.passed("cost.table", evidence=f"{os.path.basename(path)}, {len(figures)} figures")
    else:
        report.skipped("cost.table", "needs a GPU")
    report_hooks(program, (options.passes + 1) // 2, simulated)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
