"""accelcache where: the object at an address, from files and from processes that answer or cannot."""

import json
import os
import pickle
import re
import signal
import subprocess
import time
import unittest

import base
import holder

MIB = 1 << 20


class Where(holder.HolderTest):
    def start(self, *steps, **more):
        process, taken = super().start(*steps, **more)
        return str(process.pid), process, taken

    def snapshot(self, pid):
        self.expect(0, "ctl", pid, "snapshot", "now.json")
        return "now.json"

    def says(self, address, source, status=0):
        """Returns the first line of the output, without the address."""
        out = self.expect(status, "where", hex(address), source).stdout
        self.assertTrue(out.startswith(hex(address) + " is "), out)
        return out.split("\n", 1)[0].replace(hex(address) + " is ", "")

    def both(self, address, pid, status=0):
        asked = self.says(address, pid, status)
        self.assertEqual(self.says(address, self.snapshot(pid), status), asked)
        return asked

    def figures(self, address, source, status=0):
        return self.answer(status, "where", "--json", str(address), source)

    def test_what_keeps_its_reader_waiting(self):
        os.mkfifo(self.path("fifo"))
        for source in ("fifo", "/dev/zero", self.folder):
            for json_ in ((), ("--json",)):
                self.assertIn(" file", self.expect(1, "where", *json_, "16", source).stderr)

    def test_pipe(self):
        """The command reads a pipe only once, be it a dump or a snapshot."""
        _, process, (first,) = self.start("take", 1000000)
        self.snapshot(str(process.pid))
        with open(self.path("now.json"), encoding="utf-8") as file:
            text = file.read()
        done = subprocess.run([base.COMMAND, "where", hex(first), "/dev/stdin"], input=text,
                              env=self.environment, text=True, stdout=subprocess.PIPE,
                              timeout=200, check=True)
        self.assertIn("is byte 0 of a block that the program holds", done.stdout)

    def test_held(self):
        pid, _, (first, second) = self.start("take", 1000000, "plugin", "./libplugin.so", 5000000)
        self.assertEqual(self.both(first, pid), "byte 0 of a block that the program holds")
        self.assertEqual(self.both(second + 1234567, pid),
                         "byte 1,234,567 of a block that the program holds")
        shown = self.figures(second + 12, pid)
        self.assertEqual((shown["offset"], shown["past_end"], shown["device"]), (12, None, 0))
        self.assertEqual((shown["block"]["address"], shown["block"]["requested"],
                          shown["block"]["module"]), (second, 5000000, "libplugin.so"))
        self.assertEqual(self.figures(first, pid)["block"]["module"], "holder")

    def test_past_the_end(self):
        pid, _, (first, _) = self.start("take", 1000000, "take", 3 * MIB)
        for past, said in ((0, "right behind the end of"), (1, "1 byte past the end of"),
                           (12, "12 bytes past the end of")):
            self.assertEqual(self.both(first + 1000000 + past, pid),
                             said + " what was asked for, in a block that the program holds")
        shown = self.figures(first + 1000012, pid)
        self.assertEqual((shown["past_end"], shown["offset"]), (12, 1000012))

    def test_past_the_end_in_free_memory(self):
        pid, _, (first,) = self.start("take", 70000)
        end = first + 70000
        self.assertEqual(self.both(end + 2000, pid), "2,000 bytes past the end of a block that the "
                         "program holds, in free memory of the library")
        self.assertEqual(self.figures(end + 2000, pid)["before"]["address"], first)
        self.assertEqual(self.figures(end + 2000, pid)["past_end"], 2000)

    def test_freed(self):
        """A thread keeps the freed block. The command names the blocks around it."""
        pid, _, (one, two, three) = self.start(
            "take", 2 * MIB, "take", 2 * MIB, "take", 2 * MIB, "give", 1)
        self.assertEqual(self.both(two + 5, pid), "byte 5 of a block that was freed, and that a "
                         "thread keeps for its next request")
        shown = self.figures(two + 5, pid)
        self.assertEqual((shown["block"]["state"], shown["block"]["module"]), ("cached", "holder"))
        held = {block["address"] for block in (shown["before"], shown["behind"]) if block}
        self.assertLessEqual(held, {one, three})

    def test_pending(self):
        pid, _, (block, _) = self.start("async", 2 * MIB, "take", MIB, "drop", 0,
                                        sim="clock:real,memory:256M",
                                        conf="control:true,dump:none,single_stream:false")
        shown = self.figures(block + 9, pid)
        self.assertIn(shown["block"]["state"], ("pending", "cached"))
        self.assertEqual(shown["offset"], 9)
        if shown["block"]["state"] == "pending":
            self.assertIsNotNone(shown["block"]["stream"])

    def test_never_ours(self):
        pid, _, (first,) = self.start("take", 1000)
        self.assertEqual(self.both(first - 4096, pid, 1), "in no segment of the library: it was "
                         "never its memory, or went back to the driver")
        text = self.expect(1, "where", hex(first - 4096), pid).stdout
        self.assertIn(f"nearest segment  {hex(first)}  2.00 MiB of the small pool, 4.00 KiB behind "
                      "the address\n", text)
        nearest = self.figures(first + 2 * MIB + 77, pid, 1)["nearest"]
        self.assertEqual((nearest[0]["address"], nearest[1]), (first, None))

    def test_small_blocks(self):
        """Each block of a slab appears as a block, for any number of blocks."""
        steps = ("fill", 512, 2000, "every", 3, "take", 512)
        pid, _, (last,) = self.start(*steps)
        with open(self.path(self.snapshot(pid)), encoding="utf-8") as file:
            blocks = [b for s in json.load(file)["layout"] for b in s["blocks"]]
        self.assertEqual(sum(b["state"] == "allocated" for b in blocks), 668)
        self.assertEqual(self.both(last + 511, pid), "byte 511 of a block that the program holds")

    def test_expandable_segments(self):
        pid, _, (first,) = self.start(
            "take", 9 * MIB, conf="control:true,dump:none,expandable_segments:true")
        self.assertEqual(self.both(first + 9 * MIB - 1, pid),
                         "byte 9,437,183 of a block that the program holds")
        self.assertTrue(self.figures(first, pid)["segment"]["expandable"])
        self.assertEqual(self.both(first + 512 * MIB, pid),
                         "in addresses of the library without memory")

    def test_the_only_process(self):
        self.assertIn("no process of yours runs", self.expect(1, "where", "4096").stderr)
        _, _, (first,) = self.start("take", 1000)
        self.assertIn("byte 7 of", self.expect(0, "where", hex(first + 7)).stdout)
        self.start("take", 1000)
        self.assertIn("2 processes run", self.expect(1, "where", "4096").stderr)

    def test_text(self):
        pid, _, (first, second) = self.start("take", 1000, "take", 1000)
        text = self.expect(0, "where", str(first + 1010), pid).stdout
        text = re.sub("0x[0-9a-f]+", lambda m: f"FIRST+{int(m[0], 16) - first}", text)
        self.assertEqual(text, TEXT.format(second - first))

    # ---- processes that cannot answer

    def refusal(self, pid, said):
        error = self.soon(lambda: self.expect(1, "where", "0x400000000000", pid).stderr)
        self.assertIn(said, error)
        self.assertEqual(error.count("\n"), 1)

    def test_stopped(self):
        pid, process, _ = self.start("take", 1000)
        process.send_signal(signal.SIGSTOP)
        while " T " not in base_stat(pid):
            time.sleep(0.01)
        self.refusal(pid, "is stopped")
        process.send_signal(signal.SIGCONT)

    def test_dying(self):
        """During a slow exit, the command answers or refuses soon."""
        pid, process, (first,) = self.start("take", 1000, "linger")
        process.stdin.write("q")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "lingers\n")
        done = self.soon(lambda: self.command("where", hex(first), pid))
        self.assertIn(done.returncode, (0, 1))
        self.assertEqual((done.stdout + done.stderr).count("0 of a block that the program holds") +
                         done.stderr.count(f"process {pid}"), 1, done.stdout + done.stderr)
        self.assertIsNone(process.poll())

    def test_killed(self):
        pid, process, _ = self.start("take", 1000)
        process.kill()
        process.wait()
        self.refusal(pid, "has ended")
        self.assertIn("has ended", self.expect(1, "ctl", pid, "snapshot", "x.json").stderr)

    def test_gone(self):
        pid, process, _ = self.start("take", 1000)
        process.stdin.write("q")
        process.stdin.flush()
        process.wait()
        self.refusal(pid, "shows no figures")

    def test_without_the_key(self):
        pid, _, _ = self.start("take", 1000, conf="dump:none")
        self.refusal(pid, "does not listen: start it with control:true")

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be another user")
    def test_another_user(self):
        self.open_to_all()
        pid, _, (first,) = self.start("take", 1000, user=65534, group=65534, extra_groups=[])
        self.refusal(pid, "belongs to user 65534")
        ours, _, _ = self.start("take", 1000)
        done = subprocess.run([self.tool, "where", hex(first), ours], env=self.environment,
                              user=65534, group=65534, extra_groups=[], capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("belongs to another user", done.stderr)


def base_stat(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read()


TEXT = """\
FIRST+1010 is 10 bytes past the end of what was asked for, in a block that the program holds
  block           FIRST+0  1.00 KiB, allocated, 1,000 bytes asked for by holder
  segment         FIRST+0  2.00 MiB of the small pool, of device 0
  held behind it  FIRST+{}  1.00 KiB, allocated, 1,000 bytes asked for by holder
"""


class Files(base.CommandTest):
    def test_usage(self):
        for arguments, said in (((), "ADDRESS is missing"), (("there",), "is no address"),
                                (("0x12g",), "is no address"), (("-5",), ""),
                                (("1", "2", "3"), "one argument too many")):
            self.assertIn(said, self.expect(2, "where", *arguments).stderr)

    def test_a_free_that_was_refused(self):
        """A refused free does not count as a free, even if the address no longer belonged to the library then."""
        document = json.loads(self.fixture("dump", "exit"))
        at = 0x7f0000000000
        def events(*words, thread=7):
            return [[word, 1000 * (i + 1), at, 0 if word == "refused" else 64 * MIB, 0, 1, thread]
                    for i, word in enumerate(words)]
        first = ("segment_alloc", "alloc", "free", "segment_free")
        for more, time_ns in (((), 3000), (("free", "refused"), 3000), (("passed_free", "refused"), 3000),
                              (("pinned_free", "refused", "passed_free", "refused"), 3000),
                              (("segment_alloc", "alloc", "free", "free", "refused"), 7000)):
            rows = events(*first, *more)
            document["devices"][0]["ordinal"] = 0
            document.update(
                recorded={"stacks": "none", "sample_bytes": 0, "history": 100, "time_ns": 10000, "lost_blocks": 0,
                          "lost_stacks": 0, "files": ["/bin/app"], "build_ids": [""], "texts": [], "sites": [],
                          "stack": [{"frames": [1, 16]}]},
                history=[{"device": 0, "events": len(rows), "dropped": 0, "event": rows}], layout=[])
            file = self.write("dump.json", json.dumps(document))
            shown = json.loads(self.command("where", "--json", str(at), file).stdout)
            self.assertIsNotNone(shown["free"], more)
            self.assertEqual(shown["free"]["time_ns"], time_ns, more)

    def test_other_files(self):
        self.write("dump.json", self.fixture("dump"))
        self.assertIn("it lists no blocks", self.expect(1, "where", "1", "dump.json").stderr)
        self.assertIn("none.json: No such file", self.expect(1, "where", "1", "none.json").stderr)
        shown = json.loads(self.expect(1, "where", "--json", "1", "none.json").stdout)
        self.assertIn("No such file", shown["error"])


def frames(*places):
    return [{"name": name, "filename": file, "line": line} for name, file, line in places]


SNAPSHOT = {
    "segments": [{
        "device": 0, "address": 0x7f0000000000, "total_size": 2 << 20, "segment_type": "small",
        "is_expandable": False, "stream": 0, "allocated_size": 1000,
        "blocks": [
            {"size": 1024, "requested_size": 1000, "state": "active_allocated",
             "frames": frames(("forward", "model.py", 12), ("main", "main.py", 3))},
            {"size": 512, "requested_size": 300, "state": "active_pending_free",
             "frames": frames(("lost", "", 0))},
            {"size": (2 << 20) - 1536, "requested_size": 0, "state": "inactive", "frames": []}]}],
    "device_traces": [[
        {"action": "alloc", "addr": 0x7f0000000600, "size": 700, "stream": 0, "time_us": 1,
         "frames": frames(("backward", "model.py", 40))},
        {"action": "free_requested", "addr": 0x7f0000000600, "size": 700, "stream": 0, "time_us": 2,
         "frames": frames(("step", "optim.py", 9))},
        {"action": "free_completed", "addr": 0x7f0000000600, "size": 700, "stream": 0, "time_us": 3,
         "frames": frames(("step", "optim.py", 9))}]],
}


class Snapshots(base.CommandTest):
    """Snapshots of PyTorch in each format, and a snapshot that `accelcache export` writes."""

    def setUp(self):
        super().setUp()
        self.files = [self.write("s.json", json.dumps(SNAPSHOT))]
        for protocol in (2, 4, 5):
            self.files.append(self.write(f"s{protocol}.pickle", pickle.dumps(SNAPSHOT, protocol)))
        self.files.append(self.path("exported.pickle"))
        self.expect(0, "export", "-f", "torch-snapshot", self.files[0], "-o", self.files[-1])

    def test_held(self):
        for file in self.files:
            out = self.expect(0, "where", hex(0x7f0000000000 + 1010), file).stdout
            self.assertIn("is 10 bytes past the end of what was asked for, in a block that the program "
                          "holds", out)
            out = self.expect(0, "where", hex(0x7f0000000000 + 1024), file).stdout
            self.assertIn("is byte 0 of a block that was freed, and that work from before may still "
                          "use", out)
            if file != self.files[-1]:
                self.assertIn("300 bytes asked for by lost", out)
                out = self.expect(0, "where", "0x7f0000000001", file).stdout
                self.assertIn("1,000 bytes asked for by forward (model.py:12)", out)

    def test_freed(self):
        for file in self.files[:-1]:
            out = self.expect(0, "where", "0x7f0000000700", file).stdout
            self.assertRegex(out, r"newest there +0x7f0000000600 +700 B asked for by backward "
                                  r"\(model.py:40\), freed by\s+step \(optim.py:9\)")
            shown = json.loads(self.expect(0, "where", "--json", "0x7f0000000700", file).stdout)
            self.assertEqual(shown["newest"]["freed_by"], "step (optim.py:9)")
            self.assertEqual(shown["block"]["state"], "free")

    def test_damaged(self):
        """The command does not run code of a pickle. Every truncated file is an error."""
        whole = pickle.dumps(SNAPSHOT, 4)
        for length in (*range(2, 60), *range(60, len(whole), 97), len(whole) - 1):
            file = self.write("cut.pickle", whole[:length])
            self.assertIn("no pickle that is read here",
                          self.expect(1, "where", "1", file).stderr)
        file = self.write("code.pickle", pickle.dumps(os.system))
        self.assertIn("it has objects other than", self.expect(1, "where", "1", file).stderr)
        file = self.write("other.pickle", pickle.dumps({"a": [1, -5, 2.5, True, None, (1, 2)]}))
        self.assertIn("no memory snapshot", self.expect(1, "where", "1", file).stderr)

    def test_blocks_that_do_not_fill_their_segment(self):
        damaged = json.loads(json.dumps(SNAPSHOT))
        damaged["segments"][0]["blocks"][0]["size"] = 7
        file = self.write("short.json", json.dumps(damaged))
        for words in (("where", "0x7f0000000001"), ("export", "-f", "folded")):
            self.assertIn("segments[0]: device, address, total_size or blocks are missing or do not match",
                          self.expect(1, *words, file).stderr)

    def test_readers_of_histories(self):
        out = [self.expect(0, "export", "-f", "perfetto", file).stdout for file in self.files[:2]]
        self.assertEqual(out[0], out[1])


if __name__ == "__main__":
    base.main()
