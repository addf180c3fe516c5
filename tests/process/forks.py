"""Forks before, after and inside CUDA's start: each process has its own figures, a child of a parent that
used CUDA is inert, and nothing hangs."""

from host import *


class Forks(HostTest):
    def test_before(self):
        pid, _, err = self.run_program(program("forks"), "before")
        self.assertEqual(err, "")
        self.assertEqual(len(self.dumps()), 2)
        for name in self.dumps():
            own = name == f"accelcache-{pid}.json"
            self.assert_calls(self.read_dump(name), 5 if own else 7)
        self.assertEqual(self.pages(), [])

    def parent_only(self, case, allocs, **env):
        pid, _, err = self.run_program(program("forks"), case, env=self.environment(**env))
        dump = self.the_dump(pid)
        self.assert_calls(dump, allocs)
        self.assertEqual(self.pages(), [])
        return dump, err

    def test_after(self):
        dump, err = self.parent_only("after", 5)
        self.assertEqual(err, "")
        self.assertEqual(dump["hooks"]["cuInit"], 1)  # the child's calls are not its parent's
        self.assertNotIn("cuMemGetInfo_v2", dump["hooks"])

    def test_without_fork_handlers(self):
        self.assertEqual(self.parent_only("bare", 5)[1], "")

    @unittest.skipIf(TSAN, "that sanitizer is not ready when this library forks")
    def test_inside_init(self):
        _, err = self.parent_only("inside", 5, preload=[program("libfork_inside.so")])
        # The registrations of the driver and of the library.
        self.assertGreaterEqual(err.splitlines().count("forked inside"), 2)
        self.assertNotIn("failed", err)

    @unittest.skipIf(EMULATED, "the machine's shell is of another architecture")
    def test_spawns(self):
        self.assertEqual(self.parent_only("spawns", 5)[1], "")

    @unittest.skipIf(SANITIZED, "the sanitizer's own locks do not survive such forks")
    def test_storm(self):
        pid, _, err = self.run_program(program("forks"), "storm")
        self.assertEqual(err, "")
        dump = self.the_dump(pid)
        hooks = dump["hooks"]
        self.assertEqual(hooks["cuMemAlloc_v2"], hooks["cuMemFree_v2"])
        self.assertEqual(dump["devices"][0]["stats"]["allocation"]["all"]["current"], 0)
        self.assertEqual(self.pages(), [])

    def test_while_a_stream_captures(self):
        self.assertEqual(self.parent_only("capturing", 5)[1], "")

    def test_children_that_leave_write_nothing(self):
        self.assertEqual(self.parent_only("leaving", 5)[1], "")

    @unittest.skipIf(SANITIZED, "the sanitizer takes locks as well")
    def test_children_take_no_lock(self):
        # The build of the library that reports its locks.
        libraries = program("../libaccelcache_failpoints.so"), program("libfork_locks.so")
        env = self.environment(LD_PRELOAD=":".join(libraries))
        _, _, err = self.run_program(program("forks"), "locks", env=env)
        self.assertEqual(err, "")

    @unittest.skipIf(SANITIZED, "sanitizers call dl_iterate_phdr before it may be replaced")
    def test_children_load_whatever_the_parent_walks(self):
        """Threads of the parent walk a stack, look up code, or are about to begin a walk, while it forks."""
        preload = [program("libfork_walk.so")]
        for case in "walking", "looking", "closed":
            with self.subTest(case):
                env = self.environment("stacks:all", preload=preload)
                _, _, err = self.run_program(program("forks"), case, program("libfork_locks.so"), env=env)
                self.assertEqual(err, "")

    def test_daemon_after_use(self):
        self.assertEqual(self.parent_only("daemon_after", 5)[1], "")

    def test_child_becomes_another_program(self):
        """The new program starts with its own dump. The parent's dump stays unchanged."""
        pid, _, err = self.run_program(program("forks"), "exec")
        self.assertEqual(err, "")
        self.assertEqual(len(self.dumps()), 3)
        for name in self.dumps():
            own = name == f"accelcache-{pid}.json"
            self.assert_calls(self.read_dump(name), 5 if own else 7)
        self.assertEqual(self.pages(), [])

    def test_daemon(self):
        _, out, err = self.run_program(program("forks"), "daemon")
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(int(out)), 5)
        self.assertEqual(self.pages(), [])


if __name__ == "__main__":
    unittest.main()
