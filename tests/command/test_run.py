"""accelcache run: environment, exit status, refusals, words of --sim, and --compare."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import base

MACHINE_AT = 18  # offset of e_machine in an ELF header
CLASS_AT = 4     # offset of EI_CLASS

STATIC_RUNTIME = """
const char *volatile names[] = {"cudaErrorCudartUnloading", "libcuda.so.1"};
int main(void) { return names[0] == names[1]; }
"""


class Run(base.CommandTest):
    def run_with(self, status, *arguments, **variables):
        return self.expect(status, "run", "--lib", base.PRELOAD, *arguments, **variables)

    def told(self, *arguments, **variables):
        """Returns the environment that the program got, as the preloaded library prints it."""
        result = self.run_with(0, *arguments, COMMAND_TEST="1", **variables)
        return dict(line.split("=", 1) for line in result.stderr.splitlines()
                    if "=" in line and not line.startswith("accelcache"))

    def test_status_and_output(self):
        result = self.run_with(7, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((result.stdout, result.stderr), ("out\n", "err\n"))
        self.assertEqual(self.run_with(0, "echo", "--json", "-x").stdout, "--json -x\n")

    def test_signal(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            # The command ends by the signal that ended the program. A shell would exit with 128 plus the number. The
            # test starts no shell to wait for it: dash crashes at its first fork if ThreadSanitizer is preloaded.
            self.run_with(-number, "sh", "-c", f"kill -{number} $$")

    def test_children_are_ignored(self):
        """Daemons leave SIGCHLD ignored. The command still gets exit statuses, and the program inherits this."""
        def run(*arguments):
            return subprocess.run(
                [base.COMMAND, *arguments], cwd=self.folder, stdout=subprocess.PIPE,
                env={**self.environment, "TMPDIR": self.folder}, stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), text=True,
                timeout=200, check=False)
        seen = "import os, signal; print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN, flush=True)"
        script = self.write("seen.py", seen + "; os._exit(7)")
        for check in ((), ("--max-peak", "1G")):
            result = run("run", "--lib", base.PRELOAD, *check, "--", sys.executable, script)
            self.assertEqual((result.returncode, result.stdout), (7, "True\n"), check)
        self.compile("libcuda.so.1", "int cuInit(unsigned f) { return 0; }"
                     "int cuDeviceGetCount(int *n) { *n = 2; return 0; }", "-shared", "-fPIC")
        self.environment["LD_LIBRARY_PATH"] = self.folder
        self.assertRegex(run("doctor", "--lib", base.PRELOAD).stdout, "ok +driver.* 2 devices")

    def test_not_found_at_exec(self):
        """If only the kernel finds that a file is missing, the status is also 127. Here stderr is no terminal."""
        inner = self.write("inner", "#!/no/such/interpreter\n", 0o755)
        script = self.write("outer", f"#!{inner}\n", 0o755)
        self.assertIn("No such file", self.run_with(127, script).stderr)

    def test_process_id_is_kept(self):
        process = subprocess.Popen([base.COMMAND, "run", "--lib", base.PRELOAD, "--", "sh", "-c",
                                    "echo $$"], env=self.environment, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=200)
        self.assertEqual(int(out), process.pid)

    def test_preload(self):
        first = [base.SANITIZER] if base.SANITIZER else []
        preload = os.path.realpath(base.PRELOAD)
        self.assertEqual(self.told("true")["LD_PRELOAD"], ":".join([*first, preload]))
        other = ":".join([*first, "libm.so.6", preload])
        self.assertEqual(self.told("true", LD_PRELOAD=other)["LD_PRELOAD"], other)
        self.assertEqual(self.told("true", LD_PRELOAD=f"{other}:{preload}")["LD_PRELOAD"], other)
        self.assertEqual(self.told("true", LD_PRELOAD=":".join([*first, "libm.so.6"]))["LD_PRELOAD"],
                         ":".join([*first, preload, "libm.so.6"]))

    def test_sanitizer_runtime_stays_first(self):
        # The loader reports a missing file and continues. The test checks the order only.
        runtime = base.SANITIZER or "/none/libasan.so.8"
        found = self.told("true", LD_PRELOAD=f"{runtime} libm.so.6")["LD_PRELOAD"]
        self.assertEqual(found, f"{runtime}:{os.path.realpath(base.PRELOAD)}:libm.so.6")

    def test_conf(self):
        self.assertEqual(self.told("true")["ACCEL_ALLOC_CONF"], "(unset)")
        self.assertEqual(self.told("true", ACCEL_ALLOC_CONF="x")["ACCEL_ALLOC_CONF"], "x")
        self.assertEqual(self.told("--conf", "fence:sync", "true",
                                   ACCEL_ALLOC_CONF="x")["ACCEL_ALLOC_CONF"], "fence:sync")
        for given in ("dump : a.json, roundup_power2_divisions:[256:1,>:8]",
                      "roundup_power2_divisions:[256:1,>:8],dump:a.json,"):
            told = self.told("--conf", given, "--dump", "b-%p.json", "true")["ACCEL_ALLOC_CONF"]
            self.assertEqual(told.replace(" ", ""),
                             "roundup_power2_divisions:[256:1,>:8],dump:"
                             + os.path.realpath(self.folder) + "/b-%p.json")
        told = self.told("--conf", "Dump:a.json,memory_limit:1G", "--dump", "b-%p.json", "true")["ACCEL_ALLOC_CONF"]
        self.assertNotIn("a.json", told)
        self.assertIn("nearest known key", self.run_with(2, "--conf", "enabld:1", "true").stderr)
        self.assertIn("--dump", self.run_with(2, "--dump", "a,b", "true").stderr)

    def test_usage(self):
        self.assertIn("no program", self.run_with(2).stderr)
        self.run_with(2, "--repeat", "0", "--compare", "true")
        self.run_with(2, "--warm-up", "-1", "--compare", "true")
        self.run_with(2, "--strict", "true")
        self.run_with(2, "--json", "true")
        self.run_with(2, "--compare", "--dump", "x", "true")
        self.assertIn("does not exist", self.expect(1, "run", "--lib", "none", "true").stderr)

    def test_not_found(self):
        self.assertIn("no such program in PATH", self.run_with(127, "no-such-program").stderr)
        self.assertIn("No such file", self.run_with(127, "./none").stderr)
        script = self.write("script", "#!/no/such/interpreter\n", 0o755)
        self.assertIn("a script for /no/such/interpreter", self.run_with(127, script).stderr)

    def test_not_runnable(self):
        self.assertIn("is a folder", self.run_with(126, "/tmp").stderr)
        self.assertIn("not executable", self.run_with(126, self.write("text", "hi")).stderr)
        with open(shutil.which("true"), "rb") as file:
            image = bytearray(file.read())
        cut = self.write("cut", bytes(image[:100]), 0o755)
        self.assertIn("damaged or cut short", self.run_with(126, cut).stderr)
        foreign = image[:]
        foreign[MACHINE_AT:MACHINE_AT + 2] = b"\xf3\x00"
        foreign = self.write("foreign", bytes(foreign), 0o755)
        self.assertIn("another architecture", self.run_with(126, foreign).stderr)
        image[CLASS_AT] = 1
        narrow = self.write("narrow", bytes(image), 0o755)
        self.assertIn("32-bit", self.run_with(126, narrow).stderr)

    def test_damaged_elf_never_crashes(self):
        with open(shutil.which("true"), "rb") as file:
            image = file.read()
        for at in [*range(16, 64), *range(64, 800, 8)]:
            changed = bytearray(image)
            changed[at] ^= 0xff
            changed[at + 1] ^= 0x7f
            self.write("program", bytes(changed), 0o755)
            # The library is missing, so that the command ends with 1 if the reader accepts the file.
            result = self.command("run", "--lib", "none", "./program")
            self.assertIn(result.returncode, (1, 126), (at, result.stderr))

    def test_musl(self):
        program = self.compile("musl", "int main(void) { return 0; }",
                               "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
        self.assertIn("needs glibc", self.run_with(126, program).stderr)

    def test_static(self):
        program = self.compile("static", "int main(void) { return 0; }", "-static")
        if not program:
            self.skipTest("no static libc here")
        self.assertIn("static executable", self.run_with(126, program).stderr)
        script = self.write("script", f"#!{program}\n", 0o755)
        self.assertIn("static executable", self.run_with(126, script).stderr)

    def test_setuid(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a setuid program of another user")
        program = self.path("other")
        shutil.copy(shutil.which("true"), program)
        os.chown(program, 65534, 65534)
        self.run_with(0, program)
        os.chmod(program, 0o4755)
        self.assertIn("is setuid", self.run_with(126, program).stderr)
        os.chmod(program, 0o2755)
        self.assertIn("is setgid", self.run_with(126, program).stderr)

    def test_scripts(self):
        plain = self.write("plain", "#!/bin/sh\necho plain\n", 0o755)
        through_env = self.write("env", "#!/usr/bin/env sh\necho env\n", 0o755)
        bare = self.write("bare", "echo bare\n", 0o755)
        for script, said in ((plain, "plain\n"), (through_env, "env\n"), (bare, "bare\n")):
            self.assertEqual(self.run_with(0, script).stdout, said)


class Kinds(base.CommandTest):
    """How a program reaches CUDA, as doctor reports it."""

    def kind(self, program, *options):
        out = self.command("doctor", "--lib", base.PRELOAD, "--json", *options, "--", program)
        rows = json.loads(out.stdout)["findings"]
        return " | ".join(row["text"] for row in rows
                          if row["topic"] in ("preload", "runtime", "simulated"))

    def test_kinds(self):
        main = "int {0}(void); int main(void) {{ return {0}(); }}"
        self.compile("libcudart.so.99", "int cudaMalloc(void) { return 0; }", "-shared", "-fPIC",
                     "-Wl,-soname,libcudart.so.99")
        self.compile("libcuda.so.1", "int cuInit(void) { return 0; }", "-shared", "-fPIC",
                     "-Wl,-soname,libcuda.so.1")
        shared = self.compile("shared", main.format("cudaMalloc"), self.path("libcudart.so.99"))
        self.assertIn("shared CUDA runtime libcudart.so.99", self.kind(shared))
        self.assertIn("libcudart.so.99 was found in no folder", self.kind(shared))
        driver = self.compile("driver", main.format("cuInit"), self.path("libcuda.so.1"))
        self.assertIn("driver API, linked to libcuda.so.1", self.kind(driver))
        static = self.compile("static", STATIC_RUNTIME, "-s")
        self.assertIn("static CUDA runtime linked in", self.kind(static))
        stand_in = self.compile("standin", STATIC_RUNTIME + "void simrt_enter(void) {}")
        self.assertIn("static stand-in runtime linked in", self.kind(stand_in, "--sim"))
        self.assertNotIn("does not work", self.kind(stand_in, "--sim"))
        self.assertIn("does not work on the simulated", self.kind(static, "--sim"))
        self.compile("libmath.so", STATIC_RUNTIME, "-shared", "-fPIC")
        library = self.compile("library", "int main(void) { return 0; }", "-Wl,--no-as-needed",
                               self.path("libmath.so"))
        self.assertIn("static CUDA runtime linked in (through libmath.so)", self.kind(library))
        opens = self.compile("opens", 'const char *volatile name = "libcuda.so.1";'
                             "int main(void) { return !name; }")
        self.assertIn("loads CUDA at run time", self.kind(opens))
        self.assertIn("no CUDA library found", self.kind(shutil.which("true")))
        script = self.write("script", f"#!{shared}\n", 0o755)
        self.assertIn(f"a script for {shared}; shared CUDA runtime", self.kind(script))

    def sanitized(self, name, source, *options):
        """Returns a program with a sanitizer. Skips the test without that compiler option, or in sanitized builds."""
        program = self.compile(name, source, "-g", *options)
        if not program or base.SANITIZER:
            self.skipTest("no such sanitizer here")
        return program

    def sanitizer_rows(self, program, **variables):
        out = self.command("doctor", "--lib", base.PRELOAD, "--json", "--", program, **variables)
        return [(row["level"], row["text"]) for row in json.loads(out.stdout)["findings"]
                if row["topic"] == "sanitizer"]

    def test_sanitizers(self):
        """A sanitizer that is a library must be preloaded first. A sanitizer that is linked in needs nothing."""
        main = "int main(void) { return 0; }"
        preload = os.path.realpath(base.PRELOAD)
        for flag, runtime in (("address", "libasan.so"), ("thread", "libtsan.so"),
                              ("leak", "liblsan.so")):
            program = self.sanitized(flag, main, "-fsanitize=" + flag)
            (level, text), = self.sanitizer_rows(program)
            self.assertEqual(level, "note")
            self.assertRegex(text, rf"^linked to {runtime}\.\d+ \(\w+Sanitizer\), which has to be "
                                   rf"the first library of all: LD_PRELOAD=/\S+/{runtime}\.\d+:"
                                   + preload)
            first = text.split("LD_PRELOAD=")[1].split(":")[0]
            told = self.expect(0, "run", "--lib", base.PRELOAD, program, COMMAND_TEST="1").stderr
            self.assertIn(f"LD_PRELOAD={first}:{preload}\n", told)
            static = self.sanitized(flag + "-static", main, "-fsanitize=" + flag,
                                    f"-static-lib{runtime[3]}san")
            (level, text), = self.sanitizer_rows(static)
            self.assertEqual(level, "ok")
            self.assertIn("is linked in: preload libaccelcache.so alone", text)
        self.assertEqual(self.sanitizer_rows(shutil.which("true")), [])
        self.assertEqual(self.sanitizer_rows(self.sanitized("undefined", main,
                                                            "-fsanitize=undefined")), [])

    def test_sanitizer_of_a_library(self):
        self.sanitized("libchecked.so", "int checked(void) { return 0; }", "-shared", "-fPIC",
                       "-fsanitize=address")
        program = self.compile("program", "int checked(void); int main(void) { return checked(); }",
                               self.path("libchecked.so"), "-Wl,-rpath," + self.folder)
        self.assertIn("AddressSanitizer", self.sanitizer_rows(program)[0][1])

    def test_sanitizer_preloaded_in_the_wrong_order(self):
        program = self.sanitized("address", "int main(void) { return 0; }", "-fsanitize=address")
        runtime = self.sanitizer_rows(program)[0][1].split("LD_PRELOAD=")[1].split(":")[0]
        os.symlink(os.path.realpath(base.PRELOAD), self.path("libaccelcache.so"))
        ours = self.path("libaccelcache.so")
        for preload, level in ((ours, "problem"), (f"{runtime}:{ours}", "note")):
            rows = self.sanitizer_rows(program, LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0")
            self.assertEqual(rows[0][0], level, preload)

    def test_pinned(self):
        self.compile("libcudart.so.99", "int cudaMalloc(void) { return 0; }", "-shared", "-fPIC",
                     "-Wl,-soname,libcudart.so.99")
        main = "int cudaMalloc(void); int main(void) { return cudaMalloc(); }"
        pinned = self.compile("pinned", main, self.path("libcudart.so.99"),
                              "-Wl,--disable-new-dtags,-rpath,$ORIGIN")
        self.assertIn("before the stand-in", self.kind(pinned, "--sim"))
        free = self.compile("free", main, self.path("libcudart.so.99"),
                            "-Wl,--enable-new-dtags,-rpath,$ORIGIN")
        self.assertNotIn("before the stand-in", self.kind(free, "--sim"))
        self.assertNotIn("found in no folder", self.kind(free))


class Check(base.CommandTest):
    """run --max-peak and --fail-on-leak. The fixture holds 3 MiB in two blocks to its end."""

    def check(self, status, *arguments, **variables):
        return self.expect(status, "run", "--lib", base.PRELOAD, *arguments, TMPDIR=self.folder,
                           **variables)

    def test_peak(self):
        result = self.check(0, "--max-peak", "3M", base.FIXTURE, "app")
        self.assertEqual(result.stdout, "hello\n")
        self.assertEqual(result.stderr, "accelcache run: memory checks passed: at most 3.00 MiB held "
                                        "by a process on a device at a time\n")
        result = self.check(118, "--max-peak", "3145727", base.FIXTURE, "app")
        self.assertRegex(result.stderr, r"^accelcache run: peak: process \d+ held 3.00 MiB on device 1 "
                                        r"at a time, more than the 3.00 MiB of --max-peak; accelcache")
        self.assertEqual([name for name in os.listdir(self.folder)
                          if name.startswith("accelcache-")], [])

    def test_leak(self):
        self.assertRegex(self.check(119, "--fail-on-leak", base.FIXTURE, "app").stderr,
                         r"leak: process \d+ held 2 blocks, 3.00 MiB, when it exited; ")
        self.check(118, "--fail-on-leak", "--max-peak", "1M", base.FIXTURE, "app")
        result = self.check(0, "--fail-on-leak", base.FIXTURE, "app", "leave")
        self.assertIn("1 process did not exit by itself", result.stderr)
        self.assertEqual([files for _, _, files in os.walk(self.live) if files], [])

    def test_keep(self):
        """The checks ignore dumps of earlier runs and other files."""
        os.mkdir(self.path("kept"))
        self.write("kept/package.json", "{}")
        keep = ("--keep", "kept", "--fail-on-leak")
        self.check(119, *keep, base.FIXTURE, "app")
        result = self.check(0, *keep, base.FIXTURE, "app", "leave")
        self.assertIn("memory checks passed", result.stderr)
        self.assertIn(f"dumps are in {self.path('kept')}/run-2\n", result.stderr)
        self.assertEqual(sorted(os.listdir(self.path("kept"))), ["package.json", "run-1", "run-2"])

    def test_the_peak_of_each_process(self):
        """The check looks at the peak of each process, also a killed one, and not at the sum."""
        script = f"{base.FIXTURE} app; {base.FIXTURE} app leave"
        self.check(0, "--max-peak", "4M", "sh", "-c", script)
        result = self.check(118, "--max-peak", "2M", "sh", "-c", f"{base.FIXTURE} app leave")
        self.assertIn("peak: process", result.stderr)

    def test_the_program_comes_first(self):
        self.check(3, "--fail-on-leak", base.FIXTURE, "app", "fail")
        self.check(128 + signal.SIGKILL, "--max-peak", "1G", "sh", "-c", "kill -KILL $$")
        result = self.check(1, "--max-peak", "1G", "true")
        self.assertIn("nothing was measured", result.stderr)

    def test_input_and_configuration_are_the_programs(self):
        done = subprocess.run([base.COMMAND, "run", "--lib", base.PRELOAD, "--max-peak", "1G", "--",
                               "sh", "-c", f"cat; {base.FIXTURE} app setting"], input=b"given\n",
                              env={**self.environment, "ACCEL_ALLOC_CONF": "enabled:false"},
                              stdout=subprocess.PIPE, check=True, timeout=200)
        self.assertEqual(done.stdout, b"given\nline one\ncaching is off\n")

    def test_json(self):
        out = self.check(119, "--json", "--max-peak", "4M", "--fail-on-leak", base.FIXTURE,
                         "app").stdout.splitlines()
        self.assertEqual(out[0], "hello")
        whole = json.loads("\n".join(out[1:]))
        self.assertEqual((whole["status"], whole["dumps"], whole["command"]),
                         (0, 1, [base.FIXTURE, "app"]))
        self.assertEqual(whole["leak"], {"passed": False, "blocks": 2, "bytes": 3 << 20,
                                         "processes": 1})
        peak = whole["max_peak"]
        self.assertEqual((peak["passed"], peak["allocated_bytes"], peak["limit"], peak["device"]),
                         (True, 3 << 20, 4 << 20, 1))
        out = self.check(0, "--json", "--max-peak", "4M", base.FIXTURE, "app", "").stdout
        self.assertIsNone(json.loads(out)["leak"])

    def test_junit(self):
        odd = self.write('odd "<&>\x01', f"#!/bin/sh\n{base.FIXTURE} app\n", 0o755)
        self.check(119, "--max-peak", "4M", "--fail-on-leak", "--junit", "out.xml", odd)
        suite = xml.etree.ElementTree.parse(self.path("out.xml")).getroot()
        self.assertEqual((suite.tag, suite.get("tests"), suite.get("failures")),
                         ("testsuite", "3", "1"))
        cases = {case.get("name"): case.find("failure") for case in suite}
        self.assertEqual(list(cases), ["status", "max-peak", "leak"])
        self.assertIsNone(cases["max-peak"])
        self.assertIn("held 2 blocks", cases["leak"].get("message"))
        self.assertEqual(suite[0].get("classname"), odd.replace("\x01", "\\x01"))
        self.check(3, "--max-peak", "4M", "--junit", "out.xml", base.FIXTURE, "app", "fail")
        suite = xml.etree.ElementTree.parse(self.path("out.xml")).getroot()
        self.assertIn("status 3", suite[0].find("failure").get("message"))
        self.assertIn("No such file", self.check(1, "--max-peak", "4M", "--junit", "no/out.xml",
                                                 base.FIXTURE, "app").stderr)
        self.check(1, "--max-peak", "4M", "--junit", "out.xml", "true")
        suite = xml.etree.ElementTree.parse(self.path("out.xml")).getroot()
        self.assertEqual(suite.get("failures"), "1")

    INTERRUPTED = """
    #include <signal.h>
    #include <unistd.h>
    static volatile int got;
    static void handler(int n) { (void)n; got++; write(9, "x", 1); }
    int main(void) {
        signal(SIGINT, handler);
        signal(SIGTERM, handler);
        write(1, "ready", 5);
        for (int i = 0; i < 2000 && got < 2; i++) usleep(10000);
        return 0;
    }
    """

    @unittest.skipIf(base.SANITIZER, "pty.fork runs Python code in the child")
    def test_signals(self):
        """The terminal delivers Ctrl-C to the program once. The command forwards a signal that it gets."""
        program = self.compile("interrupted", self.INTERRUPTED)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.environ.update(self.environment)
            os.dup2(os.open("got", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 9)
            os.execv(base.COMMAND, [base.COMMAND, "run", "--lib", base.PRELOAD, "--max-peak", "1G",
                                    "--", program])
        self.addCleanup(os.close, terminal)  # closing it ends processes that are still there
        while b"ready" not in os.read(terminal, 100):
            pass
        os.write(terminal, b"\x03")
        end = time.monotonic() + 20
        while not os.path.getsize(self.path("got")) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)  # a second signal would have followed the first
        self.assertEqual(os.path.getsize(self.path("got")), 1)
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 128 + signal.SIGTERM)
        self.assertEqual(os.path.getsize(self.path("got")), 2)

    def test_usage(self):
        for arguments in (("--max-peak", "0"), ("--max-peak", "2x"), ("--max-peak", "much"),
                          ("--junit", "a.xml"), ("--max-peak", "1G", "--compare"),
                          ("--fail-on-leak", "--dump", "a.json"),
                          ("--fail-on-leak", "--repeat", "2"), ("--keep", "x")):
            self.check(2, *arguments, "true")


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "needs libaccelcache.so and the simulator")
class Real(base.CommandTest):
    """The library and the simulated device of this build, found without options."""

    PROGRAM = """
    #include <stdio.h>
    typedef unsigned long long ptr;
    int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int);
    int cuCtxSetCurrent(void *), cuMemAlloc_v2(ptr *, unsigned long), cuMemFree_v2(ptr);
    int main(void) {
        int device, failed = cuInit(0);
        void *context;
        ptr p;
        failed |= cuDeviceGet(&device, 0) | cuDevicePrimaryCtxRetain(&context, device);
        failed |= cuCtxSetCurrent(context);
        for (int i = 0; i < 100; i++)
            failed |= cuMemAlloc_v2(&p, 1 << 20) | cuMemFree_v2(p);
        printf("failed %d\\n", failed);
        return failed;
    }
    """

    def setUp(self):
        super().setUp()
        self.program = self.compile("program", self.PROGRAM, "-L" + base.SIM_DIR,
                                    "-l:libcuda.so.1")
        self.assertTrue(self.program)

    def test_run(self):
        result = self.expect(0, "run", "--sim=devices:2", "--dump", "out.json", self.program)
        self.assertEqual(result.stdout, "failed 0\n")
        self.assertIn("driver API, linked to libcuda.so.1", result.stderr)
        document = json.loads(self.expect(0, "stat", "--json", "out.json").stdout)
        self.assertEqual(document["hooks"]["cuMemAlloc_v2"], 100)
        self.assertGreater(document["devices"][0]["counters"]["cached_allocs"], 90)
        self.assertEqual([files for _, _, files in os.walk(self.live) if files], [])

    def test_compare(self):
        out = self.expect(0, "run", "--sim", "--compare", "--json", self.program).stdout
        whole = json.loads(out)
        self.assertTrue(whole["simulated"])
        self.assertTrue(whole["stdout_identical"])
        self.assertGreaterEqual(whole["off"]["driver_calls"], 200)
        self.assertLess(whole["on"]["driver_calls"], 10)
        self.assertGreater(whole["on"]["saved_calls"], 190)
        self.assertIsNone(whole["off"]["reserved_peak"])
        self.assertGreaterEqual(whole["on"]["reserved_peak"], 1 << 20)
        text = self.expect(0, "run", "--sim", "--compare", self.program).stdout
        self.assertRegex(text, r"(?m)^caching +off \(simulated\) +on \(simulated\)$")

    STREAM_ORDERED = """
    typedef unsigned long long ptr;
    int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
    int cuMemAllocAsync(ptr *, unsigned long, void *), cuMemFreeAsync(ptr, void *);
    int main(void) {
        void *context;
        ptr p;
        int failed = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
        for (int i = 0; i < 100; i++)
            failed |= cuMemAllocAsync(&p, 1 << 20, 0) | cuMemFreeAsync(p, 0);
        return failed;
    }
    """

    def test_compare_stream_ordered(self):
        """--compare shows what caching saves for cudaMallocAsync: it counts these calls with caching off too."""
        program = self.compile("ordered", self.STREAM_ORDERED, "-L" + base.SIM_DIR,
                               "-l:libcuda.so.1")
        whole = json.loads(self.expect(0, "run", "--sim", "--compare", "--json", program).stdout)
        self.assertEqual(whole["off"]["driver_calls"], 200)
        self.assertGreater(whole["off"]["passed_ns"], 200)
        self.assertEqual(whole["off"]["saved_calls"], 0)
        self.assertLess(whole["on"]["driver_calls"], 10)
        self.assertGreater(whole["on"]["saved_calls"], 190)

    def test_sanitized(self):
        """A program that is linked to AddressSanitizer's library runs under that library and under this one."""
        program = self.compile("sanitized", self.PROGRAM, "-fsanitize=address",
                               "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        if not program or base.SANITIZER:
            self.skipTest("no AddressSanitizer here")
        result = self.expect(0, "run", "--sim", "--dump", "out.json", program)
        self.assertEqual(result.stdout, "failed 0\n")
        self.assertTrue(os.path.exists(self.path("out.json")))

    def test_check(self):
        """Memory that the program freed is no leak, although the process keeps it."""
        text = self.expect(0, "run", "--sim", "--max-peak", "1M", "--fail-on-leak",
                           self.program).stderr
        self.assertIn("memory checks passed: at most 1.00 MiB", text)
        leaking = self.compile("leaking", self.PROGRAM.replace("| cuMemFree_v2(p)", ""),
                               "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        text = self.expect(119, "run", "--sim", "--fail-on-leak", leaking).stderr
        self.assertIn("held 100 blocks, 100 MiB, when it exited: leaking 100 blocks of 1.00 MiB; ", text)
        self.assertNotIn("accelcache: leak", text)
        text = self.expect(1, "run", "--sim", "--conf", "enabled:false", "--max-peak", "1G",
                           leaking).stderr
        self.assertIn("nothing was measured: all of the program's allocations were left", text)

    FROM_POOL = """
    typedef unsigned long long ptr;
    int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
    int cuDeviceGetDefaultMemPool(void **, int);
    int cuMemAllocFromPoolAsync(ptr *, unsigned long, void *, void *);
    int main(void) {
        void *context, *pool;
        ptr p;
        int failed = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
        failed |= cuDeviceGetDefaultMemPool(&pool, 0);
        for (int i = 0; i < 100; i++)
            failed |= cuMemAllocFromPoolAsync(&p, 1 << 20, pool, 0);
        return failed;
    }
    """

    def test_compare_from_pool(self):
        program = self.compile("pool", self.FROM_POOL, "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        whole = json.loads(self.expect(0, "run", "--sim", "--compare", "--json", program).stdout)
        self.assertEqual(whole["off"]["driver_calls"], 100)
        self.assertGreater(whole["off"]["passed_ns"], 100)

    POOL = """
import ctypes, multiprocessing, os, signal, sys

def work(number):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, p = ctypes.c_void_p(), ctypes.c_ulonglong()
    failed = cuda.cuInit(0) | cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    failed |= cuda.cuCtxSetCurrent(context)
    for _ in range(50):
        failed |= cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20))
        failed |= cuda.cuMemFree_v2(p)
    barrier.wait()
    return failed

barrier = multiprocessing.Barrier(2)
pool = multiprocessing.get_context("fork").Pool(2)
print(pool.map(work, range(2), 1))
pool.terminate()
pool.join()
"""

    @unittest.skipIf(base.SANITIZER, "the interpreter's own leaks are reported")
    def test_python_pool(self):
        script = self.write("pool.py", self.POOL)
        whole = json.loads(self.expect(0, "run", "--sim", "--compare", "--json", sys.executable,
                                       script).stdout)
        self.assertEqual(whole["off"]["driver_calls"], 200)
        self.assertGreater(whole["on"]["saved_calls"], 190)
        for run in whole["runs"]:
            self.assertEqual((run["dumps"], run["ended_without_dump"]), (2, 2))
        self.assertEqual([files for _, _, files in os.walk(self.live) if files], [])

    def test_doctor(self):
        out = self.expect(0, "doctor", "--sim", "--", self.program).stdout
        self.assertRegex(out, r"ok +driver .*libcuda.so.1, CUDA \d+\.\d+, 1 device")
        self.assertIn("Simulated CUDA device", out)


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "the library is not built")
class Recorded(base.CommandTest):
    """accelcache record, and the summary line of run on a terminal."""

    DEMO = os.path.join(os.path.dirname(base.COMMAND), "demo")
    STEPS = ("--iterations", "5", "--json")

    def lines(self, result):
        """Returns the lines of the command, without the one about the simulated device."""
        return [line for line in result.stderr.splitlines()
                if line.startswith("accelcache record") and "simulated device" not in line]

    def test_three_lines(self):
        result = self.expect(0, "record", "--sim", "--", self.DEMO, *self.STEPS)
        served, peak, following = self.lines(result)
        self.assertRegex(served, r"^accelcache record: [\d.]+ % of [\d,]+ requests from cache$")
        name = re.fullmatch(r"accelcache record: next: accelcache report (accelcache-\d+\.trace)", following)[1]
        sites = json.loads(self.expect(0, "stat", "--sites", "--json", name).stdout)["peak"]
        largest = sites["sites"][0]
        self.assertTrue(peak.endswith(
            f' ({100 * largest["bytes"] / sites["bytes"]:.1f} %) by {largest["site"]}'), peak)
        self.assertIn("demo", largest["site"])
        self.assertEqual(os.listdir(self.folder).count(name), 1)
        self.assertFalse([other for other in os.listdir(self.folder) if other.endswith(".json")])

    def test_several_processes(self):
        """The command names the largest trace by memory. Its status is the program's, in a shell's notation for
        signals."""
        script = f"{self.DEMO} --iterations 2 >o1; {self.DEMO} --iterations 9 >o2; "
        result = self.expect(3, "record", "--sim", "-o", "t-%p.trace", "--", "sh", "-c", script + "exit 3")
        self.assertIn("the largest of 2 processes", self.lines(result)[1])
        self.assertEqual(len([name for name in os.listdir(self.folder) if name.startswith("t-")]), 2)
        result = self.expect(137, "record", "--sim", "-o", "u", "--", "sh", "-c", script + "kill -9 $$")
        self.assertEqual(self.lines(result)[2], "accelcache record: next: accelcache report u")

    def test_nothing(self):
        self.assertIn("nothing was recorded", self.expect(1, "record", "--sim", "true").stderr)
        self.assertIn("nothing was recorded", self.expect(9, "record", "--sim", "sh", "-c", "exit 9").stderr)
        self.assertIn("no program was given", self.expect(2, "record").stderr)
        self.assertEqual(self.lines(self.expect(127, "record", "--sim", "no-such-program")),
                         ["accelcache record: no-such-program: no such program in PATH"])

    def on_terminal(self, *arguments, **more):
        """Returns the status of `run` with stderr on a terminal, and its output there as one line."""
        ours, terminal = os.openpty()
        process = subprocess.Popen([base.COMMAND, "run", "--sim", *arguments], cwd=self.folder, stderr=terminal,
                                   env=self.environment, stdout=subprocess.PIPE, text=True, **more)
        os.close(terminal)
        if "stdin" in more:
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
        told = b""
        try:
            while part := os.read(ours, 4096):
                told += part
        except OSError:  # there is no more output
            pass
        os.close(ours)
        return process.returncode, " ".join(told.decode().split())

    def test_the_line_of_run(self):
        status, told = self.on_terminal("--", "sh", "-c", f"{self.DEMO} --iterations 5; exit 4")
        self.assertEqual(status, 4)
        name = re.search(r"accelcache run: [\d.]+ % of [\d,]+ requests from cache, peak [\d.]+ MiB; "
                         r"accelcache stat (accelcache-\d+\.json)$", told)[1]
        self.assertIn("from cache", self.expect(0, "stat", name).stdout)
        status, told = self.on_terminal("--", "sh", "-c", "kill -9 $$")  # the line does not use an earlier file
        self.assertEqual(status, -9)
        self.assertNotIn("from cache", told)
        self.assertNotIn("from cache", self.on_terminal("--conf", "dump:none", "--", self.DEMO)[1])

    def test_ignored_signals(self):
        """The program inherits ignored signals."""
        ours, terminal = os.openpty()
        done = subprocess.run(["sh", "-c", "trap '' HUP INT USR1; exec \"$@\"", "sh", base.COMMAND, "run", "--sim", "--",
                               "grep", "SigIgn", "/proc/self/status"], cwd=self.folder, stderr=terminal,
                              env=self.environment, stdout=subprocess.PIPE, text=True, check=True, timeout=200)
        os.close(terminal)
        os.close(ours)
        wanted = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1))
        self.assertEqual(int(done.stdout.split()[1], 16) & wanted, wanted)

    def test_signals_of_run(self):
        """Signals reach the program. The command ends as the program does."""
        status, _ = self.on_terminal("--", "sh", "-c", "echo ready; exec sleep 100", stdin=subprocess.DEVNULL)
        self.assertEqual(status, -signal.SIGTERM)


if __name__ == "__main__":
    base.main()
