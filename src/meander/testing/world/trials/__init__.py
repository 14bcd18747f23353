"""Real operators on Arrow rows, and what must come of them.

    trial       what a trial is, and what all of them need to judge
    words       word count: a keyed table, many tasks in one call
    patterns    frequent patterns: an operator that feeds its own input
    windows     windows of event time: timers, watermarks, outputs
    reminders   timers by the clock
    emits       an answer to every row, and deletions
    relays      a topology: operators that feed one another, with a loop
    cascades    a topology: windows behind an operator that passes rows on
    own         an operator of a user's own
    mischief    any operator, made to fail or to take long

One more has a processor written for Spark; it is loaded when it is drawn, where there is a `pyspark`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import TypeAlias

from meander.errors import InputError
from meander.testing.world.trials.cascades import CascadeTrial
from meander.testing.world.trials.emits import EmitTrial
from meander.testing.world.trials.mischief import METHODS, Bug, Mischief, Prank
from meander.testing.world.trials.own import Judge, OwnTrial
from meander.testing.world.trials.patterns import PatternTrial
from meander.testing.world.trials.relays import RelayTrial
from meander.testing.world.trials.reminders import ReminderTrial
from meander.testing.world.trials.trial import (
    EXTENT,
    QUIET_S,
    Outputs,
    States,
    TrialSize,
    WorldTrial,
)
from meander.testing.world.trials.windows import WindowTrial
from meander.testing.world.trials.words import WordTrial

__all__ = [
    "EXTENT",
    "METHODS",
    "QUIET_S",
    "Bug",
    "CascadeTrial",
    "EmitTrial",
    "Judge",
    "Mischief",
    "Outputs",
    "OwnTrial",
    "PatternTrial",
    "Prank",
    "RelayTrial",
    "ReminderTrial",
    "States",
    "TrialSize",
    "WindowTrial",
    "WordTrial",
    "WorldTrial",
    "draw",
    "named",
]

Maker: TypeAlias = Callable[[Random, int, TrialSize], WorldTrial]


def _processor(random: Random, tasks: int, extent: TrialSize) -> WorldTrial:
    """Make a trial that needs pyspark."""
    found: WorldTrial = import_module("meander.spark.processor.trial").ProcessorTrial(
        random, tasks, extent
    )
    return found


MAKERS: dict[str, Maker] = {
    "words": WordTrial,
    "patterns": PatternTrial,
    "windows": WindowTrial,
    "reminders": ReminderTrial,
    "emits": EmitTrial,
    "processor": _processor,
    "relays": RelayTrial,
    "cascades": CascadeTrial,
}
"""By the names of trials."""
WEIGHTS = (3, 2, 3, 1, 3, 4, 3, 2)
"""How often each is drawn."""


def draw(random: Random, tasks: int, extent: TrialSize = EXTENT) -> WorldTrial:
    """Draw a trial. Without pyspark, what would be that of a processor is another one."""
    (name,) = random.choices(list(MAKERS), WEIGHTS)
    if name == "processor" and find_spec("pyspark") is None:
        name = "emits"
    return MAKERS[name](random, tasks, extent)


def named(name: str, random: Random, tasks: int, extent: TrialSize = EXTENT) -> WorldTrial:
    """Make the trial of a name.

    Raises:
        InputError: if it needs what is not installed.
    """
    if name == "processor" and find_spec("pyspark") is None:
        raise InputError("the trial of a processor needs pyspark, which is not installed")
    return MAKERS[name](random, tasks, extent)
