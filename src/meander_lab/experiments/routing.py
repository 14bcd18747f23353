"""Section 4.1: do intervals route faster than a map from tasks to nodes? As `meander bench routing`."""

from __future__ import annotations

from meander_lab.bench.routing import measure as routed
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [{"tasks": m, "nodes": n} for m, n in zip(wanted.tasks, wanted.nodes, strict=True)]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Route one stream both ways."""
    found = routed(cell["tasks"], cell["nodes"], int(wanted.rows), wanted.seconds)
    kept = ("map_rows_s", "intervals_rows_s", "ratio", "map_bytes", "intervals_bytes")
    return [{key: found[key] for key in kept}]
