"""What the master asks planning for: a target, and the next round on the way to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from meander.model import Assignment, Plan, Problem, TaskId
from meander.protocol.master.pacer import PaceLimits


class CarriedRound(NamedTuple):
    """The next round: which tasks go where, and in which order their states travel."""

    moves: tuple[tuple[TaskId, str], ...]
    """(task, new owner)."""
    ranks: Mapping[TaskId, int]
    busiest_bytes: int
    """Of the busiest link: the length of the phase schedule."""


class PlanFunction(Protocol):
    """Decides what to move. Pure."""

    def __call__(self, problem: Problem) -> Plan:
        """Find a target; the master never asks for more than can be (τ is relaxed if need be)."""


class Carrier(Protocol):
    """Cuts the next round from what is left to move. Pure."""

    def __call__(
        self, current: Assignment, target: Assignment, sizes: list[int], limits: PaceLimits
    ) -> CarriedRound | None:
        """Give the next round; None when nothing is left."""
