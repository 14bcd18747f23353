"""`meander bench patterns`: frequent patterns as a topology, over patterns that the feeder makes."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say

QUICK = {"texts": 6_000, "pairs": 1, "tasks": 8}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench patterns`."""
    for name, text in (
        ("nodes", "nodes (default: 2)"),
        ("tasks", "partitions of the Detector (default: 32)"),
        ("texts", "that come in a run (default: 60,000)"),
        ("pairs", "runs of each side (default: 4)"),
    ):
        parser.add_argument(f"--{name}", type=positive, help=text)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.pattern_stages import StagesSetting, compare

    given = {
        name: value
        for name in ("nodes", "tasks", "texts", "pairs")
        if (value := getattr(args, name)) is not None
    }
    found = compare(StagesSetting(**{**(QUICK if args.quick else {}), **given}), say)
    print(to_line(found) if args.json else "\n".join(lines(found)))
    return OK if found["equal"] else INEXACT


def lines(found: dict[str, Any]) -> list[str]:
    """Say it in words."""
    rates = {
        "patterns made in the feeder": found["feeder_texts_s"],
        "generator, detector, reporter": found["topology_texts_s"],
    }
    right = f"both report the {found['reported']:,} patterns that a plain program finds"
    return [
        f"{found['nodes']} nodes, {found['texts']:,} texts that come or leave, {found['pairs']} pairs",
        *(f"  {name:<32}{rate:>12,.0f} texts a second" for name, rate in rates.items()),
        f"  {'topology over feeder':<32}{found['share']:>12.3f}",
        right if found["equal"] else "REPORTS DIFFER from those of a plain program",
    ]
