"""The pause budget: how much may move at once so that no tuple waits longer than the caller allows.

A node installs states one after another, so the last tuple of a round waits for all of them:

    pause = overhead + Σ over the tasks of the busiest link (task_s + share · bytes / bandwidth)

The share is what is left of a state when it was copied ahead (`copies_ahead`); 1 if it was not. It is
learned from what was moved, the cost of a task and the bandwidth are fitted to every fetch, the
overhead (hearing of the round, freezing) to what a whole round took beyond that, and so is by how much
that differs from round to round: a round is sized for one that goes worse than most. A task weighs
`share · bytes + toll`, the toll being its cost in bytes of the link; rounds are sized and predicted in
such bytes. A round that took longer than the
budget halves the next one; two in a row, and rounds shrink to a single task until one fits again.
The first round of all is a single task, too: what the links can do is not guessed.

A caller may say instead how long the whole migration may take. Half of the time that is left goes to
rounds as such (`ROUND_S` each), so many are cut that all are of one weight: the more time, the smaller
the pause. The other half is for copies, and makes the rate that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

GAIN = 0.3
"""How much of a new round enters the estimate of the overhead."""
SCATTER = 3.0
"""A round has so many times as much to spare as pauses differ from their mean, in the mean."""
SPARED_MAX = 0.75
"""Of what the budget leaves beyond the overhead: no more is spared, however much they differ."""
FADE = 0.05
"""How much of what was learned from installs each new one replaces."""
BANDWIDTH_BYTES_S_MAX = 1e12
"""No link is faster: where all transfers took about as long, a line through them has hardly a slope."""
ROUND_S = 0.2
"""What a round with copies takes besides them: to ask, to catch up, to publish, to install."""
ROUNDS_SHARE = 0.5
"""Of the time that a migration may take: for rounds as such, not for bytes."""


class PaceLimits(NamedTuple):
    """What one round may hold; None: no limit."""

    tasks_max: int | None = None
    bytes_max: int | None = None
    link_bytes_max: int | None = None
    """Over the busiest link: what the pause budget leaves room for."""


class RoundReport(NamedTuple):
    """One round, predicted and measured."""

    epoch: str
    tasks: int
    bytes: int
    predicted_s: float
    measured_s: float
    """The longest that a tuple had to wait for its task's state; 0 if none did."""
    duration_s: float
    copy_s: float = 0.0
    """Before that, how long its tasks were copied ahead, while they were served."""


class Pacer:
    """Sizes the rounds of one migration."""

    def __init__(self, bandwidth_bytes_s: float, overhead_s: float, task_s: float = 0.002) -> None:
        self.bandwidth_bytes_s = bandwidth_bytes_s
        self.overhead_s = overhead_s
        self.scatter_s = overhead_s / 2
        """By how much rounds differ from that, in the mean."""
        self.task_s = task_s
        self.budget_s: float | None = None
        self.until: float | None = None
        """When the caller wants all to be done; None: it has not said."""
        self.copy_bytes_s = bandwidth_bytes_s
        """How fast the busiest node was copied from, lately."""
        self._wish = PaceLimits()
        self._shrink = 1.0
        self._exceeded = 0
        """Rounds in a row that took longer than the budget."""
        self.share = 1.0
        """How much of a state moves while tuples wait: all of it, if it was not copied ahead."""
        self._shares = 0
        """How often that was seen."""
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Of installs, older ones fading: count, bytes, seconds, bytes², bytes·seconds."""

    def start(self, budget_s: float | None, wish: PaceLimits, until: float | None = None) -> None:
        """Begin a migration with what its caller wants."""
        self.budget_s, self._wish, self._shrink, self._exceeded = budget_s, wish, 1.0, 0
        self.until = until

    @property
    def copies(self) -> bool:
        """Whether states are copied ahead: the caller cares how long rows wait."""
        return self.budget_s is not None or self.until is not None

    @property
    def measured(self) -> bool:
        """Whether it is known what the links can do."""
        return bool(self._sums[0] or self._shares)

    def limits(self, now: float = 0.0, left: int = 0) -> PaceLimits:
        """Size the next round, its link in bytes with tolls; `left`: what the busiest has in all."""
        if self.budget_s is None:
            if self.until is None:
                return self._wish
            rounds = max(1, int((self.until - now) * ROUNDS_SHARE / ROUND_S))
            return self._wish._replace(link_bytes_max=max(1, ceil(left / rounds)))
        if self._exceeded >= 2 or not self.measured:  # try one task first
            return PaceLimits(tasks_max=1)
        left_s = max(0.0, self.budget_s - self.overhead_s)
        room_s = left_s - min(SCATTER * self.scatter_s, SPARED_MAX * left_s)
        room = room_s * self.bandwidth_bytes_s * self._shrink
        return self._wish._replace(link_bytes_max=max(1, int(room)))

    def weights(self, sizes: Sequence[int]) -> list[int]:
        """Give what every task weighs: its bytes and its toll."""
        toll = int(self.task_s * self.bandwidth_bytes_s)
        return [int(size * self.share) + toll for size in sizes]

    def copy_s(self, now: float, weight: int, left: int) -> float | None:
        """Tell how long the copies of a round may take: its share of the time; None: any."""
        if self.until is None:
            return None
        return max(0.0, self.until - now) * (1 - ROUNDS_SHARE) * weight / max(weight, left, 1)

    def observe_copy(self, size: int, seconds: float) -> None:
        """Learn how fast the busiest node was copied from."""
        if size > 0 and seconds > 0:
            self.copy_bytes_s += GAIN * (size / seconds - self.copy_bytes_s)

    def predict(self, weight: int) -> float:
        """Predict the pause of a round whose busiest link carries so much."""
        return self.overhead_s + weight / self.bandwidth_bytes_s

    def observe_share(self, moved: int, size: int) -> None:
        """Learn how much of a state had to move when its tuples waited."""
        if size > 0:
            seen = min(1.0, moved / size)
            self.share = seen if self._shares == 0 else self.share + GAIN * (seen - self.share)
            self._shares += 1

    def observe_install(self, size: int, transfer_s: float) -> None:
        """Learn from one task's transfer: a line through what was seen lately."""
        if transfer_s <= 0 or size <= 0:
            return
        x, y, keep = float(size), transfer_s, 1 - FADE
        seen = (1.0, x, y, x * x, x * y)
        self._sums = n, sx, sy, sxx, sxy = tuple(  # type: ignore[assignment]
            keep * old + new for old, new in zip(self._sums, seen, strict=True)
        )
        mean_x, mean_y = sx / n, sy / n
        spread = sxx / n - mean_x * mean_x
        slope = (sxy / n - mean_x * mean_y) / spread if spread > (0.1 * mean_x) ** 2 else 0.0
        if slope > 0 and n > 4:
            self.bandwidth_bytes_s = min(1 / slope, BANDWIDTH_BYTES_S_MAX)
        elif mean_x / self.bandwidth_bytes_s > mean_y:  # faster than was thought possible
            self.bandwidth_bytes_s = min(mean_x / mean_y, BANDWIDTH_BYTES_S_MAX)
        self.task_s = max(0.0, mean_y - mean_x / self.bandwidth_bytes_s)

    def observe_round(self, measured_s: float, weight: int = 0) -> bool:
        """Compare a finished round with its prediction; say whether it was within the budget."""
        if measured_s > 0 and weight:
            rest = max(1e-4, measured_s - weight / self.bandwidth_bytes_s)
            error = rest - self.overhead_s
            self.overhead_s += GAIN * error
            self.scatter_s += GAIN * (abs(error) - self.scatter_s)
        if self.budget_s is None:
            return True
        if measured_s > self.budget_s:
            self._exceeded += 1
            self._shrink = max(0.01, self._shrink / 2)
            return False
        self._exceeded = 0
        self._shrink = min(1.0, self._shrink * 1.25)
        return True
