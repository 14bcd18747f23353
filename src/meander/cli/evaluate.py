"""`meander evaluate`: replay the test span of a trace with every policy."""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from meander.cli.arguments import positive
from meander.cli.main import OK, say
from meander.errors import InputError
from meander.model import exact_tau
from meander.planning import POLICIES
from meander.planning.ahead.evaluate import Replay, summary
from meander.planning.ahead.mdp import check_gamma
from meander.planning.ahead.mtm import KINDS
from meander.show.forecast_plots import plot_evaluation
from meander.show.plots import plot_path
from meander.spark.pipeline.evaluation import Evaluation, EvaluationOptions, TestSpan

DEFAULT = "storm,flink,consistent-hash,redist,ssm,mtm:n,mtm:direction,mtm:slot,oms"
FIRST = ("ssm",)
LAST = ("oms",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander evaluate`."""
    parser.add_argument("trace", metavar="TRACE", help="a trace by meander trace")
    parser.add_argument("--profile", required=True, metavar="DIR", help="by meander profile")
    parser.add_argument(
        "--policies", default=DEFAULT, metavar="LIST",
        help=f"of {', '.join(POLICIES)}, mtm:n, mtm:direction, mtm:slot, mtm (the label that wins "
        "on the training span), foresight (knows the numbers of nodes to come, not the weights) "
        f"and oms (in hindsight: knows both); default {DEFAULT}",
    )  # fmt: skip
    parser.add_argument("--tau", default="0.4", help="imbalance to allow (default 0.4)")
    parser.add_argument("--gamma", type=float, default=0.9, help="discount (default 0.9)")
    parser.add_argument("--alpha", type=float, default=0.0, help="add-alpha of the MTM (default 0)")
    parser.add_argument("--slot-hours", type=positive, default=3, help="of labels mtm:slot (3)")
    parser.add_argument(
        "--train-until", metavar="TIME", help="end of the training span (default: two thirds)"
    )
    parser.add_argument("--test-until", metavar="TIME", help="end of the test span")
    parser.add_argument(
        "--window", type=int, default=168, metavar="K",
        help="weights are means over the K slots before a migration; 0: fixed weights (168)",
    )  # fmt: skip
    parser.add_argument(
        "--refresh", type=int, default=0, metavar="K",
        help="carry the forecast over to new weights every K migrations (default: never)",
    )  # fmt: skip
    parser.add_argument("--migrations-max", type=positive, metavar="K", help="stop after K")
    parser.add_argument(
        "--method", choices=("auto", "exact", "candidates"), default="candidates",
        help="of the forecasts (default candidates)",
    )  # fmt: skip
    parser.add_argument(
        "--forecasts", type=Path, metavar="DIR", help="keep forecasts here, and use those that fit"
    )
    parser.add_argument("--rings", type=positive, default=20, help="seeds of consistent-hash (20)")
    parser.add_argument("--hindsight-rounds", type=int, default=8, help="effort of oms (8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="one row per migration")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="draw to .png or .svg")
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def run(args: argparse.Namespace) -> int:
    """Evaluate and report."""
    check_gamma(args.gamma)
    tau, names = exact_tau(args.tau), _policies(args.policies)
    from meander.spark.pipeline.profile import read_profile
    from meander.spark.pipeline.trace import read_trace

    wish = EvaluationOptions(**{f.name: getattr(args, f.name) for f in fields(EvaluationOptions)})
    span = TestSpan(read_trace(args.trace), read_profile(args.profile), wish)
    lab = Evaluation(span, wish, say)
    for name in names:
        lab.replay(name)
    answer = {
        "policies": summary(lab.replays, np.random.default_rng(args.seed)),
        "gap_closed": lab.gaps(),
        "mtm_label": lab.chosen,
        "tau": float(tau),
        "gamma": args.gamma,
        "tasks": span.tasks,
        "migrations": len(span.steps),
        "train_until": str(span.trace.slots[span.split]),
        "forecast_seconds": lab.seconds,
        "notes": lab.notes,
    }
    if args.csv:
        write_csv(args.csv, span, lab.replays)
    if args.json:
        print(json.dumps(answer))
    else:
        show(Console(highlight=False), answer)
    if args.plot:
        plot_evaluation(answer, args.plot)
    return OK


def _policies(text: str) -> list[str]:
    """Check the list; `ssm` comes first and `oms` last, since others are measured by them."""
    known = [*POLICIES, "mtm", *(f"mtm:{kind}" for kind in KINDS), "foresight", "oms"]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(f"unknown policy {name!r}: choose from {', '.join(known)}")
    inner = [name for name in dict.fromkeys(names) if name not in (*FIRST, *LAST)]
    first = [*FIRST] if "ssm" in names or "oms" in names else []
    return [*first, *inner, *(name for name in LAST if name in names)]


def write_csv(path: Path, span: TestSpan, replays: dict[str, Replay]) -> None:
    """Write one row per migration and policy."""
    try:
        with path.open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["slot", "nodes", "policy", "cost_share", "imbalance", "plan_us"])
            for name, done in replays.items():
                for step, cost, uneven, took in zip(
                    span.steps, done.cost, done.imbalance, done.plan_s, strict=True
                ):
                    rows.writerow([step.slot, step.nodes, name, cost, uneven, took * 1e6])
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def show(console: Console, answer: dict[str, Any]) -> None:
    """Print the table."""
    table = Table(
        "policy", "moves", "below ssm", "busiest", "meets tau", "plan",
        title=f"{answer['migrations']} migrations, m = {answer['tasks']}, tau {answer['tau']:g}, "
        f"gamma {answer['gamma']:g}; in brackets 95 %",
        title_justify="left", pad_edge=False,
    )  # fmt: skip
    for name, row in answer["policies"].items():
        low, high = row["ci95"]
        saved = ""
        if "below_ssm" in row:
            least, most = row["below_ssm_ci95"]
            saved = f"{row['below_ssm']:+.1%} [{least:+.1%}, {most:+.1%}]"
        table.add_row(
            name, Text(f"{row['cost_share_mean']:.2%} [{low:.2%}, {high:.2%}]"), Text(saved),
            f"{row['imbalance_max']:.2f}", f"{row['met_tau_share']:.0%}",
            f"{row['plan_us']:.0f} µs" if row["plan_us"] else "",
        )  # fmt: skip
    console.print(table)
    for name, gap in answer["gap_closed"].items():
        if gap is not None:
            console.print(f"{name} closes {gap:.0%} of the gap from ssm to the path in hindsight")
    for note in answer["notes"]:
        console.print(note, soft_wrap=True)
