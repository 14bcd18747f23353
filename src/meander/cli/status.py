"""`meander status`: where a deployment stands."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.main import OK
from meander.cli.outside import add_deployment, ask

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
    from rich.console import Console
    from rich.table import Table

    from meander.show.picture import amount

    console, metrics = Console(highlight=False), told["metrics"]
    latency = metrics["latency"]
    console.print(
        f"{told['operator']}, run {told['run']}: {len(told['nodes'])} nodes, {told['tasks']} tasks, "
        f"epoch {told['epoch']}, policy {told['policy']}\n{metrics['rows']:,} rows, latency p50 "
        f"{latency['p50_ms']:.1f} p99 {latency['p99_ms']:.1f} ms since it began",
        soft_wrap=True,
    )
    migration = told["migration"]
    if migration is not None:
        measured = max((r["measured_s"] for r in migration["rounds"]), default=0.0)
        console.print(
            f"migration {migration['migration']} to {migration['nodes']} nodes: "
            f"{migration['stage']}, {migration['moved']} tasks moved in {len(migration['rounds'])} "
            f"rounds, longest wait {1000 * measured:.0f} ms",
            soft_wrap=True,
        )
    for trouble in (told["failure"], told["store"]):
        if trouble:
            console.print(f"[red]{trouble}[/red]", soft_wrap=True)
    if told["lost tasks"]:
        console.print(f"[red]the states of {len(told['lost tasks'])} tasks are lost[/red]")
    table = Table(box=None, pad_edge=False)
    for name in ("node", "host", "status", "tasks", "rows/s", "state"):
        left = name in ("node", "host", "status")
        table.add_column(name, justify="left" if left else "right")
    for node in told["nodes"]:
        table.add_row(node["node"], node["host"], node["status"], str(node["tasks"]),
                      f"{node['work']:,}", amount(node["bytes"]))  # fmt: skip
    console.print(table)
