#!/usr/bin/env python3
"""Limits the number of words in the pages for users.

usage: amount.py ROOT

Exits 1 if the pages in PAGES have more words than BOUND, which only falls. Also exits 1 if the first
page has more than 150 lines, or if PAGES lacks a page under tools/guide or include.
"""
import glob
import os
import sys

PAGES = ["README.md", "include/README.md", "tools/package/README.md", "tools/package/recipes/README.md",
         "tools/prometheus/README.md", "tools/simcuda/README.md",
         *(f"tools/guide/{name}.md" for name in ("faster", "holders", "how", "out-of-memory", "settings",
                                                 "sharing", "statistics"))]
BOUND = 14900
FIRST_PAGE = 150


def main(root):
    text = {}
    for page in PAGES:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text[page] = file.read()
    words = {page: len(text[page].split()) for page in PAGES}
    total, lines = sum(words.values()), text["README.md"].count("\n")
    faults = []
    if total > BOUND:
        faults.append(f"{total} words in the pages for users, {BOUND} so far: " +
                      ", ".join(f"{page} {words[page]}" for page in sorted(PAGES, key=words.get)))
    if lines > FIRST_PAGE:
        faults.append(f"README.md has {lines} lines, {FIRST_PAGE} at most")
    for folder in ("tools/guide", "include"):
        found = glob.glob(os.path.join(root, folder, "**", "*.md"), recursive=True)
        faults += [f"{path}: not in PAGES" for path in (os.path.relpath(path, root) for path in found)
                   if path not in PAGES]
    print("\n".join(faults) or f"{total} words in {len(PAGES)} pages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
