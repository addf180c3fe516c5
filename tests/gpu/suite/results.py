"""Writes the result of a run: one JSON file, and a Markdown page made from this file only."""
import json
import os

WORDS = ("pass", "fail", "skip", "fact")
NOT_RUN = """# Results on a GPU

**Not yet run on a GPU.** `tests/gpu/qualify` writes this page on a machine that has one;
nothing else does.
"""


def names(simulated):
    """Returns both file names; the simulated device has its own, to keep a GPU's page."""
    return ("simulated.json", "SIMULATED.md") if simulated else ("results.json", "RESULTS.md")


def count(lines):
    return {word: sum(line["result"] == word for line in lines) for word in WORDS}


def lines_of(part):
    return [line for check in part["checks"] for line in check["lines"]]


def totals(result):
    return count([line for part in result["parts"] for line in lines_of(part)])


# ---------------------------------------------------------------- the page
def cell(text):
    return " ".join(str(text).replace("|", "\\|").replace("<", "&lt;").split())


def number(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return "{:,}".format(int(value))
    return "{:,.4g}".format(value) if abs(value) < 1000 else "{:,.0f}".format(value)


def figure(line):
    if line.get("value") is None:
        return ""
    unit = line.get("unit", "")
    return number(line["value"]) + (unit if unit in ("%", "") else " " + unit)


def peers(line):
    unit = line.get("unit", "")
    return "; ".join("%s %s%s" % (name, "?" if value is None else number(value),
                                  unit if unit in ("%", "") else " " + unit)
                     for name, value in line.get("peers", {}).items())


def words(line):
    return "; ".join(filter(None, (line.get("reason"), line.get("evidence"))))


def head(result):
    where, rows = result["machine"], []
    for device in result["driver"]["devices"]:
        rows.append(("GPU", "%s, %.1f GiB, compute capability %s" % (
            device["name"], device["memory"] / 2**30, device["compute"])))
    rows += [("driver", "%s, CUDA %s" % (result["driver"]["driver"] or "unknown version",
                                         result["driver"]["cuda"])),
             ("machine", "%s, %s cores, %s GiB, %s, Linux %s, %s" % tuple(
                 where[key] for key in ("cpu", "cores", "memory_gib", "system", "kernel",
                                        "libc")))]
    rows.append(("versions", ", ".join("%s %s" % pair for pair in result["versions"].items())))
    rows.append(("date", result["date"]))
    rows.append(("took", "%.0f s of %.0f s" % (result["seconds"], result["budget"])))
    if result["given"]:
        rows.append(("options", " ".join(result["given"])))
    return ["| | |", "|---|---|"] + ["| %s | %s |" % (key, cell(text)) for key, text in rows]


def summary(result):
    rows = ["| part | pass | fail | skip | facts | seconds |", "|---|---:|---:|---:|---:|---:|"]
    for part in result["parts"]:
        counts = count(lines_of(part))
        rows.append("| %d. %s | %s | %.0f of %.0f |" % (
            part["part"], part["title"], " | ".join(str(counts[word]) for word in WORDS),
            part["seconds"], part["budget"]))
    return rows


def table(part):
    if not part["checks"]:
        return ["Nothing is declared here."]
    rows = ["| line | result | value | bound | peers | what was seen |",
            "|---|---|---:|---|---|---|"]
    for line in lines_of(part):
        result = line["result"]
        rows.append("| %s |" % " | ".join(cell(text) for text in (
            line["check"], "**FAIL**" if result == "fail" else result, figure(line),
            line.get("bound", ""), peers(line), words(line))))
    return rows


def page(result):
    counts = totals(result)
    text = ["# Results on %s" % ("the simulated device" if result["simulated"] else "a GPU"), ""]
    if result["simulated"]:
        text += ["**Simulated.** Nothing below says anything about a GPU: it shows that the suite "
                 "itself works.", ""]
    text += ["Written by `tests/gpu/qualify`; what a line means is said where it is declared "
             "(`checks.py`) and in the program it names.", ""]
    if not result["complete"]:
        text += ["**The run was broken off**; what is below was done until then.", ""]
    absent = [str(part["part"]) for part in result["absent"]]
    if absent:
        text += ["Parts that this run was told to leave out: %s." % ", ".join(absent), ""]
    text += head(result) + [""]
    text += ["%d pass, %d fail, %d skip, %d facts." % tuple(counts[word] for word in WORDS), ""]
    text += summary(result) + [""]
    for part in result["parts"]:
        text += ["## %d. %s" % (part["part"], part["title"]), ""] + table(part) + [""]
    return "\n".join(text)


def render(folder, simulated=False):
    """Returns the page for a folder, made from its JSON file; NOT_RUN if there is none."""
    try:
        with open(os.path.join(folder, names(simulated)[0]), encoding="utf-8") as file:
            return page(json.load(file))
    except FileNotFoundError:
        return NOT_RUN


def replace(path, text):
    """Replaces a file atomically: readers find the old text or the new one, even after a crash."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def write(folder, result):
    os.makedirs(folder, exist_ok=True)
    data, text = names(result["simulated"])
    replace(os.path.join(folder, data), json.dumps(result, indent=1) + "\n")
    replace(os.path.join(folder, text), page(result))
