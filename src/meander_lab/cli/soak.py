"""`meander soak`: rescales every few seconds for a long time; what has grown?"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from meander.cli.main import OK
from meander.errors import InputError

NOT_STEADY = 1
TITLES = {
    "driver_mb": "memory of the driver, MiB",
    "server_mb": "memory of the state server, MiB",
    "nodes_mb": "memory of the nodes, MiB",
    "handles": "open handles",
    "threads": "threads",
    "files": "temporary and checkpoint files",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument(
        "--every", type=float, default=1.5, metavar="S", help="seconds between rescales"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Carry it out; exit code 1 if something has grown or a count is wrong."""
    from meander_lab.chaos.soak import soak

    if not 0 < args.minutes <= 10_000 or not 0 <= args.every <= 3600:
        raise InputError("--minutes must be above 0, and --every from 0 to 3600")
    began = time.monotonic()

    def say(text: str) -> None:
        if not args.json:
            print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    report = soak(args.minutes * 60, args.every, say)
    if args.json:
        print(json.dumps(report))
    else:
        _show(report)
    return OK if report["steady"] and report["exact"] else NOT_STEADY


def _show(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    counts = "every count is right" if report["exact"] else "WRONG COUNTS"
    did = f"{report['rescales']} rescales in {report['minutes']} min"
    title = f"{did}, {report['rows']:,} rows, {counts}"
    table = Table(title=title)
    table.add_column("")
    for name in ("beginning", "end", "grown"):
        table.add_column(name, justify="right")
    for name, text in TITLES.items():
        mark = "yes" if name in report["grown"] else ""
        table.add_row(text, f"{report['begin'][name]:g}", f"{report['end'][name]:g}", mark)
    Console().print(table)
