"""`meander sim --scale`: what one rescale costs, from ten nodes to a thousand."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from meander.cli.main import OK

if TYPE_CHECKING:
    from meander.testing.scale import Growth

SIZES = (
    (10, 1024), (30, 1024), (100, 1024), (100, 4096), (100, 16384), (100, 65536), (300, 16384),
    (1000, 65536),
)  # fmt: skip
"""(nodes, tasks): first nodes grow, then tasks, then both."""


def run(args: argparse.Namespace) -> int:
    """Rescale clusters of growing size by a tenth, each once, without faults."""
    from meander.testing.scale import measure

    found: list[Growth] = []
    for nodes, tasks in SIZES:
        growth = measure(nodes, tasks, nodes + nodes // 10)
        found.append(growth)
        if args.json:
            print(json.dumps(growth._asdict()), flush=True)
    if not args.json:
        Console(highlight=False).print(_table(found))
    return OK


def _table(found: list[Growth]) -> Table:
    table = Table(
        "nodes", "tasks", "moves", "virtual s", "busiest node: messages", "bytes",
        "busiest server: bytes", "master: messages", "bytes", "runs", "table bytes", "real s",
    )  # fmt: skip
    for column in table.columns:
        column.justify = "right"
    for g in found:
        table.add_row(
            f"{g.nodes:,} to {g.target:,}", f"{g.tasks:,}", f"{g.moved:,}", f"{g.virtual_s:.2f}",
            f"{g.node_messages:,}", f"{g.node_bytes:,}", f"{g.server_bytes:,}",
            f"{g.master_messages:,}", f"{g.master_bytes:,}", f"{g.runs:,}", f"{g.table_bytes:,}",
            f"{g.real_s:.1f}",
        )  # fmt: skip
    return table
