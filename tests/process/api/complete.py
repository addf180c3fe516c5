#!/usr/bin/env python3
"""Every function of accelcache.h is called by the programs of this folder.

usage: complete.py HEADER PROGRAM...      prints those that are not, and exits 1
"""
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DECLARED = re.compile(r"^(?!typedef|#|\s)[\w\s*]*?\b(accel_\w+)\s*\(", re.M)


def functions(header):
    with open(header, encoding="utf-8") as file:
        return set(DECLARED.findall(COMMENT.sub(" ", file.read())))


def main(arguments):
    names = functions(arguments[0])
    if len(names) < 60:
        sys.exit(f"only {len(names)} functions were found in the header")
    text = ""
    for path in arguments[1:]:
        with open(path, encoding="utf-8") as file:
            text += COMMENT.sub(" ", file.read())
    missing = sorted(name for name in names if not re.search(r"\b" + name + r"\b", text))
    for name in missing:
        print(f"no test calls {name}")
    if not missing:
        print(f"{len(names)} functions are called")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
