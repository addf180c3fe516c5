"""Threads that come and go, constructors that use CUDA, copies of the library."""

import shutil

from host import *


class Threads(HostTest):
    def exact(self, case, allocs, **env):
        pid, out, err = self.run_program(program("threads"), case, env=self.environment(**env))
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), allocs)
        self.assertEqual(self.pages(), [])
        return out

    def test_a_thousand(self):
        self.exact("many", 10000)

    def test_a_thousand_race_for_the_first_use(self):
        """Every call is counted, although some came before the page existed."""
        for _ in range(10):
            pid, _, err = self.run_program(program("threads"), "many_at_once")
            self.assertEqual(err, "")
            hooks = self.the_dump(pid)["hooks"]
            self.assertEqual((hooks["cuMemAlloc_v2"], hooks["cuMemFree_v2"]), (10000, 10000))
            os.remove(os.path.join(self.work, f"accelcache-{pid}.json"))

    def test_destructors_of_keys(self):
        self.exact("destructors", 800)

    @unittest.skipIf(SANITIZED, "sanitizers do not know the frames that a cancelled thread leaves")
    def test_cancelled(self):
        """Threads are cancelled at any place: no lock stays held, and no thread waits for an ended one."""
        for conf in ("", "expandable_segments:true", "fence:streams,thread_cache_mb:0"):
            with self.subTest(conf=conf):
                pid, _, err = self.run_program(program("threads"), "cancelled", env=self.environment(conf))
                self.assertEqual(err, "")
                blocks = self.read_dump(f"accelcache-{pid}.json")["devices"][0]["stats"]["allocation"]["all"]
                self.assertGreater(blocks["allocated"], 100)
                self.assertEqual(blocks["current"], 0)

    def test_caches_of_threads_that_ended(self):
        env = self.environment(ACCEL_SIM="clock:virtual,memory:128M")
        pid, out, err = self.run_program(program("threads"), "full_caches", env=env)
        self.assertEqual(err, "")
        self.assertEqual(int(out), 4)  # MiB: what one thread uses, not two hundred
        self.assert_calls(self.the_dump(pid), 200 * 64 + 1)

    def test_user_of_cuda_unloaded(self):
        env = self.environment(PROCESS_PLUGIN=program("libplugin.so"))
        pid, _, err = self.run_program(program("threads"), "unloaded", env=env)
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 256)

    def test_runtime_unloaded(self):
        pid, _, err = self.run_program(program("threads"), "runtime_unloaded")
        self.assertEqual(err, "")
        blocks = self.the_dump(pid)["devices"][0]["stats"]["allocation"]["all"]
        self.assertEqual((blocks["allocated"], blocks["current"]), (60, 0))

    def test_constructor(self):
        env = self.environment(PROCESS_PLUGIN=program("libplugin.so"))
        pid, _, err = self.run_program(program("threads"), "constructor", env=env)
        self.assertEqual(err, "")
        self.assertEqual(self.the_dump(pid)["hooks"]["cuMemAlloc_v2"], 50)

    def test_constructor_beside_threads(self):
        for _ in range(20):
            env = self.environment(PROCESS_PLUGIN=program("libplugin.so"))
            pid, _, err = self.run_program(program("threads"), "constructor_beside", env=env)
            self.assertEqual(err, "")
            dump = self.the_dump(pid)
            self.assertEqual(dump["hooks"]["cuMemAlloc_v2"], dump["hooks"]["cuMemFree_v2"])
            os.remove(os.path.join(self.work, f"accelcache-{pid}.json"))

    @unittest.skipIf(TSAN, "that sanitizer has a thread of its own")
    def test_no_thread_without_cuda(self):
        self.assertEqual(self.exact("counted", 1), "1 1 2\n")

    def test_no_thread_without_requests(self):
        env = self.environment("dump_signal:none")
        _, out, _ = self.run_program(program("threads"), "counted", env=env)
        self.assertEqual(out, "1 1 1\n")

    def test_opened_and_closed(self):
        env = self.environment(LD_PRELOAD=SANITIZER_ONLY, PROCESS_LIBRARY=LIBRARY)
        pid, _, err = self.run_program(program("threads"), "closed", env=env)
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 2)

    def test_preloaded_and_linked(self):
        pid, _, err = self.run_program(program("linked"), "many")
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 10000)

    def test_linked(self):
        env = self.environment(LD_PRELOAD=SANITIZER_ONLY)
        pid, _, err = self.run_program(program("linked"), "many", env=env)
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 10000)

    def test_two_copies(self):
        """The first copy serves requests, the second one stays inactive."""
        other = os.path.join(self.root, "copy.so")
        shutil.copy(LIBRARY, other)
        self.exact("many", 10000, preload=[other])


SANITIZER_ONLY = os.environ.get("AC_SANITIZER_RUNTIME") or None

if __name__ == "__main__":
    unittest.main()
