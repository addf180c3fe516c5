"""Leaks at exit: the key leak_report, and the count in every dump."""

from host import *

DRIVER, SHARED = "libmodules_driver.so", "libmodules_shared.so"
SAID = "accelcache: leak: "


class Leaks(HostTest):
    """Modules of one program allocate blocks and free some of them (modules.c)."""

    def run_steps(self, *steps, conf="leak_report:true", **env):
        words = [program("modules")]
        for name in (DRIVER, SHARED):
            words += ["open", name, program(name)]
        words += [str(word) for step in steps for word in step]
        pid, _, err = self.run_program(*words, env=self.environment(conf, MODULES_DRIVER="1", **env))
        return self.the_dump(pid), err

    def of(self, dump):
        """Returns blocks and bytes by module. Checks that all adds up."""
        for leak in dump["leaks"]:
            self.assertEqual(os.path.basename(leak["path"]), leak["name"])
            if len(leak["sizes"]) < 16:
                for field in ("blocks", "bytes"):
                    self.assertEqual(sum(size[field] for size in leak["sizes"]), leak[field])
        for field in ("blocks", "bytes"):
            self.assertEqual(sum(leak[field] for leak in dump["leaks"]), dump["held"][field])
        for device in dump["devices"]:
            for module in device["modules"]:
                self.assertEqual(module["allocated_bytes"]["current"],
                                 sum(leak["bytes"] for leak in dump["leaks"]
                                     if (leak["device"], leak["path"]) ==
                                     (device["ordinal"], module["path"])))
        return {leak["name"]: (leak["blocks"], leak["bytes"]) for leak in dump["leaks"]}

    def test_a_plugin(self):
        dump, err = self.run_steps(
            ("take", DRIVER, "cuMemAlloc", 100000), ("take", DRIVER, "cuMemAlloc", 100000),
            ("take", SHARED, "cudaMalloc", 3 << 20), ("take", "self", "cuMemAlloc", 700000),
            ("take", DRIVER, "cuMemAlloc", 300), ("take", "self", "cuMemAlloc", 65536),
            ("give", "self", 2), ("give", SHARED, 3))
        self.assertEqual(err, SAID + "4 blocks of device memory, 266752 bytes, not freed at exit, "
                         "asked for by libmodules_driver.so (3 blocks, 201216 bytes, 2 of 100000 "
                         "each), modules (1 block, 65536 bytes, 1 of 65536 each)\n")
        self.assertEqual(self.of(dump), {DRIVER: (3, 201216), "modules": (1, 65536)})
        self.assertEqual(dump["leaks"][0]["sizes"], [
            {"requested_bytes": 100000, "blocks": 2, "bytes": 200704},
            {"requested_bytes": 300, "blocks": 1, "bytes": 512}])
        self.assertEqual(dump["warnings"][0] + "\n", err[len("accelcache: "):][:191] + "\n")
        text = self.stat(self.dumps()[0])[0]
        part = text[text.index("not freed at exit\n"):].split("\n\n")[0].splitlines()
        self.assertEqual([" ".join(line.split()) for line in part[1:]], [
            "device module that asked blocks bytes of which sizes",
            "0 libmodules_driver.so 3 196 KiB 2 of 97.7 KiB, 1 of 300 B",
            "0 modules 1 64.0 KiB 1 of 64.0 KiB"])

    def test_nothing(self):
        dump, err = self.run_steps(("take", DRIVER, "cuMemAlloc", 4096), ("give", "self", 0))
        self.assertEqual((err, dump["leaks"], dump["held"]), ("", [], {"blocks": 0, "bytes": 0}))
        self.assertNotIn("not freed", self.stat(self.dumps()[0])[0])

    def test_in_the_dump_alone(self):
        dump, err = self.run_steps(("take", DRIVER, "cuMemAlloc", 4096), conf="leak_report:dump")
        self.assertEqual((err, self.of(dump)), ("", {DRIVER: (1, 4096)}))

    def test_off(self):
        """The count exists even without the key."""
        dump, err = self.run_steps(("take", DRIVER, "cuMemAlloc", 4096), conf=None)
        self.assertEqual((err, dump["held"]), ("", {"blocks": 1, "bytes": 4096}))
        self.assertNotIn("leaks", dump)

    def test_without_a_dump(self):
        pid, _, err = self.run_program(program("modules"), "take", "self", "cuMemAlloc", "4096",
                                       env=self.environment("leak_report:true,dump:none",
                                                            MODULES_DRIVER="1"))
        self.assertTrue(pid)
        self.assertIn(SAID + "1 block of device memory, 4096 bytes, not freed", err)

    def test_kinds_of_blocks(self):
        """Leaked blocks of slabs, with and without a record, of threads, on pages and in stream
        order.  They have more sizes than the report lists."""
        sizes = [512 * (1 + i % 20) for i in range(50)]
        steps = [("take", DRIVER, "cuMemAlloc", size) for size in sizes]
        steps += [("take", "self", "cuMemAlloc", 512), ("give", DRIVER, 50)]
        steps += [("thread", DRIVER, "cuMemAlloc", size) for size in (1536, 3 << 20, 5 << 20)]
        steps.append(("take", DRIVER, "cuMemAllocAsync", 1 << 20))
        for more in ("", ",expandable_segments:true", ",thread_cache_mb:0"):
            dump, err = self.run_steps(*steps, conf="leak_report:dump" + more)
            self.assertEqual((err, self.of(dump)),
                             ("", {DRIVER: (54, sum(sizes) + 1536 + (9 << 20))}))
            listed = dump["leaks"][0]["sizes"]
            self.assertEqual(len(listed), 16)
            self.assertEqual(listed, sorted(listed, key=lambda size: -size["bytes"]))
            os.remove(os.path.join(self.work, self.dumps()[0]))

    @unittest.skipUnless(os.path.exists(program("statics")), "no C++ compiler")
    def test_destructors_come_first(self):
        pid, _, err = self.run_program(program("statics"),
                                       env=self.environment("leak_report:true"))
        self.assertEqual((err, self.the_dump(pid)["leaks"]), ("", []))


if __name__ == "__main__":
    unittest.main()
