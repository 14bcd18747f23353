"""`meander bench table`: the keyed table, or the Detector, against Python dicts on the same rows."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from meander.cli.main import OK

SECONDS = 4.0

RIVALS = {
    "table": "compiled table, from Arrow",
    "dict": "dict, from Arrow",
    "counter": "Counter, from Arrow",
    "dict_strings": "dict, strings made beforehand",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench table`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--patterns", action="store_true", help="frequent patterns in a sliding window, not words"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"how long to measure (default {SECONDS:g})"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    if args.patterns:
        from meander_lab.bench.patterns import detector_over_dict

        found, what = detector_over_dict(args.seconds), "changes of pattern counts"
    else:
        from meander_lab.bench.table import table_over_dict

        found, what = table_over_dict(args.seconds), "Zipf words"
    if args.json:
        print(json.dumps(found))
    else:
        show(found, what)
    return OK


def show(found: dict[str, Any], what: str) -> None:
    """Print the rates side by side."""
    title = f"counting {found['rows']:,} {what}, {found['keys']:,} keys at the end"
    table = Table(title=title)
    table.add_column("who")
    table.add_column("million rows a second of processor time", justify="right")
    table.add_column("table is faster by", justify="right")
    for name, text in RIVALS.items():
        if f"{name}_rows_s" not in found:
            continue
        rate = found[f"{name}_rows_s"]
        ratio = "" if name == "table" else f"{found['table_rows_s'] / rate:.1f}×"
        table.add_row(text, f"{rate / 1e6:.1f}", ratio)
    console = Console()
    console.print(table)
    verdict = "all counts are equal" if found["exact"] else "THE COUNTS DIFFER"
    console.print(f"medians of {found['runs']} runs in turn; {verdict}")
