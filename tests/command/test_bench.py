"""accelcache-dev bench: the format of its output, peers that are missing or fail, and wrong command lines. The
tests run few pairs: they measure nothing, and accept any figures."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

import base

SIZES = ("512", "65536", "1048576", "67108864")
THREADS = ("1", "2", "4", "8", "16")
BLOCKS = ("1000", "10000", "100000")
PEERS = ("accelcache", "bare", "cub", "rmm_pool", "glibc", "mimalloc")
ROWS = ("hot", "hot_64m_expandable", "two_sizes", "sizes_200", "sizes_200_launch", "step",
        "backwards", "async", "async_idle", "handover_1m", "replace_1000_launch", "threads_100",
        "static_runtime", "driver", "c_api")
FEW = ("--sim", "--rounds", "1", "--pairs", "12")
BUILD = os.path.dirname(os.path.dirname(base.COMMAND))

# Stand-ins for the modules that peers.py calls. They fail if a block comes back that they did not give out.
FAKE_RMM = """
class mr:
    class CudaMemoryResource:
        pass

    class PoolMemoryResource:
        def __init__(self, upstream):
            self.upstream, self.given = upstream, {}

        def allocate(self, size):
            self.given[len(self.given)] = size
            return len(self.given) - 1

        def deallocate(self, pointer, size):
            assert self.given[pointer] == size
"""
FAKE_TORCH = """
class cuda:
    given = []
    is_available = staticmethod(lambda: True)
    init = staticmethod(lambda: None)
    caching_allocator_alloc = staticmethod(lambda size: cuda.given.append(size) or size)
    caching_allocator_delete = staticmethod(lambda pointer: cuda.given.remove(pointer))
"""


@unittest.skipUnless(base.LIBRARY and base.SIM_DIR, "the library is not built")
class Bench(base.CommandTest):
    def bench(self, *arguments, **variables):
        whole = json.loads(self.expect(0, "bench", *FEW, "--json", *arguments,
                                       **variables).stdout)
        self.assertEqual((whole["schema"], whole["version"]), ("accelcache-bench", 1))
        self.assertIs(whole["simulated"], True)
        return whole

    def test_a_signal_leaves_no_folder(self):
        """A signal removes the temporary files, as a normal end does."""
        place = self.path("temporary")
        os.mkdir(place)
        environment = dict(self.environment, TMPDIR=place)
        child = subprocess.Popen([base.DEV, "bench", "--sim", "--only", "observe"], env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        deadline = time.monotonic() + 60
        while not any(files for _, _, files in os.walk(place)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(len(os.listdir(place)), 1)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(timeout=60), -signal.SIGINT)
        self.assertEqual(os.listdir(place), [])

    def running(self, word):
        """Returns the PIDs of processes that have the word in their environment and have not ended."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environment:
                    if word.encode() in environment.read():
                        found.add(int(pid))
            except OSError:  # the process has ended, or belongs to another user
                pass
        return found

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(condition())

    def test_a_signal_ends_what_was_started(self):
        """A signal to the command ends its child too. The child is stopped, so that it cannot end by itself."""
        def stop(word, bench):
            for pid in self.running(word) - {bench.pid}:
                try:
                    if os.readlink(f"/proc/{pid}/exe") != os.readlink(f"/proc/{bench.pid}/exe"):
                        os.kill(pid, signal.SIGSTOP)
                    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                        return stat.read().rpartition(")")[2].split()[0] in "tT"
                except OSError:  # the process has ended
                    pass
            return False

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            word = f"{self.path('word')}-{number}"
            command = (base.DEV, "bench", "--sim", "--only", "hot")
            with subprocess.Popen(command, env=dict(self.environment, WORD=word),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
                try:
                    self.wait_until(lambda: stop(word, bench))
                    bench.send_signal(number)
                    self.assertEqual(bench.wait(timeout=60), -number)
                    self.wait_until(lambda: not self.running(word))
                finally:
                    for pid in self.running(word):
                        os.kill(pid, signal.SIGKILL)

    def test_observe(self):
        """The part "observe" runs only if it is named. It compares ways of observing with no observation."""
        whole = self.bench("--only", "observe")
        rows = whole["observe"]
        self.assertEqual(list(rows)[0], "off")
        self.assertLessEqual({"control", "dump_interval", "prometheus", "trace", "guard_1000", "guard_1",
                              "fill"}, set(rows))
        for name, row in rows.items():
            for loop in ("hit", "miss"):
                self.assertGreater(row[f"{loop}_ns"], 0, name)
                if name != "off":
                    self.assertAlmostEqual(row[f"{loop}_added_ns"],
                                           row[f"{loop}_ns"] - rows["off"][f"{loop}_ns"], delta=0.01)
        self.assertEqual([name for name in whole["skipped"] if name.startswith("observe")], [])
        self.assertNotIn("observe", self.bench("--only", "hot"))
        out = self.expect(0, "bench", *FEW, "--only", "observe").stdout
        self.assertIn("guard: one request in 1,000", out)

    def present(self, whole, part):
        """Returns the peers of a part that were measured. Each other peer must have a reason under "skipped"."""
        peers = [peer for peer in PEERS
                 if peer not in whole["skipped"] and f"{part}/{peer}" not in whole["skipped"]]
        self.assertTrue({"accelcache", "bare", "glibc"} <= set(peers), whole["skipped"])
        return peers

    def assert_figures(self, row, keys):
        for key in keys:
            self.assertIsInstance(row[key], (int, float), (row, key))
            self.assertGreater(row[key], 0, (row, key))

    def test_pairs(self):
        whole = self.bench("--only", "hot_pair", "replace", "threads,cross")
        self.assertEqual(list(whole["hot_pair"]), list(SIZES))
        for size in SIZES:
            row = whole["hot_pair"][size]
            self.assert_figures(row, [f"{peer}_ns" for peer in self.present(whole, "hot_pair")])
            self.assert_figures(row, ("static_ns", "driver_ns"))
            passes = whole["passes"]["hot_pair"][size]["accelcache_ns"]
            self.assertGreaterEqual(passes["passes"], 3)
            self.assertLessEqual(passes["least"], row["accelcache_ns"])
            self.assertLessEqual(row["accelcache_ns"], passes["greatest"])
        for part in ("replace_ns", "cross_ns"):
            self.assertEqual(set(whole[part]), set(self.present(whole, part)))
            self.assert_figures(whole[part], self.present(whole, part))
        self.assertEqual(list(whole["threads"]), list(THREADS))
        for count in THREADS:
            self.assertEqual(set(whole["threads"][count]), set(self.present(whole, "threads")))
        # Parts that --only does not name are empty or absent. The keys that readers need are present.
        self.assertEqual(whole["blocks"], {})
        self.assertNotIn("startup", whole)
        # Allocators that need a GPU are skipped on the simulated device.
        self.assertIn("GPU", whole["skipped"]["torch"])

    def test_rows(self):
        whole = self.bench("--only", *ROWS)
        self.assertEqual(set(whole["rows"]), set(ROWS))
        self.assertNotIn("row_instructions", whole)
        self.assertEqual(whole["hot_pair"], {})
        for row, figures in whole["rows"].items():
            self.assert_figures(figures, ("accelcache",))
            passes = whole["passes"]["rows"][row]["accelcache"]
            self.assertLessEqual(passes["least"], figures["accelcache"])
        # Each peer that was built has figures for the loops that it can run. Other rows have no peer.
        for peer in {"cub", "rmm_pool"} - set(whole["skipped"]):
            for row in ("hot", "step", "sizes_200_launch", "async", "threads_100"):
                self.assert_figures(whole["rows"][row], (peer,))
        for row in ("hot_64m_expandable", "driver", "c_api"):
            self.assertEqual(list(whole["rows"][row]), ["accelcache"])

    def test_all_rows(self):
        listed = self.expect(0, "bench", "--help").stdout
        rows = re.findall(r"^  (\w+) +\S", listed[listed.index("Rows, "):].split("\n\n")[0], re.M)
        self.assertLess(set(ROWS), set(rows))
        out = self.expect(0, "bench", *FEW, "--without", "cub,rmm_pool", "--only", "rows").stdout
        table = out[out.index("ns of an allocation"):].split("Left out:")[0]
        self.assertEqual(len(re.findall(r"^  .* +\d+\.\d$", table, re.M)), len(rows), out)

    def test_shapes(self):
        """A shape is a row that runs only if --only names it. Each runs in the program that makes its calls."""
        listed = self.expect(0, "bench", "--help").stdout
        shapes = re.findall(r"^  (\w+) +\S", listed[listed.index("\nShapes, "):].split("\n\n")[0], re.M)
        some = ("hot_launch_64", "async_2", "made_pool", "growing", "captured", "pages_16", "brief", "copy_2d")
        self.assertLess(set(some), set(shapes))
        whole = self.bench("--only", *some)
        self.assertEqual(set(whole["rows"]), set(some))
        for figures in whole["rows"].values():
            self.assert_figures(figures, ("accelcache",))

    def test_left_out_everywhere(self):
        """--without removes a peer from every part."""
        whole = self.bench("--without", "bare", "--only", "multistream", "startup")
        for row in (*whole["multistream"].values(), *whole["startup"].values()):
            self.assertGreater(len([key for key in row if key.startswith("accelcache")]), 0)
            self.assertEqual([key for key in row if key.startswith("bare")], [])

    def test_machine(self):
        machine = self.bench("--only", "hot")["machine"]
        self.assertGreaterEqual(machine["cpus"], 1)
        self.assertGreaterEqual(machine["noise_mean"], 1)
        self.assertGreaterEqual(machine["noise_worst"], machine["noise_mean"])
        self.assertGreaterEqual(machine["load_before"], 0)
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            self.assertIn(machine["cpu"], info.read() + "unknown CPU")
        out = self.expect(0, "bench", *FEW, "--only", "hot").stdout
        self.assertIn(machine["cpu"], out)
        self.assertIn("one block of 64 KiB", out)

    @unittest.skipIf(base.SANITIZER, "valgrind does not run what a sanitizer instruments")
    def test_conf_of_a_row(self):
        # --conf does not replace the settings that define a row.
        whole = self.bench("--conf", "thread_cache_mb:0", "--only", "hot_64m_expandable", "hot_64m",
                           "--instructions", "--pairs", "400", "--without", "cub,rmm_pool")
        if "row_instructions" not in whole["skipped"]:
            counted = whole["row_instructions"]
            self.assertNotEqual(*[row["accelcache"] for row in counted.values()])

    @staticmethod
    def all_of(terminal):
        """Returns the output of a terminal after its other end was closed. The kernel delivers it in pieces."""
        said = b""
        with contextlib.suppress(OSError):  # EIO marks the end
            while part := os.read(terminal, 65536):
                said += part
        os.close(terminal)
        return said.decode()

    def test_progress(self):
        quiet = self.expect(0, "bench", *FEW, "--only", "hot")
        self.assertEqual(quiet.stderr, "")
        ours, terminal = os.openpty()
        command = [base.DEV, "bench", *FEW, "--only", "hot", "--json"]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                              stderr=terminal, stdin=subprocess.DEVNULL) as running:
            out = running.communicate(timeout=200)[0]
        os.close(terminal)
        said = self.all_of(ours)
        self.assertIn("hot: part 1 of 1, round 1 of 1", said)
        self.assertTrue(said.endswith("\r\x1b[K"), said)
        json.loads(out)

    def test_live_blocks(self):
        whole = self.bench("--only=blocks")
        for part in ("blocks", "blocks_replace"):
            self.assertEqual(list(whole[part]), list(BLOCKS))
            self.assert_figures(whole[part], BLOCKS)

    @unittest.skipIf(base.SANITIZER, "its runtime does not come first")
    def test_busy_machine(self):
        """If threads start late, the helper still runs enough pairs, or prints one line and fails."""
        def threads(late):
            return subprocess.run([os.path.join(BUILD, "libexec/accelcache/bench_host"), "threads",
                                   "bytes=65536", "threads=16", "passes=1", "us=8000", "cpu=1"],
                                  env=dict(self.environment, LD_PRELOAD=base.PRELOAD,
                                           COMMAND_TEST_BARRIER=str(late)),
                                  text=True, capture_output=True, timeout=200, check=False)

        result = threads(200)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(json.loads(result.stdout)["pairs"], 1000)
        result = threads(5100)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("the machine is too busy: 16 pairs", result.stderr)

    def test_work_in_between(self):
        whole = self.bench("--only", "tail", "launch", "hooks", "multistream")
        self.assert_figures(whole["tail"]["accelcache"], ("p50_ns", "p999_ns", "quiet_p999_ns"))
        for streams in ("1", "4"):
            row = whole["launch"][streams]
            self.assertAlmostEqual(row["beyond_ns"], row["pair_launch_ns"] -
                                   row["bare_launch_ns"] - row["pair_ns"], delta=0.01)
            self.assertGreaterEqual(row["fences_per_64"], 0)
        # A fence covers frees of up to 4 MiB on one stream. Each free here is of 1 MiB.
        self.assertLessEqual(whole["launch"]["1"]["fences_per_64"], 64 / 4)
        for call in ("cuLaunchKernel", "cuMemcpyAsync"):
            row = whole["hooks"][call]
            self.assertAlmostEqual(row["added_ns"], row["accelcache_ns"] - row["bare_ns"],
                                   delta=0.01)
        # The device has virtual time, so these figures are equal on all machines.
        self.assertLess(whole["multistream"]["plain"]["accelcache_ratio"], 1.5)
        self.assertGreater(whole["multistream"]["plain"]["bare_ratio"], 5)

    def test_processes(self):
        whole = self.bench("--only", "startup", "memory")
        for program in ("cuda", "cuda_dump", "true"):
            self.assert_figures(whole["startup"][program], ("bare_ms", "accelcache_ms"))
            for unit in ("ms", "cpu_ms"):
                row = whole["startup"][program]
                self.assertAlmostEqual(row[f"added_{unit}"], row[f"accelcache_{unit}"] -
                                       row[f"bare_{unit}"], delta=0.01)
        self.assert_figures(whole["memory"]["small_cuda"], ("bare_kib", "accelcache_kib"))
        self.assertGreaterEqual(whole["memory"]["blocks_65536"]["percent"], 0)

    @unittest.skipIf(base.SANITIZER, "valgrind does not run what a sanitizer instruments")
    def test_instructions(self):
        whole = self.bench("--only", "instructions", "hot", "driver", "--instructions", "--pairs",
                           "200", "--without", "cub,rmm_pool")
        if "row_instructions" not in whole["skipped"]:
            rows = whole["row_instructions"]
            self.assertEqual(set(rows), {"hot", "driver"})
            self.assertEqual(rows["hot"]["accelcache"],
                             whole["instructions"]["65536"]["accelcache"])
        for size in SIZES:
            if "accelcache" in whole.get("instructions", {}).get(size, {}):
                row = whole["instructions"][size]
                self.assert_figures(row, ("accelcache", "bare", "glibc"))
                # Values outside this range mean that the counters start or stop at a wrong place.
                self.assertTrue(20 < whole["instructions"]["512"]["glibc"] < 2000, row)
                self.assertEqual(whole["hot_pair"][size]["instructions"], row["accelcache"])
            else:
                self.assertTrue([name for name in whole["skipped"]
                                 if name.startswith("instructions")], whole)

    def test_no_valgrind(self):
        whole = self.bench("--only", "instructions", PATH=self.folder)
        self.assertEqual(whole["skipped"]["instructions"], "valgrind is not installed")
        self.assertNotIn("instructions", whole)

    # ------------------------------------------------------------ missing and failing peers

    def installation(self, leave_out):
        """Builds a copy of the command's installation, without the helpers in `leave_out`."""
        os.makedirs(self.path("bin"))
        os.makedirs(self.path("libexec/accelcache"))
        shutil.copy(base.DEV, self.path("bin/accelcache-dev"))
        os.symlink(os.path.dirname(base.LIBRARY), self.path("lib"))
        os.symlink(base.SIM_DIR, self.path("sim"))
        helpers = os.path.join(BUILD, "libexec/accelcache")
        for name in os.listdir(helpers):
            if name not in leave_out:
                os.symlink(os.path.join(helpers, name), self.path("libexec/accelcache/" + name))

    def run_installed(self, *arguments):
        return subprocess.run([self.path("bin/accelcache-dev"), "bench", *FEW, *arguments],
                              env=self.environment, text=True, cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=200, check=False)

    def test_missing_peers(self):
        self.installation(leave_out=("bench_cub", "bench_mimalloc", "bench_rmm"))
        result = self.run_installed("--only", "hot_pair", "replace", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        whole = json.loads(result.stdout)
        self.assertIn("bench_cub is not there: no CUDA toolkit",
                      whole["skipped"]["cub"])
        self.assertIn("libmimalloc-dev", whole["skipped"]["mimalloc"])
        self.assertIn("AC_RMM_INCLUDE_DIR", whole["skipped"]["rmm_pool"])
        for size in SIZES:
            self.assertNotIn("cub_ns", whole["hot_pair"][size])
            self.assertIn("glibc_ns", whole["hot_pair"][size])
        self.assertEqual(set(whole["replace_ns"]), {"accelcache", "bare", "glibc"})
        # The tables name missing peers too.
        result = self.run_installed("--only", "replace")
        self.assertIn("cub: bench_cub is not there", result.stdout)

    def test_failing_peers(self):
        self.installation(leave_out=("bench_cub", "bench_host"))
        self.write("libexec/accelcache/bench_cub", "#!/bin/sh\necho no good >&2\nexit 3\n", 0o755)
        # This helper exists, but fails at one of the workloads.
        real = os.path.join(BUILD, "libexec/accelcache/bench_host")
        self.write("libexec/accelcache/bench_host",
                   f"#!/bin/sh\n[ $1 != replace ] || kill -9 $$\nexec {real} \"$@\"\n", 0o755)
        result = self.run_installed("--only", "hot_pair", "replace", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        whole = json.loads(result.stdout)
        self.assertEqual(whole["skipped"]["cub"], "no good")
        self.assertIn("status 137", whole["skipped"]["replace_ns/glibc"])
        self.assertIn("glibc_ns", whole["hot_pair"]["512"])
        self.assertNotIn("glibc", whole["replace_ns"])

    def stopped(self, helper, action, form="--json"):
        """Replaces the helper with a script that runs `action` when the command first asks it for pairs.
        Returns the output, which must say that the measurement stopped."""
        shutil.rmtree(self.folder)
        os.makedirs(self.folder)
        self.installation(leave_out=(helper,))
        library = self.path("copy.so")
        shutil.copy(base.LIBRARY, library)
        real = os.path.join(BUILD, "libexec/accelcache", helper)
        action = action.format(library=library)
        self.write("libexec/accelcache/" + helper,
                   f"#!/bin/sh\n[ $1 != hot ] || {{ {action}; }}\nexec {real} \"$@\"\n", 0o755)
        result = self.run_installed("--rounds", "3", "--only", "hot_pair", "--lib", library, form)
        self.assertEqual(result.returncode, 1, result.stdout)
        if form != "--json":
            return result.stdout
        whole = json.loads(result.stdout)
        self.assertIn(whole["stopped"], result.stderr)
        self.assertIn("start again", whole["stopped"])
        return whole

    @unittest.skipIf(base.SANITIZER, "its runtime does not come first in a copy's programs")
    def test_another_build_meanwhile(self):
        """If a file is replaced during a run, the command keeps earlier figures and stops."""
        again = "cp {library} {library}.new; mv {library}.new {library}"
        whole = self.stopped("bench_host", again)
        self.assertIn("copy.so was replaced", whole["stopped"])
        for peer in ("accelcache", "bare", "glibc"):
            self.assertEqual(whole["passes"]["hot_pair"]["512"][peer + "_ns"]["passes"], 7)
        whole = self.stopped("bench_runtime", again)
        self.assertEqual(whole["hot_pair"], {})
        self.assertIn("Stopped in round 2 of 3:", self.stopped("bench_host", again, "--spread"))
        whole = self.stopped("bench_host", "rm {library}")
        self.assertIn("copy.so was removed", whole["stopped"])
        self.assertEqual(whole["passes"]["hot_pair"]["512"]["accelcache_ns"]["passes"], 7)
        whole = self.stopped("bench_host", "rm $0")
        self.assertIn("bench_host was removed", whole["stopped"])
        self.assertNotIn("glibc_ns", whole["hot_pair"]["512"])

    def test_without_the_library(self):
        self.installation(leave_out=("bench_runtime",))
        result = self.run_installed("--only", "replace")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("cannot be measured: bench_runtime is not there", result.stderr)
        self.assertIn("does not exist", self.expect(1, "bench", "--lib", "/none").stderr)

    def test_not_the_library(self):
        result = self.expect(1, "bench", *FEW, "--lib", base.PRELOAD, "--only", "replace")
        self.assertIn("the library was not loaded", result.stderr)

    def test_library_everywhere(self):
        preload = ":".join(filter(None, (base.SANITIZER, base.LIBRARY)))
        whole = json.loads(self.expect(0, "bench", *FEW, "--only", "replace", "--json",
                                       LD_PRELOAD=preload).stdout)
        self.assertEqual(list(whole["replace_ns"]), ["accelcache"])
        self.assertIn("LD_PRELOAD", whole["skipped"]["bare"])

    # ------------------------------------------------------------ a driver of the system

    def test_real_driver(self):
        # The simulated driver poses as a real one: the symbol that identifies it gets another name.
        with open(os.path.join(base.SIM_DIR, "libcuda.so.1"), "rb") as file:
            library = file.read()
        self.assertIn(b"simcuda_version", library)
        os.mkdir(self.path("driver"))
        self.write("driver/libcuda.so.1", library.replace(b"simcuda_version", b"another_version"))
        few = ("--rounds", "1", "--pairs", "12", "--only", "hot_pair", "replace", "blocks",
               "launch", "instructions", "--json")
        whole = json.loads(self.expect(0, "bench", *few,
                                       LD_LIBRARY_PATH=self.path("driver")).stdout)
        self.assertIs(whole["simulated"], False)
        self.assert_figures(whole["hot_pair"]["512"], ("accelcache_ns", "bare_ns", "async_ns",
                                                       "static_ns", "driver_ns"))
        self.assert_figures(whole["replace_ns"], ("accelcache", "bare", "async"))
        self.assertEqual(list(whole["blocks"]), list(BLOCKS))
        # Only the stand-in for the runtime works with this driver.
        self.assertIn("stand-in", whole["skipped"]["libcudart"])
        for peer in ("rmm", "torch"):  # the command asked Python, which found no working GPU
            self.assertNotIn("GPU only", whole["skipped"][peer])
        self.assertIn("--sim", whole["skipped"]["instructions"])
        # These modules answer as the real ones do.
        self.write("rmm.py", FAKE_RMM)
        self.write("torch.py", FAKE_TORCH)
        whole = json.loads(self.expect(0, "bench", *few, LD_LIBRARY_PATH=self.path("driver"),
                                       PYTHONPATH=self.folder).stdout)
        for peer in ("rmm", "torch"):
            self.assert_figures(whole["hot_pair"]["65536"], (f"{peer}_ns",))
            self.assert_figures(whole["replace_ns"], (peer,))
        whole = json.loads(self.expect(0, "bench", *few, "--sim",
                                       LD_LIBRARY_PATH=self.path("driver")).stdout)
        self.assertIs(whole["simulated"], True)

    def test_without(self):
        whole = self.bench("--only", "replace", "--without", "glibc,static")
        self.assertNotIn("glibc", whole["replace_ns"])
        for peer in ("glibc", "static"):
            self.assertIn("--without", whole["skipped"][peer])
        self.assert_figures(whole["replace_ns"], ("accelcache", "bare"))

    # ------------------------------------------------------------ text

    def test_tables(self):
        out = self.expect(0, "bench", *FEW, "--only", "hot_pair,replace").stdout
        self.assertIn("A driver whose calls cost nothing", out)
        for text in ("512 B", "64.0 MiB", "bare driver", "Left out:", "  torch: "):
            self.assertIn(text, out)
        self.assertNotIn("|", out)
        out = self.expect(0, "bench", *FEW, "--only", "driver", "hot_pair").stdout
        row, head = [line for line in out.splitlines() if "cuMemAlloc" in line]
        self.assertRegex(row, r"^  64 KiB by cuMemAlloc  ")  # a row and a column of equal name
        self.assertRegex(head, r"^  bytes .* cuMemAlloc  ")

    def test_markdown(self):
        out = self.expect(0, "bench", *FEW, "--markdown", "--only", "hot_pair", "replace").stdout
        tables = re.findall(r"(?:^\|.*\n)+", out, re.M)
        self.assertEqual(len(tables), 2)
        for table in tables:
            head, rule, *rows = table.splitlines()
            self.assertRegex(rule, r"^\|---\|(---:\|)+$")
            for row in rows:
                self.assertEqual(row.count("|"), head.count("|"))
            self.assertEqual(rule.count("|"), head.count("|"))
        self.assertEqual(len(tables[0].splitlines()), 2 + len(SIZES))

    # ------------------------------------------------------------ command line

    def test_usage(self):
        for arguments in (("--only",), ("--only", ""), ("--only", "ho"), ("--only", "cub,"),
                          ("--without", "cubs"), ("--without", "accelcache"),
                          ("--only", "replace", "nothing"), ("replace",), ("--rounds", "0"),
                          ("--rounds", "x"), ("--pass-us", "-1"), ("--pairs", ""),
                          ("--pairs", "1x"), ("--fast",), ("--json", "--markdown"),
                          ("--conf", "nonsense")):
            result = self.expect(2, "bench", *arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn("accelcache-dev bench", result.stderr)
        self.expect(2, "bench", ACCEL_ALLOC_CONF="nonsense")

    def test_help(self):
        out = self.expect(0, "bench", "--help").stdout
        for key in ("hot_pair", "replace_ns", "threads", "blocks", "skipped", "passes"):
            self.assertRegex(out, rf"\b{key}\b")


if __name__ == "__main__":
    base.main()
