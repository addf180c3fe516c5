"""accelcache export and report with unreadable inputs and unwritable outputs. Each error is one line with cause and
remedy, and no partial file is left. Damaged inputs never crash a command."""

import json
import os
import random
import resource
import signal
import subprocess

from base import COMMAND, main
from inputs import ExportTest, small_trace, snapshot

FORMATS = ("torch-snapshot", "perfetto", "pprof", "prometheus", "folded")


class Errors(ExportTest):
    def fails(self, expected, *arguments, status=1):
        before = sorted(os.listdir(self.folder))
        result = self.expect(status, *arguments)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1 if status == 1 else 2, result.stderr)
        self.assertIn(expected, result.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def export(self, expected, source, kind="perfetto", target="out"):
        self.fails(expected, "export", "-f", kind, source, "-o", self.path(target))

    def test_inputs(self):
        self.export("No such file or directory: is the name right", "absent")
        self.export("the file is empty", self.write("empty", ""))
        self.export("a folder, and a file is wanted", self.folder)
        self.export("not valid JSON at line 1", self.write("bad", "{nonsense"))
        self.export("the JSON ends too early", self.write("cut", '{"a": 1'))
        self.export("no accelcache dump", self.write("other", "{}"))
        self.export("a pickle without segments", self.write("pickle", b"\x80\x02}."))
        self.export("a trace of version 3, and this command reads versions 1 to 2",
                    self.write("new", small_trace(version=3).data()))
        self.export("segments[0]", self.write("odd", '{"segments": [{"device": 0}]}'))
        self.export("device_traces[0][0]", self.write("odd2", '{"device_traces": [[{}]]}'))
        odd = snapshot()
        odd["segments"][0]["blocks"][1]["address"] += 512
        self.export("do not match", self.write("odd3", json.dumps(odd)))
        odd["segments"][0]["blocks"] = []
        self.export("do not match", self.write("odd4", json.dumps(odd)))
        odd["segments"][0]["total_size"] = 0
        self.export("do not match", self.write("odd5", json.dumps(odd)))
        self.export("process 999999999 shows no figures", "999999999")
        with open(self.trace, "rb") as file:
            data = bytearray(file.read())
        data[65536 + 64 + 7] = 99  # the kind of the first event
        self.export("damaged", self.write("damaged", bytes(data)))

    def test_wrong_source(self):
        self.export("a dump has no blocks", self.dump, "perfetto")
        self.export("a trace has no counters", self.trace, "prometheus")

    def test_targets(self):
        self.export("cannot be written: No such file or directory", self.trace, "perfetto",
                    "absent/out")
        self.export("Is a directory", self.trace, "perfetto", "live")
        result = self.expect(1, "export", "-f", "perfetto", self.trace, "-o", "/dev/full")
        self.assertIn("No space left on device", result.stderr)

    def test_usage(self):
        self.fails("--format is missing", "export", self.trace, status=2)
        self.fails('no format "xml"; there are torch-snapshot, perfetto, pprof, ', "export", "-f", "xml", self.trace, status=2)
        self.fails("FILE is missing", "export", "-f", "perfetto", status=2)
        self.fails("one FILE", "export", "-f", "perfetto", self.trace, self.dump, status=2)
        for format_name in FORMATS:
            self.assertIn(format_name, self.expect(0, "export", "--help").stdout)

    def test_full_disk(self):
        """If the disk is full, the old file stays, and no part of a new file remains."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        target = self.write("out", "old")
        before = sorted(os.listdir(self.folder))
        result = subprocess.run([COMMAND, "export", "-f", "perfetto", self.trace, "-o", target],
                                env=self.environment, preexec_fn=limit, text=True, timeout=200,
                                stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("not written: File too large", result.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        with open(target, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_links_and_modes(self):
        """The command writes through a link. The link stays, and its target keeps its mode."""
        target = self.write("real", "old", mode=0o600)
        os.symlink("real", self.path("link"))
        self.expect(0, "export", "-f", "folded", self.dump, "-o", self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(os.stat(target).st_mode & 0o777, 0o600)
        with open(target, encoding="utf-8") as file:
            self.assertEqual(file.read(), f"device 1;large_pool {3 << 20}\n")

    def test_stopped(self):
        source = self.write("long", "".join(f"a {i} 512 0\nf {i}\n" for i in range(300000)))
        before = sorted(os.listdir(self.folder))
        process = subprocess.Popen([COMMAND, "export", "-f", "perfetto", source, "-o",
                                    self.path("out")], env=self.environment)
        while not [name for name in os.listdir(self.folder) if name.endswith(".tmp")]:
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(50), -signal.SIGINT)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_replaces(self):
        target = self.write("out", "old")
        self.expect(0, "export", "-f", "folded", self.dump, "-o", target)
        with open(target, encoding="utf-8") as file:
            self.assertEqual(file.read(), f"device 1;large_pool {3 << 20}\n")


class Progress(ExportTest):
    def test_terminal(self):
        """On a terminal, slow work shows a progress line and removes it at the end. Elsewhere it prints nothing."""
        lines = "".join(f"a {i} 512 0\nf {i}\n" for i in range(300000))
        source = self.write("long", lines)
        command = [COMMAND, "export", "-f", "perfetto", source, "-o", "/dev/null"]
        ours, terminal = os.openpty()
        subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stderr=terminal,
                       timeout=200, check=True)
        os.close(terminal)
        told = os.read(ours, 65536)
        os.close(ours)
        self.assertRegex(told, rb"\r\x1b\[K\[=* *\] events")
        self.assertTrue(told.endswith(b"\r\x1b[K"))
        self.assertEqual(subprocess.run(command, env=self.environment, stderr=subprocess.PIPE,
                                        timeout=200, check=True).stderr, b"")


class Fuzz(ExportTest):
    def setUp(self):
        super().setUp()
        for name in ("dygraph.min.js", "dygraph.min.css"):
            self.write(name, "")
        self.commands = [*(("export", "-f", name) for name in FORMATS),
                         ("report", "-o", "-", "--library", self.folder)]

    def attempt(self, data, name):
        path = self.write(name, data)
        for command in self.commands:
            result = subprocess.run([COMMAND, *command, path], env=self.environment,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, timeout=200, check=False)
            self.assertIn(result.returncode, (0, 1), (command, result.stderr))
            self.assertNotIn(b"Sanitizer", result.stderr)
            self.assertNotIn(b"runtime error", result.stderr)

    def damage(self, source, tries=25):
        chance = random.Random(source.rsplit("/", 1)[-1])
        with open(source, "rb") as file:
            data = file.read()
        # Damage goes to bytes that are not zero, because most of a trace is empty.
        spots = [i for i, byte in enumerate(data) if byte]
        for _ in range(tries):
            self.attempt(data[:chance.choice(spots)], "cut")
            flipped = bytearray(data)
            for _ in range(chance.choice((1, 1, 3, 30))):
                flipped[chance.choice(spots)] ^= 1 << chance.randrange(8)
            self.attempt(bytes(flipped), "flipped")

    def test_trace(self):
        self.damage(self.trace)

    def test_large_numbers(self):
        """Sums of numbers near 2^63 do not overflow: a build with UBSan prints an error for each that does."""
        most = (1 << 63) - 1
        with open(self.recorded([("alloc", most, 512), ("free", most, 512)], 2), encoding="utf-8") as file:
            document = json.load(file)
        blocks = [{"address": address, "size": most, "requested": most, "state": state}
                  for address, state in ((16, "allocated"), (most, "pending"), (most, "allocated"),
                                         (-most, "held"), (0, "free"))]
        document["layout"] = [{"device": 0, "pool": "small", "expandable": False, "address": address, "size": most,
                               "blocks": blocks} for address in (-most, 16)]
        self.attempt(json.dumps(document), "large.json")

    def test_snapshot(self):
        self.damage(self.snapshot)

    def test_dump(self):
        self.damage(self.dump)


if __name__ == "__main__":
    main()
