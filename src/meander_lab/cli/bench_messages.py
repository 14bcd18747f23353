"""`meander bench messages`: what a message costs, beside a bare Flight stream of the same bytes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say

KINDS = ("feeder", "nodes", "server", "driver")
QUICK: dict[str, Any] = {"nodes": (4,), "rates": (1_000, 20_000), "seconds": 3.0, "closed": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench messages`."""
    for name, default, text in (
        ("nodes", "1,4,10", "numbers of nodes"),
        ("rates", "1000,20000,200000", "rows a second, in multiples of 100"),
        ("tasks", "64,4096", "numbers of tasks"),
    ):
        parser.add_argument(
            f"--{name}", type=positives, metavar="N,…", help=f"{text} (default: {default})"
        )
    parser.add_argument("--seconds", type=float, help="measured of each row (default: 5)")
    parser.add_argument(
        "--no-closed",
        action="store_const",
        const=False,
        dest="closed",
        help="not also as fast as it takes",
    )
    parser.add_argument(
        "--quick", action="store_true", help="4 nodes, two rates, 3 seconds, no closed loop"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def positives(text: str) -> tuple[int, ...]:
    """Read whole numbers of at least 1, with commas between them.

    >>> positives("1,4,10")
    (1, 4, 10)
    """
    return tuple(positive(part) for part in text.split(","))


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.messages import MessagesSetting, table

    given = {
        name: value
        for name in ("nodes", "rates", "tasks", "seconds", "closed")
        if (value := getattr(args, name)) is not None
    }
    found = table(MessagesSetting(**{**(QUICK if args.quick else {}), **given}), say)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    return OK if found["exact"] else INEXACT


def show(found: dict[str, Any]) -> None:
    """Print the rows, where their cores go, and what many tasks cost."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)

    def print_table(title: str, heads: str, cells: Callable[[dict[str, Any]], list[str]]) -> None:
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for head in ("nodes", "rows/s", "tasks", *heads.split("|")):
            table.add_column(head, justify="right")
        for row in found["rows"]:
            table.add_row(
                f"{row['nodes']}", f"{row['rate']:,}", f"{row['tasks']:,}", *cells(row)
            )  # fmt: skip
        console.print(table)

    seconds = f"{found['seconds']:g} s a row"
    title = f"word count, 100 batches a second, {seconds}; latencies in ms"
    print_table(title, "cores|p50|p99|max|µs a message|bare cores|bare p50|exact", _figures)
    print_table("\nwhere the cores go", f"{'|'.join(KINDS)}|at rest|over bare", _where)
    for line in remarks(found):
        console.print(line, soft_wrap=True)


def _figures(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['cores']:.2f}", *(f"{row[f'{name}_ms']:.1f}" for name in ("p50", "p99", "max")),
        f"{row['us_per_message']:.0f}", f"{row['bare_cores']:.3f}", f"{row['bare_p50_ms']:.2f}",
        "yes" if row["exact"] else "NO",
    ]  # fmt: skip


def _where(row: dict[str, Any]) -> list[str]:
    over = row["over_bare"]
    cores = [row[f"{kind}_cores"] for kind in (*KINDS, "idle")]
    return [*(f"{each:.3f}" for each in cores), "–" if over is None else f"{over:.1f}×"]


def remarks(found: dict[str, Any]) -> Iterator[str]:
    """Say what many tasks cost, and whether the counts are right."""
    for row in found["closed"]:
        yield (
            f"as fast as it takes, {row['nodes']} nodes, {row['tasks']:,} tasks: "
            f"{row['rows_s']:,.0f} rows a second"
        )
    for key, text in {
        "m_4096_over_64": "cores",
        "m_4096_over_64_p50": "p50",
        "m_4096_over_64_p99": "p99",
        "m_4096_over_64_rows_s": "rows a second, as fast as it takes",
    }.items():
        if found.get(key) is not None:
            yield f"4,096 tasks over 64, {text}: {found[key]:.2f}×"
    yield "every count right" if found["exact"] else "SOME COUNTS ARE WRONG"
