"""Call sites by phase. A program names phases by accel_phase_push or by NVTX ranges (phases.c)."""


import re
import sys
import unittest

from host import *

SITE = re.compile(r"\s*([\d.,]+ \w+)\s+(?:[\d.]+ %)?\s*([\d,]+) blocks?\s+take_buffer\b.*?(?:, phase (.*))?$")


class PhasesTest(HostTest):
    name = "phases"

    def run_phases(self, *steps, conf="stacks:all", injected=True, text=""):
        env = self.environment(conf, NVTX_INJECTION64_PATH=LIBRARY if injected else None)
        pid, out, err = self.run_program(program(self.name), *(str(s) for s in steps), env=env)
        self.assertEqual(err, "")
        return f"accelcache-{pid}.json", [int(word) for word in out.split()]

    def command(self, *arguments):
        done = subprocess.run([COMMAND, *arguments], env=self.environment(LD_PRELOAD=None), cwd=self.work,
                              text=True, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def by_phase(self, file):
        """Returns {phase: requested bytes} of the blocks held at the end; None: no phase."""
        found = {}
        for line in self.command("export", "-f", "folded", file).splitlines():
            stack, held = line.rsplit(" ", 1)
            phases = "/".join(re.findall(r"(?:^|;)phase ([^;]*)", stack)) or None
            found[phases] = found.get(phases, 0) + int(held)
        return found


class Phases(PhasesTest):
    def test_each_request_has_the_phases_of_its_thread(self):
        file, answers = self.run_phases(
            "take", 1000, "push", "train", "take", 2000, "push", "forward", "take", 3000, "thread", 500, "pop",
            "take", 4000, "pop", "take", 5000, "pop")
        self.assertEqual(answers, [0] * 10 + [1])  # none is open: ACCEL_ERROR_INVALID
        self.assertEqual(self.by_phase(file), {None: 6500, "train": 6000, "train/forward": 3000})
        sites = self.command("stat", file)
        self.assertRegex(sites, r"take_buffer.* < main, phase train/forward\n")
        self.assertRegex(sites, r"take_buffer.* < main\n")

    def test_names(self):
        """An empty name is refused, line breaks do not divide a name, and long names are cut."""
        file, answers = self.run_phases("push", "", "push", "two\nlines; one", "take", 1000, "pop",
                                        "push", "x" * 100, "take", 500, "pop")
        self.assertEqual(answers, [1, 0, 0, 0, 0, 0, 0])
        self.assertEqual(self.by_phase(file), {"two lines: one": 1000, "x" * 63: 500})

    def test_more_than_are_named(self):
        """Phases deeper than 16 have no name, but each `pop` ends its own phase."""
        deep = [step for i in range(20) for step in ("push", f"p{i}")]
        file, answers = self.run_phases(*deep, "take", 1000, *["pop"] * 18, "take", 500, *["pop"] * 3)
        self.assertEqual(answers[-3:], [0, 0, 1])
        self.assertEqual(self.by_phase(file), {"/".join(f"p{i}" for i in range(16)): 1000, "p0/p1": 500})

    def test_samples(self):
        """With stacks:sampled the bytes of each phase are exact: no request is a sample of another phase."""
        steps = []
        for phase, count, size in (("big", 3, 1 << 20), ("small", 200, 5000)):
            steps += ["push", phase, *["take", size] * count, "pop"]
        file, _ = self.run_phases(*steps, conf="stacks:sampled")
        self.assertEqual(self.by_phase(file), {"big": 3 << 20, "small": 1000000})

    def test_history_alone(self):
        file, _ = self.run_phases("push", "a", "take", 1000, "pop", "take", 700, conf="history:100")
        self.assertEqual(self.by_phase(file), {"a": 1000, None: 700})

    def test_a_trace_and_a_comparison(self):
        for name, size in (("a", 1000), ("b", 9000)):
            self.run_phases("push", "load", "take", 2000, "pop", "push", "serve", "take", size,
                            conf=f"stacks:all,dump:none,trace:{name}.trace")
        self.assertEqual(self.by_phase("b.trace"), {"load": 2000, "serve": 9000})
        rows = [line for line in self.command("diff", "a.trace", "b.trace").splitlines() if "phase" in line]
        self.assertEqual(len(rows), 1, rows)  # the phase that grew alone
        self.assertIn("phase serve", rows[0])


class Ranges(PhasesTest):
    def test_ranges_of_the_default_domain(self):
        file, answers = self.run_phases("range", "outer", "take", 1000, "wide", "inner", "take", 2000, "end",
                                        "range", "-", "take", 4000, "end", "end", "end")
        self.assertEqual([answers[i] for i in (0, 2, 4, 5, 7, 8, 9)], [0, 1, 1, 1, 1, 0, -2])
        self.assertEqual(self.by_phase(file), {"outer": 1000, "outer/inner": 2000, "outer/range": 4000})

    def test_domains_end_by_themselves(self):
        file, _ = self.run_phases("domain", "registered", "range", "plain", "push", "own", "take", 1000, "leave",
                                  "take", 2000, "text", "said", "end", "take", 3000, "pop", "leave", "take", 500)
        self.assertEqual(self.by_phase(file), {"registered/plain/own": 1000, "plain/own": 2000, "own/said": 3000,
                                               None: 500})

    def test_a_name_for_each_step(self):
        """The first 256 names are kept. Later ones lose their numbers, so stacks do not run out."""
        file, _ = self.run_phases("steps", 1000, "range", "last", "take", 700)
        found = self.by_phase(file)
        self.assertEqual(found["step 7 of 7"], 512)
        self.assertEqual(found["step # of #"], 512 * (1000 - 256))
        self.assertEqual(found["last"], 700)
        self.assertEqual(len(found), 258)

    def test_no_library_is_named(self):
        file, answers = self.run_phases("range", "r", "take", 1000, "end", injected=False)
        self.assertEqual(answers, [-2, 0, -2])
        self.assertEqual(self.by_phase(file), {None: 1000})

    def test_run_names_the_library(self):
        """Names the library if something is recorded, and keeps another tool's library."""
        def seen(*options, **env):
            done = subprocess.run([COMMAND, "run", "--lib", LIBRARY, *options, "--", "/bin/sh", "-c",
                                   "echo $NVTX_INJECTION64_PATH"], cwd=self.work, check=True, timeout=LIMIT,
                                  env=self.environment(LD_PRELOAD=None, **env), capture_output=True, text=True)
            return done.stdout.strip()
        self.assertEqual(seen(), "")
        self.assertEqual(seen("--conf", "stacks:sampled"), LIBRARY)
        self.assertEqual(seen("--conf", "history:100"), LIBRARY)
        self.assertEqual(seen("--conf", "stacks:all", NVTX_INJECTION64_PATH="/other.so"), "/other.so")


@unittest.skipUnless(os.path.exists(program("phases_nvtx")), "the headers of NVTX are missing")
class RangesByHeaders(Ranges):
    name = "phases_nvtx"


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
