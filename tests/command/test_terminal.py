"""Output on a terminal: the first screen of each subcommand in two sizes, and the progress line."""

import json
import os
import re
import subprocess
import unittest

import base
import terminal

SIZES = ((80, 24), (120, 50))


@unittest.skipUnless(terminal.PRESENT, "tmux is missing")
class Screens(base.CommandTest):
    def show(self, columns, rows, *arguments, seconds=50, **variables):
        """Returns the screen after the command. Its lines must fit, and none may have scrolled out."""
        command = [base.program_of(arguments), *arguments]
        with terminal.Terminal(columns, rows, command, {**self.environment, **variables},
                               self.folder) as window:
            status = window.wait(seconds)
            lines, scrolled = window.lines(), window.scrolled()
        text = "\n".join(lines)
        if os.environ.get("AC_SHOW_SCREENS"):
            print(f"\n--- {arguments} at {columns}x{rows}: {status}\n{text}")
        self.assertEqual(scrolled, 0, text)
        self.assertLessEqual(max(map(len, lines)), columns, text)
        return status, lines

    def each(self, *arguments, **more):
        for columns, rows in SIZES:
            yield columns, *self.show(columns, rows, *arguments, **more)

    def words(self, lines):
        return " ".join(" ".join(lines).split())

    def test_stat(self):
        document = json.loads(self.fixture("dump", "exit"))
        device = document["devices"][0]
        for name in device["counters"]:
            device["counters"][name] = 12345
        for name in document["counters"]:
            document["counters"][name] = 54321
        document["hooks"] = {f"cuFunction{i}": i for i in range(20)}
        self.write("d.json", json.dumps(document))
        for columns, status, lines in self.each("stat", "d.json"):
            self.assertEqual(status, 0)
            self.assertRegex(lines[0], r"^from cache +12,345 of 133,332 requests \(9\.3 %\)$")
            self.assertRegex(lines[3], r"^problems +54,321 bad frees")
            self.assertRegex(self.words(lines), r"[0-9]+ more lines: accelcache stat --all")
        self.write("e.json", self.fixture("dump", "exit"))
        for columns, status, lines in self.each("stat", "d.json", "e.json"):
            self.assertIn("sum", self.words(lines))

    def test_config(self):
        for _, status, lines in self.each("config", "memory_limit:8G,fence:sync"):
            self.assertEqual(lines[0], "ok: the string is good, and changes 2 keys:")
        for _, status, lines in self.each("config", "memory_limit=8G"):
            self.assertEqual(status, 1)
            self.assertIn("write : instead of =", self.words(lines))

    @unittest.skipUnless(base.LIBRARY, "the library is not built")
    def test_doctor(self):
        for _, status, lines in self.each("doctor", "--sim"):
            self.assertEqual(status, 0)
            self.assertIn("driver", self.words(lines))
            self.assertIn("figures that outlive a kill", self.words(lines))
        for _, status, lines in self.each("doctor", "--sim", "--", base.COMMAND):
            self.assertIn("other namespaces of dlmopen", self.words(lines))

    def test_tune(self):
        self.write("a.trace", "".join(f"a {i} {5 << 20} 0\nf {i}\n" for i in range(100)))
        for _, status, lines in self.each("tune", "a.trace", "--seconds", "5"):
            self.assertEqual(status, 0)
            shown = [line for line in lines if line]
            self.assertIn("Memory against driver time", lines[0])  # the progress line is gone
            self.assertIn("export ACCEL_ALLOC_CONF=", self.words(shown[-4:]))
            # The output shows figures of the half and of the whole.
            self.assertIn("in the first half of the first trace", self.words(lines))
            self.assertIn("Checked, reserved (reserved/live), driver ms/1000 operations:", lines)
            self.assertNotIn("0.000 ms", self.words(shown[-4:]))

    def test_replay(self):
        self.expect(0, "gen", "lora", "--ops", "20000", "-o", "b.trace")
        for _, status, lines in self.each("replay", "b.trace", "--min-capacity"):
            self.assertEqual(status, 0)
            self.assertIn("ms later", self.words(lines))
        for _, status, lines in self.each("replay", "b.trace", "--capacity", "1G", "--conf", "",
                                          "--conf", "expandable_segments:true"):
            self.assertEqual(status, 1)
            self.assertIn("impossible: b.trace itself holds", self.words(lines))
            self.assertIn("out of memory at operation", self.words(lines))

    def progress(self, pattern, *arguments):
        """Checks the progress line of a slow command, which leaves nothing behind."""
        with terminal.Terminal(80, 24, [base.COMMAND, *arguments], self.environment,
                               self.folder) as window:
            line = window.until(lambda: next(
                (line for line in window.lines() if re.search(pattern, line)), None), 40)
            self.assertLess(len(line), 80)
            lines = [other for other in window.lines() if other]  # some time after `line`
            self.assertEqual(len(lines), 1, lines)
            self.assertEqual(window.wait(), 0)
            self.assertNotRegex("\n".join(window.lines()), pattern)

    def test_replay_shows_progress(self):
        self.expect(0, "gen", "lora", "--ops", "200000", "-o", "b.trace")
        self.progress(r"^\[ +\] replay 1 of 1, \d+ s so far$", "replay", "b.trace", "--repeat",
                      "600")
        quick = self.expect(0, "replay", "b.trace")
        self.assertEqual(quick.stderr, "")

    def test_tune_shows_progress(self):
        self.expect(0, "gen", "lora", "--ops", "200000", "-o", "b.trace")
        with terminal.Terminal(80, 24, [base.COMMAND, "tune", "b.trace", "--seconds", "30"],
                               self.environment, self.folder) as window:
            line = window.until(lambda: next(
                (line for line in window.lines() if " s of 30 s at most" in line), None), 40)
            shown = r"^\[=* *\] \d+ settings tried, \d+ s of 30 s at most"
            self.assertRegex(line, shown)
            self.assertLess(len(line), 80)
            lines = [other for other in window.lines() if other]  # some time after `line`
            self.assertEqual(len(lines), 1, lines)
            self.assertRegex(lines[0], shown)

    @unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "the library is not built")
    def test_bench(self):
        for _, status, lines in self.each("bench", "--sim", "--rounds", "1", "--pass-us", "100",
                                          "--pairs", "20", "--only", "hot", "replace"):
            self.assertEqual(status, 0)
            self.assertIn("ns of an allocation and its free", self.words(lines))
            self.assertIn("random replacement", self.words(lines))

    @unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "the library is not built")
    def test_compare(self):
        demo = os.path.join(os.path.dirname(base.COMMAND), "demo")
        for _, status, lines in self.each("run", "--sim", "--compare", "--", demo, "--json",
                                          "--iterations", "20"):
            self.assertEqual(status, 0)
            self.assertIn("peak allocated", self.words(lines))
            self.assertIn("times faster", self.words(lines))  # the simulated calls have published costs
        same = self.expect(0, "run", "--sim", "--compare", "--strict", "--", demo, "--iterations",
                           "5").stdout  # the demo writes its times to stderr
        self.assertIn("stdout  byte-identical", same)
        for _, status, lines in self.each("run", "--sim=costs:none", "--compare", "--", demo,
                                          "--json", "--iterations", "20"):
            self.assertIn("driver calls cost nothing here: times say nothing", self.words(lines))
            self.assertNotRegex(self.words(lines), "times (faster|slower)")

    def test_help(self):
        """The lines of a help text fit the terminal, also if the text is longer than a screen."""
        names = [line.split()[0] for line in self.expect(0, "help").stdout.splitlines()
                 if line.startswith("  ")]
        self.assertIn("stat", names)
        for name in names:
            with self.subTest(name=name):
                out = self.expect(0, "help", name).stdout
                self.assertEqual(out, self.expect(0, name, "--help").stdout)
                self.assertLessEqual(max(map(len, out.splitlines())), 79)
        self.assertLessEqual(max(map(len, self.expect(0, "help").stdout.splitlines())), 79)


@unittest.skipUnless(terminal.PRESENT, "tmux is missing")
class Build(base.CommandTest):
    """The build by tools/setup.sh, with a stand-in for cmake."""

    def build(self, after):
        setup = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/setup.sh")
        os.makedirs(self.path("bin"), exist_ok=True)
        self.write("bin/cmake", f'#!/bin/sh\n[ "$1" = --build ] || exit 0\n'
                                f'echo "[7/9] Building x.c"\n{after}\n', 0o755)
        return ["bash", "-c", f"PATH={self.path('bin')}:$PATH; root={self.folder}; . {setup}; "
                              "setup_build release product"]

    def test_progress(self):
        go = self.path("go")
        wait = f"until [ -e {go} ]; do sleep 0.05; done"
        with terminal.Terminal(80, 24, self.build(wait), self.environment,
                               self.folder) as window:
            window.until(lambda: "[7/9]" in window.lines())
            self.write("go", "")
            self.assertEqual(window.wait(), 0)
            self.assertNotIn("[7/9]", "".join(window.lines()))
        with open(self.path("build/release.log"), encoding="ascii") as log:
            self.assertEqual(log.read(), "[7/9] Building x.c\n")

    def test_failure(self):
        done = subprocess.run(self.build("echo broken >&2; exit 3"), text=True, timeout=200,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env=self.environment)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith("[7/9] Building x.c\nbroken\nThe build failed"),
                        done.stderr)


class Mistakes(base.CommandTest):
    """An error about a misspelt word suggests the right one, in one line."""

    def test_subcommand(self):
        for wrong, meant in (("stta", "stat"), ("doc", "doctor"), ("relpay", "replay")):
            self.assertIn(f'did you mean "{meant}"?', self.expect(2, wrong).stderr)
        self.assertNotIn("did you mean", self.expect(2, "zzzzzz").stderr)
        self.assertIn("did you mean", self.expect(2, "help", "stta").stderr)
        self.assertEqual(self.expect(0, "-V").stdout, self.expect(0, "--version").stdout)

    def test_option(self):
        for arguments, said in ((("stat", "--sumary"), "unknown option --sumary; did you mean --summary?"),
                                (("stat", "--json=3"), "--json takes no value"),
                                (("tune", "--cap"), "--capacity needs a value behind it"),
                                (("run", "--s"), "--s may be several options: write it in full"),
                                (("gen", "-o"), "-o needs a value behind it"),
                                (("stat", "--json", "-xj"), "unknown option -x"),
                                (("gen", "bogus"), 'no kind "bogus"; there are fixed, '),
                                (("ps", "--zzzzzzz"), "unknown option --zzzzzzz\n")):
            with self.subTest(arguments=arguments):
                error = self.expect(2, *arguments).stderr
                self.assertIn(said, error)
                self.assertEqual(len(error.splitlines()), 2, error)

    def test_key(self):
        self.assertIn("write : instead of =", self.expect(1, "config", "memory_limit=8G").stderr)
        self.assertIn('nearest known key is "memory_limit"',
                      self.expect(1, "config", "MEMORY_LIMT:8G").stderr)
        out = self.expect(0, "config", "memory_limit:8G").stdout.splitlines()
        self.assertEqual(out[0], "ok: the string is good, and changes 1 key:")
        self.assertRegex(out[1], r"^memory_limit +8G   \(default 0\)$")
        self.assertEqual(len(out), 3)
        self.assertIn("every key has its default", self.expect(0, "config", "enabled:true").stdout)
        one = self.expect(0, "config", "fence").stdout
        self.assertTrue(one.startswith("fence ") and "accepts auto, ctx" in one, one)
        self.assertIn("idle_trim_ms", self.expect(0, "config", "--all", "enabled:true").stdout)


if __name__ == "__main__":
    base.main()
