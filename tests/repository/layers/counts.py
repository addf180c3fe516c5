"""Counts of properties that make the library hard to follow. The counts may not rise.

All counts come from the code and from the tables of shim/README.md. If a count falls, COUNTS must be lowered
too. LINES may stay if a folder loses a few hundred lines of code.
"""
import os
import re

import rooms

# The function `what` defines each count.
COUNTS = {
    "records with an address and a size": 26,
    "files with a hash of their own": 24,
    "files that ask what a fence reached": 4,
    "constants outside policy.def": 141,
    "lock-free pairs": 25,
    "words of the glossary": 29,
}
LINES = {  # hundreds of lines with code in each folder
    "shim/allocator": 151,
    "shim/api": 39,
    "shim/bind": 24,
    "shim/track": 46,
    "shim/hooks": 51,
    "shim/tell": 22,
    "shim/process": 10,
    "shim/device": 24,
    "shim/share": 12,
    "shim/observe": 67,
    "shim/config": 13,
    "tools/accelcache": 190,
    "tools/simcuda": 169,
    "tools/bench": 52,
    "tests": 919,
}
RECORD = re.compile(r"\bstruct(?: \w+)? \{((?:[^{}]|\{[^{}]*\})*)\}")
FIELD = r"\b(?:%s)\b[^;()]*;"
HASH = re.compile(r"\b0x(?:9e3779b|ff51afd)\w+")
ASKS = re.compile(r"\bac_(?:fence|order|ticket)_(?:reached|target)\w*\(")
NUMBER = re.compile(r"^#define \w+ +\(?[\d(]|\b[A-Z]\w+ = [^,}]*\d", re.M)
ENUM = re.compile(r"\benum(?: \w+)? \{[^}]*\}|^#define .*", re.M)


def read(root, tops):
    for top in tops:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".S", ".def", ".json", ".md", ".py", ".txt")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, root), file.read()


def firsts(text, title):
    """Returns the first cells of the table in a section of a page."""
    return [line.split(" | ")[0][2:] for section in text.split(f"\n## {title}\n")[1:]
            for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")][1:]


def what(root):
    """Returns {count: the items that it counts}."""
    files = {path: rooms.code_of(text) for path, text in read(root, ("shim",))
             if path.endswith((".c", ".h"))}
    with open(os.path.join(root, "shim", "README.md"), encoding="utf-8") as file:
        page = file.read()
    allocator = {path: code for path, code in files.items() if path.startswith(rooms.FOLDER)}
    return {
        "records with an address and a size": [
            f"{path}: {body.split()}" for path, code in files.items() for body in RECORD.findall(code)
            if all(re.search(FIELD % names, body) for names in ("address", "size|bytes|requested"))],
        "files with a hash of their own": [path for path, code in files.items() if HASH.search(code)],
        "files that ask what a fence reached": [
            path for path, code in files.items()
            if path.endswith(".c") and rooms.FOLDER + "/order" not in path and ASKS.search(code)],
        "constants outside policy.def": [
            number for code in allocator.values() for part in ENUM.findall(code)
            for number in NUMBER.findall(part)],
        "lock-free pairs": firsts(page, "Pairs without a lock"),
        "words of the glossary": [word for cell in firsts(page, "Words") for word in cell.split(", ")],
    }


def hundreds(root):
    """Returns hundreds of lines with code in each folder, rounded up."""
    found = {}
    for folder in LINES:
        lines = sum(bool(line.strip()) for path, text in read(root, (folder,))
                    if path.endswith((".c", ".h", ".py"))
                    for line in (text if path.endswith(".py") else rooms.code_of(text)).splitlines())
        found[folder] = -(-lines // 100)
    return found


def check(root):
    found = what(root)
    for name, bound in COUNTS.items():
        if len(found[name]) != bound:
            yield f"counts.py: {len(found[name])} {name}, {bound} so far"
    for folder, count in hundreds(root).items():
        if count > LINES[folder]:
            yield f"counts.py: {count} hundreds of lines in {folder}, {LINES[folder]} so far"


BREAKS = [  # format of figures.BREAKS
    ("shim/api/late.c", "struct one_more { uint64_t address, size; };\n", "records with"),
    ("shim/api/late.c", "unsigned f(unsigned a) { return a * 0x9e3779b1u; }\n", "a hash of"),
    ("shim/observe/raw.c", "bool f(void) { return ac_fence_reached(0, true); }\n", "a fence reached"),
    ("shim/allocator/oom.c", "enum { ONE_MORE = 7 };\n", "constants outside"),
    ("shim/README.md", "\n## Words\n\n| a, b | c |\n", "words of"),
    ("shim/README.md", "\n## Pairs without a lock\n\n| 99 | a |\n", "lock-free"),
    ("shim/allocator/oom.c", "int x;\n" * 200, "in shim/allocator"),
]
