"""Whether a problem has a solution, and if not, why, and at which τ it would.

An interval is legal when its work is at most `cap = floor((1+τ)·W/n′)` and its bytes are at most
the memory cap. Covering greedily from the left, each interval as long as is legal, uses the
fewest intervals; so a problem is infeasible iff one task alone breaks a cap, or the greedy cover
needs more than n′ intervals.

The smallest feasible τ is exact. The least cap that is feasible is a whole number C, found by
bisection; `floor((1+τ)·W/n′) ≥ C` iff `τ ≥ C·n′/W - 1`.

>>> from meander.model import Assignment, Workload
>>> heavy = Workload([1, 7, 1, 1], [1, 1, 1, 1])
>>> p = Problem(heavy, Assignment.from_intervals([(0, 4)]), nodes=2, tau=0)
>>> smallest_tau(p)
Fraction(3, 5)
"""

from __future__ import annotations

from fractions import Fraction
from typing import NoReturn

import numpy as np

from meander.errors import InfeasibleError
from meander.model import Ints, Problem
from meander.planning.kernels import windows as kernel

NO_CAP = 2**62
"""A memory cap that never binds: no sum of bytes is larger (`model.TOTAL_MAX`)."""


def memory_of(problem: Problem) -> int:
    """Give the memory cap as a number that int64 can hold."""
    return NO_CAP if problem.memory_cap is None else min(problem.memory_cap, NO_CAP)


def cap_of(problem: Problem) -> int:
    """Give the work cap as a number that int64 can hold."""
    return min(problem.cap, NO_CAP)


def windows(problem: Problem) -> Ints:
    """For every boundary x, the smallest a such that `[a, x)` meets both caps (x itself if none).

    >>> from meander.model import Assignment, Workload
    >>> now = Assignment.from_intervals([(0, 4)])
    >>> windows(Problem(Workload([1, 1, 2, 1], [0] * 4), now, nodes=2, tau=0)).tolist()
    [0, 0, 0, 2, 3]
    """
    load = problem.workload
    found: Ints = kernel.windows(
        load.work_prefix, load.size_prefix, cap_of(problem), memory_of(problem)
    )
    return found


def greedy_cover(problem: Problem) -> list[int]:
    """Boundaries of the cover with the fewest intervals, each as long as the caps allow.

    Ends before the last task where a task alone breaks a cap. Counts as many intervals as are
    needed, be they more than n′.
    """
    found: list[int] = kernel.forward_reach(windows(problem), problem.workload.tasks).tolist()
    return found


def smallest_tau(problem: Problem) -> Fraction | None:
    """Give the smallest τ ≥ 0 at which the problem has a solution; None if no τ helps."""
    load = problem.workload
    least = int(
        kernel.smallest_load(load.work_prefix, load.size_prefix, memory_of(problem), problem.nodes)
    )
    return None if least < 0 else tau_of(problem, least)


def tau_of(problem: Problem, load: int) -> Fraction:
    """Give the smallest τ ≥ 0 whose cap lets a node have so much work."""
    total = problem.workload.total_work
    if total == 0:
        return Fraction(0)
    return max(Fraction(0), Fraction(load * problem.nodes, total) - 1)


def check(problem: Problem) -> None:
    """Return if the problem has a solution.

    Raises:
        InfeasibleError: with the reason and the smallest feasible τ.
    """
    load = problem.workload
    needed = kernel.cover_size(
        load.work_prefix, load.size_prefix, cap_of(problem), memory_of(problem), problem.nodes
    )
    if needed > problem.nodes:
        refuse(problem)


def refuse(problem: Problem) -> NoReturn:
    """Raise the error for a problem that is known to be infeasible."""
    raise InfeasibleError(_why(problem), smallest_tau(problem))


def _why(problem: Problem) -> str:
    load, memory = problem.workload, problem.memory_cap
    if memory is not None and int(load.size.max()) > memory:
        task = int(np.argmax(load.size))
        return (
            f"task {task} alone holds {load.size[task]} bytes of state; "
            f"the memory cap is {memory} bytes a node"
        )
    total = load.total_work
    if int(load.work.max()) > problem.cap:
        task = int(np.argmax(load.work))
        return (
            f"task {task} alone weighs {load.work[task] / total:.2g} of the work; the cap is "
            f"{problem.cap / total:.2g} ({load.work[task]} against {problem.cap} of {total}, "
            f"{problem.nodes} nodes, tau {problem.tau})"
        )
    needed = len(greedy_cover(problem)) - 1
    by_memory = "" if memory is None else f" and {memory} bytes"
    return (
        f"at most {problem.cap} of {total} work{by_memory} a node takes {needed} nodes, "
        f"but {problem.nodes} are wanted (tau {problem.tau})"
    )
