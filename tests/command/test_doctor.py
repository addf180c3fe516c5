"""accelcache doctor: the machine, the driver that is missing, broken, hanging or crashing, and
programs that a preload cannot reach.  Processes: test_stat.py."""

import json
import os
import shutil

import base

DRIVER = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Fake %%d", d); return 0; }
int cuGetErrorName(int e, const char **s) { *s = "CUDA_ERROR_NO_DEVICE"; return e != 100; }
int cuInit(unsigned f) { (void)f; %s; }
"""


class Doctor(base.CommandTest):
    def doctor(self, *arguments, **variables):
        result = self.command("doctor", "--lib", base.PRELOAD, "--json", *arguments, **variables)
        whole = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if whole["ok"] else 1)
        return {row["topic"]: (row["level"], row["text"]) for row in reversed(whole["findings"])}

    def with_driver(self, body):
        self.assertTrue(self.compile("libcuda.so.1", DRIVER % body, "-shared", "-fPIC"))
        return self.doctor("--", "true", LD_LIBRARY_PATH=self.folder)["driver"]

    def test_driver(self):
        level, text = self.with_driver("return 0")
        self.assertEqual(level, "ok")
        self.assertIn(self.path("libcuda.so.1") + ", CUDA 12.8, 2 devices", text)
        found = self.doctor(LD_LIBRARY_PATH=self.folder)
        self.assertEqual(found["device"], ("ok", "0: Fake 0"))

    def test_driver_error(self):
        level, text = self.with_driver("return 100")
        self.assertEqual(level, "problem")
        self.assertIn("100 CUDA_ERROR_NO_DEVICE", text)
        self.assertIn("no GPU is visible", text)

    def test_driver_crash(self):
        level, text = self.with_driver("return raise(SIGKILL)")
        self.assertEqual(level, "problem")
        self.assertIn("crashed in cuInit (signal 9)", text)

    def test_driver_hangs(self):
        level, text = self.with_driver("for (;;) pause()")
        self.assertEqual(level, "problem")
        self.assertIn("did not answer cuInit within 10 s", text)

    def test_driver_broken(self):
        self.write("libcuda.so.1", "not a library")
        level, text = self.doctor(LD_LIBRARY_PATH=self.folder)["driver"]
        self.assertEqual(level, "problem")
        self.assertIn("libcuda.so.1 cannot be loaded", text)

    def test_program(self):
        found = self.doctor("--", "true")
        self.assertEqual(found["preload"][0], "ok")
        self.assertEqual(found["runtime"][0], "note")
        self.assertIn("dlmopen", found["not covered"][1])
        self.assertEqual(self.doctor("--", "no-such-program")["preload"][0], "problem")

    def test_static(self):
        program = self.compile("static", "int main(void) { return 0; }", "-static")
        if not program:
            self.skipTest("no static libc here")
        level, text = self.doctor("--", program)["preload"]
        self.assertEqual(level, "problem")
        self.assertIn("static executable", text)

    def test_script(self):
        script = self.write("script", "#!/usr/bin/env sh\n", 0o755)
        self.assertIn(f"a script for {shutil.which('sh')}", self.doctor(script)["runtime"][1])

    def test_configuration(self):
        self.assertEqual(self.doctor(ACCEL_ALLOC_CONF="fence:sync")["config"][0], "ok")
        level, text = self.doctor(ACCEL_ALLOC_CONF="fense:sync")["config"]
        self.assertEqual(level, "problem")
        self.assertIn('"fence"', text)
        self.assertEqual(self.doctor(ACCEL_ALLOC_CONF="enabled:false")["config"][0], "problem")

    def test_library(self):
        result = self.command("doctor", "--lib", "none")
        self.assertIn("the library none does not exist", result.stdout)
        self.write("other.so", b"\x7fELF")
        self.assertIn("no usable library", self.command("doctor", "--lib", "other.so").stdout)

    def test_nothing_is_left_behind(self):
        self.with_driver("return 0")
        self.assertEqual(sorted(name for name in os.listdir(self.folder)
                                if name not in ("libcuda.so.1", "libcuda.so.1.c")), ["live"])

    def test_usage(self):
        self.assertIn("Usage:", self.expect(0, "doctor", "--help").stdout)
        self.expect(2, "doctor", "--nonsense")
        self.expect(2, "doctor", "123", "456")


class Main(base.CommandTest):
    def test_main(self):
        self.assertIn("Subcommands", self.expect(0, "--help").stdout)
        self.assertIn("Subcommands", self.expect(2).stderr)
        self.assertIn('no subcommand "x"', self.expect(2, "x").stderr)
        self.assertRegex(self.expect(0, "--version").stdout, r"^accelcache \d+\.\d+\.\d+\n$")
        for name in ("run", "stat", "config", "doctor"):
            self.assertIn("Exit status", self.expect(0, name, "--help").stdout)


if __name__ == "__main__":
    base.main()
