"""A word count that takes its time: nodes that are slow enough for a small machine to run many.

A row costs a wait, not a computation, as if every row asked another service; so twelve nodes on two
cores can do twelve times what one can, and what an autoscaler does to them is real.
"""

from __future__ import annotations

import time
from typing import Any

from meander.operators import WordCount


class SlowCount(WordCount):
    """Counts words, one after the other."""

    combined_schema = None  # each row takes its time

    def __init__(self, row_s: float = 0.0002) -> None:
        """Take so many seconds for a row."""
        super().__init__()
        self.row_s = row_s

    @property
    def name(self) -> str:
        """Whoever goes on from its checkpoint may be a plain word count."""
        return "WordCount"

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        """Wait, then count."""
        time.sleep(self.row_s * int(bounds[-1] - bounds[0]))
        super().process_groups(states, bounds, batch, contexts, hashes)
