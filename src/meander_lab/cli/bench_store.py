"""`meander bench store`: what a commit costs where checkpoints are, and drivers that race for it."""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.runtime.store.filesystem import Files

PARTS = "commit", "records", "manifest", "read", "claim"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench store`."""
    parser.add_argument(
        "--where", metavar="DIR",
        help="a path or an address such as s3://bucket/folder; a folder of its own is made there "
        "(default: a local disk, and an S3 server that is started on loopback)",
    )  # fmt: skip
    parser.add_argument("--commits", type=positive, default=330, help="default: 330")
    parser.add_argument(
        "--record-kb", type=positive, default=64, help="what a node writes each time (default: 64)"
    )
    parser.add_argument(
        "--races", type=positive, metavar="ROUNDS",
        help="let two drivers race for the checkpoint so often (default: not at all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.store import Race, commits

    rows, right = [], True
    with ExitStack() as stack:
        for name, opened in stack.enter_context(_places(args.where)).items():
            say(f"{name} …")
            row = {
                "where": name,
                **commits(opened("commits")(), args.commits, args.record_kb * 1024),
            }
            if args.races:
                row["race"] = race = Race(opened("race"), args.races).run()
                right = right and not race["granted_twice"] and not race["manifests_lost"]
            rows.append(row)
    told = {"rows": rows, "commits": args.commits, "record_kb": args.record_kb}
    print(to_line(told) if args.json else "\n".join(lines(rows)))
    return OK if right else INEXACT


@contextmanager
def _places(where: str | None) -> Iterator[dict[str, Callable[[str], Callable[[], Files]]]]:
    """Give, by name, what opens a folder of its own again and again."""
    from meander.runtime.store.bucket import open_bucket
    from meander.runtime.store.filesystem import LocalFiles, ObjectFiles, open_files
    from meander_lab.servers import s3

    if where is not None:
        own, (path, mark, query) = f"bench-{secrets.token_hex(4)}", where.partition("?")
        yield {where: lambda name: lambda: open_files(f"{path}/{own}/{name}{mark}{query}")}
        return
    with s3.server() as server, tempfile.TemporaryDirectory(prefix="meander-bench-") as scratch:
        server.bucket("bench")
        os.environ.update(server.environment)

        def on_s3(name: str, conditional: bool) -> Files:
            where = server.address(f"bench/{name}-{conditional}")
            return ObjectFiles(open_bucket(where, conditional=conditional), where)

        yield {
            "disk": lambda name: lambda: LocalFiles(f"{scratch}/{name}"),
            "s3": lambda name: lambda: on_s3(name, True),
            "s3 without conditions": lambda name: lambda: on_s3(name, False),
        }


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Say it in a table: milliseconds, and steps (requests)."""
    yield f"{'':24}" + "".join(f"{part:>24}" for part in PARTS)
    for row in rows:
        cells = (
            f"{row[p]['p50_ms']:>9.2f} {row[p]['p99_ms']:>7.2f} ms {row[p]['steps']:>3.0f}"
            for p in PARTS
        )
        yield f"{row['where']:24}" + "".join(f"{cell:>24}" for cell in cells)
    yield "p50 and p99 in ms, steps (a step is a request to an object store)"
    for row in rows:
        if "race" in row:
            yield f"{row['where']}: " + ", ".join(f"{k} {v:,}" for k, v in row["race"].items())
