#!/usr/bin/env python3
"""Finds words that hide which thread, lock or object acts.

usage: words.py ROOT | words.py --self-test ROOT

Prints a line for each violation, and exits 1 if there is any. The self-test writes each word
once, and requires that the check finds it.
"""
import os
import re
import sys
import tempfile

TOPS = ("shim", "include", "tools", "tests", ".github", "README.md")
# this list itself, and files that are no text
SKIPPED = (os.path.join("tests", "repository", "words"),
           os.path.join("tests", "unit", "fuzz", "corpus"))
DATA = (".csv", ".trace", ".gz", ".pyc")
WORDS = ("nobody", "nobodys", "whoever", "somebody", "anybody", "everybody", "dear", "in vain",
         "knock", "knocks", "stranger", "orderly", "lock along")
# A gap between two words of prose or of a name. `_` ends a word, and a line of a comment may too.
GAP = r"(?:[\s_]|\*|#|//)+"
WORD = re.compile(r"(?<![a-z])(?:" + "|".join(word.replace(" ", GAP) for word in WORDS) +
                  r")(?![a-z])", re.I)


def files(root):
    for top in TOPS:
        if os.path.isfile(os.path.join(root, top)):
            yield top
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if not path.endswith(DATA) and not any(
                        path == skipped or path.startswith(skipped + os.sep)
                        for skipped in SKIPPED):
                    yield path


def check(root):
    for path in sorted(files(root)):
        with open(os.path.join(root, path), "rb") as file:
            text = file.read()
        if b"\0" in text:
            continue
        text = text.decode(errors="replace")
        for match in WORD.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: \"{' '.join(match.group().split())}\""


def self_test(root):
    failed = 0
    samples = [(word, f"/* The {word.capitalize()} waits. */\n", True) for word in WORDS]
    samples += [("a name", "int is_nobodys(void);\n", True),
               ("over two lines", "/* looked in\n * vain */\n", True),
               ("part of a word", "/* in Vainqueur, dearth, knockout */\n", False)]
    for what, text, expected in samples:
        with tempfile.TemporaryDirectory() as copy:
            os.mkdir(os.path.join(copy, "shim"))
            with open(os.path.join(copy, "shim", "x.c"), "w", encoding="utf-8") as file:
                file.write(text)
            if bool(list(check(copy))) != expected:
                print(f"{'not noticed' if expected else 'wrongly noticed'}: {what}")
                failed = 1
    for top in TOPS:
        if not os.path.exists(os.path.join(root, top)):
            print(f"not there any more: {top}")
            failed = 1
    return failed


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2])
    violations = list(check(sys.argv[1]))
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
