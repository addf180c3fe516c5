"""The key guard: it detects work past the end of a block, and work on a freed block."""

from host import *

WAYS = ("plain", "pitch", "async", "pool", "runtime")
KIB, MIB = 1 << 10, 1 << 20
ILLEGAL_ADDRESS = 700


class Guard(HostTest):
    def guard(self, *arguments, conf="guard:1/1", **more):
        """Returns (stdout, stderr, counters of the device)."""
        pid, out, err = self.run_program(program("guard"), *(str(a) for a in arguments),
                                         env=self.environment(conf, **more))
        self.dump = f"accelcache-{pid}.json"
        counters = self.read_dump(self.dump)["devices"][0]["counters"]
        return [int(word) for word in out.split()], err, counters

    def where(self, address, source, status=0):
        env = self.environment(LD_PRELOAD=None)
        done = subprocess.run([COMMAND, "where", hex(address), str(source)], env=env, text=True,
                              cwd=self.work, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def overrun(self, way, size, count, conf="guard:1/1"):
        """Checks that the page after the block, or the gap at its end, reveals the overrun."""
        whole = (size + 511) // 512 * 512 * 3 if way == "pitch" else size
        slack = -whole % 512
        (end, result, fault), err, counters = self.guard("past", way, size, count, conf=conf)
        if count > slack:
            self.assertEqual((result, fault), (ILLEGAL_ADDRESS, end + slack))
            self.assertIn(f"used address {hex(fault)}, where nothing is mapped", err)
            text = self.where(fault, self.dump)
            past = f"{slack} byte{'s' * (slack != 1)} past" if slack else "right behind"
            self.assertIn(f"{hex(fault)} is {past} the end of a block that the program holds, in "
                          "addresses of the library without memory", text)
        else:
            self.assertEqual((result, fault, counters["guard_damages"]), (0, 0, 1))
            self.assertIn(f"a block of {whole} bytes at {hex(end - whole)} that guard asked for was "
                          "overrun: byte 1 past its end was written to, as its free by guard "
                          "shows\n", err)
        self.assertEqual(counters["guarded_allocs"], 1)

    def test_overruns(self):
        sizes = (1, 1000, 512, 65535, MIB, 5 * MIB + 77)
        counts = (1, 2, 24, 25, 511, 512, 513, 4 * KIB, MIB)
        if SANITIZED or EMULATED:
            sizes, counts = sizes[1:3], counts[2:5]
        for size in sizes:
            for count in counts:
                with self.subTest(size=size, count=count):
                    self.overrun("plain", size, count)

    def test_overruns_of_every_way(self):
        for way in WAYS:
            for conf in ("guard:1/1", "guard:1/1,expandable_segments:true", "guard:1/1,fence:sync",
                         "guard:1/1,thread_cache_mb:0", "guard:1/1,fence:streams"):
                with self.subTest(way=way, conf=conf):
                    self.overrun(way, 3000, 512, conf)
                    self.overrun(way, 3000, 9, conf)

    def test_use_after_free(self):
        for way in WAYS:
            for size in (1, 1000, 5 * MIB + 77):
                with self.subTest(way=way, size=size):
                    (block, result, fault), _, _ = self.guard("after", way, size)
                    self.assertEqual((result, fault), (ILLEGAL_ADDRESS, block))
                    text = self.where(block, self.dump)
                    self.assertRegex(text.replace("\n", " "), f"{hex(block)} is byte 0 of a guarded "
                                     "block that was freed, whose addresses have no memory now, "
                                     "freed [0-9.]+ [mun]?s ago by guard")

    def test_use_beside_the_thread_that_unmaps(self):
        """A synchronisation waits at most half a second for the thread that unmaps. It may get no processor
        for longer, so the test tries again. Each unmap is slow, and none covers pages of both blocks."""
        costs = os.path.join(self.work, "slow.csv")
        with open(costs, "w", encoding="ascii") as file:
            file.write("function,ns_fixed,ns_per_mib,source\ncuMemUnmap,50000000,0,\"slow\"\n")
        for which in range(2):
            with self.subTest(block=which):
                for _ in range(10):
                    (block, result, fault), _, _ = self.guard("beside", which,
                                                              ACCEL_SIM=f"clock:real,costs:{costs}")
                    if result:
                        break
                self.assertEqual((result, fault), (ILLEGAL_ADDRESS, block))

    def test_off(self):
        """Without `guard` the library does not notice these accesses."""
        for conf in (None, "guard:off"):
            (_, result, fault), err, counters = self.guard("past", "plain", 1000, MIB, conf=conf)
            self.assertEqual((result, fault, err), (0, 0, ""))
            self.assertEqual(counters["guarded_allocs"], 0)
            (_, result, _), _, _ = self.guard("after", "plain", 1000, conf=conf)
            self.assertEqual(result, 0)

    def test_with_fill(self):
        """The pattern of `fill` ends with the requested bytes."""
        for way in WAYS:
            for size in (1, 1001, 1002, 1003, 4093):
                for fill in ("nan", "0x12345678"):
                    with self.subTest(way=way, size=size, fill=fill):
                        _, err, counters = self.guard("pairs", way, size, 3,
                                                      conf=f"guard:1/1,fill:{fill}")
                        self.assertEqual((err, counters["guard_damages"]), ("", 0))
                        self.assertEqual(counters["guarded_allocs"], 3)

    def test_share(self):
        """One request in N is guarded on average; hits and misses count equally.  Gaps are uniform from 1
        to 2 N - 1.  The sum of 200 of them is right to 4 % in two cases of three."""
        for way in ("plain", "async", "runtime"):
            for case in ("pairs", "sizes"):
                with self.subTest(way=way, case=case):
                    _, err, counters = self.guard(case, way, 1000, 20000, conf="guard:1/100")
                    self.assertEqual(err, "")
                    self.assertGreater(counters["guarded_allocs"], 150)
                    self.assertLess(counters["guarded_allocs"], 250)
                    self.assertLess(counters["driver_allocs"], counters["guarded_allocs"] + 20)

    def test_the_share_has_a_bound(self):
        """Guarded blocks take at most a quarter of the device. The rest is served and counted."""
        _, err, counters = self.guard("many", "plain", 1000, 400, ACCEL_SIM="clock:virtual,memory:1G")
        self.assertEqual(counters["guarded_allocs"], 128)
        self.assertEqual(counters["guard_refusals"], 400 - 128)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("guard leaves out a request of 1000 bytes", err)
        self.assertIn("more than a quarter of the device", err)

    def test_other_reasons(self):
        for fail, reason in (("cuMemCreate>=1", "the device, or the limit, has no room for its pages"),
                             ("cuMemAddressReserve>=1=2", "no addresses are left for guarded blocks"),
                             ("cuMemMap>=1=999", None)):
            with self.subTest(fail=fail):
                _, err, counters = self.guard("many", "plain", 1000, 3,
                                              ACCEL_SIM=f"clock:virtual,fail:{fail}")
                self.assertEqual((counters["guarded_allocs"], counters["guard_refusals"]), (0, 3))
                self.assertEqual(err.count("\n"), 1 if reason else 0, err)
                self.assertIn(reason or "", err)

    def test_a_device_without_pages(self):
        _, err, counters = self.guard("many", "plain", 1000, 20, ACCEL_SIM="clock:virtual,vmm:false")
        self.assertEqual(counters["guarded_allocs"], 0)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("on device 0, which is counted (guard_refusals): the device has no pages", err)

    def test_captures(self):
        (_, result, _), err, counters = self.guard("captured")
        self.assertEqual(result, ILLEGAL_ADDRESS)
        self.assertEqual(counters["guarded_allocs"], 1)
        self.assertNotIn("guard", err)

    def test_where_of_a_process(self):
        child = self.start(program("guard"), "hold", "1000",
                           env=self.environment("guard:1/1,control:true,dump:none"))
        held, freed = (int(word) for word in child.stdout.readline().split())
        self.assertIn("0 is 12 bytes past the end of what was asked for, in a block that the program "
                      "holds", self.where(held + 1012, child.pid).replace(hex(held + 1012), "0"))
        self.assertIn(" is 36 bytes past the end of a block that the program holds, in addresses of "
                      "the library without memory", self.where(held + 1036, child.pid))
        self.assertRegex(self.where(freed + 7, child.pid), "is byte 7 of a guarded block that was "
                         r"freed, whose addresses have\s+no memory now, freed")
        self.assertRegex(self.where(freed + 4096, child.pid), "is 3,096 bytes past the end of a "
                         "guarded block, freed")
        self.finish(child, stdin="q")

    def test_other_values(self):
        for value in ("1", "2/3", "1/0", "1/", "1/x", "true", "1/1000000001", "1/-1", "/1"):
            _, err, _ = self.guard("pairs", "plain", 1000, 1, conf=f"guard:{value}")
            self.assertIn("expected off, or 1/N with N from 1 to 1000000000", err)


if __name__ == "__main__":
    unittest.main()
