"""An operator of one's own in the full world, judged task by task with what its rows must lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from meander.errors import InputError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.testing.world.trials.trial import Outputs, States

Judge: TypeAlias = Callable[[pa.Table, pa.Table | None, pa.Table | None], object]
"""Compares one task: all rows that were fed to it, its state (None if it has no rows), and what readers
were shown in order (None: not all could be read). Raises AssertionError if that is not what the rows
must lead to."""
Rows: TypeAlias = pa.RecordBatch | pa.Table | Mapping[str, Sequence[Any]]
"""As `pyarrow.table` takes them."""


class OwnTrial:
    """An operator, its rows, and who judges what came of them.

    In which order rows of several sources reach a task is open, and so is how they are cut into
    batches. Rows of one feeder keep their order for each key; rows of a micro-batch have none. A task
    whose state was lost, as can be without checkpoints, is not judged.

    >>> from meander.operators import WordCount
    >>> def judge(rows, state, outputs):
    ...     assert len(rows) == (sum(state["count"].to_pylist()) if state else 0)
    >>> trial = OwnTrial(WordCount, {"texts": [{"word": ["to", "be"]}] * 3}, judge=judge, tasks=8)
    >>> trial.name, trial.feeders["texts"][0].num_rows
    ('WordCount', 2)
    """

    def __init__(
        self,
        make: Callable[[], Operator[Any]],
        feeders: Mapping[str, Sequence[Rows]] | None = None,
        batches: Sequence[Rows] = (),
        *,
        judge: Judge,
        tasks: int,
    ) -> None:
        """Describe it.

        Args:
            make: makes the operator; every process gets one of its own.
            feeders: by name the batches that each feeds, one after another.
            batches: micro-batches of a query.
            judge: see `Judge`.
            tasks: as many as the schedule has.

        Raises:
            InputError: for rows that are not of the operator's schema.
        """
        operator = make()
        schema = operator.schema
        self.name, self.tasks, self.operator = operator.name, tasks, make
        self.batches = [_table(rows, schema) for rows in batches]
        fed = {name: [_table(r, schema) for r in parts] for name, parts in (feeders or {}).items()}
        self.feeders = {name: list(map(_batch, tables)) for name, tables in fed.items()}
        self._judge, self._output_schema = judge, operator.output_schema
        self._rows = _by_task(operator, [*chain(*fed.values()), *self.batches], tasks)

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Have each task judged."""
        wrong = []
        for task, state in states.items():
            found = None
            if task in outputs and self._output_schema is not None:
                shown = [b for _, b in sorted(outputs[task], key=lambda pair: pair[0])]
                found = pa.Table.from_batches(shown, self._output_schema)
            try:
                self._judge(self._rows[task], state, found)
            except AssertionError as error:
                wrong.append(f"task {task} of {self.name}: {str(error) or 'it is wrong'}")
        return wrong


def _table(rows: Rows, schema: pa.Schema) -> pa.Table:
    try:
        if isinstance(rows, Mapping):
            return pa.table(rows, schema=schema)
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise InputError(f"these are no rows of {schema.names}: {error}") from None


def _batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches() or table.schema.empty_table().to_batches()
    return batch


def _by_task(
    operator: Operator[Any], fed: Sequence[pa.Table], tasks: int
) -> dict[TaskId, pa.Table]:
    """Tell which rows belong to which task."""
    rows = pa.concat_tables([operator.schema.empty_table(), *fed]).combine_chunks()
    where = pa.array(tasks_of(hash_columns([rows[key] for key in operator.keys]), tasks))
    return {task: rows.filter(pa.compute.equal(where, task)) for task in range(tasks)}
