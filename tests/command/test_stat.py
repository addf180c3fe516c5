"""accelcache stat: good, damaged and many dumps; running and killed processes."""

import json
import os
import signal
import subprocess

import base


# A terminal's commands as C0 and as C1, what turns a line round, a line that is none.
HOSTILE = "\033]0;x\a\033[2J\r\b\x7f\u009b31m\u202egnp\u2066\u200f\n"
SHOWN = "\\x1b]0;x\\x07\\x1b[2J\\x0d\\x08\\x7f\\u009b31m\\u202egnp\\u2066\\u200f\\x0a"


class Hostile(base.CommandTest):
    """What others wrote into a file, or named their program, does not command the terminal."""

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
        """The same document; what is no UTF-8 becomes U+FFFD."""
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
        out = self.expect(0, "stat", "accelcache-1.json").stdout
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

    def test_json_is_the_document(self):
        out = self.expect(0, "stat", "--json", "accelcache-1.json").stdout
        self.assertEqual(json.loads(out), json.loads(self.good))

    def test_folder(self):
        self.write("accelcache-2.json", self.good)
        self.write("other.json", "{}")
        out = self.expect(0, "stat", ".").stdout
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual(len(rows), 4)
        self.assertEqual([row[-1] for row in rows[1:3]],
                         ["./accelcache-1.json", "./accelcache-2.json"])
        self.assertEqual(rows[3][:5], ["sum", "24.0", "MiB", "6.00", "MiB"])
        self.assertIn("2,469,134", rows[3])
        documents = json.loads(self.expect(0, "stat", "--json", ".").stdout)
        self.assertEqual(documents, 2 * [json.loads(self.good)])

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
        with open("/dev/full", "w", encoding="ascii") as full:
            status = subprocess.run([base.COMMAND, "stat", "accelcache-1.json"], stdout=full,
                                    stderr=subprocess.PIPE, cwd=self.folder,
                                    env=self.environment, check=False)
        self.assertEqual(status.returncode, 1)
        self.assertIn(b"could not be written", status.stderr)

    def test_usage(self):
        self.assertIn("accelcache stat --help", self.expect(2, "stat", "--nonsense").stderr)
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

    def kill(self, process):
        process.kill()
        process.wait()

    def test_none(self):
        self.assertIn("no process of this user", self.expect(0, "stat").stdout)
        self.assertEqual(json.loads(self.expect(0, "stat", "--json").stdout), [])

    def test_running(self):
        process = self.start()
        out = self.expect(0, "stat", str(process.pid)).stdout
        self.assertIn("running: rendered from its live page", out)
        self.assertRegex(out, "reserved_bytes +all +8.00 MiB")
        row = self.expect(0, "stat").stdout.splitlines()[1].split()
        self.assertEqual(row[:7], [str(process.pid), "running", "1", "8.00", "MiB", "3.00", "MiB"])
        self.assertEqual(len(os.listdir(self.live)), 1)

    def test_killed_is_shown_once(self):
        process = self.start()
        self.kill(process)
        rows = json.loads(self.expect(0, "stat", "--json").stdout)
        self.assertEqual([(row["pid"], row["state"]) for row in rows], [(process.pid, "killed")])
        document = json.loads(self.expect(0, "stat", "--json", str(process.pid)).stdout)
        self.assertEqual(document["reason"], "killed")
        self.assertEqual(os.listdir(self.live), [])
        self.assertIn("no live page", self.expect(1, "stat", str(process.pid)).stderr)

    def test_killed_is_kept_when_the_output_was_lost(self):
        process = self.start()
        self.kill(process)
        with open("/dev/full", "w", encoding="ascii") as full:
            subprocess.run([base.COMMAND, "stat", str(process.pid)], stdout=full,
                           stderr=subprocess.DEVNULL, env=self.environment, check=False)
        out = self.expect(0, "stat", str(process.pid)).stdout
        self.assertIn("killed: rendered from its live page", out)

    def test_stale_are_collected(self):
        pids = []
        for _ in range(18):
            process = self.start()
            self.kill(process)
            pids.append(process.pid)
        uid = os.geteuid()
        with open(os.path.join(self.live, f"accelcache-{uid}-{pids[-1]}"), "r+b") as page:
            page.truncate(100)
        result = self.expect(0, "stat")
        self.assertIn("2 stale pages collected", result.stderr)
        self.assertEqual(result.stdout.count("killed"), 16)
        self.assertNotIn(f" {pids[0]} ", f" {result.stdout} ")
        self.assertEqual(len(os.listdir(self.live)), 16)

    def test_leaving_removes_the_page(self):
        process = self.start()
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(os.listdir(self.live), [])

    def test_doctor(self):
        process = self.start()
        out = self.command("doctor", str(process.pid)).stdout
        self.assertIn("libaccelcache.so is not in this process", out)
        self.assertRegex(out, r"ok +active +yes")
        self.assertRegex(out, r"ok +free_sync +nothing was freed so far")
        self.assertIn(f"kill -USR2 {process.pid} probably writes a dump", out)
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
