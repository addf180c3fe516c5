"""accelcache export: the contents of each format for inputs with known figures."""

import gzip
import importlib.util
import json
import os
import pickle
import re
import shutil
import subprocess
import unittest
from collections import Counter
from random import Random

from base import main
from inputs import BASE, BESIDE, MANAGED, START_NS, ExportTest, Trace, block, small_trace, snapshot

def find_memory_viz():
    torch = importlib.util.find_spec("torch")
    for folder in torch.submodule_search_locations if torch else ():
        return os.path.join(folder, "cuda", "_memory_viz.py")
    return os.environ.get("MEMORY_VIZ", "")


MEMORY_VIZ = find_memory_viz()


class Torch(ExportTest):
    def load(self, source):
        self.expect(0, "export", "--format", "torch-snapshot", source, "-o", self.path("out"))
        with open(self.path("out"), "rb") as file:
            return pickle.load(file)

    def check(self, whole):
        """Checks the fields that PyTorch's _memory_viz.py needs."""
        for segment in whole["segments"]:
            at = segment["address"]
            for part in segment["blocks"]:
                self.assertEqual(part["address"], at)
                self.assertLessEqual(part["requested_size"], part["size"])
                self.assertIn(part["state"], ("active_allocated", "active_pending_free", "inactive"))
                self.assertIsInstance(part["frames"], list)
                at += part["size"]
            self.assertEqual(at, segment["address"] + segment["total_size"])
        for events in whole["device_traces"]:
            for event in events:
                self.assertIn("device_free" if event["action"] == "oom" else "addr", event)

    def test_trace(self):
        whole = self.load(self.trace)
        self.check(whole)

        def event(action, address, size, time_ns, stream=0, place="addr"):
            return {"action": action, place: address, "size": size, "stream": stream,
                    "time_us": (START_NS + time_ns) // 1000, "frames": []}

        def segment(device, address, size, requested, stream, kind, blocks):
            return {"device": device, "address": address, "total_size": size,
                    "allocated_size": blocks[-1]["size"], "active_size": blocks[-1]["size"],
                    "requested_size": requested, "stream": stream, "segment_type": kind,
                    "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                    "blocks": blocks}
        self.assertEqual(whole["segments"], [
            segment(0, BASE, 4096, 3000, 0, "small",
                    [block(BASE, 1024, 0, "inactive"),
                     block(BASE + 1024, 3072, 3000, "active_allocated")]),
            segment(1, BASE + (1 << 32), 2 << 20, 2 << 20, 1, "large",
                    [block(BASE + (1 << 32), 2 << 20, 2 << 20, "active_allocated")])])
        self.assertEqual(whole["device_traces"], [
            [event("alloc", BASE, 700, 1000), event("alloc", BASE + 1024, 3000, 2500),
             event("free_requested", BASE, 700, 6000), event("free_completed", BASE, 700, 6000),
             event("oom", (1 << 30) - 3000, 5000, 7000, place="device_free")],
            [event("alloc", BASE + (1 << 32), 2 << 20, 4000, 1)]])

    def test_snapshot(self):
        whole = self.load(self.snapshot)
        self.check(whole)
        expected = snapshot()
        expected["segments"][0]["segment_pool_id"] = (0, 0)
        self.assertEqual(whole, expected)

    def test_shared(self):
        """Shared frames and repeated values are written once and then referenced, so that the file is no larger
        than its source. Numbers of all lengths and pairs keep their values."""
        frames = [[{"name": f"f{i}", "filename": "/job/train.py", "line": i} for i in range(n, n + 60)]
                  for n in range(40)]
        events = [{"addr": BASE + (i << 12), "size": 4096, "stream": 0, "time_us": START_NS + i,
                   "frames": frames[i % 40], "pool_id": (i, 1), "action": action,
                   "number": ((1 << i % 64) - 1) * (-1) ** i}
                  for i in range(500) for action in ("alloc", "free_requested", "free_completed")]
        whole = {"segments": [], "device_traces": [events], "allocator_settings": {}}
        source = self.path("shared.pickle")
        with open(source, "wb") as file:
            pickle.dump(whole, file, protocol=4)
        self.assertEqual(self.load(source), whole)
        self.assertLess(os.path.getsize(self.path("out")), 1.05 * os.path.getsize(source))

    def test_long(self):
        """The list is longer than one part of a list in the format."""
        trace = Trace()
        trace.place(0, 0, 0)
        for i in range(1300):
            trace.alloc(i, 0, BASE + 512 * i, 512)
        whole = self.load(self.write("long.trace", trace.data()))
        self.check(whole)
        self.assertEqual([e["addr"] for e in whole["device_traces"][0]],
                         [BASE + 512 * i for i in range(1300)])
        self.assertEqual([len(s["blocks"]) for s in whole["segments"]], [1300])

    def test_memory_beside_the_cache(self):
        """Events of memory outside the cache keep their names. A refused free is not a free."""
        (trace,) = self.load(self.recorded(BESIDE, len(BESIDE)))["device_traces"]
        names = [word for word, _, _ in BESIDE]
        names[-4:-1] = ["free_requested", "free_completed"]
        self.assertEqual([e["action"] for e in trace], names)
        self.assertEqual([(e["addr"], e["size"]) for e in trace[1:10]], [e[1:] for e in BESIDE[1:10]])

    def test_no_addresses(self):
        text = self.write("text", "a 1 100 0\nf 1\n")
        result = self.expect(1, "export", "-f", "torch-snapshot", text, "-o", self.path("out"))
        self.assertIn("it has no addresses", result.stderr)
        self.assertFalse(os.path.exists(self.path("out")))


    @unittest.skipUnless(MEMORY_VIZ, "no PyTorch here, and MEMORY_VIZ names no _memory_viz.py of one")
    def test_tool(self):
        spec = importlib.util.spec_from_file_location("memory_viz", MEMORY_VIZ)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)

        def lines(text, **_):
            return text
        for source in (self.trace, self.snapshot, self.recorded(BESIDE, len(BESIDE))):
            whole = self.load(source)
            reserved = sum(s["total_size"] for s in whole["segments"])
            for picture in (viz.segments, viz.memory):
                folded = picture(whole, format_flamegraph=lines).splitlines()
                self.assertEqual(sum(int(line.split()[-1]) for line in folded), reserved, folded)
            self.assertIn(f"segments: {len(whole['segments'])}\n", viz.segsum(whole))
            entries = sum(len(events) for events in whole["device_traces"])
            self.assertIn(f"{entries} entries\n" if len(whole["device_traces"]) == 1
                          else "entries\n", viz.trace(whole))
            for page in (viz.trace_plot, viz.segment_plot):
                self.assertIn("<html>", page(whole).lower())
        for word in ("pinned_alloc", "physical_free"):
            self.assertIn(f"{{'action': '{word}'", viz.trace(whole))


class Text(ExportTest):
    def test_it_is_read_again(self):
        """`trace` prints a text trace that replay reads alike. Requests that the driver served are comments in it."""
        trace = Trace()
        trace.place(0, 0, 0)
        trace.place(1, 0, 0x5550)
        for i in range(8):
            trace.alloc(10 * i, i % 2, BASE + (i << 21), 1 << 20)
            trace.alloc(10 * i + 1, 0, BASE + (1 << 30) + (i << 21), 1 << 20, MANAGED)
            trace.free(10 * i + 2, BASE + (1 << 30) + (i << 21))
            trace.free(10 * i + 3, BASE + (i << 21))
        binary = self.write("two.trace", trace.data())
        printed = self.expect(0, "trace", binary).stdout
        self.assertEqual(printed.splitlines()[2:7],
                         ["a 0 1048576 -", "# a 1 1048576 -", "# f 1", "f 0", "a 2 1048576 1"])
        text = self.write("text", printed)
        figures = [json.loads(self.expect(0, "replay", "--json", "--streams", "real", source).stdout)
                   for source in (binary, text)]
        for name in ("operations", "allocations", "streams"):
            self.assertEqual(*(self.find(figure, name) for figure in figures), name)

    def find(self, document, name):
        """Returns the first value with the name at any depth."""
        if isinstance(document, dict):
            if name in document:
                return document[name]
            document = list(document.values())
        for part in document if isinstance(document, list) else ():
            found = self.find(part, name)
            if found is not None:
                return found
        return None


class Perfetto(ExportTest):
    def events(self, source):
        whole = json.loads(self.expect(0, "export", "-f", "perfetto", source).stdout)
        self.assertEqual(whole["displayTimeUnit"], "ns")
        return whole["traceEvents"]

    def track(self, events, name):
        return [(e["ts"], *e["args"].values()) for e in events if e["name"] == name]

    def test_trace(self):
        events = self.events(self.trace)
        self.assertEqual(events[0], {"ph": "M", "pid": 4711, "name": "process_name",
                                     "args": {"name": "app -x"}})
        self.assertEqual(self.track(events, "device 0 allocated"),
                         [(0, 0), (1, 700), (2.5, 3700), (6, 3000)])
        self.assertEqual(self.track(events, "device 0 blocks"), [(0, 0), (1, 1), (2.5, 2), (6, 1)])
        self.assertEqual(self.track(events, "device 1 allocated"), [(0, 0), (4, 2 << 20)])
        self.assertEqual([(e["name"], e["ts"], e["tid"], e["args"]) for e in events
                          if e["ph"] == "i"],
                         [("wait for the device", 5, 1, {"device": 0, "bytes": 0}),
                          ("request failed", 7, 1, {"device": 0, "bytes": 5000})])

    def test_devices_of_a_snapshot(self):
        """Time starts with the first event of all devices, not of the first device."""
        def event(action, time_us):
            return {"action": action, "addr": BASE, "size": 700, "stream": 0, "time_us": time_us}
        source = self.write("two.json", json.dumps({"segments": [], "device_traces": [
            [event("alloc", 1000), event("free_requested", 1100)],
            [event("alloc", 100), event("free_requested", 400)]]}))
        events = self.events(source)
        self.assertEqual(self.track(events, "device 0 allocated")[-2:], [(900, 700), (1000, 0)])
        self.assertEqual(self.track(events, "device 1 allocated")[-2:],
                         [(0, 700), (300, 0)])

    def test_snapshot(self):
        events = self.events(self.snapshot)
        self.assertEqual(self.track(events, "device 0 allocated"),
                         [(0, 1000), (50, 1700), (150, 1000)])
        self.assertEqual(self.track(events, "device 0 reserved"),
                         [(0, 2 << 20), (0, 4 << 20), (250, 2 << 20)])
        self.assertEqual([(e["name"], e["args"]["bytes"]) for e in events if e["ph"] == "i"],
                         [("memory from the driver", 2 << 20), ("memory to the driver", 2 << 20)])

    def test_text(self):
        """Without times, each operation takes one microsecond."""
        events = self.events(self.write("text", "a 1 100 0\na 2 50 0\ns\nf 1\n"))
        self.assertEqual(self.track(events, "device 0 allocated"),
                         [(0, 0), (0, 100), (1, 150), (3, 50)])


def fields(data):
    """Yields (number, value) for each field of a protocol buffer. A value is a number or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 0x80:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2, key
            length = varint()
            at += length
            yield key >> 3, data[at - length:at]


class Pprof(ExportTest):
    def samples(self, source):
        """Returns {type: unit} and {stack from the outermost frame: values}."""
        self.expect(0, "export", "-f", "pprof", source, "-o", self.path("out"))
        with open(self.path("out"), "rb") as file:
            profile = list(fields(gzip.decompress(file.read())))
        texts = [value.decode() for number, value in profile if number == 6]
        self.assertEqual(texts[0], "")
        types = {}
        for number, value in profile:
            if number == 1:
                one = dict(fields(value))
                types[texts[one[1]]] = texts[one[2]]
        functions = {f[1]: texts[f[2]] for f in (dict(fields(v)) for n, v in profile if n == 5)}
        locations = {}
        for number, value in profile:
            if number == 4:
                one = dict(fields(value))
                locations[one[1]] = functions[dict(fields(one[4]))[1]]
        stacks = {}
        for number, value in profile:
            if number == 2:
                parts = list(fields(value))
                stack = tuple(locations[v] for n, v in reversed(parts) if n == 1)
                stacks[stack] = [v for n, v in parts if n == 2]
                self.assertEqual(len(stacks[stack]), len(types))
        return types, stacks

    def test_trace(self):
        types, stacks = self.samples(self.trace)
        self.assertEqual(types, {"alloc_objects": "count", "alloc_space": "bytes",
                                 "inuse_objects": "count", "inuse_space": "bytes"})
        self.assertEqual(stacks, {
            ("device 0", "no stream named", "below 1 KiB"): [1, 700, 0, 0],
            ("device 0", "no stream named", "2.00 KiB to 4.00 KiB"): [1, 3000, 1, 3000],
            ("device 1", "stream 1", "2.00 MiB to 4.00 MiB"): [1, 2 << 20, 1, 2 << 20]})

    def test_snapshot(self):
        types, stacks = self.samples(self.snapshot)
        self.assertEqual(list(types), ["inuse_objects", "inuse_space"])
        self.assertEqual(stacks, {("device 0", "outer:x (b.py:5)", "inner (a.py:3)"): [1, 1000]})

    def test_dump(self):
        _, stacks = self.samples(self.dump)
        self.assertEqual(stacks[("device 1", "large_pool")], [2, 3 << 20, 2, 3 << 20])

    def test_modules(self):
        """If a dump has modules, the stacks show modules, not pools."""
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        document["devices"][0]["modules"] = [
            {"name": "libfoo.so", "path": "/a/libfoo.so", "num_allocs": 5,
             "allocated_bytes": {"current": 100, "allocated": 700, "freed": 600}},
            {"name": None, "path": None, "num_allocs": 1,
             "allocated_bytes": {"current": 1, "allocated": 1, "freed": 0}}]
        _, stacks = self.samples(self.write("modules.json", json.dumps(document)))
        self.assertEqual(stacks, {("device 1", "libfoo.so"): [5, 700, 0, 100],
                                  ("device 1", "unknown module"): [1, 1, 0, 1]})

    @unittest.skipUnless(shutil.which("go"), "no go with its pprof here")
    def test_tool(self):
        self.samples(self.trace)
        told = subprocess.run(["go", "tool", "pprof", "-top", "-unit=B",
                               "-nodefraction=0", self.path("out")],
                              env={**os.environ, "HOME": self.folder, "GOFLAGS": "-mod=mod"},
                              stdout=subprocess.PIPE, text=True, timeout=400, check=True).stdout
        self.assertRegex(told, r"Type: inuse_space")
        self.assertRegex(told, r"3000B .* 2\.00 KiB to 4\.00 KiB")


class Prometheus(ExportTest):
    def text(self, source, **environment):
        return self.expect(0, "export", "-f", "prometheus", source, **environment).stdout

    def figures(self, text):
        """Returns {(name, device, pool): value}. The lines of each family must be adjacent and have its type."""
        figures, kinds = {}, {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                self.assertNotIn(name, kinds)
                kinds[name] = kind
            elif not line.startswith("#"):
                name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (-?[0-9.]+)", line).groups()
                self.assertEqual(name, list(kinds)[-1])
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
                figures[name, labels.get("device"), labels.get("pool")] = float(value)
        self.assertEqual({kinds[n] for n in kinds if n.endswith("_total")}, {"counter"})
        self.assertEqual({kinds[n] for n in kinds if not n.endswith("_total")}, {"gauge"})
        return figures

    def test_figures(self):
        figures = self.figures(self.text(self.dump))
        for (name, device, pool), value in {
                ("accelcache_device_memory_bytes", "1", None): 16 << 30,
                ("accelcache_reserved_bytes", "1", "all"): 8 << 20,
                ("accelcache_reserved_bytes", "1", "small"): 0,
                ("accelcache_reserved_bytes_peak", "1", "large"): 12 << 20,
                ("accelcache_reserved_bytes_freed_total", "1", "all"): 4 << 20,
                ("accelcache_allocation", "1", "all"): 2,
                ("accelcache_max_split_size", "1", None): -1,
                ("accelcache_num_device_alloc_total", "1", None): 3,
                ("accelcache_cached_allocs_total", "1", None): 1234567,
                ("accelcache_driver_alloc_seconds_total", "1", None): 0.0042,
                ("accelcache_thread_caches", "1", None): 0,
                ("accelcache_pinned_active_bytes", None, None): 0,
                ("accelcache_submissions_total", None, None): 77}.items():
            self.assertEqual(figures[name, device, pool], value, name)

    def test_all(self):
        """The output has all figures of a dump."""
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        names = {name for name, _, _ in self.figures(self.text(self.dump))}
        rows = {**document["counters"], **document["devices"][0]["counters"],
                **document["devices"][0]["stats"]}
        for row in rows:
            base = "accelcache_" + re.sub("_ns$", "_seconds", row)
            self.assertTrue({base, base + "_total"} & names, row)

    def labels(self, source, **environment):
        line = self.text(source, **environment).splitlines()[2]
        return dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))

    def test_labels(self):
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        labels = self.labels(self.dump, POD_NAME='a"b\\c\nd', CONTAINER_NAME="main",
                             SLURM_JOB_ID="99")
        self.assertEqual((labels["pod"], labels["container"], labels["job"]),
                         ('a\\"b\\\\c\\\\x0ad', "main", "99"))
        self.assertEqual((labels["pid"], labels["host"], labels["program"]),
                         (str(document["process"]["pid"]), document["process"]["host"],
                          "command_fixture"))
        document["process"].update(host="elsewhere", rank=3)
        labels = self.labels(self.write("other.json", json.dumps(document)), POD_NAME="mine")
        self.assertNotIn("pod", labels)
        self.assertEqual(labels["rank"], "3")

    def test_pod(self):
        labels = self.labels(self.dump, KUBERNETES_SERVICE_HOST="10.0.0.1")
        self.assertEqual(labels["pod"], labels["host"])

    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_tool(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.text(self.dump),
                                 text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=200, check=False)
        self.assertEqual((checked.returncode, checked.stdout), (0, ""))


    FOLDER = os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "tools", "prometheus")

    def test_users(self):
        """The dashboard and the alerts use only metrics and labels that exist."""
        text = self.text(self.dump)
        known = set(re.findall(r"^(accelcache_\w+)", text, re.M))
        labels = set(re.findall(r'(\w+)="', text)) | {"severity", "instance"}
        for name in ("dashboard.json", "alerts.yml"):
            with open(os.path.join(self.FOLDER, name), encoding="utf-8") as file:
                used = file.read()
            metrics = set(re.findall(r"\baccelcache_\w+", used))
            self.assertLess(5 if name.endswith("json") else 3, len(metrics))
            self.assertEqual(metrics - known, set())
            told = re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}|[{,](\w+)=", used)
            self.assertEqual({a or b or c for a, b, c in told} - labels, set())

    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_rules(self):
        subprocess.run(["promtool", "check", "rules", os.path.join(self.FOLDER, "alerts.yml")],
                       stdout=subprocess.PIPE, timeout=200, check=True)


class Run:
    """A random program. It has a list of events, and an independent count of the live blocks at each moment."""

    def __init__(self, seed, events=400):
        random = Random(seed)
        self.events, self.live, self.history = [], {}, [{}]
        for i in range(events):
            rising = i % 200 < 120
            if self.live and random.random() < (0.3 if rising else 0.7):
                address = random.choice(sorted(self.live))
                self.events.append(("free", address, *self.live.pop(address)))
            else:
                address = random.choice([BASE + (n << 20) for n in range(100) if BASE + (n << 20) not in self.live])
                self.live[address] = (random.randrange(1, 1 << 20), random.randrange(5), i)
                self.events.append(("alloc", address, *self.live[address]))
            self.history.append(dict(self.live))

    def peak(self, first=0):
        """Returns the live blocks at the first moment with the most bytes, from event `first` on."""
        return max(self.history[first:], key=lambda live: sum(size for size, _, _ in live.values()))


class Lines(ExportTest):
    def at(self, moment, source):
        lines = self.expect(0, "export", "-f", "folded", "--at", moment, source).stdout.splitlines()
        return {stack: int(size) for stack, size in (line.rsplit(" ", 1) for line in lines)}

    def sites(self, source):
        return json.loads(self.expect(0, "stat", "--sites", "--json", source).stdout)

    def test_moments_of_a_trace(self):
        for seed in range(10):
            run, trace = Run(seed), Trace(devices=((0, 1 << 30),))
            for stream in range(5):  # each stream represents a stack
                trace.place(stream, 0, 0x100 * stream)
            for i, (word, address, size, stack, _) in enumerate(run.events):
                if word == "alloc":
                    trace.alloc(i * 1000, stack, address, size)
                else:
                    trace.free(i * 1000, address)
            source = self.write("run.trace", trace.data())
            for moment, live in (("peak", run.peak()), ("end", run.live), ("leaked", run.live)):
                held = Counter()
                for size, stack, _ in live.values():
                    held[stack] += size
                told = Counter()
                for stack, size in self.at(moment, source).items():
                    word = stack.split(";")[1]
                    told[word] += size
                self.assertEqual(sorted(told.values()), sorted(held.values()), (seed, moment))
                sites = self.sites(source)[moment]
                self.assertEqual((sites["bytes"], sites["blocks"]), (sum(held.values()), len(live)))
                self.assertEqual(sum(site["blocks"] for site in sites["sites"]), len(live))

    def test_moments_of_a_snapshot(self):
        """A snapshot keeps only the newest events. An older block has its stack if it is still live at the end. An
        older block that was freed since has none."""
        def frames(stack):
            return [{"name": f"f{stack}", "filename": "a.py", "line": stack + 1}]
        for seed in range(10):
            run = Run(seed)
            first = len(run.events) - 150 * (seed % 3)
            kept = [{"action": "alloc" if word == "alloc" else "free_requested", "addr": address, "size": size,
                     "stream": 0, "time_us": i, "frames": frames(stack if word == "alloc" else 77)}
                    for i, (word, address, size, stack, _) in enumerate(run.events)][first:]
            segments = [{"device": 0, "address": address, "total_size": 1 << 20, "stream": 0,
                         "segment_type": "large", "blocks": [
                             {"size": 1 << 20, "requested_size": size, "state": "active_allocated",
                              "frames": frames(stack)}]}
                        for address, (size, stack, _) in sorted(run.live.items())]
            source = self.write("snapshot.json", json.dumps({"segments": segments, "device_traces": [kept]}))
            if not kept:
                self.assertIn("no events", self.expect(1, "export", "-f", "folded", "--at", "peak", source).stderr)
                continue
            held = Counter()
            for address, (size, stack, asked) in run.peak(first).items():
                known = asked >= first or run.live.get(address, (0, 0, -1))[2] == asked
                held[f"f{stack} (a.py:{stack + 1})" if known else "stream 0"] += size
            told = Counter()
            for stack, size in self.at("peak", source).items():
                told[stack.split(";")[1]] += size
            self.assertEqual(sum(told.values()), sum(held.values()), seed)
            self.assertEqual(told, held, seed)
            sites = Counter()
            for site in self.sites(source)["peak"]["sites"]:
                name = site["site"].split(", ")[-1]  # without the size, in names of requests without a call site
                sites[name] += site["bytes"]
            self.assertEqual(sites, held, seed)

    def test_diff(self):
        """Compares what two random programs hold by stack. Offsets of code do not count as a difference."""
        def source(name, run, offset):
            frames = [[{"name": f"f{stack}", "filename": f"a.so+0x{offset + stack:x}", "line": 0}]
                      for stack in range(5)]
            kept = [{"action": "alloc" if word == "alloc" else "free_requested", "addr": address, "size": size,
                     "stream": 0, "time_us": i, "frames": frames[stack] if word == "alloc" else []}
                    for i, (word, address, size, stack, _) in enumerate(run.events)]
            return self.write(name, json.dumps({"segments": [], "device_traces": [kept]}))
        for seed in range(4):
            runs = Run(seed, 60), Run(seed + 100, 5 * 10 ** (seed % 2))
            held = [Counter(), Counter()]
            for of, run in zip(held, runs):
                for size, stack, _ in run.peak().values():
                    of[f"f{stack} (a.so)"] += size
            sources = [source(f"{i}.json", run, 64 * i) for i, run in enumerate(runs)]
            document = json.loads(self.expect(0, "diff", "--json", *sources).stdout)
            self.assertEqual(document["bytes"], [sum(of.values()) for of in held])
            self.assertEqual({site["site"]: site["bytes"] for site in document["sites"]},
                             {site: [of[site] for of in held] for site in held[0] | held[1]})
            for site in document["sites"]:
                a, b = site["bytes"]
                self.assertEqual(site["change"], "new" if not a else "gone" if not b else "grew" if b > a else
                                 "shrank" if b < a else "same")
            changes = [abs(site["bytes"][1] - site["bytes"][0]) for site in document["sites"]]
            self.assertEqual(changes, sorted(changes, reverse=True))
        self.assertIn("every call site holds the same", self.expect(0, "diff", sources[0], sources[0]).stdout)
        self.assertRegex(self.expect(0, "diff", *sources).stdout,
                         r"^at the peak  \S+ [KM]iB in A, \S+ [KM]iB in B \(\S+ [KM]iB\)\n")
        self.assertIn(f"{self.dump}: it has no events", self.expect(1, "diff", sources[0], self.dump).stderr)
        self.assertIn("absent: No such file", self.expect(1, "diff", "absent", self.dump).stderr)
        self.assertIn("two recordings", self.expect(2, "diff", self.dump).stderr)

    def test_shares(self):
        """The innermost frame has exact bytes. These are divided among the sampled stacks with that frame."""
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)

        def stack(*frames):
            return {"frames": [number for frame in frames for number in (1, frame)], "requests": 1, "bytes": 1}

        def held(number, size, blocks, estimated):
            return {"device": 0, "stack": number, "blocks": blocks, "bytes": size + 24, "requested": size,
                    "estimated": estimated}
        document["recorded"] = {
            "stacks": "sampled", "sample_bytes": 1 << 19, "history": 0, "time_ns": 1, "lost_blocks": 0,
            "lost_stacks": 0, "files": ["/none/a.so"], "build_ids": [None], "texts": [],
            "stack": [stack(1), stack(1, 2), stack(1, 3), stack(9)],
            "sites": [held(1, 7_000, 70, 0), held(2, 800, 8, 3 << 19), held(3, 200, 2, 1 << 19),
                      held(4, 33, 1, 0)]}
        source = self.write("sampled.json", json.dumps(document))
        self.assertEqual(
            [(site["site"], site["bytes"], site["blocks"]) for site in self.sites(source)["end"]["sites"]],
            [("a.so+0x1 < a.so+0x2", 6000, 60), ("a.so+0x1 < a.so+0x3", 2000, 20), ("a.so+0x9", 33, 1)])
        self.assertIsNone(self.sites(source)["peak"])
        out = self.expect(0, "stat", source).stdout
        self.assertRegex(out, r"at the end, by call site  7\.84 KiB in 81 blocks\n"
                              r" +5\.86 KiB +74\.7 % +60 blocks +a\.so\+0x1 < a\.so\+0x2\n")

    def test_stat_of_recordings(self):
        """`stat` shows the call sites of a trace or a snapshot, one file at a time."""
        self.assertRegex(self.expect(0, "stat", self.trace).stdout,
                         r"^trace of process 4711  app -x\n3 requests for 2\.00 MiB, 1 failed\n\n"
                         r"at the peak, by call site  2\.00 MiB in 3 blocks\n"
                         r" +2\.00 MiB +99\.8 % +1 block +requests of 2\.00 MiB to 4\.00 MiB, stream 1\n")
        self.assertIn("inner (a.py:3) < outer;x", self.expect(0, "stat", self.snapshot).stdout)
        self.assertIn("compares two", self.expect(1, "stat", self.trace, self.dump).stderr)
        two = self.expect(1, "stat", self.trace, self.trace).stderr
        self.assertEqual(len(two.splitlines()), 1, two)
        with open(self.trace, "rb") as file:
            cut = self.write("cut.trace", file.read()[:300])
        self.assertIn("was cut short", self.expect(1, "stat", cut).stderr)
        self.assertIn("--sites takes one", self.expect(2, "stat", "--sites", self.trace, self.dump).stderr)
        self.assertIn("not valid JSON", self.expect(1, "stat", self.write("bad", "{nonsense")).stderr)

    def test_leaked(self):
        """A block that ends with its context was never freed. It is absent from the end and counts as leaked."""
        trace = small_trace()
        trace.context_gone(8_000, 0)
        source = self.write("gone.trace", trace.data())
        self.assertEqual(list(self.at("end", source).values()), [2 << 20])
        self.assertEqual(sorted(self.at("leaked", source).values()), [3000, 2 << 20])

    def test_moments_are_of_stacks(self):
        for kind, moment, words in (("perfetto", "peak", "--at goes with"), ("folded", "x", "end, peak or leaked")):
            self.assertIn(words, self.expect(2, "export", "-f", kind, "--at", moment, self.trace).stderr)
        self.assertIn("no events", self.expect(1, "export", "-f", "folded", "--at", "peak", self.dump).stderr)

    def test_folded(self):
        def folded(source):
            return self.expect(0, "export", "-f", "folded", source).stdout.splitlines()
        self.assertEqual(folded(self.trace),
                         ["device 0;no stream named;2.00 KiB to 4.00 KiB 3000",
                          f"device 1;stream 1;2.00 MiB to 4.00 MiB {2 << 20}"])
        self.assertEqual(folded(self.snapshot),
                         ["device 0;outer:x (b.py:5);inner (a.py:3) 1000"])
        self.assertEqual(folded(self.dump), [f"device 1;large_pool {3 << 20}"])

    def test_process(self):
        """A PID selects the page of a live process."""
        process = subprocess.Popen([os.environ["AC_FIXTURE"], "live"], env=self.environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        text = self.expect(0, "export", "-f", "folded", str(process.pid)).stdout
        self.assertEqual(text, f"device 1;large_pool {3 << 20}\n")


if __name__ == "__main__":
    main()
