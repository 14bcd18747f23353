"""What the tests of the autoscaler share: signals of a small deployment, made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from meander.autoscale import Autoscale, Autoscaler, Decision, Signals

RATE = 1000.0
"""Rows a second that a node takes."""
WORK = np.full(64, 100, np.int64)
SIZES = np.full(64, 1 << 16, np.int64)


def second(at_s: float, rows_s: float, nodes: int, **changes: object) -> Signals:
    """One second in which all that came was taken, evenly."""
    share = np.full(nodes, 1 / nodes)
    taken = np.minimum(rows_s * share, RATE)
    seen = Signals(
        at_s, nodes, rows_s, 0.0, taken, taken / RATE, WORK, SIZES, 1 / nodes,
        node_names=tuple(f"n{i}" for i in range(nodes)),
    )  # fmt: skip
    return replace(seen, **changes)  # type: ignore[arg-type]


def watch(
    autoscaler: Autoscaler,
    loads: Iterable[float],
    nodes: int,
    from_s: float = 0.0,
    **changes: object,
) -> list[Decision]:
    """Let loads come, one a second, to nodes that stay as they are."""
    found = []
    for i, rows_s in enumerate(loads):
        found += autoscaler.observe(second(from_s + i, rows_s, nodes, **changes))
    return found


def made(low: int = 1, high: int = 12, **options: object) -> Autoscaler:
    return Autoscaler(Autoscale((low, high), **options))  # type: ignore[arg-type]
