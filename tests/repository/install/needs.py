#!/usr/bin/env python3
"""Finds the glibc version that programs and libraries need.

usage: needs.py READELF FLOOR FILE|FOLDER...     exits 1 if one needs a newer version than FLOOR"""
import os
import re
import subprocess
import sys


def elves(top):
    for place, _, names in os.walk(top) if os.path.isdir(top) else [("", [], [top])]:
        for path in (os.path.join(place, name) for name in names):
            if not os.path.islink(path) and os.path.isfile(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def glibc_of(path, readelf="readelf"):
    """Returns the newest version of the symbols and of the version table, or (2, 17) if there is none."""
    shown = subprocess.run([readelf, "-W", "--version-info", "--dyn-syms", path], text=True,
                           stdout=subprocess.PIPE, check=True).stdout
    found = re.findall(r"(?:Name: |@)GLIBC_(\d+)\.(\d+)", shown)
    return max([(2, 17), *((int(major), int(minor)) for major, minor in found)])


def number(text):
    return tuple(int(part) for part in text.split("."))


def main():
    readelf, floor, *tops = sys.argv[1:]
    needs = {path: glibc_of(path, readelf) for top in tops for path in elves(top)}
    late = {path: need for path, need in needs.items() if need > number(floor)}
    for path, need in late.items():
        print(f"{path}: needs glibc {need[0]}.{need[1]}, {floor} is the oldest that packages run with")
    return 1 if late or not needs else 0


if __name__ == "__main__":
    sys.exit(main())
