"""Plans as JSON: the same keys wherever a command prints a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from meander.errors import DeadlockError, InfeasibleError
from meander.model import Assignment, Move, Plan, Round
from meander.planning.exact.phases import makespan
from meander.planning.exact.rounds import PauseBudget


def to_line(answer: dict[str, Any]) -> str:
    """Write an answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


def of_plan(
    plan: Plan, rounds: Sequence[Round], pause: PauseBudget | None = None
) -> dict[str, Any]:
    """Describe a plan and how it is carried out."""
    return {
        "feasible": True,
        "policy": plan.policy,
        "target": of_assignment(plan.target),
        "cost": plan.cost,
        "cost_share": plan.cost_share,
        "max_load": plan.max_load,
        "cap": plan.problem.cap,
        "tau": rounded_up(plan.problem.tau),
        "imbalance": plan.imbalance,
        "within_caps": plan.within_caps,
        "optimal": plan.optimal,
        "leaving": list(plan.leaving),
        "joining": list(plan.joining),
        "moves": [_of_move(move) for move in plan.moves],
        "rounds": [_of_round(round_, pause) for round_ in rounds],
        "note": plan.note,
    }


def of_assignment(a: Assignment) -> dict[str, Any]:
    """Give `{node: [lb, ub]}`, or `{node: [[lb, ub], …]}` when some node holds several runs.

    >>> import numpy as np
    >>> of_assignment(Assignment.from_intervals([(0, 2), (2, 3)]))
    {'n1': [0, 2], 'n2': [2, 3]}
    >>> of_assignment(Assignment.from_owners(np.array([0, 1, 0]), ["n1", "n2"]))
    {'n1': [[0, 1], [2, 3]], 'n2': [[1, 2]]}
    """
    if a.contiguous:
        return {node: list(interval) for node, interval in a.intervals().items()}
    runs: dict[str, list[list[int]]] = {node: [] for node in a.nodes}
    for lb, ub, node in a.runs:
        runs[node].append([lb, ub])
    return runs


def _of_move(move: Move) -> dict[str, Any]:
    return {"task": move.task, "from": move.source, "to": move.target, "size": move.size}


def _of_round(round_: Round, pause: PauseBudget | None) -> dict[str, Any]:
    """Describe a round; `makespan` is what its busiest link passes."""
    longest = makespan(round_.moves)
    return {
        "moves": [_of_move(move) for move in round_.moves],
        "size": round_.size,
        "makespan": longest,
        "pause_ms": None if pause is None else pause.predict_ms(longest),
        "oversized": round_.oversized,
        "exchange": round_.exchange,
    }


def of_failure(error: InfeasibleError | DeadlockError) -> dict[str, Any]:
    """Say why there is no answer, and from which τ on there is one."""
    if isinstance(error, DeadlockError):
        return {"feasible": False, "why": str(error), "tau_min": None}
    exact = error.tau_min
    return {
        "feasible": False,
        "why": error.why,
        "tau_min": None if exact is None else rounded_up(exact),
        "tau_min_exact": None if exact is None else str(exact),
    }


def rounded_up(value: Fraction) -> float:
    """Give the nearest float that is not smaller, so that it is feasible when given back.

    >>> rounded_up(Fraction(11, 20)), rounded_up(Fraction(1, 3))
    (0.55, 0.33333333333333337)
    """
    near = float(value)
    return near if Fraction(repr(near)) >= value else math.nextafter(near, math.inf)
