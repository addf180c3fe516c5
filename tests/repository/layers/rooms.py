"""Rules for the rooms of shim/allocator: the includes and calls that each may have.

    the top (ladder.c and the files next to it)
      -> cache -> retired,  supply
           -> core (core_int.h: common parts of allocators and arenas)
                -> space, order
                     -> base (carve: host memory for records; settings, budgets, tickets)

host/ is separate: pinned memory belongs to no device, and host/ uses order/ only.

cache/ passes waiting blocks to retired/ when they leave a thread. A call is the name of a function `ac_*` that
another room defines. CALLS_UP and INCLUDES_UP list calls and includes against the arrows, each with its reason.
They are empty now. The check reports entries without a use.

A file and its header form a module. Calls and includes between modules of a room form no circles except
the ones in CIRCLES.
"""
import functools
import os
import re

TOP, CORE, BASE = "top", "core", "base"
MAY_USE = {
    TOP: {"cache", "retired", "supply", CORE, "space", "order", BASE},
    "cache": {"retired", CORE, "space", "order", BASE},
    "retired": {CORE, "space", "order", BASE},
    "supply": {CORE, "space", "order", BASE},
    "host": {"order", BASE},
    CORE: {"space", "order", BASE},
    "space": {BASE},
    "order": {BASE},
    BASE: set(),
}
BASE_FILES = {"carve.c", "carve.h", "list.h", "policy.c", "policy.def", "policy.h",
              "settings.h", "ticket.h"}
CORE_FILES = {"core_int.h"}

CALLS_UP = {}
INCLUDES_UP = {}

# Modules that use each other, with the reason. A room may have one circle.
CIRCLES = {
    ("cache/cache_int", "cache/cache_table", "cache/cache_tally", "cache/cache_wait",
     "cache/caches", "cache/lane", "cache/lease", "cache/thread_cache"): "one record, which hits change from a header",
    ("order/fence", "order/sole"): "a submission passes both, under the timeline's lock",
    ("space/range", "space/segment", "space/slab"): "a block may be a slab, or a part of a range",
    ("supply/expand", "supply/expand_end"): "pages that come and pages that go",
}

# States that have a meaning in space/ only, and other files that name them. The remaining states say which
# part owns the block: FREE, ALLOCATED, CACHED, RETIRED.
PRIVATE_STATES = re.compile(r"\bAC_BLOCK_(?:UNUSED|TRANSIT|SLAB|UNMAPPED|MOVING)\b")
STATES_ELSEWHERE = {"check.c": "the checker of all rooms"}

# Internal headers (*_int.h) are for their folder and the folders below it. These are the exceptions.
INTERNAL_ELSEWHERE = {
    ("tools/accelcache/replay/replay_run.c", "allocator/allocator_int.h"): "fields of arenas",
}

FOLDER = os.path.join("shim", "allocator")
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(allocator/[^"]+)"', re.M)
DEFINED = re.compile(r"^\w[\w \t*]*?\b(ac_\w+)\([^;{}]*\)\s*\{", re.M)
DECLARED = re.compile(r"^\w[\w \t*]*?\bac_\w+\([^;{}]*\);", re.M)


# The cache speeds up the self-test, which reads the same texts many times.
@functools.lru_cache(maxsize=None)
def found(pattern, text):
    return tuple(pattern.findall(text))


@functools.lru_cache(maxsize=None)
def code_of(text):
    return NOISE.sub(" ", text)


@functools.lru_cache(maxsize=None)
def calls_of(code):
    return DECLARED.sub(" ", code)
NAME = re.compile(r"\bac_\w+")


def room_of(path):
    """Returns the room of a path below shim/allocator."""
    folder = os.path.dirname(path)
    if folder:
        return folder.split(os.sep)[0]
    return BASE if path in BASE_FILES else CORE if path in CORE_FILES else TOP


def read_all(root):
    top = os.path.join(root, FOLDER)
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, top), file.read()


def cycle(arrows):
    """Returns the rooms that can be reached from themselves."""
    reached = {room: set(to) for room, to in arrows.items()}
    for _ in reached:
        for to in reached.values():
            to.update(*(reached[room] for room in tuple(to)))
    return sorted(room for room, to in reached.items() if room in to)


def module(path):
    return path.rsplit(".", 1)[0]


def circles(arrows):
    """Returns sets of two or more modules that all reach each other."""
    reached = {}
    for start in arrows:
        seen, left = set(), [start]
        while left:
            for to in arrows[left.pop()] - seen:
                seen.add(to)
                left.append(to)
        reached[start] = seen
    return {tuple(sorted({start} | {to for to in seen if start in reached[to]}))
            for start, seen in reached.items() if start in seen}


def modules(texts):
    """Returns (calls, includes). Each maps a module to the modules that it reaches."""
    codes = {path: code_of(text) for path, text in texts.items()}
    where = {name: module(path) for path, code in codes.items() for name in found(DEFINED, code)}
    calls = {module(path): set() for path in texts}
    includes = {name: set() for name in calls}
    for path, text in texts.items():
        own = {module(path)}
        calls[module(path)] |= {where[name] for name in found(NAME, calls_of(codes[path]))
                                if name in where} - own
        includes[module(path)] |= {module(os.path.relpath(name, "allocator"))
                                   for name in found(INCLUDE, text)
                                   if name.endswith(".h")} & includes.keys() - own
    return calls, includes


def check_circles(texts):
    calls, includes = modules(texts)
    found = circles({name: to | includes[name] for name, to in calls.items()})
    for circle in sorted(found - CIRCLES.keys()):
        yield f"rooms.py: {', '.join(circle)} are in a circle"
    for circle in sorted(CIRCLES.keys() - found):
        yield f"rooms.py: {', '.join(circle)} are in no circle of their own any more"
    of = [room_of(circle[0] + ".c") for circle in CIRCLES]
    for room in sorted({room for room in of if of.count(room) > 1}):
        yield f"rooms.py: more than one circle in {room}"


def check_rooms(root):
    texts = dict(read_all(root))
    codes = {path: code_of(text) for path, text in texts.items()}
    home = {name: room_of(path) for path, code in codes.items()
            for name in found(DEFINED, code)}
    used = set()

    def judge(room, to, what, path, verb, excused):
        if to == room or to in MAY_USE[room]:
            return None
        used.add((room, what))
        if (room, what) in excused:
            return None
        return f"{os.path.join(FOLDER, path)}: {room} {verb} {what} of {to}"

    for path, text in texts.items():
        room = room_of(path)
        if room not in MAY_USE:
            yield f"{os.path.join(FOLDER, path)}: {room} is no room"
            continue
        for name in found(INCLUDE, text):
            yield judge(room, room_of(os.path.relpath(name, "allocator")), name, path, "includes",
                        INCLUDES_UP)
        for name in sorted(set(found(NAME, calls_of(codes[path])))):
            if name in home:
                yield judge(room, home[name], name, path, "calls", CALLS_UP)
    seen = {path: PRIVATE_STATES.search(code) for path, code in codes.items()
            if room_of(path) != "space" and PRIVATE_STATES.search(code)}
    for path, match in sorted(seen.items()):
        if path not in STATES_ELSEWHERE:
            yield f"{os.path.join(FOLDER, path)}: {match.group()} is a state of space/ alone"
    for path in sorted(STATES_ELSEWHERE.keys() - seen.keys()):
        yield f"rooms.py: {path} needs no exception for states of space/ any more"
    for room, what in sorted((CALLS_UP.keys() | INCLUDES_UP.keys()) - used):
        yield f"rooms.py: {room} needs no exception for {what} any more"
    for room in cycle(MAY_USE):
        yield f"rooms.py: {room} is in a cycle of rooms"
    yield from check_circles(texts)


BREAKS = [  # file below shim/allocator, its text during the check, expected words of the report
    ("space/x.c", '#include "allocator/order/fence.h"\n', "space includes"),
    ("order/x.c", '#include "allocator/space/block.h"\n', "order includes"),
    ("supply/x.c", '#include "allocator/cache/thread_cache.h"\n', "supply includes"),
    ("retired/x.c", '#include "allocator/cache/thread_cache.h"\n', "retired includes"),
    ("carve.c", '#include "allocator/space/block.h"\n', "base includes"),
    ("attic/x.c", "int x;\n", "attic is no room"),
    ("space/x.c", "void ac_x(void) {\n    ac_fence_stamp();\n}\n", "space calls ac_fence_stamp"),
    ("space/x.c", "static void f(void) {\n    g(ac_fence_stamp);\n}\n", "calls ac_fence_stamp"),
    ("order/x.c", "void ac_x(void) {\n    ac_record_memory(1);\n}\n", "order calls"),
    ("cache/x.c", "void ac_x(void) {\n    ac_block_free(1);\n}\n", "cache calls ac_block_free"),
    ("supply/x.c", "int f(int s) {\n    return s == AC_BLOCK_MOVING;\n}\n", "is a state of space/"),
    ("space/x.h", "static inline void ac_x(void) {\n    ac_block_free(1);\n}\n", "space calls"),
    ("core_int.h", '#include "allocator/cache/caches.h"\n', "core includes"),
    ("cache/x.c", '#include "allocator/allocator_int.h"\n', "cache includes"),
    ("cache/x.c", '#include "allocator/supply/pages.h"\n', "cache includes"),
    ("order/x.c", "void ac_x(void) {\n    ac_streams_unordered();\n}\n", "order calls"),
    ("retired/x.c", "void ac_x(void) {\n    ac_caches_raise(1);\n}\n", "retired calls"),
    ("supply/x.c", "void ac_x(void) {\n    ac_arena_forget_stale(1);\n}\n", "supply calls"),
    ("supply/x.c", "void ac_x(void) {\n    ac_retired_put(1);\n}\n", "supply calls"),
]
