"""The pause budget: how much may move at once so that no tuple waits longer than the caller said.

A round's pause is predicted as `overhead + bytes of its busiest link / bandwidth`; both are measured
on every install and corrected. A round that took longer than the budget halves the next one; two in
a row, and rounds shrink to a single task until one fits again.
"""

from __future__ import annotations

from typing import NamedTuple

GAIN = 0.3
"""How much of a new measurement enters the estimate."""


class Limits(NamedTuple):
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


class Pacer:
    """Sizes the rounds of one migration."""

    def __init__(self, bandwidth_bytes_s: float, overhead_s: float) -> None:
        self.bandwidth_bytes_s = bandwidth_bytes_s
        self.overhead_s = overhead_s
        self.budget_s: float | None = None
        self._wish = Limits()
        self._shrink = 1.0
        self._exceeded = 0
        """Rounds in a row that took longer than the budget."""

    def start(self, budget_s: float | None, wish: Limits) -> None:
        """Begin a migration with what its caller wants."""
        self.budget_s, self._wish, self._shrink, self._exceeded = budget_s, wish, 1.0, 0

    def limits(self) -> Limits:
        """Size the next round."""
        if self.budget_s is None:
            return self._wish
        if self._exceeded >= 2:
            return Limits(tasks_max=1)
        room = max(0.0, self.budget_s - self.overhead_s) * self.bandwidth_bytes_s * self._shrink
        return self._wish._replace(link_bytes_max=max(1, int(room)))

    def predict(self, size: int) -> float:
        """Predict the pause of a round whose busiest link carries `size` bytes."""
        return self.overhead_s + size / self.bandwidth_bytes_s

    def observe_install(self, size: int, transfer_s: float) -> None:
        """Learn from one task's transfer."""
        if transfer_s <= 0 or size <= 0:
            return
        wire_s = transfer_s - self.overhead_s
        if (
            wire_s > 0.25 * transfer_s
        ):  # else the transfer was all overhead and says nothing of speed
            self.bandwidth_bytes_s += GAIN * (size / wire_s - self.bandwidth_bytes_s)
        rest = transfer_s - size / self.bandwidth_bytes_s
        self.overhead_s = max(1e-4, self.overhead_s + GAIN * (rest - self.overhead_s))

    def observe_round(self, measured_s: float) -> None:
        """Compare a finished round with the budget."""
        if self.budget_s is None:
            return
        if measured_s > self.budget_s:
            self._exceeded += 1
            self._shrink = max(0.01, self._shrink / 2)
        else:
            self._exceeded = 0
            self._shrink = min(1.0, self._shrink * 1.25)
