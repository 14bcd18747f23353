"""Beyond: how long a migration and its pauses take, from a little state to a lot of it."""

from __future__ import annotations

from meander_lab.experiments.fig11 import migration
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import LiveDeployment, LiveMigration, LiveRun, response, run
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.stream import WordStream
from meander_lab.experiments.tables import Cell, Row

WARM_SHARE = 0.3
"""Of the seconds: what flows before the migration."""


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"state_mb": size, "mode": mode, "repeat": repeat}
        for repeat in range(wanted.repeats)
        for size in wanted.sizes_mb
        for mode in wanted.modes
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Migrate once."""
    step = migration(cell["mode"], WARM_SHARE * wanted.seconds, wanted)
    return [one_migration(step, cell["state_mb"], wanted, ground)]


def one_migration(
    step: LiveMigration, state_mb: float, wanted: Parameters, ground: ExperimentGround
) -> Row:
    """Let words flow, migrate once, and sum up what the rows saw."""
    stream = WordStream(ground, wanted.rate_words_s, wanted.seconds)
    where = LiveDeployment(wanted.nodes, wanted.tasks, fill_mb=state_mb)
    found = run(stream, where, [step])
    return migration_row(found)


def migration_row(found: LiveRun) -> Row:
    """Sum up a run with one migration: what moved, pauses, and response times of rows meanwhile."""
    (facts,) = found.migrations
    during = found.samples.due(facts["began_s"], facts["ended_s"])
    before = found.samples.due(found.start_s, facts["began_s"])
    moved = during.of_tasks(facts["moved"])
    return {
        "seconds": facts["seconds"], "bytes_moved": facts["bytes_moved"],
        "rounds": facts["rounds"], "pause_ms": facts["pause_ms"],
        "predicted_ms": facts.get("predicted_ms"), "moved": len(facts["moved"]),
        "worst_ms": response(during)["max_ms"], "worst_before_ms": response(before)["max_ms"],
        "p50_before_ms": response(before)["p50_ms"], "p99_moved_ms": response(moved)["p99_ms"],
        "mean_ms": response(during)["mean_ms"],
        "state_bytes": found.state_bytes, "exact": found.exact,
    }  # fmt: skip
