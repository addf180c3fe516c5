"""accelcache stat --growth names modules with rising memory, and omits ones that only vary."""

import threading

from host import *

DRIVER = "libmodules_driver.so"
SIZE = 65536


class Growth(HostTest):
    """A plugin keeps a block in each round; the program takes and frees blocks of three sizes."""

    def paced(self, *before):
        return self.start(program("modules"), "open", DRIVER, program(DRIVER), *before, "paced", DRIVER,
                          "cuMemAlloc", str(SIZE), env=self.environment(MODULES_DRIVER="1"))

    def rounds(self, child, count):
        for _ in range(count):
            child.stdin.write("\n")
            child.stdin.flush()
            while (line := child.stdout.readline()) != "+\n":
                self.assertNotEqual(line, "", "it ended")

    def looks(self, child, *rounds):
        """Returns the names of files with the child's figures, one after each number of rounds."""
        names = []
        for i, count in enumerate(rounds):
            self.rounds(child, count)
            names.append(f"look-{i}.json")
            with open(os.path.join(self.work, names[-1]), "w") as file:
                file.write(self.stat("--json", str(child.pid))[0])
        return names

    def growth(self, *arguments, status=0):
        return json.loads(self.stat("--growth", "--json", *arguments, status=status)[0])

    def rising(self, growth):
        return [module["name"] for module in growth["modules"] if module["rises"]]

    def test_dumps(self):
        child = self.paced()
        names = self.looks(child, 1, 1, 1, 2, 2, 2)
        growth = self.growth(*reversed(names))  # in the order of their times
        self.assertEqual((growth["looks"], self.rising(growth)), (6, [DRIVER]))
        plugin, program_itself = growth["modules"]
        self.assertEqual((plugin["first"], plugin["last"]), (SIZE, 9 * SIZE))
        self.assertEqual(plugin["least"], [SIZE, 3 * SIZE, 7 * SIZE])
        self.assertGreater(plugin["bytes_per_second"], 0)
        if not EMULATED:  # the kernel says the emulator's
            self.assertEqual(program_itself["name"], "modules")
        text = self.stat("--growth", *names)[0]
        self.assertRegex(text, r"^6 looks over \d+\.\d s: memory of 1 module rises\n\n")
        self.assertRegex(text, r"(?m)^  libmodules_driver\.so +0 +64\.0 KiB +448 KiB +\d")
        self.assertNotIn("  modules", text)

    def test_up_and_down(self):
        """A module that freed memory between looks does not rise, whatever it holds at the end."""
        child = self.paced("take", DRIVER, "cuMemAlloc", str(40 * SIZE), "give", "self", "0")
        names = self.looks(child, 3, 0, 0)
        growth = self.growth(*names)
        self.assertEqual(self.rising(growth), [])
        self.assertEqual(self.stat("--growth", *names)[0].split(": ")[1],
                         "no module's memory rises\n")

    def test_few(self):
        child = self.paced()
        names = self.looks(child, 1, 1)
        self.assertIn(DRIVER, self.rising(self.growth(*names)))
        self.assertIn("Few looks:", self.stat("--growth", *names)[0])
        self.assertIn("two looks or more", self.stat("--growth", names[0], status=1)[1])
        other = self.paced()
        more = self.looks(other, 1)
        os.rename(os.path.join(self.work, more[0]), os.path.join(self.work, "other.json"))
        names = self.looks(child, 1)
        self.assertIn("of two processes", self.stat("--growth", names[0], "other.json", status=1)[1])

    def test_a_running_process(self):
        child = self.paced()
        self.rounds(child, 1)
        ended = threading.Event()

        def go_on():
            while not ended.wait(0.005):
                self.rounds(child, 1)
        feeder = threading.Thread(target=go_on)
        feeder.start()
        try:
            growth = self.growth("--looks", "6", "--interval", "0.2", str(child.pid))
            text = self.stat("--growth", "--looks", "3", "--interval", "0.1", str(child.pid))[0]
        finally:
            ended.set()
            feeder.join()
        self.assertEqual((growth["looks"], self.rising(growth)), (6, [DRIVER]))
        self.assertGreater(growth["seconds"], 0.9)
        self.assertIn("start it with control:true", growth["sites_unknown"])
        self.assertIn("\n\nCall sites are not known: ", text)
        child.kill()
        child.wait()
        self.assertIn("there is 1", self.stat("--growth", str(child.pid), status=1)[1])

    def test_wrong_usage(self):
        for arguments in (("--growth",), ("--growth", "--diff", "a", "b"), ("--looks", "3", "a"),
                          ("--growth", "--looks", "1", "4"), ("--growth", "--interval", "0", "4"),
                          ("--growth", "--looks", "3", "a.json")):
            self.stat(*arguments, status=2)
        self.assertIn("shows no figures", self.stat("--growth", "4194305", status=1)[1])


if __name__ == "__main__":
    unittest.main()
