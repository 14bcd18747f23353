"""Given new intervals, who gets which? The assignment that keeps the most bytes in place.

Two partitions of a line cut it into at most n + n′ common segments, and walking along the line
either the old interval changes at a segment's end, or the new one, or both: the overlap graph is
a staircase. Matching old nodes to new intervals therefore means choosing segments of which no
two share an old or a new interval, and one walk with four states (old used or not, new used or
not) finds the best choice in O(n + n′), where a general matching takes cubic time.

Ties: of the matchings that keep the most bytes, one that leaves the most tasks in place.

Names: a matched interval keeps its node. The others, from left to right, go to the free nodes in
the order of the current assignment, then to joining nodes. When nodes have to leave, the last
free nodes in that order do. Nodes left over are members without an interval. Where hosts are known,
a free interval rather goes to a free node on the host that has most of it.

A node that holds several runs (between two rounds, or under hashing) breaks the staircase; then
the matching is SciPy's `linear_sum_assignment` on the bytes that interval and node share. It
counts in floating point: with more than 2^53 bytes it may miss the best matching by rounding.

Reference: Section 4.3 of the paper assigns by dynamic programming over the same structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from meander.errors import InputError
from meander.model import Assignment, Ints, NodeId, Plan, Problem, Run, Workload
from meander.planning.kernels import match as kernel


def run_bounds(assignment: Assignment) -> Ints:
    """Boundaries of the runs: `0 = b_0 < b_1 < … < b_r = m`.

    >>> run_bounds(Assignment.from_intervals([(0, 13), (13, 13), (13, 20)])).tolist()
    [0, 13, 20]
    """
    cuts = [run[0] for run in assignment.runs]
    cuts.append(assignment.tasks)
    return np.array(cuts, dtype=np.int64)


def pair_cost(workload: Workload, old: Sequence[int] | Ints, new: Sequence[int] | Ints) -> int:
    """Least bytes that move between two interval partitions, each given by its boundaries.

    Symmetric; empty intervals are allowed and change nothing.

    >>> pair_cost(Workload([1] * 20, [1] * 20), [0, 13, 20], [0, 9, 13, 20])
    4

    Raises:
        InputError: if boundaries are not ascending from 0 to the number of tasks.
    """
    before = _checked("old", old, workload.tasks)
    after = _checked("new", new, workload.tasks)
    return workload.total_size - int(kernel.kept(workload.size_prefix, before, after))


def assign(problem: Problem, bounds: Sequence[int] | Ints) -> Assignment:
    """Give the intervals between `bounds` to nodes so that the most bytes stay in place.

    Empty intervals are dropped; the result has exactly n′ members.

    >>> now = Assignment.from_intervals({"a": (0, 13), "b": (13, 20)})
    >>> p = Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5")
    >>> assign(p, [0, 9, 13, 20]).intervals()
    {'a': Interval(lb=0, ub=9), 'n1': Interval(lb=9, ub=13), 'b': Interval(lb=13, ub=20)}

    Raises:
        InputError: if boundaries are not ascending from 0 to m, or the intervals exceed n′.
    """
    new = np.unique(_checked("bounds", bounds, problem.workload.tasks))
    if len(new) - 1 > problem.nodes:
        raise InputError(f"{len(new) - 1} intervals for {problem.nodes} nodes: use fewer")
    if problem.current.contiguous:
        old = run_bounds(problem.current)
        return name_nodes(problem, new, kernel.match(problem.gain_prefix, old, new).tolist())
    return _name(problem, new, _match_runs(problem, new))


def name_nodes(problem: Problem, new: Ints, matched: list[int]) -> Assignment:
    """Turn a matching of new intervals to the runs of `current` (-1: none) into an assignment.

    For a current assignment with one run per node.
    """
    runs = problem.current.runs
    owners = [runs[i][2] if i >= 0 else None for i in matched]
    return _name(problem, new, [None if node in problem.leaving else node for node in owners])


def _name(problem: Problem, new: Ints, owners: list[NodeId | None]) -> Assignment:
    """Fill the free intervals by the rule of this file and build the assignment, unchecked."""
    current, taken = problem.current, set(owners)
    free = [node for node in problem.staying if node not in taken]
    matched = len(problem.staying) - len(free)
    if problem.nodes > len(problem.staying):
        free.extend(problem.joining(problem.nodes - len(problem.staying)))
    del free[problem.nodes - matched :]
    spare = iter(_near(problem, new, owners, free) if problem.hosts else free)
    names = [next(spare) if owner is None else owner for owner in owners]
    cuts = new.tolist()
    runs = tuple(map(Run, cuts, cuts[1:], names))
    return Assignment(current.tasks, runs, (*names, *spare), current.epoch.next())


def vacated(plan: Plan) -> Plan:
    """Give the places of nodes that must leave to others; for policies that do not know of them.

    First to nodes that the plan would dismiss, then to nodes that join.
    """
    problem, target = plan.problem, plan.target
    gone = [node for node in target.nodes if node in problem.leaving]
    if not gone:
        return plan
    spare = [node for node in problem.staying if node not in target.nodes][: len(gone)]
    known = sum(node not in problem.current.nodes for node in target.nodes)
    fresh = problem.joining(known + len(gone) - len(spare))[known:]
    heirs = dict(zip(gone, (*spare, *fresh), strict=True))
    runs = tuple(run._replace(node=heirs.get(run.node, run.node)) for run in target.runs)
    nodes = tuple(heirs.get(node, node) for node in target.nodes)
    found = Assignment(target.tasks, runs, nodes, target.epoch)
    return Plan(problem, found, plan.policy, note=plan.note)


def _near(
    problem: Problem, new: Ints, owners: list[NodeId | None], free: list[NodeId]
) -> list[NodeId]:
    """Order free nodes so that intervals without an owner stay on their host, as far as they can."""
    from scipy.optimize import linear_sum_assignment

    hosts, current = problem.hosts, problem.current
    lonely = [i for i, owner in enumerate(owners) if owner is None]
    names = sorted({hosts[node] for node in free if node in hosts})
    if not lonely or not names:
        return free
    number = {name: i for i, name in enumerate(names)}
    elsewhere = len(names)
    homes = [number.get(hosts.get(run.node, ""), elsewhere) for run in current.runs]
    shared = kernel.overlaps(
        problem.workload.size_prefix, run_bounds(current), np.array(homes, dtype=np.int64), new,
        len(names) + 1,
    )  # fmt: skip
    columns = [number.get(hosts.get(node, ""), elsewhere) for node in free]
    near = shared[lonely][:, columns]
    near[:, [column == elsewhere for column in columns]] = 0
    rows, chosen = linear_sum_assignment(near, maximize=True)
    first = {int(row): free[int(column)] for row, column in zip(rows, chosen, strict=True)}
    taken = set(first.values())
    return [first[row] for row in range(len(lonely))] + [n for n in free if n not in taken]


def _match_runs(problem: Problem, new: Ints) -> list[NodeId | None]:
    """Match when a node holds several runs: a general matching, by bytes in common."""
    from scipy.optimize import linear_sum_assignment

    current = problem.current
    index = {node: i for i, node in enumerate(current.nodes)}
    owners = np.array([index[run.node] for run in current.runs], dtype=np.int64)
    shared = kernel.overlaps(problem.gain_prefix, run_bounds(current), owners, new, len(index))
    found: list[NodeId | None] = [None] * (len(new) - 1)
    for row, column in zip(*linear_sum_assignment(shared, maximize=True), strict=True):
        if shared[row, column] > 0:
            found[row] = current.nodes[column]
    return found


def _checked(what: str, bounds: Sequence[int] | Ints, tasks: int) -> Ints:
    cuts = np.asarray(bounds)
    if cuts.ndim != 1 or len(cuts) < 2 or cuts.dtype.kind not in "iu":
        raise InputError(f"{what}: boundaries are whole numbers from 0 to {tasks}")
    if cuts[0] != 0 or cuts[-1] != tasks or any(b < a for a, b in pairwise(cuts.tolist())):
        raise InputError(f"{what}: boundaries must ascend from 0 to {tasks}")
    return cuts.astype(np.int64)
