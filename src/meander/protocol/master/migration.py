"""One migration: from an origin towards a target, round by round, until nobody is left to dismiss.

LAUNCHING ──all up──► MOVING ──no moves left──► DRAINING ──all dismissed──► COMPLETED
    │                   │ ▲
    │                abort resume          roll back: MOVING, with the origin as target
    └──abort──► ABORTED ◄┘                 (it then ends as ROLLED_BACK)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from meander.errors import BrokenRuleError, ProtocolError
from meander.model import Assignment, TaskId
from meander.protocol.master.copies_ahead import Ahead
from meander.protocol.master.pacer import RoundReport


class MigrationStage(Enum):
    """How far a migration is."""

    LAUNCHING = "launching"
    """Waiting for nodes that join."""
    MOVING = "moving"
    DRAINING = "draining"
    """Nothing is left to move; nodes that leave wait until nobody can still send to them."""
    ABORTED = "aborted"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled back"


class MigrationStep(Enum):
    """Why a migration changes its stage."""

    ALL_UP = "all up"
    ALL_MOVED = "all moved"
    ALL_DISMISSED = "all dismissed"
    ALL_BACK = "all back"
    """The same, but of a migration that was rolled back."""
    ABORT = "abort"
    RESUME = "resume"
    ROLL_BACK = "roll back"


STAGES: Final[Mapping[tuple[MigrationStage, MigrationStep], MigrationStage]] = {
    (MigrationStage.LAUNCHING, MigrationStep.ALL_UP): MigrationStage.MOVING,
    (MigrationStage.LAUNCHING, MigrationStep.ABORT): MigrationStage.ABORTED,
    (MigrationStage.LAUNCHING, MigrationStep.ROLL_BACK): MigrationStage.MOVING,
    (MigrationStage.MOVING, MigrationStep.ALL_MOVED): MigrationStage.DRAINING,
    (MigrationStage.MOVING, MigrationStep.ABORT): MigrationStage.ABORTED,
    (MigrationStage.MOVING, MigrationStep.ROLL_BACK): MigrationStage.MOVING,
    (MigrationStage.DRAINING, MigrationStep.ALL_DISMISSED): MigrationStage.COMPLETED,
    (MigrationStage.DRAINING, MigrationStep.ALL_BACK): MigrationStage.ROLLED_BACK,
    (MigrationStage.DRAINING, MigrationStep.ROLL_BACK): MigrationStage.MOVING,
    (MigrationStage.ABORTED, MigrationStep.RESUME): MigrationStage.LAUNCHING,
    (MigrationStage.ABORTED, MigrationStep.ROLL_BACK): MigrationStage.MOVING,
}

ENDED: Final = frozenset({MigrationStage.COMPLETED, MigrationStage.ROLLED_BACK})


class Origin(NamedTuple):
    """Where a migration began, and whether there is a way back."""

    owners: Assignment
    version: int
    """Of the operator."""
    one_way: bool = False


class Migration:
    """The migration that is under way, or the last one."""

    def __init__(self, number: int, origin: Origin, target: Assignment, now: float) -> None:
        self.number = number
        self.origin = origin
        self.target = target
        self.stage = MigrationStage.LAUNCHING
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
        self.turned = 0
        """How often a round was turned around: a state may just take longer than it was given."""
        self.reports: list[RoundReport] = []
        self.ahead: Ahead | None = None
        """The round that waits for its copies."""
        self.copy_s = 0.0
        """How long the next round has waited for them so far."""
        self.round_copy_s = 0.0
        """How long the round under way has waited for its own."""
        self.moved = 0
        self.second_moves = 0

    def go(self, step: MigrationStep) -> None:
        """Change the stage as the table says.

        Raises:
            BrokenRuleError: if the table has no such row.
        """
        try:
            self.stage = STAGES[self.stage, step]
        except KeyError:
            raise BrokenRuleError(
                f"migration {self.number} is {self.stage.value}: it cannot {step.value}"
            ) from None

    def refuse_unless(self, step: MigrationStep) -> None:
        """Refuse a command that the table has no row for.

        Raises:
            ProtocolError: nothing has changed.
        """
        if (self.stage, step) not in STAGES:
            raise ProtocolError(
                f"migration {self.number} is {self.stage.value}: it cannot {step.value}"
            )

    @property
    def active(self) -> bool:
        """Whether it is neither ended nor aborted."""
        return self.stage not in ENDED and self.stage is not MigrationStage.ABORTED

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
