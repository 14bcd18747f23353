"""`meander bench nexmark`: NexMark's queries against Structured Streaming."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.errors import InputError

QUICK: dict[str, Any] = {
    "files": 4, "events_per_file": 20_000, "warm_files": 2, "rounds": 1, "checked_events": 20_000,
    "checked_rate": 500, "tasks": 8, "seconds": 4.0, "nodes": 2, "to": 3,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench nexmark`."""
    parser.add_argument("--query", default="", help="some of them, as q3,q7 (default: all)")
    parser.add_argument(
        "--files", type=positive, help="of events, the first four to warm up (default: 12)"
    )
    parser.add_argument(
        "--events", dest="events_per_file", type=positive, help="in a file (default: 250,000)"
    )
    parser.add_argument("--rounds", type=positive, help="of both sides in turn (default: 3)")
    parser.add_argument("--tasks", type=positive, help="of each operator of ours (default: 32)")
    parser.add_argument("--nodes", type=positive, help="before the rescale (default: 4)")
    parser.add_argument("--to", type=positive, help="after it (default: 6)")
    parser.add_argument(
        "--rate", dest="paced_rate", type=positive,
        help="events a second while it is rescaled (default: those that keep the processors 60 %% "
        "busy)",
    )  # fmt: skip
    parser.add_argument(
        "--latency", dest="latency_only", action="store_true",
        help="only how long rows take while it is rescaled, without Spark",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.nexmark import NexmarkSetting, bench
    from meander_lab.nexmark.queries import QUERIES

    names = tuple(args.query.split(",")) if args.query else tuple(QUERIES)
    for name in names:
        if name not in QUERIES:
            raise InputError(f"no query {name!r}: there are {', '.join(QUERIES)}")
    sizes = dict(QUICK) if args.quick else {}
    for name in ("files", "events_per_file", "rounds", "tasks", "nodes", "to", "paced_rate"):
        if (value := getattr(args, name)) is not None:
            sizes[name] = value
    setting = NexmarkSetting(queries=names, latency_only=args.latency_only, **sizes)
    if setting.files <= setting.warm_files:
        raise InputError(f"--files is more than the {setting.warm_files} that warm up")
    found = bench(setting, say)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    return OK if found["equal"] else INEXACT


def show(found: dict[str, Any]) -> None:
    """Print a line for each query."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(highlight=False), Table(box=None, pad_edge=False)
    heads = (
        "",
        "events/s",
        "Spark",
        "ratio",
        "equal",
        "p99 before",
        "p99 during",
        "most during, ms",
    )
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    for query in found["queries"]:
        spark_side = _number(query["spark_events_s"]) or (
            "not streamed" if query["events_s"] else ""
        )
        table.add_row(
            query["query"], _number(query["events_s"]), spark_side, _number(query["ratio"], ".1f", "×"),
            {True: "yes", False: "NO", None: ""}[query["equal"]],
            *(_number(query.get(f"{what}_ms")) for what in ("p99_before", "p99_during", "max_during")),
        )  # fmt: skip
    console.print(table)
    for query in found["queries"]:
        if query["error"]:
            console.print(f"{query['query']} failed: {query['error']}")
    if found["ratio"] is not None:
        console.print(f"median {found['ratio']:.1f}×, least {found['ratio_min']:.1f}×")


def _number(value: float | None, form: str = ",.0f", unit: str = "") -> str:
    """Write a number, or nothing.

    >>> _number(1234.5), _number(2.04, ".1f", "×"), _number(None)
    ('1,234', '2.0×', '')
    """
    return "" if value is None else f"{value:{form}}{unit}"
