"""One migration: from an origin towards a target, round by round, until nobody is left to dismiss.

LAUNCHING ──all up──► MOVING ──no moves left──► DRAINING ──all dismissed──► COMPLETED
    │                   │ ▲
    │                abort resume          roll back: MOVING, with the origin as target
    └──abort──► ABORTED ◄┘                 (it then ends as ROLLED_BACK)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from meander.errors import ProtocolError
from meander.model import Assignment, Plan, Problem, TaskId
from meander.protocol.pacer import Limits, RoundReport

if TYPE_CHECKING:
    from meander.protocol.ahead import Ahead


class Stage(Enum):
    """How far a migration is."""

    LAUNCHING = "launching"
    """Waiting for nodes that join."""
    MOVING = "moving"
    DRAINING = "draining"
    """Nothing is left to move; nodes that leave wait until nobody can still send to them."""
    ABORTED = "aborted"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled back"


class Step(Enum):
    """Why a migration changes its stage."""

    ALL_UP = "all up"
    ALL_MOVED = "all moved"
    ALL_DISMISSED = "all dismissed"
    ALL_BACK = "all back"
    """The same, but of a migration that was rolled back."""
    ABORT = "abort"
    RESUME = "resume"
    ROLL_BACK = "roll back"


STAGES: Final[Mapping[tuple[Stage, Step], Stage]] = {
    (Stage.LAUNCHING, Step.ALL_UP): Stage.MOVING,
    (Stage.LAUNCHING, Step.ABORT): Stage.ABORTED,
    (Stage.LAUNCHING, Step.ROLL_BACK): Stage.MOVING,
    (Stage.MOVING, Step.ALL_MOVED): Stage.DRAINING,
    (Stage.MOVING, Step.ABORT): Stage.ABORTED,
    (Stage.MOVING, Step.ROLL_BACK): Stage.MOVING,
    (Stage.DRAINING, Step.ALL_DISMISSED): Stage.COMPLETED,
    (Stage.DRAINING, Step.ALL_BACK): Stage.ROLLED_BACK,
    (Stage.DRAINING, Step.ROLL_BACK): Stage.MOVING,
    (Stage.ABORTED, Step.RESUME): Stage.LAUNCHING,
    (Stage.ABORTED, Step.ROLL_BACK): Stage.MOVING,
}

ENDED: Final = frozenset({Stage.COMPLETED, Stage.ROLLED_BACK})


class CarriedRound(NamedTuple):
    """The next round: which tasks go where, and in which order their states travel."""

    moves: tuple[tuple[TaskId, str], ...]
    """(task, new owner)."""
    ranks: Mapping[TaskId, int]
    busiest_bytes: int
    """Of the busiest link: the length of the phase schedule."""


class Planner(Protocol):
    """Decides what to move. Pure."""

    def __call__(self, problem: Problem) -> Plan:
        """Find a target; the master never asks for more than can be (τ is relaxed if need be)."""


class Carrier(Protocol):
    """Cuts the next round from what is left to move. Pure."""

    def __call__(
        self, current: Assignment, target: Assignment, sizes: list[int], limits: Limits
    ) -> CarriedRound | None:
        """Give the next round; None when nothing is left."""


class Migration:
    """The migration that is under way, or the last one."""

    def __init__(self, number: int, origin: Assignment, target: Assignment, now: float) -> None:
        self.number = number
        self.origin = origin
        self.target = target
        self.stage = Stage.LAUNCHING
        self.rolling_back = False
        self.started_at = now
        self.round_at = now
        self.round_tasks: set[TaskId] = set()
        """Tasks of the round under way that are not installed."""
        self.round_size = 0
        self.round_weight = 0
        """Of the busiest link, with tolls."""
        self.round_count = 0
        self.predicted_s = 0.0
        self.measured_s = 0.0
        self.round_epoch = ""
        self.reports: list[RoundReport] = []
        self.ahead: Ahead | None = None
        """The round that waits for its copies."""
        self.copy_s = 0.0
        """How long the next round has waited for them so far."""
        self.round_copy_s = 0.0
        """How long the round under way has waited for its own."""
        self.moved = 0
        self.second_moves = 0

    def go(self, step: Step) -> None:
        """Change the stage as the table says."""
        try:
            self.stage = STAGES[self.stage, step]
        except KeyError:
            raise ProtocolError(
                f"migration {self.number} is {self.stage.value}: it cannot {step.value}"
            ) from None

    @property
    def active(self) -> bool:
        """Whether it is neither ended nor aborted."""
        return self.stage not in ENDED and self.stage is not Stage.ABORTED

    def report(self, now: float) -> dict[str, Any]:
        """Tell what happened so far."""
        return {
            "migration": self.number,
            "stage": self.stage.value,
            "nodes": len(self.target.nodes),
            "rounds": [r._asdict() for r in self.reports],
            "moved": self.moved,
            "second_moves": self.second_moves,
            "seconds": now - self.started_at,
        }
