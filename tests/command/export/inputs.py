"""Inputs for the suites: a trace (observe/trace_format.h), a snapshot in PyTorch's layout, and the fixture's dump."""

import json
import struct

from base import CommandTest

UNIT = 65536
ALLOC, MANAGED, FAILED, FREE, SYNC, GONE, PLACE = 1, 2, 3, 4, 7, 10, 11
BASE = 0x7f0000000000
START_NS = 1_700_000_000_000_000_000


class Trace:
    """A trace of one lane. Events are in the order of their addition, with times in nanoseconds."""

    def __init__(self, version=1, state=2, devices=((0, 1 << 30), (1, 1 << 30))):
        device = b"".join(struct.pack("<Ii96s16sQ", 1, number, b"Device", b"", memory)
                          for number, memory in devices)
        self.header = struct.pack(
            "<QIIIIIiiiQqII6QII256s1024s2048s32s4096s", 0x0a45434152544341, version, 0x01020304,
            15768, UNIT, state, 0, 4711, 1, 0, START_NS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            b"testhost", b"/bin/app", b"app\0-x\0", b"", b"") + device.ljust(64 * 128, b"\0")
        self.words, self.sequence = [], 0

    def stamp(self, time):
        self.sequence += 1
        return time << 32 | self.sequence

    def place(self, number, device, stream):
        self.words += [PLACE << 56 | number << 32 | device << 16 | device, stream]

    def alloc(self, time, place, address, size, kind=ALLOC):
        self.words += [kind << 56 | address, self.stamp(time), place << 48 | size]

    def free(self, time, address):
        self.words += [FREE << 56 | address, self.stamp(time)]

    def sync(self, time, place):
        self.words += [SYNC << 56 | place, self.stamp(time)]

    def context_gone(self, time, place):
        self.words += [GONE << 56 | place, self.stamp(time)]

    def data(self):
        out, room = [self.header.ljust(UNIT, b"\0")], (UNIT - 64) // 8 - 3
        for ordinal in range((len(self.words) + room - 1) // room):
            assert ordinal == 0, "events of one chunk"
            chunk = struct.pack("<IIQQQQI5I", 0x4b4e4843, 0, ordinal, 0, 0, 1, 4711, *[0] * 5)
            words = self.words[ordinal * room:(ordinal + 1) * room]
            out.append((chunk + struct.pack(f"<{len(words)}Q", *words)).ljust(UNIT, b"\0"))
        return b"".join(out)


def small_trace(**more):
    """Builds a trace of two devices. On device 0, it has 700 and 3000 bytes next to each other, the 700 bytes freed,
    and a failed request for 5000 bytes. On device 1, it has 2 MiB on stream 7."""
    trace = Trace(**more)
    trace.place(0, 0, 0)
    trace.place(1, 1, 0x5550)
    trace.alloc(1_000, 0, BASE, 700)
    trace.alloc(2_500, 0, BASE + 1024, 3000)
    trace.alloc(4_000, 1, BASE + (1 << 32), 2 << 20)
    trace.sync(5_000, 0)
    trace.free(6_000, BASE)
    trace.alloc(7_000, 0, 2, 5000, FAILED)
    return trace


def block(address, size, requested, state, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state,
            "frames": list(frames)}


FRAMES = [{"name": "inner", "filename": "a.py", "line": 3},
          {"name": "outer;x", "filename": "b.py", "line": 5}]


def snapshot():
    """Builds a snapshot with one segment of 2 MiB: a block of 1000 bytes with frames, a block that waits, and
    free memory. The block of 1000 bytes is older than the history."""
    def event(action, size, time_us, addr=BASE + 4096):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us,
                "frames": []}
    return {
        "segments": [{
            "device": 0, "address": BASE, "total_size": 2 << 20, "allocated_size": 1024,
            "active_size": 1536, "requested_size": 1300, "stream": 3, "segment_type": "small",
            "segment_pool_id": [0, 0], "is_expandable": False, "frames": [],
            "blocks": [block(BASE, 1024, 1000, "active_allocated", FRAMES),
                       block(BASE + 1024, 512, 300, "active_pending_free"),
                       block(BASE + 1536, (2 << 20) - 1536, 0, "inactive")]}],
        "device_traces": [[event("segment_alloc", 2 << 20, 50, BASE + (4 << 20)),
                           event("alloc", 700, 100), event("free_requested", 700, 200),
                           event("free_completed", 700, 200),
                           event("segment_free", 2 << 20, 300, BASE + (4 << 20))]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "ü", "ratio": 0.5, "none": None,
                               "big": -(1 << 40), "yes": True}}


# Events of a history with memory outside the cache: names, addresses, bytes.
BESIDE = [("alloc", BASE, 700), ("pinned_alloc", 4096, 5000), ("pinned_free", 8192, 0),
          ("passed_alloc", 8192, 90), ("passed_free", 8192, 0), ("physical", 1, 2 << 20),
          ("array", 1, 1 << 20), ("physical_free", 1, 2 << 20), ("passed_free", 4096, 0), ("array_free", 1, 0),
          ("physical_free", 9, 4 << 20),  # frees memory that is older than the history
          ("free", BASE, 700), ("pinned_free", BASE, 0), ("refused", BASE, 0), ("snapshot", 0, 0)]


class ExportTest(CommandTest):
    def setUp(self):
        super().setUp()
        for name in ("POD_NAME", "CONTAINER_NAME", "SLURM_JOB_ID", "JOB_NAME",
                     "KUBERNETES_SERVICE_HOST", "K8S_POD_NAME"):
            self.environment.pop(name, None)
        self.trace = self.write("a.trace", small_trace().data())
        self.snapshot = self.write("snapshot.json", json.dumps(snapshot()))
        self.dump = self.write("dump.json", self.fixture("dump", "exit"))

    def recorded(self, events, numbered):
        """Returns a dump with a history of `numbered` events, which keeps only the events given here."""
        with open(self.dump, encoding="utf-8") as file:
            document = json.load(file)
        document["devices"][0]["ordinal"] = 0
        document["devices"][0]["stats"]["allocated_bytes"]["all"]["peak"] = 129 << 20
        rows = [[word, 1000 * (i + 1), address, size, 0, 0, 7]
                for i, (word, address, size) in enumerate(events)]
        document.update(
            recorded={"stacks": "none", "sample_bytes": 0, "history": 16, "time_ns": 1, "lost_blocks": 0,
                      "lost_stacks": 0, "files": [], "build_ids": [], "texts": [], "sites": [], "stack": []},
            history=[{"device": 0, "events": numbered, "dropped": 0, "event": rows}], layout=[])
        return self.write("recorded.json", json.dumps(document))
