"""What the master asks planning for: a target, and the next round on the way to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from meander.model import Assignment, NodeId, Plan, Problem, TaskId
from meander.protocol.master.pacer import PaceLimits, Pacer


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
        self,
        current: Assignment,
        target: Assignment,
        sizes: list[int],
        limits: PaceLimits,
        hosts: Mapping[NodeId, str],
    ) -> CarriedRound | None:
        """Give the next round; None when nothing is left. Nodes of one host share its link."""


class CutRound(NamedTuple):
    """A round, and how much there was to cut it from."""

    found: CarriedRound
    left_bytes: int
    """Of the busiest link, this round with it; 0 where nobody has said how long all may take."""


def cut(
    carrier: Carrier,
    pacer: Pacer,
    current: Assignment,
    target: Assignment,
    weights: list[int],
    now: float,
    hosts: Mapping[NodeId, str],
) -> CutRound | None:
    """Cut the next round as large as the pacer allows; None: nothing is left."""
    left = 0
    if pacer.until is not None:
        whole = carrier(current, target, weights, PaceLimits(), hosts)
        left = 0 if whole is None else whole.busiest_bytes
    found = carrier(current, target, weights, pacer.limits(now, left), hosts)
    return None if found is None else CutRound(found, left)
