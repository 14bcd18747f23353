"""`meander bench routing`: the paper's claim of Section 4.1, put to the test.

The paper says that intervals route faster than an arbitrary map from tasks to nodes, because few
intervals fit into the processor's cache and a map of all tasks may not. Both are compiled, both
read the same random stream. A lookup by map is one memory access; a search in the bounds of n
intervals is log₂ n steps in the cache.
"""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from meander.cli.main import OK, say
from meander_lab.bench.routing import measure

SIZES = ((64, 10), (1024, 64), (10_000, 256), (100_000, 1000), (1_000_000, 1000))
"""Tasks and nodes, as in `bench plan`."""
ROWS = 1 << 22
ROWS_QUICK = 1 << 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench routing`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a short stream: seconds, less exact")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    stream, budget_s = (ROWS_QUICK, 0.02) if args.quick else (ROWS, 0.3)
    rows = []
    for m, n in SIZES:
        say(f"routing over {m} tasks …")
        rows.append(measure(m, n, stream, budget_s))
    if args.json:
        print(json.dumps({"rows": rows, "unit": "rows/s", "stream_rows": stream}))
        return OK
    show(rows)
    return OK


def show(rows: list[dict[str, float]]) -> None:
    """Print a table and what it says of the claim."""
    table = Table(
        box=None,
        pad_edge=False,
        collapse_padding=True,
        title="million rows a second",
        title_justify="left",
    )
    for column in (
        "tasks", "nodes", "KiB", "map", "intervals", "ratio",
        "hash+map", "hash+intervals", "ratio",
    ):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row['m']:,}", f"{row['n']:,}", f"{row['map_bytes'] / 1024:,.1f}",
            f"{row['map_rows_s'] / 1e6:.0f}", f"{row['intervals_rows_s'] / 1e6:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['hash_map_rows_s'] / 1e6:.0f}", f"{row['hash_intervals_rows_s'] / 1e6:.0f}",
            f"{row['hash_ratio']:.2f}",
        )  # fmt: skip
    console = Console(highlight=False)
    console.print(table)
    faster = [f"{row['m']:,}" for row in rows if row["ratio"] > 1]
    console.print(
        f"intervals are faster at m = {', '.join(faster)}" if faster
        else "the map is faster at every size: the paper's claim does not hold on this machine"
    )  # fmt: skip
