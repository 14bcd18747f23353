"""Operators with nodes of their own: each group is planned by itself, and one migration carries it out.

Groups share no nodes, so what one does is nothing to another: the sum of their optima is the optimum
(under the caps of `joint`). A task that is on a node of another group, for which that stood in, must
move.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from meander.model import Assignment, Group, NodeId, Plan, Problem, Workload
from meander.planning.exact.joint import joint


def grouped(
    problem: Problem, ends: Sequence[int], policy: str = "ssm", *, relax: bool = False
) -> Plan:
    """Find a plan for several groups of operators; arguments as for `joint`.

    >>> now = Assignment.from_owners(np.array([0, 0, 1, 1]), ["a", "b"])
    >>> each = (Group((0,), 2, ("a",), ("a2",)), Group((1,), 1, ("b",), ("b2",)))
    >>> found = grouped(Problem(Workload([1] * 4, [1] * 4), now, 3, 0, groups=each), [2, 4])
    >>> found.cost, found.optimal, found.target.nodes
    (1, True, ('a', 'a2', 'b'))

    Raises:
        InfeasibleError: if a range cannot meet its cap.
    """
    ranges = list(pairwise((0, *ends)))
    owners = np.zeros(problem.workload.tasks, dtype=np.int64)
    nodes, plans = list[NodeId](), list[Plan]()
    for group in problem.groups:
        own = [ranges[i] for i in group.operators]
        tasks = np.concatenate([np.arange(lb, ub) for lb, ub in own])
        part = _part(problem, group, tasks)
        found = joint(part, list(accumulate(ub - lb for lb, ub in own)), policy, relax=relax)
        owners[tasks] = len(nodes) + found.target.owners()
        nodes += found.target.nodes
        plans.append(found)
    target = Assignment.from_owners(owners, nodes, problem.current.epoch.next())
    bounds = [found.cost if found.bound is None else found.bound for found in plans]
    known = all(found.bound is not None for found in plans)
    note = "; ".join(found.note for found in plans if found.note)
    optimal = all(found.optimal for found in plans)
    return Plan(problem, target, policy, optimal, sum(bounds) if known else None, note)


def _part(problem: Problem, group: Group, tasks: np.ndarray) -> Problem:
    """Cut the tasks of a group out; nodes of others that have some of them must leave."""
    load, current = problem.workload, problem.current
    names = [current.nodes[i] for i in current.owners()[tasks]]
    nodes = list(dict.fromkeys([*group.members, *names]))
    place = {node: i for i, node in enumerate(nodes)}
    here = Assignment.from_owners(np.array([place[n] for n in names]), nodes, current.epoch)
    strangers = set(nodes) - set(group.members)
    leaving = (problem.leaving & set(nodes)) | strangers
    hosts = {node: problem.hosts[node] for node in nodes if node in problem.hosts}
    part = Workload(load.work[tasks], load.size[tasks])
    return Problem(part, here, group.nodes, problem.tau, problem.memory_cap, group.new_nodes, leaving,
                   hosts)  # fmt: skip
