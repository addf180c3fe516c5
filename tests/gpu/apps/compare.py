"""Compares several runs of an application: losses, time, memory, waits."""
import math
import statistics

LEAST_STEPS = 5
COUNTERS = ("cached_allocs", "driver_allocs", "ready_frees", "ordered_frees", "fenced_frees",
            "fence_waits", "join_events", "async_allocs", "passed_allocs", "num_alloc_retries")
FENCES = ("fences_ctx", "fences_streams", "fences_legacy", "fences_sync")
LOST = (("waits for fences", ("fence_wait_ns",)),
        ("driver calls of the cache", ("driver_alloc_ns", "driver_free_ns")),
        ("driver calls that it passed on", ("passed_ns",)),
        ("its own work", ("shim_ns",)))


def values(result):
    return [float.fromhex(loss) for loss in result["losses"]]


def differ(reference, other, tolerance):
    """Returns why the losses of two runs differ; None if they agree.

    Only steps that both runs made count.  With tolerance 0 all bits must agree."""
    first, second = values(reference), values(other)
    if not all(map(math.isfinite, first)):
        return "the losses of the run without the library are not finite"
    common = min(len(first), len(second))
    if common < min(LEAST_STEPS, len(first)):
        return f"only {len(second)} steps were made"
    for step in range(common):
        gap = abs(first[step] - second[step])
        if gap > tolerance * abs(first[step]) or math.isnan(second[step]):
            return (f"step {step}: loss {second[step]!r} instead of {first[step]!r}"
                    + (f", off by more than {tolerance:g} of it" if tolerance else ""))
    return None


def tolerance_of(own, allowed):
    """Returns 0 if at least two runs of the framework alone agree in all bits, else `allowed`."""
    return 0.0 if len(own) > 1 and all(not differ(own[0], one, 0.0) for one in own[1:]) else allowed


def gap(results):
    """Returns the largest relative difference between any loss and the first result's loss."""
    first = values(results[0])
    return max((abs(a - b) / abs(a) if a else abs(b) for other in results[1:]
                for a, b in zip(first, values(other))), default=0.0)


def step_ms(results):
    """Returns the median milliseconds of a step over all blocks; None without blocks."""
    blocks = [ms for result in results for ms in result["step_ms"]]
    return statistics.median(blocks) if blocks else None


def spread(results):
    each = [statistics.median(result["step_ms"]) for result in results if result["step_ms"]]
    return " and ".join(f"{ms:.3f}" for ms in each)


def delta(result, names):
    before = (result["before"] or {"counters": {}})["counters"]
    after = (result["after"] or {"counters": {}})["counters"]
    return sum(after.get(name, 0) - before.get(name, 0) for name in names)


def peak_of_library(results):
    """Returns the peak of bytes that the library reserved; None if it was not loaded."""
    peaks = [result["after"]["reserved_peak"] for result in results if result["after"]]
    return max(peaks) if peaks else None


def counts(result):
    """Returns the library's counters for the measured steps as text."""
    steps = max(result["measured_steps"], 1)
    words = [f"{steps} steps", f"fences {delta(result, FENCES)}"]
    words += [f"{name} {delta(result, (name,))}" for name in COUNTERS]
    return ", ".join(words)


def lost(own_ms, result):
    """Explains in words a step's extra time, compared with the framework's own allocator."""
    ours = step_ms([result])
    steps = max(result["measured_steps"], 1)
    parts = [(what, delta(result, names) / steps / 1e6) for what, names in LOST]
    words = [f"{what} {ms:.3f}" for what, ms in parts]
    rest = ours - own_ms - sum(ms for _, ms in parts)
    return (f"{ours - own_ms:+.3f} ms a step against its own allocator; spent under the library: "
            f"{', '.join(words)} ms; other causes {rest:+.3f} ms")
