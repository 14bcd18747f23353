"""Built-in operators on the keyed table: aggregates by key, and word count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.errors import SumOverflowError
from meander.model import Ints
from meander.operators import adopting, combining
from meander.operators import state as dumps
from meander.operators.aggregates import Aggregate
from meander.operators.base import Combined, Context, Operator
from meander.operators.deltas import deltas, take_deltas
from meander.operators.hashing import Hashes, hash_columns
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, seal_tables, sizes, update_tables
from meander.operators.updates import updates

WRITING = ("dump", "load", "changes", "apply_changes")
"""What an operator of its own kind may do in another way."""


class KeyedAggregate(Operator[KeyedTable]):
    """Aggregates by key, kept up to date.

    >>> sales = KeyedAggregate(
    ...     pa.schema({"shop": pa.string(), "amount": pa.float64()}),
    ...     keys=["shop"],
    ...     aggregates={"n": Aggregate("count"), "mean": Aggregate("mean", "amount")},
    ... )
    >>> here = Context(task=0, tasks=1)
    >>> table = sales.create(here)
    >>> rows = pa.record_batch({"shop": ["x", "y", "x"], "amount": [1.0, 2.0, 4.0]})
    >>> sales.process(table, rows, here)
    >>> table.result().to_pylist()
    [{'shop': 'x', 'n': 2, 'mean': 2.5}, {'shop': 'y', 'n': 1, 'mean': 2.0}]
    """

    divisible = True

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        *,
        emit_updates: bool = False,
    ) -> None:
        """Declare input, keys and aggregates.

        Args:
            schema: the Arrow schema of the input.
            keys: the columns to group by; null is a key like any other, as in Spark.
            aggregates: the name of each result and how it is made.
            emit_updates: after each batch, emit the present result of every key in it.
        """
        self.layout = Layout(schema, keys, aggregates)
        self.schema, self.keys = schema, tuple(keys)
        self.emit_updates = emit_updates
        self.state_schema = self.layout.result_schema
        self.output_schema = self.layout.result_schema if emit_updates else None
        self.combined_schema = self.layout.combined_schema
        self.adopted_schema = adopting.adopted_schema(self.layout)

    def create(self, context: Context) -> KeyedTable:
        """Begin with an empty table."""
        return KeyedTable(self.layout)

    @property
    def dump_schema(self) -> pa.Schema:
        """The schema of dumped states, so that a checkpoint of another is refused at once."""
        return self.layout.state_schema

    def process(self, state: KeyedTable, batch: pa.RecordBatch, context: Context) -> None:
        """Fold the rows into the table."""
        self.process_groups([state], np.array([0, batch.num_rows]), batch, [context])

    def process_combined(self, state: KeyedTable, batch: pa.RecordBatch, context: Context) -> None:
        """Fold rows that were combined into the table."""
        self.process(state, batch, context)

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fold the rows of each key into one.

        >>> here = Context(task=0, tasks=1)
        >>> words = WordCount()
        >>> few = words.combine(pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"]}))
        >>> few.to_pydict()
        {'word': ['to', 'be', 'or', 'not'], '#rows': [2, 2, 1, 1]}
        >>> table = words.create(here)
        >>> words.process_combined(table, few, here)
        >>> table.result()["count"].to_pylist()
        [2, 2, 1, 1]
        """
        hashes = hash_columns(self.layout.key_columns(batch))
        return self.combine_groups(batch, np.array([0, batch.num_rows]), hashes).batch

    def combine_groups(self, batch: pa.RecordBatch, bounds: Ints, hashes: Hashes) -> Combined:
        """Fold the rows of each key in each source batch into one, in one go."""
        return combining.combine(self.layout, batch, bounds, hashes)

    def process_groups(
        self,
        states: Sequence[KeyedTable],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Fold rows, combined or not, into the tables of many tasks in one go."""
        if not states:
            return
        try:
            take = combining.take_combined if self.is_combined(batch) else update_tables
            where = take(states, bounds, batch, hashes)
        except SumOverflowError as error:
            row = error.row or 0
            group = int(np.searchsorted(bounds, row, side="right")) - 1
            raise self.failure(contexts[group], (row, row + 1), error) from error
        if self.emit_updates:
            for context, results in zip(contexts, updates(states, bounds, where), strict=True):
                context.emit(results)

    def adoptable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Make cells of results, where cells are not given."""
        return adopting.adoptable(self.layout, rows)

    def adopt(self, state: KeyedTable, batch: pa.RecordBatch, context: Context) -> None:
        """Fold cells from elsewhere into the table; those of one key add up."""
        adopting.adopt(state, batch)

    def dump(self, state: KeyedTable) -> list[pa.RecordBatch]:
        """Write keys and cells; a frozen table is not copied."""
        return state.dump()

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> KeyedTable:
        """Check every row and make the table again."""
        return dumps.load(self.layout, batches, (context.task, context.tasks))

    def size(self, state: KeyedTable) -> int:
        """Count keys, their offsets and cells."""
        return state.size

    def sizes(self, states: Sequence[KeyedTable]) -> Sequence[int]:
        """Count them in many tables in one go."""
        if type(self).size is not KeyedAggregate.size:
            return super().sizes(states)
        return sizes(states)

    def freeze(self, state: KeyedTable) -> None:
        """Let dumps share the table's memory."""
        state.freeze()

    def seal(self, state: KeyedTable) -> int:
        """End a version of the table."""
        return state.seal()

    def seals(self, states: Sequence[KeyedTable]) -> Sequence[int | None]:
        """End a version of many tables in one go."""
        if type(self).seal is not KeyedAggregate.seal:
            return super().seals(states)
        return seal_tables(states)

    def changes(self, state: KeyedTable, since: int) -> list[pa.RecordBatch]:
        """Write the entries touched after a sealed version; keys only of new ones."""
        return state.delta(since)

    def changes_of(
        self, states: Sequence[KeyedTable], since: Sequence[int]
    ) -> list[tuple[pa.RecordBatch, list[int]]] | None:
        """Write the changes of many tables in one go."""
        return deltas(states, since) if self._plain else None

    @property
    def _plain(self) -> bool:
        """Whether it writes and reads tables as they are written here."""
        return all(getattr(type(self), name) is getattr(KeyedAggregate, name) for name in WRITING)

    def apply_changes(
        self, state: KeyedTable, batches: Sequence[pa.RecordBatch], context: Context
    ) -> KeyedTable:
        """Put changed entries in the place of the old ones."""
        for batch in batches:
            dumps.revise(state, batch)
        return state

    def apply_changes_of(
        self,
        states: Sequence[KeyedTable | None],
        parts: Sequence[tuple[pa.RecordBatch, Ints]],
        contexts: Sequence[Context],
    ) -> list[KeyedTable]:
        """Put the changed entries of many tables in the place of the old ones, in one go."""
        if not self._plain or any(state is None for state in states) != (states[0] is None):
            return super().apply_changes_of(states, parts, contexts)
        tables = [KeyedTable(self.layout) if state is None else state for state in states]
        tasks = np.array([context.task for context in contexts]) if states[0] is None else None
        take_deltas(tables, parts, None if tasks is None else (tasks, contexts[0].tasks))
        return tables


def aggregates_of(operator: Operator[Any]) -> dict[str, tuple[str, str | None, str | None]] | None:
    """Tell how rows of an operator are combined to whoever has not the operator itself.

    Returns:
        By the name of each result its function, column and order; None: only the operator knows.

    >>> aggregates_of(WordCount())
    {'count': ('count', None, None)}
    """
    if not isinstance(operator, KeyedAggregate) or not operator.combines:
        return None
    if type(operator).combine is not KeyedAggregate.combine:
        return None  # it has a way of its own
    made = operator.layout.aggregates
    return {name: (one.function, one.column, one.by) for name, one in made.items()}


class WordCount(KeyedAggregate):
    """How often each word came.

    >>> WordCount().layout.result_schema.names
    ['word', 'count']
    """

    def __init__(self, *, emit_updates: bool = False) -> None:
        schema, count = pa.schema({"word": pa.string()}), {"count": Aggregate("count")}
        super().__init__(schema, ["word"], count, emit_updates=emit_updates)
