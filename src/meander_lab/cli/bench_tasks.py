"""`meander bench tasks`: what a checkpoint costs by the number of tasks."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import folder, positive
from meander.cli.main import OK, say

TASKS = 64, 1024, 4096
PARTS = "start", "full", "change", "restore"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench tasks`."""
    parser.add_argument(
        "--tasks", type=positive, nargs="+", default=TASKS, metavar="M",
        help="numbers of tasks; the first is what others are compared with (default: 64 1024 4096)",
    )  # fmt: skip
    parser.add_argument("--keys", type=positive, default=1_000_000, help="default: 1,000,000")
    parser.add_argument(
        "--changed", type=positive, default=100_000, metavar="KEYS",
        help="keys that change between two checkpoints (default: 100,000)",
    )  # fmt: skip
    parser.add_argument("--changes", type=positive, default=24, help="checkpoints (default: 24)")
    parser.add_argument(
        "--where", type=folder, metavar="DIR", help="a folder on the disk to write to"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.many_tasks import TaskLoad, measure

    load, found = TaskLoad(args.keys, min(args.keys, args.changed), args.changes), []
    for tasks in args.tasks:
        say(f"{tasks:,} tasks …")
        with tempfile.TemporaryDirectory(dir=args.where, prefix="meander-bench-") as scratch:
            found.append({"tasks": tasks, **measure(tasks, Path(scratch, "checkpoint"), load)})
    told = {"rows": found, "keys": load.keys, "changed": load.changed}
    print(to_line(told) if args.json else "\n".join(lines(found)))
    return OK


def lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """Say it in a table: milliseconds of the processor, and times the first row."""
    yield f"{'tasks':>8}" + "".join(f"{what:>20}" for what in PARTS)
    for row in found:
        cells = (
            f"{row[what]['ms']:>10.0f} ms {row[what]['ms'] / found[0][what]['ms']:>5.2f}×"
            for what in PARTS
        )
        yield f"{row['tasks']:>8,}" + "".join(cells)
