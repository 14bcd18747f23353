"""Real operators on Arrow rows, and what must come of them.

    trial       what a trial is, and what all of them need to judge
    words       word count: a keyed table, many tasks in one call
    patterns    frequent patterns: an operator that feeds its own input
    windows     windows of event time: timers, watermarks, outputs
    reminders   timers by the clock
    emits       an answer to every row, and deletions
    mischief    any operator, made to fail or to take long

One more has a processor written for Spark; it is loaded when it is drawn, where there is a `pyspark`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import TypeAlias

from meander.testing.world.trials.emits import EmitTrial
from meander.testing.world.trials.mischief import METHODS, Mischief, Prank
from meander.testing.world.trials.patterns import PatternTrial
from meander.testing.world.trials.reminders import ReminderTrial
from meander.testing.world.trials.trial import EXTENT, QUIET_S, Extent, Outputs, States, WorldTrial
from meander.testing.world.trials.windows import WindowTrial
from meander.testing.world.trials.words import WordTrial

__all__ = [
    "EXTENT",
    "METHODS",
    "QUIET_S",
    "EmitTrial",
    "Extent",
    "Mischief",
    "Outputs",
    "PatternTrial",
    "Prank",
    "ReminderTrial",
    "States",
    "WindowTrial",
    "WordTrial",
    "WorldTrial",
    "draw",
]

Maker: TypeAlias = Callable[[Random, int, Extent], WorldTrial]


def _processor(random: Random, tasks: int, extent: Extent) -> WorldTrial:
    """Make a trial that needs pyspark."""
    found: WorldTrial = import_module("meander.spark.processor.trial").ProcessorTrial(
        random, tasks, extent
    )
    return found


WEIGHTS: dict[Maker, int] = {
    WordTrial: 3,
    PatternTrial: 2,
    WindowTrial: 3,
    ReminderTrial: 1,
    EmitTrial: 3,
    _processor: 2,
}
"""How often each is drawn."""


def draw(random: Random, tasks: int, extent: Extent = EXTENT) -> WorldTrial:
    """Draw a trial. Without pyspark, what would be that of a processor is another one."""
    (make,) = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if make is _processor and find_spec("pyspark") is None:
        make = EmitTrial
    return make(random, tasks, extent)
