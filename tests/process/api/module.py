#!/usr/bin/env python3
"""The Fortran module agrees with the C headers: it has all functions, and all statuses with their values.

usage: module.py FOLDER MODULE     FOLDER has the headers
"""
import glob
import os
import re
import sys


def main(folder, module):
    declared = ""
    for header in glob.glob(os.path.join(folder, "*.h")):
        with open(header, encoding="utf-8") as file:
            declared += re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    statuses = re.findall(r"^\s*(ACCEL_(?:OK|ERROR_\w+)) = (\d+)", declared, re.M)
    functions = set(re.findall(r"^(?!typedef)\w[\w\s*]*?\b(accel_\w+)\(", declared, re.M))
    with open(module, encoding="utf-8") as file:
        text = file.read()
    wrong = [f"{name} = {value} is not there" for name, value in statuses
             if not re.search(rf"enumerator :: {name} = {value}$", text, re.M)]
    bound = re.findall(r"^\s*function (accel_\w+)\(", text, re.M)
    wrong += [f"no header has {name}" for name in bound
              if name not in functions]
    if len(statuses) < 10 or len(bound) < 20:
        wrong.append(f"only {len(statuses)} statuses and {len(bound)} functions were found")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
