"""How weights will drift, and how likely a partition then breaks the cap.

Weights are sums over a window of slots. What leaves the window in the next s slots is known; what
enters is predicted: as much work as leaves, with the tasks' shares in the whole window. So the
work of a task in s slots is

    predicted_s = window - leaving_s + |leaving_s| · share

Its error is learnt: each slot, the prediction made a lag ago is compared with what came, and every
task keeps a fading mean square of that. Errors of tasks are taken as independent, and to grow with
the root of the time. An interval with predicted load l and error σ is over its cap by chance
P(over) = Φ((l - cap)/σ), by E(over) work on average. Repairing it costs at least a task, and at
least the work that is too much; in shares of all state this is priced at

    risk = price · Σ over intervals of  P(over)/m + E(over)/W
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np

from meander.errors import InputError
from meander.planning.kernels.types import Floats, Ints

LAG = 24
"""Slots after which a prediction is compared with what came."""
FORGET = 0.02
"""How much of the mean square error is replaced by each new one."""


class Drift:
    """Learns from each slot's work; predicts windows to come."""

    def __init__(self, window: int) -> None:
        """Weights are sums over so many slots."""
        self.window = window
        self.recent: deque[Ints] = deque(maxlen=window)
        self.total: Floats | None = None
        self.square: Floats | None = None
        """Mean square error per task, of shares, after `LAG` slots."""
        self._made: deque[Floats] = deque(maxlen=LAG)

    def observe(self, work: Ints) -> None:
        """Learn the work of the slot that has just ended."""
        fresh = work.astype(np.float64)
        if self.total is None:
            self.total = np.zeros(len(work))
        if len(work) != len(self.total):
            raise InputError(f"work of {len(work)} tasks after that of {len(self.total)}")
        if len(self.recent) == self.window:
            self.total -= self.recent[0]
        self.recent.append(work)
        self.total += fresh
        if len(self.recent) < self.window:
            return
        if len(self._made) == LAG:
            error = (self._share(self.total) - self._made[0]) ** 2
            self.square = error if self.square is None else (
                (1 - FORGET) * self.square + FORGET * error
            )  # fmt: skip
        self._made.append(self._share(self.predicted(np.array([LAG]))[0]))

    @staticmethod
    def _share(work: Floats) -> Floats:
        return work / max(float(work.sum()), 1.0)

    @property
    def tasks(self) -> int:
        """The number of tasks; 0 before the first."""
        return 0 if self.total is None else len(self.total)

    @property
    def known(self) -> bool:
        """Whether there is anything to predict with."""
        return self.square is not None

    def predicted(self, slots: Ints) -> Floats:
        """Give `[slot, task]`: the window's work so many slots from now."""
        assert self.total is not None
        far = np.minimum(slots, len(self.recent))
        first = np.stack(list(islice(self.recent, int(far.max()))))
        leaving = np.cumsum(first, axis=0, dtype=np.float64)[far - 1]
        share = self._share(self.total)
        return np.asarray(self.total - leaving + leaving.sum(axis=1, keepdims=True) * share)

    def errors(self, slots: Ints) -> Floats:
        """Give `[slot, task]`: the variance of the predicted shares."""
        assert self.square is not None
        return np.asarray(np.outer(slots / LAG, self.square))
