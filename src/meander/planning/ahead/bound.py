"""What no policy can go below: a certified lower bound for a sequence of migrations.

Take the states i … j of any path (state t is the partition after migration t). A task that no
migration between them moves has one owner throughout. The tasks that a node keeps so are the
intersection of its intervals in all those states: one run, within the caps of *every* state. So
the tasks that never move form at most `min n` disjoint runs, each legal everywhere, and

    moved between i and j  ≥  all state  -  the most that such runs can hold

which a small dynamic programme computes. Where sizes change meanwhile, a task counts with its
smallest share. Steps of disjoint windows add up, and a second dynamic programme chooses the windows.

The bound holds for every policy, with any knowledge of the future. It is not tight: within one
window a task counts once, however often it has to move.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.model import Assignment
from meander.planning.ahead.clairvoyant import PathStage
from meander.planning.exact.match import run_bounds
from meander.planning.kernels import bound as kernel
from meander.planning.kernels.windows import windows

LONGEST = 60
"""Most migrations of a window: a few days; longer ones never helped."""


def least_cost(start: Assignment, stages: Sequence[PathStage], longest: int = LONGEST) -> float:
    """Give a share of all state that all migrations together must move, whoever plans them.

    >>> from meander.model import Workload
    >>> load = Workload([1] * 4, [1] * 4)
    >>> start = Assignment.from_intervals([(0, 4)])
    >>> least_cost(start, [PathStage(load, 2, 2), PathStage(load, 1, 4), PathStage(load, 2, 2)])
    1.5
    """
    if not stages:
        return 0.0
    cuts = run_bounds(start)
    first = np.zeros(start.tasks + 1, dtype=np.int64)
    first[1:] = cuts[np.searchsorted(cuts, np.arange(1, start.tasks + 1)) - 1]
    wins = [first]
    for load, _, cap in stages:
        wins.append(windows(load.work_prefix, load.size_prefix, cap, load.total_size))
    nodes = np.array([len(cuts) - 1, *(stage.nodes for stage in stages)], dtype=np.int64)
    shares = np.stack([stage.workload.size / max(stage.workload.total_size, 1) for stage in stages])
    out = np.empty((len(wins), min(longest, len(stages)) + 1))
    kernel.window_bounds(np.stack(wins), nodes, shares, out.shape[1] - 1, out)
    return float(kernel.packed(out))
