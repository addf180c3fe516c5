"""Shared by the tests of the shim in a process: they run programs under the library, and read its files afterwards.

The environment names the built files: AC_LIBRARY, AC_SIM_DIR, AC_COMMAND, AC_PROGRAMS (the folder of the test
programs), AC_SANITIZER_RUNTIME (preloaded first, may be empty), AC_SANITIZERS (the library's sanitizers, may be
empty), AC_BUILD_TYPE (CMake's)."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

LIBRARY = os.environ["AC_LIBRARY"]
SIM_DIR = os.environ["AC_SIM_DIR"]
COMMAND = os.environ["AC_COMMAND"]
PROGRAMS = os.environ["AC_PROGRAMS"]
SANITIZER = os.environ.get("AC_SANITIZER_RUNTIME", "")
SANITIZED = bool(os.environ.get("AC_SANITIZERS"))
OPTIMISED = os.environ.get("AC_BUILD_TYPE", "") in ("Release", "RelWithDebInfo", "MinSizeRel")
TSAN = "thread" in os.environ.get("AC_SANITIZERS", "")
EMULATED = bool(os.environ.get("AC_EMULATED"))  # by qemu, slowly, in a process of qemu's
# Seconds after which a hanging program is killed.
LIMIT = 600 if EMULATED else 240

PARTS = {"schema", "version", "process", "reason", "time", "config", "devices", "counters",
         "hooks", "warnings"}


def program(name):
    return os.path.join(PROGRAMS, name)


class HostTest(unittest.TestCase):
    """Uses a folder per test: programs run in self.work, live pages are in self.live."""

    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="accelcache-test-"))
        self.addCleanup(shutil.rmtree, self.root, True)
        self.work = os.path.join(self.root, "work")
        self.live = os.path.join(self.root, "live")
        os.mkdir(self.work)
        os.mkdir(self.live)

    def environment(self, conf=None, preload=(), **more):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("ACCEL_", "LD_", "CUDA_"))}
        first = [SANITIZER] if SANITIZER else []
        env.update(LD_LIBRARY_PATH=SIM_DIR, LD_PRELOAD=":".join(first + [LIBRARY, *preload]),
                   ACCEL_LIVE_DIR=self.live, ACCEL_SIM="clock:virtual", ACCEL_CONF_FILE="none",
                   ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="report_thread_leaks=0")
        if conf:
            env["ACCEL_ALLOC_CONF"] = conf
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def start(self, *command, env=None, **more):
        more.setdefault("cwd", self.work)
        for stream in ("stdin", "stdout", "stderr"):
            more.setdefault(stream, subprocess.PIPE)
        child = subprocess.Popen(command, env=env or self.environment(), text=True, **more)
        self.addCleanup(self.end, child)
        return child

    def end(self, child):
        if child.poll() is None:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream and not stream.closed:
                stream.close()

    def finish(self, child, status=0, stdin=None):
        out, err = child.communicate(stdin, timeout=LIMIT)
        self.assertEqual(child.returncode, status, f"stdout: {out}\nstderr: {err}")
        return out, err

    def run_program(self, *command, status=0, env=None, **more):
        """Runs a program to its end; returns pid, stdout, stderr."""
        child = self.start(*command, env=env, **more)
        out, err = self.finish(child, status)
        return child.pid, out, err

    def dumps(self):
        return sorted(os.listdir(self.work))

    def pages(self):
        """Returns the files of live pages."""
        return sorted(os.path.join(folder, name) for folder, _, files in os.walk(self.live)
                      for name in files)

    def page(self, pid="$$"):
        """Returns the file of a live page."""
        space = os.stat("/proc/self/ns/pid").st_ino
        return os.path.join(self.live, f"accelcache-{os.geteuid()}", f"{space}-{pid}")

    def read_dump(self, name, reason="exit", folder=None):
        with open(os.path.join(folder or self.work, name)) as file:
            dump = json.load(file)
        self.assertLessEqual(PARTS, set(dump))
        self.assertEqual(dump["reason"], reason)
        for device in dump["devices"]:
            self.assertEqual(sum(m["allocated_bytes"]["current"] for m in device["modules"]),
                             device["stats"]["allocated_bytes"]["all"]["current"],
                             "modules do not add up")
        return dump

    def the_dump(self, pid, reason="exit"):
        """Returns the dump of `pid`, which must be the only file."""
        self.assertEqual(self.dumps(), [f"accelcache-{pid}.json"])
        dump = self.read_dump(f"accelcache-{pid}.json", reason)
        self.assertEqual(dump["process"]["pid"], pid)
        return dump

    def assert_calls(self, dump, allocs, frees=None):
        """Checks that the hooks were counted exactly, and that the device's statistics agree."""
        frees = allocs if frees is None else frees
        self.assertEqual(dump["hooks"].get("cuMemAlloc_v2", 0), allocs)
        self.assertEqual(dump["hooks"].get("cuMemFree_v2", 0), frees)
        blocks = dump["devices"][0]["stats"]["allocation"]["all"]
        self.assertEqual((blocks["allocated"], blocks["freed"], blocks["current"]),
                         (allocs, frees, allocs - frees))

    def stat(self, *arguments, status=0):
        """Runs `accelcache stat` on the pages of this test."""
        env = self.environment(LD_PRELOAD=None)
        done = subprocess.run([COMMAND, "stat", *arguments], env=env, cwd=self.work, text=True,
                              capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr


__all__ = ["HostTest", "LIBRARY", "SIM_DIR", "COMMAND", "LIMIT", "EMULATED", "OPTIMISED", "SANITIZED", "TSAN", "json",
           "os", "program", "signal", "subprocess", "unittest"]
