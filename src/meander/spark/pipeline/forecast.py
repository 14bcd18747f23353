"""Projected migration costs on a cluster: the rows of a sweep, spread over Spark tasks.

A sweep asks, for every old partition (row) and next label, for the best successor. Rows do not
depend on each other, so they go out in blocks; what they all need, the partitions with their trie
and the values, is broadcast: the partitions once, the values in every sweep. A task answers with
two numbers per row and label. So the driver holds what grows with the number of partitions, never
what grows with its square, and neither does any executor.

Executors need `meander` installed. They load the compiled kernels from Numba's cache beside the
package, or compile them once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meander.planning.ahead.mdp import Model
from meander.planning.ahead.pmc import Choices, Frontier, improve
from meander.planning.exact.partitions import Ends
from meander.planning.kernels.types import Bools, Floats, Rows

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

BLOCKS_PER_CORE = 6
"""Enough to even out blocks that take longer."""
ROWS_MIN = 4096
"""Fewer rows are not worth a Spark task when the search is by trie: they take half a second."""
ROWS_MIN_SCAN = 128
"""The same for the search by scan, where a row takes milliseconds."""


class SweepBlock(NamedTuple):
    """Some rows on their way to an executor."""

    start: int
    rows: Ends
    wanted: Bools
    choices: Choices


class Answer(NamedTuple):
    """Their choices on the way back."""

    start: int
    cost: Floats
    choice: Rows
    floor: Floats
    looked_at: int


class Spread:
    """An `Improve` for `pmc.solve` and `cvi.grow` that runs on Spark.

    Small jobs are done here: a Spark job costs more than they do.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.context = spark.sparkContext
        self._sent: tuple[Model, Broadcast[Model]] | None = None

    def __call__(
        self, model: Model, frontier: Frontier, rows: Ends, wanted: Bools, choices: Choices
    ) -> int:
        """Improve the rows; see `pmc.improve`."""
        least = ROWS_MIN if model.by_trie else ROWS_MIN_SCAN
        if len(rows) < 2 * least:
            return improve(model, frontier, rows, wanted, choices)
        shared = self._broadcast(model)
        values = self.context.broadcast(frontier)
        blocks = self._blocks(rows, wanted, choices, least)
        looked_at = 0
        try:
            asked = self.context.parallelize(blocks, len(blocks))
            for answer in asked.map(_Task(shared, values)).collect():
                some = slice(answer.start, answer.start + len(answer.cost))
                choices.cost[some], choices.choice[some] = answer.cost, answer.choice
                choices.floor[some] = answer.floor
                looked_at += answer.looked_at
        finally:
            values.destroy()
        return looked_at

    def _broadcast(self, model: Model) -> Broadcast[Model]:
        """Send a model once; the one before it is not needed any more."""
        if self._sent is None or self._sent[0] is not model:
            self.close()
            self._sent = (model, self.context.broadcast(model))
        return self._sent[1]

    def _blocks(self, rows: Ends, wanted: Bools, choices: Choices, least: int) -> list[SweepBlock]:
        """Cut the rows; neighbours stay together, since they ask alike."""
        count = min(BLOCKS_PER_CORE * self.context.defaultParallelism, len(rows) // least)
        cuts = np.linspace(0, len(rows), count + 1).astype(np.int64).tolist()
        return [
            SweepBlock(a, rows[a:b], wanted[a:b], choices.rows(a, b)) for a, b in pairwise(cuts)
        ]

    def close(self) -> None:
        """Free what executors hold."""
        if self._sent is not None:
            self._sent[1].destroy()
            self._sent = None


class _Task:
    """What an executor runs."""

    def __init__(self, model: Broadcast[Model], frontier: Broadcast[Frontier]) -> None:
        self.model, self.frontier = model, frontier

    def __call__(self, block: SweepBlock) -> Answer:
        its = block.choices
        mine = Choices(its.cost.copy(), its.choice.copy(), its.floor.copy(), its.first)
        seen = improve(self.model.value, self.frontier.value, block.rows, block.wanted, mine)
        return Answer(block.start, mine.cost, mine.choice, mine.floor, seen)


@contextmanager
def spreading(master: str | None) -> Iterator[Spread]:
    """Give a `Spread` on a session of its own."""
    from meander.spark.cluster.session import local

    spread = Spread(local(master))
    try:
        yield spread
    finally:
        spread.close()
