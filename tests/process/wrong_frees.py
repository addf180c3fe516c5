"""Refused frees: counted by kind, reported once with both modules, and answered like the driver."""

import re

from host import *

DRIVER, SHARED, STATIC = (f"libmodules_{name}.so" for name in ("driver", "shared", "static"))
SIZE = 100000


class WrongFrees(HostTest):
    """Modules of one program free blocks that they should not free (modules.c)."""

    def run_steps(self, *steps, conf=None, names=(DRIVER, SHARED), **more):
        words = [program("modules")]
        for name in names:
            words += ["open", name, program(name)]
        words += [str(word) for step in steps for word in step]
        pid, out, err = self.run_program(*words,
                                         env=self.environment(conf, MODULES_DRIVER="1", **more))
        addresses = re.findall(r"^0x(\w+) gives \d+$", out, re.M)
        for address in addresses:
            err = err.replace("0x" + address, "ADDRESS")
        return pid, re.findall(r"gives (\d+)$", out, re.M), err

    def expect(self, double, interior, said, *steps, **more):
        """Checks that the answers are the driver's and that stderr is `said`, with masked addresses.  The
        program's blocks must be unchanged."""
        pid, answers, err = self.run_steps(*steps, **more)
        self.assertEqual(err, "".join(f"accelcache: {line}\n" for line in said))
        dump = self.the_dump(pid)
        counters = dump["counters"]
        self.assertEqual((counters["bad_frees"], counters["double_frees"],
                          counters["interior_frees"]), (double + interior, double, interior))
        os.remove(os.path.join(self.work, self.dumps()[0]))
        bare = self.run_steps(*steps, **{**more, "LD_PRELOAD": None})[1]
        self.assertEqual((answers, len(answers)), (bare, double + interior))
        self.assertNotIn("0", answers)
        return dump

    DOUBLE = ("double free: {} freed ADDRESS, which is free already; {} had asked for it. The call "
              "returned an error. Later ones are counted (double_frees)")
    INTERIOR = ("interior free: {} freed ADDRESS, which is {} bytes into a block of 100000 bytes that "
                "{} asked for; the call returned an error, the block stays. Later ones are counted "
                "(interior_frees)")

    def test_twice(self):
        for name, how, label in ((DRIVER, "plain", DRIVER), ("self", "plain", "modules"),
                                 (SHARED, "plain", SHARED), (DRIVER, "async", DRIVER),
                                 (SHARED, "async", SHARED)):
            with self.subTest(name=name, how=how):
                self.expect(3, 0, [self.DOUBLE.format(label, DRIVER)],
                            ("take", DRIVER, "cuMemAlloc", SIZE), ("give", "self", 0),
                            *[("wrong", name, how, 0, 0)] * 3)

    @unittest.skipUnless(os.path.exists(program(STATIC)), "no static runtime was built")
    def test_by_a_static_runtime(self):
        self.expect(1, 0, [self.DOUBLE.format(STATIC, STATIC)],
                    ("take", STATIC, "cudaMalloc", SIZE), ("give", STATIC, 0),
                    ("wrong", STATIC, "plain", 0, 0), names=(STATIC,))

    def test_inside(self):
        for name, how, offset in ((DRIVER, "plain", 512), (SHARED, "plain", 1),
                                  (DRIVER, "async", 99999), (SHARED, "async", 4096)):
            with self.subTest(name=name, how=how):
                dump = self.expect(0, 2, [self.INTERIOR.format(name, offset, "modules")],
                                   ("take", "self", "cuMemAlloc", SIZE),
                                   *[("wrong", name, how, 0, offset)] * 2)
                self.assertEqual(dump["held"]["blocks"], 1)

    def test_small_blocks(self):
        """Slots of slabs."""
        self.expect(1, 1, [self.INTERIOR.format(SHARED, 8, DRIVER).replace("100000", "700"),
                           self.DOUBLE.format(SHARED, DRIVER)],
                    ("take", DRIVER, "cuMemAlloc", 700), ("wrong", SHARED, "plain", 0, 8),
                    ("give", "self", 0), ("wrong", SHARED, "plain", 0, 0))

    def test_other_settings(self):
        for conf in ("expandable_segments:true", "thread_cache_mb:0", "free_sync:true",
                     "single_stream:false"):
            with self.subTest(conf=conf):
                self.expect(1, 1, [self.INTERIOR.format(DRIVER, 512, "modules"),
                                   self.DOUBLE.format(DRIVER, "modules")],
                            ("take", "self", "cuMemAlloc", SIZE), ("take", "self", "cuMemAlloc", SIZE),
                            ("wrong", DRIVER, "plain", 0, 512), ("give", "self", 0),
                            ("wrong", DRIVER, "plain", 0, 0), conf=conf)

    def test_joined_with_other_memory(self):
        """The library no longer knows the requester, and does not guess."""
        self.expect(1, 0, ["double free: modules freed ADDRESS, which is free already. The call returned "
                           "an error. Later ones are counted (double_frees)"],
                    *[("take", DRIVER, "cuMemAlloc", 300000)] * 2, ("give", "self", 0),
                    ("give", "self", 1), ("wrong", "self", "plain", 1, 0), conf="thread_cache_mb:0")

    def test_silence(self):
        pid, answers, err = self.run_steps(("take", "self", "cuMemAlloc", SIZE),
                                           ("wrong", "self", "plain", 0, 4), conf="log_level:none")
        self.assertEqual((err, len(answers)), ("", 1))
        self.assertTrue(pid)


if __name__ == "__main__":
    unittest.main()
