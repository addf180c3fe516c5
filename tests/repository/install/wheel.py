#!/usr/bin/env python3
"""Checks the wheel: pip installs it without a network, and it runs from its installation.

usage: wheel.py BUILD SOURCE     run in an empty folder of the test"""
import csv
import filecmp
import io
import os
import shutil
import subprocess
import sys
import unittest
import zipfile

import needs

BUILD, SOURCE = sys.argv[1:3]


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=400, **options)
    if done.returncode:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def made(folder, **variables):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    out = run(os.path.join(SOURCE, "tools/package/wheel"), BUILD, folder,
              env={**os.environ, **variables})
    return out.strip()


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = made("one")

    def test_same_again(self):
        self.assertTrue(filecmp.cmp(self.file, made("two"), shallow=False))

    def test_tag_is_what_the_programs_ask_for(self):
        folder = os.path.abspath("unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        with zipfile.ZipFile(self.file) as wheel:
            wheel.extractall(folder)
        of = {path: needs.glibc_of(path) for path in needs.elves(folder)}
        self.assertGreater(len(of), 5)
        self.assertFalse({path: need for path, need in of.items() if need > (2, 28)})
        self.assertIn(f"-py3-none-manylinux_2_28_{os.uname().machine}.whl", self.file)

    def test_record(self):
        """RECORD has each file with its size, so that pip can verify and remove files."""
        with zipfile.ZipFile(self.file) as wheel:
            record, = (name for name in wheel.namelist() if name.endswith("/RECORD"))
            rows = {row[0]: row for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
            self.assertEqual(set(rows), set(wheel.namelist()))
            for entry in wheel.infolist():
                if entry.filename != record:
                    self.assertEqual(int(rows[entry.filename][2]), entry.file_size)

    def test_installed(self):
        """pip installs the wheel into a new environment without other packages and without a network."""
        place = os.path.abspath("environment")
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", "--without-pip", place)
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no pip here")
        python = os.path.join(place, "bin/python")
        run(*pip, "--python", python, "install", "--no-index", "--no-deps", "--no-cache-dir",
            "--disable-pip-version-check", self.file)
        work = os.path.abspath("work")
        os.makedirs(work, exist_ok=True)
        environment = {"PATH": "/usr/bin:/bin", "ACCEL_LIVE_DIR": work}
        demo = run(python, "-c", "import accelcache.__main__ as m; "
                   "print(m.PREFIX + '/bin/accelcache-demo')", cwd=work).strip()
        for number, start in enumerate(([os.path.join(place, "bin/accelcache")],
                                        [python, "-m", "accelcache"])):
            dump = os.path.join(work, f"{number}.json")
            run(*start, "run", "--sim", "--dump", dump, "--", demo, "--iterations", "20",
                cwd=work, env=environment)
            self.assertRegex(run(*start, "stat", dump, env=environment), r"from cache +[1-9]")
        # The command has the program's exit status.
        done = subprocess.run([python, "-m", "accelcache", "run", "--sim", "--", "sh", "-c",
                               "exit 7"], env=environment, cwd=work, check=False)
        self.assertEqual(done.returncode, 7)
        # library() returns the path for LD_PRELOAD, for programs that are started without the command.
        library = run(python, "-c", "import accelcache; print(accelcache.library())",
                      cwd=work).strip()
        env = {**environment, "LD_PRELOAD": library, "LD_LIBRARY_PATH": os.path.join(BUILD, "sim"),
               "ACCEL_ALLOC_CONF": f"dump:{work}/preload.json"}
        run(demo, "--iterations", "20", cwd=work, env=env)
        self.assertTrue(os.path.exists(os.path.join(work, "preload.json")))
        # `import torch` calls this entry point. Without PyTorch it can only warn.
        load = ("import importlib.metadata as m\n"
                "found = m.entry_points()\n"
                "group = found.select(group='torch.backends') if hasattr(found, 'select') "
                "else found['torch.backends']\n"
                "for entry in group: print(entry.load()())")
        for value, told in (("0", False), ("1", True)):
            done = subprocess.run([python, "-c", load], env={**env, "ACCELCACHE_TORCH": value}, cwd=work,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
            self.assertEqual(done.stdout, "None\n")
            self.assertEqual("ACCELCACHE_TORCH=1 has no effect" in done.stderr, told, done.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(verbosity=2)
