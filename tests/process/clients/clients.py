#!/usr/bin/env python3
"""Runs clients with and without the library, and compares the outcomes. Each must write a dump.

usage: clients.py NAME...      the clients of catalogue.py, or --table for all of them as a table
       clients.py --self-test  checks that a client which differs is noticed

Each client runs without the library, then under it in each of its settings.  The lines that its judge
returns must be equal.  Exit status 77: the client is not installed; `install` gets the ones from PyPI
into the folder AC_CLIENTS.

The environment names the built files: AC_LIBRARY, AC_SIM_DIR, AC_STANDINS (other libraries that some
clients need), AC_SANITIZER_RUNTIME (preloaded first, may be empty).
"""
import difflib
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import catalogue

SKIPPED = 77
LIMIT = 300  # seconds until a client that hangs is ended
SETTINGS = ("", "expandable_segments:true")


class Outcome:
    """Results of one run of a client: status and output of each of its processes, and its dumps."""

    def __init__(self, statuses, outputs, errors, dumps, races):
        self.statuses, self.outputs, self.errors, self.dumps = statuses, outputs, errors, dumps
        self.races = races  # what the simulated device's race detector reported

    def served(self):
        return sum(device["stats"]["requested_bytes"]["all"]["allocated"]
                   for dump in self.dumps for device in dump["devices"])

    def count(self, *names):
        return sum(dump["counters"].get(name, 0) for dump in self.dumps for name in names)

    def tail(self):
        return "\n".join("\n".join(text.splitlines()[-12:]) for text in self.errors if text)


def environment(client, folder, conf):
    """conf: settings of the library; None: without the library."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("ACCEL_", "LD_", "CUDA_"))}
    env.update(LD_LIBRARY_PATH=":".join([os.environ["AC_SIM_DIR"], os.environ["AC_STANDINS"]]),
               ACCEL_LIVE_DIR=folder,
               ACCEL_SIM=f"log:none,race_detector:{folder}/races", PYTHONDONTWRITEBYTECODE="1",
               XDG_CACHE_HOME=folder, ASAN_OPTIONS="detect_leaks=0")
    env.update(client.environment)
    if conf is not None:
        runtime = os.environ.get("AC_SANITIZER_RUNTIME", "")
        env["LD_PRELOAD"] = ":".join(filter(None, [runtime, os.environ["AC_LIBRARY"]]))
        env["ACCEL_ALLOC_CONF"] = ",".join(filter(None, [conf, f"dump:{folder}/dump-%p.json"]))
    return env


def races_in(folder):
    path = os.path.join(folder, "races")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.rstrip() for line in file if line.startswith("simcuda race detector:")]


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()


def run(client, case, conf):
    """Starts the processes of a case one after another. The first ones are servers."""
    with tempfile.TemporaryDirectory(prefix="accelcache-client-") as folder:
        env = environment(client, folder, conf)
        processes, files = [], []
        try:
            for command in case.commands(folder):
                out, err = (open(os.path.join(folder, f"{name}-{len(processes)}"), "w+b")
                            for name in ("out", "err"))
                files.append((out, err))
                processes.append(subprocess.Popen(command, stdout=out, stderr=err, env=env,
                                                  stdin=subprocess.DEVNULL,
                                                  cwd=case.folder or folder))
            statuses = [process.wait(timeout=LIMIT) for process in processes]
        except subprocess.TimeoutExpired:
            end(processes)
            statuses = ["hung"]
        finally:
            end(processes)
            texts = []
            for pair in files:
                for file in pair:
                    file.seek(0)
                    texts.append(file.read())
                    file.close()
        dumps = []
        for path in glob.glob(os.path.join(folder, "dump-*.json")):
            with open(path, encoding="utf-8") as file:
                dumps.append(json.load(file))
        return Outcome(statuses, texts[0::2],
                       [text.decode(errors="replace") for text in texts[1::2]], dumps,
                       races_in(folder))


def compare(client, case, plain, under, conf):
    """Returns the faults of the run under the library, as lines."""
    faults = []
    if plain.statuses != under.statuses:
        faults.append(f"status {under.statuses}, plain {plain.statuses}\n{under.tail()}")
    first, second = case.judge(plain), case.judge(under)
    if not first:
        faults.append(f"the plain run shows nothing\n{plain.tail()}")
    faults += [line for line in difflib.unified_diff(first, second, "plain", "under", lineterm="")]
    if len(under.races) > len(plain.races):
        faults += under.races
    if not under.dumps:
        faults.append("no dump")
    elif client.serves and not under.served():
        faults.append("the library served nothing")
    if under.count("internal_failures"):
        faults.append(f"{under.count('internal_failures')} internal failures")
    for dump in under.dumps if faults else ():
        faults += [f"warning: {text}" for text in dump["warnings"]]
    return [f"{case.title} [{conf}]: {fault}" for fault in faults]


def check(client, rows=None):
    """Returns the faults of one client in all its cases and settings."""
    faults = []
    for case in client.cases:
        plain = run(client, case, None)
        for conf in SETTINGS:
            under = run(client, case, conf)
            found = compare(client, case, plain, under, conf or "default")
            faults += found
            row = (client.name, client.version(), case.title, conf or "default",
                   " ".join(map(str, plain.statuses)), " ".join(map(str, under.statuses)),
                   len(case.judge(plain)), f"{under.served():,}",
                   under.count("passed_allocs", "passed_async"), len(found))
            print(" | ".join(map(str, row)), flush=True)
            if rows is not None:
                rows.append(row)
    return faults


def table():
    head = ("client", "version", "case", "settings", "plain", "under", "lines compared",
            "bytes served", "requests passed", "differences")
    rows, missing, faults = [], [], []
    for client in catalogue.CLIENTS.values():
        reason = client.missing()
        if reason:
            missing.append(f"{client.name}: {reason}")
        else:
            faults += check(client, rows)
    print("\n" + " | ".join(head) + "\n" + "|".join("---" for _ in head))
    for row in rows:
        print(" | ".join(map(str, row)))
    print("\n".join(missing + faults))
    return 1 if faults else 0


def self_test():
    """Checks that a client with one difference is noticed, for each kind, and one without passes."""
    def python(text):
        return lambda folder: [[sys.executable, "-c", text]]

    failed = 0
    use = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p(); d.cuInit(0);"
           "d.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0); d.cuCtxSetCurrent(p);"
           "d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096));")
    under = "import os; under = 'LD_PRELOAD' in os.environ;"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listens = [subprocess.call(catalogue.listens(port), shell=True)]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # first: its end stays in TIME_WAIT
    listens.append(subprocess.call(catalogue.listens(port), shell=True))
    if listens != [0, 1]:
        print(f"listens: {listens}")
        failed = 1
    wanted = {"same": (use + "print(1)", None),
              "status": (use + under + "raise SystemExit(under)", "status"),
              "output": (use + under + "print(under)", "+True"),
              "nothing": (use, "the plain run shows nothing"),
              "unserved": ("print(1)", "no dump")}
    for name, (text, sign) in wanted.items():
        client = catalogue.Client(name, [catalogue.Case(name, python(text))])
        faults = check(client)
        if bool(faults) != bool(sign) or not all(sign in fault for fault in faults[:1]) and \
                not any(sign in fault for fault in faults):
            print(f"{name}: {faults}")
            failed = 1
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--table"]:
        return table()
    faults = []
    for name in sys.argv[1:]:
        client = catalogue.CLIENTS[name]
        reason = client.missing()
        if reason:
            print(f"skipped: {reason}")
            return SKIPPED
        faults += check(client)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
