"""Beyond: the trade-off between all at once and one task at a time.

A limit is `tasks:K`, `bytes:MB` or `pause:MS` of one round, or `none`.
"""

from __future__ import annotations

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import LiveMigration
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.state import WARM_SHARE, one_migration
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [{"limit": x, "repeat": r} for r in range(wanted.repeats) for x in wanted.limits]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Migrate once, in rounds of this size."""
    kind, _, amount = cell["limit"].partition(":")
    step = LiveMigration(
        WARM_SHARE * wanted.seconds, wanted.to,
        tasks_max=int(amount) if kind == "tasks" else None,
        bytes_max=int(float(amount) * 2**20) if kind == "bytes" else None,
        pause_ms=float(amount) if kind == "pause" else None,
    )  # fmt: skip
    row = one_migration(step, wanted.state_mb, wanted, ground)
    return [{"kind": kind, "amount": float(amount) if amount else None, **row}]
