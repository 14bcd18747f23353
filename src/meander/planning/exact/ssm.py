"""SSM, the optimal single step: least bytes moved, within the caps, in O(m·n′) or better.

Problem. Tasks 0 … m-1 with work and state bytes are spread over nodes, one interval each. Cut
the tasks anew into at most n′ intervals, each with at most `cap` work (and `memory_cap` bytes),
and say which node gets which interval, so that the bytes that stay where they are (the *gain*)
are as many as can be. Cutting and matching are decided together: that is the point of SSM.

Method. `kernels.sweep` computes the best gain of every prefix in one O(m) sweep. Three ways to
use it, tried in this order; each is exact, and all give the same plan:

  1. Without counting intervals. If the best plan of all has at most n′, it is the answer: O(m).
  2. With a price λ on every interval, such that n′ intervals are best (`lagrange`): some
     twenty sweeps, whatever n′ is. With boundary prices the answer counts only where it attains its
     own upper bound; without, it always does (docs/concavity.md).
  3. In n′ layers, layer k for at most k intervals (`kernels.layers`): O(m·n′), in practice
     O(τ·m·n′), since layer k only looks at boundaries that can be the k-th.

The paper's SSM takes O(m²·n′). Memory is O(m) for 1 and 2; 3 keeps at most 2^23 values.

Tie-break. Of all optimal plans the one whose boundaries, read from the right, are smallest: the
last interval is as long as possible, then the one before it, and so on. Who gets which interval
is then settled by `match`.

Deviations from the paper: at most n′ non-empty intervals (an idle node is legal), so that its
Lemma 4.4 holds; the printed Figure 7 is not used at all; see the errata.

Nodes that must leave. Of a node in `problem.leaving` nothing can stay, so its bytes count for the
memory cap and not for the gain. Whatever interval the best plan would have left with it goes to
another node at no cost: the plan is as exact as without.

A current assignment in which a node holds several runs is outside the theory. Each run then
counts as an old interval of its own, nodes are matched by all their bytes, and the plan says
that it may not be optimal.

>>> from meander.model import Assignment, Workload
>>> now = Assignment.from_intervals({"n1": (0, 13), "n2": (13, 20)})
>>> found = ssm(Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5"))
>>> found.cost, found.target.intervals()
(4, {'n3': Interval(lb=0, ub=2), 'n1': Interval(lb=2, ub=11), 'n2': Interval(lb=11, ub=20)})

Reference: Ding et al., "Efficient Operator State Migration for Cloud-Based Data Stream
Management Systems", Sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.errors import InputError
from meander.model import TOTAL_MAX, Assignment, Ints, Plan, Problem, Workload
from meander.planning.exact.even import evened, uneven
from meander.planning.exact.feasible import NO_CAP, cap_of, memory_of, refuse, windows
from meander.planning.exact.match import assign, name_nodes, run_bounds
from meander.planning.kernels.layers import CELLS_MAX
from meander.planning.kernels.ssm import LAYERS_MAX, solve
from meander.planning.kernels.windows import most_held

POLICY = "ssm"
_FREE = np.empty(0, dtype=np.int64)


def ssm(problem: Problem, prices: Sequence[int] | Ints | None = None) -> Plan:
    """Find the plan that moves the fewest bytes; where hosts are known, they stay even (`even`).

    Args:
        problem: what is to be planned.
        prices: one whole number per boundary 0 … m, charged for every inner boundary that the
            plan uses. The plan then has the least bytes moved plus prices, and `optimal` is not
            claimed, since it speaks of bytes alone.

    Raises:
        InfeasibleError: if no assignment meets the caps.
        InputError: if there is not one price per boundary.
    """
    if uneven(found := _least(problem, prices)):
        return evened(found, lambda others: _least(others, prices))
    return found


def _least(problem: Problem, prices: Sequence[int] | Ints | None) -> Plan:
    """Find the plan that moves the fewest bytes, wherever nodes are."""
    load, current = problem.workload, problem.current
    tolls = _FREE if prices is None else _checked_prices(load, prices)
    bounds, matched, kept, _ = solve(
        load.work_prefix, load.size_prefix, problem.gain_prefix, cap_of(problem),
        memory_of(problem), run_bounds(current), tolls, problem.nodes, CELLS_MAX, LAYERS_MAX,
    )  # fmt: skip
    if len(bounds) == 0:
        refuse(problem)
    if not current.contiguous:
        return _plan_for_runs(problem, bounds)
    target = name_nodes(problem, bounds, matched.tolist())
    if prices is not None:
        return Plan(problem, target, POLICY, note="least bytes moved plus boundary prices")
    return Plan(problem, target, POLICY, optimal=True, bound=load.total_size - kept)


def ssm_partition(
    workload: Workload,
    old: Ints,
    nodes: int,
    cap: int,
    memory_cap: int | None = None,
    prices: Ints | None = None,
) -> Ints | None:
    """Find the best boundaries alone, from boundaries; for planners that call it very often.

    Args:
        workload: work and bytes per task.
        old: boundaries of the non-empty old intervals, `0 = old[0] < … < old[-1] = m`, int64.
        nodes: n′.
        cap: most work of one interval.
        memory_cap: most bytes of one interval.
        prices: as for `ssm`, int64; not checked.

    Returns:
        Ascending boundaries of at most `nodes` non-empty intervals; None if infeasible.

    >>> load = Workload([1] * 20, [1] * 20)
    >>> ssm_partition(load, np.array([0, 13, 20]), nodes=3, cap=9).tolist()
    [0, 2, 11, 20]
    """
    memory = NO_CAP if memory_cap is None else min(memory_cap, NO_CAP)
    bounds: Ints = solve(
        workload.work_prefix, workload.size_prefix, workload.size_prefix, min(cap, NO_CAP), memory,
        old, _FREE if prices is None else prices, nodes, CELLS_MAX, LAYERS_MAX,
    )[0]  # fmt: skip
    return bounds if len(bounds) else None


def warm() -> None:
    """Compile the kernels, or load them from the cache, so that the first plan is fast too."""
    now = Assignment.from_intervals([(0, 2), (2, 4)])
    ssm(Problem(Workload([1] * 4, [1] * 4), now, nodes=3, tau=1))


def _plan_for_runs(problem: Problem, bounds: Ints) -> Plan:
    """Match the nodes by all their bytes, and say how far the plan may be from the best."""
    target = assign(problem, bounds)
    load, current = problem.workload, problem.current
    best = most_held(windows(problem), problem.gain_prefix, current.owners(), len(current.nodes))
    most = sum(sorted(best.tolist(), reverse=True)[: problem.nodes])
    bound = load.total_size - most
    found = Plan(problem, target, POLICY, bound=bound)
    if found.cost == bound:
        return Plan(problem, target, POLICY, optimal=True, bound=bound)
    note = (
        "a node holds several runs, so this is a heuristic: "
        f"it moves {found.cost} bytes, and at least {bound} must move"
    )
    return Plan(problem, target, POLICY, bound=bound, note=note)


def _checked_prices(workload: Workload, prices: Sequence[int] | Ints) -> Ints:
    tolls = np.asarray(prices)
    if tolls.shape != (workload.tasks + 1,) or tolls.dtype.kind not in "iu":
        raise InputError(
            f"prices must be {workload.tasks + 1} whole numbers, one per boundary from 0 to m"
        )
    if sum(abs(price) for price in tolls.tolist()) > TOTAL_MAX - workload.total_size:
        raise InputError("prices and bytes add up to more than 2^62: use a larger unit")
    return tolls.astype(np.int64)
