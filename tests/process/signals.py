"""Dumps on request in a running program, and signals that the library must not take."""

import platform
import re
import time

from host import *

THREADS = 2 if EMULATED else 1  # qemu has one of its own


class Signals(HostTest):
    def launch(self, case, conf=None):
        child = self.start(program("signals"), case, env=self.environment(conf))
        self.assertEqual(child.stdout.readline(), "ready\n")
        return child

    def wait_for_dump(self, child, reason):
        """Waits for the next dump: a new file, or one that differs. The following one may be in progress."""
        name = f"accelcache-{child.pid}.json"
        path = os.path.join(self.work, name)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            self.assertIsNone(child.poll())
            if os.path.exists(path):
                dump = self.read_dump(name, reason)
                self.assertEqual(dump["process"]["pid"], child.pid)
                self.assertEqual([other for other in self.dumps() if other != name and
                                  not re.fullmatch(rf"{name}\.{child.pid}-\d+\.tmp", other)], [])
                os.remove(path)
                return dump
            time.sleep(0.002)
        self.fail("no dump came")

    def say(self, child, letter, answer):
        child.stdin.write(letter)
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), answer)

    def handler(self, pid, number):
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return None

    @unittest.skipIf(TSAN, "that sanitizer keeps signals back")
    def test_dumps_while_running(self):
        child = self.launch("plain")
        for _ in range(5):
            child.send_signal(signal.SIGUSR2)
            self.assert_calls(self.wait_for_dump(child, "signal"), 5)
        self.say(child, "x", "got x, seen 0\n")  # read(2) went on
        out, err = self.finish(child)
        self.assertEqual((out, err), ("", ""))
        self.assert_calls(self.the_dump(child.pid), 5)

    def test_another_signal(self):
        child = self.launch("plain", "dump_signal:USR1")
        child.send_signal(signal.SIGUSR1)
        self.wait_for_dump(child, "signal")
        if not EMULATED:  # qemu catches each of them itself
            self.assertFalse(self.handler(child.pid, signal.SIGUSR2))
        self.finish(child)

    def test_none(self):
        child = self.launch("plain", "dump_signal:none")
        with open(f"/proc/{child.pid}/status") as file:
            self.assertIn(f"Threads:\t{THREADS}\n", file.read())
        child.send_signal(signal.SIGUSR2)  # its default: it ends the program
        self.finish(child, -signal.SIGUSR2)
        self.assertEqual(self.dumps(), [])

    def test_handler_of_the_program_before(self):
        child = self.launch("own_before")
        child.send_signal(signal.SIGUSR2)
        self.say(child, "x", "got x, seen 1\n")
        self.finish(child)
        self.the_dump(child.pid)  # at exit alone

    def test_handler_of_the_program_after(self):
        child = self.launch("own_after")
        child.send_signal(signal.SIGUSR2)
        self.say(child, "x", "got x, seen 1\n")
        self.assertEqual(self.dumps(), [])
        self.finish(child)

    def test_ignored(self):
        child = self.launch("ignored")
        self.assertFalse(self.handler(child.pid, signal.SIGUSR2))
        child.send_signal(signal.SIGUSR2)
        self.say(child, "x", "got x, seen 0\n")
        self.assertEqual(self.dumps(), [])
        self.finish(child)

    def test_fetched_with_sigwait(self):
        child = self.launch("fetched")
        child.send_signal(signal.SIGUSR2)
        self.assertEqual(child.stdout.readline(), "fetched\n")
        self.finish(child)

    def test_one_thread_open_for_it(self):
        child = self.launch("one_open")
        child.send_signal(signal.SIGUSR2)
        self.wait_for_dump(child, "signal")
        self.finish(child)

    @unittest.skipIf(TSAN, "that sanitizer keeps signals back")
    def test_while_threads_allocate(self):
        child = self.launch("heavy")
        for _ in range(10):
            child.send_signal(signal.SIGUSR2)
            self.wait_for_dump(child, "signal")
        for _ in range(200):
            child.send_signal(signal.SIGUSR2)
        self.finish(child)
        dump = self.the_dump(child.pid)
        hooks = dump["hooks"]
        self.assertEqual(hooks["cuMemAlloc_v2"], hooks["cuMemFree_v2"])
        self.assertGreaterEqual(hooks["cuMemAlloc_v2"], 800)

    def test_interval(self):
        child = self.launch("plain", "dump_interval:0.1")
        for _ in range(3):
            self.assert_calls(self.wait_for_dump(child, "interval"), 5)
        self.finish(child)
        self.the_dump(child.pid)

    def test_signal_to_a_killed_child_of_exec(self):
        """After exec the signal has its default action: nothing of the library is left."""
        child = self.start(program("leave"), "exec_plain")
        while os.readlink(f"/proc/{child.pid}/exe") == os.path.realpath(program("leave")):
            self.assertIsNone(child.poll())
        child.send_signal(signal.SIGUSR2)
        self.finish(child, -signal.SIGUSR2)

    def test_names(self):
        env = self.environment("dump:%e-%h-%r-%p-%%.json", OMPI_COMM_WORLD_RANK="7")
        pid, _, _ = self.run_program(program("leave"), "return", status=3, env=env)
        self.assertEqual(self.dumps(), [f"leave-{platform.node()}-7-{pid}-%.json"])
        self.read_dump(self.dumps()[0])

    def test_no_file(self):
        child = self.launch("plain", "dump:none")
        with open(f"/proc/{child.pid}/status") as file:
            self.assertIn(f"Threads:\t{THREADS}\n", file.read())
        self.assertEqual(len(self.pages()), 1)
        self.finish(child)
        self.assertEqual((self.dumps(), self.pages()), ([], []))


if __name__ == "__main__":
    unittest.main()
