"""Each block counts for the module that requested it, by any call, and the modules add up to the total."""

import re
import shutil
import time

from host import *

SHARED, STATIC, DRIVER, AGAIN = (f"libmodules_{name}.so"
                                 for name in ("shared", "static", "driver", "again"))
SELF = "modules"
DRIVER_WAYS = ["cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"]
RUNTIME_WAYS = ["cudaMalloc", "cudaMallocPitch", "cudaMalloc3D", "cudaMallocAsync",
                "cudaMallocFromPoolAsync"]
PAGE = 64 << 10


def have(name):
    return os.path.exists(program(name))


class Modules(HostTest):
    def command(self, *steps, names=(SHARED,)):
        opened = []
        for name in names:
            opened += ["open", name, program(name)]
        return [program("modules"), *opened, *(str(word) for step in steps for word in step)]

    def held(self, dump):
        """Returns bytes by module. Checks that the dump adds up."""
        sums = {}
        for device in dump["devices"]:
            modules = device["modules"]
            self.assertEqual(sum(m["allocated_bytes"]["current"] for m in modules),
                             device["stats"]["allocated_bytes"]["all"]["current"], modules)
            self.assertEqual(len({m["path"] for m in modules}), len(modules), modules)
            for m in modules:
                bytes_ = m["allocated_bytes"]
                self.assertEqual(bytes_["current"], bytes_["allocated"] - bytes_["freed"])
                sums[m["name"]] = sums.get(m["name"], 0) + bytes_["current"]
        return sums

    def run_steps(self, *steps, names=(SHARED,), driver=True, **env):
        environment = self.environment(MODULES_DRIVER="1" if driver else None, **env)
        pid, out, err = self.run_program(*self.command(*steps, names=names), env=environment)
        self.assertEqual(err, "")
        return self.the_dump(pid), out

    def expect(self, wanted, *steps, **more):
        dump, _ = self.run_steps(*steps, **more)
        held = {name: n for name, n in self.held(dump).items() if n}
        self.assertEqual(held, {name: n for name, n in wanted.items() if n})
        return dump

    def test_ways_of_the_driver(self):
        steps, wanted = [], {SELF: 0, DRIVER: 0}
        for i, way in enumerate(DRIVER_WAYS):
            for k, (name, label) in enumerate(((DRIVER, DRIVER), ("self", SELF))):
                size = PAGE * (1 + 2 * i + k)
                steps += [("take", name, way, size)]
                wanted[label] += size
        self.expect(wanted, *steps, names=(DRIVER,))

    def of_a_runtime(self, name, driver):
        """A runtime's requests to the driver count for the caller of the runtime."""
        steps, wanted = [], {name: 0}
        for i, way in enumerate(RUNTIME_WAYS * 3):  # once new, then by the short ways
            size = PAGE * (1 + i % len(RUNTIME_WAYS))
            steps += [("take", name, way, size)]
            wanted[name] += size
        dump = self.expect(wanted, *steps, names=(name,), driver=driver)
        self.assertEqual([m["num_allocs"] for m in dump["devices"][0]["modules"]
                          if m["name"] == name], [len(steps)])

    def test_ways_of_a_shared_runtime(self):
        self.of_a_runtime(SHARED, True)

    def test_a_first_call_of_all(self):
        """The thread has no record before its first call."""
        self.of_a_runtime(SHARED, False)
        for way in RUNTIME_WAYS[1:]:
            os.remove(os.path.join(self.work, self.dumps()[0]))
            self.expect({SHARED: PAGE}, ("take", SHARED, way, PAGE), driver=False)

    def test_ways_of_a_static_runtime(self):
        if not have(STATIC):
            self.skipTest("no static runtime was built")
        self.of_a_runtime(STATIC, True)

    def test_threads(self):
        sizes = [PAGE, 2 * PAGE, 4 * PAGE]
        self.expect({SHARED: sizes[0], DRIVER: sizes[1], SELF: sizes[2]},
                    ("thread", SHARED, "cudaMalloc", sizes[0]),
                    ("thread", DRIVER, "cuMemAlloc", sizes[1]),
                    ("thread", "self", "cuMemAlloc", sizes[2]), names=(SHARED, DRIVER))

    def test_in_turn(self):
        """One thread, one size and one cache: blocks move between modules."""
        steps, wanted = [], {SELF: 0, DRIVER: 0, SHARED: 0}
        for i in range(10):
            for name, label, way in (("self", SELF, "cuMemAlloc"), (DRIVER, DRIVER, "cuMemAlloc"),
                                     (SHARED, SHARED, "cudaMalloc"),
                                     (SHARED, SHARED, "cuMemAlloc")):
                steps += [("take", name, way, PAGE), ("give", name, len(steps) // 2)]
        steps += [("take", "self", "cuMemAlloc", PAGE), ("take", DRIVER, "cuMemAlloc", PAGE),
                  ("take", SHARED, "cudaMalloc", PAGE)]
        self.expect({SELF: PAGE, DRIVER: PAGE, SHARED: PAGE}, *steps, names=(SHARED, DRIVER))

    def test_freed_elsewhere(self):
        dump = self.expect({DRIVER: PAGE}, ("take", DRIVER, "cuMemAlloc", PAGE),
                           ("take", DRIVER, "cuMemAlloc", 3 * PAGE), ("give", "self", 1),
                           names=(DRIVER,))
        of = {m["name"]: m["allocated_bytes"] for m in dump["devices"][0]["modules"]}
        self.assertEqual(of[DRIVER], {"current": PAGE, "allocated": 4 * PAGE, "freed": 3 * PAGE})

    def test_small_blocks(self):
        """Small blocks come from slabs. A thread without a record of them frees some."""
        steps = [("take", DRIVER, "cuMemAlloc", 512)] * 20 + [("give", "self", i)
                                                             for i in range(5, 20)]
        self.expect({DRIVER: 5 * 512}, *steps, names=(DRIVER,))

    def test_closed_and_opened(self):
        """A module may take a closed one's addresses. A reopened module keeps its account."""
        dump, out = self.run_steps(
            ("take", DRIVER, "cuMemAlloc", PAGE), ("close", DRIVER),
            ("open", AGAIN, program(AGAIN)), ("take", AGAIN, "cuMemAlloc", 2 * PAGE),
            ("close", AGAIN), ("open", DRIVER, program(DRIVER)),
            ("take", DRIVER, "cuMemAlloc", 4 * PAGE), names=(DRIVER,))
        self.assertEqual(self.held(dump), {DRIVER: 5 * PAGE, AGAIN: 2 * PAGE})
        places = re.findall("at (.*)", out)
        self.assertEqual(len(places), 3)
        if not EMULATED:  # qemu never maps where it has just unmapped
            self.assertEqual(places[0], places[1], "nothing was shown: it lies elsewhere")

    def test_a_fork_child_counts_nothing(self):
        self.expect({SELF: PAGE}, ("take", "self", "cuMemAlloc", PAGE), ("fork",), names=())

    def test_unlike_names(self):
        dump, _ = self.run_steps(("take", DRIVER, "cuMemAlloc", PAGE),
                                 ("take", "self", "cuMemAlloc", PAGE), names=(DRIVER,))
        self.assertEqual({m["path"] for m in dump["devices"][0]["modules"]},
                         {program(DRIVER), program("modules")})

    def test_expandable_segments(self):
        self.expect({DRIVER: 3 * PAGE, SELF: PAGE}, ("take", DRIVER, "cuMemAlloc", 3 * PAGE),
                    ("take", "self", "cuMemAlloc", PAGE), names=(DRIVER,),
                    conf="expandable_segments:true")

    def test_libraries_in_a_report(self):
        """A report shows memory of libraries: a workspace, and buffers of a communicator."""
        steps = []
        for name, way, size in (("libcublasLt.so.12", "cuMemAlloc", 8 << 20), ("libnccl.so.2", "cuMemAllocAsync",
                                                                             20 << 20)):
            shutil.copy(program(DRIVER), os.path.join(self.work, name))
            steps += ["open", name, os.path.join(self.work, name), "take", name, way, str(size)]
        steps += ["take", "self", "cuMemAlloc", str(16 << 20), "take", "self", "cuMemAlloc", str(64 << 20)]
        environment = self.environment("oom_dump:oom.json,dump:none", MODULES_DRIVER="1",
                                       ACCEL_SIM="clock:virtual,memory:64M")
        _, _, err = self.run_program(program("modules"), *steps, env=environment, status=1)
        self.assertIn("accelcache: out of memory on device 0: modules asked for 64 MiB", err)
        shown = subprocess.run([COMMAND, "oom", "oom.json"], env=self.environment(LD_PRELOAD=None), text=True,
                               cwd=self.work, capture_output=True, check=True, timeout=LIMIT).stdout
        self.assertIn("\nHeld by\n"
                      "  libnccl.so.2       20.0 MiB\n"
                      "  modules            16.0 MiB\n"
                      "  libcublasLt.so.12  8.00 MiB\n", shown)

    def test_running_and_killed(self):
        child = self.start(*self.command(("take", DRIVER, "cuMemAlloc", PAGE),
                                         ("thread", "self", "cuMemAlloc", 2 * PAGE), ("wait",),
                                         names=(DRIVER,)),
                           env=self.environment(MODULES_DRIVER="1"))
        while child.stdout.readline() != "ready\n":
            continue
        itself = os.path.basename(os.readlink(f"/proc/{child.pid}/exe"))
        if not EMULATED:
            self.assertEqual(itself, SELF)
        wanted = {DRIVER: PAGE, itself: 2 * PAGE}
        self.assertEqual(self.held(json.loads(self.stat("--json", str(child.pid))[0])), wanted)
        text = self.stat(str(child.pid))[0]
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()
                if line.split()[:1] in ([DRIVER], [itself])}
        self.assertEqual(rows[DRIVER][:3], ["64.0", "KiB", "1"], text)
        self.assertEqual(rows[itself][:3], ["128", "KiB", "1"], text)
        child.kill()
        child.wait()
        wanted = {DRIVER: PAGE, SELF: 2 * PAGE}  # as the live page says
        self.assertEqual(self.held(json.loads(self.stat("--json", str(child.pid))[0])), wanted)

    @unittest.skipIf(TSAN, "each barrier is one atomic word there: a dump takes half a minute")
    def test_dumps_beside_threads_add_up(self):
        child = self.start(*self.command(("churn",), names=(SHARED, DRIVER)),
                           env=self.environment("dump_signal:USR2", MODULES_DRIVER="1"))
        while child.stdout.readline() != "ready\n":
            continue
        file = os.path.join(self.work, f"accelcache-{child.pid}.json")
        for _ in range(50):
            child.send_signal(signal.SIGUSR2)
            end = time.monotonic() + LIMIT
            while not os.path.exists(file):
                self.assertLess(time.monotonic(), end, "no dump")
                time.sleep(0.001)
            self.held(self.read_dump(os.path.basename(file), "signal"))
            os.remove(file)
        self.finish(child)
        self.assertEqual(set(self.held(self.the_dump(child.pid)).values()), {0})


if __name__ == "__main__":
    unittest.main()
