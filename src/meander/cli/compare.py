"""`meander compare`: what every policy would do with one problem."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from meander.cli.answers import to_line
from meander.cli.arguments import add_problem
from meander.cli.main import OK
from meander.cli.reading import read_one
from meander.cli.timing import median_s
from meander.errors import InfeasibleError, InputError, TooLargeError
from meander.model import Plan, Problem
from meander.planning import POLICIES, plan
from meander.show.picture import amount
from meander.show.plots import plot_comparison, plot_path

RING = "hash ring to ring"
RING_TASKS_MAX = 10**5
"""Beyond this the hundred rings take longer than all policies together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander compare`."""
    add_problem(parser)
    parser.add_argument(
        "--plot", type=plot_path, metavar="FILE", help="draw to a .png or .svg file"
    )


def run(args: argparse.Namespace) -> int:
    """Compare and print."""
    problem = read_one(args.file)
    rows = compare(problem)
    if args.json:
        print(to_line({"rows": rows, "cap": problem.cap, "tau": float(problem.tau)}))
    else:
        console = Console(highlight=False)
        console.print(comparison_table(rows))
        console.print(footnote(problem), soft_wrap=True)
    if args.plot:
        plot_comparison(rows, 1 + float(problem.tau), args.plot)
    return OK


def compare(problem: Problem) -> list[dict[str, Any]]:
    """Run every policy; a row of one that cannot run says why.

    From intervals to a ring nearly everything moves. The last row is what consistent hashing costs
    when the ring was there before: the mean of a hundred rings.
    """
    rows = [_row(problem, policy) for policy in POLICIES]
    if problem.workload.tasks <= RING_TASKS_MAX:
        rows.append(_ring_row(problem))
    return rows


def _row(problem: Problem, policy: str) -> dict[str, Any]:
    try:
        found = plan(problem, policy)
        seconds = median_s(lambda: plan(problem, policy), budget_s=0.05)
    except InfeasibleError as error:
        return _empty(policy, error.why)
    except (InputError, TooLargeError) as error:
        return _empty(policy, str(error))
    return _facts(policy, [found]) | {"optimal": found.optimal, "time_us": seconds * 1e6}


def _ring_row(problem: Problem) -> dict[str, Any]:
    from meander.planning.rivals.hashing import ring_history

    before = max(1, len(problem.current.nodes))
    plans = ring_history(problem.workload, (before, problem.nodes), str(problem.tau))
    return _facts(RING, plans)


def _facts(policy: str, plans: list[Plan]) -> dict[str, Any]:
    """Describe one plan, or the mean of several."""
    mean = statistics.fmean if len(plans) > 1 else lambda values: next(iter(values))
    return {
        "policy": policy,
        "cost": mean(p.cost for p in plans),
        "cost_share": mean(p.cost_share for p in plans),
        "max_load": mean(p.max_load for p in plans),
        "imbalance": mean(p.imbalance for p in plans),
        "within_caps": all(p.within_caps for p in plans),
        "optimal": False,
        "time_us": None,
        "why": None,
    }


def _empty(policy: str, why: str) -> dict[str, Any]:
    keys = ("cost", "cost_share", "max_load", "imbalance", "within_caps", "optimal", "time_us")
    return {"policy": policy, **dict.fromkeys(keys), "why": why}


def comparison_table(rows: list[dict[str, Any]]) -> Table:
    """Put the rows side by side."""
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for column in ("cost", "of state", "max load", "imbalance", "tau met", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        if row["cost"] is None:
            table.add_row(row["policy"], "–", "–", "–", "–", "–", "–")
            continue
        time = "–" if row["time_us"] is None else readable_time(row["time_us"])
        table.add_row(
            row["policy"], amount(round(row["cost"])), f"{row['cost_share']:.1%}",
            amount(round(row["max_load"])), f"{row['imbalance']:.2f}",
            "yes" if row["within_caps"] else "no", time,
        )  # fmt: skip
    for row in rows:
        if row["why"]:
            table.caption = f"{table.caption or ''}\n{row['policy']}: {row['why']}".strip()
            table.caption_justify = "left"
    return table


def footnote(problem: Problem) -> str:
    """Explain the columns that need it."""
    return (
        f"cap {amount(problem.cap)} work per node at tau {float(problem.tau):g}; "
        "imbalance: the busiest node's work over the mean. From intervals to a ring nearly "
        f"everything moves; '{RING}' is the mean of 100 rings of as many nodes."
    )


def readable_time(microseconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> readable_time(12.3), readable_time(45_600), readable_time(7_890_000)
    ('12 µs', '45.6 ms', '7.89 s')
    """
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    if microseconds < 10**6:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 10**6:.2f} s"
