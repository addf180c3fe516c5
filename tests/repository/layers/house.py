"""Rules for the rooms around the core: the includes and calls that each may have.

    process -> hooks -> tell -> track -> bind

A room may use all rooms to its right. Calls to the left go through wiring.h: the rows of process/wiring.def
name the listeners. A call is the name of a function `ac_*` that another room defines.

A file and its header form a module. Calls and includes between modules form circles of at most LARGEST
modules.
"""
import os
import re

import rooms

ORDER = ("process", "hooks", "tell", "track", "bind")
MAY_USE = {room: set(ORDER[i + 1:]) for i, room in enumerate(ORDER)}
WIRING = "process/wiring"
LARGEST = 4
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
FUNCTION = re.compile(r"^\w[\w \t*]*?\b(ac_\w+)\([^;{}]*\)\s*\{", re.M)


def room_of(path):
    return path.split("/")[0]


def read_all(root):
    """Returns {path below shim: text} for the rooms."""
    texts = {}
    for room in ORDER:
        folder = os.path.join(root, "shim", room)
        for name in sorted(os.listdir(folder)):
            if name.endswith((".c", ".h")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    texts[f"{room}/{name}"] = file.read()
    return texts


def arrows(texts):
    """Returns (calls, includes). Each is {module: {(module that it reaches, name that reaches it)}}."""
    codes = {path: rooms.code_of(text) for path, text in texts.items()}
    home = {name: rooms.module(path) for path, code in codes.items()
            for name in rooms.found(FUNCTION, code)}
    calls, includes = ({rooms.module(path): set() for path in texts} for _ in range(2))
    for path, text in texts.items():
        own = rooms.module(path)
        calls[own] |= {(home[name], name) for name in rooms.found(rooms.NAME, rooms.calls_of(codes[path]))
                       if home.get(name, own) not in (own, WIRING)}
        includes[own] |= {(rooms.module(name), name) for name in rooms.found(INCLUDE, text)
                          if name in texts and rooms.module(name) != own}
    return calls, includes


def circles(root):
    calls, includes = arrows(read_all(root))
    return rooms.circles({name: {to for to, _ in calls[name] | includes[name]} for name in calls})


def check(root):
    texts = read_all(root)
    for verb, found in zip(("calls", "includes"), arrows(texts)):
        for module, to in sorted(found.items()):
            room = room_of(module)
            for other, what in sorted(to):
                if room_of(other) not in MAY_USE[room] | {room}:
                    yield f"shim/{module}.c: {room} {verb} {what} of {room_of(other)}"
    for circle in sorted(circles(root)):
        if len(circle) > LARGEST:
            yield f"shim/{circle[0]}.c: a circle of {len(circle)} modules: {', '.join(circle)}"


def check_names(sources):
    """Yields a line for each function name that two files define. `sources` is {path: text} of the library."""
    home = {}
    for path, text in sorted(sources.items()):
        for name in sorted(set(rooms.found(FUNCTION, rooms.code_of(text)))):
            if home.setdefault(name, path) != path:
                yield f"{path}: {home[name]} has a function {name} too"


BREAKS = [  # file, its text during the check, expected words of the report
    ("shim/bind/x.c", '#include "track/thread.h"\n', "bind includes track/thread.h"),
    ("shim/bind/x.c", "void ac_x(void) {\n    ac_thread_forget();\n}\n", "bind calls ac_thread_forget"),
    ("shim/track/x.c", "void ac_x(void) {\n    ac_record_snapshot();\n}\n", "track calls ac_record_snapshot"),
    ("shim/track/x.c", '#include "hooks/body.h"\n', "track includes hooks/body.h"),
    ("shim/tell/x.c", "void ac_x(void) {\n    ac_serve(0);\n}\n", "tell calls ac_serve"),
    ("shim/hooks/x.c", "void ac_x(void) {\n    ac_writer_start();\n}\n", "hooks calls ac_writer_start"),
    ("shim/hooks/x.c", "void ac_block_free(void) {\n}\n", "has a function ac_block_free too"),
]
