"""Runs the applications of variants.py as child processes, within a time limit."""
import json
import os
import subprocess
import sys
import time
from typing import NamedTuple, Optional

HERE = os.path.dirname(os.path.abspath(__file__))


class Variant(NamedTuple):
    role: str
    env: dict = {}
    preload: bool = False


class App(NamedTuple):
    program: str
    cases: tuple
    variants: tuple
    judged: tuple = ()       # cases with bounds on time and memory
    # Relative tolerance of losses, used if two runs of `own` do not agree in all bits.
    tolerance: float = 1e-3
    scale: float = 1.0


class Outcome(NamedTuple):
    """The outcome of one process: results by case, or the reason why there are none."""
    role: str
    cases: dict = {}
    absent: Optional[str] = None  # a part that it needs is missing
    error: Optional[str] = None
    late: bool = False            # the error is the time limit
    short: bool = False           # this limit was less than twice the first run


def last_lines(text, count=6):
    return "\n".join(text.strip().splitlines()[-count:])


class Runs:
    def __init__(self, app, folder=HERE, library=None, seconds=60.0, device="cuda", steps=60):
        self.app, self.folder, self.library = app, folder, library
        self.end = time.monotonic() + seconds
        self.device, self.steps = device, steps
        self.start = 8.0  # seconds until a process begins its work: first a guess, later measured
        self.first = 0.0  # seconds that the first whole run took

    def left(self):
        return self.end - time.monotonic()

    def environment(self, variant, conf):
        env = dict(os.environ, ACCEL_ALLOC_CONF=conf, PYTHONHASHSEED="0",
                   PYTHONDONTWRITEBYTECODE="1",
                   TORCHINDUCTOR_CACHE_DIR=os.path.abspath("compiled"))
        env.pop("LD_PRELOAD", None)
        env.setdefault("ACCEL_LIVE_DIR", os.getcwd())  # a killed process leaves files here
        for name, value in variant.env.items():
            env[name] = value.format(library=self.library)
        if variant.preload:
            # A sanitizer's runtime comes first.
            env["LD_PRELOAD"] = ":".join(filter(None, (os.environ.get("AC_SANITIZER_RUNTIME"),
                                                       self.library)))
        return env

    def run(self, variant, cases, share=1.0, conf="dump:none", more=()):
        """Runs one process for these cases, with `share` of the remaining time."""
        limit = max(self.left() * share, 1.0)
        seconds = max((limit - self.start) * 0.8 / len(cases), 0.5)
        command = [sys.executable, os.path.join(self.folder, self.app.program),
                   "--device", self.device, "--steps", str(self.steps),
                   "--seconds", f"{seconds:.2f}", "--scale", str(self.app.scale), *more, *cases]
        begin, left = time.monotonic(), max(self.left(), 1.0)
        if self.first:  # a process that hangs must not take all the time
            left = min(left, 3 * max(limit, self.start))
        try:
            # The child stays in this process group, so a signal to the group ends both.
            done = subprocess.run(command, env=self.environment(variant, conf), text=True,
                                  capture_output=True, stdin=subprocess.DEVNULL, check=False,
                                  timeout=left)
        except subprocess.TimeoutExpired:
            return Outcome(variant.role, error=f"not finished after {left:.0f} s", late=True,
                           short=left < 2 * self.first)
        except OSError as error:
            return Outcome(variant.role, error=str(error))
        outcome = self.read(variant, cases, done)
        worked = sum(sum(case["step_ms"]) * case["measured_steps"] / max(len(case["step_ms"]), 1)
                     for case in outcome.cases.values()) / 1000
        if outcome.cases:
            took = time.monotonic() - begin
            self.start, self.first = max(took - worked, 0.1), self.first or took
        return outcome

    @staticmethod
    def read(variant, cases, done):
        if done.returncode == 77:
            return Outcome(variant.role, absent=last_lines(done.stderr, 1) or "no reason given")
        if done.returncode:
            how = f"signal {-done.returncode}" if done.returncode < 0 else \
                f"exit status {done.returncode}"
            return Outcome(variant.role, error=f"{how}: {last_lines(done.stderr)}")
        try:
            results = {row["case"]: row for row in map(json.loads, done.stdout.splitlines())}
            missing = [case for case in cases if not results[case]["losses"]]
        except (ValueError, KeyError, TypeError) as error:
            return Outcome(variant.role, error=f"unreadable result ({error!r}): "
                                               f"{last_lines(done.stdout, 2)[:300]}")
        if missing:
            return Outcome(variant.role, error=f"no step of {', '.join(missing)} was made")
        return Outcome(variant.role, results)
