"""Real operators on Arrow rows, and what must come of them.

    trial      what a trial is; what all need to judge
    words      word count: a keyed table, many tasks in one call
"""

from __future__ import annotations

from meander.testing.world.trials.trial import EXTENT, Extent, Outputs, States, WorldTrial
from meander.testing.world.trials.words import WordTrial

__all__ = ["EXTENT", "Extent", "Outputs", "States", "WordTrial", "WorldTrial"]
