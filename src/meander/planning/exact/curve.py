"""The least cost for every number of nodes at once: what does one node more, or fewer, save?

A node may have so much work and memory, whatever their number: the cap is that of the problem (its
τ and n′ say it). Let G(k) be the most bytes that can stay with at most k intervals. G is concave
(docs/concavity.md), so it is known by its corners, and a sweep with a price on every interval finds
one of them (`kernels.lagrange.corners`). Between two corners it is a line.

Complexity: two sweeps of O(m) for each corner, and there are at most as many as numbers of nodes. A
plan alone, where its n′ binds, takes some twenty.

>>> from meander.model import Assignment, Workload
>>> now = Assignment.from_intervals({"n1": (0, 9), "n2": (9, 13), "n3": (13, 20)})
>>> node_curve(Problem(Workload([1] * 20, [1] * 20), now, nodes=2, tau=0))
{2: 4, 3: 0}
"""

from __future__ import annotations

import numpy as np

from meander.errors import InputError
from meander.model import Problem
from meander.planning.exact.feasible import greedy_cover, refuse, windows
from meander.planning.exact.match import run_bounds
from meander.planning.kernels import lagrange as kernel
from meander.planning.kernels.sweep import SCRATCH

_FREE = np.empty(0, dtype=np.int64)


def node_curve(problem: Problem, nodes_max: int | None = None) -> dict[int, int]:
    """Find the least bytes moved for every number of nodes, by number.

    From the fewest that meet the caps to the first with which nothing more is saved, or to
    `nodes_max`; with more nodes than the last the cost stays.

    Raises:
        InfeasibleError: if a task alone breaks a cap.
        InputError: if a node holds several runs now, or bytes are too many to be multiplied.
    """
    cover = greedy_cover(problem)
    if cover[-1] != problem.workload.tasks:
        refuse(problem)
    if not problem.current.contiguous:
        raise InputError("a node holds several runs: the exact curve needs one interval per node")
    kept, tasks = problem.gain_prefix.copy(), problem.workload.tasks
    if not kernel.fits(kept, _FREE, len(cover)):
        raise InputError("bytes add up to too much for this many nodes: use a larger unit")
    most = tasks if nodes_max is None else nodes_max
    counts, gains = kernel.corners(
        kept, windows(problem), run_bounds(problem.current), most,
        np.empty((SCRATCH, tasks + 1), np.int64),
    )  # fmt: skip
    total, found = problem.workload.total_size, {int(counts[0]): int(gains[0])}
    for k, gain in zip(counts[1:].tolist(), gains[1:].tolist(), strict=True):
        last, level = max(found), found[max(found)]
        step = (gain - level) // (k - last)
        found |= {n: level + step * (n - last) for n in range(last + 1, k + 1)}
    return {n: total - gain for n, gain in found.items() if n <= most}
