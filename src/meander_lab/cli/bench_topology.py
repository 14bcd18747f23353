"""`meander bench topology`: several operators moved together, against one after the other."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK, say

QUICK: dict[str, Any] = {
    "nodes": 3, "fewer": 2, "tasks": 6, "events": 50_000, "rate": 5_000, "rounds": 1,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench topology`."""
    parser.add_argument("--nodes", type=positive, help="that three operators share (default: 10)")
    parser.add_argument("--fewer", type=positive, help="to go down to, and back (default: 7)")
    parser.add_argument("--tasks", type=positive, help="of each operator (default: 40)")
    parser.add_argument("--events", type=positive, help="that make the state (default: 1,500,000)")
    parser.add_argument("--rate", type=positive, help="events a second meanwhile (default: 20,000)")
    parser.add_argument("--rounds", type=positive, help="of both ways in turn (default: 3)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.topology import TopologySetting, bench

    sizes = dict(QUICK) if args.quick else {}
    for name in ("nodes", "fewer", "tasks", "events", "rate", "rounds"):
        if (value := getattr(args, name)) is not None:
            sizes[name] = value
    found = bench(TopologySetting(**sizes), say)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    return OK


def show(found: dict[str, Any]) -> None:
    """Print a line for each rescale."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(highlight=False), Table(box=None, pad_edge=False)
    for head in (
        "",
        "seconds",
        "one by one",
        "ratio",
        "MB",
        "one by one",
        "most, ms",
        "one by one",
    ):
        table.add_column(head, justify="right" if head else "left")
    for name, move in found["moves"].items():
        table.add_row(
            name, f"{move['seconds_together']:.1f}", f"{move['seconds_one_by_one']:.1f}",
            f"{move['duration_ratio']:.2f}", f"{move['bytes_together'] / 1e6:.1f}",
            f"{move['bytes_one_by_one'] / 1e6:.1f}", f"{move['max_ms_together']:.0f}",
            f"{move['max_ms_one_by_one']:.0f}",
        )  # fmt: skip
    console.print(table)
