"""Turns figures of gpu_costs into a table of costs: function,ns_fixed,ns_per_mib,ns_per_page,source.

The simulated device and the model of `accelcache replay` read this table."""
import json
import statistics

MIB = 1 << 20
# Smaller blocks come from memory that the driver already holds, so they do not fit the line.
LEAST = 1 * MIB
HEAD = "function,ns_fixed,ns_per_mib,ns_per_page,source"
# Pairs: a function that is not measured, and a measured function with the same cost.
ALIKE = (("cuMemAllocPitch", "cuMemAlloc"), ("cuMemAllocFromPoolAsync", "cuMemAllocAsync"),
         ("cuEventRecordWithFlags", "cuEventRecord"), ("cuLaunchKernelEx", "cuLaunchKernel"),
         ("cuMemcpyDtoDAsync", "cuMemcpyAsync"), ("cuMemcpyHtoDAsync", "cuMemcpyAsync"),
         ("cuMemcpyDtoHAsync", "cuMemcpyAsync"))


def read(text):
    """Returns {(call, kind): {bytes: median ns}}, in the order of the lines."""
    figures = {}
    for line in text.splitlines():
        row = json.loads(line)
        by_size = figures.setdefault((row["call"], row["kind"]), {})
        by_size[row["bytes"]] = statistics.median(row["ns"])
    return figures


def fit(points):
    """Fits a line to {bytes: ns}: the least squares of the relative errors.

    Returns (fixed, per MiB), both at least 0."""
    rows = [(size / MIB, ns) for size, ns in points.items()]
    if len(rows) == 1 or any(ns <= 0 for _, ns in rows):
        return statistics.median(ns for _, ns in rows), 0.0
    a = sum(1 / ns**2 for _, ns in rows)
    b = sum(mib / ns**2 for mib, ns in rows)
    c = sum(mib**2 / ns**2 for mib, ns in rows)
    d = sum(1 / ns for _, ns in rows)
    e = sum(mib / ns for mib, ns in rows)
    fixed, per_mib = (c * d - b * e) / (a * c - b * b), (a * e - b * d) / (a * c - b * b)
    if per_mib < 0:
        return d / a, 0.0
    if fixed < 0:
        return 0.0, e / c
    return fixed, per_mib


def worst(points, line):
    """Returns the largest deviation of a point from the line, relative to the point."""
    return max((abs(line[0] + line[1] * size / MIB - ns) / ns for size, ns in points.items() if ns),
               default=0.0)


def per_page(figures, call):
    """Returns the ns that each further page adds to a call; 0 if it was not measured."""
    several = {int(kind.split()[0]): ns for (name, kind), points in figures.items()
               for ns in points.values() if name == call and kind.endswith((" page", " pages"))}
    if len(several) < 2:
        return 0.0
    few, many = min(several), max(several)
    return max(0.0, (several[many] - several[few]) / (many - few))


def _row(name, line, source, pages=0.0):
    source = source.replace('"', "'")
    return f'{name},{round(line[0])},{round(line[1])},{round(pages)},"{source}"'


def lines(figures, where):
    """Returns the lines of the table; `where` names the measured device and driver."""
    rows, lines_of = [HEAD], {}
    for (call, kind), points in figures.items():
        if kind or "+" in call:
            continue
        kept = {size: ns for size, ns in points.items() if size >= LEAST} or points
        lines_of[call] = line = fit(kept)
        text = f"measured: {where}"
        if len(kept) > 1:
            sizes = f"{min(kept) // MIB} to {max(kept) // MIB} MiB"
            text += f"; {len(kept)} sizes of {sizes}, the line within {worst(kept, line):.0%}"
        rows.append(_row(call, line, text, per_page(figures, call)))
    rows += [_row(name, lines_of[other], f"as {other}") for name, other in ALIKE
             if other in lines_of]
    return rows


def parse(text):
    """Parses a table of costs. Returns {function: (fixed, per MiB, per page)}."""
    table = {}
    for line in text.splitlines()[1:]:
        if line and not line.startswith("#"):
            name, *costs = line.split(",")[:4]
            table[name] = tuple(map(int, costs))
    return table
