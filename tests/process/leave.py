"""Each way to end a process leaves one complete dump with the right figures, or no dump and a page
that `accelcache stat` shows."""

import re
import time

from host import *

needs_filters = unittest.skipIf(EMULATED, "qemu answers EINVAL to each seccomp filter")


class Leave(HostTest):
    def leave(self, case, status, allocs, frees=None):
        pid, _, err = self.run_program(program("leave"), case, status=status)
        self.assertEqual(err, "")
        dump = self.the_dump(pid)
        self.assert_calls(dump, allocs, frees)
        self.assertEqual(self.pages(), [])
        return dump

    def test_return(self):
        self.leave("return", 3, 5)

    def test_exit(self):
        self.leave("exit", 4, 5)

    def test_handlers_before_and_after_first_use(self):
        self.leave("handlers", 0, 2)

    def test_quick_exit(self):
        self.leave("quick_exit", 6, 2)

    def test_destructors_of_libraries(self):
        self.leave("libraries", 0, 2)

    @unittest.skipUnless(os.path.exists(program("statics")), "no C++ compiler")
    def test_static_destructors(self):
        pid, _, err = self.run_program(program("statics"))
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 3)

    @unittest.skipIf(TSAN, "that sanitizer ends where the main thread has ended")
    def test_last_thread(self):
        self.leave("last_thread", 0, 10)

    @unittest.skipIf(TSAN, "that sanitizer ends where the main thread has ended")
    def test_last_thread_main_unused(self):
        self.leave("last_thread_alone", 0, 5)

    @unittest.skipIf(TSAN, "that sanitizer ends where the main thread has ended")
    def test_last_thread_with_interval(self):
        env = self.environment("dump_interval:600,dump_signal:none")
        pid, _, _ = self.run_program(program("leave"), "last_thread", env=env)
        self.assert_calls(self.the_dump(pid), 10)

    def test_exit_by_another_thread(self):
        self.leave("other_thread", 5, 10)

    def test_threads_still_busy(self):
        for _ in range(10):
            child = self.start(program("leave"), "busy")
            _, err = self.finish(child, 7)
            self.assertEqual(err, "")
            name = f"accelcache-{child.pid}.json"
            self.assertEqual(self.dumps(), [name])
            dump = self.read_dump(name)
            self.assertGreaterEqual(dump["hooks"]["cuMemAlloc_v2"], 200)
            os.remove(os.path.join(self.work, name))
            self.assertEqual(self.pages(), [])

    def test_thread_inside_a_request(self):
        """A thread waits up to oom_wait for memory. The end of the process does not wait."""
        env = self.environment("oom_wait:30", ACCEL_SIM="clock:real,memory:64M")
        begin = time.monotonic()
        pid, _, _ = self.run_program(program("leave"), "beside_request", env=env, status=7)
        self.assertLess(time.monotonic() - begin, 15)
        self.the_dump(pid)

    def test_failed_exec(self):
        self.leave("failed_exec", 0, 5)

    def test_never_used(self):
        _, out, err = self.run_program(program("leave"), "never", status=9)
        self.assertEqual((out, err, self.dumps(), os.listdir(self.live)), ("", "", [], []))

    # ---- in a folder other than the start folder

    def test_folder(self):
        for case in ("folder", "folder_first"):
            with self.subTest(case=case):
                pid, _, err = self.run_program(program("leave"), case, status=3,
                                               env=self.environment("trace:t-%p.trace"))
                self.assertEqual(err, "")
                self.assertEqual(self.dumps(), [f"accelcache-{pid}.json", f"t-{pid}.trace"])
                self.assert_calls(self.read_dump(f"accelcache-{pid}.json"), 5)
                for name in self.dumps():
                    os.remove(os.path.join(self.work, name))

    def test_long_folder(self):
        self.work = os.path.join(self.work, *(10 * ["twenty characters ..."]))
        os.makedirs(self.work)
        pid, _, err = self.run_program(program("leave"), "folder", status=3)
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 5)

    def test_renamed_folder(self):
        pid, _, err = self.run_program(program("leave"), "renamed", status=3)
        self.work = os.path.join(self.root, "renamed")
        self.assertEqual(err, "")
        self.assert_calls(self.the_dump(pid), 5)

    @unittest.skipIf(EMULATED, "the machine's shell is of another architecture")
    def test_folder_of_the_command(self):
        """`accelcache run` resolves its file names in the folder where it was started."""
        os.mkdir(os.path.join(self.work, "inner"))
        env = self.environment(LD_PRELOAD=os.environ.get("AC_SANITIZER_RUNTIME") or None)
        self.run_program(COMMAND, "run", "--lib", LIBRARY, "--dump", "d.json", "--trace", "t.trace",
                         "--", "/bin/sh", "-c", f"cd inner && exec '{program('leave')}' return",
                         status=3, env=env)
        self.assertEqual(self.dumps(), ["d.json", "inner", "t.trace"])
        self.assert_calls(self.read_dump("d.json"), 5)

    # ---- descriptors that the program closed, and numbers that it uses afterwards

    def test_taken_numbers(self):
        """Only the program reads its descriptors: the library leaves a pipe and a file's offset."""
        ends = os.pipe()
        with open(os.path.join(self.root, "input"), "w+b") as file:
            file.write(b"text")
            file.seek(2)
            for source in (ends[0], file):
                with self.subTest(source=source):
                    pid, _, err = self.run_program(program("leave"), "taken_numbers", status=3,
                                                   stdin=source)
                    self.assertEqual(err, "")
                    self.assert_calls(self.the_dump(pid), 5)
                    os.remove(os.path.join(self.work, f"accelcache-{pid}.json"))
            self.assertEqual(os.lseek(file.fileno(), 0, os.SEEK_CUR), 2)
        for end in ends:
            os.close(end)

    # ---- sandboxes that the program enters itself

    @needs_filters
    def test_early_filter(self):
        self.leave("early_filter", 3, 5)

    @unittest.skipIf(SANITIZED, "sanitizers make system calls of their own at exit")
    @needs_filters
    def test_filters(self):
        """The library makes no system calls of its own, and the figures stay in the page."""
        for case, said in (("filtered_opening", ""), ("narrow_filter", "kept in a buffer\n"),
                           ("filtered_signal", "")):
            for conf in (None, f"trace:{self.root}/t.trace", "dump_interval:600"):
                with self.subTest(case=case, conf=conf):
                    shown = self.killed(case, 3, env=self.environment(conf), said=said)
                    self.assertEqual(["seccomp filter" in w for w in shown["warnings"]], [True])

    @unittest.skipIf(SANITIZED, "sanitizers make system calls of their own at exit")
    @needs_filters
    def test_filtered_interval(self):
        env = self.environment("dump_interval:2")
        for _ in range(5):  # on a busy machine the dump may come before the filter
            child = self.start(program("leave"), "filtered_interval", env=env)
            out, err = child.communicate(timeout=LIMIT)
            if child.returncode != 4:
                break
            for left in (*self.dumps(), *self.pages()):
                os.remove(os.path.join(self.work, left))
        self.assertEqual((child.returncode, out), (3, ""), err)
        self.shown_killed(child.pid, err, 5)

    @unittest.skipIf(SANITIZED, "sanitizers make system calls of their own at exit")
    @needs_filters
    def test_filtered_threads(self):
        self.killed("filtered_threads", 3, calls=3, env=self.environment("dump_signal:none"))

    @unittest.skipIf(SANITIZED, "sanitizers make system calls of their own at exit")
    @needs_filters
    def test_filtered_trace(self):
        shown = self.killed("filtered_trace", 3, calls=4005,
                            env=self.environment(f"trace:{self.root}/t.trace"))
        self.assertTrue([w for w in shown["warnings"] if "recording to" in w])

    @unittest.skipIf(SANITIZED, "sanitizers make system calls of their own at exit")
    @needs_filters
    def test_filtered_thread(self):
        self.killed("filtered_thread", 3)

    # ---- functions of the C library that end the process after libtorn.so's destructor

    def torn(self, case, status, conf=None, err="", **more):
        env = self.environment(conf, preload=[program("libtorn.so")], **more)
        pid, _, said = self.run_program(program("leave"), case, status=status, env=env)
        if err:
            self.assertIn(err, said)
        else:
            self.assertEqual(said, "")
        return pid

    @unittest.skipIf(SANITIZED, "sanitizers use them to the end")
    def test_torn_functions(self):
        for case in ("return", "handlers", "libraries", "folder", "other_thread"):
            with self.subTest(case=case):
                status = {"return": 3, "folder": 3, "other_thread": 5}.get(case, 0)
                pid = self.torn(case, status, "trace:t.trace")
                self.assertEqual(self.dumps(), [f"accelcache-{pid}.json", "t.trace"])
                self.read_dump(f"accelcache-{pid}.json")
                self.assertEqual(self.pages(), [])
                for name in self.dumps():
                    os.remove(os.path.join(self.work, name))
        self.torn("return", 3, "dump:/nonexistent/x", "cannot write the statistics")
        self.torn("return", 3, "dump:/dev/full", "No space left")
        self.torn("return", 3, "dump:/dev/stderr", '"reason": "exit"')

    @unittest.skipIf(SANITIZED, "sanitizers use them to the end")
    def test_clock_that_stands_still(self):
        self.torn("return", 3, "trace:t.trace,dump_interval:0.1", TORN_CLOCK="1")

    def killed(self, case, status, env=None, said="", calls=5):
        pid, out, err = self.run_program(program("leave"), case, status=status, env=env)
        self.assertEqual(out, said)
        return self.shown_killed(pid, err, calls)

    def shown_killed(self, pid, err, calls):
        if EMULATED:  # qemu tells the end as well
            err = re.sub(r"^qemu: uncaught target signal .*\n", "", err)
        self.assertEqual((err, self.dumps()), ("", []))
        self.assertEqual(len(self.pages()), 1)
        listed = json.loads(self.stat("--json")[0])
        self.assertEqual([(p["pid"], p["state"]) for p in listed], [(pid, "killed")])
        shown = json.loads(self.stat("--json", str(pid))[0])
        self.assertEqual(shown["reason"], "killed")
        self.assert_calls(shown, calls)
        self.assertEqual(len(self.pages()), 1)  # and can be shown again
        self.stat("--remove", str(pid))
        self.assertEqual(self.pages(), [])
        self.stat(str(pid), status=1)
        return shown

    def test_abort(self):
        self.killed("abort", -signal.SIGABRT)

    def test_underscore_exit(self):
        self.killed("_exit", 8)

    def test_sigkill(self):
        self.killed("kill", -signal.SIGKILL)

    def test_killed_is_marked_for_readers(self):
        pid, _, _ = self.run_program(program("leave"), "kill", status=-signal.SIGKILL)
        self.assertIn("killed", self.stat(str(pid))[0])

    def test_pages_of_the_killed_have_a_bound(self):
        """The oldest pages are removed first, and none of a living process."""
        living = self.start(program("signals"), "plain")
        self.assertEqual(living.stdout.readline(), "ready\n")
        for _ in range(80):
            pid, _, _ = self.run_program(program("leave"), "_exit", status=8)
        self.assertIn(len(self.pages()), range(60, 66))
        self.assertTrue(os.path.exists(self.page(pid)))
        self.stat("--json", str(living.pid))
        self.finish(living)

    @unittest.skipIf(EMULATED, "/proc/PID/exe is qemu's before and after")
    def test_exec_of_a_program_without_cuda(self):
        """The figures of the old program remain until `accelcache stat` has shown them."""
        child = self.start(program("leave"), "exec_plain")
        while os.readlink(f"/proc/{child.pid}/exe") == os.path.realpath(program("leave")):
            self.assertIsNone(child.poll())
        shown = json.loads(self.stat("--json", str(child.pid))[0])
        self.assert_calls(shown, 5)
        self.finish(child)
        self.assertEqual(self.dumps(), [])
        shown = json.loads(self.stat("--json", "--remove", str(child.pid))[0])
        self.assertEqual(shown["reason"], "killed")
        self.assertEqual(self.pages(), [])

    def test_exec_of_a_program_with_cuda(self):
        """The new program starts with its own page and its own dump."""
        self.leave("exec_cuda", 3, 5)


if __name__ == "__main__":
    unittest.main()
