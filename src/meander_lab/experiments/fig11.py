"""Figure 11: mean response time per interval around a migration from 10 to 8 nodes in the 7th.

restart       the paper's baseline: all nodes write their state, end, start again and read
live          the cheapest plan, all moves at once
live-budget   the same plan in rounds that keep a pause budget
storm-live    Storm's plan, carried out live: tells mechanism and plan apart
storm-budget  the same in rounds that keep the budget

On links (`fig11-links`) nodes are on hosts whose links pass so much and no more.
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
        {"application": application, "mode": mode, "repeat": repeat, **link}
        for repeat in range(wanted.repeats)
        for link in links(wanted)
        for application in wanted.applications
        for mode in wanted.modes
    ]


def links(wanted: Parameters) -> list[Cell]:
    """Give what a cell says of its link, for every rate that is wanted; nothing without hosts."""
    return [{"link_mbit": rate} for rate in wanted.get("links_mbit", ())] or [{}]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Let one stream flow, and give a row for every interval."""
    seconds = wanted.interval_s * wanted.intervals
    stream = stream_of(
        cell["application"], ground, seconds, words_s=wanted.rate_words_s,
        tweets_s=wanted.rate_tweets_s, window_s=wanted.window_s, repeat=cell["repeat"],
    )  # fmt: skip
    words = cell["application"] == "word-count"
    where = LiveDeployment(
        wanted.nodes, wanted.tasks, fill_mb=wanted.state_mb if words else 0.0,
        link_mbit=cell.get("link_mbit"),
    )  # fmt: skip
    at_s = (wanted.migrate_in - 1) * wanted.interval_s
    found = run(stream, where, [migration(cell["mode"], at_s, wanted)])
    (facts,) = found.migrations
    told = {key: facts.get(key) for key in ("seconds", "bytes_moved", "rounds", "pause_ms")}
    told |= {"moved": len(facts["moved"]), "exact": found.exact, "state_bytes": found.state_bytes}
    told["interval_s"] = wanted.interval_s
    told["worst_ms"] = response(found.between(at_s, float("inf")))["max_ms"]
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
        at_s, wanted.to, policy="storm" if mode.startswith("storm") else "ssm",
        pause_ms=wanted.pause_ms if mode.endswith("budget") else None,
    )  # fmt: skip
