"""`meander bench skew`: rows a second with one key as half of the stream, over uniform keys."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say

QUICK = {"rows": 400_000, "pairs": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench skew`."""
    for name, text in (
        ("nodes", "nodes (default: 4)"),
        ("tasks", "partitions (default: 64)"),
        ("keys", "different keys (default: 100,000)"),
        ("rows", "of a run (default: 10,000,000)"),
        ("pairs", "runs of each stream (default: 8)"),
    ):
        parser.add_argument(f"--{name}", type=positive, help=text)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.skew import SkewSetting, compare

    given = {
        name: value
        for name in ("nodes", "tasks", "keys", "rows", "pairs")
        if (value := getattr(args, name)) is not None
    }
    found = compare(SkewSetting(**{**(QUICK if args.quick else {}), **given}), say)
    print(to_line(found) if args.json else "\n".join(lines(found)))
    return OK if found["equal"] else INEXACT


def lines(found: dict[str, Any]) -> list[str]:
    """Say it in words."""
    rates = {
        f"uniform, {found['keys']:,} keys": found["uniform_rows_s"],
        "one key is half of it": found["skewed_rows_s"],
    }
    return [
        f"word count, {found['nodes']} nodes, {found['rows']:,} rows a run, {found['pairs']} pairs",
        *(f"  {name:<26}{rate:>14,.0f} rows a second" for name, rate in rates.items()),
        f"  {'skewed over uniform':<26}{found['share']:>14.3f}",
        "counts equal a plain count" if found["equal"] else "COUNTS DIFFER from a plain count",
    ]
