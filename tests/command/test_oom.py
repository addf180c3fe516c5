"""accelcache oom: names the holders of the memory. It advises a setting only if that setting helps."""

import json
import re
import unittest

import base
import holder

MIB = 1 << 20
DUMP = "oom_dump:oom.json,dump:none"
BIG = "clock:virtual,memory:4G"
# In these cases the held blocks keep pages of 8 MiB or segments in use, but few pages of 2 MiB.
HOLES = ("fill", 9 * MIB, 440, "every", 5, "try", 2800 * MIB)
CLOSE = ("fill", 7 * MIB, 270, "every", 3, "try", 900 * MIB)
FULL = ("fill", 16 * MIB, 14, "try", 64 * MIB)


def mask(text):
    """Replaces figures that differ between machines."""
    return re.sub(r"process \d+", "process PID", text)


class Reports(holder.HolderTest):
    def fails(self, *steps, conf=DUMP, **more):
        done = self.hold(*steps, conf=conf, **more)
        self.assertTrue(done.stdout.endswith("failed\n"), done.stdout)
        return done

    def shown(self):
        return self.answer(0, "oom", "--json", "oom.json")

    def test_line_and_file(self):
        done = self.fails("take", 32 * MIB, "try", 512 * MIB - 1, sim="clock:virtual,memory:640M",
                          conf=DUMP + ",memory_limit:64M")
        line = [line for line in done.stderr.splitlines() if "out of memory" in line]
        self.assertEqual(
            line, ["accelcache: out of memory on device 0: holder asked for 511 MiB, beyond "
                   "the configured limit; the device has 640 MiB, 608 MiB free; 32 MiB allocated here, 0 "
                   "bytes in free parts of segments in use. accelcache oom oom.json "
                   "says who holds it"])

    def test_line_names_what_keeps_memory(self):
        for keeps, words in (("capture", "kept for captured graphs"),
                             ("hold", "kept by work that is not over")):
            with self.subTest(keeps):
                done = self.fails("take", 300 * MIB, keeps, "use", 0, "give", 0, "try", 400 * MIB,
                                  sim="memory:640M", conf=DUMP + ",oom_wait:0.1")
                self.assertIn(f" 300 MiB freed here and {words}, ", done.stderr)
                self.assertNotIn("expandable_segments", done.stderr)

    def test_line_advises_what_helps(self):
        """The message advises expandable_segments only if it helps. Pages of 2 MiB fit into the holes of
        9 MiB. Pages of 8 MiB may not fit, and for a large request all holes together are too small."""
        for pages, request, advised in (("page_size_mb:2", 1200, True), ("page_size_mb:8", 1200, False),
                                        ("page_size_mb:2", 3000, False)):
            steps = ("fill", 9 * MIB, 440, "every", 2, "try", request * MIB)
            with self.subTest(pages=pages, request=request):
                done = self.fails(*steps, conf=DUMP + "," + pages, sim=BIG)
                self.assertEqual("expandable_segments:true may" in done.stderr, advised)
                if advised:
                    self.assertTrue(self.truth(steps, "expandable_segments:true," + pages, sim=BIG))

    def test_no_file_without_the_key(self):
        done = self.fails(*FULL, conf="dump:none")
        self.assertEqual(done.stderr.count("out of memory"), 1)
        self.assertIn("oom_dump:oom-%p.json", done.stderr)

    def test_file_that_cannot_be_written(self):
        done = self.fails(*FULL, conf="oom_dump:none/oom.json,dump:none")
        self.assertIn("none/oom.json cannot be written: No such file", done.stderr)

    def test_holes(self):
        self.fails("plugin", "./libplugin.so", 3 * MIB, *HOLES, sim=BIG)
        text = mask(self.expect(0, "oom", "oom.json").stdout)
        self.assertEqual(text, HOLES_TEXT)

    def test_figures_add_up(self):
        self.fails("plugin", "./libplugin.so", 3 * MIB, "take", 1000, *HOLES, sim=BIG)
        shown = self.shown()
        with open(self.path("oom.json"), encoding="utf-8") as file:
            document = json.load(file)
        stats = document["devices"][0]["stats"]
        sums = {}
        by_module = {}
        for segment in document["layout"]:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                at += block["size"]
                sums[block["state"]] = sums.get(block["state"], 0) + block["size"]
                if block["state"] == "allocated":
                    name = document["module_names"][block["module"]]
                    by_module[name] = by_module.get(name, 0) + block["size"]
            self.assertEqual(at, segment["address"] + segment["size"])
        self.assertEqual(sum(sums.values()), stats["reserved_bytes"]["all"]["current"])
        self.assertEqual(sums["allocated"], stats["allocated_bytes"]["all"]["current"])
        self.assertEqual(by_module, {m["name"]: m["allocated_bytes"]["current"]
                                     for m in document["devices"][0]["modules"]})
        self.assertEqual(by_module["libplugin.so"], 3 * MIB)
        self.assertEqual(shown["blocks"]["allocated"]["bytes"], sums["allocated"])
        self.assertEqual(shown["reserved"] + shown["device_free"] + shown["unexplained"],
                         shown["device_total"])

    def test_what_is_not_known(self):
        self.fails(*FULL)
        with open(self.path("oom.json"), encoding="utf-8") as file:
            document = json.load(file)
        document["devices"][0]["total_memory"] = 0
        for key in ("others", "modules"):
            document["out_of_memory"].pop(key, None)
            document["devices"][0].pop(key, None)
        self.write("oom.json", json.dumps(document))
        shown = self.shown()
        self.assertIsNone(shown["unexplained"])
        self.assertEqual((shown["others"], shown["modules"]), (None, None))
        self.assertRegex(self.expect(0, "oom", "oom.json").stdout, "not explained +not known")

    def test_who_asked(self):
        done = self.hold("take", 1000, "plugin", "./libplugin.so", 5000, "take", 3 * MIB,
                         "fill", 16 * MIB, 15, "try", 64 * MIB, conf=DUMP)
        self.assertTrue(done.stdout.endswith("failed\n"))
        self.assertEqual(self.shown()["module"], "holder")
        self.assertEqual({m["name"] for m in self.shown()["modules"]}, {"holder", "libplugin.so"})

    def test_another_process(self):
        """Another process is listed. Its memory is on another simulated device, which this device cannot
        see."""
        other, _ = self.start("take", 30 * MIB)
        self.fails(*FULL)
        shown = self.shown()
        self.assertEqual([(o["pid"], o["program"], o["reserved"]) for o in shown["others"]],
                         [(other.pid, "holder", 30 * MIB)])
        self.assertIn(f"process {other.pid}", self.expect(0, "oom", "oom.json").stdout)
        other.kill()
        other.wait()
        self.fails(*FULL)
        self.assertEqual(self.shown()["others"], [])

    maxDiff = None

    def truth(self, steps, settings, **more):
        """Runs the program with the settings. Returns true if the request is served."""
        return self.hold(*steps, conf="dump:none," + settings, **more).stdout.endswith("served\n")

    def agrees(self, steps, conf=DUMP, **more):
        """Returns the setting that would have served the request, as the command says. Runs the program
        with each setting that was replayed, to check that the prediction is true."""
        self.fails(*steps, conf=conf, **more)
        shown = self.shown()
        own = conf.replace(DUMP, "").strip(",")
        replays = {r["settings"]: r for r in shown["replays"]}
        self.assertFalse(replays.pop("the settings as they were")["served"], shown)
        for name, replay in replays.items():
            both = {entry.split(":")[0]: entry
                    for entry in ("" if "limit" in name else own).split(",") + name.split(",")
                    if entry}
            joined = ",".join(both.values())
            if replay["sure"] or not replay["served"]:
                self.assertEqual(self.truth(steps, joined, **more), replay["sure"], (name, steps))
        return shown["would_serve"]

    def test_smaller_pages_would_have_served(self):
        self.assertEqual(self.agrees(HOLES, sim=BIG), "expandable_segments:true,page_size_mb:2")

    def test_expandable_segments_would_have_served(self):
        conf = DUMP + ",page_size_mb:2"
        self.assertEqual(self.agrees(HOLES, conf=conf, sim=BIG), "expandable_segments:true")
        self.assertIn("\nexpandable_segments:true would have served it: replayed",
                      self.expect(0, "oom", "oom.json").stdout)

    def test_a_replay_alone_is_no_proof(self):
        """A replay with the recorded placement finds room, but the real setting leaves no room."""
        sim = "clock:virtual,memory:2G"
        self.agrees(CLOSE, sim=sim)
        said = {r["settings"]: (r["served"], r["sure"]) for r in self.shown()["replays"]}
        self.assertEqual(said["expandable_segments:true"], (True, False))
        self.assertFalse(self.truth(CLOSE, "expandable_segments:true", sim=sim))

    def test_nothing_would_have_served(self):
        self.assertIsNone(self.agrees(FULL))
        text = self.expect(0, "oom", "oom.json").stdout
        self.assertIn("No setting that was replayed would have served it: 32.0 MiB were free in "
                      "all, 32.0 MiB less than it asked for.", text)

    def test_many_sizes(self):
        for bytes_, count, every, wanted in ((3 * MIB, 640, 5, 1400), (5 * MIB, 380, 4, 1100),
                                             (700000, 2500, 20, 1400)):
            with self.subTest(bytes=bytes_):
                self.agrees(("fill", bytes_, count, "every", every, "try", wanted * MIB),
                            sim="clock:virtual,memory:2G")

    def test_limit(self):
        steps = ("fill", 16 * MIB, 4, "try", 16 * MIB)
        self.assertEqual(self.agrees(steps, conf=DUMP + ",memory_limit:64M"),
                         "memory_limit:0,per_process_memory_fraction:1")

    def test_replaced_not_at_each_failure(self):
        """A program may continue after a failure and fail many times. The dump is not replaced each time."""
        steps = ("take", 16 * MIB, "try", 255 * MIB) + 49 * ("try", 256 * MIB)
        done = self.hold(*steps, conf=DUMP)
        self.assertEqual(done.stdout.count("failed"), 50)
        self.assertEqual(done.stderr.count("out of memory"), 1)
        self.assertEqual(self.shown()["bytes"], 255 * MIB)


HOLES_TEXT = """\
Device 0: holder asked for 2.73 GiB, and the device had no room for it.

  this process                    1.67 GiB  reserved
    held                           795 MiB  89 blocks
    free                           911 MiB  the largest part 36.0 MiB
      of it beside blocks in use   911 MiB  in the same segments
  not explained                        0 B  contexts, modules, what was taken without the library
  free on the device              2.33 GiB
  the device                      4.00 GiB

Held by
  holder         792 MiB
  libplugin.so  3.00 MiB

expandable_segments:true,page_size_mb:2 would have served it: replayed with the blocks as they \
lay, the request is served, and wherever else they could have come to lie there is room.
"""


class Files(base.CommandTest):
    def test_other_files(self):
        self.write("dump.json", self.fixture("dump"))
        self.assertIn("no request failed", self.expect(1, "oom", "dump.json").stderr)
        self.assertIn("No such file", self.expect(1, "oom", "none.json").stderr)
        self.assertIn("FILE is missing", self.expect(2, "oom").stderr)
        self.assertIn("one argument too many", self.expect(2, "oom", "a", "b").stderr)

    def test_spoilt(self):
        document = json.loads(self.fixture("dump"))
        document["out_of_memory"] = {"device": 1, "bytes": 5}
        for layout in (None, [{}], [{"device": 0, "address": 1, "size": 2, "pool": "large",
                                     "blocks": [{"address": 3, "size": 0}]}]):
            document["layout"] = layout
            self.write("dump.json", json.dumps(document))
            self.assertEqual(self.expect(1, "oom", "dump.json").stderr.count("\n"), 1)
        document["layout"] = []
        self.write("dump.json", json.dumps(document))
        self.assertIn("Nothing was replayed", self.expect(0, "oom", "dump.json").stdout)


if __name__ == "__main__":
    base.main()
