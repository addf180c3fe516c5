"""Programs that record with trace:FILE, and run --trace. The records must match the programs' actions."""

import os
import random
import re
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, os.environ["AC_PROCESS_TESTS"])
from host import COMMAND, LIMIT, SANITIZER, HostTest, json, program, signal  # noqa: E402

PROGRAM = program("recorded")
CONF = "dump:none,trace:t-%p.trace"
UNIT = 65536
OPERATION = re.compile(
    r"(?:(?:# )?a (?P<id>\d+) (?P<bytes>\d+) (?P<stream>\d+|-)|(?:# )?f (?P<freed>\d+)|(?P<sync>s)|# waited for "
    r"stream (?P<waited>\d+)|# waited for event 0x(?P<event>[0-9a-f]+)|# failed with error "
    r"(?P<error>\d+): (?P<refused>\d+) bytes, stream \d+)"
    r" # (?P<time>[0-9.]+) us, thread (?P<thread>\d+)(?:, device (?P<device>\d+), context "
    r"(?P<context>\d+))?(?:, stream (?P<freed_on>\d+))?"
    r"(?:, 0x(?P<address>[0-9a-f]+)(?P<managed>, managed)?(?P<implied>, no free of it was seen)?)?")


class TraceTest(HostTest):
    def accelcache(self, *arguments, status=0, **more):
        env = self.environment(LD_PRELOAD=SANITIZER or None, **more)
        done = subprocess.run([COMMAND, *arguments], env=env,
                              cwd=self.work, text=True, capture_output=True, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def record(self, case, conf=CONF, status=0, **more):
        """Runs a program. Returns the operations of its trace, and its output."""
        pid, out, err = self.run_program(PROGRAM, case, status=status,
                                         env=self.environment(conf), **more)
        self.assertEqual(re.sub("(?m)^accelcache: (interior|double) free: .*\n", "", err), "")
        return self.operations(f"t-{pid}.trace"), out.splitlines()

    def operations(self, name):
        out, err = self.accelcache("trace", "--long", name)
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertRegex(lines[0], "^# .*recorded")
        operations = [OPERATION.fullmatch(line) for line in lines[2:]]
        self.assertNotIn(None, operations, lines)
        return operations

    def summary(self, name):
        return json.loads(self.accelcache("trace", "--json", name)[0])

    def traces(self):
        return sorted(name for name in os.listdir(self.work) if "trace" in name)

    def said(self, operations):
        """Returns the operations in the words of recorded.c, with numbers for streams."""
        ids, lines = {}, []
        for m in operations:
            if m["id"]:
                ids[m["id"]] = m["address"]
                lines.append((("m" if m["managed"] else "a"), m["address"], int(m["bytes"]),
                              int(m["stream"].replace("-", "0"))))
            elif m["freed"]:
                self.assertEqual(ids.pop(m["freed"]), m["address"])
                lines.append(("gone", ) if m["implied"] else ("f", m["address"]))
            elif m["error"]:
                lines.append(("x", int(m["refused"]), int(m["error"])))
            elif m["waited"]:
                lines.append(("w", int(m["waited"])))
            elif m["event"]:
                lines.append(("e", m["event"]))
            else:
                lines.append(("s", ))
        return lines

    def compare(self, operations, out):
        """Checks that the operations equal the output. Streams get numbers in the order of their appearance."""
        streams, want = {"0": 0}, []
        for line in out:
            word = line.split()
            if word[0] in "am":
                stream = streams.setdefault(word[3], len(streams))
                want.append((word[0], word[1], int(word[2]), stream))
            elif word[0] == "x":
                want.append(("x", int(word[1]), int(word[2])))
            elif word[0] == "w":
                want.append(("w", streams[word[1]]))
            else:
                want.append(tuple(word))
        have = self.said(operations)
        for i, (a, b) in enumerate(zip(have, want)):
            self.assertEqual(a, b, f"operation {i}")
        self.assertEqual(len(have), len(want))


class Content(TraceTest):
    def test_driver_calls(self):
        operations, out = self.record("driver_calls")
        self.compare(operations, out)
        self.assertEqual({m["device"] for m in operations if m["address"]}, {"0"})
        self.assertEqual({m["thread"] for m in operations}, {"1"})
        times = [float(m["time"]) for m in operations]
        self.assertEqual(times, sorted(times))
        figures = self.summary(self.traces()[0])
        self.assertEqual((figures["refused_frees"], figures["live_blocks"], figures["failed"]),
                         (2, 1, 1))
        self.assertEqual(figures["state"], "complete")

    def test_cache_off(self):
        operations, out = self.record("driver_calls", "enabled:false," + CONF)
        self.compare(operations, out)

    def test_runtime_calls(self):
        operations, out = self.record("runtime_calls")
        self.compare(operations, out)

    def test_contexts(self):
        operations, out = self.record("contexts")
        at = out.index("gone")
        self.compare(operations, out[:at] + ["gone"] + out[at:])
        contexts = [m["context"] for m in operations]
        self.assertEqual(contexts, ["1", "2", "2", "2", "2", "1", "1"])

    def test_threads(self):
        """The trace has neither an allocation at a live address nor a free of an unknown one."""
        pid, _, err = self.run_program(PROGRAM, "threads", env=self.environment(CONF))
        self.assertEqual(err, "")
        figures = self.summary(f"t-{pid}.trace")
        self.assertEqual((figures["allocs"], figures["frees"]), (24000, 24000))
        self.assertEqual((figures["implied_frees"], figures["unknown_frees"]), (0, 0))
        self.assertEqual((figures["live_blocks"], figures["threads"]), (0, 7))
        size = os.path.getsize(os.path.join(self.work, f"t-{pid}.trace"))
        self.assertLessEqual(size, 24 * 48000 + UNIT * (1 + figures["threads"]))

    def test_text_is_the_traces_language(self):
        self.record("driver_calls")
        out, _ = self.accelcache("trace", self.traces()[0])
        for line in out.splitlines():
            self.assertRegex(line, r"^(a \d+ \d+ (\d+|-)|f \d+|s|#.*)$")


class Ends(TraceTest):
    def test_exits(self):
        for case, frees, state in (("exit", 4, "complete"), ("_exit", 3, "open"),
                                   ("quick_exit", 3, "complete")):
            pid, out, err = self.run_program(PROGRAM, case, env=self.environment(CONF))
            self.assertEqual(err, "", case)
            figures = self.summary(f"t-{pid}.trace")
            self.assertEqual((figures["allocs"], figures["frees"], figures["state"]),
                             (4, frees, state), case)

    def test_killed(self):
        self.record("kill", status=-signal.SIGKILL)
        figures = self.summary(self.traces()[0])
        self.assertEqual((figures["allocs"], figures["frees"], figures["state"]), (4, 3, "open"))

    def test_killed_at_work(self):
        for _ in range(5):
            child = self.start(PROGRAM, "endless", env=self.environment(CONF))
            self.assertEqual(child.stdout.readline(), "going\n")
            trace = os.path.join(self.work, f"t-{child.pid}.trace")
            size = random.randrange(3, 12) * UNIT
            while os.path.getsize(trace) < size:
                self.assertIsNone(child.poll())
            child.kill()
            child.wait()
            figures = self.summary(trace)
            # The 100 blocks before "going", or full units: all except the header and two fronts.
            least = max(100, (size // UNIT - 3) * 1500)
            self.assertGreaterEqual(figures["allocs"], least)
            self.assertEqual((figures["unknown_frees"], figures["state"]), (0, "open"))
            # The kill can interrupt one free in each of the two threads.
            self.assertLessEqual(figures["implied_frees"], 2)

    def test_read_while_it_is_written(self):
        child = self.start(PROGRAM, "busy", env=self.environment(CONF))
        self.assertEqual(child.stdout.readline(), "going\n")
        allocs = 0
        for _ in range(10):
            figures = self.summary(f"t-{child.pid}.trace")
            self.assertGreaterEqual(figures["allocs"], max(allocs, 100))
            allocs = figures["allocs"]
        self.finish(child)
        self.assertEqual(self.summary(f"t-{child.pid}.trace")["allocs"], 40100)

    def test_family(self):
        """Each process has its file. After an exec, a process records to another file."""
        pid, _, err = self.run_program(PROGRAM, "family", env=self.environment(CONF))
        self.assertRegex(err, rf"^accelcache: process {pid} records to the file that trace names: "
                              rf"this one records to .*t-{pid}\.trace\.{pid}; ")
        self.assertEqual(len(err.splitlines()), 1)
        traces = self.traces()
        self.assertEqual(len(traces), 4)
        self.assertIn(f"t-{pid}.trace.{pid}", traces)
        pairs = {name: self.summary(name)["allocs"] for name in traces}
        self.assertEqual(pairs.pop(f"t-{pid}.trace"), 3)
        self.assertEqual(list(pairs.values()), [5, 5, 5])

    def test_cloned(self):
        """A child without fork handlers writes nothing to the trace and leaves its parent's trace intact."""
        operations, out = self.record("cloned")
        self.compare(operations, out)
        self.assertEqual(len(self.traces()), 1)
        self.assertEqual(self.summary(self.traces()[0])["allocs"], 11)

    def test_one_name_for_all(self):
        _, _, err = self.run_program(PROGRAM, "family",
                                     env=self.environment("dump:none,trace:one.trace"))
        self.assertEqual(len(self.traces()), 3)  # the first child ended before its parent began
        self.assertEqual(len(err.splitlines()), 2)
        self.assertEqual(self.summary("one.trace")["allocs"], 3)


class Failures(TraceTest):
    def test_full_disk(self):
        """The program completes its work. Recording stops, and the library reports this once."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 * UNIT, 4 * UNIT))
        pid, _, err = self.run_program(PROGRAM, "threads", preexec_fn=limit,
                                       env=self.environment(CONF))
        lines = [line for line in err.splitlines() if "no shared page" not in line]
        self.assertEqual(len(lines), 1, err)
        self.assertRegex(lines[0], r"^accelcache: no more room for the trace /.*: File too large; "
                                   r"recording has ended, what was recorded before is whole$")
        figures = self.summary(f"t-{pid}.trace")
        self.assertEqual(figures["state"], "stopped")
        self.assertEqual(figures["unknown_frees"], 0)

    def test_no_such_folder(self):
        _, _, err = self.run_program(PROGRAM, "use_some",
                                     env=self.environment("dump:none,trace:no/where/x"))
        self.assertRegex(err, r"^accelcache: cannot record allocations to /.*no/where/x: No such file "
                              r"or directory; .*trace:PATH\n$")

    def test_no_file(self):
        os.mkdir(os.path.join(self.work, "folder"))
        _, _, err = self.run_program(PROGRAM, "use_some",
                                     env=self.environment("dump:none,trace:folder"))
        self.assertRegex(err, r"^accelcache: cannot record allocations to .*: Is a directory; ")
        self.assertEqual(os.listdir(self.work), ["folder"])

    def test_no_trace_without_cuda(self):
        self.run_program("/bin/true", env=self.environment(CONF))
        self.assertEqual(self.traces(), [])


class Command(TraceTest):
    def test_run(self):
        out, _ = self.accelcache("run", "--conf", "dump:none", "--trace", "r-%e-%p.trace", "--sim",
                                 "--", PROGRAM, "use_some")
        self.assertEqual(out, "")
        self.assertEqual(len(self.traces()), 1)
        self.assertRegex(self.traces()[0], r"^r-recorded-\d+\.trace$")
        figures = self.summary(self.traces()[0])
        self.assertEqual(figures["allocs"], 5)
        self.assertTrue(figures["command"].endswith("recorded use_some"))

    def test_arguments_of_any_bytes(self):
        """Text output escapes the bytes. JSON has U+FFFD instead, and is valid."""
        argument = b"\xff\033[2J\xc2\x9b31m\xe2\x80\xaeend"
        self.run_program(PROGRAM, "use_some", argument, env=self.environment(CONF))
        name = self.traces()[0]
        self.assertTrue(self.summary(name)["command"].endswith(
            "use_some \ufffd\033[2J\u009b31m\u202eend"))
        for options in ((), ("--summary", ), ("--long", )):
            out, _ = self.accelcache("trace", *options, name)
            self.assertIn("use_some \\xff\\x1b[2J\\u009b31m\\u202eend", out)
            self.assertTrue(all(line.isprintable() for line in out.splitlines()), out)

    def test_summary(self):
        self.record("driver_calls")
        out, _ = self.accelcache("trace", "--summary", self.traces()[0])
        self.assertRegex(out, r"allocations +8\n +frees +7\n")
        self.assertIn("the process ended normally", out)

    def test_usage(self):
        for arguments, words in ((("run", "--trace", "a,b", "--", "true"), "--trace: "),
                                 (("run", "--compare", "--trace", "x", "--", "true"),
                                  "--trace does not go with --compare"),
                                 (("trace", ), "FILE is missing"),
                                 (("trace", "a", "b"), "one FILE at a time"),
                                 (("trace", "--long", "--json", "a"), "--long does not go"),
                                 (("trace", "--what", "a"), "unknown option --what\n")):
            _, err = self.accelcache(*arguments, status=2)
            self.assertIn(words, err)
        self.assertIn("Usage: accelcache trace", self.accelcache("trace", "--help")[0])

    def test_no_trace(self):
        with open(os.path.join(self.work, "text"), "w") as file:
            file.write("a 0 1 0\n" * 10000)
        for name, words in (("text", "no recorded trace"), ("nowhere", "No such file"),
                            (".", "no recorded trace")):
            out, err = self.accelcache("trace", name, status=1)
            self.assertEqual(out, "")
            self.assertRegex(err, f"^accelcache trace: {re.escape(name)}: {words}.*\n$")


if __name__ == "__main__":
    unittest.main()
