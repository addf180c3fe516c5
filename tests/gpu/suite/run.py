"""Starts the programs of checks.py one at a time, and ends them.

A check that hangs or leaves processes behind uses up only its own limit.  Output goes to files, so a
child of a killed check cannot block the suite, and a crash loses no output."""
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

import lines

MARK = "QUALIFY_RUN"       # in the environment of everything that a check starts
OUTPUT = 4 << 20           # bytes of output that are read


class Place:
    """The folders of a run, and the environment that every check gets."""

    def __init__(self, gpu, build, out, driver, python, simulated, nvcc):
        self.gpu, self.build, self.out, self.driver = gpu, build, out, driver
        self.python, self.simulated, self.nvcc = python, simulated, nvcc
        self.library = os.path.join(build, "lib", "libaccelcache.so")
        os.makedirs(out, exist_ok=True)
        self.scratch = tempfile.mkdtemp(prefix="qualify-")
        links = os.path.join(self.scratch, "driver")
        os.mkdir(links)
        os.symlink(driver, os.path.join(links, "libcuda.so.1"))
        self.shared = os.path.join(self.scratch, "shared")
        os.mkdir(self.shared)
        # Killed processes leave their counters here, not in /dev/shm itself.
        self.live = tempfile.mkdtemp(prefix="qualify-", dir="/dev/shm" if os.access(
            "/dev/shm", os.W_OK) else self.scratch)
        self.search = [links] + ([os.path.join(build, "sim")] if simulated else [])
        self.carried = os.path.join(build, "tests", "gpu", "lib")

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.rmtree(self.live, ignore_errors=True)

    def hide(self, text):
        """Returns the text with the folders of this machine replaced by names."""
        for path, name in ((self.scratch, "{work}"), (self.build, "{build}"), (self.gpu, "{gpu}"),
                           (self.out, "{out}")):
            text = text.replace(path, name)
        return text

    def word(self, text):
        return text.format(build=self.build, gpu=self.gpu, python=self.python)

    def environment(self, check, seconds, work, mark):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("QUALIFY_", "LD_PRELOAD", "ACCEL_"))}
        if self.simulated and "ACCEL_SIM" in os.environ:
            env["ACCEL_SIM"] = os.environ["ACCEL_SIM"]
        # The build's CUDA runtime comes after the simulator.  The driver's other libraries are in
        # the folder of the driver.
        search = self.search + ([] if check.own_runtime else [self.carried])
        if not self.simulated:
            search += [env.get("LD_LIBRARY_PATH"), os.path.dirname(self.driver)]
        env.update({
            MARK: mark, "QUALIFY_BUILD": self.build, "QUALIFY_LIBRARY": self.library,
            "QUALIFY_COMMAND": os.path.join(self.build, "bin", "accelcache"),
            "QUALIFY_PYTHON": self.python, "QUALIFY_SECONDS": "%.1f" % seconds,
            "QUALIFY_OUT": self.out, "QUALIFY_WORK": work, "QUALIFY_DRIVER": self.driver,
            "QUALIFY_SHARED": self.shared, "ACCEL_LIVE_DIR": self.live,
            "ACCEL_ALLOC_CONF": "dump:none", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": ":".join(filter(None, (self.gpu, env.get("PYTHONPATH")))),
            "PATH": ":".join(filter(None, (os.path.dirname(self.python), env.get("PATH")))),
            "LD_LIBRARY_PATH": ":".join(filter(None, search))})
        if self.simulated:
            env["QUALIFY_SIM"] = "1"
        if self.nvcc:
            env["QUALIFY_NVCC"] = self.nvcc
        return env


def marked(mark):
    """Yields the processes with this mark in their environment."""
    needle = ("%s=%s" % (MARK, mark)).encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open("/proc/%s/environ" % entry, "rb") as file:
                    if needle in file.read().split(b"\0"):
                        yield int(entry)
            except OSError:
                pass


def end_all(mark):
    """Kills all remaining processes of a check, even outside its process group."""
    for _ in range(20):
        left = list(marked(mark))
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)


def read(path):
    with open(path, "rb") as file:
        return file.read(OUTPUT).decode("utf-8", "replace")


def start(place, check, command, seconds, extra=None):
    """Runs a command. Returns (stdout, stderr, (status or None, cause or None), seconds, folder)."""
    mark, begin = uuid.uuid4().hex, time.monotonic()
    work = tempfile.mkdtemp(dir=place.scratch)
    out, err = work + ".out", work + ".err"
    env = place.environment(check, seconds, work, mark)
    env.update(extra(work) if extra else {})
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout,
                                     stderr=stderr, env=env, cwd=work, start_new_session=True)
        except OSError as error:
            return "", "", (None, "it cannot be started: %s" % error), 0.0, work
    try:
        status, cause = child.wait(timeout=seconds), None
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = "signal %d" % -status
            status, cause = None, "it was ended by " + name
    except subprocess.TimeoutExpired:
        status, cause = None, "time: still running after %.1f s" % seconds
    finally:  # also on an interruption of the suite itself
        if child.returncode is None:  # not reaped: the group's number is still its own
            os.killpg(child.pid, signal.SIGKILL)
        end_all(mark)
    if cause and child.poll() is None:
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            cause += "; it could not be killed"
    return read(out), read(err), (status, cause), time.monotonic() - begin, work


def served(work):
    """Returns how many requests the library served, by its dumps in `work`; None without a dump."""
    found = None
    for path in glob.glob(os.path.join(work, "dump-*.json")):
        try:
            with open(path, encoding="utf-8") as file:
                devices = json.load(file)["devices"]
        except (OSError, ValueError, KeyError):
            continue
        found = (found or 0) + sum(d["counters"]["cached_allocs"] + d["counters"]["driver_allocs"]
                                   for d in devices)
    return found


def compare(place, check, command, seconds):
    """Runs a same=True check three times. Returns its line, a failing run's stderr, the seconds."""
    settings = "dump:%s/dump-%%p.json" + ("," + check.conf if check.conf else "")

    def preloaded(work):
        return {"LD_PRELOAD": place.library, "ACCEL_ALLOC_CONF": settings % work}

    runs, total = [], 0.0
    for extra in (None, None, preloaded):
        run = start(place, check, command, max(1.0, seconds - total), extra)
        total += run[3]
        runs.append(run)
        where = "under the library" if extra else "without the library"
        status, cause = run[2]
        if not extra and status == 77:
            return lines.line(check.name, "skip", lines.last_words(run[1]) or "exit status 77"), \
                run[1], total
        if cause or (extra is None and status != 0):
            text = "%s: %s; last words: %s" % (where, cause or "exit status %s" % status,
                                               lines.last_words(run[1]) or "none")
            return lines.line(check.name, "fail", text), run[1], total
    plain, again, ours = runs
    tolerance, how = 0.0, "bitwise"
    if plain[0] != again[0]:
        tolerance, how = check.tolerance, "within %g, as plain runs differ" % check.tolerance
        apart = lines.difference(plain[0], again[0], tolerance)
        if apart:
            return lines.line(check.name, "fail", "two plain runs differ: " + apart), "", total
    apart = lines.difference(plain[0], ours[0], tolerance)
    count = served(ours[4])
    if ours[2] != plain[2]:
        reason = "exit status %s plain, %s under the library" % (plain[2][0], ours[2][0])
    elif apart:
        reason = "plain | under the library: " + apart
    elif not count:
        reason = "the library was not active" if count is None else "it served no request"
    elif not plain[0].strip():
        reason = "the program printed nothing that could be compared"
    else:
        return {"check": check.name, "result": "pass", "evidence":
                "%d lines the same (%s), %d requests served, %.2f s plain, %.2f s under the library"
                % (len(plain[0].splitlines()), how, count, again[3], ours[3])}, "", total
    return lines.line(check.name, "fail", reason), ours[1], total


def check(place, row, seconds, features):
    """Runs one row within `seconds` and returns its entry of the result file."""
    command = [place.word(word) for word in row.command]
    declared = (row.name,) if row.same else row.lines
    result = {"name": row.name, "command": " ".join(row.command), "limit": round(seconds, 1),
              "seconds": 0.0}

    def without(outcome, reason):
        return dict(result, lines=lines.all_lines(declared, outcome, reason))

    if row.needs in features:
        return without("skip", "not built: " + features[row.needs])
    if place.simulated and not row.sim:
        return without("skip", "needs a GPU")
    gone = [word for word in command if os.path.isabs(word) and not os.path.exists(word) and
            word.startswith((place.build, place.gpu))]
    if gone and row.optional:
        return without("skip", "%s was not built: %s" % (os.path.basename(gone[0]), row.optional))
    if gone:
        return without("fail", "%s does not exist" % gone[0])
    if seconds < 1:
        return without("fail", "time: the part's seconds were used up before it was started")
    if row.same:
        one, stderr, total = compare(place, row, command, seconds)
        found = [one]
    else:
        stdout, stderr, ended, total, _ = start(place, row, command, seconds)
        found = lines.judge(row.name, declared, stdout, stderr, ended)
    for line in found:
        for key in ("evidence", "reason"):
            if key in line:
                line[key] = place.hide(line[key])
    result.update(seconds=round(total, 2), lines=found)
    if any(line["result"] == "fail" for line in found):
        result["stderr"] = place.hide(stderr)[-4000:]
    return result
