#!/usr/bin/env python3
"""tools/bundle: test_bundle.py SOURCE BUILD [TEST...]

The bundle needs nothing that a machine with a GPU may lack.  The suite runs from it on the simulated
device while the checkout and the build folder are hidden.  tools/bundle refuses to make a bundle that
would not work."""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = BUILD = None
ALLOWED = re.compile(r"(lib(c|m|dl|pthread|rt)|ld-linux-x86-64|libcuda|libcudart|"
                     r"libcu(blas|blasLt|fft|sparse|solver|rand|dnn)\w*|libnccl|libnvrtc)\.so\.\d+$|"
                     r"libaccelcache\.so(\.\d+)?$")
GLIBC = (2, 36)
BARE = {"PATH": "/usr/bin:/bin"}


def bundle(build, out):
    return subprocess.run([os.path.join(SOURCE, "tools", "bundle"), build, out],
                          capture_output=True, text=True, check=False)


def elf_files(folder):
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def readelf(option, path):
    return subprocess.run(["readelf", option, "-W", path], capture_output=True, text=True,
                          check=True, env=dict(os.environ, LC_ALL="C")).stdout


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = os.path.join(cls.folder.name, "elsewhere")
        done = bundle(BUILD, cls.out)
        libc = tuple(map(int, platform.libc_ver()[1].split(".")[:2]))
        if done.returncode and "needs GLIBC_" in done.stderr and libc > GLIBC:
            raise unittest.SkipTest("built on glibc %d.%d" % libc)
        assert done.returncode == 0, done
        cls.said = done.stdout

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_needs_nothing(self):
        files = list(elf_files(self.out))
        self.assertGreater(len(files), 20)
        for path in files:
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path)):
                self.assertTrue(ALLOWED.match(name), (path, name))
            for version in re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf("-V", path)):
                self.assertLessEqual(tuple(map(int, version)), GLIBC, path)
        library = readelf("-d", os.path.join(self.out, "build/release/lib/libaccelcache.so"))
        self.assertEqual(set(re.findall(r"\(NEEDED\).*\[(.*)\]", library)) -
                         {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"},
                         set())

    def test_nothing_of_this_machine(self):
        """No file contains the paths of checkout and build folder, except the output of nvcc."""
        told = []
        for place, _, names in os.walk(self.out):
            for name in names:
                with open(os.path.join(place, name), "rb") as file:
                    content = file.read()
                if any(path.encode() + b"/" in content for path in (SOURCE, BUILD)) and \
                        not name.startswith("facts_cudart_"):
                    told.append(name)
        self.assertEqual(told, [])

    def test_size(self):
        size = sum(os.lstat(os.path.join(place, name)).st_size
                   for place, _, names in os.walk(self.out) for name in names)
        self.assertLess(size, 48 << 20)
        links = [name for place, _, names in os.walk(self.out) for name in names
                 if os.path.islink(os.path.join(place, name))]
        self.assertEqual(links, [], "links lead out of the bundle")

    def away(self, *command):
        """Runs a command with a bare environment and `/` as the working folder.

        If namespaces are available, empty folders replace the checkout and the build folder."""
        hidden = " && ".join("mount -t tmpfs none '%s'" % path for path in (BUILD, SOURCE))
        inside = ["unshare", "-rm", "sh", "-c", hidden + " && exec \"$@\"", "sh"]
        probe = subprocess.run([*inside, "test", "!", "-e", os.path.join(BUILD, "lib")],
                               env=BARE, check=False, capture_output=True, cwd="/")
        return subprocess.run([*(inside if probe.returncode == 0 else ()), *command], env=BARE,
                              cwd="/", capture_output=True, text=True, check=False, timeout=900)

    def passed(self, out, *command):
        """Runs the suite. Returns passed lines and the result; lines may only fail for lack of time."""
        done = self.away(*command)
        self.assertIn("SIMULATED.md", done.stdout, done)
        with open(os.path.join(out, "simulated.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertTrue(result["complete"])
        passed = 0
        for part in result["parts"]:
            for check in part["checks"]:
                for line in check["lines"]:
                    passed += line["result"] in ("pass", "fact")
                    self.assertTrue(line["result"] != "fail" or "time: " in line["reason"],
                                    (check, line))
        return passed, result

    def test_runs(self):
        out = os.path.join(self.folder.name, "results")
        python = sys.executable
        if python.startswith((SOURCE + "/", BUILD + "/")):
            python = "python3"
        command = (python, os.path.join(self.out, "tests/gpu/qualify"))
        # Every program runs; stress and litmus run only in their row "auto".
        names = [row.split()[1] for row in self.away(*command, "--list").stdout.splitlines()]
        only = [name for name in names if not name.startswith(("stress_", "litmus_")) or
                name.endswith("_auto")]
        self.assertGreater(len(only), 20)
        for seconds in 45, 180, 720:  # a busy machine starts less in the first
            passed, result = self.passed(out, *command, "--sim", "--out", out, "--seconds", str(seconds),
                                         *(word for name in only for word in ("--only", name)))
            if passed > 20:
                break
        self.assertGreater(passed, 20)
        with open(os.path.join(self.out, "SOURCE"), encoding="utf-8") as file:
            self.assertEqual(result["versions"]["source"], file.read().strip())

    def test_starts(self):
        done = self.away(os.path.join(self.out, "qualify"), "--list")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("stress_plain", done.stdout)

    def test_replaced(self):
        """tools/bundle replaces an old bundle as a whole and never changes another folder."""
        stale = os.path.join(self.out, "stale")
        with open(stale, "w", encoding="utf-8"):
            pass
        self.assertEqual(bundle(BUILD, self.out).returncode, 0)
        self.assertFalse(os.path.exists(stale))
        other = os.path.join(self.folder.name, "other")
        os.mkdir(other)
        with open(os.path.join(other, "precious"), "w", encoding="utf-8"):
            pass
        done = bundle(BUILD, other)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is no bundle", done.stderr)
        self.assertEqual(os.listdir(other), ["precious"])


class Refused(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = os.path.join(folder.name, "build")
        self.out = os.path.join(folder.name, "out")
        os.makedirs(os.path.join(self.build, "tests"))
        for name in ("bin", "lib", "libexec", "sim", "tests/litmus"):
            os.symlink(os.path.join(BUILD, name), os.path.join(self.build, name))
        shutil.copytree(os.path.join(BUILD, "tests", "gpu"), os.path.join(self.build, "tests/gpu"),
                        symlinks=True, ignore=shutil.ignore_patterns("work", "kept", "CMakeFiles"))
        shutil.copy(os.path.join(BUILD, "CMakeCache.txt"), self.build)

    def refuse(self, word):
        done = bundle(self.build, self.out)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(word, done.stderr)

    def test_foreign_library(self):
        shutil.copy("/bin/bash", os.path.join(self.build, "tests/gpu/shell"))
        self.refuse("tests/gpu/shell needs lib")

    def test_missing(self):
        os.remove(os.path.join(self.build, "tests/gpu/stream_stress"))
        self.refuse("stream_stress is missing")

    def test_without_archive(self):
        path = os.path.join(self.build, "CMakeCache.txt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("AC_JANSSON_LINKS:INTERNAL=TRUE",
                                    "AC_JANSSON_LINKS:INTERNAL=FALSE"))
        self.refuse("libjansson.a")

    def test_too_large(self):
        with open(os.path.join(self.build, "tests/gpu/huge"), "wb") as file:
            file.write(os.urandom(1 << 20) * 48)
        os.chmod(file.name, 0o755)
        self.refuse("too many")


if __name__ == "__main__":
    SOURCE, BUILD = (os.path.realpath(path) for path in sys.argv[1:3])
    del sys.argv[1:3]
    unittest.main()
