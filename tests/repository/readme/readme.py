#!/usr/bin/env python3
"""The generated tables of README.md.  usage: readme.py [--update] ROOT COMMAND

Compares what stands between <!-- begin:X --> and <!-- end:X --> with what the tables of the code
say, and exits 1 where they differ; --update writes it there.  COMMAND is the built `accelcache`.
"""
import ast
import os
import re
import subprocess
import sys


def from_command(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def sim_keys(root):
    """SIM_KEY(kind, key, member, default, when, doc...) rows as a table."""
    with open(os.path.join(root, "tools/simcuda/sim_config.def"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    lines = ["| key | default | what it does |", "|---|---|---|"]
    row = re.compile(r'SIM_KEY\(\w+, (\w+), \w+, "([^"]*)", \w+,\s*((?:"(?:\\.|[^"\\])*"\s*)+)\)')
    for key, default, doc in row.findall(text):
        doc = "".join(ast.literal_eval(part) for part in re.findall(r'"(?:\\.|[^"\\])*"', doc))
        default = f"`{default}`" if default else ""
        lines.append(f"| `{key}` | {default} | {doc} |".replace("<", "&lt;"))
    if len(lines) != 2 + text.count("SIM_KEY("):
        sys.exit("readme.py: a row of sim_config.def has a form that it does not know")
    return "\n".join(lines) + "\n"


def model_costs(root):
    """CALL and WORK rows of the modelled device as a table."""
    with open(os.path.join(root, "tools/accelcache/model_calls.def"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    lines = ["| call | us | us per MiB | us per page | source |", "|---|---|---|---|---|"]
    row = re.compile(r'(?:CALL|WORK)\(\w+, "([^"]*)", (\d+), (\d+), (?:(\d+), )?"([^"]*)"\)')
    for call, fixed, per_mib, per_page, source in row.findall(text):
        figures = (f"{int(ns or 0) / 1000:g}" for ns in (fixed, per_mib, per_page))
        lines.append(f"| {call} | {' | '.join(figures)} | {source} |")
    if len(lines) != 2 + text.count("CALL(") + text.count("WORK("):
        sys.exit("readme.py: a row of model_calls.def has a form that it does not know")
    return "\n".join(lines) + "\n"


def main():
    update = sys.argv[1] == "--update"
    root, command = sys.argv[-2:]
    wanted = {
        "config": from_command(command, "config", "--markdown"),
        "stats": from_command(command, "config", "--markdown", "--stats"),
        "sim": sim_keys(root),
        "costs": model_costs(root),
    }
    path = os.path.join(root, "README.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    stale = []
    for name, table in wanted.items():
        begin, end = f"<!-- begin:{name} -->\n", f"<!-- end:{name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"README.md has no place for the table {name!r}")
        before, rest = text.split(begin)
        old, after = rest.split(end)
        if old.strip() != table.strip():
            stale.append(name)
        text = f"{before}{begin}{table.strip()}\n{end}{after}"
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    for name in stale:
        print(f"README.md: the table {name!r} is not what the code says; build the target `tables`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
