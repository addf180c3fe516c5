"""The key fill: memory has the pattern after it is allocated and after it is freed, and not earlier."""

from host import *

NAN, WORD = "ffffffff", "89abcdef"


class Fill(HostTest):
    def lines(self, case, conf):
        # The program reads freed memory.
        conf = ",".join(filter(None, (conf, "check_ranges:false")))
        _, out, err = self.run_program(program("fill"), case, env=self.environment(conf))
        self.assertEqual(err, "")
        return out.splitlines()

    def wanted(self, word):
        return [f"{what} {word}" for what in ("plain", "freed", "small", "pitch", "async", "freed")] * 3

    def test_every_way(self):
        for more in ("", ",expandable_segments:true", ",thread_cache_mb:0", ",fence:streams"):
            for fill, word in (("nan", NAN), ("0x89ABcdef", WORD), ("0x12", "12121212"),
                               ("0xa0b1", "a0b1a0b1")):
                with self.subTest(fill=fill, more=more):
                    self.assertEqual(self.lines("ways", f"fill:{fill}{more}"), self.wanted(word))

    def test_off(self):
        lines = self.lines("ways", None)
        self.assertIn("freed 11111111", lines)
        self.assertNotIn("plain " + NAN, lines)

    def test_earlier_work(self):
        wanted = [f"copied {byte}{byte}{byte}{byte}" for byte in ("30", "31", "32")] * 2
        self.assertEqual(self.lines("earlier_work", "fill:nan"), wanted)

    def test_captures(self):
        lines = self.lines("captured", "fill:nan")
        self.assertEqual(lines, ["freed 44444444", f"kept {NAN}"])

    def test_a_refused_free(self):
        _, out, err = self.run_program(program("fill"), "refused", env=self.environment("fill:nan"))
        self.assertEqual(out, "held 66666666\n")
        self.assertIn("interior free", err)

    def test_a_late_pattern(self):
        for more in ("", ",expandable_segments:true,fence:streams"):
            with self.subTest(more=more):
                env = self.environment(f"fill:nan{more}", ACCEL_SIM="clock:real")
                pid, out, err = self.run_program(program("fill"), "late", env=env)
                self.assertEqual(out.splitlines(), ["kept 77777777", "kept 88888888"] * 2 + [f"plain {NAN}"])
                self.assertEqual(err.count("\n"), 1, err)
                self.assertIn("did not write the pattern within a second", err)
                dump = self.read_dump(f"accelcache-{pid}.json")
                # A request, a free, and the request after the free.
                self.assertEqual(dump["counters"]["unfilled"], 3)

    def test_other_values(self):
        for value in ("0x", "0x1", "0x123", "0x123456", "0x123456789", "12", "0xgg", "nann", "-0x12"):
            _, _, err = self.run_program(program("fill"), "refused", env=self.environment(f"fill:{value}"))
            self.assertIn("expected none, nan, or 1, 2 or 4 bytes", err)


if __name__ == "__main__":
    unittest.main()
