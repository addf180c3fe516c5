"""accelcache env: real shells read the lines that it prints."""

import json
import os
import shutil
import subprocess
import unittest

import base

SHOWN = ("LD_PRELOAD", "LD_LIBRARY_PATH", "ACCEL_ALLOC_CONF", "ACCEL_SIM")


# A library that was built with a sanitizer needs its runtime before it, which stays first.
RUNTIME = f"{base.SANITIZER}:" if base.SANITIZER else ""
OWN = RUNTIME + os.path.realpath(base.PRELOAD)


class Env(base.CommandTest):
    def read_by(self, shell, lines, **variables):
        """Returns the environment of a program that a shell starts after it has read the lines."""
        script = self.write("lines", lines + "\nenv -0 > after\n")
        environment = {**self.environment, **variables}
        environment.pop("LD_PRELOAD", None)
        environment.update(variables, ASAN_OPTIONS="detect_leaks=0")  # shells leak
        subprocess.run([*shell, script], cwd=self.folder, env=environment, check=True, timeout=200,
                       stderr=subprocess.DEVNULL)  # the loader complains about the invented paths
        with open(self.path("after"), encoding="utf-8") as file:
            found = dict(row.split("=", 1) for row in file.read().split("\0") if "=" in row)
        return {name: found.get(name) for name in SHOWN}

    def lines(self, *arguments, **variables):
        return self.expect(0, "env", "--lib", base.PRELOAD, *arguments, **variables).stdout

    def shells(self):
        for format_, shell in (("sh", ["sh"]), ("csh", ["tcsh", "-f"]),
                               ("fish", ["fish", "--no-config"])):
            if shutil.which(shell[0]):
                yield format_, shell

    def test_shells(self):
        conf = r"dump:/tmp/it's a!b $HOME `x` \ " + '"-%p.json'
        for format_, shell in self.shells():
            with self.subTest(format_):
                after = self.read_by(shell, self.lines("--format", format_, "--conf", conf))
                self.assertEqual(after["LD_PRELOAD"], OWN)
                self.assertEqual(after["ACCEL_ALLOC_CONF"], conf)
                self.assertIsNone(after["ACCEL_SIM"])

    def test_what_was_there(self):
        """Earlier entries stay behind the library, a second run changes nothing, and --unset undoes it."""
        for format_, shell in self.shells():
            with self.subTest(format_):
                there = {"LD_PRELOAD": f"{RUNTIME}/none/libother.so"}
                once = self.read_by(shell, self.lines("--format", format_, **there))
                self.assertEqual(once["LD_PRELOAD"], f"{OWN}:/none/libother.so")
                now = {"LD_PRELOAD": once["LD_PRELOAD"]}
                self.assertEqual(self.read_by(shell, self.lines("--format", format_, **now)), once)
                back = self.read_by(shell, self.lines("--format", format_, "--unset", **now), **now)
                self.assertEqual(back["LD_PRELOAD"], there["LD_PRELOAD"])
                gone = self.read_by(shell, self.lines("--format", format_, "--unset",
                                                      LD_PRELOAD=OWN), LD_PRELOAD=OWN)
                self.assertEqual(gone["LD_PRELOAD"], base.SANITIZER or None)

    def test_plain(self):
        self.assertEqual(self.lines("--format", "plain", "--conf", "dump:a b.json",
                                    LD_PRELOAD=""),
                         f"LD_PRELOAD={os.path.realpath(base.PRELOAD)}\n"
                         "ACCEL_ALLOC_CONF=dump:a b.json\n")

    @unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "needs libaccelcache.so and the simulator")
    @unittest.skipIf(base.SANITIZER, "the shell itself would be preloaded")
    def test_a_program_runs_so(self):
        demo = os.path.join(os.path.dirname(base.COMMAND), "demo")
        lines = self.expect(0, "env", "--sim=devices:1", "--conf",
                            f"dump:{self.folder}/d.json").stdout
        script = self.write("lines", f'{lines}"{demo}" --iterations 20 >out.txt\n')
        subprocess.run(["sh", script], cwd=self.folder, env=self.environment, check=True,
                       timeout=200)
        with open(self.path("d.json"), encoding="utf-8") as file:
            self.assertTrue(json.load(file)["devices"])
        sim = os.path.realpath(base.SIM_DIR)
        again = self.expect(0, "env", "--sim", LD_LIBRARY_PATH=f"/other:{sim}").stdout
        self.assertIn(f"LD_LIBRARY_PATH='{sim}:/other'\n", again)
        back = self.expect(0, "env", "--unset", LD_LIBRARY_PATH=f"{sim}:/other").stdout
        self.assertIn("LD_LIBRARY_PATH='/other'\n", back)
        blank = "/my dir/lib:/other"  # only : and ; separate folders
        again = self.expect(0, "env", "--sim", LD_LIBRARY_PATH=blank).stdout
        self.assertIn(f"LD_LIBRARY_PATH='{sim}:{blank}'\n", again)

    def test_wrong(self):
        for arguments in (("x",), ("--format", "dos"), ("--conf", "nothing:1"), ("--bogus",),
                          ("--unset", "--sim"), ("--unset", "--conf", ""),
                          ("--sim=a\nb",)):
            result = self.expect(2, "env", *arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn("accelcache env", result.stderr)
        self.assertIn("none.so", self.expect(1, "env", "--lib", "none.so").stderr)


if __name__ == "__main__":
    base.main()
