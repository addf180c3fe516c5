"""Shared parts of the command's tests: the paths of what was built, and the base class that runs it.

Variables of the environment name the paths. AC_COMMAND and AC_FIXTURE name programs, AC_PRELOAD a harmless
library to preload, and AC_CC a C compiler. AC_SANITIZER_RUNTIME names the library that must be preloaded
first; it is empty without a sanitizer. AC_LIBRARY (libaccelcache.so) and AC_SIM_DIR (folder of the
simulated device) are set only if these were built."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

COMMAND = os.environ["AC_COMMAND"]
DEV = COMMAND + "-dev"  # the command for developers, which has these subcommands:
DEV_SUBCOMMANDS = ("bench", "gen")
SHARE = os.path.join(os.path.dirname(os.path.dirname(COMMAND)), "share")  # manual pages, completion scripts
COMPLETION = os.path.join(SHARE, "completion", "accelcache")
FIXTURE = os.environ["AC_FIXTURE"]
PRELOAD = os.environ["AC_PRELOAD"]
LIBRARY = os.environ.get("AC_LIBRARY", "")
SIM_DIR = os.environ.get("AC_SIM_DIR", "")
CC = os.environ.get("AC_CC", "cc")
SANITIZER = os.environ.get("AC_SANITIZER_RUNTIME", "")


def program_of(arguments):
    return DEV if arguments and arguments[0] in DEV_SUBCOMMANDS else COMMAND


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="accelcache-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.live = self.path("live")
        os.mkdir(self.live)
        self.tool = COMMAND
        self.environment = {k: v for k, v in os.environ.items()
                            if k not in ("LD_PRELOAD", "ACCEL_ALLOC_CONF", "ACCEL_SIM",
                                         "LD_LIBRARY_PATH")}
        self.environment["ACCEL_LIVE_DIR"] = self.live
        self.environment["ASAN_OPTIONS"] = "detect_leaks=0"
        if SANITIZER:
            self.environment["LD_PRELOAD"] = SANITIZER

    def path(self, name):
        return os.path.join(self.folder, name)

    def open_to_all(self):
        """Copies the command to the test's folder, with access for all users. They may be unable to read the
        build."""
        for folder in pathlib.Path(self.folder).parents:
            if not os.stat(folder).st_mode & 1:
                self.skipTest(f"other users cannot enter {folder}")
        for source, name in ((COMMAND, "bin/accelcache"), (LIBRARY, "lib/libaccelcache.so"),
                             (os.path.join(SIM_DIR, "libcuda.so.1"), "sim/libcuda.so.1")):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            shutil.copy(source, self.path(name))
        for folder, _, names in os.walk(self.folder):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                os.chmod(path, 0o755)
        os.chmod(self.live, 0o1777)
        self.tool = self.path("bin/accelcache")

    def write(self, name, content, mode=0o644):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(self.path(name), mode)
        return self.path(name)

    def command(self, *arguments, **variables):
        """Runs `accelcache arguments...`, or accelcache-dev. The result's .stdout and .stderr are text."""
        environment = {**self.environment, **variables}
        return subprocess.run([program_of(arguments), *arguments], env=environment, text=True, cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=200, check=False)

    def expect(self, status, *arguments, **variables):
        result = self.command(*arguments, **variables)
        self.assertEqual(result.returncode, status, (arguments, result.stdout, result.stderr))
        return result

    def answer(self, status, *arguments):
        """Returns the JSON that the command prints. The command must write nothing to stderr."""
        result = self.expect(status, *arguments)
        self.assertEqual(result.stderr, "", arguments)
        return json.loads(result.stdout)

    def soon(self, call):
        """Returns the result of `call`. One of five attempts must take less than 2.5 s: the command itself
        takes at most 1 s, and the machine may be busy."""
        for _ in range(5):
            begin = time.monotonic()
            result = call()
            if time.monotonic() - begin < 2.5:
                return result
        self.fail("it took long, five times")
        return None

    def complete(self, *words):
        """Returns the completions that bash offers for the last of the words after `accelcache`."""
        done = subprocess.run(
            ["bash", "-c", f"source {COMPLETION}; COMP_WORDS=(accelcache \"$@\"); "
             'COMP_CWORD=$#; _accelcache; printf "%s\\n" "${COMPREPLY[@]}"', "bash", *words],
            stdout=subprocess.PIPE, text=True, check=True, timeout=200, env=self.environment)
        return set(done.stdout.split())

    def fixture(self, *arguments, **variables):
        return subprocess.run([FIXTURE, *arguments], env={**self.environment, **variables},
                              stdout=subprocess.PIPE, check=True, timeout=200).stdout

    def compile(self, name, source, *options):
        """Compiles C text to a program or library. Returns its path, or None if the compiler fails."""
        text = self.write(name + ".c", source)
        made = subprocess.run([CC, text, "-o", self.path(name), *options],
                              stderr=subprocess.PIPE, timeout=200, check=False)
        return self.path(name) if made.returncode == 0 else None


def main():
    unittest.main(verbosity=2)
