"""`meander forecast`: project migration costs, on Spark or in this process, into one file."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import inf, log
from pathlib import Path
from typing import Any

from meander.cli.arguments import positive, seed, spark_master
from meander.cli.main import OK, say
from meander.errors import InputError
from meander.model import Workload, exact_tau
from meander.planning.ahead.cvi import CandidateRound
from meander.planning.ahead.forecast import Forecast, make_forecast
from meander.planning.ahead.mdp import check_gamma
from meander.planning.ahead.mtm import Mtm
from meander.planning.ahead.pmc import Choices, Improve, SweepProgress, improve
from meander.planning.ahead.policy import tried
from meander.planning.ahead.sweep_checkpoint import SweepCheckpoint, identity
from meander.planning.exact.partitions import STATES_MAX, Ends, count_partitions, effective_tau
from meander.planning.kernels.types import Floats
from meander.runtime.store.forecast_file import write_forecast
from meander.show.provenance import commit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander forecast`."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", metavar="DIR", help="a profile by meander profile")
    source.add_argument(
        "--workload", type=Path, metavar="FILE", help='JSON: {"work": […], "size": […]}'
    )
    parser.add_argument(
        "--slot", default="total", help="of the profile: mean, total, last, or a time (total)"
    )
    parser.add_argument("--mtm", type=Path, required=True, metavar="FILE", help="by meander mtm")
    parser.add_argument("--tau", required=True, help="imbalance to allow, as 0.4 or 2/5")
    parser.add_argument("--gamma", type=float, default=0.9, help="discount, below 1 (default 0.9)")
    parser.add_argument("--method", choices=("auto", "exact", "candidates"), default="auto")
    parser.add_argument(
        "--states-max", type=positive, default=STATES_MAX, metavar="K",
        help=f"most partitions of the exact method (default {STATES_MAX})",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0, help="of the candidates (default 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the forecast")
    parser.add_argument("--resume", action="store_true", help="go on from FILE.checkpoint")
    parser.add_argument("--here", action="store_true", help="in this process, without Spark")
    parser.add_argument(
        "--master", type=spark_master, help="of a new Spark session (default local[*])"
    )
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def run(args: argparse.Namespace) -> int:
    """Project, write, report."""
    check_gamma(args.gamma)
    tau, mtm, load = exact_tau(args.tau), Mtm.load(args.mtm), workload_of(args)
    if args.out.is_dir():
        raise InputError(f"--out is the file to write, and {str(args.out)!r} is a folder")
    if not args.out.parent.is_dir():
        raise InputError(f"there is no directory {str(args.out.parent)!r}")
    counts = {n: count_partitions(load, n, effective_tau(load, n, tau)) for n in mtm.nodes}
    say(f"{sum(counts.values()):.4g} feasible partitions: "
         + ", ".join(f"{count:.3g} for {n}" for n, count in counts.items()))  # fmt: skip
    began = time.perf_counter()
    run_of = identity(load, mtm, tau, args.gamma, args.method, args.states_max, args.seed)
    keeper = SweepCheckpoint(args.out.with_name(args.out.name + ".checkpoint"), run_of)
    clock = Eta(began, 1e-6)
    start, pool = keeper.read() if args.resume else (None, None)

    def on_sweep(progress: SweepProgress, value: Floats, choices: Choices) -> None:
        clock.sweep(progress)
        keeper.keep_sweep(value, choices)

    def on_round(done: CandidateRound, ends: Mapping[int, Ends]) -> None:
        clock.round(done)
        keeper.keep_round(done, ends)

    with _sweeper(args) as sweep:
        found = make_forecast(
            load, mtm, tau, args.gamma, args.seed, method=args.method,
            states_max=args.states_max, sweep=sweep, start=start, start_pool=pool,
            on_sweep=on_sweep, on_round=on_round, source=_source(args),
        )  # fmt: skip
    found = tried(found, args.seed)
    write_forecast(found, args.out)
    keeper.drop()
    report(found, counts, time.perf_counter() - began, args)
    return OK


def report(
    found: Forecast, counts: Mapping[int, int], seconds: float, args: argparse.Namespace
) -> None:
    """Say what was made."""
    answer = {
        "file": str(args.out),
        "method": found.method,
        "feasible_partitions": sum(counts.values()),
        "partitions": len(found.model.family),
        "labels": len(found.mtm.labels),
        "error": found.error,
        "seconds": seconds,
        "trial": found.trial and {"ssm": found.trial[0], "mtm": found.trial[1]},
        "trusted": found.trusted,
        "value_min": float(found.value.min()),
        "value_max": float(found.value.max()),
    }
    if args.json:
        print(json.dumps(answer))
        return
    print(
        f"{args.out}: {found.method}, {answer['partitions']} partitions, {answer['labels']} labels, "
        f"within {found.error:.1e} of the fixed point, {seconds:.1f} s"
    )
    if found.trial:
        verdict = "trusted" if found.trusted else "not trusted: plans will be those of ssm"
        print(f"trial: {found.trial[1]:.3%} a migration, ssm {found.trial[0]:.3%}; {verdict}")


def workload_of(args: argparse.Namespace) -> Workload:
    """Read the weights from a profile or a JSON file."""
    if args.profile:
        from meander.spark.pipeline.profile import read_workload

        return read_workload(args.profile, args.slot)
    try:
        data = json.loads(args.workload.read_text())
        return Workload(data["work"], data["size"])
    except OSError as error:
        raise InputError(f"cannot read {args.workload}: {error.strerror}") from None
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{args.workload} is no workload: {error}") from None


def _sweeper(args: argparse.Namespace) -> AbstractContextManager[Improve]:
    """Give what improves rows: this process, or Spark."""
    if args.here:
        return nullcontext(improve)
    from meander.spark.pipeline.forecast import spreading

    return spreading(args.master)


def _source(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "profile": args.profile and str(args.profile),
        "slot": args.slot if args.profile else None,
        "workload": args.workload and str(args.workload),
        "mtm": str(args.mtm),
        "seed": args.seed,
        "commit": commit(),
    }


class Eta:
    """Progress on standard error, with an estimate of what is left."""

    def __init__(self, began: float, tol: float) -> None:
        self.began, self.tol = began, tol
        self.last, self.error = began, inf

    def sweep(self, progress: SweepProgress) -> None:
        """Tell of a sweep. The error falls ever faster, so the estimate is an upper one."""
        now = time.perf_counter()
        text = f"sweep {progress.sweeps}: within {progress.error:.1e} of the fixed point"
        if progress.error > self.tol and self.error < inf and progress.error < self.error:
            left = log(progress.error / self.tol) / log(self.error / progress.error)
            text += f", at most {int(left + 1) * (now - self.last):.0f} s to go"
        say(f"{text} ({now - self.began:.1f} s, {progress.looked_at:.3g} looked at)")
        self.last, self.error = now, progress.error

    def round(self, done: CandidateRound) -> None:
        """Tell of a round of candidates."""
        now = time.perf_counter()
        text = (
            f"round {done.number} of {done.of}: {done.candidates} candidates, "
            f"{done.step_cost:.3%} of all state a migration"
        )
        if done.number < done.of:
            text += f", about {(now - self.last) * (done.of - done.number):.0f} s to go"
        say(f"{text} ({now - self.began:.1f} s)")
        self.last = now
