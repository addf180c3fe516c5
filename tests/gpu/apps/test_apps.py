#!/usr/bin/env python3
"""Tests how apps.py judges runs that are right, wrong, broken or missing.

The framework is a miniature (fake/), on the simulated device."""
import contextlib
import io
import json
import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import apps  # noqa: E402
import compare  # noqa: E402
import runs  # noqa: E402

LINES = ("losses", "time", "memory", "waits")


def run(*arguments, seconds="50", **more):
    env = dict(os.environ, QUALIFY_SECONDS=seconds, **more)
    done = subprocess.run([sys.executable, os.path.join(HERE, "apps.py"), *arguments], env=env,
                          text=True, capture_output=True, timeout=100, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done, {line["check"]: line for line in lines}


class Miniature(unittest.TestCase):
    def fake(self, **more):
        return run("fake", "--table", os.path.join(HERE, "fake/variants.py"), "--steps", "20", **more)

    def test_right(self):
        done, lines = self.fake()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(set(lines), {f"app.fake.{case}.{line}" for case in ("line", "curve")
                                      for line in LINES})
        for case in ("line", "curve"):
            losses = lines[f"app.fake.{case}.losses"]
            self.assertEqual(losses["result"], "pass")
            self.assertIn("own 20+20, ours 20, beside 20, bare 8; held to the last bit, all equal",
                          losses["evidence"])
            self.assertGreater(lines[f"app.fake.{case}.time"]["value"], 0)
            self.assertEqual(set(lines[f"app.fake.{case}.time"]["peers"]), {"beside", "bare"})
            self.assertGreater(lines[f"app.fake.{case}.memory"]["value"], 0)
            counted = lines[f"app.fake.{case}.waits"]["evidence"]
            # each of ten measured steps allocates two to four arrays from the library's cache
            self.assertRegex(counted, r"ours: 10 steps, fences \d+, cached_allocs (2|3)\d, ")

    def broken(self, fault, words, **more):
        done, lines = self.fake(FAKEFRAME_FAULT=fault, **more)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for case in ("line", "curve"):
            self.assertEqual(lines[f"app.fake.{case}.losses"]["result"], "fail", fault)
            self.assertIn(words, lines[f"app.fake.{case}.losses"]["reason"])
        return lines

    def test_wrong_losses(self):
        lines = self.broken("wrong", "ours: step 7: loss ")
        self.assertIn("beside: step 7: loss ", lines["app.fake.line.losses"]["reason"])
        self.assertNotIn("bare", lines["app.fake.line.losses"]["reason"])

    def test_crash(self):
        lines = self.broken("crash", "ours: signal 11")
        self.assertEqual({lines[f"app.fake.line.{line}"]["result"] for line in LINES[1:]}, {"skip"})

    def test_hang(self):
        begin = time.monotonic()
        self.broken("hang", "ours: not finished after", seconds="9")
        self.assertLess(time.monotonic() - begin, 60)

    def test_no_time_for_the_framework_itself(self):
        done, lines = self.fake(FAKEFRAME_SLOW="1", seconds="4")
        self.assertEqual((done.returncode, lines), (77, {}))
        self.assertRegex(done.stderr, "^without the library, too: not finished after [^\n]+\n$")

    def test_no_time_for_all(self):
        """If time is short, later variants are left out; that is no failure."""
        runner = runs.Runs(apps.load_table(os.path.join(HERE, "fake/variants.py"))["fake"],
                           os.path.join(HERE, "fake"), os.environ["QUALIFY_LIBRARY"], 30, steps=15)
        runner.left = lambda: 5.0
        runner.run, ran = lambda variant, *_, **__: ran.append(variant.role) or runs.Outcome(
            variant.role, {case: result() for case in ("line", "curve")}), []
        outcomes, left_out = apps.run_all(runner.app, runner, ["line", "curve"])
        self.assertEqual((ran, left_out), (["own", "ours"], ["own", "beside", "bare"]))
        self.assertEqual(len(outcomes), 2)

    def test_absent_under_the_library_only(self):
        self.broken("absent", "ours: no such framework")

    def test_output_that_is_no_result(self):
        self.broken("text", "ours: unreadable result")

    def test_too_few_steps(self):
        self.broken("early", "ours: only 2 steps were made")

    def test_nothing_there(self):
        done, lines = self.fake(FAKEFRAME_ABSENT="1")
        self.assertEqual((done.returncode, lines), (77, {}))
        self.assertEqual(done.stderr, "no such framework\n")
        done, lines = self.fake(ACCEL_SIM="devices:0")
        self.assertEqual((done.returncode, lines), (77, {}))


class Real(unittest.TestCase):
    """Real applications without their framework or GPU print one line and exit with status 77."""

    def test_rows_of_the_suite(self):
        """checks.py declares exactly the applications and lines of variants.py."""
        import checks
        rows = {row.name: row.lines for row in checks.CHECKS if row.part == 3}
        table = apps.load_table(os.path.join(HERE, "variants.py"))
        self.assertEqual(set(rows), set(table))
        for name, app in table.items():
            self.assertEqual(set(rows[name]), {f"app.{name}.{case}.{line}" for case in app.cases
                                               for line in LINES})
            self.assertTrue(os.path.exists(os.path.join(HERE, app.program)))
            self.assertEqual(app.variants[0].role, "own")
            self.assertTrue(set(app.judged) <= set(app.cases))

    def test_no_framework_or_no_gpu(self):
        for application in ("torch", "torch_compile", "torch_plugged", "cupy", "jax", "numba", "rmm"):
            # Even if a framework is installed, it finds no device.
            done, lines = run(application, ACCEL_SIM="devices:0")
            self.assertEqual((done.returncode, lines), (77, {}), application + done.stderr)
            self.assertRegex(done.stderr, r"^[^\n]+\n$", application)


def result(losses=(1.0, 0.5, 0.25, 0.125, 0.1), ms=(10.0, ), peak=None, reserved=None, **counters):
    after = None if reserved is None else {"counters": counters, "reserved_peak": reserved}
    return {"case": "c", "losses": [loss.hex() for loss in losses], "step_ms": list(ms),
            "measured_steps": 10, "peak": peak, "before": after and {"counters": {},
                                                                    "reserved_peak": 0},
            "after": after, "device": "a GPU", "versions": {"f": "1"}}


class Judged(unittest.TestCase):
    """Tests the lines for given figures."""

    class Table:
        judged, tolerance = ("c", ), 1e-3

    def lines(self, **roles):
        outcomes = [runs.Outcome(role, {"c": one}) for role, many in roles.items() for one in many]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            apps.Case("a", self.Table, "c", outcomes).report()
        return {line["check"].rsplit(".", 1)[1]: line
                for line in map(json.loads, text.getvalue().splitlines())}

    def test_bounds(self):
        own = [result(peak=1000), result(peak=1000)]
        for ms, reserved, time_is, memory_is in ((10.4, 1049, "pass", "pass"),
                                                 (10.6, 1051, "fail", "fail")):
            lines = self.lines(own=own, ours=[result(ms=(ms, ), reserved=reserved)])
            self.assertEqual((lines["time"]["result"], lines["memory"]["result"]),
                             (time_is, memory_is))

    def test_where_the_time_went(self):
        lines = self.lines(own=[result(peak=1)], ours=[result(
            ms=(12.0, ), reserved=1, fence_wait_ns=5000000, shim_ns=10000000, fence_waits=3,
            fences_ctx=7)])
        self.assertIn("+2.000 ms a step", lines["time"]["evidence"])
        self.assertIn("waits for fences 0.500,", lines["time"]["evidence"])
        self.assertIn("its own work 1.000 ms; other causes +0.500 ms", lines["time"]["evidence"])
        self.assertEqual(lines["waits"]["value"], 3)
        self.assertIn("fences 7", lines["waits"]["evidence"])

    def test_tolerance_only_where_the_framework_alone_varies(self):
        near = result((1.0, 0.5, 0.25, 0.125, 0.1 * (1 + 1e-6)))
        far = result((1.0, 0.5, 0.25, 0.125, 0.1 * 1.01), reserved=1)
        close = result((1.0, 0.5, 0.25, 0.125, 0.1 * (1 - 1e-6)), reserved=1)
        self.assertEqual(self.lines(own=[result(), result()], ours=[close])["losses"]["result"], "fail")
        self.assertEqual(self.lines(own=[result(), near], ours=[close])["losses"]["result"], "pass")
        self.assertEqual(self.lines(own=[result(), near], ours=[far])["losses"]["result"], "fail")

    def test_library_that_served_nothing(self):
        lines = self.lines(own=[result(), result()], ours=[result()])
        self.assertEqual(lines["losses"]["result"], "fail")
        self.assertIn("ours: the library served nothing", lines["losses"]["reason"])

    def test_nothing_to_compare(self):
        """If there was no time for the run under the library, no line passes."""
        lines = self.lines(own=[result(), result()])
        self.assertEqual({line["result"] for line in lines.values()}, {"skip"})
        self.assertEqual(set(lines), set(LINES))

    def test_not_a_number(self):
        nan = float("nan")
        bad = (1.0, nan, nan, nan, nan)
        self.assertIn("not finite", compare.differ(result(bad), result(bad), 0.0))
        self.assertIn("step 1", compare.differ(result(), result(bad), 1.0))

    def test_several_streams_are_not_judged(self):
        self.Table.judged = ()
        try:
            lines = self.lines(own=[result(peak=1)], ours=[result(ms=(30.0, ), reserved=9)])
        finally:
            self.Table.judged = ("c", )
        self.assertEqual((lines["time"]["result"], lines["memory"]["result"]), ("fact", "fact"))


if __name__ == "__main__":
    unittest.main()
