"""The input formats of replay, and each kind of damage."""

import json
import os
import pickle
import resource

import base
import frame
import inputs

DEMO = os.environ.get("AC_DEMO", "")
RMM = "Thread,Time,Action,Pointer,Size,Stream\n"


def event(action, address, size, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, **more}


class Readers(frame.TraceTest):
    def refused(self, content, *expected, name="bad"):
        """Expects exit status 1 and one line that names the file and has these words."""
        path = self.write(name, content)
        result = self.expect(1, "replay", path)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for text in (path, *expected):
            self.assertIn(text, result.stderr)

    def snapshot(self, traces, segments=()):
        return self.write("snapshot.json", json.dumps(
            {"segments": list(segments), "device_traces": traces}))

    # ------------------------------------------------------------ text

    def test_text(self):
        path = self.trace("# a comment", "", "a 5 100 0  # behind an operation", "a 9 28 3\r",
                          "s", "f 5", "a 5 30 0", "  f\t9 ")
        figures = self.replay(path)
        self.assertEqual((figures["format"], figures["ops"], figures["peak_live"]),
                         ("text", 6, 128))
        with open(path, "rb") as file:
            piped = base.subprocess.run([base.COMMAND, "replay", "--json", "-"], stdin=file,
                                        stdout=base.subprocess.PIPE, env=self.environment,
                                        check=True, timeout=200)
        self.assertEqual(json.loads(piped.stdout)["peak_live"], 128)

    def test_text_without_last_newline(self):
        self.assertEqual(self.replay(self.write("cut", "a 1 64 0\nf 1"))["ops"], 2)

    def test_text_damage(self):
        for line, expected in (("a 1 64", "three whole numbers"), ("a 1 64 0 7", "three whole"),
                               ("a 1 64x 0", "three whole"), ("a -1 64 0", "three whole"),
                               ("a 1 0 0", "from 1 byte"), ("a 1 999999999999999 0", "128 TiB"),
                               ("a 99999999999999999999 1 0", "three whole"),
                               ("a 7 1 0", "second time"), ("f 8", "without being allocated"),
                               ("f", "a whole number"), ("f 7 7", "a whole number"),
                               ("s 1", "alone"), ("alloc 1 64 0", "unknown operation"),
                               ("x", "unknown operation")):
            with self.subTest(line):
                self.refused(f"# one\na 7 16 0\n{line}\n", "line 3", line, expected)
        self.refused("", "empty")
        self.refused("# nothing\n", "no operation")
        self.refused(b"a 1 2 0\n\0\0\0", "neither text, nor")
        self.refused(b"a 1 2 0\n" * 1000 + b"\0\n", "damaged")
        self.refused("a 1 64 0\n\033[31mx\n", "line 2", "\\x1b[31mx")

    def test_missing(self):
        self.assertIn("No such file or directory: is the name right?",
                      self.expect(1, "replay", self.path("nothing")).stderr)
        self.expect(1, "replay", self.folder)

    # ------------------------------------------------------------ RMM

    def test_rmm(self):
        path = self.write("rmm.csv", RMM +
                          "1,10:00:00.1,allocate,0x7f0000000000,1048576,0x0\n"
                          "2,10:00:00.0,allocate,7f0000200000,100,0x5\n"
                          "1,10:00:00.2,allocate failure,(nil),99999999999,0\n"
                          "1,10:00:00.3,free,0x7f0000000000,1048576,0x0\n"
                          "2,10:00:00.3,free,0xdead,1,0\n"
                          "1,10:00:00.4,allocate,0x7f0000000000,2097152,0\n")
        result = self.expect(0, "replay", "--json", path)
        figures = json.loads(result.stdout)
        self.assertEqual((figures["format"], figures["ops"], figures["peak_live"]),
                         ("RMM log", 4, 2097152 + 100))
        self.assertIn("1 frees", result.stderr)

    def test_rmm_columns_in_another_order(self):
        path = self.write("rmm.csv", "Thread,Action,Size,Pointer,Stream,Time,More\n"
                                     "1,allocate,64,0x10,0,x,y\n1,free,64,0x10,0,x,y\n")
        self.assertEqual(self.replay(path)["peak_live"], 64)

    def test_rmm_damage(self):
        good = RMM + "1,t,allocate,0x10,64,0\n"
        for row, expected in (("1,t,allocate,0x10,6", "different numbers of columns"),
                              ("1,t,allocate,0x10,64,0", "a second time"),
                              ("1,t,allocate,zz,64,0", "pointer"),
                              ("1,t,allocate,0x20,-4,0", "size"),
                              ("1,t,allocate,0x20,4k,0", "size"),
                              ("1,t,allocate,0x20,4,s", "stream"),
                              ("1,t,steal,0x20,4,0", "action")):
            with self.subTest(row):
                self.refused(f"{good}{row}\n", "line 3", expected)
        self.refused("Thread,Time,Action,Pointer,Size\n1,t,allocate,0x10,64\n", "line 1",
                     "no column Stream")

    def test_rmm_killed(self):
        """If the last row is cut off, a note says so and the others are replayed. A damaged complete row is an
        error."""
        rows = RMM + "1,t,allocate,0x10,64,0\n1,t,free,0x99,64,0\n"
        for row in ("1,t,allocate,0x20,6", "1", "1,t,allo", "1,t,allocate,0x10,64,0", "1,t,free,0x"):
            with self.subTest(row):
                path = self.write("rmm.csv", rows + row)
                result = self.expect(0, "replay", "--json", path)
                self.assertEqual(json.loads(result.stdout)["ops"], 1)
                self.assertIn("line 4, the last one, was cut off", result.stderr)
                self.assertIn("1 frees of memory that the log did not see", result.stderr)
                self.refused(f"{rows}{row}\n1,t,free,0x10,64,0", "line 4")

    def test_rmm_without_header(self):
        path = self.write("rmm.csv", "7,12:00:01.5,allocate,0x10,64,0\n7,12:00:01.6,free,0x10,64,0\n")
        figures = self.replay(path)
        self.assertEqual((figures["format"], figures["ops"], figures["peak_live"]), ("RMM log", 2, 64))

    def test_rmm_debug_log(self):
        self.refused("[ 2342][17:23:01:123456][error] [A][Stream 0x1][Upstream 1024B][FAILURE maximum pool size]\n",
                     "RMM's debug log", "enable_logging")

    def test_text_killed(self):
        result = self.expect(0, "replay", "--json", self.write("text", "a 1 100 0\na 2 30"))
        self.assertEqual(json.loads(result.stdout)["ops"], 1)
        self.assertIn("line 2, the last one, was cut off", result.stderr)
        self.refused("a 1 100 0\na 2 30\n", "line 2")
        self.refused("hello", "line 1")

    def test_large_and_wrong(self):
        """The command reads only the start of a file that is no trace. The memory limit excludes the whole file."""
        path = self.path("video")
        with open(path, "wb") as file:
            file.truncate(64 << 30)
        before = resource.getrlimit(resource.RLIMIT_AS)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, before)
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
        for command in (("replay",), ("export", "-f", "folded"), ("where", "0x10")):
            with self.subTest(command):
                self.assertIn("neither text", self.expect(1, *command, path).stderr)

    # ------------------------------------------------------------ PyTorch

    def test_torch(self):
        trace = [event("segment_alloc", 4096, 2 << 20), event("alloc", 4096, 1000),
                 event("free_requested", 4096, 1000), event("free_completed", 4096, 1000),
                 event("alloc", 4096, 600), event("snapshot", 0, 0)]
        figures = self.replay(self.snapshot([trace]))
        self.assertEqual((figures["format"], figures["ops"], figures["peak_live"]),
                         ("PyTorch snapshot", 3, 1000))

    def test_torch_began_late(self):
        """A block that is freed or live without an allocation existed before the first event."""
        trace = [event("free_requested", 0x1000, 500), event("alloc", 0x9000, 100)]
        blocks = [{"size": 512, "requested_size": 300, "state": "active_allocated"},
                  {"size": 512, "requested_size": 0, "state": "inactive"},
                  {"size": 512, "requested_size": 100, "state": "active_allocated"}]
        segment = {"device": 0, "address": 0x9000 - 1024, "stream": 0, "blocks": blocks}
        figures = self.replay(self.snapshot([trace], [segment]))
        self.assertEqual((figures["ops"], figures["peak_live"]), (4, 800))

    def test_torch_devices(self):
        path = self.snapshot([[event("alloc", 1, 100)],
                              [event("alloc", 1, 7), event("free_requested", 1, 7)], []])
        self.assertEqual(self.replay(path)["peak_live"], 7)  # the stream with more events
        self.assertEqual(self.replay(path, "--ordinal", "0")["peak_live"], 100)
        self.assertIn("no operation of device 2",
                      self.expect(1, "replay", path, "--ordinal", "2").stderr)
        self.assertIn("one of 2", self.expect(0, "replay", path).stdout)

    def test_torch_damage(self):
        self.refused('{"device_traces": [[{"action": "alloc", ', "ends too early", "line 1")
        self.refused('{"device_traces": [[}', "not valid JSON", "column")
        self.refused('{"schema": "accelcache-dump"}', "no operations", "accelcache run --trace")
        self.refused('{"schema": 1}', "no list device_traces")
        self.refused(json.dumps({"device_traces": [[{"action": "alloc", "addr": 1}]]}),
                     "device_traces[0][0]", "addr or size")
        self.refused(json.dumps({"device_traces": [[{"addr": 1}]]}), "no action")
        self.refused(json.dumps({"device_traces": []}), "no operation")
        self.refused(pickle.dumps({"device_traces": []}), "no operation")
        self.refused(pickle.dumps({"device_traces": []})[:-1], "no pickle that is read here")

    def test_torch_pickle(self):
        trace = [event("alloc", 4096, 1000), event("free", 4096, 1000), event("alloc", 1 << 45, 600)]
        path = self.path("snapshot.pickle")
        for protocol in (2, 4, 5):
            if protocol == 5:  # earlier protocols need code for these
                trace[0]["frames"] = trace[2]["frames"] = [bytes(300), bytearray(9)]
            with open(path, "wb") as file:
                pickle.dump({"segments": [], "device_traces": [trace]}, file, protocol)
            figures = self.replay(path)
            self.assertEqual((figures["format"], figures["ops"], figures["peak_live"]),
                             ("PyTorch snapshot", 3, 1000))

    def test_pickle_damage(self):
        """These pickles are invalid: they pop below a mark, lack an end, or expand to any size."""
        shared = b"]q\0" + b"".join(b"](" + b"h%c" % i * 10 + b"eq%c" % (i + 1) for i in range(40))
        for content, expected in ((b"]](a\x87.", "damaged"), (b"]](at.", "damaged"),
                                  (b"](e\x87.", "damaged"), (b"}(Ns.", "damaged"),
                                  (b")" + b"\x85" * 100000 + b".", "nested too deeply"),
                                  (b"]q\0h\0a.", "lies in itself"),
                                  (b"]q\0h\0\x85a.", "lies in itself"),
                                  (b"]q\0]q\1h\0ah\1a.", "lies in itself"),
                                  (b"}q\0Kxh\0s.", "lies in itself"),
                                  (shared + b".", "too often"),
                                  (b"]r\xff\xff\xff\x0f.", "damaged")):
            with self.subTest(content[:40]):
                self.refused(b"\x80\x02" + content, "no pickle that is read here", expected)

    # ------------------------------------------------------------ requests that failed

    def test_failed_requests(self):
        """A failed request counts as a request of the program, unless no placement could have served it."""
        trace = inputs.Trace(devices=((0, 1 << 30),))
        trace.place(0, 0, 0)
        trace.alloc(1, 0, inputs.BASE, 600 << 20)
        trace.alloc(2, 0, 2, 300 << 20, inputs.FAILED)
        trace.alloc(3, 0, 2, 500 << 20, inputs.FAILED)   # more than the free memory of the device
        trace.alloc(4, 0, 101, 100 << 20, inputs.FAILED) # CUDA_ERROR_INVALID_DEVICE
        path = self.write("failed", trace.data())
        result = self.expect(0, "replay", "--json", path)
        figures = json.loads(result.stdout)
        self.assertEqual((figures["ops"], figures["peak_live"]), (3, 900 << 20))
        self.assertIn("1 requests failed for want of memory: they are replayed", result.stderr)
        self.assertIn("1 requests failed and are left out", result.stderr)
        self.assertEqual(self.replay(path, "--capacity", "800M", status=1)["failed_at"], 2)

    # ------------------------------------------------------------ recorded

    @base.unittest.skipUnless(DEMO, "the simulated device is not built")
    def test_recorded(self):
        path = self.path("recorded")
        self.expect(0, "run", "--sim", "--trace", path, "--", DEMO, "--iterations", "40")
        figures = self.replay(path)
        self.assertEqual(figures["format"], "binary")
        self.assertEqual(figures["ops"] // 2, 40 * 32)  # 32 allocations and frees in each iteration
        with open(path, "rb") as file:
            data = file.read()
        seen = set()
        for length in (65536 + 64 + 24 * 50 + 8, 65536 + 5000, 65536 + 20000):
            # A killed process leaves whole events up to some position, and zeros after it.
            cut = self.write("cut", data[:length] + bytes(len(data) - length))
            result = self.expect(0, "replay", "--json", cut)
            operations = json.loads(result.stdout)["ops"]
            self.assertLess(operations, figures["ops"])
            seen.add(operations)
            shorter = self.write("shorter", data[:length])
            result = self.expect(0, "replay", "--json", shorter)
            self.assertEqual(json.loads(result.stdout)["ops"], operations)
            self.assertIn("damaged or cut short", result.stderr)
            self.assertIn("damaged", self.expect(1, "trace", "-s", shorter).stderr)
            self.assertIn("cut short", self.expect(1, "export", "-f", "folded", shorter).stderr)
        self.assertEqual(len(seen), 3)
        self.refused(data[:1000], "cut short before its first event", name="header")
        newer = self.write("newer", data[:8] + b"\xff" + data[9:])
        self.assertEqual(self.expect(1, "replay", newer).stderr.count(newer), 1)


if __name__ == "__main__":
    base.main()
