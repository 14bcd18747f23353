"""The optimal migration sequence: several rescales in a row, known beforehand.

Problem
    From the current assignment go to n₁, n₂, … n_p nodes with τ₁ … τ_p, so that the bytes moved in
    all steps together are fewest. A cheapest first step may make the second expensive: from
    13 + 7 tasks to three and then four nodes (τ = 0.4), a cheapest first step moves 4 and the
    second then 2, 3 or 4, by the luck of its ties; 6 in all is the best there is.

What matters
    Only the *partition* of each step, not who owns which part (Lemma 5.1 of the paper): a matching
    of two partitions keeps the same bytes whatever the names. So the answer is a cheapest path
    through layers of partitions, layer i holding partitions into at most nᵢ intervals within the
    caps, and the length of an edge is the cost of the best matching (`match.pair_cost`).

exact
    Lists *all* partitions of each layer and walks forward (Viterbi). They grow exponentially, so
    they are counted first. A total that is possible is known from `candidates`; partitions that
    are already dearer when reached cannot be on a best path and are dropped.
    O(p·K²·n) at worst for K partitions a layer, mostly far less.

candidates
    The same walk through layers of generated partitions only: **a heuristic**, and it says so
    (`exact` is False). The layers begin with the path of repeated `ssm`, so the answer is never
    worse than that. Then, in rounds, for the best partitions of each layer (by the cheapest path
    through them) are added
      * the partition that lies best *between* one of the layer before and one of the layer after
        (`kernels.bridge`, exact), and what `ssm` answers one step back (costs are symmetric);
      * the same partition in the other layers;
      * partitions that differ in one boundary from the one on the path;
      * *shaken* paths: a sweep along the path with scattered prices on boundaries, the same in all
        steps, so that all partitions shift together; then mended, each partition in turn replaced
        by the best between its neighbours until that no longer helps.
    A layer keeps its best `POOL_MAX`. It ends after `PATIENCE` rounds without gain, at the latest
    after `ROUNDS_MAX`. Nothing is random: the scattered prices are the same in every run.

>>> from meander.model import Assignment
>>> now = Assignment.from_intervals([(0, 13), (13, 20)])
>>> found = oms(Workload([1] * 20, [1] * 20), now, [(3, "2/5"), (4, "2/5")])
>>> found.cost, found.exact, [plan.cost for plan in found.plans]
(6, True, [4, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from meander.errors import InfeasibleError, InputError, TooLargeError
from meander.model import TOTAL_MAX, Assignment, Plan, Problem, Workload
from meander.planning.exact import match
from meander.planning.exact.candidates import Cuts, Path, improve
from meander.planning.exact.feasible import check, windows
from meander.planning.kernels.sequence import count_partitions, list_partitions, step

Method: TypeAlias = Literal["exact", "candidates", "auto"]

PARTITIONS_MAX = 10**6
"""Most partitions of one layer that `exact` lists: some 100 MB at 16 nodes."""

PAIRS_MAX = 5 * 10**8
"""Most pairs of partitions that one step of `exact` looks at: about two minutes."""

AUTO_PAIRS_MAX = 2 * 10**7
"""The same for `auto`, which nobody asked to be slow: a few seconds."""


@dataclass(frozen=True, eq=False)
class SequencePlan:
    """One plan per step, each from where the one before has led."""

    plans: tuple[Plan, ...]
    method: str
    """`exact` or `candidates`: how it was found."""
    exact: bool
    """True iff no sequence of interval assignments within the caps moves less in all."""

    @property
    def cost(self) -> int:
        """The bytes that all steps move together."""
        return sum(plan.cost for plan in self.plans)


def oms(
    workload: Workload,
    current: Assignment,
    steps: Sequence[tuple[int, Fraction | float | str]],
    method: Method = "auto",
    memory_cap: int | None = None,
) -> SequencePlan:
    """Plan several migrations together.

    Args:
        workload: work and bytes of every task, the same in all steps.
        current: where the tasks are, one interval per node.
        steps: `(nodes, tau)` of each migration, in order.
        method: `exact`, `candidates`, or `auto`: exact where that takes seconds.
        memory_cap: most bytes of state on one node, in every step.

    Raises:
        InfeasibleError: if a step has no solution; says which.
        TooLargeError: if `exact` was asked for and there are too many partitions.
        InputError: if a node holds several runs, or there are no steps.
    """
    if method not in ("exact", "candidates", "auto"):
        raise InputError(f"method must be exact, candidates or auto, not {method!r}")
    if not steps:
        raise InputError("steps is empty: give (nodes, tau) for at least one migration")
    if not current.contiguous:
        raise InputError("a sequence starts from one interval per node, but one holds several")
    if workload.total_size * (len(steps) + 1) > TOTAL_MAX:
        raise InputError(f"{len(steps)} steps over so many bytes may add up to more than 2^62")
    problems = [Problem(workload, current, n, tau, memory_cap) for n, tau in steps]
    _check_all(problems)
    start = tuple(match.run_bounds(current).tolist())
    cost, path = improve(problems, start)
    exact = False
    if method != "candidates":
        try:
            pairs_max = PAIRS_MAX if method == "exact" else AUTO_PAIRS_MAX
            cost, path = _exact(problems, start, cost, pairs_max)
            exact = True
        except TooLargeError:
            if method == "exact":
                raise
    plans = _carry_out(problems, path)
    assert sum(plan.cost for plan in plans) == cost, "the plans cost what the path says"
    return SequencePlan(plans, "exact" if exact else "candidates", exact)


def _check_all(problems: list[Problem]) -> None:
    for number, problem in enumerate(problems, 1):
        try:
            check(problem)
        except InfeasibleError as error:
            raise InfeasibleError(f"step {number}: {error.why}", error.tau_min) from None


def _exact(problems: list[Problem], start: Cuts, at_most: int, pairs_max: int) -> tuple[int, Path]:
    """Walk through all partitions. `at_most` is a total that is known to be possible."""
    wins = [windows(problem) for problem in problems]
    mosts = [min(problem.nodes, problem.workload.tasks) for problem in problems]
    counts = [count_partitions(win, most) for win, most in zip(wins, mosts, strict=True)]
    for number, count in enumerate(counts, 1):
        if count > PARTITIONS_MAX:
            raise TooLargeError(
                f"step {number} has {count:.3g} partitions within the caps; the exact method "
                f"lists at most {PARTITIONS_MAX:.0e}: use method='candidates'"
            )
    size_prefix = problems[0].workload.size_prefix
    rows, costs = np.array([start], dtype=np.int32), np.zeros(1, dtype=np.int64)
    trail = []
    for win, most, count in zip(wins, mosts, counts, strict=True):
        if len(rows) * count > pairs_max:
            raise TooLargeError(
                f"{len(rows)} partitions before a step and {count:.3g} after it make more than "
                f"{pairs_max:.0e} pairs: use method='candidates'"
            )
        after = list_partitions(win, most, int(count))
        cost, source = step(size_prefix, rows, costs, after, at_most)
        order = np.argsort(cost, kind="stable")
        order = order[cost[order] <= at_most]
        rows, costs = after[order], cost[order]
        trail.append((rows, source[order]))
    path, at = list[Cuts](), 0
    for layer, source in reversed(trail):
        path.append(tuple(sorted(set(layer[at].tolist()))))
        at = int(source[at])
    return int(costs[0]), tuple(reversed(path))


def _carry_out(problems: list[Problem], path: Path) -> tuple[Plan, ...]:
    """Name the nodes, step after step."""
    plans, now = list[Plan](), problems[0].current
    for problem, cuts in zip(problems, path, strict=True):
        here = Problem(problem.workload, now, problem.nodes, problem.tau, problem.memory_cap)
        plans.append(Plan(here, match.assign(here, cuts), "oms"))
        now = plans[-1].target
    return tuple(plans)
