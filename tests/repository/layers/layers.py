#!/usr/bin/env python3
"""Checks the dependencies between the layers of the shim.

usage: layers.py ROOT | layers.py --self-test ROOT

Prints a line for each violation, and exits 1 if there is any. The self-test copies the tree,
breaks each rule once, and requires that the report names the rule.
"""
import functools
import os
import re
import shutil
import sys
import tempfile

import command
import counts
import figures
import house
import rooms

# Folders of shim/ that a folder may include from, in addition to itself. observe and config are
# leaves: every layer may write to them, but they include no layer above them.
LEAVES = {"observe", "config"}
HOUSE = set(house.ORDER)
MAY_INCLUDE = {
    "api": HOUSE | {"allocator", "device", "share"} | LEAVES,
    **{room: house.MAY_USE[room] | {"allocator", "device", "share"} | LEAVES for room in HOUSE},
    "allocator": {"device"} | LEAVES,
    "device": LEAVES,
    "share": LEAVES,
    "observe": LEAVES,
    "config": LEAVES,
}
# The allocator sees the device through device.h only. Time, CUDA and the system are parameters.
ALLOCATOR_HEADERS = re.compile(r"(^|/)(cuda\w*\.(h|def)|stdio\.h|dlfcn\.h|jansson\.h|time\.h"
                               r"|cuda_device\.h|driver\.h)$")
ALLOCATOR_CALLS = re.compile(r"\b(getenv|secure_getenv|clock_gettime|gettimeofday|dlsym|dlopen"
                             r"|fopen|open|write|\w*printf)\s*\(")
HOST_HARM = re.compile(r"(?<![\w.>])(exit|_exit|_Exit|quick_exit|abort|assert|printf|vprintf|puts"
                       r"|putchar)\s*\(|\bstdout\b|\bSTDOUT_FILENO\b")
# Changes of a block's state go through ac_block_set_state, which looks the change up in state.def.
STATE_WRITE = re.compile(r"AC_BLOCK_SET\([^,]+, state,|[>.]state = AC_BLOCK_"
                         r"|atomic_store\w*\(&[\w>.-]+[>.]state,")
STATE_WRITER = os.path.join("shim", "allocator", "space", "block.h")
EXPORT = re.compile(r'visibility\s*\(\s*"default"\s*\)|\bAC_EXPORT\b')
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
MAX_LINES = 800  # tables (.def) may be longer: a row is a fact


def sources(root, top):
    for folder, _, names in os.walk(os.path.join(root, top)):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".S", ".def", ".py", ".sh")):
                yield os.path.relpath(os.path.join(folder, name), root)


def included_layer(root, path, name):
    """Returns the folder of shim/ that `#include "name"` in `path` reaches, or None."""
    for base in (os.path.dirname(path), "shim"):
        target = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(root, target)) and target.startswith("shim" + os.sep):
            parts = target.split(os.sep)
            return parts[1] if len(parts) > 2 else None
    return None


def foreign_headers(root):
    """Yields (file, header) if an internal header is in a folder that is not above the file."""
    for path in (path for top in ("shim", "tools") for path in sources(root, top)):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            names = [name for quote, name in rooms.found(INCLUDE, file.read()) if quote == '"']
        for name in (name for name in names if name.endswith("_int.h")):
            for base in (os.path.dirname(path), "shim"):
                target = os.path.normpath(os.path.join(base, name))
                if os.path.exists(os.path.join(root, target)):
                    if not path.startswith(os.path.dirname(target) + os.sep):
                        yield path, name
                    break


def check_internal(root):
    found = set(foreign_headers(root))
    for path, name in sorted(found - rooms.INTERNAL_ELSEWHERE.keys()):
        yield f"{path}: {name} is internal to its folder"
    for path, name in sorted(rooms.INTERNAL_ELSEWHERE.keys() - found):
        yield f"rooms.py: {path} needs no exception for {name} any more"


@functools.lru_cache(maxsize=None)
def code_of(text):
    return NOISE.sub(lambda m: '""' if m.group()[0] == '"' else " ", text)


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    if text.count("\n") > MAX_LINES and not path.endswith(".def"):
        yield f"{path}: {text.count(chr(10))} lines, at most {MAX_LINES}"
    if not path.endswith((".c", ".h", ".S", ".def")):
        return
    parts = path.split(os.sep)
    layer = parts[1] if parts[0] == "shim" and len(parts) > 2 else None
    code = code_of(text)
    for quote, name in rooms.found(INCLUDE, text):
        target = included_layer(root, path, name) if quote == '"' else None
        if layer and target and target != layer and target not in MAY_INCLUDE[layer]:
            yield f"{path}: {layer} includes {name}"
        if layer and name.endswith("_int.h") and target != layer:
            yield f"{path}: {layer} includes {name}, which is internal elsewhere"
        if layer == "allocator" and ALLOCATOR_HEADERS.search(name):
            yield f"{path}: the allocator includes {name}"
        if parts[0] == "tools" and target in HOUSE and not name.endswith(".def"):
            yield f"{path}: a tool includes {name}"
        if parts[:2] == ["tools", "simcuda"] and target not in (None, "device"):
            yield f"{path}: the simulated device includes {name} of the shim"
    if parts[0] != "shim":
        return
    for match in HOST_HARM.finditer(code):
        yield f"{path}: {match.group().strip('( ')} could hurt the host"
    if layer == "allocator":
        for match in ALLOCATOR_CALLS.finditer(code):
            yield f"{path}: the allocator calls {match.group(1)}"
        for match in STATE_WRITE.finditer(code) if path != STATE_WRITER else ():
            yield f"{path}: {match.group()} changes a block's state past ac_block_set_state"
    if layer in HOUSE and re.search(r"\bac_fence_unseen\b", code):
        yield f"{path}: ac_fence_unseen is half of ac_streams_unseen"
    if layer not in HOUSE | {"api"} and EXPORT.search(text):
        yield f"{path}: only the rooms around the core and shim/api export"


def check(root, only=None):
    """Checks all files. If `only` is given, the rules for single files apply to that file only."""
    lines = [line for top in ("shim", "tools") for path in sources(root, top)
             if only in (None, path) for line in check_file(root, path)]
    lines += check_internal(root)
    lines += command.check(root)
    if not only:
        lines += figures.check(root)
    lines += house.check(root)
    lines += house.check_names({path: text for path, text in counts.read(root, ("shim",))
                                if path.endswith((".c", ".h"))})
    return lines + [line for line in rooms.check_rooms(root) if line]


BREAKS = [  # file, its text during the check, expected words of the report
    ("shim/allocator/x.c", '#include "bind/resolve.h"\n', "allocator includes"),
    ("shim/allocator/x.c", '#include "device/cuda_abi.h"\n', "the allocator includes"),
    ("shim/hooks/x.c", '#include "allocator/allocator_int.h"\n', "is internal elsewhere"),
    ("shim/allocator/x.c", "#include <stdio.h>\n", "the allocator includes stdio.h"),
    ("shim/allocator/x.c", "char *f(void) { return getenv(\"A\"); }\n", "calls getenv"),
    ("shim/allocator/x.c", "void f(b *b) { AC_BLOCK_SET(b, state, AC_BLOCK_FREE); }\n",
     "past ac_block_set_state"),
    ("shim/allocator/x.c", "void f(b *b) { atomic_store(&b->state, 1); }\n",
     "past ac_block_set_state"),
    ("shim/device/x.c", '#include "../allocator/x.h"\n', "device includes"),
    ("shim/share/x.c", '#include "device/cuda_abi.h"\n', "share includes"),
    ("shim/allocator/x.c", '#include "share/ipc_table.h"\n', "allocator includes"),
    ("shim/observe/x.c", '#include "device/cuda_abi.h"\n', "observe includes"),
    ("shim/config/x.c", '#include "allocator/x.h"\n', "config includes"),
    ("shim/observe/x.c", "void f(void) { abort(); }\n", "abort could hurt"),
    ("shim/device/x.c", "void f(void) { assert(1); }\n", "assert could hurt"),
    ("shim/hooks/x.c", "void f(void) { fputs(\"\", stdout); }\n", "stdout could hurt"),
    ("shim/device/x.c", '__attribute__((visibility("default"))) int v;\n', "export"),
    ("shim/config/x.c", "int x;\n" * 801, "801 lines"),
    ("shim/hooks/x.c", '#include "allocator/allocator_int.h"\n', "internal to its folder"),
    ("shim/allocator/cache/x.c", '#include "allocator/retired/ordered_int.h"\n',
     "internal to its folder"),
    ("shim/hooks/x.c", "void f(void) { ac_fence_unseen(); }\n", "is half of"),
    ("tools/x/x.c", '#include "bind/resolve.h"\n', "a tool includes"),
    ("tools/simcuda/x.c", '#include "allocator/x.h"\n', "simulated device includes"),
]


def not_noticed(copy, path, text, expected):
    """Writes the text as the file. Returns true if the report lacks the expected words."""
    target = os.path.join(copy, path)
    before = None
    if os.path.exists(target):
        with open(target, encoding="utf-8") as file:
            before = file.read()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    found = any(line.startswith(path) and expected in line for line in check(copy, path))
    os.remove(target)
    if before is not None:
        with open(target, "w", encoding="utf-8") as file:
            file.write(before)
    if not found:
        print(f"not noticed: {path}: {text.splitlines()[0]}")
    return not found


def self_test(root):
    failed = 0
    if rooms.cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) != ["a", "b", "c"]:
        print("not noticed: a cycle")
        failed = 1
    if rooms.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"},
                      "f": {"e"}}) != {("a", "b", "c"), ("d", "e")}:
        print("not noticed: a circle")
        failed = 1
    for table, key in ((rooms.CALLS_UP, ("space", "ac_unneeded")),
                       (rooms.INCLUDES_UP, ("space", "allocator/unneeded.h")),
                       (rooms.INTERNAL_ELSEWHERE, ("shim/x.c", "unneeded_int.h")),
                       (rooms.CIRCLES, ("space/unneeded", "space/x")),
                       (rooms.STATES_ELSEWHERE, "unneeded.c"),
                       (command.EXCEPTIONS, ("base/unneeded.c", "replay"))):
        table[key] = "none"
        if not any("unneeded" in line and line.endswith(" any more") for line in check(root)):
            print(f"not noticed: an exception without need, {key}")
            failed = 1
        del table[key]
    with tempfile.TemporaryDirectory() as copy:
        for top in ("shim", "tools"):
            shutil.copytree(os.path.join(root, top), os.path.join(copy, top))
        for helper in ("shim/allocator/x.h", "shim/bind/resolve.h"):
            os.makedirs(os.path.join(copy, os.path.dirname(helper)), exist_ok=True)
            open(os.path.join(copy, helper), "a", encoding="utf-8").close()
        below = [(os.path.join(rooms.FOLDER, path), text, expected)
                 for path, text, expected in rooms.BREAKS]
        for path, text, expected in BREAKS + house.BREAKS + command.BREAKS + below:
            failed |= not_noticed(copy, path, text, expected)
        for path, text, figure in figures.BREAKS:
            failed |= figures.not_noticed(copy, path, text, figure)
    return failed


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2])
    violations = check(sys.argv[1])
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
