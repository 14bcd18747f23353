"""`meander ls`: the deployments of this user on this machine."""

from __future__ import annotations

import argparse
import time
from typing import Any

from meander.cli.answers import to_line
from meander.cli.main import OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander ls`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.epilog = (
        "A deployment is listed by a file that only its user can read, in $MEANDER_RUNS, "
        "$XDG_RUNTIME_DIR/meander or ~/.local/state/meander."
    )


def run(args: argparse.Namespace) -> int:
    """List them."""
    from rich.console import Console
    from rich.table import Table

    from meander.runtime.driver.runs import listed

    rows: list[dict[str, Any]] = [
        {"address": it.address, "operator": it.operator, "run": it.run, "pid": it.pid,
         "minutes": (time.time() - it.started_s) / 60, "dashboard": it.dashboard.partition("?")[0]}
        for it in listed()
    ]  # fmt: skip
    if args.json:
        for row in rows:
            print(to_line(row))
        return OK
    if not rows:
        print("nothing runs here for this user")
        return OK
    table = Table(box=None, pad_edge=False)
    for name in ("address", "operator", "run", "pid", "since", "dashboard"):
        table.add_column(name, justify="right" if name in ("pid", "since") else "left")
    for row in rows:
        since = f"{row['minutes']:.0f} min"
        table.add_row(row["address"], row["operator"], row["run"], str(row["pid"]), since,
                      row["dashboard"])  # fmt: skip
    Console(highlight=False).print(table)
    return OK
