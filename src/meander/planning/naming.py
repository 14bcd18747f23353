"""Which node gets which interval, once it is known which intervals keep their node.

The rules, the same for every planner that cuts the line into intervals:
  1. A matched interval stays with its node.
  2. With n′ < n exactly n - n′ nodes leave: unmatched ones, the last of them first.
     With n′ ≥ n nobody leaves.
  3. The other intervals go, from left to right, to surviving nodes without one, in the order of
     `current.nodes`, and then to nodes that join.
  4. Members without an interval are idle. They stand at the end of `nodes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from meander.model import Assignment, Problem, Run

FREE = -1
"""In `keep`: this interval stays with nobody."""


def name_intervals(problem: Problem, cuts: Sequence[int], keep: Sequence[int]) -> Assignment:
    """Make the target assignment from a partition and a matching.

    Args:
        problem: whose current members are to be kept where possible.
        cuts: the boundaries `0 = b₀ < b₁ < … < b_k = m` of at most n′ intervals.
        keep: for each interval the index in `current.nodes` of the node that keeps it, or `FREE`;
            no node twice.

    >>> from meander.model import Workload
    >>> now = Assignment.from_intervals([(0, 5), (5, 8), (8, 10)])
    >>> shrink = Problem(Workload([1] * 10, [1] * 10), now, nodes=2, tau=0.2)
    >>> name_intervals(shrink, [0, 6, 10], [0, FREE]).intervals()
    {'n1': Interval(lb=0, ub=6), 'n2': Interval(lb=6, ub=10)}
    """
    old = problem.current.nodes
    kept = {node for node in keep if node != FREE}
    assert len(keep) == len(cuts) - 1 <= problem.nodes, "more intervals than nodes"
    assert len(kept) == sum(node != FREE for node in keep), "a node keeps two intervals"
    spare = [old[i] for i in range(len(old)) if i not in kept]
    del spare[min(problem.nodes, len(old)) - len(kept) :]
    spare += problem.joining(max(problem.nodes - len(old), 0))
    spare.reverse()
    names = [spare.pop() if node == FREE else old[node] for node in keep]
    runs = tuple(map(Run, cuts, cuts[1:], names))
    nodes = (*names, *reversed(spare))
    return Assignment(problem.workload.tasks, runs, nodes, problem.current.epoch.next())
