"""Turns the output and the end of a check into lines of PROTOCOL.md; starts no process."""
import json
import re

NAME = re.compile(r"[a-z0-9_.-]{1,60}\Z")
RESULTS = ("pass", "fail", "skip", "fact")
TEXTS = ("unit", "bound", "evidence", "reason")
LONGEST = 2000


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fault_of(line):
    """Returns the fault of a parsed line as text; None if the line is correct."""
    if not isinstance(line, dict):
        return "is no JSON object"
    if not isinstance(line.get("check"), str) or not NAME.match(line["check"]):
        return "has no name in \"check\""
    if line.get("result") not in RESULTS:
        return "has none of %s in \"result\"" % ", ".join(RESULTS)
    for key in TEXTS:
        if not isinstance(line.get(key, ""), str):
            return "has no text in \"%s\"" % key
    if line["result"] in ("fail", "skip") and not line.get("reason"):
        return "has no reason"
    value = line.get("value")
    if value is not None and not isinstance(value, (str, bool)) and not is_number(value):
        return "has no number or text in \"value\""
    peers = line.get("peers", {})
    if not isinstance(peers, dict) or not all(is_number(v) or v is None for v in peers.values()):
        return "has no object of numbers in \"peers\""
    return None


def read_line(text):
    """Parses one line of output. Returns (line, None) or (None, fault)."""
    try:
        # NaN and Infinity are not JSON: the lookup in {} raises KeyError.
        line = json.loads(text, parse_constant=lambda name: {}[name])
    except (ValueError, KeyError, RecursionError):
        return None, "is no JSON"
    fault = fault_of(line)
    if fault:
        return None, fault
    known = ("check", "result", "value", "unit", "bound", "peers", "evidence", "reason")
    line = {key: line[key] for key in known if line.get(key) not in (None, "")}
    for key in TEXTS:
        if key in line:
            line[key] = " ".join(line[key].split())[:LONGEST]
    return line, None


def shorten(text, most=200):
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 3] + "..."


def line(check, result, reason):
    return {"check": check, "result": result, "reason": reason[:LONGEST]}


def covers(declared, name):
    return name.startswith(declared[:-1]) if declared.endswith("*") else name == declared


def missing(declared, lines):
    return [name for name in declared if not any(covers(name, l["check"]) for l in lines)]


def all_lines(declared, result, reason):
    """Returns one line with this result and reason for each declared name."""
    return [line(name, result, reason) for name in declared]


def last_words(stderr):
    rows = [row for row in stderr.splitlines() if row.strip()]
    return shorten(rows[-1]) if rows else ""


def judge(name, declared, stdout, stderr, ended):
    """Returns the lines of a check.

    `ended` is (exit status, None), or (None, cause) after a timeout, a signal or a failed start."""
    status, cause = ended
    lines, garbage = [], []
    for text in stdout.splitlines():
        if not text.strip():
            continue
        one, fault = read_line(text)
        if one is None:
            garbage.append("%s: %s" % (fault, shorten(text, 120)))
        elif any(one["check"] == other["check"] for other in lines):
            garbage.append("comes twice: %s" % one["check"])
        else:
            lines.append(one)
    said = last_words(stderr)
    left = missing(declared, lines)
    if status == 77 and not cause:
        lines += all_lines(left, "skip", said or "exit status 77 without a word")
        left = []
    elif not cause and status not in (0, 1):
        cause = "exit status %s" % status
    failing = any(l["result"] == "fail" for l in lines)
    if cause and said:
        cause += "; last words: " + said
    if left:
        lines += all_lines(left, "fail", cause or "the check did not report it (exit status %s)%s" %
                           (status, "; last words: " + said if said else ""))
    elif cause:
        lines.append(line(name + ".end", "fail", cause))
    elif status == 1 and not failing:
        lines.append(line(name + ".end", "fail", "exit status 1 without a line that failed" +
                          ("; last words: " + said if said else "")))
    elif status in (0, 77) and failing:
        lines.append(line(name + ".end", "fail", "exit status %d, though a line failed" % status))
    if garbage:
        lines.append(line(name + ".output", "fail",
                          "%d line(s) of output are not as they must be: %s" %
                          (len(garbage), "; ".join(garbage[:3]))))
    return lines


# ---------------------------------------------------------------- same=True
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b")


def difference(one, other, tolerance):
    """Returns the first difference of two texts; None if they agree.

    Numbers may differ by `tolerance`, relative to the greater one; other text must be equal."""
    if one == other:
        return None
    a, b = one.splitlines(), other.splitlines()
    for number, (x, y) in enumerate(zip(a, b), 1):
        if x == y:
            continue
        if NUMBER.sub("#", x) != NUMBER.sub("#", y):
            return "line %d: %s | %s" % (number, shorten(x, 80), shorten(y, 80))
        for p, q in zip(NUMBER.findall(x), NUMBER.findall(y)):
            p, q = float(p), float(q)
            if p != q and not abs(p - q) <= tolerance * max(abs(p), abs(q)):
                return "line %d: %r | %r" % (number, p, q)
    if len(a) != len(b):
        return "%d lines | %d lines" % (len(a), len(b))
    return None
