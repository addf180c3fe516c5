#!/usr/bin/env python3
"""Tests tables of costs: the fit of lines, and a round trip.

In the round trip a simulated device takes its costs from a table, and costs.py must measure them."""
import json
import os
import random
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import table  # noqa: E402

BUILD, LIBRARY = os.environ["QUALIFY_BUILD"], os.environ["QUALIFY_LIBRARY"]
# All calls have different costs, so that no call can replace another.
BY_SIZE = ("cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAddressReserve",
           "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
           "cuMemAddressFree")
FIXED = ("cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
         "cuStreamWaitEvent", "cuEventDestroy", "cuStreamQuery", "cuStreamSynchronize",
         "cuCtxSynchronize", "cuMemGetInfo", "cuStreamCreate", "cuLaunchKernel", "cuMemcpyAsync",
         "cuMemsetD8Async", "cuStreamDestroy", "cuCtxRecordEvent")
BY_PAGE = {"cuMemSetAccess": 2100, "cuMemUnmap": 1300}
# In virtual time a call costs exactly the table's value, in whole nanoseconds.
TOLERANCE = 0.01


def given_table():
    costs = {name: (20000 + 700 * i, 300 + 41 * i, BY_PAGE.get(name, 0))
             for i, name in enumerate(BY_SIZE)}
    costs.update({name: (400 + 37 * i, 0, 0) for i, name in enumerate(FIXED)})
    return costs


class Lines(unittest.TestCase):
    def test_exact(self):
        points = {mib << 20: 5000 + 30 * mib for mib in (2, 4, 8, 20, 32, 64, 512)}
        fixed, per_mib = table.fit(points)
        self.assertAlmostEqual(fixed, 5000, places=3)
        self.assertAlmostEqual(per_mib, 30, places=6)
        self.assertLess(table.worst(points, (fixed, per_mib)), 1e-9)

    def test_noise(self):
        random.seed(1)
        points = {mib << 20: (5000 + 30 * mib) * random.uniform(0.95, 1.05)
                  for mib in (2, 4, 8, 20, 32, 64, 512)}
        fixed, per_mib = table.fit(points)
        self.assertAlmostEqual(fixed, 5000, delta=500)
        self.assertAlmostEqual(per_mib, 30, delta=3)

    def test_never_negative(self):
        for points in ({1 << 20: 1000, 512 << 20: 10}, {2 << 20: 1, 4 << 20: 100, 8 << 20: 1000},
                       {0: 7}, {1 << 20: 0, 2 << 20: 0}):
            fixed, per_mib = table.fit(points)
            self.assertGreaterEqual(fixed, 0)
            self.assertGreaterEqual(per_mib, 0)

    def test_small_sizes_and_special_kinds_stay_out(self):
        text = "\n".join(json.dumps({"call": "cuMemAlloc", "kind": kind, "bytes": size, "ns": ns})
                         for kind, size, ns in (("", 512, [5]), ("", 2 << 20, [100, 300, 200]),
                                                ("", 4 << 20, [400]), ("miss", 2 << 20, [9999])))
        parsed = table.parse("\n".join(table.lines(table.read(text), "a GPU")))
        self.assertEqual(parsed["cuMemAlloc"], (0, 100, 0))
        self.assertEqual(parsed["cuMemAllocPitch"], (0, 100, 0))


class Round(unittest.TestCase):
    def measure(self, sim, *arguments, **more):
        env = dict(os.environ, ACCEL_SIM=sim, QUALIFY_SIM="1", **more)
        return subprocess.run([sys.executable, os.path.join(HERE, "costs.py"), *arguments], env=env,
                              text=True, capture_output=True, timeout=100, check=False)

    def test_gives_back_its_table(self):
        with open("given.csv", "w", encoding="utf-8") as file:
            file.write(table.HEAD + "\n")
            for name, (fixed, per_mib, per_page) in given_table().items():
                file.write(f'{name},{fixed},{per_mib},{per_page},"made up"\n')
        done = self.measure("clock:virtual,costs:given.csv,memory:64G", "--table", "measured.csv",
                            "--passes", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({line["result"] for line in lines if line["check"] != "cost.table"},
                         {"skip"})
        with open("measured.csv", encoding="utf-8") as file:
            measured = table.parse(file.read())
        for name, want in given_table().items():
            for have, exact in zip(measured[name], want):
                self.assertAlmostEqual(have, exact, delta=max(TOLERANCE * exact, 1), msg=name)
        # a second trip, from the measured table
        again = self.measure("clock:virtual,costs:measured.csv,memory:64G", "--table", "again.csv",
                             "--passes", "2")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        with open("again.csv", encoding="utf-8") as file:
            for name, line in table.parse(file.read()).items():
                for have, exact in zip(line, measured[name]):
                    self.assertAlmostEqual(have, exact, delta=max(TOLERANCE * exact, 1), msg=name)

    def test_as_on_a_gpu(self):
        """All figures are reported, and the table is written into QUALIFY_OUT/costs."""
        env = dict(os.environ, ACCEL_SIM="clock:real,memory:64G", QUALIFY_OUT=os.path.abspath("out"))
        done = subprocess.run([sys.executable, os.path.join(HERE, "costs.py"), "--passes", "2"],
                              env=env, text=True, capture_output=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        lines = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(lines.pop("cost.table")["result"], "pass")
        for name, line in lines.items():
            self.assertEqual((line["result"], line["unit"]), ("fact", "ns"), name)
        for name in ("cost.cumemcreate.2mib", "cost.cumemcreate.20mib", "cost.cumemcreate.64mib",
                     "cost.cumemcreate.512mib", "cost.cumemallocasync.8mib.pool_miss",
                     "cost.cuctxrecordevent.32_streams", "cost.cumemgetinfo", "hook.launchkernel",
                     "hook.memalloc_memfree"):
            self.assertIn(name, lines)
        with open("out/costs/simulated-cuda-device.csv", encoding="utf-8") as file:
            self.assertEqual(set(BY_SIZE + FIXED) - set(table.parse(file.read())), set())

    def test_hooks_have_figures(self):
        """gpu_costs measures every row of costs_hooks.def, with and without the library."""
        env = dict(os.environ, ACCEL_SIM="clock:real", ACCEL_ALLOC_CONF="dump:none")
        seen = []
        for preload in ("", LIBRARY):
            env["LD_PRELOAD"] = ":".join(filter(None, (os.environ.get("AC_SANITIZER_RUNTIME"),
                                                       preload)))
            done = subprocess.run([os.path.join(BUILD, "tests/gpu/gpu_costs"), "hooks", "2"],
                                  env=env, text=True, capture_output=True, timeout=100, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            figures = table.read(done.stdout)
            self.assertTrue(all(ns > 0 for points in figures.values() for ns in points.values()))
            seen.append(list(figures))
        self.assertEqual(*seen)
        with open(os.path.join(HERE, "costs_hooks.def"), encoding="utf-8") as file:
            self.assertEqual(len(seen[0]), file.read().count("\nHOOK_ROW("))

    def test_no_device(self):
        done = self.measure("devices:0")
        self.assertEqual((done.returncode, done.stdout), (77, ""))

    def test_a_call_that_fails(self):
        done = self.measure("clock:virtual,fail:cuMemUnmap@2=999", "--passes", "1")
        self.assertNotIn(done.returncode, (0, 77))
        self.assertIn("cuMemUnmap", done.stderr)


if __name__ == "__main__":
    unittest.main()
