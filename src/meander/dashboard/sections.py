"""What the page shows, section by section: pure functions of a snapshot, in what JSON has.

A section is sent again only when it has changed, so what changes together stands together. Lists
have limits: with a thousand nodes and 65,536 tasks all sections together have some 200 kB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from meander.dashboard.course import Course
from meander.dashboard.rescales import RescaleHistory
from meander.dashboard.snapshot import Snapshot
from meander.runtime.driver.look import Look, MigrationLook
from meander.runtime.driver.totals import summed_up

BINS_MAX = 1024
"""Bars of the tasks' chart: beyond, neighbours share one, which shows the largest of them."""
MOVING_MAX = 200
"""Tasks under way that are listed."""
EVENTS_SHOWN = 100
FEEDERS_SHOWN = 50

EVENTS = (
    "lost", "stood in", "never came", "operator failed", "state lost", "state at risk",
    "store fails", "store works", "fenced", "aborted", "rolled back",
)  # fmt: skip
"""What stands in the list of losses and recoveries."""

Section = Mapping[str, Any]


def sections(now: Snapshot, course: Course, history: RescaleHistory) -> dict[str, Any]:
    """Make all sections."""
    return {
        "about": about(now),
        "now": figures(now, course),
        "nodes": nodes(now, course),
        "owners": owners(now.look),
        "tasks": tasks(now),
        "curves": course.base(),
        "curve": course.tail(),
        "migration": migration(now.look),
        "rescales": history.shown(),
        "checkpoints": checkpoints(now),
        "events": events(now),
        "feeders": feeders(now),
        "decisions": [dict(item) for item in reversed(now.decisions)],
    }


def about(now: Snapshot) -> Section:
    """Say what is deployed."""
    it = now.deployed
    return {
        "operator": it.operator, "run": it.run, "address": it.address, "policy": it.policy,
        "generation": it.generation, "tau": it.tau, "keys": list(it.keys), "tasks": now.look.tasks,
        "checkpoint": it.checkpoint, "version": it.version, "autoscale": it.autoscale,
    }  # fmt: skip


def figures(now: Snapshot, course: Course) -> Section:
    """Give the numbers at the top; totals are those of `op.metrics()`."""
    look, point, total = now.look, course.now(), now.totals
    active = look.migration is not None and look.migration.active
    return {
        "epoch": look.epoch,
        "rows": total["rows"],
        "waits": total["waits"],
        "reroutes": total["reroutes"],
        "late_rows": total["late_rows"],
        "rows_s": None if point is None else round(point.rows_s, 1),
        "p50_ms": None if point is None else point.p50_ms,
        "p99_ms": None if point is None else point.p99_ms,
        "busy": 0.0 if point is None else round(point.busy, 3),
        "waiting": int(sum(told.get("chunks", 0) for told in now.feeding.values())),
        "full": round(max((t.get("full", 0.0) for t in now.feeding.values()), default=0.0), 3),
        "state_bytes": sum(look.sizes),
        "work": sum(look.work),
        "nodes": sum(1 for node in look.nodes if node.status != "gone"),
        "stage": look.migration.stage if active and look.migration else "steady",
        "coming": len(look.coming),
        "failure": now.failure,
        "lost_tasks": len(now.lost_tasks),
        "store": look.store,
    }


def cap_of(look: Look, tau: float) -> float:
    """Tell how much work a node may have: 1 + τ times the mean."""
    staying = [node for node in look.nodes if node.status != "leaving"]
    return (1 + tau) * sum(look.work) / max(1, len(staying))


def nodes(now: Snapshot, course: Course) -> Section:
    """Give every node with its load, its bytes and what it does."""
    look = now.look
    work, sizes = look.by_node(look.work), look.by_node(look.sizes)
    counts = Counter[str]()
    for name, lb, ub in look.runs:
        counts[name] += ub - lb
    rows = [
        [
            node.name, node.host, node.status, counts.get(node.name, 0), work.get(node.name, 0),
            sizes.get(node.name, 0), round(course.node_rows_s.get(node.name, 0.0), 1),
            round(course.node_busy.get(node.name, 0.0), 3),
        ]
        for node in look.nodes
    ]  # fmt: skip
    return {
        "columns": ["name", "host", "status", "tasks", "work", "bytes", "rows_s", "busy"],
        "rows": rows,
        "cap": cap_of(look, now.deployed.tau),
        "mean": sum(look.work) / max(1, len(look.nodes)),
    }


def owners(look: Look) -> Section:
    """Give the runs of every node, and the tasks whose state is on its way."""
    return {
        "tasks": look.tasks,
        "runs": look.runs,
        "hosts": {node.name: node.host for node in look.nodes},
        "coming": _spans(sorted(look.coming)),
    }


def _spans(tasks: Sequence[int]) -> list[list[int]]:
    """Put neighbours together.

    >>> _spans([1, 2, 3, 7])
    [[1, 4], [7, 8]]
    """
    found: list[list[int]] = []
    for task in tasks:
        if found and found[-1][1] == task:
            found[-1][1] = task + 1
        else:
            found.append([task, task + 1])
    return found


def tasks(now: Snapshot) -> Section:
    """Give load and bytes of tasks as bars, and the heaviest against what a node may have."""
    look = now.look
    width = -(-look.tasks // BINS_MAX)
    heaviest, largest = look.work.index(max(look.work)), look.sizes.index(max(look.sizes))
    return {
        "tasks": look.tasks,
        "width": width,
        "work": _bars(look.work, width),
        "bytes": _bars(look.sizes, width),
        "cap": cap_of(look, now.deployed.tau),
        "heaviest": [heaviest, look.work[heaviest], look.owners[heaviest]],
        "largest": [largest, look.sizes[largest], look.owners[largest]],
    }


def _bars(values: Sequence[int], width: int) -> list[int]:
    """Take the largest of every so many neighbours.

    >>> _bars([1, 5, 2, 3, 4], 2)
    [5, 3, 4]
    """
    if width == 1:
        return list(values)
    return [max(values[at : at + width]) for at in range(0, len(values), width)]


def migration(look: Look) -> Section | None:
    """Tell of the migration under way, task by task and round by round; None: there was none."""
    found = look.migration
    if found is None:
        return None
    return {
        "number": found.number,
        "stage": found.stage,
        "active": found.active,
        "from": found.nodes_before,
        "to": len(found.target.nodes),
        "moved": found.moved,
        "left": _left(look, found) if found.active else 0,
        "budget_ms": None if found.budget_s is None else 1000 * found.budget_s,
        "rounds": [
            [
                r["tasks"],
                r["bytes"],
                r["predicted_s"],
                r["measured_s"],
                r["duration_s"],
                r["copy_s"],
            ]
            for r in found.rounds
        ],
        "round": {
            "tasks": found.round_count,
            "left": len(found.round_tasks),
            "bytes": found.round_bytes,
            "predicted_s": found.predicted_s,
            "measured_s": found.measured_s,
            "copying": found.copying,
            "moving": [
                [task, look.coming.get(task, ""), look.owners[task], look.sizes[task]]
                for task in sorted(found.round_tasks)[:MOVING_MAX]
            ],
        },
        "seconds": round(found.seconds, 1),
    }


def _left(look: Look, found: MigrationLook) -> int:
    """Count the tasks that are not where they shall be."""
    names, target = found.target.nodes, found.target.owners().tolist()
    return sum(
        1
        for task, owner in enumerate(look.owners)
        if owner != names[target[task]] or task in look.coming
    )


def checkpoints(now: Snapshot) -> Section | None:
    """Tell of what is durable; None: there are no checkpoints."""
    look = now.look
    if not look.checkpointing:
        return None
    told = summed_up(now.totals["checkpoint"])
    return {
        "where": now.deployed.checkpoint,
        "saved_at_s": None if look.saved_s is None else round(now.at_s - look.saved_s, 1),
        "saved": look.saved,
        "trouble": look.store,
        "snapshots": told["snapshots"], "changes": told["deltas"], "files": told["files"],
        "bytes": told["bytes"],
        "pause_ms": told["pause"], "durable_ms": told["durable"],
    }  # fmt: skip


def events(now: Snapshot) -> list[list[Any]]:
    """List losses, recoveries and what else nobody asked for, the newest first."""
    found = [
        [round(told.at_s, 1), told.what, _said(told.what, told.facts)]
        for told in now.told
        if told.what in EVENTS
    ]
    return found[: -EVENTS_SHOWN - 1 : -1]


def _said(what: str, facts: Mapping[str, Any]) -> str:
    """Say in a few words what happened."""
    if what == "lost":
        return f"{facts['node']} with {facts['tasks']} tasks: another is started in its place"
    if what == "stood in":
        return f"{facts['nodes']} nodes took the {facts['tasks']} tasks of {facts['node']}"
    if what == "never came":
        return f"{facts['node']} did not register within {facts['after_s']:.0f} s"
    if what == "state lost":
        return (
            f"of tasks {sorted(facts['tasks'])[:20]}: their node died and there are no checkpoints"
        )
    if "migration" in facts:
        return f"migration {facts['migration']}, to {facts.get('nodes')} nodes"
    return ", ".join(
        f"{name} {value}" for name, value in facts.items() if value and name != "trace"
    )


def feeders(now: Snapshot) -> list[list[Any]]:
    """Tell of each feeder what it keeps: chunks, bytes, and how full that is; the fullest first."""
    rows: list[list[Any]] = [
        [name, told.get("chunks", 0), told.get("bytes", 0), round(told.get("full", 0.0), 3)]
        for name, told in now.feeding.items()
    ]
    rows.sort(key=lambda row: str(row[0]))
    rows.sort(key=lambda row: float(row[3]), reverse=True)
    return rows[:FEEDERS_SHOWN]
