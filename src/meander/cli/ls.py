"""`meander ls`: the deployments of this user on this machine."""

from __future__ import annotations

import argparse
import time
from typing import Any

from meander.cli.answers import to_line
from meander.cli.main import OK
from meander.cli.outside import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander ls`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.epilog = (
        "A deployment is listed by a file that only its user can read, in $MEANDER_RUNS, "
        "$XDG_RUNTIME_DIR/meander or ~/.local/state/meander."
    )


def run(args: argparse.Namespace) -> int:
    """List them."""
    from meander.runtime.driver.runs import listed, looked_in

    rows: list[dict[str, Any]] = [
        {"address": it.address, "operator": it.operator, "run": it.run, "pid": it.pid,
         "minutes": (time.time() - it.started_s) / 60, "dashboard": it.dashboard.partition("?")[0]}
        for it in listed()
    ]  # fmt: skip
    if args.json:
        for row in rows:
            print(to_line(row))
    elif rows:
        head = ("address", "operator", "run", "pid", "since", "dashboard")
        texts = ({**row, "since": f"{row['minutes']:.0f} min"} for row in rows)
        print_table(
            head, ([str(row[name]) for name in head] for row in texts), {*head} - {"pid", "since"}
        )
    else:
        print(f"nothing runs here for this user ({looked_in()})")
    return OK
