"""What other systems do when the number of nodes changes. None of them looks at state sizes.

storm
    Equal counts of consecutive tasks, the larger shares first; the i-th interval goes to the i-th
    node. Nodes that leave are the last ones, nodes that join come at the end.
storm-matched
    The same intervals, but each goes to the node that already has most of it where that is
    possible: the best that can be done with Storm's partition.
flink
    Key groups: task k belongs to the subtask of index ⌊k·n′/m⌋, and the i-th subtask is the i-th
    node (`KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup`).

They ignore τ and the memory cap; the plan says whether they are met. Nodes are counted in the
order of their first tasks, idle ones last. O(m + n′), the matching aside.

>>> from meander.model import Workload
>>> now = Assignment.from_intervals([(k * 16, k * 16 + 16) for k in range(8)])
>>> groups = Problem(Workload([1] * 128, [1] * 128), now, nodes=9, tau=0.2)
>>> storm(groups).cost, storm_matched(groups).cost, flink(groups).cost
(57, 33, 60)
"""

from __future__ import annotations

import numpy as np

from meander.model import Assignment, Ints, NodeId, Plan, Problem
from meander.planning.exact.match import assign


def storm(problem: Problem) -> Plan:
    """Equal counts of consecutive tasks, i-th interval to i-th node."""
    owners = np.repeat(np.arange(problem.nodes), _shares(problem))
    return _in_order(problem, owners, "storm")


def storm_matched(problem: Problem) -> Plan:
    """Equal counts of consecutive tasks, each interval where most of it already is."""
    bounds = np.concatenate([[0], np.cumsum(_shares(problem))])
    return Plan(problem, assign(problem, bounds), "storm-matched")


def flink(problem: Problem) -> Plan:
    """Key-group ranges: task k to the node of index ⌊k·n′/m⌋."""
    tasks = problem.workload.tasks
    return _in_order(problem, np.arange(tasks) * problem.nodes // tasks, "flink")


def _shares(problem: Problem) -> Ints:
    """How many tasks each node gets: as equal as can be, the larger shares first."""
    share, more = divmod(problem.workload.tasks, problem.nodes)
    return share + (np.arange(problem.nodes) < more)


def _in_order(problem: Problem, owners: Ints, policy: str) -> Plan:
    """Make the plan in which index i means the i-th node."""
    target = Assignment.from_owners(owners, _line_up(problem), problem.current.epoch.next())
    return Plan(problem, target, policy)


def _line_up(problem: Problem) -> tuple[NodeId, ...]:
    """Name n′ nodes: the current ones by their first tasks, then idle ones, then new ones."""
    current = problem.current
    old = tuple(dict.fromkeys((*(run.node for run in current.runs), *current.nodes)))
    return old[: problem.nodes] + problem.joining(max(problem.nodes - len(old), 0))
