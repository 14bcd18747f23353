"""How evenly n nodes can share the tasks: the busiest node of the best plan, exactly.

A plan gives every node one interval of tasks. The least that the busiest node of n can have is found
by `planning`'s kernel (bisection over whole numbers, greedy covers); it never grows with n. So the
smallest n that keeps every node below a limit is found by looking at few n.
"""

from __future__ import annotations

import numpy as np

from meander.model import Ints


class Split:
    """Shares of the work that the busiest of n nodes has, for one work of the tasks.

    >>> split = Split(np.array([1, 1, 1, 1, 4], np.int64))
    >>> round(split.share(1), 2), round(split.share(2), 2), round(split.share(9), 2)
    (1.0, 0.54, 0.38)
    >>> split.smallest(load=1000, node_rows_s=600, low=1, high=5)
    2
    """

    def __init__(self, work: Ints) -> None:
        self.work = work
        whole = (
            work.astype(np.int64) + 1
        )  # as the master counts: a task without rows weighs something
        self.total = int(whole.sum())
        self.heaviest_task = int(whole.argmax())
        self.heaviest = int(whole.max()) / self.total
        """The share of the heaviest task: no plan does better."""
        self._work_prefix = np.concatenate([[0], np.cumsum(whole)]).astype(np.int64)
        self._no_bytes = np.zeros(len(whole) + 1, np.int64)
        self._shares: dict[int, float] = {}

    def share(self, nodes: int) -> float:
        """Tell the share of the busiest of so many nodes, by the best plan."""
        found = self._shares.get(nodes)
        if found is None:
            from meander.planning.kernels.windows import smallest_load

            least = int(smallest_load(self._work_prefix, self._no_bytes, 2**62, nodes))
            found = self._shares[nodes] = least / self.total
        return found

    def smallest(self, load: float, node_rows_s: float, low: int, high: int) -> int:
        """Tell the smallest n from `low` to `high` whose busiest node stays within a limit.

        `high` if there is none: look at `share` whether it is enough.
        """
        if load <= 0:
            return low
        while low < high:
            middle = (low + high) // 2
            if load * self.share(middle) <= node_rows_s:
                high = middle
            else:
                low = middle + 1
        return low
