"""accelcache stat: good, damaged and many dumps; running and killed processes."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import base


# Terminal commands with C0 and C1 characters, characters that reverse text, and a line break.
HOSTILE = "\033]0;x\a\033[2J\r\b\x7f\u009b31m\u202egnp\u2066\u200f\n"
SHOWN = "\\x1b]0;x\\x07\\x1b[2J\\x0d\\x08\\x7f\\u009b31m\\u202egnp\\u2066\\u200f\\x0a"


class Hostile(base.CommandTest):
    """Text in a file or in a program's name cannot control the terminal."""

    def spoil(self, value):
        if isinstance(value, dict):
            return {key: self.spoil(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.spoil(inner) for inner in value]
        return value + HOSTILE if isinstance(value, str) else value

    def assert_harmless(self, *texts):
        for text in texts:
            for c in text:
                self.assertTrue(c == "\n" or c.isprintable() or c in "\u2192", repr(text))

    def setUp(self):
        super().setUp()
        document = json.loads(self.fixture("dump", "exit"))
        schema = document["schema"]
        document = self.spoil(document)
        document["schema"] = schema
        document["hooks"][HOSTILE] = 7
        self.write("accelcache-1.json", json.dumps(document, ensure_ascii=False))

    def test_people(self):
        out = self.expect(0, "stat", "accelcache-1.json").stdout
        self.assertGreater(out.count(SHOWN), 5)
        self.assert_harmless(out)
        self.write("accelcache-2.json", self.fixture("dump", "exit"))
        name = f"accelcache-{HOSTILE}.json"
        os.rename(self.path("accelcache-2.json"), self.path(name))
        for command, status in ((("stat", "."), 0), (("stat", name), 0), (("stat", "x" + name), 1),
                                (("doctor", "--dump", "accelcache-1.json"), None),
                                (("doctor", "--dump", "x" + name), None), (("trace", name), 1),
                                (("replay", name), 1), (("tune", name), 1), ((HOSTILE,), 2),
                                (("config", "dump:x" + HOSTILE + "y"), None),
                                (("config", HOSTILE), None), (("replay", "--conf", HOSTILE, name), None),
                                (("run", "--lib", HOSTILE, "true"), 1), (("run", HOSTILE), 127)):
            with self.subTest(command=command):
                result = self.command(*command)
                if status is not None:
                    self.assertEqual(result.returncode, status, result.stderr)
                self.assert_harmless(result.stdout, result.stderr)

    def test_json(self):
        """JSON keeps the text of the file. Bytes that are not UTF-8 become U+FFFD."""
        out = self.expect(0, "stat", "--json", "accelcache-1.json").stdout
        self.assertIn(HOSTILE, json.loads(out)["hooks"])
        for command in (("config", "--json", b"dump:a\xffb"), ("config", "--json", b"\xff\x1b"),
                        ("doctor", "--json", b"/none/\xff")):
            with self.subTest(command=command):
                self.assertIn("\ufffd", json.dumps(json.loads(self.command(*command).stdout),
                                                   ensure_ascii=False))


class Files(base.CommandTest):
    def setUp(self):
        super().setUp()
        self.good = self.fixture("dump", "exit")
        self.write("accelcache-1.json", self.good)

    def test_one_in_full(self):
        out = self.expect(0, "stat", "--all", "accelcache-1.json").stdout
        lines = [line.split() for line in out.splitlines()]
        self.assertIn("reserved_bytes all 8.00 MiB 12.0 MiB 12.0 MiB 4.00 MiB".split(), lines)
        self.assertIn("large 8.00 MiB 12.0 MiB 12.0 MiB 4.00 MiB".split(), lines)
        self.assertIn("small 0 B 0 B 0 B 0 B".split(), lines)
        self.assertIn(["allocation", "all", "2", "2", "2", "0"], lines)
        self.assertRegex(out, r"cached_allocs +1,234,567 ")
        self.assertRegex(out, r"driver_alloc_ns +4\.20 ms ")
        self.assertRegex(out, r"submissions +77 ")
        self.assertRegex(out, r"max_split_size +-1 ")
        self.assertLess(out.index("cuLaunchKernel"), out.index("cuMemAlloc_v2"))
        self.assertIn("a warning of the fixture", out)
        self.assertIn("device 1  Fixture device, 16.0 GiB", out)
        self.assertNotIn("\033", out)

    def test_what_is_asked_first(self):
        """The first four lines show requests served from the cache, driver calls, peak memory and problems."""
        document = json.loads(self.good)
        device = document["devices"][0]
        device["stats"]["allocation"]["all"]["allocated"] = 3200
        device["counters"].update(cached_allocs=3186, cached_frees=3000, driver_allocs=10,
                                  driver_alloc_ns=1000000, driver_frees=5, driver_free_ns=2000000)
        document["counters"].update(passed_allocs=4, passed_ns=500000)
        self.write("a.json", json.dumps(document))
        lines = self.expect(0, "stat", "a.json").stdout.splitlines()
        self.assertEqual(lines[:4], [
            "from cache    3,186 of 3,204 requests (99.4 %)",
            "driver calls  6,186 saved (about 619 ms), 19 made (3.50 ms)",
            "peak memory   12.0 MiB reserved, 3.00 MiB allocated",
            "problems      none"])
        self.assertEqual(self.expect(0, "stat", "--brief", "a.json").stdout.splitlines(), lines[:4])
        first = json.loads(self.expect(0, "stat", "--brief", "--json", "a.json").stdout)
        self.assertEqual((first["requests"], first["served_from_cache"], first["driver_saved_ns"]),
                         (3204, 3186, 618600000))
        device["stats"]["num_ooms"] = 2
        document["counters"].update(bad_frees=1, internal_failures=3)
        document["leaks"] = [{"device": 0, "name": "liba.so", "path": "/liba.so", "blocks": blocks,
                              "bytes": 2 * blocks << 20, "sizes": []} for blocks in (1, 3)]
        document["config"]["error"] = "unknown key"
        device["counters"].update(driver_alloc_ns=100, driver_free_ns=0)
        document["counters"]["passed_ns"] = 100
        self.write("b.json", json.dumps(document))
        lines = self.expect(0, "stat", "b.json").stdout.splitlines()
        self.assertEqual(lines[1], "driver calls  6,186 saved, 19 made, which cost nothing here")
        self.assertEqual(lines[3], "problems      2 requests out of memory, 1 bad free, 3 internal "
                                   "failures, 4 blocks not freed at exit (8.00 MiB), settings not "
                                   "applied (unknown key)")
        both = json.loads(self.expect(0, "stat", "--brief", "--json", "a.json", "b.json").stdout)
        self.assertEqual([one["out_of_memory"] for one in both], [0, 2])
        self.assertEqual([one["leaked_bytes"] for one in both], [0, 8 << 20])
        self.expect(2, "stat", "--brief")

    def test_zeros_are_hidden(self):
        usual = self.expect(0, "stat", "accelcache-1.json").stdout
        whole = self.expect(0, "stat", "--all", "accelcache-1.json").stdout
        self.assertNotIn("num_ooms", usual)
        self.assertRegex(whole, r"(?m)^  num_ooms +0 ")
        hidden = int(usual.splitlines()[-1].split()[0])
        self.assertEqual(len(whole.splitlines()) - len(usual.splitlines()), hidden - 2)

    def test_json_is_the_document(self):
        out = self.expect(0, "stat", "--json", "accelcache-1.json").stdout
        self.assertEqual(json.loads(out), json.loads(self.good))

    def test_folder(self):
        self.write("accelcache-2.json", self.good)
        self.write("other.json", "{}")
        out = self.expect(0, "stat", ".").stdout
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual([row[0] for row in rows[3:]], ["sum", "least", "greatest"])
        self.assertEqual([row[-1] for row in rows[1:3]],
                         ["./accelcache-1.json", "./accelcache-2.json"])
        self.assertEqual(rows[3][:5], ["sum", "24.0", "MiB", "6.00", "MiB"])
        self.assertIn("2,469,134", rows[3])
        documents = json.loads(self.expect(0, "stat", "--json", ".").stdout)
        self.assertEqual(documents, 2 * [json.loads(self.good)])

    def test_hosts_and_programs_that_differ(self):
        for number in (2, 3):
            document = json.loads(self.good)
            document["process"].update(host=f"node{number}", exe=f"/opt/app{number}")
            self.write(f"accelcache-{number}.json", json.dumps(document))
        lines = self.expect(0, "stat", "accelcache-2.json", "accelcache-3.json",
                            "accelcache-1.json").stdout.splitlines()
        self.assertEqual(lines[0].split()[-3:], ["host", "program", "file"])
        self.assertEqual(lines[1].split()[-3:], ["node2", "app2", "accelcache-2.json"])
        lines = self.expect(0, "stat", "accelcache-2.json", "accelcache-2.json").stdout
        self.assertNotIn("node2", lines)

    def test_columns_are_two_blanks_apart(self):
        """Two blanks separate the columns. A column without values is omitted."""
        self.write("accelcache-2.json", self.good)
        head = self.expect(0, "stat", ".").stdout.splitlines()[0]
        self.assertTrue(head.endswith("  OOMs  file"), head)

    def ranks(self, peaks):
        """Writes a dump for each rank into the folder "ranks", with these peaks of reserved MiB."""
        os.makedirs(self.path("ranks"), exist_ok=True)
        for rank, peak in enumerate(peaks):
            document = json.loads(self.good)
            document["process"].update(pid=100 + rank, rank=rank)
            document["devices"][0]["stats"]["reserved_bytes"]["all"]["peak"] = peak << 20
            document["devices"][0]["counters"]["cached_allocs"] = 1000 + rank
            self.write(f"ranks/accelcache-{rank}.json", json.dumps(document))

    def test_least_greatest_and_outlier(self):
        self.ranks([300, 310, 305, 4096, 302])
        lines = self.expect(0, "stat", "ranks").stdout.splitlines()
        self.assertRegex(lines[6], r"^ *sum +5\.19 GiB .* 5,010 ")
        self.assertRegex(lines[7], r"^ *least +300 MiB .* 1,000 ")
        self.assertRegex(lines[8], r"^ *greatest +4\.00 GiB .* 1,004 ")
        self.assertEqual(lines[9:], ["outlier: rank 3, ranks/accelcache-3.json: peak reserved "
                                     "4.00 GiB, the median is 305 MiB"])
        document = json.loads(self.good)  # one rank has OOMs; the median is 0
        for rank in range(5):
            device = document["devices"][0]
            document["process"].update(pid=100 + rank, rank=rank)
            device["stats"]["reserved_bytes"]["all"]["peak"] = 0
            device["stats"]["num_ooms"] = 4 if rank == 3 else 0
            self.write(f"ranks/accelcache-{rank}.json", json.dumps(document))
        self.assertIn("outlier: rank 3", self.expect(0, "stat", "ranks").stdout)
        self.ranks([305, 305, 305, 320, 305])  # a distance below a tenth of the median
        self.assertNotIn("outlier", self.expect(0, "stat", "ranks").stdout)
        self.ranks([100, 200, 300, 400, 700])  # a distance below five times the median distance
        self.assertNotIn("outlier", self.expect(0, "stat", "ranks").stdout)

    def test_summary(self):
        self.ranks([300, 310, 305, 4096])
        lines = self.expect(0, "stat", "--summary", "ranks").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:5]],
                         ["sum", "least", "greatest", "median"])
        whole = json.loads(self.expect(0, "stat", "--summary", "--json", "ranks").stdout)
        self.assertEqual(whole["documents"], 4)
        peaks = [whole[total]["reserved_peak"] for total in ("sum", "least", "greatest", "median")]
        self.assertEqual(peaks, [5011 << 20, 300 << 20, 4096 << 20, (305 << 19) + (310 << 19)])
        self.assertEqual(whole["outliers"],
                         [{"figure": "reserved_peak", "pid": 103, "rank": 3,
                           "source": "ranks/accelcache-3.json", "value": 4096 << 20,
                           "median": (305 << 19) + (310 << 19)}])
        self.expect(2, "stat", "--summary")
        document = json.loads(self.good)
        document["devices"][0]["stats"]["num_ooms"] = 1  # two equal odd values: the median is exact
        self.write("one.json", json.dumps(document))
        whole = json.loads(self.expect(0, "stat", "--summary", "--json", "one.json",
                                       "one.json").stdout)
        for total in ("least", "greatest", "median"):
            self.assertEqual(whole[total]["ooms"], 1)
        document["devices"][0]["stats"]["num_ooms"] = (1 << 63) - 1  # a sum of two of these saturates
        self.write("one.json", json.dumps(document))
        whole = json.loads(self.expect(0, "stat", "--summary", "--json", "one.json",
                                       "one.json").stdout)
        self.assertEqual((whole["sum"]["ooms"], whole["median"]["ooms"]), ((1 << 63) - 1,) * 2)

    def test_growth_of_what_has_no_path(self):
        """Modules without a path count as one module."""
        document = json.loads(self.good)
        for look in (1, 2, 3):
            document["time"] = f"2026-01-31T12:00:0{look}.000Z"
            document["devices"][0]["modules"] = [
                {"name": name, "path": "", "num_allocs": 1,
                 "allocated_bytes": {"current": look * held, "allocated": 0, "freed": 0}}
                for name, held in (("x", 2 << 20), ("y", 1 << 20))]
            self.write(f"{look}.json", json.dumps(document))
        whole = json.loads(self.expect(0, "stat", "--growth", "--json", "1.json", "2.json",
                                       "3.json").stdout)
        module, = whole["modules"]
        self.assertEqual((module["first"], module["last"]), (3 << 20, 9 << 20))

    def test_difference(self):
        document = json.loads(self.good)
        document["devices"][0]["stats"]["reserved_bytes"]["all"]["current"] += 3 << 20
        document["devices"][0]["counters"]["driver_alloc_ns"] -= 1200000
        document["counters"]["submissions"] += 23
        document["hooks"]["cuLaunchKernel"] = 0
        document["hooks"]["cuNew"] = 4
        other = json.loads(json.dumps(document["devices"][0]))
        other["ordinal"] = 2
        document["devices"].append(other)
        self.write("second.json", json.dumps(document))
        out = self.expect(0, "stat", "accelcache-1.json", "second.json").stdout
        self.assertIn("from accelcache-1.json to second.json; what is equal is left out", out)
        part = out.split("what is equal is left out")[1].split("device 2")[0]
        self.assertRegex(part, r"(?m)^  reserved_bytes\.all\.current +8\.00 MiB +11\.0 MiB +\+3\.00 MiB$")
        self.assertRegex(part, r"(?m)^  driver_alloc_ns +4\.20 ms +3\.00 ms +-1\.20 ms$")
        self.assertNotIn("allocated_bytes", part)
        self.assertRegex(out, r"(?m)^  submissions +77 +100 +\+23$")
        self.assertRegex(out, r"(?m)^  cuLaunchKernel +9 +0 +-9$")
        self.assertRegex(out, r"device 2\n.*\n(.*\n)*?  allocated_bytes\.all\.current +0 B +3\.00 MiB")
        alone = self.expect(0, "stat", "--diff", "accelcache-1.json", "second.json").stdout
        self.assertTrue(out.endswith(alone))
        self.assertNotIn("peak reserved", alone)
        whole = json.loads(self.expect(0, "stat", "--diff", "--json", "accelcache-1.json",
                                       "second.json").stdout)
        self.assertEqual(whole["counters"],
                         {"submissions": {"first": 77, "second": 100, "difference": 23}})
        self.assertEqual([device["ordinal"] for device in whole["devices"]], [1, 2])
        self.assertEqual(len(whole["devices"][0]["figures"]), 2)
        self.assertEqual(whole["hooks"]["cuNew"], {"first": 0, "second": 4, "difference": 4})
        same = self.expect(0, "stat", "--diff", "accelcache-1.json", "accelcache-1.json").stdout
        self.assertIn("no figure differs", same)
        self.expect(2, "stat", "--diff", "accelcache-1.json")
        self.expect(2, "stat", "--diff", "accelcache-1.json", ".")
        self.expect(1, "stat", "--diff", "accelcache-1.json", "none.json")

    def test_empty_folder(self):
        os.mkdir(self.path("none"))
        self.assertIn("no accelcache-*.json there", self.expect(1, "stat", "none").stderr)

    def test_damaged(self):
        document = json.loads(self.good)
        cases = {
            "missing.json": (None, "No such file"),
            "empty.json": (b"", "the file is empty"),
            "cut.json": (self.good[:len(self.good) // 2], "the JSON ends too early"),
            "text.json": (b"hello", "not valid JSON at line 1"),
            "list.json": (b"[1]", "no accelcache dump"),
            "future.json": (json.dumps({**document, "version": 2}).encode(),
                            "version 2 of the format"),
            "foreign.json": (json.dumps({**document, "schema": "x"}).encode(),
                             "no accelcache dump"),
        }
        del document["devices"][0]["stats"]["reserved_bytes"]["all"]["peak"]
        cases["changed.json"] = (json.dumps(document).encode(),
                                 "devices[0].stats.reserved_bytes is missing")
        for name, (content, message) in cases.items():
            with self.subTest(name):
                if content is not None:
                    self.write(name, content)
                result = self.expect(1, "stat", name, "accelcache-1.json")
                self.assertIn(name + ": ", result.stderr)
                self.assertIn(message, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1)
                self.assertIn("reserved_bytes", result.stdout)

    def test_what_is_no_file(self):
        """A folder may hold objects of any type with the name of a dump."""
        os.mkfifo(self.path("accelcache-2.json"))
        os.symlink("/dev/zero", self.path("accelcache-3.json"))
        os.mkdir(self.path("accelcache-4.json"))
        os.symlink("accelcache-1.json", self.path("accelcache-5.json"))
        result = self.expect(0, "stat", ".")
        self.assertEqual(result.stdout.count("./accelcache-"), 2)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertIn("3 of accelcache-*.json skipped", result.stderr)
        shared = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, shared)
        os.mkfifo(os.path.join(shared, "d.json"))
        self.assertIn("not a regular file",
                      self.expect(1, "stat", os.path.join(shared, "d.json")).stderr)
        os.truncate(self.write("sparse.json", ""), 1 << 40)
        for name, message in (("accelcache-2.json", "not a regular file"),
                              ("accelcache-3.json", "not a regular file"),
                              ("sparse.json", "larger than")):
            self.assertIn(message, self.expect(1, "stat", name).stderr)
        self.assertIn("not a regular file",
                      self.expect(1, "doctor", "--dump", "accelcache-2.json").stdout)
        piped = subprocess.run([base.COMMAND, "stat", "--json", "/dev/stdin"], input=self.good,
                               stdout=subprocess.PIPE, env=self.environment, check=True,
                               timeout=200)
        self.assertEqual(json.loads(piped.stdout), json.loads(self.good))

    def test_every_truncation_is_an_error(self):
        for length in range(0, len(self.good.rstrip()), 97):
            self.write("cut.json", self.good[:length])
            result = self.expect(1, "stat", "cut.json")
            self.assertEqual(result.stdout, "")

    def test_terminal_escapes_are_not_passed_on(self):
        document = json.loads(self.good)
        document["warnings"] = ["\033[2J"]
        document["process"]["argv"] = ["\033]0;x\007"]
        self.write("evil.json", json.dumps(document))
        out = self.expect(0, "stat", "evil.json").stdout
        self.assertNotIn("\033", out)
        self.assertIn("\\x1b[2J", out)

    def test_full_disk(self):
        for options in ((), ("--json",)):
            with open("/dev/full", "w", encoding="ascii") as full:
                status = subprocess.run([base.COMMAND, "stat", *options, "accelcache-1.json"],
                                        stdout=full, stderr=subprocess.PIPE, cwd=self.folder,
                                        env=self.environment, check=False)
            self.assertEqual(status.returncode, 1)
            self.assertEqual(status.stderr, b"accelcache stat: the output could not be written: "
                                            b"No space left on device\n")

    def test_usage(self):
        self.assertEqual(self.expect(2, "stat", "--nonsense").stderr,
                         "accelcache stat: unknown option --nonsense\n"
                         "Try: accelcache stat --help\n")
        self.assertIn("Usage:", self.expect(0, "stat", "--help").stdout)


class Processes(base.CommandTest):
    def start(self, **variables):
        process = subprocess.Popen([base.FIXTURE, "live"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env={**self.environment, **variables})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def pages(self):
        return sorted(os.path.join(folder, name) for folder, _, files in os.walk(self.live)
                      for name in files)

    def page(self, pid):
        space = os.stat("/proc/self/ns/pid").st_ino
        return os.path.join(self.live, f"accelcache-{os.geteuid()}", f"{space}-{pid}")

    def kill(self, process):
        process.kill()
        process.wait()

    def cut_short(self, process):
        os.chmod(self.page(process.pid), 0o600)
        os.truncate(self.page(process.pid), 100)

    def test_none(self):
        self.assertIn("no process of ", self.expect(0, "stat").stdout)
        self.assertEqual(json.loads(self.expect(0, "stat", "--json").stdout), [])

    def test_running(self):
        process = self.start()
        out = self.expect(0, "stat", str(process.pid)).stdout
        self.assertIn("running: figures of this moment", out)
        self.assertRegex(out, "reserved_bytes +all +8.00 MiB")
        row = self.expect(0, "stat").stdout.splitlines()[1].split()
        self.assertEqual(row[:7], [str(process.pid), "running", "1", "8.00", "MiB", "3.00", "MiB"])
        self.assertEqual(len(self.pages()), 1)

    def test_simulated(self):
        """Times on a simulated device come from a table. The output says this."""
        document = json.loads(self.fixture("dump", "exit"))
        for uuid, word in (("GPU-73696d75-6c61-7465-642d-637564612d00", True), ("GPU-1", False)):
            document["devices"][0]["uuid"] = uuid
            self.write("d.json", json.dumps(document))
            line = self.expect(0, "stat", "--brief", "d.json").stdout.splitlines()[1]
            self.assertEqual(line.endswith(", simulated"), word, line)
            brief = json.loads(self.expect(0, "stat", "--brief", "--json", "d.json").stdout)
            self.assertIs(brief["simulated"], word)

    def test_ps(self):
        """`ps` prints a line for each process. Scripts can split its fields at blanks."""
        header = "PID STATE UID DEVICES RESERVED ALLOCATED PEAK STARTED PROGRAM\n"
        self.assertEqual(self.expect(0, "ps").stdout, header)
        self.assertEqual(self.expect(0, "ps", "--json").stdout, "[]\n")
        killed, process = self.start(), self.start()
        self.kill(killed)
        lines = self.expect(0, "ps", "--all", "--no-header").stdout.splitlines()
        rows = [line.split(" ", 8) for line in lines]
        figures = [str(os.geteuid()), "1", str(8 << 20), str(3 << 20), str(3 << 20)]
        self.assertEqual([row[:7] for row in rows], [[str(process.pid), "running", *figures],
                                                     [str(killed.pid), "killed", *figures]])
        self.assertEqual(rows[0][8], os.path.realpath(base.FIXTURE))
        self.assertRegex(rows[0][7], r"^\d{4}-\d\d-\d\dT")
        out = self.expect(0, "ps").stdout  # another process may have the PID of a killed one
        self.assertEqual(out, header + lines[0] + "\n")
        self.assertEqual(len(json.loads(self.expect(0, "ps", "--all", "--json").stdout)), 2)
        row, = json.loads(self.expect(0, "ps", "--json").stdout)
        self.assertEqual((row["pid"], row["devices"], row["allocated_bytes_peak"]),
                         (process.pid, 1, 3 << 20))
        self.cut_short(killed)
        result = self.expect(1, "ps", "--no-header")
        self.assertEqual(result.stdout, lines[0] + "\n")
        self.assertIn("cut short", result.stderr)
        self.expect(2, "ps", str(process.pid))
        self.assertIn("Usage:", self.expect(0, "ps", "--help").stdout)

    def test_killed_is_kept(self):
        process = self.start()
        self.kill(process)
        rows = json.loads(self.expect(0, "stat", "--json").stdout)
        self.assertEqual([(row["pid"], row["state"]) for row in rows], [(process.pid, "killed")])
        document = json.loads(self.expect(0, "stat", "--json", str(process.pid)).stdout)
        self.assertEqual(document["reason"], "killed")
        self.assertIn("killed", self.expect(0, "stat").stdout)
        self.assertEqual(json.loads(self.expect(0, "stat", "--json", "--remove",
                                                str(process.pid)).stdout)["counters"],
                         document["counters"])
        self.assertEqual(os.listdir(self.live), [])
        self.assertIn("shows no figures", self.expect(1, "stat", str(process.pid)).stderr)

    def test_folder_with_processes_that_wrote_nothing(self):
        """`stat DIR` includes processes that ended without a dump there, and shows each only once."""
        out = self.path("out")
        os.mkdir(out)
        conf = f"dump:{out}/accelcache-%p.json"
        for word in ("hello", "leave"):
            self.fixture("app", word, ACCEL_ALLOC_CONF=conf)
        with self.assertRaises(subprocess.CalledProcessError):
            self.fixture("app", "term", ACCEL_ALLOC_CONF=conf)
        self.fixture("app", "leave", ACCEL_ALLOC_CONF=f"dump:{self.folder}/accelcache-%p.json")
        alive = self.start(ACCEL_ALLOC_CONF=conf)
        self.assertEqual(len(os.listdir(out)), 3)  # two of them are dumps at an interval, without figures
        whole = json.loads(self.expect(0, "stat", "--json", out).stdout)
        self.assertEqual(sorted(document["reason"] for document in whole),
                         ["exit", "killed", "killed"])
        calls = [document["devices"][0]["counters"]["cached_allocs"] for document in whole]
        self.assertEqual(calls, [990] * 3)
        self.assertRegex(self.expect(0, "stat", out).stdout, r"killed .*process \d+, not written")
        for name in os.listdir(out):
            os.remove(os.path.join(out, name))
        self.assertEqual(len(json.loads(self.expect(0, "stat", "--json", out).stdout)), 2)
        self.expect(0, "stat", "--remove", out)
        self.assertIn("a signal or _exit ended writes none", self.expect(1, "stat", out).stderr)
        self.assertIn("a signal or _exit ended writes none",
                      self.expect(1, "stat", "accelcache-7.json").stderr)
        self.assertEqual(len(self.pages()), 2)  # the other folder's, and the live process's
        self.assertIn("running", self.expect(0, "stat", str(alive.pid)).stdout)

    def test_killed_is_kept_when_the_output_was_lost(self):
        process = self.start()
        self.kill(process)
        with open("/dev/full", "w", encoding="ascii") as full:
            subprocess.run([base.COMMAND, "stat", "--remove", str(process.pid)], stdout=full,
                           stderr=subprocess.DEVNULL, env=self.environment, check=False)
        out = self.expect(0, "stat", str(process.pid)).stdout
        self.assertIn("killed: figures as it left them", out)

    def test_killed_is_kept_until_it_was_shown(self):
        process = self.start()
        self.kill(process)
        pid = str(process.pid)
        for options in (("--json", "--diff"), ("--diff",)):
            result = self.expect(1, "stat", "--remove", *options, pid, "missing.json")
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(self.pages()), 1)
        # On a terminal the command prints all lines, because it removes the source.
        ours, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 10, 80, 0, 0))
        subprocess.run([base.COMMAND, "stat", "--remove", pid], stdout=terminal, check=True,
                       env={**self.environment, "TERM": "dumb"}, timeout=200)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        self.assertNotIn(b"more lines", shown)
        self.assertIn(b"cached_allocs", shown)
        self.assertEqual(self.pages(), [])

    def test_all_of_the_killed_are_removed(self):
        living = self.start()
        processes = [self.start() for _ in range(18)]
        for process in processes:
            self.kill(process)
        for process in processes[:3]:
            self.cut_short(process)
        result = self.expect(1, "stat")
        self.assertEqual(result.stdout.count("killed"), 15)
        self.assertEqual(result.stderr.count("cut short"), 2)  # the third is only counted
        self.assertIn("1 more like it", result.stderr)
        self.assertEqual(len(self.pages()), 19)
        self.assertEqual(self.expect(1, "top", "--json", "--interval", "0.1").stderr, result.stderr
                         .replace("accelcache stat:", "accelcache top:"))
        result = self.expect(1, "stat", "--remove")
        self.assertIn("removed what 18 killed processes left", result.stderr)
        self.assertEqual(self.pages(), [self.page(living.pid)])
        self.expect(0, "stat", str(living.pid))

    def test_what_is_no_page(self):
        """Files of other types in the folder of pages do not block the command."""
        process = self.start()
        home = os.path.dirname(self.page(1))
        for i in range(1, 71):
            os.mkfifo(os.path.join(home, f"1-{i}"))
            os.mkfifo(os.path.join(self.live, f"accelcache-{os.geteuid()}.{i:06}"))
        os.symlink("/dev/zero", os.path.join(home, "1-71"))
        os.mkdir(os.path.join(home, "1-72"))
        result = self.expect(1, "stat")
        self.assertEqual(result.stdout.count("running"), 1)
        self.assertEqual(result.stderr.count("not a file of its folder's user"), 2)
        self.assertIn("70 more like it", result.stderr)
        self.assertIn("running", self.expect(0, "stat", str(process.pid)).stdout)
        self.assertIn("shows no figures", self.expect(1, "stat", "7").stderr)

    def as_user(self, user, *command):
        """Starts a fixture as another user."""
        os.chmod(self.folder, 0o755)
        os.chmod(self.live, 0o1777)
        process = subprocess.Popen(["setpriv", f"--reuid={user}", "--clear-groups", *command,
                                    base.FIXTURE, "live"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=self.environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        if process.stdout.readline() != b"ready\n":
            self.skipTest("another user cannot run the fixture")
        return process

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root")
    def test_root_sees_all_users(self):
        mine, other = self.start(), self.as_user(12345)
        rows = json.loads(self.expect(0, "stat", "--json").stdout)
        self.assertEqual(sorted((row["pid"], row["user"], row["state"]) for row in rows),
                         sorted([(mine.pid, 0, "running"), (other.pid, 12345, "running")]))
        self.assertIn(" 12345 ", self.expect(0, "stat").stdout)
        self.assertIn("running:", self.expect(0, "stat", str(other.pid)).stdout)
        self.assertRegex(self.command("doctor", str(other.pid)).stdout, r"ok +active +yes")
        command = [base.COMMAND, "stat", "--json"]
        seen = subprocess.run(["setpriv", "--reuid=12345", "--clear-groups", *command],
                              env=self.environment, capture_output=True, check=True, timeout=200)
        self.assertEqual([row["pid"] for row in json.loads(seen.stdout)], [other.pid])
        # If the kernel refuses a lease on another user's file, the command reads /proc.
        command = ["setpriv", "--bounding-set=-lease", *command, str(other.pid)]
        seen = subprocess.check_output(command, env=self.environment, timeout=200)
        self.assertEqual(json.loads(seen)["reason"], "running")
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        seen = subprocess.check_output(command, env=self.environment, timeout=200)
        self.assertEqual(json.loads(seen)["reason"], "killed")
        other.wait()
        self.expect(0, "stat", "--remove")
        self.assertIn("killed:", self.expect(0, "stat", str(other.pid)).stdout)
        self.expect(0, "stat", "--remove", str(other.pid))
        self.assertEqual(self.pages(), [self.page(mine.pid)])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root")
    def test_page_cannot_be_cut_short_by_mistake(self):
        process = self.as_user(12345)
        page = self.pages()[0]
        done = subprocess.run(["setpriv", "--reuid=12345", "--clear-groups", "sh", "-c",
                               f": > {page}"], stderr=subprocess.PIPE, check=False)
        self.assertNotEqual(done.returncode, 0)
        os.remove(page)
        process.stdin.close()
        self.assertEqual(process.wait(), 0)

    def unshared(self):
        """Starts a fixture in a new PID namespace. Returns the process, its outer PID, and the namespace."""
        process = subprocess.Popen(["unshare", "-pf", "--mount-proc", base.FIXTURE, "live"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        if process.stdout.readline() != b"ready\n":
            self.skipTest("no pid namespace can be made")
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            inner = int(file.read().split()[0])
        return process, inner, os.stat(f"/proc/{inner}/ns/pid").st_ino

    def listed(self):
        return sorted((row["pid"], row["pid_namespace"], row["state"])
                      for row in json.loads(self.expect(0, "stat", "--json").stdout))

    @unittest.skipUnless(shutil.which("unshare"), "needs unshare")
    def test_pid_namespaces_that_share_the_folder(self):
        _, inner_a, space_a = self.unshared()
        b, _, space_b = self.unshared()
        mine = self.start()
        here = (mine.pid, os.stat("/proc/self/ns/pid").st_ino, "running")
        both = [(1, space_a, "running"), (1, space_b, "running")]
        self.assertEqual(self.listed(), sorted([*both, here]))
        self.assertIn(f"1@{space_a} running", " ".join(self.expect(0, "stat").stdout.split()))
        self.expect(0, "stat", "--remove")
        self.assertEqual(len(self.pages()), 3)
        os.kill(inner_a, signal.SIGKILL)
        while os.path.exists(f"/proc/{inner_a}/exe"):
            time.sleep(0.01)
        self.assertEqual(self.listed(), sorted([(1, space_a, "killed"), both[1], here]))
        self.assertIn("killed:", self.expect(0, "stat", f"1@{space_a}").stdout)
        self.assertIn("running:", self.expect(0, "stat", f"1@{space_b}").stdout)
        self.expect(0, "stat", "--remove", f"1@{space_a}")
        self.assertEqual(self.listed(), sorted([both[1], here]))
        b.stdin.close()
        self.assertEqual(b.wait(), 0)
        self.assertEqual(self.listed(), [here])

    @unittest.skipIf(base.SANITIZER, "sanitizers need /proc")
    def test_without_proc(self):
        """The library works without /proc."""
        done = subprocess.run(["unshare", "-m", "sh", "-c", "umount -l /proc && exec "
                               f"{base.FIXTURE} live"], stdin=subprocess.DEVNULL,
                              capture_output=True, env=self.environment, check=False, timeout=200)
        if b"unshare" in done.stderr or b"umount" in done.stderr:
            self.skipTest("/proc cannot be taken away")
        self.assertEqual((done.returncode, done.stdout), (0, b"ready\n"), done.stderr)
        self.assertEqual(self.pages(), [])

    def test_leaving_removes_the_page(self):
        process = self.start()
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.pages(), [])

    def test_doctor(self):
        process = self.start()
        out = self.command("doctor", str(process.pid)).stdout
        self.assertIn("libaccelcache.so is not in this process", out)
        self.assertRegex(out, r"ok +active +yes")
        self.assertRegex(out, r"ok +free_sync +nothing was freed so far")
        self.assertIn(f"kill -USR2 {process.pid} should write a dump", out)
        silent = self.start(ACCEL_ALLOC_CONF="dump_signal:none")
        self.assertIn("dump_signal is none", self.command("doctor", str(silent.pid)).stdout)
        other = self.start(ACCEL_ALLOC_CONF="dump_signal:USR1")
        self.assertIn("do not send USR1", self.command("doctor", str(other.pid)).stdout)
        self.kill(other)
        self.assertIn("was killed", self.expect(1, "doctor", str(other.pid)).stdout)
        self.assertIn("no such process", self.expect(1, "doctor", "999999999").stdout)

    def test_doctor_blocked_and_ignored(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        try:
            process = self.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.assertIn("blocks USR2", self.command("doctor", str(process.pid)).stdout)


if __name__ == "__main__":
    base.main()
