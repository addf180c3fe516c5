"""Rules for the folders of tools/accelcache: the includes and calls that each may have.

    main.c, subcommands.c
      -> show, write, run, replay
           -> read (files of a program, its live page)
                -> base (options, text, tables, child processes; command.h)

A call is the use of a function `cmd_*` or `tune_*` that a file of another folder defines. EXCEPTIONS lists uses
against the arrows, each with its reason. The check reports an exception without a use.
"""
import os
import re

import rooms

FOLDER = os.path.join("tools", "accelcache")
TOP, BASE = "top", "base"
MAY_USE = {
    TOP: {"show", "write", "run", "replay", "read", BASE},
    "show": {"read", BASE},
    "write": {"read", BASE},
    "run": {"read", BASE},
    "replay": {"read", BASE},
    "read": {BASE},
    BASE: set(),
}
EXCEPTIONS = {
    ("show/oom_replay.c", "replay"): "oom tries settings on the state that the process had",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(\w+/\w+\.(?:h|def))"', re.M)
DEFINED = re.compile(r"^\w[\w \t*]*?\b((?:cmd|tune)_\w+)\([^;{}]*\)\s*\{", re.M)
NAME = re.compile(r"\b(?:cmd|tune)_\w+")


def folder_of(path):
    folder = os.path.dirname(path)
    return folder or (BASE if path == "command.h" else TOP)


def read_all(root):
    top = os.path.join(root, FOLDER)
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, top), file.read()


def check(root):
    texts = dict(read_all(root))
    codes = {path: rooms.code_of(text) for path, text in texts.items()}
    home = {name: folder_of(path) for path, code in codes.items() if path.endswith(".c")
            for name in rooms.found(DEFINED, code)}
    needed = set()
    for path, code in codes.items():
        folder = folder_of(path)
        if folder not in MAY_USE:
            yield f"{os.path.join(FOLDER, path)}: {folder} is no folder of the command"
            continue
        uses = {(name.split("/")[0], name) for name in rooms.found(INCLUDE, texts[path])
                if name.split("/")[0] in MAY_USE}
        if path != "command.h":  # it has the subcommands' names, for the table in subcommands.c
            uses |= {(home[name], name) for name in set(rooms.found(NAME, code)) if name in home}
        for to, name in sorted(uses):
            if to == folder or to in MAY_USE[folder]:
                continue
            needed.add((path, to))
            if (path, to) not in EXCEPTIONS:
                yield f"{os.path.join(FOLDER, path)}: {folder} uses {name} of {to}"
    for path, to in sorted(EXCEPTIONS.keys() - needed):
        yield f"command.py: {path} needs no exception for {to} any more"
    for folder in rooms.cycle(MAY_USE):
        yield f"command.py: {folder} is in a cycle of folders"


BREAKS = [  # format of layers.BREAKS
    (os.path.join(FOLDER, path), text, expected) for path, text, expected in (
        ("read/x.c", '#include "show/summary.h"\n', "read uses show/summary.h"),
        ("read/x.c", "void f(void) {\n    cmd_report(0, 0);\n}\n", "read uses cmd_report of write"),
        ("show/x.c", "void f(void) {\n    cmd_replay_jobs();\n}\n", "show uses cmd_replay_jobs"),
        ("show/x.c", "int (*f)(int, char **) = cmd_run;\n", "show uses cmd_run of run"),
        ("replay/x.c", '#include "run/trial.h"\n', "replay uses run/trial.h"),
        ("write/x.h", '#include "show/render.h"\n', "write uses show/render.h"),
        ("run/x.c", "int x = tune_search();\n", "run uses tune_search of replay"),
        ("base/x.c", '#include "read/document.h"\n', "base uses read/document.h"),
        ("attic/x.c", "int x;\n", "attic is no folder"))]
