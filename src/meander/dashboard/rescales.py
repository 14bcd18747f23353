"""The history of rescales: who asked and why, what the plan was, what others' plans would have moved.

A plan is heard on the master's thread, which only puts it down (`note`); rivals are reckoned later, by
whoever takes snapshots (`take`).
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from meander.dashboard.snapshot import Snapshot, Told
from meander.errors import MeanderError
from meander.model import Plan, Problem
from meander.planning import plan
from meander.planning.rivals.hashing import ring_history
from meander.runtime.driver.look import runs_of
from meander.show.palette import name_of

KEPT_MAX = 100
"""Rescales that are remembered, the newest."""
RIVALS = ("storm", "flink")
RING = "consistent-hash"
RINGS, RINGS_TASKS_MAX = 20, 20_000
"""How many rings are tried, and up to how many tasks: beyond it takes seconds."""
RUNS_SHOWN = 2000
ENDS = ("completed", "rolled back", "superseded", "aborted")


def rivals(problem: Problem) -> dict[str, int]:
    """Tell the bytes that others' plans move, for the same rescale.

    Consistent hashing is given a ring that was there before, and the mean over some: from intervals
    to a ring nearly everything moves.
    """
    found = dict[str, int]()
    for policy in RIVALS:
        try:
            found[policy] = plan(problem, policy, relax=True).cost
        except MeanderError:
            continue
    before = max(1, len(problem.current.nodes))
    if problem.workload.tasks <= RINGS_TASKS_MAX:
        rings = ring_history(
            problem.workload, (before, problem.nodes), str(problem.tau), seeds=range(RINGS)
        )
        found[RING] = round(statistics.fmean(ring.cost for ring in rings))
    return found


def describe(found: Plan) -> dict[str, Any]:
    """Tell what a plan does and why, in plain values."""
    problem = found.problem
    before = problem.current.owners()
    names = [problem.current.nodes[i] for i in before.tolist()]
    gave, got = Counter[str](), Counter[str]()
    for move in found.moves:
        gave[move.source] += 1
        got[move.target] += 1
    others = rivals(problem)
    return {
        "policy": name_of(found.policy),
        "optimal": found.optimal,
        "note": found.note,
        "from": len(problem.current.nodes),
        "to": problem.nodes,
        "tasks": problem.workload.tasks,
        "moves": len(found.moves),
        "bytes": found.cost,
        "state_bytes": problem.workload.total_size,
        "cap": problem.cap,
        "max_load": found.max_load,
        "gave": dict(gave.most_common()),
        "got": dict(got.most_common()),
        "rivals": [[name_of(policy), cost] for policy, cost in others.items()],
        "runs_before": runs_of(names)[:RUNS_SHOWN],
        "runs_after": [[r.node, r.lb, r.ub] for r in found.target.runs][:RUNS_SHOWN],
        "why": why(found),
    }


def why(found: Plan) -> list[str]:
    """Say in sentences why a plan moves what it moves."""
    problem, moves = found.problem, found.moves
    said = [
        f"{problem.nodes} nodes share the load of {problem.workload.tasks} tasks, "
        f"{problem.workload.total_work:,} in all; none may have more than {problem.cap:,} of it, which "
        f"is {float(1 + problem.tau):.3g} times the mean."
    ]
    if found.note:
        said.append(_plainly(found.note))
    if found.leaving:
        one = len(found.leaving) == 1
        said.append(
            f"{_names(found.leaving)} {'leaves' if one else 'leave'}: all tasks there must move."
        )
    over = _over(problem)
    if over:
        said.append(f"{_names(over)} had more than that before: some tasks there must move.")
    if not moves:
        said.append("Nothing has to move.")
    elif found.optimal:
        said.append("No interval plan within that limit moves fewer bytes: this is proven.")
    idle = problem.nodes - len({run.node for run in found.target.runs})
    if idle:
        said.append(
            f"{idle} of the nodes {'gets' if idle == 1 else 'get'} no task: the limit holds without, "
            "and whatever moves there is more to move."
        )
    return said


_RELAXED = re.compile(
    r"relaxed from tau ([\d/.]+) to ([\d/.]+): (.*?)( \([^()]*tau[^()]*\))?", re.DOTALL
)


def _plainly(note: str) -> str:
    """Say a planner's note in words that need no τ.

    >>> _plainly("relaxed from tau 1/5 to 1/2: task 5 is too heavy (9 against 6, tau 1/5)")
    'No plan stays within 1.2 times the mean, so 1.5 times were allowed: task 5 is too heavy.'
    """
    told = _RELAXED.fullmatch(note)
    if told is None:
        return note
    before, after = (float(1 + Fraction(text)) for text in told.group(1, 2))
    return (
        f"No plan stays within {before:.3g} times the mean, so {after:.3g} times were allowed: "
        f"{told[3].rstrip('.')}."
    )


def _over(problem: Problem) -> list[str]:
    """Name the nodes whose work is above the cap before the rescale."""
    work, owners = problem.workload.work.tolist(), problem.current.owners().tolist()
    sums = Counter[int]()
    for owner, amount in zip(owners, work, strict=True):
        sums[owner] += amount
    return [problem.current.nodes[i] for i, total in sums.items() if total > problem.cap]


def _names(nodes: Any) -> str:
    names = list(nodes)
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def verdict(
    budget_s: float | None, predicted_s: float, measured_s: float, stage: str
) -> tuple[str, str]:
    """Say whether the promise of a rescale was kept: a word, and a sentence.

    >>> verdict(0.1, 0.062, 0.054, "completed")
    ('kept', 'rows waited at most 54 ms, 62 ms were predicted, 100 ms allowed')
    >>> verdict(None, 0.2, 0.3, "completed")[0]
    'no limit'
    """
    said = f"rows waited at most {1000 * measured_s:.0f} ms, {1000 * predicted_s:.0f} ms were predicted"
    if stage != "completed":
        return stage, said
    if budget_s is None:
        return "no limit", f"{said}; no limit was asked for"
    word = "kept" if measured_s <= budget_s else "missed"
    return word, f"{said}, {1000 * budget_s:.0f} ms allowed"


@dataclass
class Rescale:
    """One row of the history."""

    number: int
    began_s: float
    facts: dict[str, Any]


@dataclass
class RescaleHistory:
    """The rescales of one deployment."""

    rows: deque[Rescale] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    _plans: dict[int, Plan] = field(default_factory=dict)
    _last: int = 0
    """The newest migration that was entered."""

    def note(self, number: int, found: Plan) -> None:
        """Put the plan of a migration down; cheap, on any thread."""
        self._plans[number] = found
        for old in sorted(self._plans)[:-4]:
            self._plans.pop(old, None)

    def take(self, now: Snapshot, asked: Mapping[int, Mapping[str, Any]]) -> None:
        """Go on with what the master has told; `asked`: who asked for what, by migration."""
        known = {row.number: row for row in self.rows}
        for told in now.told:
            number = told.facts.get("migration")
            if number is None:
                continue
            if told.what == "rescaling" and number > self._last:
                self._last = number
                row = Rescale(number, told.at_s, {"stage": "launching", **asked.get(number, {})})
                row.facts["plan"] = self._describe(number)
                self.rows.append(row)
                known[number] = row
            elif number in known and told.what in ENDS:
                _end(known[number], told)
        migration = now.look.migration
        if migration is not None and migration.number in known:
            facts = known[migration.number].facts
            facts.setdefault("from", migration.nodes_before)
            if migration.active:
                facts["stage"], facts["rounds"] = migration.stage, list(migration.rounds)
                facts["to"] = len(migration.target.nodes)

    def _describe(self, number: int) -> dict[str, Any] | None:
        found = self._plans.pop(number, None)
        return None if found is None else describe(found)

    def shown(self) -> list[dict[str, Any]]:
        """Give all rows, the newest first."""
        return [
            {"number": row.number, "began_s": round(row.began_s, 2), **row.facts}
            for row in reversed(self.rows)
        ]


def _end(row: Rescale, told: Told) -> None:
    """Enter how a rescale has ended."""
    facts, rounds = row.facts, list(told.facts["rounds"])
    predicted = max((r["predicted_s"] for r in rounds), default=0.0)
    measured = max((r["measured_s"] for r in rounds), default=0.0)
    budget_ms = facts.get("pause_ms")
    word, said = verdict(
        None if budget_ms is None else budget_ms / 1000, predicted, measured, told.what
    )
    facts.update(
        stage=told.what,
        to=told.facts["nodes"],
        moved=told.facts["moved"],
        bytes=sum(r["bytes"] for r in rounds),
        seconds=told.facts["seconds"],
        rounds=rounds,
        predicted_s=predicted,
        measured_s=measured,
        promise=word,
        said=said,
    )
