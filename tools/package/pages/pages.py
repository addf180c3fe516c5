#!/usr/bin/env python3
"""Write manual pages and completions of what the command and the headers say.

usage: pages.py OUT HEADER[;HEADER...] CHANGELOG VERSION DEMO -- COMMAND...

OUT/man/man1, man3, man7 and OUT/completion appear; COMMAND starts accelcache, perhaps by an
emulator.  DEMO is accelcache-demo, started in the same way; empty: there is none."""
import email.utils
import json
import os
import re
import sys

sys.dont_write_bytecode = True
import completion  # noqa: E402
import helptext  # noqa: E402
import man  # noqa: E402


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    at = sys.argv.index("--")
    out, headers, changelog, version, demo = sys.argv[1:at]
    start = sys.argv[at + 1:]
    command = helptext.Command(start)
    config = json.loads(command.ask("config", "--json"))
    stats = json.loads(command.ask("config", "--json", "--stats"))
    with open(changelog, encoding="utf-8") as file:
        signed = re.search(r"^ -- .*>  (.*)", file.read(), re.M).group(1)
    date = email.utils.parsedate_to_datetime(signed).strftime("%Y-%m-%d")
    pages = [man.command_page(command, date, version),
             man.library_page(config, stats, date, version)]
    for header in headers.split(";"):
        with open(header, encoding="utf-8") as file:
            pages.append(man.header_page(os.path.basename(header), file.read(), date, version))
    if demo:
        command.start = [*start[:-1], demo]
        pages.append(man.demo_page(helptext.Help("demo", "", command.ask("--help")), date, version))
    for page in pages:
        write(os.path.join(out, "man", "man" + page.file[-1]), page.file, page.roff())
    keys = [key["key"] for key in config["keys"] if not key["foreign"]]
    folder = os.path.join(out, "completion")
    write(folder, "accelcache", completion.bash(command, keys))
    write(folder, "_accelcache", completion.zsh(command, keys))
    write(folder, "accelcache.fish", completion.fish(command, keys))


if __name__ == "__main__":
    main()
