"""Rows of the same key combined before they leave, as long as that pays. No thread, no lock, no clock.

Whether it pays is seen as it runs. Combining costs a pass over the rows, whatever comes of it, about as
much as a node needs for them; what it saves is all that follows, here and at the nodes, for every row
that is not sent. So what counts is the share of rows that is left, which is known when rows have been
combined, and who has time: while nodes are behind, whatever spares them rows pays, and while they are
not, only what spares nearly all.

    not combining   one offer in `try_every` is combined to see what is left; if that pays, it goes on
    combining       what is left is seen all the time; LOSSES_MAX in a row that did not pay, and it ends

**Only rows of one source batch are combined with one another.** A source batch is what a feeder
replays, and what a task has taken or has not: rows of two batches in one could be neither. Since a task
takes rows of either kind at any time, nobody has to agree with anybody on when to combine, not even a
feeder with its own former life.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from meander.operators.base import Operator
from meander.operators.hashing import Hashes

PAYS_SHARE = 0.6
"""Combining begins if at most so much of the rows is left, while nodes are behind."""
LOSES_SHARE = 0.7
"""It does not pay any more if more is left than this."""
LOSSES_MAX = 4
"""So many offers in a row must lose before it ends."""


class CombineLimits(NamedTuple):
    """When rows are combined at all."""

    rows_min: int = 1024
    """Fewer rows at once are not worth the call."""
    try_every: int = 16
    """Where it does not pay, so many offers pass before it is tried again."""
    idle_share: float = 0.1
    """While nodes are not behind, it pays if at most so much is left."""


COMBINE = CombineLimits()
"""What serves best."""


class KeyedRows(NamedTuple):
    """Rows of a few source batches, one behind the other, with the hashes of their keys."""

    batch: pa.RecordBatch
    """Of the operator's schema, or of its combined one."""
    lengths: Sequence[int]
    """How many are of each source batch."""
    hashes: Hashes


class RowCombiner:
    """Of one feeder, or one writer of micro-batches.

    >>> from meander.operators import WordCount
    >>> from meander.operators.hashing import hash_columns
    >>> combiner = RowCombiner(WordCount(), CombineLimits(rows_min=1))
    >>> words = pa.record_batch({"word": ["a", "b", "a", "a", "a"]})
    >>> found = combiner.combine(KeyedRows(words, [3, 2], hash_columns(words)))
    >>> found.batch.to_pydict(), found.lengths, combiner.combined
    ({'word': ['a', 'b', 'a'], '#rows': [2, 1, 2]}, [2, 1], 5)
    """

    def __init__(self, operator: Operator[Any] | None, limits: CombineLimits = COMBINE) -> None:
        """Prepare.

        Args:
            operator: whose rows they are; None: nobody knows how to combine them.
            limits: when rows are combined at all.
        """
        self._operator = operator if operator is not None and operator.combines else None
        self._limits = limits
        self._pays = False
        """Whether rows are combined now."""
        self._passed = limits.try_every
        """Offers since it was last tried; or, while it pays, that have not paid, in a row."""
        self._left = 1.0
        """The share that was left when it was last tried."""
        self.combined = 0
        """Rows that went out in combined ones, so far."""

    def combine(self, rows: KeyedRows, *, behind: bool = True) -> KeyedRows:
        """Combine the rows of each source batch if that pays, else give them as they are.

        Args:
            rows: what is to be sent.
            behind: whether some node has more to do than it can.
        """
        count = rows.batch.num_rows
        if self._operator is None or count < self._limits.rows_min or not self._due(behind):
            return rows
        bounds = np.array([0, *accumulate(rows.lengths)])
        found = self._operator.combine_groups(rows.batch, bounds, rows.hashes)
        self._judge(found.batch.num_rows / count, behind)
        if not self._pays:
            return rows
        self.combined += count
        return KeyedRows(found.batch, np.diff(found.bounds).tolist(), found.hashes)

    def _due(self, behind: bool) -> bool:
        """Whether to combine now, be it to see what is left."""
        if not self._pays:
            self._passed += 1
        would_pay = behind and self._left <= PAYS_SHARE
        return self._pays or would_pay or self._passed > self._limits.try_every

    def _judge(self, left: float, behind: bool) -> None:
        """Hear which share of the rows is left."""
        self._left, idle = left, self._limits.idle_share
        if not self._pays:
            self._pays, self._passed = left <= (PAYS_SHARE if behind else idle), 0
        elif left <= (LOSES_SHARE if behind else idle):
            self._passed = 0
        else:
            self._passed += 1
            self._pays = self._passed < LOSSES_MAX
