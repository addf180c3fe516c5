#!/usr/bin/env python3
"""Compares the cost of calls with that of other allocators in one run (PROTOCOL.md).

    speed.py rmm|torch  pair and replacement of a Python peer; `pairs` shows these figures, too
    speed.py pairs      malloc and free through the shared runtime and the driver, replacement
    speed.py static     the pair through a static runtime, and the runtime's own share
    speed.py work       launches between malloc and free, hooks, several streams and threads

On the simulated device figures are facts without bounds.  Driver calls cost nothing there, and a
stand-in replaces the static runtime."""
import json
import os
import statistics
import subprocess
import sys
import time

import report

BUILD, LIBRARY = os.environ["QUALIFY_BUILD"], os.environ["QUALIFY_LIBRARY"]
SIMULATED = "QUALIFY_SIM" in os.environ
END = time.monotonic() + float(os.environ["QUALIFY_SECONDS"])
SHARED = os.path.join(os.environ["QUALIFY_SHARED"], "speed-%s.json")
SIZES = (512, 65536, 1 << 20, 64 << 20)
HOT_NS, TIMES_BARE, BESIDE_RUNTIME_NS = 60, 100, 40
LABELS = {"bare": "cudaMalloc/cudaFree", "async": "cudaMallocAsync", "rmm": "RMM pool (Python)",
          "torch": "PyTorch (Python)", "cub": "CUB", "accelcache": "accelcache"}
CHEAP = {"ACCEL_SIM": "clock:virtual,costs:none,kernel_us:0,memory:4T,log:none"}


def bench(parts):
    """Runs parts of `accelcache-dev bench`, with short passes if little time is left."""
    # There is one round, because starting processes takes most of the time on a GPU.  python_peer
    # starts the Python peers once for all sizes.
    command = [os.environ["QUALIFY_COMMAND"] + "-dev", "bench", "--json", "--quick", "--rounds", "1",
               "--without", "rmm,torch,glibc,mimalloc,static,cudart", "--only", parts]
    if END - time.monotonic() < 12:
        command += ["--pass-us", "500"]
    done = subprocess.run(command + (["--sim"] if SIMULATED else []), capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        print("accelcache-dev bench:", done.stderr.strip()[-500:], file=sys.stderr)
        sys.exit(3)
    return json.loads(done.stdout)


def peers(row, suffix="", python=None):
    """Returns other allocators' figures of a row, and the Python peers' under the key `python`."""
    found = {label: row[key + suffix] for key, label in LABELS.items()
             if key != "accelcache" and key + suffix in row}
    for module in ("rmm", "torch") if python else ():
        try:
            with open(SHARED % module, encoding="utf-8") as file:
                found[LABELS[module]] = json.load(file)[python]
        except (OSError, KeyError):
            pass
    return found


def judged(check, value, unit, good, bound, others=None, evidence=None):
    """Reports pass or fail on a real device, and a fact on the simulated one."""
    if SIMULATED:
        report.line(check, "fact", value=value, unit=unit, peers=others, evidence=evidence)
    else:
        report.line(check, "pass" if good else "fail", value=value, unit=unit, bound=bound,
                    peers=others, evidence=evidence, reason=None if good else "outside its bound")


# ---------------------------------------------------------------- allocators in Python
def python_peer(module):
    sys.path.insert(0, os.path.join(BUILD, "libexec", "accelcache"))
    import peers as others
    take, give = getattr(others, "open_" + module)()
    keys = dict(others.DEFAULTS, us=2000, passes=5)
    found = {}
    for size in SIZES:
        work = others.Work(dict(keys, bytes=size, live=0), take, give)
        found[str(size)] = statistics.median(work.measure(work.hot)["ns"])
        report.figure("pair_%s_%d" % (module, size), found[str(size)], "ns",
                      evidence="called from Python, whose own calls are part of it")
    work = others.Work(keys, take, give)
    found["replace"] = statistics.median(work.measure(work.replace)["ns"])
    report.figure("replace_" + module, found["replace"], "ns", evidence="called from Python")
    with open(SHARED % module, "w", encoding="utf-8") as file:
        json.dump(found, file)


# ---------------------------------------------------------------- pairs
def pairs():
    found = bench("hot_pair,replace")
    left_out = found["skipped"]
    runtime = left_out.get("libcudart")
    absent = ", ".join("%s: %s" % item for item in left_out.items() if item[0] not in (
        "static", "cudart", "glibc", "mimalloc", "rmm", "torch"))
    for size in SIZES:
        row, name = found["hot_pair"].get(str(size), {}), "pair_shared_%d" % size
        if runtime:
            report.skipped(name, "libcudart " + runtime)
        elif "accelcache_ns" not in row:
            report.failed(name, "not measured: %s" % absent)
        else:
            ours, passes = row["accelcache_ns"], found["passes"]["hot_pair"][str(size)]
            judged(name, ours, "ns", ours <= HOT_NS, "<= %d" % HOT_NS, peers(row, "_ns", str(size)),
                   "least %(least)g, greatest %(greatest)g of %(passes)d passes"
                   % passes["accelcache_ns"] + ("; left out: " + absent if absent else ""))
        for key, what in (("driver", "cuMemAlloc and cuMemFree under the library"),
                          ("c_api", "accel_malloc and accel_free")):
            if key + "_ns" in row:
                report.figure("pair_%s_%d" % (key, size), row[key + "_ns"], "ns", evidence=what)
            else:
                report.failed("pair_%s_%d" % (key, size), left_out.get(key, "not measured"))
    ratios(found["hot_pair"], left_out)
    row = found["replace_ns"]
    report.figure("replace", row["accelcache"], "ns", peers=peers(row, python="replace"),
                  evidence="one of 1000 live blocks of 512 B to 64 MiB freed, another allocated")


def ratios(rows, left_out):
    through = "" if "libcudart" not in left_out else ", all through the stand-in runtime"
    both = [row for row in rows.values() if "bare_ns" in row and "accelcache_ns" in row]
    least = min((row["bare_ns"] / row["accelcache_ns"] for row in both), default=None)
    if least is None:
        report.skipped("pair_bare_ratio", "no figure of the bare driver: " +
                       left_out.get("bare", "not measured"))
    else:
        judged("pair_bare_ratio", least, "x", least >= TIMES_BARE, ">= %d" % TIMES_BARE,
               evidence="the bare pair by ours, least of %d sizes%s" % (len(both), through))
    both = [row for row in rows.values() if "async_ns" in row and "accelcache_ns" in row]
    if both:
        most = max(row["accelcache_ns"] / row["async_ns"] for row in both)
        judged("pair_async_ratio", most, "x", most < 1, "< 1",
               evidence="our pair by that of cudaMallocAsync, greatest of %d sizes%s" % (
                   len(both), through))
    else:
        report.skipped("pair_async_ratio", "cudaMallocAsync: " + left_out.get("async",
                                                                              "not measured"))


# ---------------------------------------------------------------- the static runtime
def hot(program, preload):
    """Runs `program` and returns the median ns of a pair for each size."""
    env = dict(os.environ, **(CHEAP if SIMULATED else {}))
    if preload:
        env["LD_PRELOAD"] = preload
    length = max(200, int((END - time.monotonic()) * 1e6 / 400))
    sizes = " + ".join("bytes=%d" % size for size in SIZES).split()
    done = subprocess.run([program, "hot", "live=0", "passes=5", "us=%d" % min(2000, length),
                           "cpu=%d" % SIMULATED, *sizes],
                          env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["exit status %d" % done.returncode]
        raise RuntimeError(said[-1])
    return [statistics.median(json.loads(row)["ns"]) for row in done.stdout.splitlines()]


def static():
    program = os.path.join(BUILD, "libexec/accelcache",
                           "bench_static" if SIMULATED else "bench_cudart")
    if not os.path.exists(program):
        report.nothing("bench_cudart was not built: no libcudart_static.a")
    null = os.path.join(BUILD, "tests/gpu/lib/libnull_driver.so")
    names = ["pair_static_%d" % size for size in SIZES]
    try:
        # The two run in turns, so that disturbances affect both.
        rounds = [(hot(program, LIBRARY), hot(program, null)) for _ in range(3)]
        bares = hot(program, None)
    except RuntimeError as error:
        # cudaErrorInsufficientDriver
        tell = report.skipped if "(35)" in str(error) else report.failed
        for name in names:
            tell(name, "%s: %s" % (os.path.basename(program), error))
        return
    for i, (name, bare) in enumerate(zip(names, bares)):
        ours, own = (statistics.median(row[i] for row in column) for column in zip(*rounds))
        judged(name, ours, "ns", ours <= own + BESIDE_RUNTIME_NS,
               "<= %.1f" % (own + BESIDE_RUNTIME_NS),
               {"cudaMalloc/cudaFree": bare, "the runtime alone": own},
               "the runtime alone: with a cuMemAlloc and cuMemFree that do nothing")


# ---------------------------------------------------------------- work in between
def work():
    found = bench("launch,hooks,multistream,threads")
    for streams, row in sorted(found["launch"].items()):
        report.figure("launch_%s_streams" % streams, row["beyond_ns"], "ns",
                      evidence="a launch between malloc and free, less the launch alone (%.0f ns) "
                      "and the pair alone (%.0f ns); %g fences for 64 frees" % (
                          row["bare_launch_ns"], row["pair_ns"], row["fences_per_64"]))
    for call, row in sorted(found["hooks"].items()):
        report.figure("hook_%s" % call.lower(), row["added_ns"], "ns",
                      evidence="%s: %.0f ns bare, %.0f under the library" % (
                          call, row["bare_ns"], row["accelcache_ns"]))
    for way, row in sorted(found["multistream"].items()):
        if way != "once":
            report.figure("multistream_%s" % way, row["accelcache_ratio"], "x",
                          peers={"bare driver": row["bare_ratio"]},
                          evidence="time of a program on several streams, by that with its "
                          "buffers allocated once")
    for count, row in sorted(found["threads"].items(), key=lambda item: int(item[0])):
        if "accelcache" in row:
            report.figure("threads_%s" % count, row["accelcache"], "ns", peers=peers(row),
                          evidence="CPU time of a pair of 64 KiB")
    absent = [part for part in ("launch", "hooks", "multistream", "threads") if not found[part]]
    if absent:
        report.failed("work_measured", "no figures of " + ", ".join(absent) + ": " +
                      json.dumps(found["skipped"]))
    else:
        report.passed("work_measured", "every part has its figures")


def main():
    {"pairs": pairs, "static": static, "work": work, "rmm": lambda: python_peer("rmm"),
     "torch": lambda: python_peer("torch")}[sys.argv[1]]()
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
