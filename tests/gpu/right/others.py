#!/usr/bin/env python3
"""Runs the installed tests of other projects, plain and under the library (PROTOCOL.md).

    others.py ucx      ucx_perftest between two processes, device memory on both sides
    others.py nccl     programs of nccl-tests, which check every result: one process per device
                       if mpirun is installed, else one process

A test that fails without the library proves nothing and is skipped."""
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import report

LIBRARY = os.environ["QUALIFY_LIBRARY"]
END = time.monotonic() + float(os.environ["QUALIFY_SECONDS"])

UCX = ("tag_bw", "tag_lat", "ucp_put_bw", "ucp_get", "stream_bw")
NCCL = ("all_reduce_perf", "alltoall_perf", "sendrecv_perf")


def environment(library):
    env = dict(os.environ)
    if library:
        env.update(LD_PRELOAD=LIBRARY, ACCEL_ALLOC_CONF="dump:none")
    return env


def start(command, env):
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


def finish(processes):
    """Waits for processes, kills late ones. Returns (all succeeded, exit statuses and last lines)."""
    said, statuses = [], []
    for process in processes:
        try:
            text, _ = process.communicate(timeout=max(0.5, END - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text = process.communicate()[0] + "\nnot done in time"
        said.append((text.strip().splitlines() or [""])[-1])
        statuses.append(process.returncode)
    return all(status == 0 for status in statuses), "%s: %s" % (statuses, " | ".join(said))


def ucx(program, test, library, number):
    # The port depends on the process, so that parallel runs differ.  Each pair has its own port.
    command = [program, "-p", str(20000 + os.getpid() % 20000 + number), "-t", test, "-m", "cuda",
               "-s", "1000000", "-n", "200", "-w", "20"]
    server = start(command, environment(library))
    for _ in range(40):
        client = start(command + ["127.0.0.1"], environment(library))
        time.sleep(0.1)
        if client.poll() in (None, 0) or server.poll() is not None:
            break
        client.communicate()  # the server was not there yet
    return finish((client, server))


def nccl(program, library, devices):
    env = dict(environment(library), NCCL_CUMEM_ENABLE="0")  # IPC handles, not its own pages
    sizes = ["-b", "8", "-e", "8M", "-f", "16", "-c", "1", "-n", "3", "-w", "1"]
    launcher = shutil.which("mpirun")
    if launcher and devices > 1:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return finish([start([launcher, *root, "-np", str(devices), program, *sizes], env)])
    return finish([start([program, *sizes, "-g", str(devices)], env)])


def judge(what, name, run):
    plain, said = run(False)
    if not plain:
        report.skipped("other.%s.%s" % (what, name), "fails without the library: " + said)
        return
    under, said = run(True)
    word = report.passed if under else report.failed
    word("other.%s.%s" % (what, name), said)


def devices():
    smi = shutil.which("nvidia-smi")
    if not smi:
        return 1
    listed = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False)
    return max(1, len(listed.stdout.splitlines()))


def main():
    what = sys.argv[1]
    programs = {"ucx": ("ucx_perftest",), "nccl": NCCL}[what]
    found = {name: shutil.which(name) for name in programs}
    if not any(found.values()):
        report.nothing("%s is not installed" % " or ".join(programs))
    if what == "ucx":
        for number, test in enumerate(UCX):
            judge(what, test, lambda library, test=test, number=number:
                  ucx(found["ucx_perftest"], test, library, 2 * number + library))
    else:
        for name in NCCL:
            if found[name]:
                judge(what, name, lambda library, name=name:
                      nccl(found[name], library, devices()))
            else:
                report.skipped("other.nccl." + name, "not installed")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
