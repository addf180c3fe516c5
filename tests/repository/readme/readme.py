#!/usr/bin/env python3
"""Checks the generated tables of the pages, and the links between pages.

usage: readme.py [--update] ROOT COMMAND      COMMAND is the built `accelcache`

Compares the text between <!-- begin:X --> and <!-- end:X --> with the tables of the code. Exits 1
if they differ; --update writes the tables into the pages.
"""
import ast
import os
import re
import subprocess
import sys


def from_command(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def sim_keys(root):
    """Returns the rows SIM_KEY(kind, key, member, default, when, doc...) as a table."""
    with open(os.path.join(root, "tools/simcuda/sim_config.def"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/|^#.*?$", "", file.read(), flags=re.S | re.M)
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
    """Returns the rows CALL and WORK of the modelled device as a table."""
    with open(os.path.join(root, "tools/accelcache/replay/model_calls.def"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    lines = ["| call | us | us per MiB | us per page | source |", "|---|---|---|---|---|"]
    row = re.compile(r'(?:CALL|WORK)\(\w+, "([^"]*)", (\d+), (\d+), (?:(\d+), )?"([^"]*)"\)')
    for call, fixed, per_mib, per_page, source in row.findall(text):
        figures = (f"{int(ns or 0) / 1000:g}" for ns in (fixed, per_mib, per_page))
        lines.append(f"| {call} | {' | '.join(figures)} | {source} |")
    if len(lines) != 2 + text.count("CALL(") + text.count("WORK("):
        sys.exit("readme.py: a row of model_calls.def has a form that it does not know")
    return "\n".join(lines) + "\n"


def reference(root):
    """Returns the rows of tests/process/api/reference.py as a table."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(root, "tests/process/api"))
    import reference as rows
    return rows.table()


def documents(root):
    """Returns {path below root: text} for each Markdown file outside build folders."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in ("build", ".git")]
        for name in names:
            if name.endswith(".md"):
                path = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    found[path] = file.read()
    return found


def anchors(text):
    """Returns the names by which links reach headings."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", prose, re.M)}


def broken_links(root, found):
    for path, text in found.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not os.path.exists(os.path.join(root, to)):
                yield f"{path}: there is no {target}"
            elif anchor and anchor not in anchors(found.get(to, "")):
                yield f"{path}: {to} has no heading for #{anchor}"


def stale_tables(found, wanted):
    """Updates the tables in `found`. Yields a line for each table that was out of date."""
    for name, table in wanted.items():
        begin, end = f"<!-- begin:{name} -->\n", f"<!-- end:{name} -->"
        places = [path for path, text in found.items() if begin in text]
        if len(places) != 1 or found[places[0]].count(end) != 1:
            sys.exit(f"the table {name!r} needs one place, it has {places}")
        path = places[0]
        before, rest = found[path].split(begin)
        old, after = rest.split(end)
        found[path] = f"{before}{begin}{table.strip()}\n{end}{after}"
        if old.strip() != table.strip():
            yield f"{path}: the table {name!r} is not what the code says; build the target `tables`"


def main():
    update = sys.argv[1] == "--update"
    root, command = sys.argv[-2:]
    found = documents(root)
    before = dict(found)
    faults = list(stale_tables(found, {
        "config": from_command(command, "config", "--markdown"),
        "stats": from_command(command, "config", "--markdown", "--stats"),
        "sim": sim_keys(root),
        "costs": model_costs(root),
        "reference": reference(root),
    }))
    if update:
        for path in found:
            if found[path] != before[path]:
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(found[path])
        faults = []
    faults += broken_links(root, found)
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
