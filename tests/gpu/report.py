"""Lines of PROTOCOL.md for checks written in Python:

    import report
    report.passed("name", evidence="...", value=1.5, unit="ms")
    report.figure("name", 57.0, "ns", most=60, peers={"cudaMallocAsync": 900.0})
    sys.exit(report.end())
"""
import json
import math
import sys

_failed = False


def line(check, result, **fields):
    """Prints one line; omits fields that are None."""
    global _failed
    _failed = _failed or result == "fail"
    fields = {key: value for key, value in fields.items() if value is not None}
    for key in ("evidence", "reason"):
        if key in fields:
            fields[key] = str(fields[key])[:2000]
    print(json.dumps({"check": check, "result": result, **fields}, allow_nan=False), flush=True)


def passed(check, evidence=None, **fields):
    line(check, "pass", evidence=evidence, **fields)


def failed(check, reason, **fields):
    line(check, "fail", reason=reason, **fields)


def skipped(check, reason, **fields):
    line(check, "skip", reason=reason, **fields)


def answer(check, yes, wanted, evidence):
    """Prints the answer to a question: pass if it is `wanted`, else fail."""
    good = bool(yes) == bool(wanted)
    line(check, "pass" if good else "fail", value="yes" if yes else "no", evidence=evidence,
         reason=None if good else "the answer is not the one that the library is built on")


def fact(check, yes, evidence):
    """Prints the answer to a question on which nothing depends."""
    line(check, "fact", value="yes" if yes else "no", evidence=evidence)


def figure(check, value, unit, most=None, peers=None, evidence=None):
    """Prints a measured value: pass up to `most`, fail above; a fact if `most` is None."""
    if not math.isfinite(value):
        failed(check, "not a number", evidence=evidence)
        return
    good = most is None or value <= most
    line(check, "fact" if most is None else "pass" if good else "fail", value=value, unit=unit,
         bound=None if most is None else "<= %g" % most, peers=peers, evidence=evidence,
         reason=None if good else "above its bound")


def end():
    """Returns the exit status of PROTOCOL.md: 1 if a line failed, else 0."""
    return 1 if _failed else 0


def nothing(reason):
    """Exits with status 77: the suite skips all declared lines with this reason."""
    print(reason, file=sys.stderr)
    sys.exit(77)
