#!/usr/bin/env python3
"""The suite for a GPU, without one: test_suite.py BUILD [TEST...]

Tests the suite with tables of its own: checks that misbehave, no GPU, budgets.  The real table runs
on the simulated device."""
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
GPU = os.path.dirname(HERE)
QUALIFY = os.path.join(GPU, "qualify")
BUILD = None
sys.dont_write_bytecode = True
sys.path[:0] = [GPU, HERE]

import lines
import results

# Source text of checks, by name; {python} runs them.
GOOD = '{"check": "good", "result": "pass", "value": 1.5, "unit": "ms", "peers": {"other": 2}}'
PROGRAMS = {
    "good": "print(%r)" % GOOD,
    "failing": """print('{"check": "wrong", "result": "fail", "reason": "seven is no even number"}')
               sys.exit(1)""",
    "crash": """print('{"check": "before", "result": "pass"}', flush=True)
             os.kill(os.getpid(), signal.SIGSEGV)""",
    "abort": """print("about to fall over", file=sys.stderr, flush=True); os.abort()""",
    # The child leaves the process group and would hold a pipe of its parent open.
    "hang": """import subprocess
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True)
            print('{"check": "early", "result": "fact", "value": "yes"}', flush=True)
            time.sleep(600)""",
    "garbage": """print("Segmentation fault, or so"); print('{"check": "x", "result": "fine"}')
               print('{"check": "y", "result": "pass", "value": NaN}'); print("[1, 2]")
               print('{"check": "z", "result": "fail"}')
               os.write(1, b'\\xff\\xfe\\n'); print('{"check": "kept", "result": "pass"}')""",
    "silent": "pass",
    "status": "print('no such symbol', file=sys.stderr); sys.exit(3)",
    "lying": """print('{"check": "lie", "result": "fail", "reason": "it is"}')""",
    "unsaid": "sys.exit(1)",
    "nothing": "print('no module torch', file=sys.stderr); sys.exit(77)",
    "twice": """for _ in range(2): print('{"check": "again", "result": "pass"}')""",
    "stolen": "print(%r)" % GOOD,
    "slow": "time.sleep(600)",
}
# Start of the programs for same=True: allocates device memory through the driver.
DEVICE = """
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1")
    context, at = ctypes.c_void_p(), ctypes.c_uint64()
    for error in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                  cuda.cuCtxSetCurrent(context)):
        assert error == 0, error
    for _ in range(3):
        assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20)) == 0
        assert cuda.cuMemFree_v2(at) == 0
    preloaded = "libaccelcache" in os.environ.get("LD_PRELOAD", "")
"""
COMPARED = {
    "equal": DEVICE + "    print('sum', 0.1 + 0.2)",
    "other": DEVICE + "    print('sum', 2 if preloaded else 1)",
    "near": DEVICE + "    print('loss', 1 + 1e-9 * time.time_ns() % 1e-6)",
    "far": DEVICE + "    print('loss', 1.5 if preloaded else 1 + 1e-9 * time.time_ns() % 1e-6)",
    "unserved": "print('nothing to do with a device')",
    "mute": DEVICE,
    "dying": DEVICE + "    sys.exit(4 if preloaded else 0)",
    "absent": "print('cuBLAS is not here', file=sys.stderr); sys.exit(77)",
}


def qualify(*arguments, **variables):
    env = {key: value for key, value in os.environ.items()
           if key not in ("LD_PRELOAD", "ACCEL_SIM", "LD_LIBRARY_PATH")}
    env.update(variables)
    return subprocess.run([QUALIFY, "--build", BUILD, *arguments], capture_output=True, text=True,
                          check=False, env=env, timeout=1200)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, name, text):
        path = os.path.join(self.folder, name + ".py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import os, signal, sys, time\n" + inspect.cleandoc(text) + "\n")
        return path

    def table(self, rows, parts=None):
        path = os.path.join(self.folder, "table.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import sys\nsys.path.insert(0, %r)\nfrom typing import NamedTuple\n" % GPU)
            # The row type of the real table, without its rows.
            with open(os.path.join(GPU, "checks.py"), encoding="utf-8") as real:
                text = real.read()
            file.write(text[text.index("class Check"):text.index("# part:")]
                       .replace("Optional[str]", "object"))
            file.write("PARTS = %r\nNOT_BUILT = {'wings': 'wings'}\nCHECKS = (\n%s\n)\n" % (
                parts or {1: ("One", 50), 2: ("Two", 10)}, ",\n".join(rows) + ","))
        return path

    def suite(self, rows, *arguments, parts=None):
        """Runs the suite. Returns (result file, lines by name, completed process)."""
        out = os.path.join(self.folder, "out")
        done = qualify("--sim", "--out", out, "--checks", self.table(rows, parts), *arguments)
        with open(os.path.join(out, "simulated.json"), encoding="utf-8") as file:
            result = json.load(file)
        found = {line["check"]: line for part in result["parts"] for check in part["checks"]
                 for line in check["lines"]}
        return result, found, done

    def row(self, name, text, declared=(), more="limit=20"):
        return "Check(part=1, name=%r, lines=%r, command=('{python}', %r), %s)" % (
            name, tuple(declared), self.program(name, text), more)


class Misbehaviour(Folder):
    def expect(self, name, declared, result, *words, more="limit=20", line=None):
        _, found, done = self.suite([self.row(name, PROGRAMS[name], declared, more)])
        line = line or declared[0]
        self.assertIn(line, found, (found, done))
        self.assertEqual(found[line]["result"], result, found)
        for word in words:
            self.assertIn(word, found[line].get("reason", ""))
        self.assertEqual(done.returncode, 1 if result == "fail" else 0, done)
        return found

    def test_good(self):
        found = self.expect("good", ["good"], "pass")
        self.assertEqual((found["good"]["value"], found["good"]["peers"]), (1.5, {"other": 2}))

    def test_failing(self):
        self.expect("failing", ["wrong"], "fail", "seven")

    def test_crash(self):
        found = self.expect("crash", ["before", "after"], "fail", "SIGSEGV", line="after")
        self.assertEqual(found["before"]["result"], "pass")

    def test_crash_after_everything(self):
        self.expect("crash", ["before"], "fail", "SIGSEGV", line="crash.end")

    def test_abort(self):
        self.expect("abort", ["any"], "fail", "SIGABRT", "about to fall over")

    def test_hang(self):
        begin = time.monotonic()
        found = self.expect("hang", ["early", "late"], "fail", "time: still running after 8.0 s",
                            more="limit=8", line="late")
        self.assertEqual(found["early"]["value"], "yes")
        self.assertLess(time.monotonic() - begin, 200)
        left = subprocess.run(["pgrep", "-f", "import time; time.sleep.600."], check=False,
                              capture_output=True, text=True).stdout.split()
        mine = [pid for pid in left if self.folder in read_environment(pid)]
        self.assertEqual(mine, [], "a child of the killed check goes on")

    def test_nothing_stays(self):
        """The suite removes scratch folders and the counters of killed processes."""
        names = os.path.join(self.folder, "names")
        program = self.program("killed", DEVICE + """
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        print(*(os.listdir(os.environ["ACCEL_LIVE_DIR"]) or ["no counters"]), file=file)
        print(os.environ["ACCEL_LIVE_DIR"], file=file)
        print(os.getcwd(), file=file)
    os.kill(os.getpid(), signal.SIGKILL)""")
        self.suite(["Check(part=1, name='killed', lines=('word',), limit=20, command=('env', "
                    "'LD_PRELOAD=%s/lib/libaccelcache.so', '{python}', %r, %r))" % (
                        BUILD, program, names)])
        with open(names, encoding="utf-8") as file:
            counters, *folders = file.read().splitlines()
        self.assertRegex(counters, "^accelcache-")
        self.assertEqual(len(folders), 2)
        for folder in folders:
            self.assertFalse(os.path.exists(folder), folder)

    def test_garbage(self):
        found = self.expect("garbage", ["kept"], "fail", "6 line(s)", "is no JSON", "Segmentation",
                            line="garbage.output")
        self.assertEqual(found["kept"]["result"], "pass")

    def test_silent(self):
        self.expect("silent", ["word"], "fail", "did not report it (exit status 0)")

    def test_status(self):
        self.expect("status", ["word"], "fail", "exit status 3", "no such symbol")

    def test_lying(self):
        self.expect("lying", ["lie"], "fail", "though a line failed", line="lying.end")
        self.expect("unsaid", [], "fail", "without a line that failed", line="unsaid.end")

    def test_nothing(self):
        self.expect("nothing", ["one", "two"], "skip", "no module torch", line="two")

    def test_names(self):
        self.expect("twice", ["again"], "fail", "comes twice", line="twice.output")
        _, found, _ = self.suite([self.row("good", PROGRAMS["good"], ["good"]),
                                  self.row("stolen", PROGRAMS["stolen"], ["good"])])
        self.assertIn("another check", found["stolen.twice"]["reason"])

    def test_missing_programs(self):
        rows = ["Check(part=1, name='gone', command=('{build}/no-such',), limit=5, lines=('a',))",
                "Check(part=1, name='left', command=('{build}/no-such',), limit=5, lines=('b',), "
                "optional='nvcc')",
                "Check(part=1, name='wings', command=('{build}/no-such',), limit=5, lines=('c',), "
                "needs='wings')",
                "Check(part=1, name='real', command=('true',), limit=5, lines=('d',), sim=False)",
                "Check(part=1, name='bad', command=('no-such-command',), limit=5, lines=('e',))"]
        _, found, done = self.suite(rows)
        self.assertEqual({name: line["result"] for name, line in found.items()},
                         {"a": "fail", "b": "skip", "c": "skip", "d": "skip", "e": "fail"})
        self.assertIn("nvcc", found["b"]["reason"])
        self.assertEqual(found["c"]["reason"], "not built: wings")
        self.assertIn("cannot be started", found["e"]["reason"])
        self.assertEqual(done.returncode, 1)


def read_environment(pid):
    try:
        with open("/proc/%s/environ" % pid, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class Budgets(Folder):
    def test_part_is_used_up(self):
        rows = [self.row("slow", PROGRAMS["slow"], ["slow"], "limit=50"),
                self.row("good", PROGRAMS["good"], ["good"]),
                "Check(part=2, name='next', command=('{python}', %r), limit=10, lines=('good2',))"
                % self.program("next", PROGRAMS["good"].replace("good", "good2"))]
        result, found, _ = self.suite(rows, parts={1: ("One", 2), 2: ("Two", 20)})
        self.assertIn("time: still running", found["slow"]["reason"])
        self.assertIn("time: the part's", found["good"]["reason"])
        self.assertEqual(found["good2"]["result"], "pass")
        self.assertTrue(result["complete"])

    def test_scaled(self):
        rows = [self.row("slow", PROGRAMS["slow"], ["slow"], "limit=7")]
        result, found, _ = self.suite(rows, "--seconds", "30", parts={1: ("One", 60)})
        self.assertIn("after 3.5 s", found["slow"]["reason"])

    def test_what_is_left(self):
        """A part gets the time that earlier parts left. --seconds is shared by the parts that run."""
        rows = [self.row("good", PROGRAMS["good"], ["good"]),
                self.row("next", PROGRAMS["good"].replace("good", "next"), ["next"],
                         "limit=4").replace("part=1", "part=2")]
        for arguments, least in ((), 2), (("--parts", "2", "--seconds", "100"), 70):
            result, _, _ = self.suite(rows, *arguments, parts={1: ("One", 20), 2: ("Two", 2)})
            self.assertGreater(result["parts"][-1]["checks"][0]["limit"], least)

    def test_broken_off(self):
        out = os.path.join(self.folder, "out")
        table = self.table([self.row("good", PROGRAMS["good"], ["good"]),
                            self.row("slow", PROGRAMS["slow"], ["slow"], "limit=50")])
        child = subprocess.Popen([QUALIFY, "--build", BUILD, "--sim", "--out", out, "--checks",
                                  table], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for row in child.stdout:
            if "good" in row:
                break
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        with open(os.path.join(out, "simulated.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertIs(result["complete"], False)
        self.assertEqual([check["name"] for check in result["parts"][0]["checks"]], ["good"])
        with open(os.path.join(out, "SIMULATED.md"), encoding="utf-8") as file:
            self.assertIn("broken off", file.read())
        self.assertEqual(child.returncode, 1)


class Compared(Folder):
    def expect(self, name, result, *words, more="limit=60, same=True"):
        _, found, done = self.suite([self.row(name, COMPARED[name], (), more)])
        self.assertEqual(found[name]["result"], result, found)
        for word in words:
            self.assertIn(word, found[name].get("reason", found[name].get("evidence")))

    def test_equal(self):
        self.expect("equal", "pass", "bitwise", "3 requests served")

    def test_other(self):
        self.expect("other", "fail", "under the library", "1.0 | 2.0")

    def test_tolerance(self):
        self.expect("near", "fail", "two plain runs differ")
        self.expect("near", "pass", "within 1e-05", more="limit=60, same=True, tolerance=1e-5")
        self.expect("far", "fail", "1.5", more="limit=60, same=True, tolerance=1e-5")

    def test_not_under_the_library(self):
        self.expect("unserved", "fail", "not active")
        self.expect("mute", "fail", "printed nothing")

    def test_status(self):
        self.expect("dying", "fail", "exit status 0 plain, 4 under the library")
        self.expect("absent", "skip", "cuBLAS is not here")


class NoGpu(Folder):
    def expect_one_line(self, *arguments, **variables):
        out = os.path.join(self.folder, "out")
        done = qualify("--out", out, *arguments, **variables)
        self.assertEqual(done.returncode, 77, done)
        self.assertEqual(done.stderr, "")
        self.assertEqual(len(done.stdout.splitlines()), 1, done)
        self.assertTrue(done.stdout.startswith("qualify: no GPU: "), done)
        self.assertFalse(os.path.exists(out), "a result was written")

    def test_no_driver(self):
        self.expect_one_line("--driver", "/nonexistent/libcuda.so.1")

    def test_no_driver_at_all(self):
        if subprocess.run([sys.executable, os.path.join(HERE, "machine.py")], check=False,
                          capture_output=True).returncode != 77:
            self.skipTest("this machine has a GPU")
        self.expect_one_line()

    def test_no_device(self):
        self.expect_one_line("--sim", ACCEL_SIM="devices:0")

    def test_no_library_but_another_file(self):
        path = os.path.join(self.folder, "libcuda.so.1")
        with open(path, "w", encoding="utf-8") as file:
            file.write("no library at all")
        self.expect_one_line("--driver", path)

    def test_simulated_is_no_gpu(self):
        self.expect_one_line(LD_LIBRARY_PATH=os.path.join(BUILD, "sim"))


class Page(Folder):
    def test_tree(self):
        """RESULTS.md equals the page that the command makes from results.json next to it."""
        with open(os.path.join(GPU, "RESULTS.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), results.render(GPU))

    def test_every_word_is_there(self):
        rows = [self.row("good", PROGRAMS["good"], ["good"]),
                self.row("failing", PROGRAMS["failing"], ["wrong"]),
                self.row("nothing", PROGRAMS["nothing"], ["none"])]
        result, _, _ = self.suite(rows)
        page = results.page(result)
        for text in ("Simulated", "| good | pass | 1.5 ms |", "other 2 ms", "**FAIL**",
                     "seven is no even number", "no module torch",
                     "1 pass, 1 fail, 1 skip, 0 facts"):
            self.assertIn(text, page)
        with open(os.path.join(self.folder, "out", "SIMULATED.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), page)


class Device(Folder):
    """Runs the suite as on a GPU, to test how results are stored.  Nothing is measured.

    The driver is the simulated one, without the names that identify it.  Kernels do not compute."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(BUILD, "sim", "libcuda.so.1"), "rb") as file:
            driver = file.read()
        self.driver = os.path.join(self.folder, "libcuda.so.1")
        with open(self.driver, "wb") as file:
            file.write(driver.replace(b"simcuda_", b"another_"))
        self.out = os.path.join(self.folder, "out")

    def device(self, *arguments, **variables):
        done = qualify("--driver", self.driver, "--out", self.out, *arguments, **variables)
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertFalse(os.path.exists(os.path.join(self.out, "simulated.json")))
        return {line["check"]: line for part in result["parts"] for check in part["checks"]
                for line in check["lines"]}, done

    def test_taken_into_the_tree(self):
        keeps = """
            out = os.environ["QUALIFY_OUT"]
            for name, size in (("costs/card.csv", 9), ("traces/app.trace.xz", 99),
                               ("traces/long.xz", 9 << 20), ("notes/a", 1)):
                os.makedirs(os.path.dirname(os.path.join(out, name)), exist_ok=True)
                with open(os.path.join(out, name), "wb") as file:
                    file.write(bytes(size))
            print('{"check": "sim", "result": "fact", "value": "%s"}'
                  % os.environ.get("QUALIFY_SIM", "not set"))"""
        lines_found, done = self.device("--checks", self.table([self.row("keeps", keeps, ["sim"])]))
        self.assertEqual((lines_found["sim"]["value"], done.returncode), ("not set", 0))
        with open(os.path.join(self.out, "RESULTS.md"), encoding="utf-8") as file:
            page = file.read()
        self.assertTrue(page.startswith("# Results on a GPU\n"), page)
        # The results go into a separate checkout.
        tree = os.path.join(self.folder, "tree")
        shutil.copytree(GPU, os.path.join(tree, "tests", "gpu"),
                        ignore=shutil.ignore_patterns("kept", "__pycache__"))
        taken = subprocess.run([os.path.join(tree, "tests/gpu/qualify"), "--take", self.out],
                               capture_output=True, text=True, check=False)
        self.assertEqual(taken.returncode, 0, taken)
        with open(os.path.join(tree, "tests/gpu/RESULTS.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), page)
        self.assertEqual(results.render(os.path.join(tree, "tests/gpu")), page)
        self.assertTrue(os.path.exists(os.path.join(tree, "tools/simcuda/costs/card.csv")))
        self.assertEqual(sorted(os.listdir(os.path.join(tree, "tests/command/traces"))),
                         ["README.md", "app.trace.xz"])
        for word in ("long.xz", "notes"):
            self.assertIn(word, taken.stdout)

    def test_simulated_is_not_taken(self):
        os.mkdir(self.out)
        with open(os.path.join(self.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump({"schema": "accelcache-qualify", "simulated": True}, file)
        done = subprocess.run([QUALIFY, "--take", self.out], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not of a run on a GPU", done.stdout)

    def test_python_peers(self):
        """The suite measures Python allocators; a fake module replaces PyTorch."""
        self.program("torch", """
            class cuda:
                is_available = staticmethod(lambda: True)
                init = staticmethod(lambda: None)
                caching_allocator_alloc = staticmethod(lambda size: size)
                caching_allocator_delete = staticmethod(lambda pointer: None)""")
        self.program("rmm", "raise ImportError('no RMM here')")
        found, done = self.device("--only", "speed_rmm", "--only", "speed_torch", "--only",
                                  "speed_pairs", "--parts", "6", PYTHONPATH=self.folder)
        self.assertEqual(found["pair_torch_512"]["result"], "fact", found)
        self.assertIn("no RMM here", found["pair_rmm_512"]["reason"])
        # The toolkit's runtime does not work on this driver: the line is skipped.
        self.assertEqual(found["pair_shared_512"]["result"], "skip", done)
        self.assertEqual(set(found["replace"]["peers"]) & {"PyTorch (Python)", "RMM pool (Python)"},
                         {"PyTorch (Python)"})


class Helpers(Folder):
    """report.h, report.py and report.sh print what the suite reads."""

    def read(self, command):
        done = subprocess.run(command, capture_output=True, check=False, env=dict(
            os.environ, PYTHONPATH=GPU))
        rows = [lines.read_line(row) for row in done.stdout.decode("utf-8", "replace").splitlines()]
        self.assertEqual([fault for _, fault in rows if fault], [], done)
        self.assertEqual(done.returncode, 1, done)
        return {line["check"]: line for line, _ in rows}

    def expect(self, found, **results_of):
        self.assertEqual({name: line["result"] for name, line in found.items()}, results_of)

    def test_c(self):
        found = self.read([os.path.join(BUILD, "tests/gpu/gpu_report_words")])
        self.expect(found, **{"pass": "pass", "skip": "skip", "answer_wanted": "pass",
                              "fact": "fact", "value": "fact", "figure": "pass", "long": "pass",
                              "fail": "fail", "answer_unwanted": "fail", "figure_above": "fail",
                              "figure_none": "fail"})
        self.assertEqual(found["pass"]["evidence"],
                         "quote \" backslash \\ tab newline bell \a caf\u00e9")
        self.assertEqual(found["figure"]["peers"], {"cudaMalloc \"bare\"": 1.5, "none": None})
        self.assertEqual((found["fact"]["value"], found["value"]["value"]), ("no", 1e-9))
        self.assertTrue(found["long"]["evidence"].startswith('"' * 1900))

    def test_python(self):
        path = self.program("words", """
            import report
            report.passed("pass", "quote \\" newline \\n", value=1.5, unit="ms")
            report.skipped("skip", "needs a GPU"); report.answer("answer", True, False, "seen")
            report.fact("fact", False, "seen"); report.figure("figure", 61, "ns", most=60,
                                                              peers={"other": 2})
            report.figure("none", float("nan"), "ns"); report.failed("long", "x" * 5000)
            sys.exit(report.end())""")
        found = self.read([sys.executable, path])
        self.expect(found, **{"pass": "pass", "skip": "skip", "answer": "fail", "fact": "fact",
                              "figure": "fail", "none": "fail", "long": "fail"})
        self.assertEqual(found["figure"]["bound"], "<= 60")

    def test_bash(self):
        script = ('. "$0/report.sh"; report_pass pass "quote \\" back \\\\ $(printf "a\\nb\\tc\\a")";'
                  'report_skip skip why; report_value value 1.5 ms seen; report_fail fail because;'
                  'report_end')
        found = self.read(["bash", "-c", script, GPU])
        self.expect(found, **{"pass": "pass", "skip": "skip", "value": "fact", "fail": "fail"})
        self.assertEqual(found["pass"]["evidence"], 'quote " back \\ a b c')


class Table(unittest.TestCase):
    """The real table on the simulated device, in a short time."""

    def test_every_declared_line(self):
        import checks
        with tempfile.TemporaryDirectory() as folder:
            done = qualify("--sim", "--out", folder, "--seconds", "50")
            with open(os.path.join(folder, "simulated.json"), encoding="utf-8") as file:
                result = json.load(file)
        self.assertTrue(result["complete"], done)
        by_name = {check["name"]: check for part in result["parts"] for check in part["checks"]}
        for row in checks.CHECKS:
            found = by_name[row.name]["lines"]
            declared = (row.name,) if row.same else row.lines
            self.assertTrue(declared, row.name)
            self.assertEqual(lines.missing(declared, found), [], row.name)
            for line in found:
                # A machine that is busy may be too slow for so short a time.
                self.assertTrue(line["result"] != "fail" or "time: " in line["reason"],
                                (row.name, line, by_name[row.name].get("stderr")))

    def test_names(self):
        import checks
        names = [row.name for row in checks.CHECKS]
        self.assertEqual(len(names), len(set(names)))
        for row in checks.CHECKS:
            self.assertIn(row.part, checks.PARTS)
            self.assertTrue(row.needs is None or row.needs in checks.NOT_BUILT)
            for name in row.lines:
                self.assertTrue(lines.NAME.match(name.rstrip("*")), name)
        self.assertLessEqual(sum(seconds for _, seconds in checks.PARTS.values()), 480 - 30)


if __name__ == "__main__":
    BUILD = os.path.realpath(sys.argv.pop(1))
    unittest.main()
