"""Thousands of contexts are created and ended: host memory stays constant, and reused records are
correct."""

from host import *

MOST = 512 << 10  # bytes for 2,000 contexts; the records of one take 12 KiB
SETTINGS = (None, "expandable_segments:true", "fence:streams", "fence:sync", "enabled:false",
            "thread_cache_mb:0")


class Contexts(HostTest):
    @unittest.skipIf(SANITIZED, "sanitizers keep what was freed")
    @unittest.skipIf(EMULATED, "the emulator's memory grows with the code it has translated")
    def test_host_memory_is_flat(self):
        for case in ("created", "released", "reset", "threads"):
            for conf in SETTINGS if case == "created" else SETTINGS[:1]:
                with self.subTest(case=case, conf=conf):
                    env = self.environment((conf + "," if conf else "") + "dump:none")
                    _, out, err = self.run_program(program("contexts"), case, env=env)
                    self.assertEqual(err, "")
                    resident, held = map(int, out.split())
                    self.assertLess(resident, MOST)
                    self.assertLess(held, MOST)

    @unittest.skipIf(TSAN, "that sanitizer takes no mapping of half a terabyte")
    def test_side_by_side(self):
        """While the driver ends one context, it gives the context's addresses to another one, also
        of another device."""
        for conf in ("single_stream:true", "expandable_segments:true", "fence:streams",
                     "single_stream:false"):
            if EMULATED and conf == "expandable_segments:true":
                continue  # SIMCUDA_SPACE_GB leaves no addresses for pages of two devices
            with self.subTest(conf=conf):
                env = self.environment(conf + ",dump:none",
                                       ACCEL_SIM="devices:2,clock:virtual,race_detector:on")
                _, _, err = self.run_program(program("contexts"), "side_by_side", env=env)
                self.assertEqual(err, "")


if __name__ == "__main__":
    unittest.main()
