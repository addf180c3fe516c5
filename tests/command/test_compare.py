#!/usr/bin/env python3
"""accelcache run --compare: what it prints, which runs it makes, and when it fails."""
import json
import os
import signal
import subprocess
import unittest

import base


class Compare(base.CommandTest):
    def compare(self, status, *arguments, **variables):
        return self.expect(status, "run", "--lib", base.PRELOAD, "--compare", *arguments,
                           TMPDIR=self.folder, **variables)

    def left(self):
        return [name for name in os.listdir(self.folder) if name.startswith("accelcache-")]

    def test_figures(self):
        out = self.compare(0, "--json", "--repeat", "3", "--", base.FIXTURE, "app").stdout
        whole = json.loads(out)
        self.assertEqual(whole["off"]["driver_calls"], 1000)
        self.assertEqual(whole["on"]["driver_calls"], 10)
        self.assertEqual(whole["off"]["saved_calls"], 0)
        self.assertEqual(whole["on"]["saved_calls"], 990)
        self.assertEqual(whole["off"]["allocation_ns"], 100000000)
        self.assertEqual(whole["on"]["allocation_ns"], 1000000)
        self.assertEqual(whole["on"]["reserved_peak"], 12 << 20)
        self.assertEqual(whole["command"], [base.FIXTURE, "app"])
        self.assertTrue(whole["stdout_identical"])
        self.assertTrue(whole["stdout_steady"])
        self.assertEqual([run["caching"] for run in whole["runs"]], 3 * [False, True])
        self.assertEqual([run["dumps"] for run in whole["runs"]], 6 * [1])
        self.assertGreater(whole["off"]["wall_ns"], 0)
        self.assertEqual(list(whole["figures"]), list(whole["off"]))
        self.assertEqual(whole["warm_up"], 1)
        self.assertEqual(self.left(), [])

    def test_text(self):
        out = self.compare(0, base.FIXTURE, "app").stdout
        self.assertRegex(out, r"(?m)^in allocation calls +100 ms +1\.00 ms +100 times faster$")
        self.assertRegex(out, r"(?m)^driver calls made +1,000 +10 +100 times fewer$")
        self.assertRegex(out, r"(?m)^peak reserved +12\.0 MiB +12\.0 MiB$")
        self.assertIn("stdout  byte-identical", out)
        self.assertIn("5 runs each way in turn, medians, after 1 that does not count", " ".join(out.split()))
        self.assertRegex(out, r"(?m)^wall time from \S+ \S+ to \S+ \S+ with caching off, from ")
        out = self.compare(0, "--repeat", "1", base.FIXTURE, "app").stdout
        self.assertIn("1 run each way, after 1 that does not count", out)
        self.assertNotIn("wall time from", out)
        for label in ("wall time", "in allocation calls", "driver, for the program",
                      "driver calls saved", "peak allocated"):
            self.assertRegex(out, rf"(?m)^  {label}: .*")

    def left_behind(self):
        return [name for _, _, files in os.walk(self.live) for name in files]

    def test_processes_that_write_nothing(self):
        """A process that ends by _exit or a signal is found by its counters, which replace its dump at an interval."""
        fixture = base.FIXTURE
        for end, status in (("leave", 0), ("term", 143)):
            with self.subTest(end=end):
                script = f"{fixture} app {end}; [ $? = {status} ] && {fixture} app hello"
                whole = json.loads(self.compare(0, "--json", "--", "sh", "-c", script).stdout)
                self.assertEqual(whole["off"]["driver_calls"], 2000)
                self.assertEqual(whole["on"]["saved_calls"], 1980)
                for run in whole["runs"]:
                    self.assertEqual((run["dumps"], run["ended_without_dump"]), (2, 1))
                self.assertEqual(self.left_behind(), [])
        out = self.compare(0, "sh", "-c", f"{fixture} app leave").stdout
        self.assertRegex(out, r"(?m)^driver calls made +1,000 +10 ")
        self.assertIn("with caching off 1 process ended by a signal or _exit and wrote no", out)
        self.assertNotIn("did not use CUDA", out)
        self.compare(0, "--keep", "kept", fixture, "app", "leave")
        out = self.expect(0, "stat", "kept/run-1/on-1/" + [name for name in os.listdir(
            self.path("kept/run-1/on-1")) if name.endswith(".json")][0]).stdout
        self.assertIn("figures as it left them", out)

    def test_a_process_that_stays(self):
        script = f"{base.FIXTURE} live < fifo > ready & echo $! >> pids; read line < ready"
        for name in ("fifo", "ready"):
            os.mkfifo(self.path(name))
        fifo = os.open(self.path("fifo"), os.O_RDWR)
        self.addCleanup(os.close, fifo)
        try:
            out = self.compare(0, "bash", "-c", script).stdout
        finally:
            with open(self.path("pids"), encoding="ascii") as pids:
                for pid in pids:
                    os.kill(int(pid), signal.SIGKILL)
        self.assertIn("with caching on 1 process outlived the program", out)

    def test_other_processes_are_not_counted(self):
        other = subprocess.Popen([base.FIXTURE, "live"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, env=self.environment)
        self.assertEqual(other.stdout.readline(), b"ready\n")
        whole = json.loads(self.compare(0, "--json", "--repeat", "1", base.FIXTURE, "app").stdout)
        self.assertEqual([run["dumps"] for run in whole["runs"]], [1, 1])
        other.communicate(timeout=200)

    def test_rounds(self):
        """Programs of a second and more run three times each way."""
        script = "sleep 1.1; echo run >> runs"
        self.compare(0, "--warm-up", "0", "sh", "-c", script)
        with open(self.path("runs"), encoding="ascii") as runs:
            self.assertEqual(len(runs.readlines()), 6)

    def test_first_run(self):
        """An uncounted run comes first, to show which differences have causes other than caching."""
        script = "echo $ACCEL_ALLOC_CONF | grep -o enabled:.* >> runs; [ -e seen ]; echo $?; touch seen"
        self.assertIn("byte-identical", self.compare(0, "--repeat", "2", "sh", "-c", script).stdout)
        with open(self.path("runs"), encoding="ascii") as runs:
            self.assertEqual([line.split(":")[1].strip() for line in runs],
                             ["false", "false", "true", "true", "false"])
        os.remove(self.path("seen"))
        self.assertIn("differs\n", self.compare(0, "--repeat", "1", "--warm-up", "0", "sh", "-c",
                                                script).stdout)
        self.assertIn("differs between runs of the same setting",
                      self.compare(0, "sh", "-c", "echo $$").stdout)
        self.assertIn("in a run that does not count",
                      self.compare(3, base.FIXTURE, "app", "fail").stderr)

    def test_strict(self):
        self.compare(0, "--strict", base.FIXTURE, "app")
        result = self.compare(117, "--strict", base.FIXTURE, "app", "setting")
        self.assertIn("first difference", result.stdout)
        out = self.compare(117, "--strict", "--json", base.FIXTURE, "app", "setting").stdout
        self.assertFalse(json.loads(out)["stdout_identical"])
        out = self.compare(0, "--strict", "sh", "-c", "echo $$").stdout
        self.assertIn("not caching's doing", " ".join(out.split()))

    def test_difference(self):
        out = self.compare(0, base.FIXTURE, "app", "setting").stdout
        self.assertIn("first difference in line 2:\n    off: caching is off\n"
                      "    on:  caching is on\n", out)
        self.assertIn("runs of the same setting agree: caching changes it", out)
        out = self.compare(0, "--repeat", "2", "--warm-up", "0", base.FIXTURE, "app",
                           "setting").stdout
        self.assertIn("runs of the same setting agree: caching changes it", out)
        out = self.compare(0, "--repeat", "1", "--warm-up", "0", base.FIXTURE, "app", "setting").stdout
        self.assertIn("time stamps", out)
        out = self.compare(0, "--repeat", "2", "sh", "-c", "echo $$").stdout
        self.assertIn("differs between runs of the same setting", out)

    def test_failure(self):
        result = self.compare(3, base.FIXTURE, "app", "fail")
        self.assertIn("with caching off, in a run that does not count, the program ended with "
                      "status 3", result.stderr)
        self.assertIn("\nfail\n", result.stderr)
        self.assertEqual(result.stdout, "")
        self.compare(128 + signal.SIGKILL, "sh", "-c", "kill -KILL $$")
        self.assertEqual(self.left(), [])

    def test_no_statistics(self):
        self.assertIn("no statistics", self.compare(0, "true").stdout)

    def test_keep(self):
        """Each run gets a new folder below the one that --keep names. Existing files stay unchanged."""
        os.makedirs(self.path("kept/on-1"))
        mine = self.write("kept/on-1/mine", "")
        for number in (1, 2):
            out = self.compare(0, "--keep", "kept", base.FIXTURE, "app",
                               ACCEL_ALLOC_CONF="fence:sync").stdout
            self.assertIn(f"dumps and outputs are in {self.path('kept')}/run-{number}\n", out)
            self.assertTrue(os.path.exists(mine))
            for way in ("off-1", "on-1"):
                files = os.listdir(self.path(f"kept/run-{number}/{way}"))
                self.assertEqual(len(files), 3)
                dump = [name for name in files if name.endswith(".json")][0]
                with open(self.path(f"kept/run-{number}/{way}/{dump}"), encoding="utf-8") as file:
                    effective = json.load(file)["config"]["effective"]
                self.assertEqual(effective["fence"], "sync")
                self.assertEqual(effective["enabled"], "true" if way == "on-1" else "false")

    def test_stdin(self):
        self.write("input", "from the file\n")
        self.compare(0, "--stdin", "input", "--keep", "kept", "cat")
        for way in ("off-1", "on-1"):
            with open(self.path(f"kept/run-1/{way}/stdout"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "from the file\n")

    def test_stopped(self):
        os.mkfifo(self.path("fifo"))
        process = subprocess.Popen([base.COMMAND, "run", "--lib", base.PRELOAD, "--compare", "--",
                                    "sh", "-c", "echo started > started; exec cat fifo"],
                                   cwd=self.folder, env={**self.environment,
                                                         "TMPDIR": self.folder},
                                   stderr=subprocess.PIPE)
        fifo = os.open(self.path("fifo"), os.O_RDWR)  # so that cat blocks
        self.addCleanup(os.close, fifo)
        while not os.path.exists(self.path("started")):
            self.assertIsNone(process.poll())
        process.terminate()
        _, said = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn(b"stopped by signal 15", said)
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    unittest.main()
