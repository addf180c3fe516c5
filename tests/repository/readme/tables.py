#!/usr/bin/env python3
"""Generates parts of other files from the rows of config.def, stats.def, host_stats.def,
counters.def and policy.def. readme.py generates the tables of the README.

usage: tables.py [--update] ROOT COMMAND       COMMAND is the built `accelcache`

* include/accelcache.h: the members of accel_device_stats_t
* shim/observe/dump.schema.json: the values, statistics and counters. The rest of the schema is
  written by hand, but this script lays out the whole file.
* shim/allocator/README.md: the table of policy.def

Exits 1 if a file differs from the rows; --update writes it.
"""
import json
import os
import re
import subprocess
import sys
import textwrap

WIDTH = 98
C_TYPES = {"count": "int64_t", "setting": "int64_t", "pools": "accel_pool_stat_t",
           "stat": "accel_stat_t"}
BEGIN = "    /* begin:stats: generated from shim/observe/stats.def */\n"
END = "    /* end:stats */\n"


def rows_of(command, *arguments):
    return json.loads(subprocess.run([command, "config", "--json", *arguments], check=True,
                                     capture_output=True, text=True).stdout)


def header(text, figures):
    """Returns the header with the members that stats.def has."""
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    names = [row["name"] for row in figures["stats"]]
    was = re.findall(r"^ +\w+ (\w+);$", old, re.M)
    if names[:len(was)] != was:
        sys.exit("tables.py: accel_device_stats_t only grows, at its end: a row of stats.def was "
                 "moved or removed, or has come between others")
    lines = []
    for row in figures["stats"]:
        c_type = C_TYPES[row["kind"]]
        lines.append(f"    /* {row['unit'] and row['unit'] + ': '}{row['doc']} */")
        lines.append(f"    {c_type} {row['name']};")
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


def refer(kind):
    if kind == "setting":
        return {"type": "integer", "minimum": -1}
    return {"$ref": "#/$defs/" + kind}


def members(types):
    """Returns the schema of an object without other members."""
    return {"type": "object", "additionalProperties": False, "required": list(types),
            "properties": types}


def lay_out(value, indent="", used=0):
    """Returns JSON in lines of at most WIDTH columns; the first line already has `used`."""
    line, inner = json.dumps(value, ensure_ascii=False), indent + "  "
    if not isinstance(value, (dict, list)) or used + len(line) < WIDTH:
        return line
    if isinstance(value, list):
        return "[\n" + textwrap.fill(line[1:-1], WIDTH, initial_indent=inner,
                                     subsequent_indent=inner) + f"\n{indent}]"
    starts = {key: f"{inner}{json.dumps(key)}: " for key in value}
    parts = [start + lay_out(value[key], inner, len(start)) for key, start in starts.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def schema(text, keys, figures):
    whole = json.loads(text)
    effective = whole["properties"]["config"]["properties"]["effective"]
    value = {"type": "string", "minLength": 1}
    effective.update(members({row["key"]: value for row in keys["keys"] if not row["foreign"]}))
    device = whole["properties"]["devices"]["items"]["properties"]
    for holder, member, group in ((device, "stats", "stats"),
                                  (device, "counters", "device_counters"),
                                  (whole["properties"]["pinned"]["properties"], "stats",
                                   "pinned_stats"),
                                  (whole["properties"], "counters", "counters")):
        holder[member] = members({row["name"]: refer(row["kind"]) for row in figures[group]})
    return lay_out(whole) + "\n"


TUNING = re.compile(r'^TUNING\((\w+), (.+?), "(.*?)", "(.*?)", "(.*?)"\)$', re.M)
POLICY = ("<!-- begin:policy: generated from policy.def -->\n", "<!-- end:policy -->\n")


def amount(value, unit):
    """Returns a value of policy.def as people write it."""
    number = eval(value, {"__builtins__": {}})  # integers and shifts
    if unit == "1/n":
        return f"1/{number}"
    if unit == "ns" and number >= 10 ** 6:
        return f"{number // 10 ** 6} ms"
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if unit == "bytes" and number >> power:
            return f"{number >> power} {name}"
    return f"{number:,} {unit}".strip().replace(" %", "%")


def policy(text, root):
    """Returns the page with the table of policy.def."""
    before, rest = text.split(POLICY[0])
    with open(os.path.join(root, "shim", "allocator", "policy.def"), encoding="utf-8") as file:
        rows = TUNING.findall(file.read())
    lines = ["| constant | value | what it does | traces |", "|---|---|---|---|"]
    lines += [f"| {name} | {amount(value, unit)} | {doc} | {traces} |"
              for name, value, unit, doc, traces in rows]
    return before + POLICY[0] + "\n".join(lines) + "\n" + POLICY[1] + rest.split(POLICY[1])[1]


def main():
    update = sys.argv[1] == "--update"
    root, command = sys.argv[-2:]
    keys, figures = rows_of(command), rows_of(command, "--stats")
    stale = 0
    for name, generate in (("include/accelcache.h", lambda text: header(text, figures)),
                           ("shim/observe/dump.schema.json",
                            lambda text: schema(text, keys, figures)),
                           ("shim/allocator/README.md", lambda text: policy(text, root))):
        path = os.path.join(root, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        new = generate(text)
        if new == text:
            continue
        if update:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
        else:
            print(f"{name} is not what the rows say; build the target `tables`")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
