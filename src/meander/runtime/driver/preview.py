"""What a rescale would do, as things stand: planned, and gone through on paper."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from meander.model import Move, Plan, Problem, TaskId, Workload
from meander.protocol.master.master import Master
from meander.protocol.master.pacer import PaceLimits, Pacer
from meander.protocol.master.round import PlanFunction
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
    """Predicted, of all rounds; without the start of new processes."""
    too_large: tuple[TaskId, ...]
    """Tasks that alone take longer than the pause budget, unless most of each can be copied ahead: what
    share can, is known when a migration has moved some."""


def preview(problem: Problem, pacer: Pacer, find: PlanFunction, pause_ms: float | None) -> Preview:
    """Plan, and go through the rounds on paper."""
    found = find(problem)
    budget = None if pause_ms is None else pause_ms / 1000
    pacer.start(budget, PaceLimits())
    sizes = problem.workload.size.tolist()
    pauses, current = list[float](), problem.current
    weights = pacer.weights(sizes)
    while (step := carrier(current, found.target, weights, pacer.limits())) is not None:
        pauses.append(pacer.predict(step.busiest_bytes))
        current = _moved(current, found.target, dict(step.moves))
    moving = {move.task for move in found.moves}
    large = [t for t in moving if budget is not None and pacer.predict(weights[t]) > budget]
    return Preview(
        found, found.moves, sum(sizes[t] for t in moving), len(pauses), max(pauses, default=0.0),
        sum(pauses), tuple(sorted(large)),
    )  # fmt: skip


def _moved(current: Any, target: Any, moves: Mapping[TaskId, str]) -> Any:
    import numpy as np

    nodes = list(dict.fromkeys([*current.nodes, *target.nodes]))
    index = {node: i for i, node in enumerate(nodes)}
    owners = [index[moves.get(t, current.owner(t))] for t in range(current.tasks)]
    return type(current).from_owners(np.array(owners), nodes, current.epoch)


def snapshot(master: Master, nodes: int, tau: Fraction) -> tuple[Problem, Pacer]:
    """Take what a preview needs from the master's books: the pacer is a copy."""
    ledger, conductor = master.ledger, master.conductor
    current = master.books.current()
    workload = Workload([w + 1 for w in ledger.work], list(ledger.size))
    fresh = [f"new{i}" for i in range(1, nodes + 1)]
    return Problem(workload, current, nodes, tau, new_nodes=fresh), copy(conductor.pacer)
