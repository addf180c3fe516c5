"""accelcache replay: figures of traces that are small enough to compute by hand."""

import re

import base
import frame
from frame import MIB

SMALL = "large_segment_size_mb:2"  # segments as large as the request, for whole MiB


def a(block, mib, stream=0):
    return f"a {block} {int(mib * MIB)} {stream}"


class Replay(frame.TraceTest):
    def test_one_block(self):
        figures = self.replay(self.trace(a(1, 3), "f 1"), "--conf", SMALL)
        expected = {"ops": 2, "peak_live": 3 * MIB, "peak_reserved": 4 * MIB, "ratio": 4 / 3,
                    "ratio_second": 4 / 3, "bound": 4 * MIB, "driver_calls": {"cuMemAlloc": 1},
                    "driver_calls_steady": {}, "waits": 0, "stream_waits": 0,
                    "min_capacity": None, "min_capacity_ratio": None, "completed": True,
                    "failed_at": None, "error": None, "simulated": True, "conf": SMALL}
        for key, value in expected.items():
            if isinstance(value, float):
                self.assertAlmostEqual(figures[key], value, 4, key)
            else:
                self.assertEqual(figures[key], value, key)
        # One call of 100 us for 2 operations.
        self.assertEqual(figures["driver_ms_per_1000_ops"], {"first": 50.0, "steady": 0.0})
        self.assertGreater(figures["ns_per_op"], 0)

    def test_reuse(self):
        """The second block reuses the memory of the first. The third block finds no free memory."""
        figures = self.replay(self.trace(a(1, 8), "f 1", a(2, 8), a(3, 8)), "--conf", SMALL)
        self.assertEqual(figures["driver_calls"], {"cuMemAlloc": 2})
        self.assertEqual((figures["peak_live"], figures["peak_reserved"]), (16 * MIB, 16 * MIB))
        self.assertEqual(figures["ratio"], 1)

    def test_what_lives_at_the_end_is_freed_before_the_second_replay(self):
        figures = self.replay(self.trace(a(1, 8), a(2, 8)), "--conf", SMALL, "--repeat", "5")
        self.assertEqual((figures["peak_reserved"], figures["ratio_second"]), (16 * MIB, 1))
        self.assertEqual(figures["driver_calls_steady"], {})

    def test_repeat_once(self):
        figures = self.replay(self.trace(a(1, 8)), "--repeat", "1")
        self.assertIsNone(figures["ratio_second"])
        self.assertIsNone(figures["driver_ms_per_1000_ops"]["steady"])

    # ------------------------------------------------------------ capacity

    def test_capacity(self):
        path = self.trace(a(1, 8), a(2, 8))
        figures = self.replay(path, "--conf", SMALL, "--capacity", "12M", status=1)
        self.assertEqual((figures["completed"], figures["failed_at"], figures["error"]),
                         (False, 2, "out of memory"))
        result = self.expect(1, "replay", path, "--capacity", "12M")
        self.assertIn("out of memory at operation 2", result.stdout)
        self.assertIn(f"impossible: {path} itself holds 16.0 MiB at a time, more than the "
                      "capacity of 12.0 MiB", result.stderr)
        self.assertEqual(self.expect(0, "replay", path, "--capacity", "16M").stderr, "")
        for size in ("16M", "16MiB", "16384K", "16777216", "1x", "1.0x"):
            self.assertTrue(self.replay(path, "--conf", SMALL, "--capacity", size)["completed"])
        self.replay(path, "--conf", SMALL, "--capacity", "0.99x", status=1)

    def test_figures_of_the_operations_that_were_done(self):
        """Figures per operation count only the operations before the failure."""
        few = [a(1, 8), a(2, 8)]
        rest = [line for i in range(3, 2000) for line in (a(i, 1), f"f {i}")]
        ms = [self.replay(self.trace(*lines), "--conf", SMALL, "--capacity", "12M", status=1)
              ["driver_ms_per_1000_ops"]["first"] for lines in (few, few + rest)]
        self.assertEqual(ms[0], ms[1])
        self.assertGreater(ms[0], 0)

    def test_least_capacity(self):
        """Idle segments are freed to make room for another size, so that the bound suffices."""
        path = self.trace(a(1, 8), a(2, 8), "f 1", a(3, 10))
        figures = self.replay(path, "--conf", SMALL, "--min-capacity")
        self.assertEqual((figures["min_capacity"], figures["bound"]), (18 * MIB, 18 * MIB))
        self.assertEqual(figures["min_capacity_ratio"], 1)

    def test_least_capacity_by_bisection(self):
        """Every other of 16 blocks of 1 MiB stays, so that a block of 8 MiB needs new memory."""
        path = self.trace(*(a(i, 1) for i in range(16)), *(f"f {i}" for i in range(0, 16, 2)),
                          a(16, 8))
        conf = "large_segment_size_mb:16"
        figures = self.replay(path, "--conf", conf, "--min-capacity")
        self.assertEqual((figures["peak_live"], figures["bound"]), (16 * MIB, 16 * MIB))
        self.assertEqual(figures["min_capacity"], 24 * MIB)
        self.replay(path, "--conf", conf, "--capacity", "24M")
        self.replay(path, "--conf", conf, "--capacity", "22M", status=1)

    def test_limit_of_the_configuration(self):
        path = self.trace(a(1, 8), a(2, 8))
        figures = self.replay(path, "--conf", SMALL + ",memory_limit:10M", "--min-capacity",
                              status=1)
        self.assertIsNone(figures["min_capacity"])

    # ------------------------------------------------------------ work

    def test_pending(self):
        """The device still uses the first block when the program asks for the second one."""
        path = self.trace(a(1, 8), "f 1", a(2, 8))
        at_once = self.replay(path, "--conf", SMALL, "--pending", "0")
        self.assertEqual((at_once["peak_reserved"], at_once["waits"]), (8 * MIB, 0))
        waiting = self.replay(path, "--conf", SMALL, "--pending", "9")
        self.assertEqual((waiting["peak_reserved"], waiting["waits"]), (8 * MIB, 1))
        # With larger segments, 16 MiB are within the budget: the request does not wait.
        growing = self.replay(path, "--conf", "large_segment_size_mb:8", "--pending", "9")
        self.assertEqual((growing["peak_reserved"], growing["waits"]), (16 * MIB, 0))

    def test_pending_ends(self):
        """A fence that was recorded early enough has completed when the block is reused."""
        def waits(delay):
            small = [line for i in range(64) for line in (f"a {100 + i} 512 0", f"f {100 + i}")]
            path = self.trace(a(1, 8), "f 1", *small, a(2, 8))
            return self.replay(path, "--conf", SMALL, "--pending", str(delay),
                               "--repeat", "1")["waits"]
        self.assertEqual(waits(0), 0)
        self.assertGreater(waits(1000), 0)
        self.assertEqual(waits(4), 0)

    def test_synchronisation(self):
        path = self.trace(a(1, 8), "f 1", "s", a(2, 8))
        figures = self.replay(path, "--conf", "large_segment_size_mb:8", "--pending", "1000")
        self.assertEqual((figures["peak_reserved"], figures["waits"]), (8 * MIB, 0))

    def test_owed_at_a_synchronisation(self):
        """Memory that could not be freed earlier is freed when the program synchronises."""
        work = [a(1, 40), a(2, 16), "f 1", "s", "a 3 512 0", a(4, 64), "f 2"]
        for end, freed in (([], 0), (["s"], 1)):
            figures = self.replay(self.trace(*work, *end),
                                  "--conf", "large_segment_size_mb:8,wait_budget:16",
                                  "--pending", "9", "--repeat", "1")
            self.assertEqual(figures["driver_calls"].get("cuMemFree", 0), freed)

    def test_streams(self):
        """A stream reuses its own memory at once. Another stream must wait."""
        conf = ("--conf", "large_segment_size_mb:8", "--streams", "real")
        same = self.replay(self.trace(a(1, 8, 3), "f 1", a(2, 8, 3)), *conf)
        self.assertEqual((same["peak_reserved"], same["waits"]), (8 * MIB, 0))
        other = self.replay(self.trace(a(1, 8, 3), "f 1", a(2, 8, 4)), *conf)
        self.assertEqual(other["peak_reserved"], 16 * MIB)
        synchronised = self.replay(self.trace(a(1, 8, 3), "f 1", "s", a(2, 8, 4)), *conf)
        self.assertEqual(synchronised["peak_reserved"], 8 * MIB)
        # 16 MiB exceed the budget here: stream 4 waits for stream 3, and the host does not wait.
        tight = self.replay(self.trace(a(1, 8, 3), "f 1", a(2, 8, 4)), "--conf", SMALL,
                            "--streams", "real")
        self.assertEqual((tight["peak_reserved"], tight["waits"]), (8 * MIB, 0))
        self.assertEqual(tight["stream_waits"], 1)

    def test_waiting_keeps_memory(self):
        """The device still uses freed memory. Requests wait for it rather than exceed wait_budget."""
        path = self.generate("lora", "--ops", "30000")
        conf = "expandable_segments:true"
        for work in (("--pending", "50"), ("--streams", "real")):
            with self.subTest(work):
                usual = self.replay(path, "--conf", conf, *work)
                self.assertGreater(usual["waits"], 0)
                # The budget is a share of the rounded sizes of requests.
                self.assertLessEqual(usual["ratio"], 1.2 * 1.001)
                growing = self.replay(path, "--conf", conf + ",wait_budget:16", *work)
                self.assertEqual(growing["waits"], 0)
                self.assertGreater(growing["ratio"], usual["ratio"])

    # ------------------------------------------------------------ pages

    def test_pages(self):
        conf = "expandable_segments:true"
        figures = self.replay(self.trace(a(1, 1), "f 1"), "--conf", conf)
        self.assertEqual(figures["peak_reserved"], 8 * MIB)
        calls = figures["driver_calls"]
        self.assertEqual((calls["cuMemCreate"], calls["cuMemMap"], calls["cuMemSetAccess"]),
                         (1, 1, 1))
        self.assertNotIn("cuMemAlloc", calls)
        finer = self.replay(self.trace(a(1, 1), "f 1"), "--conf", conf + ",page_size_mb:2")
        self.assertEqual(finer["peak_reserved"], 2 * MIB)

    def test_pages_move(self):
        """The trace fits into the bound, although native segments need 24 MiB for it."""
        path = self.trace(*(a(i, 2) for i in range(8)), *(f"f {i}" for i in range(0, 8, 2)),
                          a(9, 8))
        figures = self.replay(path, "--conf", "expandable_segments:true,page_size_mb:2",
                              "--min-capacity")
        self.assertEqual(figures["min_capacity"], 16 * MIB)

    # ------------------------------------------------------------ the driver's device

    @base.unittest.skipUnless(base.SIM_DIR, "the simulated device is not built")
    def test_device(self):
        """The driver's device counts the same memory and calls as the model."""
        path = self.generate("amr", "--ops", "6000")
        for conf in ("", "expandable_segments:true"):
            model = self.replay(path, "--conf", conf)
            driver = frame.json.loads(self.expect(
                0, "replay", "--json", "--device", "--conf", conf, path,
                LD_LIBRARY_PATH=base.SIM_DIR).stdout)
            self.assertTrue(driver["simulated"])
            for key in ("peak_reserved", "ratio_second", "ops", "bound"):
                self.assertEqual(driver[key], model[key], (conf, key))
            if not conf:  # costs decide between moving and creating pages, so that calls may differ
                self.assertEqual(driver["driver_calls"], model["driver_calls"])
        limited = self.expect(1, "replay", "--device", "--capacity", "0.9x", path,
                              LD_LIBRARY_PATH=base.SIM_DIR)
        self.assertIn("out of memory at operation", limited.stdout)
        self.expect(2, "replay", "--device", "--pending", "1", path)
        self.expect(2, "replay", "--device", "--min-capacity", path)

    def test_no_driver(self):
        result = self.expect(1, "replay", "--device", self.trace(a(1, 1)),
                             LD_LIBRARY_PATH=self.folder)
        if not base.os.path.exists("/dev/nvidiactl"):
            self.assertIn("no CUDA driver", result.stdout)

    # ------------------------------------------------------------ the command

    def test_costs(self):
        path = self.trace(a(1, 8), "f 1")
        costs = self.write("costs.csv", "call,ns_fixed,ns_per_mib,ns_per_page\n"
                                        "cuMemAlloc,1000,250,0\n")
        figures = self.replay(path, "--conf", SMALL, "--costs", costs)
        self.assertEqual(figures["driver_ms_per_1000_ops"]["first"], 1.5)
        self.write("costs.csv", "function,ns_fixed,ns_per_mib,source\n"
                                "cuMemAlloc,1000,500,\"as measured\"\ncuMemcpy,1,0,\"no call of ours\"\n")
        figures = self.replay(path, "--conf", SMALL, "--costs", costs)
        self.assertEqual(figures["driver_ms_per_1000_ops"]["first"], 2.5)
        self.write("costs.csv", "\ncuMemAlloc,1\n")
        self.assertIn("line 2", self.expect(1, "replay", path, "--costs", costs).stderr)

    def test_several_configurations(self):
        path = self.trace(a(1, 8), "f 1", a(2, 6))
        both = self.replay(path, "--conf", SMALL, "--conf", "large_segment_size_mb:64")
        self.assertEqual([f["peak_reserved"] for f in both], [8 * MIB, 64 * MIB])
        out = self.expect(0, "replay", path, "--conf", SMALL, "--conf", "").stdout
        self.assertRegex(out, rf"(?m)^{SMALL} +8.00 MiB +1.000 ")
        self.assertRegex(out, r"(?m)^\(default\) +16.0 MiB +2.000 ")

    def test_environment(self):
        path = self.trace(a(1, 8))
        self.assertEqual(frame.json.loads(self.expect(
            0, "replay", "--json", path, ACCEL_ALLOC_CONF=SMALL).stdout)["conf"], SMALL)
        self.assertIn("ACCEL_ALLOC_CONF: ",
                      self.expect(1, "replay", path, ACCEL_ALLOC_CONF="x").stderr)

    def test_errors(self):
        path = self.trace(a(1, 8))
        self.assertIn("--conf: ", self.expect(1, "replay", path, "--conf", "nothing:1").stderr)
        self.assertIn("enabled:false",
                      self.expect(1, "replay", path, "--conf", "enabled:false").stderr)
        for arguments in ((), (path, path), (path, "--capacity", "much"), (path, "--repeat", "0"),
                          (path, "--pending", "-1"), (path, "--streams", "unreal"),
                          (path, "--pending", "1", "--streams", "real"),
                          (path, "--streams", "real", "--pending", "1"), (path, "--fast"),
                          (path, "--ordinal", "64"), (path, "--capacity", "0.1")):
            self.assertEqual(self.expect(2, "replay", *arguments).stdout, "")
        for number in ("", "+5", " 5", "5x", "1001", "99999999999999999999"):
            self.assertIn(f"--repeat {number}: a whole number from 1 to 1000",
                          self.expect(2, "replay", path, "--repeat", number).stderr)
        for key in ("ops", "ns_per_op", "ratio_second", "min_capacity_ratio", "bound"):
            self.assertIn(key, self.expect(0, "replay", "--help").stdout)

    def test_completion(self):
        """The shell completes exactly the options that --help lists."""
        for name in ("replay", "tune"):
            named = set(re.findall(r"(?m)(?<![\w-])--[a-z][a-z-]*",
                                        self.expect(0, name, "--help").stdout))
            if name == "replay":
                named -= {"--trace"}  # an option of `run`
            self.assertEqual(self.complete(name, "--"), named | {"--help"}, name)

    def test_generated(self):
        """Invariants hold for each kind, both backends and all models of device work."""
        for kind in ("lora", "amr", "serving"):
            path = self.generate(kind, "--ops", "12000")
            peak = frame.peak_of(path)
            for conf in ("", "expandable_segments:true"):
                for work in ((), ("--pending", "20"), ("--streams", "real")):
                    with self.subTest((kind, conf, work)):
                        figures = self.replay(path, "--conf", conf, *work)
                        self.assertEqual(figures["peak_live"], peak)
                        self.assertGreaterEqual(figures["peak_reserved"], figures["bound"])
                        self.assertEqual(figures, {**self.replay(path, "--conf", conf, *work),
                                                   "ns_per_op": figures["ns_per_op"]})


if __name__ == "__main__":
    base.main()
