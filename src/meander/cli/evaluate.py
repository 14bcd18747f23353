"""`meander evaluate`: replay test spans of traces with every policy."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from meander.cli.arguments import positive, seed
from meander.cli.main import OK, say
from meander.cli.sources import length
from meander.errors import InputError
from meander.model import exact_tau
from meander.planning import POLICIES
from meander.planning.ahead.clairvoyant import ROUNDS_MAX
from meander.planning.ahead.evaluate import summary
from meander.planning.ahead.mdp import check_gamma
from meander.planning.ahead.mtm import KINDS
from meander.show.forecast_plots import plot_evaluation
from meander.show.plots import plot_path
from meander.spark.pipeline.evaluation import (
    Evaluation,
    EvaluationOptions,
    TestSpan,
    Weights,
    cut,
    slot_of,
)
from meander.spark.pipeline.slots import iso

DEFAULT = "ssm,ahead,oms"
LAST = "oms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander evaluate`."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="traces by meander trace")
    parser.add_argument(
        "--profile", required=True, nargs="+", metavar="DIR", help="profiles by meander profile"
    )
    parser.add_argument(
        "--policies", default=DEFAULT, metavar="LIST",
        help=f"of {', '.join(POLICIES)}, ahead (looks ahead; learns from the trace alone), mtm:n, "
        "mtm:direction, mtm:slot, mtm (the label that wins on the training span), foresight (knows "
        "the numbers of nodes to come, not the weights) and oms (in hindsight: knows both); ssm is "
        f"always there; default {DEFAULT}",
    )  # fmt: skip
    parser.add_argument("--tau", default="0.4", metavar="LIST", help="imbalances to allow (0.4)")
    parser.add_argument("--gamma", type=float, default=0.9, help="discount of mtm (default 0.9)")
    parser.add_argument("--alpha", type=float, default=0.0, help="add-alpha of the MTM (default 0)")
    parser.add_argument("--slot-hours", type=positive, default=3, help="of labels mtm:slot (3)")
    parser.add_argument(
        "--train-until", metavar="TIME", help="where the first test begins (default: two thirds)"
    )
    parser.add_argument("--test-until", metavar="TIME", help="where the last test ends")
    parser.add_argument(
        "--roll", dest="roll_s", type=length, metavar="LENGTH",
        help="cut the test into spans of this length, such as 60d; all before one trains for it",
    )  # fmt: skip
    parser.add_argument(
        "--learn", dest="learn_s", type=length, metavar="LENGTH",
        help="ahead knows only so much before each span, such as 28d (default: all of the trace)",
    )  # fmt: skip
    parser.add_argument(
        "--window", type=int, default=168, metavar="K",
        help="weights are sums over the K slots before a migration; 0: fixed weights (168)",
    )  # fmt: skip
    parser.add_argument(
        "--refresh", type=int, default=0, metavar="K",
        help="carry the forecast of mtm over to new weights every K migrations (default: never)",
    )  # fmt: skip
    parser.add_argument("--migrations-max", type=positive, metavar="K", help="of a span")
    parser.add_argument(
        "--method", choices=("auto", "exact", "candidates"), default="candidates",
        help="of the forecasts of mtm (default candidates)",
    )  # fmt: skip
    parser.add_argument(
        "--forecasts", type=Path, metavar="DIR", help="keep forecasts here, and use those that fit"
    )
    parser.add_argument("--rings", type=positive, default=20, help="seeds of consistent-hash (20)")
    parser.add_argument(
        "--hindsight-rounds", type=int, default=ROUNDS_MAX, metavar="K",
        help=f"oms stops when it gains no more, or after K rounds ({ROUNDS_MAX})",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="one row per migration")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="draw to .png or .svg")
    parser.add_argument("--json", action="store_true", help="answer in JSON")


@dataclass(frozen=True, eq=False)
class EvaluatedSpan:
    """One span of one series at one τ, with what every policy did there."""

    series: str
    tau: float
    lab: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Give plain values; docs/forecast.md says what they mean."""
        span = self.lab.span
        slots = span.trace.slots
        until = slots[span.stop] if span.stop < len(slots) else slots[-1] + (slots[1] - slots[0])
        return {
            "series": self.series, "from": iso(slots[span.split]), "until": iso(until),
            "tau": self.tau, "tasks": span.tasks, "rows": self.lab.rows(),
        }  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Evaluate and report."""
    check_gamma(args.gamma)
    names = _policies(args.policies)
    taus = [text.strip() for text in args.tau.split(",") if text.strip()]
    if not taus or args.window < 0:
        raise InputError("--tau needs at least one number, --window one that is not negative")
    for tau in taus:
        exact_tau(tau)
    if args.forecasts is not None and args.forecasts.exists() and not args.forecasts.is_dir():
        raise InputError(
            f"--forecasts is a folder to keep forecasts in, and {args.forecasts} is a file"
        )
    wish = EvaluationOptions(**{
        f.name: taus[0] if f.name == "tau" else getattr(args, f.name)
        for f in fields(EvaluationOptions)
    })  # fmt: skip
    done = _evaluated(args.trace, args.profile, names, taus, wish)
    answer = {"spans": [span.to_json() for span in done]}
    if args.csv:
        write_csv(args.csv, done)
    if args.json:
        print(json.dumps(answer))
    else:
        for span, found in zip(done, answer["spans"], strict=True):
            show(Console(highlight=False), span, found)
    if args.plot:
        _plot(done[0], args.plot)
    return OK


def _evaluated(
    traces: Sequence[str], profiles: Sequence[str], names: list[str], taus: list[str],
    wish: EvaluationOptions,
) -> list[EvaluatedSpan]:  # fmt: skip
    from meander.spark.pipeline.profile import read_profile
    from meander.spark.pipeline.trace import read_trace

    read, done = [(Path(path).stem, read_trace(path)) for path in traces], list[EvaluatedSpan]()
    if "ahead" in names:
        for _, trace in read:
            slot_of(trace)
    for profile in profiles:
        weights = Weights(read_profile(profile))
        for series, trace in read:
            for split, stop in cut(trace, weights, wish):
                span = TestSpan(trace, weights, wish, split, stop)
                if not span.steps:
                    say(f"{series} from {iso(trace.slots[split])}: no migration, left out")
                    continue
                for tau in taus:
                    say(f"{series} from {iso(trace.slots[split])}, tau {tau}, m = {span.tasks}, "
                        f"{len(span.steps)} migrations")  # fmt: skip
                    lab = Evaluation(span, replace(wish, tau=tau), say)
                    for name in names:
                        lab.replay(name)
                    done.append(EvaluatedSpan(series, float(exact_tau(tau)), lab))
    if not done:
        raise InputError("no test span has a migration within the profile: take a longer one")
    return done


def _policies(text: str) -> list[str]:
    """Check the list; `ssm` comes first and `oms` last, since others are measured by them."""
    known = [*POLICIES, "ahead", "mtm", *(f"mtm:{kind}" for kind in KINDS), "foresight", LAST]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(f"unknown policy {name!r}: choose from {', '.join(known)}")
    inner = [name for name in dict.fromkeys(names) if name not in ("ssm", LAST)]
    return ["ssm", *inner, *([LAST] if LAST in names else [])]


def write_csv(path: Path, done: Sequence[EvaluatedSpan]) -> None:
    """Write one row per migration and policy."""
    try:
        with path.open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["series", "tau", "tasks", "slot", "nodes", "policy", "cost_share",
                           "imbalance", "plan_us"])  # fmt: skip
            for span in done:
                for name, replayed in span.lab.replays.items():
                    for step, cost, uneven, took in zip(
                        span.lab.span.steps, replayed.cost, replayed.imbalance, replayed.plan_s,
                        strict=True,
                    ):  # fmt: skip
                        rows.writerow([span.series, span.tau, span.lab.span.tasks, step.slot,
                                       step.nodes, name, cost, uneven, took * 1e6])  # fmt: skip
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def show(console: Console, span: EvaluatedSpan, found: dict[str, Any]) -> None:
    """Print the table of a span."""
    table = Table(
        "policy", "moves", "below ssm", "of the distance", "busiest", "meets tau", "plan",
        title=f"{span.series} from {found['from']}: {len(span.lab.span.steps)} migrations, "
        f"m = {found['tasks']}, tau {found['tau']:g}; in brackets 95 %",
        title_justify="left", pad_edge=False,
    )  # fmt: skip
    for row in found["rows"]:
        done = span.lab.replays.get(row["policy"])
        saved = f"{row['below_ssm']:+.1%}"
        if row["low"] is not None:
            saved += f" [{row['low']:+.1%}, {row['high']:+.1%}]"
        elif done is not None:
            saved += " [–]"
        table.add_row(
            row["policy"], f"{row['cost']:.2%}", Text("" if row["policy"] == "ssm" else saved),
            "" if row["gap_share"] is None else f"{row['gap_share']:.0%}",
            "" if done is None else f"{done.imbalance.max():.2f}",
            "" if done is None else f"{done.met_tau.mean():.0%}",
            "" if row["plan_ms"] is None else f"{row['plan_ms']:.3g} ms",
        )  # fmt: skip
    console.print(table)
    for note in span.lab.notes:
        console.print(note, soft_wrap=True)


def _plot(span: EvaluatedSpan, path: Path) -> None:
    """Draw the first span."""
    rows = summary(span.lab.replays, np.random.default_rng(span.lab.wish.seed))
    test = span.lab.span
    plot_evaluation({"policies": rows, "migrations": len(test.steps), "tasks": test.tasks,
                     "tau": span.tau}, path)  # fmt: skip
