"""The single step as a mixed-integer program for HiGHS: an independent judge of `ssm`.

A partition is a path through the boundaries 0 … m; an arc (a, b) is a legal interval. An arc comes
once for every old interval it overlaps (matched with it: the overlap stays) and once unmatched.
Constraints: flow from 0 to m, at most n′ arcs, each old interval matched at most once.
"""

from __future__ import annotations

import numpy as np

from meander.errors import TooLargeError
from meander.model import Ints, Problem
from meander.planning.exact.feasible import windows

VARIABLES_MAX = 150_000
"""Beyond this HiGHS does not finish within a benchmark's patience."""


class Milp:
    """The program of one problem; building it is not part of what a benchmark measures."""

    def __init__(self, problem: Problem) -> None:
        from scipy.optimize import Bounds, LinearConstraint
        from scipy.sparse import csr_array

        start, end, old, gain = _arcs(problem)
        self.total, self.gain, count = problem.workload.total_size, gain, len(gain)
        m, arc = problem.workload.tasks, np.arange(count)
        ones = np.ones(count)
        flow = csr_array((ones, (start, arc)), shape=(m + 1, count)) - csr_array(
            (ones, (end, arc)), shape=(m + 1, count)
        )
        balance = np.zeros(m + 1)
        balance[0], balance[m] = 1, -1
        matched = np.flatnonzero(old >= 0)
        shape = (len(problem.current.runs), count)
        once = csr_array((np.ones(len(matched)), (old[matched], matched)), shape=shape)
        self.constraints = [
            LinearConstraint(flow, balance, balance),
            LinearConstraint(csr_array(ones[None, :]), 0, problem.nodes),
            LinearConstraint(once, 0, 1),
        ]
        self.bounds, self.integrality = Bounds(0, 1), ones

    def solve(self, time_limit_s: float) -> int | None:
        """Give the least cost; None if HiGHS ran out of time."""
        from scipy.optimize import milp

        answer = milp(
            -self.gain.astype(float), constraints=self.constraints, bounds=self.bounds,
            integrality=self.integrality,
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )  # fmt: skip
        if answer.status != 0:
            return None
        return self.total - int(self.gain[answer.x > 0.5].sum())


def _arcs(problem: Problem) -> tuple[Ints, Ints, Ints, Ints]:
    """List start, end, old interval (-1: none) and bytes kept of every arc."""
    win, prefix = windows(problem), problem.workload.size_prefix
    ends = np.arange(1, len(win))
    lengths = ends - win[1:]
    if 2 * int(lengths.sum()) > VARIABLES_MAX:
        raise TooLargeError(f"the program has more than {VARIABLES_MAX} variables")
    end = np.repeat(ends, lengths)
    start = end - 1 - (np.arange(len(end)) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    columns = [(start, end, np.full(len(start), -1), np.zeros(len(start), dtype=np.int64))]
    for k, run in enumerate(problem.current.runs):
        hit = (start < run.ub) & (end > run.lb)
        a, b = start[hit], end[hit]
        kept = prefix[np.minimum(b, run.ub)] - prefix[np.maximum(a, run.lb)]
        columns.append((a, b, np.full(len(a), k), kept))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    if len(joined[0]) > VARIABLES_MAX:
        raise TooLargeError(f"the program has {len(joined[0])} variables")
    return joined[0], joined[1], joined[2], joined[3]
