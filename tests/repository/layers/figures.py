#!/usr/bin/env python3
"""Figures about the allocator's structure: dependencies between its rooms, and the number of places to edit
for an addition. They may only fall.

usage: figures.py ROOT     prints them; exits 1 if one differs from FIGURES

If a figure falls, FIGURES must be lowered too. If a figure rises, the code must change.
"""
import functools
import itertools
import os
import re
import sys

import counts
import house
import rooms
from counts import read

FIGURES = {
    "rooms in a cycle": 0,
    "circles inside rooms": 4,
    "files in them": 15,
    "modules of the largest circle around the core": 4,
    "modules in circles around the core": 23,
    "calls up": 7,
    "includes up": 3,
    "block states that other rooms name": 4,
    "second lists of a table's rows": 0,
    "locks without a rank": 0,
}

# A product file that names most rows of a table is a second place to edit. The files of NO_LISTS are
# exceptions: `ninja tables` writes them, or they name the rows because they use them.
TABLES = ("shim/config/config.def", "shim/observe/stats.def", "shim/observe/counters.def",
          "shim/device/cuda_functions.def", "shim/bind/hooks.def")
NO_LISTS = {
    ("shim/config/config.def", "tools/guide/settings.md"): "generated",
    ("shim/config/config.def", "shim/observe/dump.schema.json"): "generated",
    ("shim/observe/stats.def", "tools/guide/statistics.md"): "generated",
    ("shim/observe/stats.def", "shim/observe/dump.schema.json"): "generated",
    ("shim/observe/stats.def", "include/accelcache.h"): "generated",
    ("shim/observe/stats.def", "shim/allocator/space/segment.c"): "counts blocks and bytes",
    ("shim/observe/counters.def", "tools/guide/statistics.md"): "generated",
    ("shim/observe/counters.def", "shim/observe/dump.schema.json"): "generated",
    ("shim/device/cuda_functions.def", "tools/simcuda/cudart/lookups.def"):
        "what the runtime asks the driver for, hooked or not",
}
ROW = re.compile(r'^\s*[A-Z][A-Z_0-9]*\(\s*"?(\w+)', re.M)
STATE = re.compile(r"\bAC_BLOCK_(?:FREE|ALLOCATED|CACHED|RETIRED|UNUSED|TRANSIT|SLAB|UNMAPPED"
                   r"|MOVING)\b")
LOCK = re.compile(r"\bpthread_(?:mutex|rwlock|spin)\w*|\bmtx_\w+")
LOCKS = {"lock.h"}  # each of its locks has a rank


def up(arrows):
    """Returns the least number of arrows to remove so that no circle is left. It tries all orders."""
    return sum(up_in(circle, frozenset((a, b) for a in circle for b in arrows[a] if b in circle))
               for circle in rooms.circles(arrows))


@functools.lru_cache(maxsize=None)
def up_in(circle, arrows):
    return min(sum((a, b) in arrows for i, a in enumerate(order) for b in order[:i])
               for order in itertools.permutations(circle))


@functools.lru_cache(maxsize=None)
def words_of(text):
    return frozenset(re.findall(r"\w+", text))


def second_lists(root):
    texts = {path: words_of(text)
             for path, text in read(root, ("shim", "tools", "include"))}
    for table in TABLES:
        with open(os.path.join(root, table), encoding="utf-8") as file:
            names = set(ROW.findall(file.read()))
        for path, words in sorted(texts.items()):
            if path != table and 3 * len(names & words) > 2 * len(names):
                yield table, path


def count(root):
    """Returns ({figure: value}, {figure: the items that it counts})."""
    texts = dict(rooms.read_all(root))
    calls, includes = rooms.modules(texts)
    around = house.circles(root)
    both = rooms.circles({name: to | includes[name] for name, to in calls.items()})
    room = {rooms.module(path): rooms.room_of(path) for path in texts}
    between = {name: set() for name in rooms.MAY_USE}
    for name in calls:
        between[room[name]] |= {room[to] for to in calls[name] | includes[name]} - {room[name]}
    states = {state for path, text in texts.items()
              if rooms.room_of(path) != "space" and path not in rooms.STATES_ELSEWHERE
              for state in STATE.findall(rooms.code_of(text))}
    lists = [pair for pair in second_lists(root) if pair not in NO_LISTS]
    locks = [path for path, text in read(root, ("shim",)) if path.endswith((".c", ".h"))
             and os.path.basename(path) not in LOCKS and LOCK.search(rooms.code_of(text))]
    what = {"rooms in a cycle": rooms.cycle(between),
            "circles inside rooms": both,
            "files in them": sorted(name for circle in both for name in circle),
            "modules of the largest circle around the core": max(around, key=len),
            "modules in circles around the core": sorted(name for circle in around for name in circle),
            "block states that other rooms name": sorted(states),
            "second lists of a table's rows": lists,
            "locks without a rank": locks}
    figures = {name: len(of) for name, of in what.items()}
    figures["calls up"], figures["includes up"] = up(calls), up(includes)
    return figures, what


def check(root):
    figures, what = count(root)
    for name, bound in FIGURES.items():
        if figures[name] != bound:
            yield (f"figures.py: {figures[name]} {name}, {bound} so far"
                   + (f": {what[name]}" if name in what else ""))
    for table, path in sorted(NO_LISTS.keys() - set(second_lists(root))):
        yield f"figures.py: {path} names the rows of {table} no more"
    yield from counts.check(root)


BREAKS = [  # file, text added to it, the figure that must rise; None adds the rows of a table
    ("shim/allocator/space/segment.c", "void f(void) { ac_retired_put(1); }\n",
     "rooms in a cycle"),
    ("shim/allocator/retired/retired.c", "void f(void) { ac_ordered_close(1); }\n",
     "circles inside rooms"),
    ("shim/allocator/order/fence.c", "void f(void) { ac_order_retire(1); }\n", "files in them"),
    ("shim/allocator/order/fence.c", "void f(void) { ac_order_retire(1); }\n", "calls up"),
    ("shim/track/graphs.c", "void f(void) { ac_context_bury(1); }\n", "largest circle around"),
    ("shim/track/graphs.c", "void f(void) { ac_context_bury(1); }\n", "in circles around"),
    ("shim/allocator/order/fence.h", '#include "allocator/order/retire.h"\n', "includes up"),
    ("shim/allocator/oom.c", "int s = AC_BLOCK_TRANSIT;\n", "block states"),
    ("shim/config/value.c", None, "second lists"),
    ("shim/observe/raw.c", "pthread_mutex_t m;\n", "locks without"),
] + counts.BREAKS


def not_noticed(copy, path, text, figure):
    """Adds the text to the file during a check. Returns true if the figure does not rise."""
    target = os.path.join(copy, path)
    with open(target, encoding="utf-8") as file:
        before = file.read()
    if text is None:
        with open(os.path.join(copy, TABLES[0]), encoding="utf-8") as file:
            text = file.read()
    with open(target, "a", encoding="utf-8") as file:
        file.write(text)
    found = any(figure in line for line in check(copy))
    with open(target, "w", encoding="utf-8") as file:
        file.write(before)
    if not found:
        print(f"not noticed: {figure} do not rise with {path}")
    return not found


def main():
    figures, _ = count(sys.argv[1])
    figures.update((name, len(of)) for name, of in counts.what(sys.argv[1]).items())
    figures.update((f"hundreds of lines in {folder}", n) for folder, n in counts.hundreds(sys.argv[1]).items())
    for name, value in figures.items():
        print(f"{value:4} {name}")
    wrong = list(check(sys.argv[1]))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
