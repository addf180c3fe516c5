#!/usr/bin/env python3
"""Compares applications under the framework's own allocator and under the library, and prints lines
of PROTOCOL.md.

    apps.py APPLICATION [--case CASE...] [--device cuda|cpu] [--steps N] [--scale X]

variants.py lists the runs.  Losses must be the same in all of them.  Time and memory are compared with
the framework's own allocator, measured by the same run of this program."""
import argparse
import importlib.util
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import compare  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402

MIB = 1 << 20
FEW = ("--steps", "8", "--warmup", "3")  # without any cache a step can take a hundred times as long
BOUND = 1.05  # greatest allowed ratio to the framework's own allocator, for time and memory


def load_table(path):
    spec = importlib.util.spec_from_file_location("variants", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["variants"] = module
    spec.loader.exec_module(module)
    return module.APPS


def run_all(app, runner, cases):
    """Runs the variants in turn while there is time.

    The first two always run.  Returns the outcomes and the roles that were left out."""
    outcomes, left_out = [], []
    for i, variant in enumerate(app.variants):
        if i > 1 and runner.left() < 1.3 * runner.start:
            left_out.append(variant.role)
            continue
        outcome = runner.run(variant, cases, share=1.0 / (len(app.variants) - i),
                             more=FEW if variant.role == "bare" else ())
        if i == 0 and outcome.absent:
            report.nothing(outcome.absent)
        if i == 0 and outcome.late:
            report.nothing(f"without the library, too: {outcome.error}; --seconds gives more")
        if outcome.short:
            left_out.append(variant.role)
        else:
            outcomes.append(outcome)
    return outcomes, left_out


class Case:
    """Reports the lines of one case."""

    def __init__(self, name, app, case, outcomes, left_out=(), device="cuda"):
        self.prefix = f"app.{name}.{case}."
        self.app, self.left_out, self.device = app, left_out, device
        self.broken = [o for o in outcomes if case not in o.cases]
        self.by_role = {}
        for outcome in outcomes:
            if case in outcome.cases:
                self.by_role.setdefault(outcome.role, []).append(outcome.cases[case])
        self.own = self.by_role.get("own", [])
        # The role to compare with `own`: the library alone, else the library under the cache.
        self.main = next((role for role in ("ours", "plugged", "beside") if role in self.by_role),
                         None)
        self.ours = self.by_role.get(self.main, [])
        self.judged = case in app.judged

    def why_not(self):
        return "; ".join(f"{o.role}: {o.error or o.absent}" for o in self.broken)[:1500]

    def report(self):
        if not self.broken and not self.ours:
            for line in ("losses", "time", "memory", "waits"):
                report.skipped(self.prefix + line, f"no time for {', '.join(self.left_out)}")
            return
        self.report_losses()
        if not self.own or not self.ours:
            for line in ("time", "memory", "waits"):
                report.skipped(self.prefix + line, f"no run to compare: {self.why_not()}")
            return
        self.report_time()
        self.report_memory()
        report.figure(self.prefix + "waits", compare.delta(self.ours[-1], ("fence_waits",)), "waits",
                      evidence=f"{self.main}: {compare.counts(self.ours[-1])}")

    def report_losses(self):
        name = self.prefix + "losses"
        tolerance = compare.tolerance_of(self.own, self.app.tolerance)
        wrong = [f"{o.role}: {o.error or o.absent}" for o in self.broken]
        for role, results in self.by_role.items():
            for result in results if self.own else ():
                reason = compare.differ(self.own[0], result, tolerance)
                if not reason and role == self.main and self.device != "cpu" and not result["after"]:
                    reason = "the library served nothing"
                if reason:
                    wrong.append(f"{role}: {reason}")
        far = compare.gap([result for results in (self.own, *self.by_role.values())
                           for result in results])
        exact = f"held to {'the last bit' if tolerance == 0 else f'{tolerance:g} of their value'}, " \
            + (f"largest difference {far:.2g}" if far else "all equal to the last bit")
        some = next(iter(self.by_role.values()), [None])[0]
        what = some and f"{some['device']}, " + ", ".join(
            f"{key} {value}" for key, value in some["versions"].items())
        steps = ", ".join(f"{role} {'+'.join(str(len(r['losses'])) for r in results)}"
                          for role, results in self.by_role.items())
        evidence = f"{what}; steps: {steps}; {exact}"
        if self.left_out:
            evidence += f"; no time for {', '.join(self.left_out)}"
        if wrong:
            report.failed(name, "; ".join(wrong), evidence=evidence)
        else:
            report.passed(name, evidence=evidence)

    def ratios(self, figure, own):
        """Returns the ratios of the other roles' figures to `own`; None if there are none."""
        pairs = ((role, figure(results)) for role, results in self.by_role.items()
                 if role not in ("own", self.main))
        return {role: round(value / own, 4) for role, value in pairs if value} or None

    def report_time(self):
        own, ours = compare.step_ms(self.own), compare.step_ms(self.ours)
        if not own or not ours:
            report.failed(self.prefix + "time", "no steps were timed", evidence=self.why_not())
            return
        report.figure(self.prefix + "time", round(ours / own, 4), "x",
                      most=BOUND if self.judged else None,
                      peers=self.ratios(compare.step_ms, own),
                      evidence=f"own allocator {compare.spread(self.own)} ms a step, {self.main} "
                               f"{compare.spread(self.ours)}; "
                               + compare.lost(own, self.ours[-1]))

    def report_memory(self):
        own = max((result["peak"] or 0 for result in self.own), default=0)
        if self.main == "beside":
            ours = max((result["peak"] or 0 for result in self.ours), default=0)
        else:
            ours = compare.peak_of_library(self.ours)
        name, evidence = self.prefix + "memory", f"own allocator {own / MIB:.1f} MiB at most, " \
            f"{self.main} {(ours or 0) / MIB:.1f} MiB"
        beside = self.by_role.get("beside", ())
        if beside and self.main != "beside" and beside[-1]["after"] and beside[-1]["peak"]:
            both = beside[-1]["after"]["reserved_peak"] - beside[-1]["peak"]
            evidence += f"; beside the framework's cache the library took {both / MIB:+.1f} MiB " \
                "for what else is in the process"
        if not ours:
            report.skipped(name, f"{self.main}: nothing says how much was taken")
        elif own:
            report.figure(name, round(ours / own, 4), "x", most=BOUND if self.judged else None,
                          evidence=evidence)
        else:
            report.figure(name, round(ours / MIB, 1), "MiB",
                          evidence="the framework has no cache of its own, or does not tell")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("application")
    parser.add_argument("--case", nargs="+", help="these cases alone")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to see that it runs")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--scale", type=float, help="size of the work, instead of the table's")
    parser.add_argument("--table", default=os.path.join(HERE, "variants.py"))
    options = parser.parse_args()
    apps = load_table(options.table)
    if options.application not in apps:
        parser.error(f"no application {options.application}: {', '.join(apps)}")
    app = apps[options.application]
    if options.scale:
        app = app._replace(scale=options.scale)
    library = os.environ.get("QUALIFY_LIBRARY")
    if not library:
        parser.error("QUALIFY_LIBRARY names the library to preload")
    cases = options.case or list(app.cases)
    runner = runs.Runs(app, os.path.dirname(os.path.abspath(options.table)), library,
                       float(os.environ.get("QUALIFY_SECONDS", 120)) - 2, options.device,
                       options.steps)
    outcomes, left_out = run_all(app, runner, cases)
    for case in cases:
        Case(options.application, app, case, outcomes, left_out, options.device).report()
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
