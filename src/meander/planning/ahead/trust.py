"""Whether looking ahead pays here: a shadow of `ssm` walks beside the policy.

At each migration `ssm` also plans for a shadow, from where its own last plan has left that. What
it moves, less what the policy moves, is what looking ahead has saved. When the last migrations say
that it *costs* (by more than the error of their mean), the policy pauses: plans are those of
`ssm`. After the pause it tries again, with a clean record; each further failure doubles the pause,
so that in the long run a trace that cannot be foreseen costs next to nothing.

This is the trial on recorded weights, on the trace itself, for as long as it runs.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from meander.model import Ints, Plan, Problem
from meander.planning.exact.feasible import cap_of
from meander.planning.exact.match import pair_cost, run_bounds
from meander.planning.exact.ssm import ssm_partition

BLOCK = 24
"""Neighbouring migrations depend on each other: the error is that of the means of blocks."""
BLOCKS_MIN, BLOCKS_MAX = 3, 10
PAUSE = 240
"""Migrations of the first pause."""


class Trust:
    """The shadow, and what looking ahead has saved against it."""

    def __init__(self) -> None:
        self.saved: deque[float] = deque(maxlen=BLOCK * BLOCKS_MAX)
        """Shares of all state, per migration."""
        self.pause = 0
        """Migrations still to be planned by ssm."""
        self.next_pause = PAUSE
        self._shadow: Ints | None = None
        self._left: Ints | None = None
        """Boundaries where the shadow, and where the policy, was left."""
        self._shadow_cost = 0.0

    def begin(self, problem: Problem) -> bool:
        """Move the shadow; say whether to look ahead. The problem must be feasible."""
        now, load = run_bounds(problem.current), problem.workload
        if self._left is None or not np.array_equal(now, self._left):
            self._shadow = now  # somebody else has moved tasks: begin beside them
        assert self._shadow is not None
        found = ssm_partition(
            load, self._shadow, problem.nodes, cap_of(problem), problem.memory_cap
        )
        assert found is not None, "the problem is feasible"
        self._shadow_cost = pair_cost(load, self._shadow, found) / max(load.total_size, 1)
        self._shadow = found
        return self.pause == 0

    def end(self, found: Plan) -> None:
        """Learn what was planned."""
        self._left = run_bounds(found.target)
        if self.pause > 0:
            self.pause -= 1
            return
        self.saved.append(self._shadow_cost - found.cost_share)
        if self._costs():
            self.pause, self.next_pause = self.next_pause, 2 * self.next_pause
            self.saved.clear()

    def _costs(self) -> bool:
        """Whether the last migrations say that looking ahead costs more than it saves."""
        blocks = len(self.saved) // BLOCK
        if blocks < BLOCKS_MIN or len(self.saved) % BLOCK:
            return False
        means = np.array(self.saved).reshape(blocks, BLOCK).mean(axis=1)
        return bool(means.mean() < -means.std(ddof=1) / np.sqrt(blocks))
