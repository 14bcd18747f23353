"""Figure 11: mean response time per interval around a migration from 10 to 8 nodes in the 7th.

restart       the paper's baseline: all nodes write their state, end, start again and read
live          the cheapest plan, all moves at once
live-budget   the same plan in rounds that keep a pause budget
storm-live    Storm's plan, carried out live: tells mechanism and plan apart
"""

from __future__ import annotations

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import LiveDeployment, LiveMigration, response, run
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.stream import stream_of
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"application": application, "mode": mode, "repeat": repeat}
        for repeat in range(wanted.repeats)
        for application in wanted.applications
        for mode in wanted.modes
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Let one stream flow, and give a row for every interval."""
    seconds = wanted.interval_s * wanted.intervals
    stream = stream_of(
        cell["application"], ground, seconds, words_s=wanted.rate_words_s,
        tweets_s=wanted.rate_tweets_s, window_s=wanted.window_s,
    )  # fmt: skip
    words = cell["application"] == "word-count"
    where = LiveDeployment(wanted.nodes, wanted.tasks, fill_mb=wanted.state_mb if words else 0.0)
    at_s = (wanted.migrate_in - 1) * wanted.interval_s
    found = run(stream, where, [migration(cell["mode"], at_s, wanted)])
    (facts,) = found.migrations
    told = {key: facts.get(key) for key in ("seconds", "bytes_moved", "rounds", "pause_ms")}
    told |= {"moved": len(facts["moved"]), "exact": found.exact, "state_bytes": found.state_bytes}
    told["interval_s"] = wanted.interval_s
    rows = []
    for k in range(wanted.intervals):
        seen = found.between(k * wanted.interval_s, (k + 1) * wanted.interval_s)
        migrating = k + 1 == wanted.migrate_in
        rows.append({"interval": k + 1, "migrating": migrating, **response(seen), **told})
    return rows


def migration(mode: str, at_s: float, wanted: Parameters) -> LiveMigration:
    """Give what a mode does."""
    if mode == "restart":
        return LiveMigration(at_s, wanted.to, mode="restart")
    return LiveMigration(
        at_s, wanted.to, policy="storm" if mode == "storm-live" else "ssm",
        pause_ms=wanted.pause_ms if mode == "live-budget" else None,
    )  # fmt: skip
