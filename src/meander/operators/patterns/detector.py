"""Frequent patterns, and of them the maximal ones: the Detector of the paper's Figure 10.

    window ──(±1)──► Pattern Generator ──► Detector ──► changes of the report
                                            ▲    │
                                            └────┘ "I became (in)frequent", to immediate sub-patterns

A pattern is *frequent* if it came more than `threshold` times in the window. It is *reported* if it is
frequent and no super-pattern is: "storm" is not, when "apache storm" is. The Detector is keyed by
pattern, and a pattern and its super-patterns live in different tasks, so rows are fed:

    state of a pattern      count    how often it is in the window
                            supers   how many of its immediate super-patterns (by one word) are frequent
    rows                    (pattern, count, supers): what is added to them. Tweets bring (p, ±1, 0).
    after each batch        if p crossed the threshold, feed (q, 0, ±1) for each q = p without one word
                            if "frequent and supers = 0" changed, emit (p, reported, count)

Why that is right once the loop is empty ("at quiescence"). Each crossing is fed exactly once, in
order, so q's `supers` is the number of its immediate super-patterns that are frequent. A frequent
super-pattern of any size implies an immediate one: whatever lies between the two comes at least as
often. Counters only add up, so the order in which rows of different feeders arrive does not matter.
Before that, a pattern may be reported for as long as the word of its super-pattern is on its way.

The loop ends by itself: what is fed changes `supers` alone, and only `count` crosses the threshold,
so every crossing causes one hop and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError, StateError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.aggregates import numbers_of
from meander.operators.base import Context, Operator
from meander.operators.columns import bytes_of, check_offsets, plain
from meander.operators.hashing import Hashes, hash_columns
from meander.operators.kernels import patterns as kernel
from meander.operators.patterns.table import LAYOUT, RESULT, PatternTable, load
from meander.operators.patterns.texts import SCHEMA
from meander.operators.table import Where, check_groups, locate

CHANGES = pa.schema({"pattern": pa.string(), "reported": pa.bool_(), "count": pa.int64()})
"""What is emitted: a pattern that is reported from now on, or no longer, and its count."""
THRESHOLD = b"meander.patterns.threshold"
"""In the metadata of dumps: what sub-patterns were told follows from it."""


class FrequentPatterns(Operator[PatternTable]):
    """Counts patterns and reports the maximal frequent ones.

    >>> from meander.operators import TaskStates
    >>> detector = TaskStates(FrequentPatterns(threshold=1), tasks=1)
    >>> detector.create(0)
    >>> batch = pa.record_batch(
    ...     {"pattern": ["apache", "apache", "storm"], "count": [1, 1, 1], "supers": [0, 0, 0]}
    ... )
    >>> (context,) = detector.process(np.array([0]), np.array([0, 3]), batch)
    >>> context.emitted[0].to_pylist()
    [{'pattern': 'apache', 'reported': True, 'count': 2}]
    >>> detector[0].report().to_pydict()
    {'pattern': ['apache'], 'count': [2]}
    """

    schema = SCHEMA
    keys = ("pattern",)
    feeds = True
    output_schema = CHANGES
    state_schema = RESULT
    dump_schema = LAYOUT.state_schema

    def __init__(self, threshold: int = 15) -> None:
        """Declare when a pattern is frequent.

        Args:
            threshold: it must come more often than this.

        Raises:
            InputError: for a negative one: patterns that never came would be frequent.
        """
        if threshold < 0:
            raise InputError(f"the threshold must be 0 or more, not {threshold}")
        self.threshold = threshold

    def create(self, context: Context) -> PatternTable:
        """Begin with no pattern."""
        return PatternTable(self.threshold)

    def process(self, state: PatternTable, batch: pa.RecordBatch, context: Context) -> None:
        """Count, and tell of what changed."""
        self.process_groups([state], np.array([0, batch.num_rows]), batch, [context])

    def process_groups(
        self,
        states: Sequence[PatternTable],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Count rows of many tasks in one go, and tell of what changed."""
        if not states:
            return
        (names,) = LAYOUT.key_columns(batch)
        if names.null_count:
            raise InputError("a pattern is null")
        counts, supers = (_numbers(batch, name) for name in ("count", "supers"))
        if hashes is None:
            hashes = hash_columns([names])
        else:
            hashes = np.ascontiguousarray(hashes).view(np.uint64)
            check_offsets(bytes_of(names))  # hashing would have noticed
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        tables = [state.table for state in states]
        metas = np.array([table.address for table in tables], dtype=np.int64)
        check_groups(metas, bounds, batch.num_rows, hashes)
        where = locate(tables, metas, bounds, codec.encode([names]), hashes)

        found = self._detect(states, metas, bounds, where, counts, supers)
        for context, emitted, fed in zip(contexts, *found, strict=True):
            if emitted is not None:
                context.emit(emitted)
            if fed is not None:
                context.feed(fed)

    def _detect(
        self,
        states: Sequence[PatternTable],
        metas: Ints,
        bounds: Ints,
        where: Where,
        counts: Ints,
        supers: Ints,
    ) -> tuple[list[pa.RecordBatch | None], list[pa.RecordBatch | None]]:
        """Fold the rows; give what each group emits and feeds, None for nothing."""
        rows, groups = len(where), len(states)
        touched, before = np.empty(rows, dtype=np.int64), np.empty((rows, 2), dtype=np.int64)
        crossed, reported = np.empty(rows, dtype=np.int8), np.empty(rows, dtype=np.int8)
        ends, alive = np.zeros(groups + 1, dtype=np.int64), np.empty((groups, 2), dtype=np.int64)
        marks = np.array([state.mark() for state in states], dtype=np.int64)
        kernel.detect(
            metas, marks, bounds, where, counts, supers, self.threshold,
            touched, before, crossed, reported, ends, alive,
        )  # fmt: skip
        told = _told(metas, ends, touched, crossed, reported)
        for state, grown in zip(states, alive.tolist(), strict=True):
            state.grow(*grown)
        return told

    def dump(self, state: PatternTable) -> list[pa.RecordBatch]:
        """Write the patterns whose counters are not both zero."""
        return self._marked(state.dump())

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> PatternTable:
        """Check every row and make the table again."""
        self._check_mark(batches)
        return load(self.threshold, batches, (context.task, context.tasks))

    def size(self, state: PatternTable) -> int:
        """Count patterns, their offsets and counters; those that are gone count nothing."""
        return state.size

    def freeze(self, state: PatternTable) -> None:
        """Let dumps share the table's memory."""
        state.table.freeze()

    def seal(self, state: PatternTable) -> int:
        """End a version of the table."""
        return state.table.seal()

    def changes(self, state: PatternTable, since: int) -> list[pa.RecordBatch]:
        """Write what was touched after a sealed version."""
        return self._marked(state.changes(since))

    def apply_changes(
        self, state: PatternTable, batches: Sequence[pa.RecordBatch], context: Context
    ) -> PatternTable:
        """Put changed patterns in the place of the old ones."""
        self._check_mark(batches)
        return state.apply(batches)

    def _marked(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        mark = {THRESHOLD: b"%d" % self.threshold}
        return [b.replace_schema_metadata({**(b.schema.metadata or {}), **mark}) for b in batches]

    def _check_mark(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Refuse a state of another threshold: its patterns were told of other crossings."""
        mine = b"%d" % self.threshold
        for batch in batches:
            theirs = (batch.schema.metadata or {}).get(THRESHOLD, mine)
            if theirs != mine:
                raise StateError(
                    f"the state was made with threshold {theirs.decode()}, not {self.threshold}: "
                    "begin anew, or keep the threshold"
                )


def _numbers(batch: pa.RecordBatch, name: str) -> Ints:
    """Take a column of changes.

    Raises:
        InputError: if it is not there, not of integers, or has a null.
    """
    if name not in batch.schema.names:
        raise InputError(f"the batch has no column {name!r}, only {batch.schema.names}")
    column = plain(batch.column(name))
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InputError(f"{name} must hold integers and no null; it is {column.type}")
    return numbers_of(column, floating=False)


def _told(
    metas: Ints,
    ends: Ints,
    touched: Ints,
    crossed: npt.NDArray[np.int8],
    reported: npt.NDArray[np.int8],
) -> tuple[list[pa.RecordBatch | None], list[pa.RecordBatch | None]]:
    """Write what is reported from now on or no longer, and what sub-patterns must know."""
    groups = len(metas)
    news, fed = np.zeros(groups + 1, dtype=np.int64), np.zeros(groups + 1, dtype=np.int64)
    if not ends[-1]:
        return [None] * groups, [None] * groups
    sizes = kernel.measure(metas, ends, touched, crossed, reported, news, fed)
    letters = [np.empty(size, dtype=np.uint8) for size in sizes]
    rows = int(news[-1]), int(fed[-1])
    upto = [np.zeros(n + 1, dtype=np.int32) for n in rows]
    shown, counts = np.empty(rows[0], dtype=np.bool_), np.empty(rows[0], dtype=np.int64)
    changes = np.empty(rows[1], dtype=np.int32)
    kernel.tell(
        metas, ends, touched, crossed, reported, letters[0].ctypes.data, upto[0], shown, counts,
        letters[1].ctypes.data, upto[1], changes,
    )  # fmt: skip
    names = [_strings(*parts) for parts in zip(upto, letters, strict=True)]
    emitted = pa.record_batch([names[0], pa.array(shown), pa.array(counts)], schema=CHANGES)
    nothing = pa.array(np.zeros(rows[1], dtype=np.int32))
    back = pa.record_batch([names[1], nothing, pa.array(changes)], schema=SCHEMA)
    return _parts(emitted, news), _parts(back, fed)


def _strings(ends: npt.NDArray[np.int32], letters: npt.NDArray[np.uint8]) -> pa.Array:
    parts = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, parts)


def _parts(batch: pa.RecordBatch, bounds: Ints) -> list[pa.RecordBatch | None]:
    """Cut a batch by group; None where a group has no row."""
    return [batch.slice(lb, ub - lb) if lb < ub else None for lb, ub in pairwise(bounds.tolist())]
