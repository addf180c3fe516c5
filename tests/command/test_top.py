"""accelcache top: the screen on a real terminal, its keys, and a single sample as text and JSON."""

import glob
import json
import os
import re
import signal
import subprocess
import time
import unittest

import base
import live
import terminal

NCURSES = "built without ncurses"


class Top(live.LiveTest):
    def window(self, columns, rows, *arguments):
        return terminal.Terminal(columns, rows, [base.COMMAND, "top", *arguments],
                                 self.environment, self.folder)

    def shows(self, window, pattern):
        """Waits for a line that matches. Returns the match."""
        def look():
            for line in window.lines():
                if found := re.search(pattern, line):
                    return found
            self.assertFalse([line for line in window.lines() if NCURSES in line])
            return None
        return window.until(look)

    def row_of(self, window, process):
        return self.shows(window, rf"^ +{process.pid} .*")[0].split()

    def test_one_look(self):
        process = self.start("busy")
        whole = json.loads(self.expect(0, "top", "--json", "--interval", "0.5").stdout)
        one, = whole["processes"]
        self.assertEqual((one["pid"], one["program"]), (process.pid, "worker"))
        self.assertGreater(one["requests_per_s"], 20)
        self.assertGreater(one["hit_percent"], 99)
        self.assertEqual(one["allocated_bytes_peak"], 69 << 20 if one["allocated_bytes_peak"] >
                         68 << 20 else 68 << 20)
        device, = whole["devices"]
        self.assertEqual((device["processes"], device["total_memory"]), (1, 16 << 30))
        self.assertEqual(device["reserved_bytes"], one["reserved_bytes"])
        self.assertTrue(device["simulated"])
        lines = self.expect(0, "top", "--interval", "0.1").stdout.splitlines()
        self.assertIn(str(process.pid), lines[-1])
        self.end(process)
        process.wait()
        self.assertIn("no process runs", self.expect(0, "top", "--interval", "0.1").stdout)

    def test_rates(self):
        """An idle process has rate 0 and the hit ratio of all its requests."""
        self.start()
        one, = json.loads(self.expect(0, "top", "--json", "--interval", "0.2").stdout)["processes"]
        self.assertEqual(one["requests_per_s"], 0)
        self.assertEqual(one["hit_percent"], 0)

    def test_usage(self):
        for arguments in (("--interval", "0"), ("--interval", "1x"), ("--sort", "size"), ("12",)):
            self.expect(2, "top", *arguments)

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_screen(self):
        busy, idle = self.start("busy"), self.start()
        for columns, rows in ((80, 24), (120, 50)):
            with self.subTest(columns=columns), self.window(columns, rows) as window:
                self.shows(window, rf"^ +{busy.pid} .* [1-9][0-9,]* +100\.0 .*worker$")
                lines = window.lines()
                if os.environ.get("AC_SHOW_SCREENS"):
                    print("\n".join(lines))
                self.assertRegex(lines[0], r"^accelcache top  \d\d:\d\d:\d\d  2 processes on 1 device,"
                                           r" every 1 s$")
                self.assertRegex(lines[2], "^ +DEVICE +MEMORY +RESERVED +ALLOCATED +FRAG% +PROCS +NAME$")
                self.assertRegex(lines[3], r"^ +0 +16\.0 GiB .* 2  Simulated CUDA device$")
                self.assertRegex(lines[5], "^ +PID +RESERVED +ALLOCATED +PEAK +REQ/S +HIT% +FRAG% +OOM "
                                           "+PROGRAM$")
                self.assertRegex(lines[rows - 1], "^q quit  arrows choose  s sort: reserved  d dump  "
                                                  "t trim  r reset peaks$")
                self.assertLessEqual(max(map(len, lines)), columns)
                window.press("q")
                self.assertEqual(window.wait(), 0)
                self.assertEqual(window.scrolled(), 0)
        self.assertIsNone(idle.poll())

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_rows_without_room(self):
        """The line above the keys says how many of the processes are shown, until a key has an answer there."""
        for _ in range(5):
            self.start()
        with self.window(80, 12) as window:
            self.shows(window, "^  4 of 5 processes: ")
            window.press("r")
            self.shows(window, "peaks are reset|control:true")
            self.assertFalse([line for line in window.lines() if " of 5 processes" in line])
            window.press("q")
            self.assertEqual(window.wait(), 0)
        with self.window(80, 24) as window:
            self.shows(window, "5 processes on 1 device")
            self.assertFalse([line for line in window.lines() if " of 5 processes" in line])
            window.press("q")

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_unread(self):
        """If a page cannot be read, the first line of the screen says so, and no other line does."""
        live.LiveTest.start(self)
        home = os.path.dirname(glob.glob(self.path("live/accelcache-*/*"))[0])
        self.write(os.path.join(home, f"{os.stat('/proc/self/ns/pid').st_ino}-1"), "short")
        with self.window(80, 24, "--interval", "0.1") as window:
            self.shows(window, r"^accelcache top .*; 1 cannot be read")
            time.sleep(0.5)
            lines = window.lines()
            self.assertEqual([line for line in lines[1:] if "accelcache" in line], [])
            window.press("q")
            window.wait()

    def test_without_a_keyboard(self):
        """If stdin cannot be read, the command sleeps until the next sample."""
        ours, screen = os.openpty()
        process = subprocess.Popen([base.COMMAND, "top"], stdin=subprocess.DEVNULL, stdout=screen,
                                   env={**self.environment, "TERM": "xterm"})
        os.close(screen)
        os.read(ours, 1)
        time.sleep(2)
        process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        os.close(ours)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertLess(usage.ru_utime + usage.ru_stime, 0.25)

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_keys(self):
        process = self.start(conf=f"control:true,dump:{self.folder}/top-%p.json")
        with self.window(80, 24, "--interval", "60") as window:
            self.assertIn("68.0", self.row_of(window, process))
            window.press("r")
            self.shows(window, f"process {process.pid}: peaks are reset")
            self.shows(window, rf"^ +{process.pid} .* 4\.00 MiB +4\.00 MiB ")
            window.press("t")
            self.shows(window, rf"process {process.pid} gave back [6-9]\d\.\d MiB")
            window.press("d")
            self.shows(window, rf"process {process.pid} wrote .*top-{process.pid}\.json")
            self.assertTrue(glob.glob(self.path("top-*.json")))
            window.press("q")
            self.assertEqual(window.wait(), 0)

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_sort_and_choose(self):
        first, second = self.start(), self.start()
        low, high = sorted((first.pid, second.pid))

        def order(window):
            return [int(line.split()[0]) for line in window.lines()
                    if re.match(r" +\d+ .*worker$", line)]

        with self.window(80, 24, "--interval", "60", "--sort", "pid") as window:
            window.until(lambda: order(window) == [low, high])
            window.press("Down")
            window.press("t")
            self.shows(window, f"process {high} gave back")
            window.until(lambda: order(window) == [low, high])
            window.press("s")                        # by reserved memory: the other process has more
            self.shows(window, "s sort: reserved")
            window.until(lambda: order(window) == [low, high])
            window.press("r")                        # the cursor stayed on its process
            self.shows(window, f"process {high}: peaks are reset")
            window.press("q")
            window.wait()

    @unittest.skipUnless(terminal.PRESENT, "tmux is missing")
    def test_who_cannot_be_asked(self):
        process = self.start(conf="dump:none")
        with self.window(80, 24) as window:
            self.row_of(window, process)
            window.press("t")
            self.shows(window, f"process {process.pid} does not listen")
            process.kill()
            process.wait()
            self.shows(window, "no process runs under accelcache")
            stopped = self.start()
            self.row_of(window, stopped)
            stopped.send_signal(signal.SIGSTOP)
            window.press("t")
            self.shows(window, f"process {stopped.pid} is stopped")
            stopped.send_signal(signal.SIGCONT)
            dying = self.start()
            stopped.kill()
            stopped.wait()
            self.row_of(window, dying)
            self.end(dying, b"x")  # its exit takes a minute
            self.assertEqual(dying.stdout.readline(), b"lingers\n")
            window.press("t")
            self.shows(window, f"process {dying.pid}")
            self.assertIsNone(dying.poll())
            window.press("C-c")
            self.assertEqual(window.wait(), 130)


if __name__ == "__main__":
    base.main()
