"""A price λ on every interval instead of n′ layers: a bound, and without boundary prices the plan.

Let G(k) be the most bytes that can stay with at most k intervals. For any λ ≥ 0 one sweep without
layers (`kernels.sweep`) computes

    D(λ) = max over k of  G(k) - λ·k,        and        G(n′) ≤ D(λ) + λ·n′.

So every λ gives an upper bound of the gain, that is, a lower bound of the cost. A plan with at
most n′ intervals that attains the bound is proven optimal, whatever the shape of G.

Search. The number of intervals that is best at λ falls as λ grows; a search over whole λ (secant
steps, halving when they stall) brackets n′ between λ - ½ and λ + ½. Gains are doubled, so these
are whole numbers. At λ itself many plans may be best, with different numbers of intervals.

Way back. Comparing the sweeps at λ - ½, λ and λ + ½ bounds, for every boundary and state, the
number of intervals of the best ways to it: `V(λ) - V(λ+½)` from below and `V(λ-½) - V(λ)` from
above (in doubled gains). Going back from m, the smallest start is taken from which the number of
intervals that remain is within these bounds. If the way reaches 0, it has n′ intervals, is best
at λ and so attains the bound; it also is the plan that the layered pass would give (the smallest
boundaries, read from the right), since a smaller start was only refused where it cannot work.

Without boundary prices the gain of every prefix, in both states, is concave in the number of
intervals (docs/concavity.md): then every number within the bounds is attained, and the way reaches
0. With prices it need not be. If the way ends before 0, nothing is claimed, and the layered pass
decides.

>>> from meander.model import Assignment, Workload
>>> now = Assignment.from_intervals({"n1": (0, 13), "n2": (13, 20)})
>>> lower_bound(Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5"))
4
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meander.errors import InputError
from meander.model import Ints, Problem
from meander.planning.exact.feasible import check, windows
from meander.planning.exact.match import run_bounds
from meander.planning.kernels import lagrange as kernel
from meander.planning.kernels.sweep import SCRATCH

_FREE = np.empty(0, dtype=np.int64)


class Relaxation(NamedTuple):
    """What the search for λ found."""

    bound: int
    """No plan within the caps moves fewer bytes."""
    bounds: Ints | None
    """Boundaries of a plan that attains the bound, so is optimal; None if bytes are too many to be
    multiplied."""


def relax(problem: Problem) -> Relaxation:
    """Solve with a price per interval in place of the limit n′: O(m) for each of some 20 sweeps.

    Raises:
        InfeasibleError: if no assignment meets the caps.
        InputError: if a node holds several runs now.
    """
    check(problem)
    if not problem.current.contiguous:
        raise InputError("a node holds several runs: the bound needs one interval per node")
    load, nodes = problem.workload, min(problem.nodes, problem.workload.tasks)
    sizes, win, old = problem.gain_prefix.copy(), windows(problem), run_bounds(problem.current)
    scratch, none = np.empty((SCRATCH, len(sizes)), np.int64), np.empty((2, 0), np.int64)
    values = kernel.run(sizes, win, old, _FREE, 0, scratch)
    bounds = kernel.walk(sizes, win, old, _FREE, 0, values, False, -1, none, none)
    most = int(values[1, -1])
    if len(bounds) - 1 > nodes:
        bounds = _FREE
        if kernel.fits(sizes, _FREE, nodes):
            bounds, most = kernel.search(sizes, win, old, _FREE, nodes, scratch)
    return Relaxation(load.total_size - int(most), bounds if len(bounds) else None)


def lower_bound(problem: Problem) -> int:
    """Give a number of bytes that every plan within the caps must move; as `relax` raises."""
    return relax(problem).bound
