"""`meander checkpoint`: look into a checkpoint: list it, check it, show a task."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from meander.cli.answers import to_line
from meander.cli.main import OK, WRONG, complain
from meander.errors import MeanderError

if TYPE_CHECKING:
    from meander.runtime.clients.checkpoint_reader import CheckpointReader

BROKEN = 1
"""Exit code when something that the manifest names is missing or damaged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander checkpoint`."""
    rows = parser.add_subparsers(dest="what", metavar="COMMAND", required=True)
    for name, text in (
        ("ls", "manifests, tasks, files, bytes, age"),
        ("verify", "read everything and check it; exit code 1 if something is broken"),
        ("show", "the rows of one task, and how far its feeders are"),
    ):
        row = rows.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        row.add_argument("where", metavar="DIR", help="a path, or a URI such as s3://bucket/folder")
        row.add_argument("--json", action="store_true", help="print one JSON object")
        if name == "show":
            row.add_argument("--task", type=int, required=True, help="which task")
            row.add_argument("--rows", type=int, default=20, help="at most so many (default: 20)")


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    from meander.runtime.clients.checkpoint_reader import CheckpointReader

    try:
        checkpoint = CheckpointReader(args.where)
        return int({"ls": _ls, "verify": _verify, "show": _show}[args.what](checkpoint, args))
    except (MeanderError, OSError) as error:
        complain(str(error))
        return WRONG


def _ls(checkpoint: CheckpointReader, args: argparse.Namespace) -> int:
    from meander.runtime.clients.checkpoint_reader import lines_of

    found = checkpoint.listing()
    print(to_line(found) if args.json else "\n".join(lines_of(found)))
    return OK


def _verify(checkpoint: CheckpointReader, args: argparse.Namespace) -> int:
    faults = checkpoint.verify()
    records = sum(len(kept.chain) for kept in checkpoint.manifest.records.values())
    if args.json:
        items = [fault._asdict() for fault in faults]
        print(to_line({"records": records, "broken": len(faults), "faults": items}))
    else:
        for fault in faults:
            print(f"task {fault.task}: {fault.file}: {fault.why}")
        print(f"{records} records, {len(faults)} broken")
    return BROKEN if faults else OK


def _show(checkpoint: CheckpointReader, args: argparse.Namespace) -> int:
    facts, table = checkpoint.show(args.task)
    count = 0 if table is None else table.num_rows
    shown = [] if table is None else table.slice(0, max(0, args.rows)).to_pylist()
    if args.json:
        print(json.dumps({**facts, "row_count": count, "rows": shown}, default=str))
        return OK
    for feeder, (incarnation, number, offset) in facts["positions"].items():
        print(f"feeder {feeder} ({incarnation}): chunk {number}, source offset {offset}")
    for query, batch in facts["batches"].items():
        print(f"query {query}: batch {batch}")
    for row in shown:
        print("  ".join(f"{name}={value}" for name, value in row.items()))
    print(f"{len(shown)} of {count} rows, {len(facts['records'])} records")
    return OK
