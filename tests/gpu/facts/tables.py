#!/usr/bin/env python3
"""Lists the private tables (cuGetExportTable) that NVIDIA's libraries request (PROTOCOL.md).

Calls through a private table bypass the library's hooks, so the library does not see their work.
Each of NVIDIA's libraries runs in a program of part 2, or in gpu_tables, with libgpu_tables.so
preloaded, which logs each request.  Libraries that are not installed are skipped.  The line
tables.logged shows that requests are logged at all."""
import os
import subprocess
import sys

GPU = os.path.join(os.environ["QUALIFY_BUILD"], "tests", "gpu")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import report

LIBRARIES = (
    ("cudart", "facts_cudart_shared"), ("cublas", "right_cublas"), ("cudnn", "right_cudnn"),
    ("nccl", "right_nccl"), ("optix", "gpu_tables", "optix"), ("nvenc", "gpu_tables", "nvenc"),
)
SELF = ("666972737420756e6b6e6f776e206964", "7365636f6e6420756e6b6e6f776e2e00")
LIMIT = 8


def run(name, program, *arguments):
    """Runs a program. Returns ({(library, table): result}, exit status, end of stderr)."""
    log = os.path.abspath(f"tables.{name}.log")
    environment = dict(os.environ, TABLES_LOG=log,
                       LD_PRELOAD=os.path.join(GPU, "libgpu_tables.so"))
    try:
        done = subprocess.run([os.path.join(GPU, program), *arguments], env=environment, text=True,
                              errors="replace", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              check=False, timeout=LIMIT)
        status, said = done.returncode, done.stderr.strip().splitlines()[-1:]
    except FileNotFoundError:
        return {}, 77, [f"there is no {program} in this build"]
    except subprocess.TimeoutExpired:
        status, said = "none: it took too long", []
    asked = {}
    if os.path.exists(log):
        with open(log, encoding="utf-8") as file:
            for line in file:
                library, table, result = line.rsplit(" ", 2)
                asked[library, table] = int(result)
    return asked, status, said


def main():
    asked, status, said = run("self", "gpu_tables", "self")
    if status == 77 and not asked:
        report.nothing("no CUDA driver")
    seen = {table for _, table in asked}
    if set(SELF) <= seen:
        report.passed("tables.logged", f"Asked for {len(SELF)} tables in two ways: both were noted.")
    else:
        report.failed("tables.logged", f"noted were {sorted(seen)}, meant {SELF} ({status}, {said})")
    for name, *command in LIBRARIES:
        if "QUALIFY_SIM" in os.environ:
            report.skipped(f"tables.{name}", "needs a GPU")
            continue
        asked, status, said = run(name, *command)
        if status == 77 and not asked:
            report.skipped(f"tables.{name}", " ".join(said) or "it cannot run here")
            continue
        tables = sorted({table for _, table in asked})
        who = "; ".join(f"{library} asked for {table} ({'had' if result == 0 else result})"
                        for (library, table), result in sorted(asked.items()))
        report.line(f"tables.{name}", "fact", value=len(tables), unit="tables",
                    evidence=f"{who or 'It asked for none.'}  Exit status {status}.")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
