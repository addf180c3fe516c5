"""Parses the output of `accelcache SUBCOMMAND --help`, the source of man pages and completions.

A help text consists of paragraphs with empty lines between them.  A paragraph may have a heading and
items.  An item is a line behind two blanks: a term and, behind more blanks, its meaning."""
import re
import subprocess

ITEM = re.compile(r"  \S")
GAP = re.compile(r"\S( {2,})\S")
OPTION = re.compile(r"(?:(-[A-Za-z]), )?(--[a-z][a-z-]*)(?:(\[=|[ =])([A-Za-z|]+)\]?(?:\.\.\.)?)?|"
                    r"(?<![\w-])(-[A-Za-z]) ([A-Z]+)")


class Item:
    def __init__(self, term, text):
        self.term = term  # "--conf STRING"
        self.text = text  # one line; may be empty


class Paragraph:
    def __init__(self, lead, items):
        self.lead = lead    # text before the items, or all of it
        self.items = items  # [Item]


class Option:
    """long or short may be None; metavar: None if it takes no value; optional: [=VALUE]."""

    def __init__(self, short, long, metavar, optional, text):
        self.short, self.long, self.metavar = short, long, metavar
        self.optional, self.text = optional, text

    def names(self):
        return [name for name in (self.short, self.long) if name]


def items_of(lines):
    """Returns the items of lines that begin with two blanks.  The longer indentation, or else most of
    the lines, give the column of the meanings."""
    deeper = [len(line) - len(line.lstrip()) for line in lines
              if not ITEM.match(line) and line.startswith("   ")]
    gaps = [gap.end() - 1 for gap in (GAP.search(line) for line in lines) if gap]
    column = min(deeper, default=max(gaps, key=gaps.count, default=0))
    items = []
    for line in lines:
        if not ITEM.match(line):
            if items:
                items[-1].text = f"{items[-1].text} {line.strip()}".strip()
            continue
        gap = GAP.search(line)
        at = gap.end() - 1 if gap else 0
        if column and len(line) > column and line[column - 1] == " " and line[column] != " " and \
                not (gap and gap.end(1) > column):
            at = column
        items.append(Item(line[2:at].strip(), line[at:].strip()) if at
                     else Item(line.strip(), ""))
    return items


def paragraphs_of(text):
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.split("\n")
        first = next((i for i, line in enumerate(lines) if ITEM.match(line)), len(lines))
        yield Paragraph(" ".join(line.strip() for line in lines[:first]), items_of(lines[first:]))


class Help:
    def __init__(self, name, summary, text):
        self.name, self.summary = name, summary
        lines = text.rstrip("\n").split("\n")
        self.usage = [re.sub(r"^(?:[Uu]sage:)?\s+", "", lines[0])]
        rest = 1
        while rest < len(lines) and re.match(r"\s{7}\S", lines[rest]):
            self.usage.append(lines[rest].strip())
            rest += 1
        self.paragraphs = list(paragraphs_of("\n".join(lines[rest:])))
        self.options = list(self.find_options())

    def find_options(self):
        seen = set()
        for paragraph in self.paragraphs:
            for item in paragraph.items:
                if not item.term.startswith("-"):
                    continue
                for match in OPTION.finditer(item.term):
                    short, long, sign, metavar, alone, value = match.groups()
                    option = Option(short or alone, long, metavar or value, sign == "[=", item.text)
                    if long in seen:
                        continue  # another way to use it, as in --json --stats
                    seen.add(long or alone)
                    yield option
        yield Option("-h", "--help", None, False, "Show this help")

    def section(self, word):
        """Returns the terms of the paragraphs with a heading that begins with `word`."""
        return [item.term for paragraph in self.paragraphs if paragraph.lead.startswith(word)
                for item in paragraph.items]

    def values(self, option):
        """Returns the words that may follow an option, as far as the text tells."""
        meta = option.metavar or ""
        if meta and meta != meta.upper():
            return meta.split("|")
        if re.fullmatch(r"[a-z-]+(?:, [a-z-]+)* or [a-z-]+", option.text):
            return re.split(r", | or ", option.text)
        return self.section(meta.capitalize() + "s") if meta else []


class Command:
    """Returns the parsed help texts of the command; `start`: the words that start it."""

    def __init__(self, start):
        self.start = start
        self.text = self.ask("--help")
        self.subcommands = []
        for paragraph in paragraphs_of(self.text):
            if paragraph.lead.startswith("Subcommands"):
                self.subcommands = [Help(item.term, item.text, self.ask(item.term, "--help"))
                                    for item in paragraph.items]
        if not self.subcommands:
            raise SystemExit(f"{start}: --help lists no subcommands")

    def ask(self, *words):
        # With nothing of the caller's settings, and broken at the width of a page.
        return subprocess.run([*self.start, *words], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=60, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}).stdout
