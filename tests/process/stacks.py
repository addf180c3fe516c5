"""Threads may have the smallest stack, 16 KiB. It includes the parts of the C library and of the simulated
device. A real driver uses its own amount."""

from host import *

MOST = 14000
CONFS = ("",
         "history:100,stacks:all,trace:t.%p,oom_dump:oom-%p.json,leak_report:true,pinned_cache:true",
         "fence:streams,expandable_segments:true",
         "dump_format:prometheus,guard:1/2,fill:0xAB")


class Stacks(HostTest):
    def used(self, conf, **env):
        env = self.environment(conf, ACCEL_SIM="clock:virtual,memory:512M", **env)
        _, out, _ = self.run_program(program("stacks"), env=env)
        return {step: int(used) for step, used in (line.split() for line in out.splitlines())}

    @unittest.skipIf(SANITIZED or not OPTIMISED, "sanitizers and builds without optimisation make frames larger")
    def test_steps(self):
        alone = self.used(None, LD_PRELOAD=None)
        for conf in CONFS:
            with self.subTest(conf=conf):
                used = self.used(conf)
                self.assertEqual(set(used), set(alone))
                self.assertEqual({step: used[step] for step in used if used[step] > MOST}, {}, used)
                # The library was loaded and followed its settings.
                self.assertGreater(used["dump"], alone["dump"] + 1000)
        self.assertEqual(len([name for name in self.dumps() if name.startswith("oom-")]), 1)
        self.assertGreater(len([name for name in self.dumps() if name.startswith("t.")]), 10)


if __name__ == "__main__":
    unittest.main()
