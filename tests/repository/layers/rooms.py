"""The rooms of shim/allocator: what each may include and call.

    the top (allocator.c and the files beside it)
      -> cache, retired, supply
           -> space, order
                -> base (carve: host memory for records; settings, budgets, tickets)

A call is the name of a function `ac_*` that another room defines.  Calls and includes against the
arrows are listed by name below, each with its reason; one without a use is reported,
so that the lists only get shorter.
"""
import os
import re

TOP, BASE = "top", "base"
MAY_USE = {
    TOP: {"cache", "retired", "supply", "space", "order", BASE},
    "cache": {"space", "order", BASE},
    "retired": {"space", "order", BASE},
    "supply": {"space", "order", BASE},
    "space": {BASE},
    "order": {BASE},
    BASE: set(),
}
BASE_FILES = {"budget.h", "carve.c", "carve.h", "settings.h", "ticket.h"}

QUEUES = "blocks that leave a cache wait in the arena's queues"
RECORDS = "the records of arenas and allocators stand in one header"
CALLS_UP = {
    ("cache", "ac_retired_append"): QUEUES,
    ("cache", "ac_pending_share"): QUEUES,
    ("cache", "ac_pending_weight"): QUEUES,
    ("order", "ac_streams_unordered"): "unseen work ends the order of retired blocks",
    ("retired", "ac_caches_before"): "peaks are exact",
    ("supply", "ac_arena_add"): "contexts that ended unseen have blocks in other rooms",
    ("supply", "ac_arena_forget_stale"): "the same",
}
INCLUDES_UP = {
    ("cache", "allocator/allocator.h"): RECORDS,
    ("cache", "allocator/allocator_int.h"): RECORDS,
    ("retired", "allocator/allocator.h"): RECORDS,
    ("retired", "allocator/allocator_int.h"): RECORDS,
    ("supply", "allocator/allocator_int.h"): RECORDS,
}

# States that only space/ gives a meaning to, and who else names them.
PRIVATE_STATES = re.compile(r"\bAC_BLOCK_(?:SLAB|UNMAPPED|MOVING)\b")
STATES_ELSEWHERE = {"check.c": "the checker of all rooms",
                    "quarantine.c": "the early memory in slabs and moving pages"}

# Internal headers (*_int.h) stay in their folder and those below it, but for these.
INTERNAL_ELSEWHERE = {
    ("tools/accelcache/replay_run.c", "allocator/allocator_int.h"): "fields of arenas",
}

FOLDER = os.path.join("shim", "allocator")
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(allocator/[^"]+)"', re.M)
DEFINED = re.compile(r"^\w[\w \t*]*?\b(ac_\w+)\([^;{}]*\)\s*\{", re.M)
DECLARED = re.compile(r"^\w[\w \t*]*?\bac_\w+\([^;{}]*\);", re.M)
NAME = re.compile(r"\bac_\w+")


def room_of(path):
    """The room of a path below shim/allocator."""
    folder = os.path.dirname(path)
    return folder.split(os.sep)[0] if folder else BASE if path in BASE_FILES else TOP


def read_all(root):
    top = os.path.join(root, FOLDER)
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, top), file.read()


def cycle(arrows):
    """Rooms that can be reached from themselves."""
    reached = {room: set(to) for room, to in arrows.items()}
    for _ in reached:
        for to in reached.values():
            to.update(*(reached[room] for room in tuple(to)))
    return sorted(room for room, to in reached.items() if room in to)


def check_rooms(root):
    texts = dict(read_all(root))
    codes = {path: NOISE.sub(" ", text) for path, text in texts.items()}
    home = {name: room_of(path) for path, code in codes.items()
            for name in DEFINED.findall(code)}
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
        for name in INCLUDE.findall(text):
            yield judge(room, room_of(os.path.relpath(name, "allocator")), name, path, "includes",
                        INCLUDES_UP)
        for name in sorted(set(NAME.findall(DECLARED.sub(" ", codes[path])))):
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


BREAKS = [  # file below shim/allocator, text put there, what the report must say
    ("space/x.c", '#include "allocator/order/fence.h"\n', "space includes"),
    ("order/x.c", '#include "allocator/space/block.h"\n', "order includes"),
    ("supply/x.c", '#include "allocator/cache/thread_cache.h"\n', "supply includes"),
    ("retired/x.c", '#include "allocator/cache/thread_cache.h"\n', "retired includes"),
    ("carve.c", '#include "allocator/space/list.h"\n', "base includes"),
    ("attic/x.c", "int x;\n", "attic is no room"),
    ("space/x.c", "void ac_x(void) {\n    ac_fence_stamp();\n}\n", "space calls ac_fence_stamp"),
    ("space/x.c", "static void f(void) {\n    g(ac_fence_stamp);\n}\n", "calls ac_fence_stamp"),
    ("order/x.c", "void ac_x(void) {\n    ac_record_memory(1);\n}\n", "order calls"),
    ("cache/x.c", "void ac_x(void) {\n    ac_block_free(1);\n}\n", "cache calls ac_block_free"),
    ("supply/x.c", "int f(int s) {\n    return s == AC_BLOCK_MOVING;\n}\n", "is a state of space/"),
    ("space/x.h", "static inline void ac_x(void) {\n    ac_block_free(1);\n}\n", "space calls"),
]
