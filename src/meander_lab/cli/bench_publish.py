"""`meander bench publish`: what it costs a driver to tell all nodes of a new table."""

from __future__ import annotations

import argparse
import json

from meander.cli.arguments import positive
from meander.cli.main import OK

PEERS, TASKS, TURNS = 1000, 4096, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench publish`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--peers", type=positive, default=PEERS, help=f"nodes (default {PEERS})")
    parser.add_argument("--tasks", type=positive, default=TASKS, help=f"m (default {TASKS})")
    parser.add_argument("--turns", type=positive, default=TURNS, help=f"tables (default {TURNS})")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.publish import publish

    found = publish(args.peers, args.tasks, args.turns)
    if args.json:
        print(json.dumps(found))
        return OK
    print(
        f"a table of {found['table_bytes']:,} bytes to {found['peers']:,} nodes: "
        f"{found['cpu_s']:.2f} s of the driver's processor time, "
        f"acknowledged by all after {found['wall_s']:.2f} s"
    )
    return OK
