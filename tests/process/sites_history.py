#!/usr/bin/env python3
"""What the history, `where` and `report` tell of call sites of a running or an ended process."""
import re
import sys

from host import *
from sites import GROW, MIB, PLACE, PLUGIN, SitesTest


class History(SitesTest):
    def where(self, address, source):
        return json.loads(self.command("where", "--json", str(address), source))

    def start_waiting(self, *steps, conf="control:true,history:1000,stacks:all", **env):
        child = self.start(program("sites"), PLUGIN, *(str(s) for s in steps), "wait",
                           env=self.environment(conf, **env))
        while child.stdout.readline() != "ready\n":
            continue
        addresses = []
        while (line := child.stdout.readline().strip()):
            addresses.append(int(line))
        return child, addresses

    def leaf(self, event):
        return re.sub(r" \(.*", "", event["frames"][0])

    def test_report_of_a_process(self):
        """Reports the whole record of the process and leaves no file, or else its figures and the reason."""
        library = os.path.join(self.root, "library")
        os.mkdir(library)
        for name in ("dygraph.min.js", "dygraph.min.css"):
            with open(os.path.join(library, name), "w", encoding="utf-8"):
                pass

        def data_of(pid):
            page = subprocess.run([COMMAND, "report", str(pid), "-o", "-", "--library", library], check=True, text=True,
                                  capture_output=True, timeout=LIMIT, cwd=self.work,
                                  env=self.environment(LD_PRELOAD=None, TMPDIR=self.work)).stdout
            return json.loads(page.split('id="data">')[1].split("</script>")[0])
        child, _ = self.start_waiting("keep", 2, 100000, "lose", 1, 3 * MIB, "drop", 0)
        files = set(os.listdir(self.work))
        data = data_of(child.pid)
        self.assertEqual(set(os.listdir(self.work)), files)
        self.assertEqual(max(p[1] for p in data["series"][0]["points"]), 200000 + 3 * MIB)
        self.assertEqual(data["series"][0]["points"][-1][1], 100000 + 3 * MIB)
        self.assertRegex(data["sites"][0], "^lose_buffers")
        self.finish(child)
        child, _ = self.start_waiting("keep", 2, 100000, conf="history:1000,stacks:all")
        data = data_of(child.pid)
        self.assertEqual(data["series"], [])
        self.assertRegex(dict(data["facts"])["Note"], "^figures alone: .*control:true")
        self.finish(child)

    def test_memory_that_goes_with_its_context(self):
        """The history has its free, so the curve of a page never falls below zero, and ends at zero."""
        self.run_sites("keep", 3, MIB, "reset", conf="history:1000,stacks:all,dump:gone.json")
        with open(os.path.join(self.work, "gone.json"), encoding="utf-8") as file:
            (ring,) = json.load(file)["history"]
        words = [event[0] for event in ring["event"]]
        self.assertEqual((words.count("alloc"), words.count("free")), (3, 3))

    def test_where(self):
        child, (kept, lost) = self.start_waiting("keep", 1, 100000, "lose", 1, 3 * MIB, "drop", 0)
        self.command("ctl", str(child.pid), "snapshot", "now.json")
        for source in (str(child.pid), "now.json"):
            with self.subTest(source=source):
                shown = self.where(lost + 5, source)
                self.assertEqual((self.leaf(shown["alloc"]), shown["free"]), ("lose_buffers", None))
                shown = self.where(kept + 5, source)
                self.assertEqual((self.leaf(shown["alloc"]), self.leaf(shown["free"])),
                                 ("keep_buffers", "drop_buffer"))
                text = self.command("where", hex(kept), source)
                self.assertRegex(text, r"(?m)^  asked for +[\d.]+ \S+ ago +keep_buffers "
                                       rf"{PLACE}, by thread \d+$")
                self.assertRegex(text, r"(?m)^  freed +[\d.]+ \S+ ago +drop_buffer "
                                       rf"{PLACE}, by thread \d+$")
        self.finish(child)

    def test_a_free_after_the_segment_went(self):
        """The driver refuses the free.  The command still shows the earlier free after the library has the addresses
        again."""
        child = self.start(program("sites"), PLUGIN, "keep", "2", str(6 * MIB), "drop", "0", "drop", "1", "pause",
                           "again", "1", "keep", "1", str(6 * MIB), "wait",
                           env=self.environment("control:true,history:100"))
        self.assertEqual(child.stdout.readline(), "paused\n")
        self.command("ctl", str(child.pid), "trim")
        child.stdin.write("\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "ready\n")
        first, second, third = (int(child.stdout.readline()) for _ in range(3))
        self.assertEqual(child.stdout.readline(), "\n")
        self.assertEqual(first, third, "the segment lies where it lay")
        self.command("ctl", str(child.pid), "snapshot", "now.json")
        for source in (str(child.pid), "now.json"):
            shown = self.where(second, source)
            self.assertIsNotNone(shown["free"], source)
            self.assertEqual(self.leaf(shown["free"]), "drop_buffer", source)
        self.finish(child)

    def test_switched_while_it_runs(self):
        child, _ = self.start_waiting("keep", 1, 1000, conf="control:true")
        for word, kept in (("on", 1 << 16), ("off", 0)):
            self.assertIn("switched", self.command("ctl", str(child.pid), "history", word))
            self.command("ctl", str(child.pid), "snapshot", f"{word}.json")
            with open(os.path.join(self.work, f"{word}.json"), encoding="utf-8") as file:
                document = json.load(file)
            self.assertEqual(document["recorded"]["history"], kept)
            self.assertEqual([e[0] for e in document["history"][0]["event"]], ["begin", "snapshot"])
        self.command("ctl", str(child.pid), "history", "maybe", status=1)
        self.finish(child)

    def test_addresses_used_again_while_it_is_off(self):
        child = self.start(program("sites"), PLUGIN, "pause", "keep", "1", "100000", "pause", "drop", "0",
                           "lose", "1", "100000", "pause", "wait", env=self.environment("control:true"))
        for word in ("on", "off"):
            self.assertEqual(child.stdout.readline(), "paused\n")
            self.command("ctl", str(child.pid), "history", word)
            child.stdin.write("\n")
            child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "paused\n")
        for word in ("off", "on"):
            self.command("ctl", str(child.pid), "history", word)
            self.command("ctl", str(child.pid), "snapshot", f"{word}.json")
            with open(os.path.join(self.work, f"{word}.json"), encoding="utf-8") as file:
                document = json.load(file)
            (site,) = self.held(document)
            self.assertEqual((site["blocks"], site["stack"]), (1, 0), word)
        self.assertEqual(self.command("ctl", str(child.pid), "history", "off")[:7], "process")
        self.command("ctl", str(child.pid), "snapshot", "again.json")
        child.stdin.write("\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "ready\n")
        lost = (child.stdout.readline(), int(child.stdout.readline()))[1]
        self.assertEqual(child.stdout.readline(), "\n")
        for source in (str(child.pid), "off.json", "on.json", "again.json"):
            shown = self.where(lost, source)
            self.assertEqual((shown["alloc"], shown["free"]), (None, None), source)
        self.finish(child)

    def test_memory_that_is_not_the_cache_s(self):
        """Pinned host memory, physical memory, arrays and managed memory have their own events, with the call site."""
        pid, _, _ = self.run_sites("pinned", 70000, "physical", 4 * MIB, "array", 65536, "managed", 90000,
                                   "unpin", "keep", 1, 1000, conf="history:100")
        dump = self.dump_of(pid)
        whole = [e for e in dump["history"][0]["event"]
                 if e[0].split("_")[0] in ("pinned", "physical", "array", "passed", "refused")]
        self.assertEqual([(e[0], e[3], self.site_of(dump, e[5])) for e in whole], [
            ("pinned_alloc", 70000, "pin_memory"), ("pinned_free", 0, "pin_memory"),
            ("physical", 4 * MIB, "take_physical"), ("physical_free", 4 * MIB, "take_physical"),
            ("physical", 4 * MIB, "take_physical"), ("physical_free", 4 * MIB, "unmap_physical"),
            ("array", 65536, "make_array"), ("array_free", 65536, "make_array"),
            ("array", 65536, "make_array"), ("array_free", 65536, "make_array"),
            ("array", 65536, "make_array"),
            ("passed_alloc", 90000, "take_managed"), ("passed_free", 0, "take_managed"),
            ("pinned_alloc", 5000, "unpin_again"), ("pinned_free", 0, "unpin_again"),
            ("pinned_free", 0, "unpin_again"), ("refused", 0, None),
            ("passed_free", 0, "unpin_again"), ("refused", 0, None)])
        for first, last in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (13, 18)):
            self.assertEqual(len({e[2] for e in whole[first:last + 1]}), 1, "of one address each")
        self.held(dump)
        self.command("export", "-f", "torch-snapshot", f"accelcache-{pid}.json", "-o", "s.pickle")
        import pickle
        with open(os.path.join(self.work, "s.pickle"), "rb") as file:
            (trace,) = pickle.load(file)["device_traces"]
        self.assertEqual([e["action"] for e in trace if "size" in e and e["action"].split("_")[0] in
                          ("pinned", "physical", "array", "passed", "refused")],
                         [e[0] for e in whole[:15]], "without the frees that were refused")
        tracks = json.loads(self.command("export", "-f", "perfetto", f"accelcache-{pid}.json"))["traceEvents"]
        for figure, levels in (("pinned", [70000, 0, 5000, 0]),
                               ("passed", [4 * MIB, 0] * 2 + [65536, 0] * 2 + [65536, 65536 + 90000, 65536])):
            self.assertEqual([e["args"]["bytes"] for e in tracks if e["name"] == f"device 0 {figure}"], levels)
        self.assertEqual([(e["name"], e["args"]["bytes"]) for e in tracks if e["ph"] == "i"][:3],
                         [("physical memory (cuMemCreate)", 4 * MIB)] * 2 + [("array", 65536)])

    def test_arrays_go_with_their_context(self):
        pid, _, _ = self.run_sites("array", 65536, "reset", conf="history:100")
        kinds = [e[0] for e in self.dump_of(pid)["history"][0]["event"] if e[0].startswith("array")]
        self.assertEqual(kinds, ["array", "array_free"] * 3)

    @unittest.skipIf(SANITIZED, "its shadow needs address space")
    @unittest.skipIf(EMULATED, "qemu takes RLIMIT_AS without keeping it")
    def test_out_of_host_memory(self):
        """The library prints one line. Figures stay right, and later blocks have call sites again."""
        child = self.start(program("sites"), PLUGIN, "keep", "1", "1000000", "drop", "0", "pause", "starve",
                           "keep", "3", "1000", "feed", "lose", "2", "2000", "wait",
                           env=self.environment("control:true"))
        self.assertEqual(child.stdout.readline(), "paused\n")
        self.command("ctl", str(child.pid), "history", "on")
        child.stdin.write("\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "ready\n")
        self.command("ctl", str(child.pid), "snapshot", "short.json")
        dump = self.read_dump("short.json", "request")
        sites = {self.site_of(dump, s["stack"]): s["blocks"] for s in self.held(dump)}
        self.assertEqual(sites, {None: 3, "lose_buffers": 2})
        self.assertGreater(dump["recorded"]["lost_stacks"], 0)
        kinds = [e[0] for e in dump["history"][0]["event"]]
        self.assertEqual(kinds.count("alloc"), 5)
        _, err = self.finish(child)
        self.assertEqual(err, "accelcache: host memory is short, or there are more than 65,536 stacks: who "
                              "asked for some blocks is not recorded (lost_blocks, lost_stacks of the dump); "
                              "all figures stay right\n")

    def test_the_ring_keeps_the_newest(self):
        pid, _, _ = self.run_sites("keep", 40, 1000, conf="history:16")
        (history,) = self.dump_of(pid)["history"]
        self.assertEqual(len(history["event"]), 16)
        self.assertEqual([e[0] for e in history["event"]], ["alloc"] * 15 + ["snapshot"])
        self.assertEqual(history["events"], 42)

    def test_torch_snapshot(self):
        """PyTorch's format: events by device, frames, both steps of a free, blocks in their segments."""
        pid, _, _ = self.run_sites("keep", 3, 3 * MIB, "drop", 1, "again", 1, "plugin", 4096,
                                   conf="history:1000,stacks:all")
        self.command("export", "-f", "torch-snapshot", f"accelcache-{pid}.json", "-o", "s.pickle")
        import pickle
        with open(os.path.join(self.work, "s.pickle"), "rb") as file:
            snapshot = pickle.load(file)
        (trace,) = snapshot["device_traces"]
        actions = [e["action"] for e in trace]
        figures = self.command("export", "-f", "prometheus", f"accelcache-{pid}.json")
        self.assertIn("accelcache_reserved_bytes", figures, "it is a dump as well")
        self.assertEqual(actions.count("alloc"), 4)
        self.assertEqual(actions.count("free_requested"), 1, "the refused one is none")
        at = actions.index("free_requested")
        self.assertEqual(actions[at + 1], "free_completed")
        self.assertEqual(trace[at]["addr"], trace[at + 1]["addr"])
        self.assertEqual(trace[at]["frames"][0]["name"], "drop_buffer")
        self.assertEqual(actions[-1], "snapshot")
        blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
        held = [b for b in blocks if b["state"] == "active_allocated"]
        self.assertEqual(sorted(b["frames"][0]["name"] for b in held),
                         ["keep_buffers", "keep_buffers", GROW])
        for segment in snapshot["segments"]:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])

    def test_the_device_is_asked_for_a_reader(self):
        """Reading the free memory is a driver call.  The allocator makes one.  The library makes a second one only for
        a record."""
        for conf, calls in (("dump:none", "1"), ("dump:none,history:100", "2")):
            _, out, _ = self.run_sites("full", "refused", conf=conf,
                                       ACCEL_SIM="clock:virtual,memory:512M")
            self.assertEqual(out.split(), [calls], conf)

    def test_out_of_memory(self):
        self.run_sites("keep", 1, 20 * MIB, "full", ACCEL_SIM="clock:virtual,memory:512M",
                       conf="oom_dump:oom.json,stacks:all,history:100")
        text = self.command("oom", "oom.json")
        self.assertRegex(text, rf"asked for 64\.0 MiB in fill_device {PLACE}")
        shown = self.sites(text, "Largest call sites")
        self.assertEqual(list(shown), ["fill_device < main", "keep_buffers < main"])
        self.assertEqual(shown["keep_buffers < main"], ("20.0 MiB", 1))
        with open(os.path.join(self.work, "oom.json"), encoding="utf-8") as file:
            self.assertIn("oom", [e[0] for e in json.load(file)["history"][0]["event"]])


if __name__ == "__main__":
    if not os.path.exists(PLUGIN):
        print("the plug-in was not built: there is no C++ compiler")
        sys.exit(77)
    unittest.main()
