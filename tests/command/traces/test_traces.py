#!/usr/bin/env python3
"""Checks that each recorded trace matches its note and can be replayed. It also records a trace on the
simulated device, which never becomes part of the folder.

usage: test_traces.py [TEST...]"""
import glob
import hashlib
import importlib.machinery
import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
GPU = os.path.join(HERE, "../../gpu")
COMMAND = os.environ["QUALIFY_COMMAND"]
SCRIPT = os.path.join(GPU, "traces")
COSTS = os.path.join(HERE, "../../../tools/simcuda/costs/published.csv")
FAKE = os.path.join(GPU, "apps/fake/variants.py")
MOST = 8 << 20


def load_script():
    loader = importlib.machinery.SourceFileLoader("traces", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("traces", loader))
    loader.exec_module(module)
    return module


def record(folder, *arguments, **more):
    env = dict(os.environ, QUALIFY_SIM="1", QUALIFY_SECONDS="50", **more)
    done = subprocess.run([sys.executable, SCRIPT, "record", "--out", folder, "--table", FAKE,
                           *arguments], env=env, text=True, capture_output=True, timeout=400,
                          check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def accelcache(*arguments):
    done = subprocess.run([COMMAND, *arguments], text=True, capture_output=True, check=False,
                          timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


class Traces(unittest.TestCase):
    def replay(self, path):
        """Compares a trace with its note, then replays it with both kinds of segments."""
        with open(path[:-len(".trace.xz")] + ".json", encoding="utf-8") as file:
            note = json.load(file)
        self.assertEqual(os.path.basename(path), note["trace"])
        self.assertLessEqual(os.path.getsize(path), MOST)
        self.assertEqual(os.path.getsize(path), note["compressed"])
        with lzma.open(path) as file:
            content = file.read()
        self.assertEqual(hashlib.sha256(content).hexdigest(), note["sha256"])
        raw = os.path.basename(path)[:-len(".xz")]
        with open(raw, "wb") as file:
            file.write(content)
        try:
            summary = accelcache("trace", "--json", raw)
            self.assertEqual(summary["state"], "complete")
            for key in ("allocs", "frees", "peak_live", "threads", "streams"):
                self.assertEqual(summary[key], note[key], key)
            for conf in ("", "expandable_segments:true"):
                figures = accelcache("replay", "--json", "--conf", conf, "--costs", COSTS, raw)
                self.assertTrue(figures["completed"], conf)
                self.assertGreaterEqual(figures["ops"], note["allocs"] + note["frees"])
                self.assertEqual(figures["peak_live"], note["peak_live"])
                self.assertGreaterEqual(figures["peak_reserved"], note["peak_live"])
        finally:
            os.remove(raw)
        return note

    def test_tune(self):
        """tune uses the costs of a table in the simulated device's format."""
        folder = os.path.abspath("tuned")
        shutil.rmtree(folder, ignore_errors=True)
        record(folder, "--only", "fake.line")
        path = glob.glob(os.path.join(folder, "*.trace.xz"))[0]
        with lzma.open(path) as packed, open("tuned.trace", "wb") as raw:
            shutil.copyfileobj(packed, raw)
        figures = [accelcache("tune", "--json", "--seconds", "1", *costs, "tuned.trace")["default"]
                   for costs in ((), ("--costs", COSTS))]
        self.assertTrue(all(figure["completed"] for figure in figures))
        self.assertNotEqual(*(figure["driver_ms_per_1000_ops"] for figure in figures))

    def test_recorded(self):
        """Replays the traces of the folder, which may have none."""
        for path in glob.glob(os.path.join(HERE, "*.trace.xz")):
            with self.subTest(path):
                self.assertFalse(self.replay(path)["simulated"])

    def test_stand_in(self):
        folder = os.path.abspath("standin")
        shutil.rmtree(folder, ignore_errors=True)
        done, lines = record(folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual([(line["check"], line["result"]) for line in lines],
                         [("trace.fake.line", "pass"), ("trace.fake.curve", "pass")])
        paths = sorted(glob.glob(os.path.join(folder, "*.trace.xz")))
        self.assertEqual(len(paths), 2)
        for path in paths:
            note = self.replay(path)
            self.assertTrue(note["simulated"])
            # fifteen steps, each with one to three copies and a new state, and one state before them
            self.assertEqual(note["allocs"], 1 + sum(1 + number % 3 + 1 for number in range(15)))
            self.assertEqual(note["allocs"], note["frees"])

    def test_a_trace_that_is_not_what_its_note_says(self):
        folder = os.path.abspath("damaged")
        shutil.rmtree(folder, ignore_errors=True)
        record(folder, "--only", "fake.line")
        path = glob.glob(os.path.join(folder, "*.trace.xz"))[0]
        with lzma.open(path) as file:
            content = bytearray(file.read())
        content[len(content) // 2] ^= 1
        with open(path, "wb") as file:
            file.write(lzma.compress(bytes(content)))
        with self.assertRaises(AssertionError):
            self.replay(path)

    def test_runs_that_fail(self):
        folder = os.path.abspath("failed")
        done, lines = record(folder, "--only", "fake.line", FAKEFRAME_FAULT="crash")
        self.assertEqual((done.returncode, lines[0]["result"]), (1, "fail"))
        self.assertIn("signal 11", lines[0]["reason"])
        done, lines = record(folder, FAKEFRAME_ABSENT="1")
        self.assertEqual((done.returncode, {line["result"] for line in lines}), (0, {"skip"}))
        done, lines = record(folder, ACCEL_SIM="devices:0")
        self.assertEqual((done.returncode, lines), (77, []))
        self.assertFalse(os.path.exists(folder))

    def test_page(self):
        script = load_script()
        with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), script.page(HERE),
                             "tests/gpu/traces page tests/command/traces")
        for note in script.notes(HERE):
            self.assertTrue(os.path.exists(os.path.join(HERE, note["trace"])), note["trace"])
        folder = os.path.abspath("page")
        shutil.rmtree(folder, ignore_errors=True)
        record(folder, "--only", "fake.line")
        with self.assertRaises(ValueError):
            script.page(folder)
        path = glob.glob(os.path.join(folder, "*.json"))[0]
        with open(path, encoding="utf-8") as file:
            note = dict(json.load(file), simulated=False)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(note, file)
        self.assertIn("| fake_train.py line, 15 steps; fakeframe 1 |", script.page(folder))


if __name__ == "__main__":
    unittest.main()
