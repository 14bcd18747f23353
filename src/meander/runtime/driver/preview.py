"""What a rescale would do, as things stand: planned, and gone through on paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from meander.model import Assignment, Move, Plan, Problem, TaskId
from meander.protocol.master.master import Master
from meander.protocol.master.pacer import ROUND_S, PaceLimits, Pacer
from meander.protocol.master.round import PlanFunction, cut
from meander.protocol.messages import Rescale
from meander.wiring import carrier


@dataclass(frozen=True)
class Preview:
    """What a rescale would do, as things stand."""

    plan: Plan
    moves: tuple[Move, ...]
    bytes_moved: int
    rounds: int
    pause_s: float
    """Predicted, of the longest round."""
    duration_s: float
    """Predicted, of all rounds with their copies; without the start of new processes."""
    too_large: tuple[TaskId, ...]
    """Tasks that alone take longer than the pause budget, unless most of each can be copied ahead: what
    share can, is known when a migration has moved some."""
    conflict: str = ""
    """What can be had instead, if the time cannot, or not with the pause; empty: it can."""


class _Course(NamedTuple):
    """All rounds, gone through on paper."""

    rounds: int
    pause_s: float
    duration_s: float


def preview(
    problem: Problem,
    pacer: Pacer,
    find: PlanFunction,
    pause_ms: float | None,
    within_s: float | None = None,
) -> Preview:
    """Plan, and go through the rounds on paper."""
    found = find(problem)
    budget = None if pause_ms is None else pause_ms / 1000
    sizes = problem.workload.size.tolist()
    course = _go_through(problem.current, found, pacer, budget, within_s)
    weights = pacer.weights(sizes)
    moving = {move.task for move in found.moves}
    large = [t for t in moving if budget is not None and pacer.predict(weights[t]) > budget]
    conflict = ""
    if within_s is not None and course.duration_s > within_s:
        alone = _go_through(problem.current, found, pacer, None, within_s)
        conflict = _conflict(pause_ms, within_s, course, alone)
    return Preview(
        found, found.moves, sum(sizes[t] for t in moving), course.rounds, course.pause_s,
        course.duration_s, tuple(sorted(large)), conflict,
    )  # fmt: skip


def _go_through(
    current: Assignment, found: Plan, pacer: Pacer, budget_s: float | None, within_s: float | None
) -> _Course:
    """Cut round by round, as the master would."""
    pacer = copy(pacer)
    pacer.start(budget_s, PaceLimits(), within_s)
    sizes = found.problem.workload.size.tolist()
    weights, now, pauses = pacer.weights(sizes), 0.0, list[float]()
    hosts, target = found.problem.hosts, found.target
    while (next_ := cut(carrier, pacer, current, target, weights, now, hosts)) is not None:
        step = next_.found
        pauses.append(pacer.predict(step.busiest_bytes))
        now += pauses[-1]
        if pacer.copies:
            moved = _busiest((current.owner(task), sizes[task]) for task, _ in step.moves)
            now += ROUND_S + moved / pacer.copy_bytes_s
        current = _moved(current, target, dict(step.moves))
    return _Course(len(pauses), max(pauses, default=0.0), now)


def _busiest(sent: Iterable[tuple[str, int]]) -> int:
    """Tell how much the node sends that sends the most."""
    sums: defaultdict[str, int] = defaultdict(int)
    for node, size in sent:
        sums[node] += size
    return max(sums.values(), default=0)


def _conflict(pause_ms: float | None, within_s: float, course: _Course, alone: _Course) -> str:
    """Say what cannot be had together, and what can."""
    if alone.duration_s > within_s:
        return (
            f"all takes about {alone.duration_s:.3g} s, not {within_s:g} s, however long rows wait"
        )
    return (
        f"with a pause of {pause_ms:g} ms all takes about {course.duration_s:.3g} s; "
        f"within {within_s:g} s rows would wait up to {1000 * alone.pause_s:.0f} ms"
    )


def _moved(current: Any, target: Any, moves: Mapping[TaskId, str]) -> Any:
    import numpy as np

    nodes = list(dict.fromkeys([*current.nodes, *target.nodes]))
    index = {node: i for i, node in enumerate(nodes)}
    owners = [index[moves.get(t, current.owner(t))] for t in range(current.tasks)]
    return type(current).from_owners(np.array(owners), nodes, current.epoch)


def snapshot(master: Master, command: Rescale) -> tuple[Problem, Pacer]:
    """Take what a preview needs from the master's books: the pacer is a copy."""
    wanted = master.targets.wanted(command.nodes, command.groups)
    problem = master.targets.problem(wanted, master.books.leaving())
    return problem, copy(master.conductor.pacer)
