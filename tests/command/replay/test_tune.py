"""accelcache tune: recommends a setting only if it helps."""

import json
import shlex
from random import Random

import base
import frame
from frame import MIB


class Tune(frame.TraceTest):
    def tune(self, *arguments, status=0):
        return json.loads(self.expect(status, "tune", "--json", *arguments).stdout)

    def steps(self, count, name="trace"):
        """Returns a trace of equal steps with few sizes. All segment sizes suit it equally well."""
        lines = []
        for step in range(count):
            lines += [f"a {4 * step + i} {20 * MIB} 0" for i in range(4)]
            lines += [f"f {4 * step + i}" for i in range(4)]
        return self.trace(*lines, name=name)

    def test_the_default_is_right(self):
        path = self.steps(200)
        found = self.tune(path, "--objective", "memory")
        self.assertEqual((found["conf"], found["changes"]), ("", False))
        last = self.expect(0, "tune", path, "--objective", "memory").stdout.splitlines()[-1]
        self.assertRegex(last, r"^export ACCEL_ALLOC_CONF=  # the default is right")

    def test_a_key_helps(self):
        """Blocks of 5 MiB waste three quarters of a default segment of 20 MiB."""
        lines = []
        for step in range(100):
            lines += [f"a {step} {5 * MIB} 0", f"f {step}"]
        path = self.trace(*lines)
        found = self.tune(path, "--objective", "memory")
        self.assertTrue(found["changes"])
        self.assertLess(found["recommended"]["peak_reserved"], 8 * MIB)
        self.assertEqual(found["default"]["peak_reserved"], 20 * MIB)
        result = self.expect(0, "tune", path, "--objective", "memory")
        last = result.stdout.splitlines()[-1]
        self.assertRegex(last, r"^export ACCEL_ALLOC_CONF=\S+  # saves 1\d\.\d MiB of 20.0 MiB")
        # A shell reads the line as intended, and the setting has the effect that the line states.
        word = shlex.split(last, comments=True)[1]
        self.assertEqual(word, "ACCEL_ALLOC_CONF=" + found["conf"])
        replayed = self.replay(path, "--conf", found["conf"])
        self.assertEqual(replayed["peak_reserved"], found["recommended"]["peak_reserved"])
        self.assertIn(found["conf"].split(":")[0] + "\n", result.stdout)  # the effect of the key
        self.assertEqual(result.stderr, "")           # progress lines appear only on terminals

    def test_checks_decide(self):
        """A setting that helps the first trace but harms another is not recommended."""
        first = self.trace(*(line for i in range(100)
                             for line in (f"a {i} {5 * MIB} 0", f"f {i}")), name="first")
        # Six blocks fill a default segment. Other settings need more calls for few operations.
        second = self.trace(*(f"a {i} {3 * MIB} 0" for i in range(6)),
                            *(f"f {i}" for i in range(6)), name="second")
        self.assertTrue(self.tune(first)["changes"])
        both = self.tune(first, second)
        self.assertFalse(both["changes"], both["conf"])
        self.assertEqual([(check["trace"], check["part"]) for check in both["checks"]],
                         [(first, "whole"), (first, "second half"), (second, "whole")])

    def test_a_short_trace(self):
        """The command warns if a trace is too short to conclude from, and only then."""
        fresh = self.trace(*(f"a {i} {5 * MIB} 0" for i in range(2000)), name="fresh")
        found = self.tune(fresh, "--objective", "memory")
        self.assertFalse(found["conclusive"])
        self.assertIn("requests come after a free", found["doubt"])
        few = self.steps(20)
        found = self.tune(few)
        self.assertIn("it has 160 operations, and below 1333 one driver call", found["doubt"])
        out = self.expect(0, "tune", few).stdout
        self.assertIn("The trace is too short to conclude from: it has 160 operations", out)
        self.assertRegex(out.splitlines()[-1], "  # not certain: ")
        found = self.tune(self.steps(200))
        self.assertEqual((found["conclusive"], found["doubt"]), (True, None))
        self.assertNotIn("too short", self.expect(0, "tune", self.steps(200)).stdout)

    def test_an_uneven_gain(self):
        """A single request causes the whole gain. The next run may lack that request."""
        lines = [line for i in range(1400) for line in (f"a {i} {20 * MIB} 0", f"f {i}")]
        even = self.trace(*(line for i in range(1400)
                            for line in (f"a {i} {5 * MIB} 0", f"f {i}")), name="even")
        found = self.tune(even, "--objective", "memory")
        self.assertEqual((found["changes"], found["conclusive"]), (True, True))
        uneven = self.trace(*lines[:1400], f"a 2000 {5 * MIB} 0", *lines[1400:], name="uneven")
        found = self.tune(uneven, "--objective", "memory")
        self.assertEqual((found["changes"], found["conclusive"]), (True, False))
        self.assertIn("one eighth of its requests makes the whole gain", found["doubt"])

    def test_two_keys_together(self):
        """Pages of 2 MiB can move out of the holes of 5.25 MiB, pages of 8 MiB cannot. Small exact segments can be
        freed."""
        lines, block = [], 0
        for _ in range(4):
            small = range(block, block + 64)
            block += 65
            lines += [f"a {i} {MIB * 3 // 4} 0" for i in small]
            lines += [f"f {i}" for i in small if i % 8 != small[0] % 8]
            lines += [f"a {block - 1} {42 * MIB} 0", f"f {block - 1}"]
            lines += [f"f {i}" for i in small if i % 8 == small[0] % 8]
        found = self.tune(self.trace(*lines), "--objective", "memory")
        self.assertRegex(found["conf"], r",.*(page_size_mb:2\b|low_memory:true)|low_memory:true,")
        self.assertLess(found["recommended"]["peak_reserved"], 80 * MIB)

    def test_capacity(self):
        """If the default runs out of memory, tune finds a setting that completes. A replay confirms it."""
        path = self.generate("lora", "--ops", "24000")
        with_default = self.replay(path, "--capacity", "1.05x", status=1)
        self.assertFalse(with_default["completed"])
        found = self.tune(path, "--capacity", "1.05x")
        self.assertFalse(found["default"]["completed"])
        self.assertTrue(found["recommended"]["completed"])
        self.assertIn("completes where the default runs out", found["expectation"])
        self.assertIn("expandable_segments:auto", found["conf"])  # safe for programs that share memory
        self.replay(path, "--capacity", "1.05x", "--conf", found["conf"])

    def holes(self, *requests, blocks=100):
        """Returns a trace with holes of 9 MiB, each behind a block that stays. Most holes must move for the
        requests."""
        lines = [f"a {i} {9 * MIB} 0" for i in range(blocks)]
        lines += [f"f {i}" for i in range(0, blocks, 2)]
        return self.trace(*lines, *requests)

    def test_the_last_request(self):
        """A program's fatal request is the last of its trace. The search must include it."""
        path = self.holes(f"a 1000 {300 * MIB} 0")
        found = self.tune(path, "--capacity", "1000M")
        self.assertFalse(found["default"]["completed"])
        self.assertTrue(found["recommended"]["completed"], found["conf"])

    def random_trace(self, seed):
        random = Random(seed)
        lines, live = [], []
        for i in range(60):
            if live and random.random() < 0.45:
                lines.append(f"f {live.pop(random.randrange(len(live)))}")
            else:
                lines.append(f"a {i} {random.choice((3, 9, 21, 33, 50)) * MIB} 0")
                live.append(i)
        return self.trace(*lines)

    def test_completes_once(self):
        """If only a second run in the process fails, the command reports this, but not as a failure."""
        for seed in range(50):
            path = self.random_trace(seed)
            least = str(self.replay(path, "--min-capacity", "--repeat", "1")["min_capacity"])
            figures = self.replay(path, "--capacity", least)
            self.assertTrue(figures["completed"])
            if figures["second_failed_at"]:
                break
        self.assertIsNotNone(figures["second_failed_at"])
        self.assertIsNone(figures["failed_at"])
        self.assertIn("again in the same process: out of memory at operation",
                      self.expect(0, "replay", path, "--capacity", least).stdout)
        found = self.tune(path, "--capacity", least)
        self.assertTrue(found["default"]["completed"] and found["recommended"]["completed"])

    def test_nothing_completes(self):
        path = self.generate("lora", "--ops", "24000")
        found = self.tune(path, "--capacity", "1.001x", "--seconds", "3", status=1)
        self.assertFalse(found["recommended"]["completed"])
        self.assertIn("nothing completes", found["expectation"])

    def test_impossible(self):
        """If the capacity is below the trace's own peak, the command reports this and does not search."""
        path = self.steps(20)
        result = self.expect(1, "tune", path, "--capacity", "50M")
        self.assertEqual(result.stdout, "")
        self.assertIn("itself holds 80.0 MiB at a time, more than the capacity of 50.0 MiB",
                      result.stderr)

    def test_never_worse(self):
        """Replays of the whole trace show for each objective that the result is at least as good as the default."""
        for kind, objective in (("amr", "memory"), ("graph", "time"), ("rmm", "balanced")):
            with self.subTest(kind):
                path = self.generate(kind, "--ops", "6000")
                found = self.tune(path, "--objective", objective)
                usual, ours = self.replay(path, "--conf", "", "--conf", found["conf"])

                def memory(figures):
                    return max(figures["ratio"], figures["ratio_second"])

                def time(figures):
                    ms = figures["driver_ms_per_1000_ops"]
                    return (ms["first"] + 9 * ms["steady"]) / 10
                if objective == "memory":
                    self.assertLessEqual(memory(ours), memory(usual) * 1.001)
                elif objective == "time":
                    self.assertLessEqual(time(ours), time(usual) + 0.001)
                else:
                    self.assertLessEqual(memory(ours) * (1 + time(ours) / 5),
                                         memory(usual) * (1 + time(usual) / 5) * 1.0001)
                for point in found["front"]:
                    for other in found["front"]:
                        self.assertFalse(other["ratio"] < point["ratio"] and
                                         other["driver_ms_per_1000_ops"] <
                                         point["driver_ms_per_1000_ops"])

    def test_work(self):
        path = self.generate("amr", "--ops", "3000")
        self.tune(path, "--pending", "10")
        self.tune(path, "--streams", "real", "--seconds", "5")

    def test_usage(self):
        path = self.steps(1)
        for arguments in ((), (path, "--objective", "speed"), (path, "--capacity", "x"),
                          (path, "--seconds", "0"), (path, "--fast")):
            self.assertEqual(self.expect(2, "tune", *arguments).stdout, "")
        self.expect(1, "tune", path, self.path("nothing"))
        out = self.expect(0, "tune", "--help").stdout
        for key in ("large_segment_size_mb", "max_split_size_mb", "expandable_segments"):
            self.assertIn(key, out)
        for key in ("memory_limit", "free_sync", "single_stream", "dump"):
            self.assertNotIn(key, out)


if __name__ == "__main__":
    base.main()
