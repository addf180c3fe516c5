"""accelcache report: tests read the page's data and, if a Chromium is installed, the page itself in that browser."""

import json
import os
import pickle
import struct
import tempfile
import unittest

import browser
from base import main
from inputs import BASE, BESIDE, ExportTest, Trace, snapshot

LIBRARY = os.path.join(os.environ.get("AC_DYGRAPHS", "/usr/share/javascript/dygraphs"), "dygraph.min.js")


class ReportTest(ExportTest):
    def setUp(self):
        super().setUp()
        self.arguments = ["--library", os.path.dirname(LIBRARY)]
        if not os.path.exists(LIBRARY):  # the page's data do not depend on it
            folder = self.path("library")
            os.mkdir(folder)
            self.write("library/dygraph.min.js", "/* the library */")
            self.write("library/dygraph.min.css", "/* its style */")
            self.arguments = ["--library", folder]

    def page(self, source, name="page.html"):
        result = self.expect(0, "report", source, "-o", self.path(name), *self.arguments)
        self.assertEqual(result.stderr, f"accelcache report: wrote {self.path(name)}\n")
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def data(self, source):
        text = self.page(source)
        return json.loads(text.split('id="data">')[1].split("</script>")[0])


class Data(ReportTest):
    def test_trace(self):
        data = self.data(self.trace)
        self.assertEqual(data["series"], [
            {"device": 0, "figures": "allocated",
             "points": [[1e-6, 0, 0, 0, 0], [1e-6, 700, 0, 0, 700], [2.5e-6, 3700, 0, 3000, 700],
                        [5e-6, 3700, 0, 3000, 700], [6e-6, 3000, 0, 3000, 0], [7e-6, 3000, 0, 3000, 0]]},
            {"device": 1, "figures": "allocated",
             "points": [[1e-6, 0, 0, 0, 0], [4e-6, 2 << 20, 2 << 20, 0, 0]]}])
        self.assertEqual([site.split(",")[0] for site in data["sites"]],
                         ["requests of 2.00 MiB to 4.00 MiB", "requests of 2.00 KiB to 4.00 KiB",
                          "requests of below 1 KiB"])
        self.assertEqual(data["sizes"][0], {"label": "512 B", "count": 1, "bytes": 700})
        self.assertEqual(data["sizes"][2], {"label": "2.00 KiB", "count": 1, "bytes": 3000})
        self.assertEqual((data["sizes"][-1]["label"], len(data["sizes"])), ("2.00 MiB", 13))
        self.assertEqual(data["lives"], [{"label": "1 us", "count": 1, "bytes": 700}])
        self.assertEqual([(b["device"], b["address"], b["bytes"], b["since"])
                          for b in data["blocks"]],
                         [(1, hex(BASE + (1 << 32)), 2 << 20, 4e-6),
                          (0, hex(BASE + 1024), 3000, 2.5e-6), (0, hex(BASE), 700, 1e-6)])
        rows = data["map"]["rows"]
        self.assertEqual([(r["address"], r["bytes"], r["used"]) for r in rows],
                         [(hex(BASE + (1 << 32)), 2 << 20, 2 << 20), (hex(BASE), 4096, 4096)])
        self.assertEqual(rows[0]["cells"], "9" * 240)
        advice = {a["text"]: a["level"] for a in data["advice"]}
        self.assertEqual(advice["1 request failed, the largest of 4.88 KiB. accelcache tune "
                                "--capacity says which settings complete."], "problem")
        self.assertIn("2 blocks with 2.00 MiB still in use at the end.", advice)

    def test_snapshot(self):
        whole = snapshot()
        whole["segments"][0]["blocks"][1]["state"] = "inactive"
        whole["segments"][0]["blocks"][1]["size"] += 512 * 1024
        whole["segments"][0]["blocks"][2]["address"] += 512 * 1024
        whole["segments"][0]["blocks"][2]["size"] -= 512 * 1024
        whole["segments"][0]["blocks"][2]["state"] = "active_pending_free"
        data = self.data(self.write("other.json", json.dumps(whole)))
        self.assertEqual(data["series"][0]["points"],
                         [[0, 1000, 2 << 20, 1000, 0], [0, 1000, 4 << 20, 1000, 0],
                          [50e-6, 1700, 4 << 20, 1000, 700], [150e-6, 1000, 4 << 20, 1000, 0],
                          [250e-6, 1000, 2 << 20, 1000, 0]])
        cells = data["map"]["rows"][0]["cells"]
        self.assertEqual((cells[:2], cells[59], cells[60], cells[61:]), ("10", "0", "7", "9" * 179))
        self.assertIn("512 KiB of 2.00 MiB reserved are free; the largest free piece has 512 KiB.",
                      [a["text"] for a in data["advice"]])

    def test_dump(self):
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        document["devices"][0]["stats"]["num_ooms"] = 3
        document["devices"][0]["modules"] = [
            {"name": "libfoo.so", "path": "/a/libfoo.so", "num_allocs": 5,
             "allocated_bytes": {"current": 1 << 20, "allocated": 1 << 21, "freed": 1 << 20}}]
        data = self.data(self.write("dump2.json", json.dumps(document)))
        self.assertNotIn("tables", data)  # the page names process and time; `stat` has all counters
        shown = self.answer(0, "stat", "--json", self.dump)["devices"]
        for figures, device in zip(data["figures"], shown, strict=True):
            stats = device["stats"]
            self.assertEqual(figures, {"device": device["ordinal"], "reserved": stats["reserved_bytes"]["all"]["current"],
                                       "allocated": stats["allocated_bytes"]["all"]["current"],
                                       "peak": stats["allocated_bytes"]["all"]["peak"]})
        texts = [a["text"] for a in data["advice"]]
        self.assertTrue(texts[0].startswith("Device 1: 3 requests failed for lack of memory."))
        self.assertIn("Warning: a warning of the fixture", texts)

    def test_share_of_hits(self):
        """The hit ratio equals that of `stat`: requests that went to the driver are no hits."""
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        document["devices"][0]["counters"].update(cached_allocs=1000, driver_allocs=0)
        document["devices"][0]["stats"]["allocation"]["all"]["allocated"] = 1000
        document["counters"]["passed_allocs"] = 99000
        source = self.write("dump2.json", json.dumps(document))
        advice = {a["text"]: a["level"] for a in self.data(source)["advice"]}
        share = "1.0 % of 100,000 requests were served without a driver call."
        self.assertEqual(advice.get(share), "note", advice)
        self.assertIn("(1.0 %)", self.expect(0, "stat", "--brief", source).stdout)

    def test_who_grew(self):
        """The page reports only the site that never frees its blocks as growing."""
        trace, live = [], [{}, {}, {}]
        def event(word, site, address, size):
            trace.append({"action": word, "addr": address, "size": size, "stream": 0, "time_us": len(trace),
                          "frames": [{"name": f"site{site}", "filename": "a.py", "line": site + 1}]})
        for i in range(2000):
            for site, size in enumerate((100, 5000, 300)):
                address = BASE + (3 * i + site << 20)
                live[site][address] = size
                event("alloc", site, address, size)
            for site, keep in ((1, 50), (2, 1)):
                while len(live[site]) > keep or (site == 1 and i == 1999 and live[site]):
                    address = next(iter(live[site]))
                    event("free_requested", site, address, live[site].pop(address))
        source = self.write("grew.json", json.dumps({"segments": [], "device_traces": [trace]}))
        told = [a["text"] for a in self.data(source)["advice"] if "every quarter" in a["text"]]
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], r"^Peak memory grew in every quarter of the run, from \S+ KiB to \S+ KiB: does .*\? "
                                  r"Grew in each: site0 \(a\.py:1\) from 4\S+ KiB to 195 KiB\.$")

    def test_thinned_out(self):
        """The page omits most moments, but keeps the peak."""
        lines = ["a 0 1000 0"]
        for i in range(1, 100001):
            lines += [f"a {i} {999983 if i == 77777 else 10} 0", f"f {i}"]
        data = self.data(self.write("long", "\n".join(lines) + "\n"))
        points = data["series"][0]["points"]
        self.assertLess(len(points), 20000)
        self.assertEqual(max(p[1] for p in points), 1000983)
        self.assertEqual(points[-1][:2], [200000, 1000])
        self.assertEqual(data["events"], 200001)

    def test_size_is_bounded(self):
        """The size of the page is bounded for any number of events, so that it opens quickly."""
        source = self.path("million")
        self.expect(0, "gen", "lora", "--ops", "1000000", "-o", source)
        text = self.page(source).split('id="data">')[1].split("</script>")[0]
        data = json.loads(text)
        self.assertGreater(data["events"], 1000000)
        self.assertLess(len(text), 400_000)
        self.assertLessEqual(len(data["series"][0]["points"]), 4 * 750 + 1)
        self.assertEqual(len(data["sites"]), 10)

    def test_memory_beside_the_cache(self):
        data = self.data(self.recorded(BESIDE, len(BESIDE)))
        (series,) = data["series"]
        self.assertEqual(series["figures"], "allocated reserved pinned passed")
        self.assertNotIn("peak", series, "nothing is missing")
        self.assertEqual([p[1:5] for p in series["points"]],
                         [[0, 0, 0, 0], [700, 0, 0, 0], [700, 0, 5000, 0], [700, 0, 5000, 0],
                          [700, 0, 5000, 90], [700, 0, 5000, 0], [700, 0, 5000, 2 << 20],
                          [700, 0, 5000, 3 << 20], [700, 0, 5000, 1 << 20],
                          [700, 0, 0, 1 << 20], [700, 0, 0, 0], [700, 0, 0, 0], [0, 0, 0, 0]])

    def test_peak_of_a_ring_that_wrapped(self):
        """If the history lost events, the dump's figures give the peak."""
        events = [("alloc", BASE, 121 << 20), ("free", BASE, 121 << 20), ("snapshot", 0, 0)]
        for numbered, peak in ((3, None), (4, 129 << 20)):
            (series,) = self.data(self.recorded(events, numbered))["series"]
            self.assertEqual(series.get("peak"), peak)

    def sites_of(self, source):
        """Returns {site: bytes at each point}. The key None has the bytes of all other sites."""
        data = self.data(source)
        (series,) = data["series"]
        first = 1 + len(series["figures"].split())
        columns = {name: [p[first + i] for p in series["points"]] for i, name in enumerate(data["sites"])}
        columns[None] = [p[1] - sum(p[first:]) for p in series["points"]]
        return columns

    def grown(self, sites=12):
        """Returns a snapshot of call sites. Site N allocates N + 1 blocks of 1,000 bytes, and one is freed."""
        trace, time = [], 100

        def event(action, address, site):
            nonlocal time
            time += 10
            frames = [{"name": f"site{site}", "filename": "a.py", "line": site + 1}]
            if site < 3:
                frames.append({"name": f"phase p{site // 2}", "filename": "", "line": 0})
            trace.append({"action": action, "addr": address, "size": 1000, "stream": 0, "time_us": time,
                          "frames": frames})
        for site in range(sites):
            for k in range(site + 1):
                event("alloc", BASE + (site << 24) + (k << 16), site)
            event("free_requested", BASE + (site << 24), 99)
        return {"segments": [], "device_traces": [trace]}

    def test_call_sites_over_time(self):
        """The page has columns for the ten largest sites. A free counts for the site that allocated the block."""
        source = self.write("sites.json", json.dumps(self.grown()))
        columns = self.sites_of(source)
        names = [name.split(" ")[0] for name in columns if name]
        self.assertEqual(names, [f"site{i}" for i in range(11, 1, -1)])
        for i, held in zip(range(11, 1, -1), columns.values()):
            self.assertEqual((held[0], max(held), held[-1]), (0, 1000 * (i + 1), 1000 * i))
        self.assertEqual(columns[None][-1], 1000)  # site1 holds them; site0 holds nothing
        phases = self.data(source)["phases"]
        self.assertEqual([name for name, _, _ in phases], ["p0", "p1"])
        self.assertLess(phases[0][2], phases[1][1])

    def test_sizes_without_stacks(self):
        """Events of a pickle share one empty list of frames. Each counts for the site of its own size."""
        frames = []
        trace = [{"action": "alloc", "addr": BASE + (i << 24), "size": size, "stream": 0, "time_us": 100 + i,
                  "frames": frames} for i, size in enumerate((700, 3000, 2 << 20))]
        source = self.write("shared.pickle", pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
        columns = {name and name.split(",")[0]: held for name, held in self.sites_of(source).items()}
        self.assertEqual(columns, {"requests of 2.00 MiB to 4.00 MiB": [0, 0, 0, 2 << 20],
                                   "requests of 2.00 KiB to 4.00 KiB": [0, 0, 3000, 3000],
                                   "requests of below 1 KiB": [0, 700, 700, 700], None: [0, 0, 0, 0]})

    def test_never_below_nothing(self):
        """If events free blocks that the history did not allocate, the page says so and shows no negative bytes in use."""
        data = self.data(self.recorded([("free", BASE + 4096, 9 << 20), ("alloc", BASE, 20 << 20), ("snapshot", 0, 0)], 3))
        self.assertEqual([p[1] for p in data["series"][0]["points"]], [0, 0, 11 << 20])
        self.assertRegex(data["advice"][0]["text"], "^The events free 9.00 MiB more than they show as allocated")
        source = self.recorded([("alloc", BASE, 5000), ("free", BASE, 5000), ("snapshot", 0, 0)], 3)
        with open(source, encoding="utf-8") as file:
            document = json.load(file)
        left = self.data(self.recorded([("alloc", BASE, 5000), ("snapshot", 0, 0)], 2))
        self.assertEqual([p[1] for p in left["series"][0]["points"]], [0, 5000])
        document["recorded"]["peak"] = {"requested": 100 << 20, "sites": []}
        document["history"][0]["event"] = document["history"][0]["event"][:2]
        document["history"][0]["events"] = 2
        said = self.data(self.write("peak.json", json.dumps(document)))["advice"][0]
        self.assertEqual(said, {"level": "problem", "text":
                                "The events reach 4.88 KiB at the peak, the figures 100 MiB: some events are missing."})

    def test_two_recordings(self):
        before, after = self.grown(), self.grown()
        after["device_traces"][0].append({"action": "alloc", "addr": BASE - 65536, "size": 9000, "stream": 0,
                                          "time_us": 9000, "frames": [{"name": "late", "filename": "b.py", "line": 7}]})
        a, b = self.write("a.json", json.dumps(before)), self.write("b.json", json.dumps(after))
        self.expect(0, "report", a, b, "-o", self.path("two.html"), *self.arguments)
        with open(self.path("two.html"), encoding="utf-8") as file:
            data = json.loads(file.read().split('id="data">')[1].split("</script>")[0])
        told = self.answer(0, "diff", "--json", a, b)
        self.assertEqual(data["changes"]["bytes"], told["bytes"])
        self.assertEqual(data["changes"]["from"], a)
        self.assertEqual(data["changes"]["sites"], [
            {key: site[key] for key in ("site", "change", "bytes")} for site in told["sites"] if site["change"] != "same"])
        self.assertEqual([site["site"] for site in data["changes"]["sites"]], ["late (b.py:7)", "site11 (a.py:12)"])

    def test_request_that_failed(self):
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        ordinal = document["devices"][0]["ordinal"]
        document["module_names"] = ["libmodel.so"]
        document["out_of_memory"] = {"device": ordinal, "bytes": 5 << 30, "module": 0, "thread": 1, "async": False,
                                     "at_limit": False, "limit": None, "device_free": 1 << 20, "other_processes": 0,
                                     "others": []}
        document["layout"] = [{"device": ordinal, "pool": "large", "expandable": False, "address": BASE, "size": 4 << 20,
                               "blocks": [{"address": BASE, "size": 1 << 20, "requested": 1 << 20, "module": 0,
                                           "state": "allocated"},
                                          {"address": BASE + (1 << 20), "size": 3 << 20, "requested": 0, "module": 0,
                                           "state": "free"}]}]
        data = self.data(self.write("oom.json", json.dumps(document)))
        self.assertRegex(data["advice"][0]["text"], rf"^Device {ordinal}: \S+ asked for 5\.00 GiB, and the device had "
                                                    r"no room for it\. accelcache oom FILE says")
        (row,) = data["map"]["rows"]
        self.assertEqual((row["bytes"], row["used"], row["cells"][:61]), (4 << 20, 1 << 20, "9" * 60 + "0"))

    def test_alone(self):
        """The page makes no network requests. Text of the file cannot become markup of the page."""
        name = "</script><script>alert(1)</script><!--<script>"
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        document["process"]["argv"] = [name]
        text = self.page(self.write("evil.json", json.dumps(document)))
        self.assertNotIn("alert(1)</script>", text)
        self.assertEqual(dict(json.loads(text.split('id="data">')[1].split("</script>")[0])
                              ["facts"])["Program"], name)
        for part in (' src="', "<link", "@import", "@data@", "@library@", "@style@"):
            self.assertNotIn(part, text)

    def test_errors(self):
        result = self.expect(1, "report", self.trace, "--library", self.path("absent"))
        self.assertIn("apt-get install libjs-dygraphs", result.stderr)
        result = self.expect(1, "report", "absent", *self.arguments)
        self.assertIn("absent: No such file or directory", result.stderr)
        self.assertFalse(os.path.exists(self.path("report.html")))
        self.assertIn("FILE is missing", self.expect(2, "report").stderr)
        self.assertIn("dygraph.min.js", self.expect(0, "report", "--help").stdout)
        self.assertIn("<!DOCTYPE html>",
                      self.expect(0, "report", self.trace, "-o", "-", *self.arguments).stdout)


def picture_size(path):
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


@unittest.skipUnless(browser.PROGRAM and os.path.exists(LIBRARY),
                     "no chromium, or no libjs-dygraphs, is installed")
class Shown(ReportTest):
    @classmethod
    def setUpClass(cls):
        cls.place_of_browser = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = browser.Browser(cls.place_of_browser.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.place_of_browser.cleanup()

    def show(self, source, **more):
        self.page(source)
        seconds = self.browser.open(self.path("page.html"), **more)
        self.assertEqual(self.browser.errors(), ([], []))
        return seconds

    def text(self, selector):
        return self.browser.value(
            f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")

    def unfold(self):
        self.browser.value("document.querySelector('details').open = true")
        self.browser.value("new Promise(f => setTimeout(() => requestAnimationFrame(() => f(1)), 50))")

    def place(self, selector):
        return self.browser.value(
            f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block:"
            " 'center'}); const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height];"
            " })()")

    def longer(self):
        """Returns a trace of one second: bytes in use rise by 1 MiB every 10 ms up to 50 MiB, then fall."""
        trace = Trace(devices=((0, 1 << 30), ))
        trace.place(0, 0, 0)
        for i in range(50):
            trace.alloc(i * 10_000_000, 0, BASE + (i << 20), 1 << 20)
        for i in range(50):
            trace.free((50 + i) * 10_000_000, BASE + (i << 20))
        trace.alloc(990_000_000, 0, BASE, 3 << 20)
        return self.write("longer.trace", trace.data())

    def test_numbers(self):
        self.show(self.trace)
        self.assertEqual(self.text(".tile b"), ["3.61 KiB", "2.00 MiB", "3", "2.00 MiB"])
        self.assertEqual(self.text("h2"), [
            "What the figures say", "Who holds the memory", "Memory of device 0 over time, by call site",
            "Memory of device 1 over time, by call site"])
        self.unfold()
        self.assertEqual(self.text("h2")[4:], [
            "Sizes of requests", "Lifetimes", "The largest blocks at the peak", "Map: ranges of addresses at the peak"])
        self.assertEqual(self.text(".moments button"), ["at the peak", "at the end", "leaked"])
        self.assertEqual(self.text(".frame"), [f"{name}, 2.00 MiB" for name in (
            "all", "device 1", "stream 1", "2.00 MiB to 4.00 MiB")])
        self.assertEqual(self.text("td")[:5], ["2.00 MiB", "4.0 us", "1", "1", hex(BASE + (1 << 32))])
        self.assertIn("2.00 MiB", self.text(".sites li:not([hidden]) b"))

    def test_kept_events(self):
        source = self.recorded([("pinned_alloc", 4096, 5000), ("alloc", BASE, 121 << 20),
                                ("free", BASE, 121 << 20), ("snapshot", 0, 0)], 9)
        self.show(source)
        tiles = dict(zip(self.text(".tile span"), self.text(".tile b")))
        for name, value in (("most in use, in the events kept", "121 MiB"),
                            ("most pinned host memory, in the events kept", "4.88 KiB"),
                            ("most in use so far, rounded up", "129 MiB")):
            self.assertEqual(tiles.get(f"device 0: {name}"), value, tiles)
        self.assertEqual(tiles.get("requests, in the events kept"), "1", tiles)

    def test_hover_and_zoom(self):
        self.show(self.longer())
        x, y, width, height = self.place(".chart")
        inner = self.browser.value("report.charts[0].getArea()")
        at = x + inner["x"] + inner["w"] * (0.2005 / 0.99)
        self.browser.mouse("mouseMoved", at, y + height / 2)
        self.assertRegex(self.text(".legend")[0], r"^200\.000 ms: 21\.0 MiB in use$")
        self.assertEqual(self.text(".sites li b")[0], "21.0 MiB")
        self.browser.drag(x + inner["x"] + inner["w"] * 0.2, x + inner["x"] + inner["w"] * 0.4,
                          y + height / 3)
        low, high = self.browser.value("report.charts[0].xAxisRange()")
        self.assertAlmostEqual(low, 0.2 * 0.99, delta=0.01)
        self.assertAlmostEqual(high, 0.4 * 0.99, delta=0.01)
        self.browser.value("document.querySelector('.hint button').click()")
        self.assertEqual(self.browser.value("report.charts[0].isZoomed('x')"), False)

    def test_histogram(self):
        self.show(self.longer())
        self.unfold()
        x, y, width, height = self.place(".small .chart")
        inner = self.browser.value("report.charts[1].getArea()")
        self.browser.mouse("mouseMoved", x + inner["x"] + inner["w"] / 4, y + height / 2)
        self.assertEqual(self.text(".small .legend")[0], "from 1.00 MiB: 50 requests, 50.0 MiB")
        self.browser.value("document.querySelectorAll('.small button')[1].click()")
        self.assertEqual(self.browser.value("report.charts[1].getValue(0, 1)"), 50 << 20)

    def test_map(self):
        self.show(self.longer())
        self.unfold()
        x, y, width, height = self.place(".row canvas")
        self.browser.mouse("mouseMoved", x + width / 2, y + height / 2)
        self.assertRegex(self.text(".legend")[-1],
                         rf"^{hex(BASE)} \+ 2[45]\.\d MiB to 25\.\d MiB: used$")

    def test_sizes_and_colours(self):
        """All elements fit the width of the window. The light and dark styles differ."""
        folder = os.environ.get("AC_SCREENSHOTS", self.folder)
        for name, source in (("trace", self.longer()), ("dump", self.dump),
                             ("snapshot", self.snapshot)):
            colours = set()
            for width, dark in ((1400, False), (420, True)):
                self.show(source, width=width, dark=dark)
                if self.browser.value("!!document.querySelector('details')"):
                    self.unfold()
                self.assertLessEqual(
                    self.browser.value("document.documentElement.scrollWidth"), width)
                colours.add(self.browser.value("getComputedStyle(document.body).backgroundColor"))
                path = os.path.join(folder, f"report-{name}-{width}.png")
                self.browser.screenshot(path)
                self.assertEqual(picture_size(path)[0], width)
            self.assertEqual(len(colours), 2)

    def test_million(self):
        """A page of a million operations opens within 3 s on an idle machine. The number of its points is bounded."""
        lines = [f"a {i} 4096 0\nf {i}" for i in range(500000)]
        seconds = self.show(self.write("million", "\n".join(lines) + "\n"))
        points = self.browser.value("report.data.series[0].points.length")
        self.assertLess(points, 20000)
        self.assertLess(seconds, 100)


if __name__ == "__main__":
    main()
