"""Manual pages as roff (the macros of man(7)), of what the command and the header say."""
import re
import textwrap


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"\^", r"\\(ha", text).replace("~", "\\(ti").replace("`", "\\(ga")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in text.split("\n"))


def wrapped(text):
    """Prose: lines that a reader of the source can bear; roff fills them anyway.  A line is broken
    before it is escaped, so that no line begins with a control character by chance."""
    return escape("\n".join(textwrap.wrap(text, 60, break_long_words=False,
                                          break_on_hyphens=False)))


class Page:
    def __init__(self, name, section, summary, date, version):
        self.file = f"{name}.{section}"
        self.lines = [f'.TH {name.upper()} {section} {date} "accelcache {version}"',
                      ".nh", ".SH NAME", f"{escape(name)} \\- {escape(summary)}"]

    def section(self, title):
        self.lines.append(f".SH {title}")

    def subsection(self, title):
        self.lines.append(f".SS {escape(title)}")

    def text(self, text):
        # Directly behind a heading a paragraph begins by itself.
        if not self.lines[-1].startswith((".SH", ".SS", ".PP", ".TP")):
            self.lines.append(".PP")
        self.lines.append(wrapped(text))

    def usage(self, lines):
        """Makes names of options and of the program bold, and leaves placeholders as they are."""
        for i, line in enumerate(lines):
            if i:
                self.lines.append(".br")
            words = line.split(" ")
            fixed = 2 if len(words) > 1 and words[1].isalpha() and words[1].islower() else 1
            self.lines.append("\\fB" + escape(" ".join(words[:fixed])) + "\\fR" +
                              escape("".join(" " + word for word in words[fixed:])))

    def literal(self, lines):
        if not self.lines[-1].startswith((".SH", ".SS")):
            self.lines.append(".PP")
        self.lines += [".RS 4", ".nf", *[escape(line) for line in lines], ".fi", ".RE"]

    def item(self, term, text):
        self.lines += [".TP", "\\fB" + escape(term) + "\\fR", wrapped(text)]

    def paragraphs(self, paragraphs):
        for paragraph in paragraphs:
            if paragraph.lead:
                self.text(paragraph.lead)
            if any(item.text for item in paragraph.items):
                for item in paragraph.items:
                    self.item(item.term, item.text or "(as its name says)")
            elif paragraph.items:
                self.literal([item.term for item in paragraph.items])

    def see_also(self, *pages):
        self.section("SEE ALSO")
        self.lines.append(",\n".join(f"\\fB{escape(name)}\\fR({section})"
                                     for name, section in pages))

    def roff(self):
        return "\n".join(self.lines) + "\n"


def command_page(command, date, version):
    page = Page("accelcache", 1, "run and look at CUDA programs under a caching allocator", date,
                version)
    page.section("SYNOPSIS")
    page.usage(["accelcache SUBCOMMAND [OPTION...] [ARGUMENT...]"])
    page.section("DESCRIPTION")
    page.text("accelcache runs programs under libaccelcache.so, a stream-aware caching allocator "
              "for GPU memory, and shows what it did.  No source and no rebuild of a program is "
              "needed.")
    for sub in command.subcommands:
        page.item(sub.name, sub.summary)
    page.section("SUBCOMMANDS")
    for sub in command.subcommands:
        page.subsection(f"accelcache {sub.name}")
        page.usage(sub.usage)
        page.paragraphs(sub.paragraphs)
    page.section("EXIT STATUS")
    page.text(command.text.split("Exit status:", 1)[1].strip().replace("\n", " "))
    page.section("EXAMPLES")
    page.literal(["accelcache run --compare -- ./app     what caching changes",
                  "accelcache stat accelcache-*.json     statistics of programs that ended",
                  "accelcache top                        programs that run",
                  "accelcache run --sim -- accelcache-demo   without a GPU"])
    page.see_also(("libaccelcache", 7), ("accelcache.h", 3), ("ld.so", 8))
    return page


def library_page(config, stats, date, version):
    page = Page("libaccelcache", 7, "caching allocator for GPU memory under CUDA programs", date,
                version)
    page.section("SYNOPSIS")
    page.lines += ["\\fBLD_PRELOAD\\fR=\\fIPATH\\fR/libaccelcache.so",
                   "[\\fBACCEL_ALLOC_CONF\\fR=\\fIKEY\\fR:\\fIVALUE\\fR,...]",
                   "\\fIPROGRAM\\fR [\\fIARGUMENT\\fR...]"]
    page.section("DESCRIPTION")
    page.text("Preloaded into a program that uses CUDA, the library serves cudaMalloc, "
              "cudaMallocAsync, cuMemAlloc and their kin from memory that the program freed "
              "before, once the work that was submitted before the free is done.  When the program "
              "exits, its statistics are written as JSON.  Programs that use no CUDA are left "
              "alone.")
    page.section("CONFIGURATION")
    page.text("ACCEL_ALLOC_CONF holds keys and values with commas between them.  A mistake is "
              "named on the standard error output, then the program runs on defaults.")
    for key in config["keys"]:
        if not key["foreign"]:
            page.item(f'{key["key"]}:VALUE',
                      f'{key["range"]}; default {key["default"]}.  {key["doc"]}')
    foreign = [key["key"] for key in config["keys"] if key["foreign"]]
    if foreign:
        page.text("Keys of PyTorch's that are known, warned about and without effect: " +
                  ", ".join(foreign) + ".")
    page.section("STATISTICS")
    page.text("Of each device, in the statistics that a program writes and in those that "
              "accelcache stat shows:")
    for name, rows in stats.items():
        if name != "stats":
            page.subsection(name.replace("_", " "))
        for row in rows:
            page.item(row["name"], (f'{row["unit"]}: ' if row.get("unit") else "") + row["doc"])
    page.section("ENVIRONMENT")
    page.item("ACCEL_ALLOC_CONF", "the settings; a program that gained rights by its file "
              "(set-user-ID) ignores them")
    page.item("ACCEL_LIVE_DIR", "folder of the figures that running programs share with accelcache "
              "(/dev/shm)")
    page.section("FILES")
    page.item("accelcache-PID.json", "the statistics of a process, in the folder that it was "
              "started in; the key dump says another place")
    page.see_also(("accelcache", 1), ("accelcache.h", 3), ("ld.so", 8))
    return page


COMMENT = re.compile(r"/\*(.*?)\*/", re.S)


def prose(comment):
    """A comment without its frame, as paragraphs."""
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip().split("\n")]
    return [" ".join(part.split()) for part in "\n".join(lines).split("\n\n") if part.strip()]


def chunks(header):
    """(comment, code) of what stands between empty lines, a struct or function as a whole."""
    part, depth = [], 0
    for line in header.split("\n") + [""]:
        if line.strip() or depth:
            part.append(line)
            depth += line.count("{") - line.count("}")
            if 'extern "C"' in line:
                depth -= 1
            continue
        text = "\n".join(part)
        part = []
        comment = COMMENT.match(text)
        code = text[comment.end():] if comment else text
        yield (comment.group(1) if comment else "",
               "\n".join(line for line in code.strip("\n").split("\n")
                         if not line.startswith("#")))


def header_page(name, header, date, version):
    page = Page(name, 3, "C API of the caching allocator", date, version)
    page.section("SYNOPSIS")
    page.lines += [".nf", f"#include <{name}>", ".PP",
                   "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs accelcache)", ".fi"]
    page.section("DESCRIPTION")
    first = COMMENT.match(header)
    for paragraph in prose(first.group(1)):
        page.text(paragraph)
    page.section("DECLARATIONS")
    functions = 0
    for comment, code in chunks(header[first.end():]):
        names = re.findall(r"\b(accel_\w+)\(", COMMENT.sub("", code))
        functions += len(names)
        names = names or re.findall(r"^\} (accel_\w+);", code, re.M)
        if not names:
            continue
        page.subsection(", ".join(dict.fromkeys(names)))
        page.literal(code.split("\n"))
        for paragraph in prose(comment):
            page.text(paragraph)
    if not functions:
        raise SystemExit("no function was found in the header")
    page.see_also(("accelcache", 1), ("libaccelcache", 7))
    return page


def demo_page(text, date, version):
    page = Page("accelcache-demo", 1, "small CUDA program to try the caching allocator with", date,
                version)
    page.section("SYNOPSIS")
    page.usage([line.replace("demo", "accelcache-demo", 1) for line in text.usage])
    page.section("DESCRIPTION")
    page.text("A small signal-processing service: in every iteration each of several streams "
              "gets a batch of another length, for which memory is allocated, three kernels are "
              "launched and everything is freed.  It checks its own results, and shows how "
              "long it took.")
    page.paragraphs(text.paragraphs)
    page.section("EXAMPLES")
    page.literal(["accelcache run --sim --compare -- accelcache-demo"])
    page.see_also(("accelcache", 1))
    return page
