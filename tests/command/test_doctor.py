"""accelcache doctor: the machine, a driver that is missing, broken, hanging or crashing, programs that a
preload cannot reach, and advice from figures. test_stat.py tests its output for processes."""

import json
import os
import shutil
import subprocess
import unittest

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

    def test_folder_of_live_pages(self):
        level, text = self.doctor()["live page"]
        self.assertEqual((level, text), ("ok", self.live + " has room for figures that outlive a "
                                                           "kill"))
        level, text = self.doctor(ACCEL_LIVE_DIR="/nonexistent")["live page"]
        self.assertEqual(level, "note")
        self.assertIn("/nonexistent, which is no folder: /dev/shm serves", text)
        with open(self.path("file"), "w"):
            pass
        level, text = self.doctor(ACCEL_LIVE_DIR=self.path("file"))["live page"]
        self.assertIn("no folder", text)

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

    @unittest.skipUnless(base.SIM_DIR, "the simulated device is not built")
    def test_the_stand_in_is_found(self):
        """With --sim, doctor finds the runtime that the program needs."""
        self.write("empty.c", "")
        self.write("main.c", "int main(void) { return 0; }")
        for arguments in (("-shared", "-Wl,-soname,libcudart.so.12", "empty.c", "-o", "libcudart.so"),
                          ("main.c", "-Wl,--no-as-needed", "libcudart.so", "-o", "needs")):
            subprocess.run([base.CC, *arguments], cwd=self.folder, check=True, timeout=60)
        os.remove(self.path("libcudart.so"))
        for arguments, said in (((), True), (("--sim", ), False)):
            out = self.command("doctor", *arguments, self.path("needs")).stdout
            self.assertEqual("found in no folder" in " ".join(out.split()), said, out)

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

    def test_variables(self):
        """doctor finds libraries with functions in variables, both before the start and in a live
        program."""
        library = self.path("libnamed.so")
        self.assertTrue(self.compile("libnamed.so", "int (*cuInit)(unsigned); int (*cuOwn)(void);",
                                     "-shared", "-fPIC"))
        self.assertTrue(self.compile(
            "named", "#include <stdio.h>\n#include <unistd.h>\nextern int (*cuInit)(unsigned);\n"
            "int main(void) { puts(cuInit ? \"?\" : \"ready\"); fflush(stdout); return pause(); }",
            library))
        found = self.doctor("--", self.path("named"), LD_LIBRARY_PATH=self.folder)
        self.assertEqual(found["variables"][0], "note")
        self.assertIn("cuInit in " + library, found["variables"][1])
        self.assertNotIn("variables", self.doctor("--", "true"))
        with subprocess.Popen([self.path("named")], stdout=subprocess.PIPE) as program:
            program.stdout.readline()
            found = self.doctor(str(program.pid))
            program.kill()
        self.assertIn("cuInit in " + library, found["variables"][1])

    def test_other_preloads(self):
        """If two preloaded libraries define a function, doctor names the first. Runtimes do not count."""
        saver = self.compile("saver.so", "int cudaMalloc(void **p, long n) { return !p + n < 0; }",
                             "-shared", "-fPIC")
        driver = self.compile("driver.so", "int cuInit(unsigned f) { return (int)f; }", "-shared",
                              "-fPIC")
        runtime = self.compile("runtime.so", "int cudaMalloc(void **p, long n) { return !p + n < 0; }"
                               "void __cudaRegisterFatBinary(void) {}", "-shared", "-fPIC")
        ours = self.compile("libaccelcache.so", "int unused;", "-shared", "-fPIC")
        for preload, words in ((saver, "cudaMalloc as well, and stands behind"),
                               (f"{saver}:{ours}", "stands before the library"),
                               (f"{ours} {saver}", "fast path is off"),
                               (f"{ours}:{driver}", "calls the driver itself")):
            level, text = self.doctor(LD_PRELOAD=preload)["preloaded"]
            self.assertEqual(level, "note")
            self.assertIn(words, text)
        self.assertNotIn("preloaded", self.doctor(LD_PRELOAD=f"{ours}:{runtime}"))

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
        self.assertIn("in its container", self.expect(2, "doctor", "123@4026531000").stderr)


class Main(base.CommandTest):
    def test_main(self):
        self.assertIn("Subcommands", self.expect(0, "--help").stdout)
        self.assertIn("Subcommands", self.expect(2).stderr)
        self.assertIn('no subcommand "x"', self.expect(2, "x").stderr)
        self.assertRegex(self.expect(0, "--version").stdout, r"^accelcache \d+\.\d+\.\d+\n$")
        for name in ("run", "stat", "config", "doctor"):
            self.assertIn("Exit status", self.expect(0, name, "--help").stdout)



class Figures(base.CommandTest):
    """Advice that doctor derives from a program's statistics."""

    def advice(self, document, *options):
        self.write("dump.json", json.dumps(document))
        result = self.expect(0, "doctor", "--json", "--dump", "dump.json", *options)
        return [(row["level"], row["topic"], row["text"])
                for row in json.loads(result.stdout)["findings"]]

    def document(self, free_sync="false", **counters):
        document = json.loads(self.fixture("dump", "exit"))
        document["config"]["effective"]["free_sync"] = free_sync
        for name, count in counters.items():
            device = document["devices"][0]["counters"]
            holder = device if name in device else document["counters"]
            self.assertIn(name, holder)
            holder[name] = count
        return document

    def free_sync(self, **figures):
        rows = [row for row in self.advice(self.document(**figures)) if row[1] == "free_sync"]
        self.assertEqual(len(rows), 1)
        return rows[0]

    def test_free_sync(self):
        self.assertIn("nothing was freed", self.free_sync()[2])
        level, _, text = self.free_sync(ready_frees=1200)
        self.assertEqual(level, "ok")
        self.assertIn("none of the 1,200 frees found work pending", text)
        level, _, text = self.free_sync(ready_frees=1000, fenced_frees=200, ordered_frees=34)
        self.assertEqual(level, "note")
        self.assertIn("234 of 1,234 frees found work pending", text)
        self.assertIn("free_sync:true", text)
        level, _, text = self.free_sync(free_sync="auto", ready_frees=1, fenced_frees=2)
        self.assertIn("2 of 3 frees found work pending", text)
        self.assertIn("and awaits other results itself, needs free_sync:true", text)
        level, _, text = self.free_sync(free_sync="auto", ready_frees=1, fenced_frees=2,
                                        free_waits=2, free_wait_ns=3210000)
        self.assertEqual(level, "note")
        self.assertIn("2 of 3 frees waited, 3.21 ms in all", text)
        level, _, text = self.free_sync(free_sync="true", ready_frees=5)
        self.assertEqual(level, "note")
        self.assertIn("on: each of the 5 frees waited", text)

    def test_counters_that_should_be_zero(self):
        self.assertEqual({row[1] for row in self.advice(self.document())},
                         {"dump", "free_sync", "exports"})
        rows = self.advice(self.document(bad_frees=3, internal_failures=4, unknown_functions=5,
                                         fences_legacy=6, fences_sync=7))
        texts = [text for _, topic, text in rows if topic not in ("dump", "free_sync", "exports")]
        self.assertEqual([text.split()[0] for text in texts], ["3", "4", "5", "6", "7"])

    def test_requests_left_to_the_driver(self):
        document = self.document(passed_async=1214, passed_async_exportable=1200,
                                 passed_async_capture=14, async_allocs=622)
        rows = [text for _, topic, text in self.advice(document) if topic == "streams"]
        line = ("1,214 of 1,836 stream-ordered requests left to the driver: 1,200 exportable pool, "
                "14 capture")
        self.assertEqual(rows[0], line)
        self.assertEqual([row.split()[0] for row in rows[1:]], ["1,200", "14"])
        self.assertIn("handle type NONE", rows[1])
        self.write("dump.json", json.dumps(document))
        self.assertIn(f"\n{line}\n", self.expect(0, "stat", "dump.json").stdout)
        old = self.document(passed_async=7) # a version without reasons wrote this
        rows = [text for _, topic, text in self.advice(old) if topic == "streams"]
        self.assertEqual(rows, ["7 of 7 stream-ordered requests left to the driver"])

    def test_dump_that_cannot_be_read(self):
        self.assertIn("No such file", self.expect(1, "doctor", "--dump", "none.json").stdout)
        self.write("cut.json", self.fixture("dump", "exit")[:99])
        self.assertIn("ends too early", self.expect(1, "doctor", "--dump", "cut.json").stdout)

    def test_usage(self):
        self.assertIn("--dump takes no program",
                      self.expect(2, "doctor", "--dump", "x.json", "123").stderr)

    def test_real_program(self):
        program = os.path.join(os.path.dirname(base.COMMAND), "bench_multistream")
        if not base.LIBRARY or not os.path.exists(program):
            self.skipTest("the library or its benchmark is not built")
        variables = {"LD_LIBRARY_PATH": base.SIM_DIR, "ACCEL_SIM": "clock:virtual",
                     "LD_PRELOAD": f"{base.SANITIZER}:{base.LIBRARY}".lstrip(":")}
        told = {}
        for setting in ("false", "true"):
            dump = self.path(setting + ".json")
            subprocess.run([program, "--iterations", "2", "--passes", "1"], check=True, timeout=200,
                           stdout=subprocess.DEVNULL,
                           env={**self.environment, **variables,
                                "ACCEL_ALLOC_CONF": f"dump:{dump},free_sync:{setting}"})
            told[setting] = self.expect(0, "doctor", "--dump", dump).stdout
        self.assertRegex(told["false"], r"free_sync +[1-9]\d* of [1-9]\d* frees found work")
        self.assertRegex(told["true"], r"free_sync +on: each of the [1-9]\d* frees")


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "needs libaccelcache.so and the simulator")
class Shares(base.CommandTest):
    """Blocks that a program exported, and the costs of these exports."""

    PROGRAM = """
    #include <stdio.h>
    #include <unistd.h>
    typedef unsigned long long ptr;
    typedef struct { char bytes[64]; } handle;
    int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
    int cuMemAlloc_v2(ptr *, unsigned long), cuMemFree_v2(ptr), cuIpcGetMemHandle(handle *, ptr);
    int main(int argc, char **argv) {
        void *context;
        ptr small[24], large;
        handle h;
        int failed = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
        for (int i = 0; i < 24; i++)
            failed |= cuMemAlloc_v2(&small[i], 4096 * (i == 5 ? 3 : 1));
        for (int i = 0; i < 12 && argc > 1; i++)
            failed |= cuIpcGetMemHandle(&h, small[i]);
        failed |= cuMemAlloc_v2(&large, 256 << 20);
        if (argc > 2)
            failed |= cuIpcGetMemHandle(&h, large);
        for (int i = 0; i < 2; i++)
            failed |= cuMemFree_v2(small[i]);
        puts(failed ? "failed" : "ready");
        fflush(stdout);
        return read(0, &failed, 1) != 0;
    }
    """

    def setUp(self):
        super().setUp()
        self.program = self.compile("program", self.PROGRAM, "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        self.assertTrue(self.program)

    def start(self, *arguments, conf=""):
        process = subprocess.Popen([base.COMMAND, "run", "--sim", "--dump", "out.json", "--conf",
                                    conf, "--", self.program, *arguments], cwd=self.folder,
                                   env=self.environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for end in (process.wait, process.kill, process.stdin.close, process.stdout.close):
            self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def rows(self, topic, *arguments):
        whole = json.loads(self.expect(0, "doctor", "--json", *arguments).stdout)
        return [row["text"] for row in whole["findings"] if row["topic"] == topic]

    def test_blocks(self):
        process = self.start("export", "large")
        text, segments = self.rows("exports", str(process.pid))
        self.assertIn("12 blocks were given an IPC handle; 48.0 KiB of them are held now", text)
        self.assertIn("1 segments were shared as a whole", segments)
        blocks = self.rows("exported", str(process.pid))
        self.assertEqual(len(blocks), 9)
        self.assertRegex(blocks[0], r"^12\.0 KiB at byte \d+ of a segment of 2.00 MiB on GPU-7369")
        for block in blocks[1:8]:
            self.assertRegex(block, r"^4\.00 KiB at byte \d+ of a segment of 2\.00 MiB on GPU-7369")
        self.assertEqual(len(set(blocks)), 9)
        self.assertEqual(blocks[8], "2 smaller ones, 8.00 KiB together")
        out = self.expect(0, "stat", str(process.pid)).stdout
        self.assertRegex(out, r"shared with other processes  .*\n  exports +12 +blocks")
        self.assertRegex(out, r"(?m)^  held now +48\.0 KiB ")
        self.assertNotIn("refusals", out)
        process.stdin.close()
        self.assertEqual(process.wait(timeout=200), 0)
        text, _ = self.rows("exports", "--dump", "out.json")
        self.assertIn("12 blocks were given an IPC handle", text)

    def test_nothing_shared(self):
        process = self.start()
        self.assertEqual(self.rows("exports", str(process.pid)),
                         ["no memory was shared with other processes: it costs nothing"])
        self.assertEqual(self.rows("exported", str(process.pid)), [])
        self.assertNotIn("shared with other", self.expect(0, "stat", str(process.pid)).stdout)

    def test_refused(self):
        self.program = self.compile("refused", self.PROGRAM.replace(
            "failed |= cuIpcGetMemHandle(&h, small[i]);", "cuIpcGetMemHandle(&h, small[i]);"),
            "-L" + base.SIM_DIR, "-l:libcuda.so.1")
        process = self.start("export", conf="ipc:off")
        text, = self.rows("exports", str(process.pid))
        self.assertIn("12 IPC handles were refused: ipc:off asks for that", text)
        self.assertRegex(self.expect(0, "stat", str(process.pid)).stdout,
                         r"(?m)^  refusals +12 +of handles asked for")

    def test_a_table_that_is_damaged(self):
        """A damaged table, or another file in its place, neither blocks the command nor crashes it."""
        process = self.start("export")
        home = os.path.join(self.live, f"accelcache-{os.geteuid()}")
        table, = [os.path.join(home, name) for name in os.listdir(home) if name.endswith(".ipc")]
        with open(table, "rb") as file:
            good = file.read()
        for content in (b"", good[:100], good[:191 * 5], b"\xff" * len(good),
                        b"x" + good[1:]):
            os.remove(table)
            with open(table, "wb") as file:
                file.write(content)
            self.assertEqual(self.rows("exported", str(process.pid)), [])
        os.remove(table)
        os.mkfifo(table)
        self.assertEqual(self.rows("exported", str(process.pid)), [])


if __name__ == "__main__":
    base.main()
