"""`meander status`: where a deployment stands."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.main import OK
from meander.cli.outside import add_deployment, ask, counted, moved, print_table

FAILED = 1
"""Exit code when the deployment cannot go on, or has lost states."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander status`."""
    add_deployment(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    told = ask(args.deployment, "status")
    if args.json:
        print(to_line(told))
    else:
        show(told)
    return FAILED if told["failure"] or told["lost tasks"] else OK


def show(told: dict[str, Any]) -> None:
    """Print it as people read it."""
    from meander.show.picture import amount

    metrics, latency = told["metrics"], told["metrics"]["latency"]
    print(
        f"{told['operator']}, run {told['run']}: {counted(len(told['nodes']), 'node')}, "
        f"{counted(told['tasks'], 'task')}, epoch {told['epoch']}, policy {told['policy']}"
    )
    print(
        f"{counted(metrics['rows'], 'row')}, latency p50 {latency['p50_ms']:.1f} p99 "
        f"{latency['p99_ms']:.1f} ms since it began"
    )
    migration = told["migration"]
    if migration is not None:
        to = counted(migration["nodes"], "node")
        print(
            f"migration {migration['migration']} to {to}: {migration['stage']}, {moved(migration)}"
        )
    for trouble in (told["failure"], told["store"]):
        if trouble:
            print(f"! {trouble}")
    if told["lost tasks"]:
        print(f"! the states of {counted(len(told['lost tasks']), 'task')} are lost")
    head = ("node", "host", "status", "tasks", "rows/s", "bytes")
    rows = (
        [node["node"], node["host"], node["status"], str(node["tasks"]), f"{node['work']:,}",
         amount(node["bytes"])]
        for node in told["nodes"]
    )  # fmt: skip
    print_table(head, rows, set(head[:3]))
