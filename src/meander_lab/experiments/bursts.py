"""Why Figure 12 has two applications: how the load of their tasks jumps.

The paper explains a difference between word count and frequent patterns by bursts: tweets with a
certain word make its load spike, while most patterns are rare. Weights are fixed in Figure 12, so
it cannot show that. Here the work of every task is counted in pieces of the test's time. A task's
*spike* is its share of a piece over its share of all of them; of every piece the largest is taken.
What mere chance makes of it (as many rows, drawn with fixed shares) stands beside it: fewer rows
spike more.
"""

from __future__ import annotations

import numpy as np

from meander.errors import InputError
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row
from meander_lab.experiments.texts import Longs


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"span": span, "application": application, "piece_h": hours}
        for span in range(wanted.spans)
        for application in wanted.applications
        for hours in wanted.pieces_h
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Count, and draw what chance would do."""
    ground = ground.at_span(cell["span"])
    work = ground.work_by_piece(cell["application"], wanted.tasks, cell["piece_h"])
    work = work[work.sum(axis=1) > 0]
    if len(work) < 2:
        raise InputError(
            f"the test has no two whole pieces of {cell['piece_h']} h: give more tweets"
        )
    share = work.sum(axis=0) / work.sum()
    draw = np.random.default_rng(ground.seed)
    chance = np.array([draw.multinomial(int(n), share) for n in work.sum(axis=1)])
    seen, drawn = spikes(work), spikes(chance)
    return [{
        "pieces": len(work), "rows": float(work.sum(axis=1).mean()),
        "spikes": [round(float(x), 4) for x in seen], "spike": float(seen.mean()),
        "spike_max": float(seen.max()), "chance": float(drawn.mean()),
    }]  # fmt: skip


def spikes(work: Longs) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Give the largest spike of every piece.

    >>> spikes(np.array([[1, 3], [3, 1]])).tolist()
    [1.5, 1.5]
    """
    mean = work.sum(axis=0) / work.sum()
    share = work / work.sum(axis=1, keepdims=True)
    return np.asarray((share / np.maximum(mean, 1e-12)).max(axis=1))
