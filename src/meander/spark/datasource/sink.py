"""Rows from Spark into an operator: micro-batches, and backfills from a batch DataFrame.

    write    in every task, in parallel: rows are staged at the nodes of their tasks, not applied
    commit   once, in a process of Spark's driver: all that the winning attempts staged is applied

A micro-batch is named by the id of its query, which stays the same across restarts from the checkpoint,
and its number. Spark hands neither to `write`; both are local properties of the task. If a batch is
replayed, in whatever order and partitioning, tasks that have it skip it; one that is replayed with more
or fewer rows, or from before the last one, fails its query. Attempts are drawn by lot, so
nothing that a killed worker or an earlier run has staged can be taken for rows of the present one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from meander.errors import InputError, OperatorGoneError, OperatorRefusedError, SinkError
from meander.protocol.messages import ONCE
from meander.runtime.clients.committing import committed, forgotten
from meander.runtime.clients.driver_client import DriverClient, Part, desk_of
from meander.runtime.clients.given import NULL_KEYS
from meander.runtime.clients.query_process import StateRows
from meander.runtime.process.script import Ask, Script, run
from meander.runtime.process.warm import settle_worker
from meander.spark.datasource.options import BATCH_SINK, STREAM_SINK, check_options
from meander.spark.datasource.sink_rows import (
    CUTS,
    begun_with,
    check_words,
    check_zones,
    marked,
    with_keys,
    words_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from meander.spark.datasource.format import MeanderSource

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a task of a streaming query."""
COMMIT_S = 600.0
"""How long a commit may take before the query fails: a node may have to be restored meanwhile."""
ROOM = "room"
"""What a task asks the driver that waits for a node: whether its slot is needed, and for whom."""
ROOM_S = 5.0
"""How long the driver may take to answer that."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task has staged."""

    query: str
    batch: int
    parts: tuple[Part, ...]


class Sink:
    """What both writers share. Travels to executors, so it holds only plain values."""

    what: ClassVar[str]
    known: ClassVar[tuple[str, ...]]
    """What it is called, and the options that it has."""

    def __init__(self, source: MeanderSource, schema: StructType, overwrite: bool) -> None:
        """Check everything that can be known before the first row.

        Raises:
            InputError: for columns that do not fit, or options that cannot be.
            OperatorGoneError: if the operator is not there.
        """
        check_options(source.options, self.known, self.what)
        self.address, self.credentials = source.address, source.credentials
        self.shares_slots = source.options.get("token") is None
        """Whether the nodes live in this very application."""
        self.null_keys = str(source.options.get("nullKeys", NULL_KEYS[0])).lower()
        if self.null_keys not in NULL_KEYS:
            raise InputError(f"nullKeys is one of {', '.join(NULL_KEYS)}, not {self.null_keys!r}")
        self.commit_s = seconds(source.options.get("commitTimeout"), "commitTimeout", COMMIT_S)
        self.input = source.options.get("input")
        """Of a topology, where the rows go."""
        about = source.desk().about(input=self.input)
        self.state = state_option(source.options)
        """Says that these are rows of a state; None: they are rows like any other."""
        settle_worker()
        self.keys = about.keys
        self.words, cut = source.options.get("words"), source.options.get("cut")
        self.cut = str(cut or CUTS[0]).lower()
        if self.words is not None:
            check_words(self.words, self.cut, schema, about)
            return
        if cut is not None:
            raise InputError('the option cut says how the column of the option "words" is cut')
        wanted = about.schema.names if self.state is None else begun_with(about).names
        missing = [name for name in wanted if name not in schema.fieldNames()]
        if missing:
            what = "key column" if missing[0] in about.keys else "column"
            raise InputError(
                f"the rows have no {what} {missing[0]!r}, which {about.operator} needs: they have "
                f"{', '.join(schema.fieldNames()) or 'none'}. Rename or select columns before writing"
            )
        if self.state is None:
            check_zones(schema, about)

    def desk(self) -> DriverClient:
        """Give the connection to the operator's driver."""
        return desk_of(self.address, self.credentials)

    def stage(self, query: str, batch: int, rows: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task, in an executor."""
        from meander.runtime.clients.query import client_of, new_attempt

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        client = client_of(self.address, self.credentials, self.input)
        if self.words is not None:
            rows = words_of(rows, self.words, self.keys[0], self.cut)
        if self.state is None:
            checked = with_keys(rows, self.keys, self.null_keys)
        else:
            checked = map(marked, rows)
        where = query, batch, partition, new_attempt()
        parts = client.write(*where, checked, meanwhile=self.make_room, state=self.state)
        settle_worker()
        return StagedRows(query, batch, parts)

    def make_room(self) -> Script[None]:
        """End a task that waits for a node, if a node that was lost waits for its slot.

        Raises:
            SinkError: if so. Spark gives the slot to that node, and the task another try.
        """
        name = None
        if self.shares_slots:
            with suppress(OperatorGoneError, OperatorRefusedError):  # found out elsewhere
                name = yield Ask(self.address, ROOM, {}, ROOM_S)
        if name is not None:
            raise SinkError(
                f"{name} was lost, and its successor finds no slot: this task, which waits for a node, "
                "makes room, and Spark tries it again"
            )

    def apply(
        self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None
    ) -> None:
        """Commit what was staged; wait until it is durable.

        Raises:
            SinkError: if rows were lost, or it takes too long.
        """
        query, number, parts = gathered(messages)
        if not parts:
            return  # an empty batch changes nothing
        assert batch in (None, number), "the tasks of a batch know its number"
        self._run(committed(self.address, query, number, parts, self.commit_s))
        settle_worker()

    def give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Have what was staged forgotten; where that fails it is forgotten in time."""
        query, batch, parts = gathered(messages)
        if parts:
            self._run(forgotten(self.address, query, batch, parts))

    def _run(self, script: Script[None]) -> None:
        """Carry out what only asks the driver."""
        run(script, lambda step: self.desk().ask(step.what, step.fields, step.timeout_s))


class StreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes micro-batches: each counts once."""

    what, known = "a streaming write", STREAM_SINK

    def __init__(self, source: MeanderSource, schema: StructType, overwrite: bool) -> None:
        super().__init__(source, schema, overwrite)
        if overwrite:
            raise InputError(
                "an operator cannot be overwritten: use outputMode('append') or outputMode('update')"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one partition."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        batch = None if context is None else context.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise SinkError(
                f"this Spark does not tell its tasks which micro-batch they write ({QUERY}, {BATCH}): "
                "use foreachBatch with df.write.format('meander') and the options query and batch"
            )
        return self.stage(query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Apply a micro-batch."""
        self.apply(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give a micro-batch up: Spark will write it again."""
        self.give_up(messages)


class BatchWriter(Sink, DataSourceArrowWriter):
    """Writes a batch DataFrame, all of it or nothing.

    Every write counts, unless it is named: with the options `query` and `batch`, a batch that was
    written before is skipped, and a lower number refused. That makes `foreachBatch` exact.
    """

    what, known = "a write", BATCH_SINK

    def __init__(self, source: MeanderSource, schema: StructType, overwrite: bool) -> None:
        super().__init__(source, schema, overwrite)
        if overwrite:
            raise InputError("an operator cannot be overwritten: use mode('append')")
        query, batch = source.options.get("query"), source.options.get("batch")
        if (query is None) != (batch is None) or (batch is not None and not batch.isdecimal()):
            raise InputError(
                "the options query and batch go together, and batch is a number from 0"
            )
        self.query, self.batch = query or f"{ONCE}{token_hex(8)}", int(batch or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one partition."""
        return self.stage(self.query, self.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Apply all that was staged."""
        marked = self.state is not None and self.state.watermark_us is not None
        if marked and not gathered(messages)[2]:  # Spark has no task for a frame without partitions
            messages = [self.stage(self.query, self.batch, iter(()))]
        self.apply(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give it up."""
        self.give_up(messages)


def write_by_tasks(
    rows: DataFrame,
    writer: BatchWriter,
    fit: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> None:
    """Write rows that are brought to the operator's first, planned in this process.

    It does what `rows.write.format("meander")` does; Spark plans that in processes of its own, which
    are cold the first time.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = pickle.dumps(writer.write(fit(batches)))
        yield pa.record_batch({"staged": pa.array([staged], pa.binary())})

    # From Spark's tasks by Spark's own channel, as the messages of any writer are.
    writer.commit(
        [pickle.loads(row[0]) for row in rows.mapInArrow(write, "staged binary").collect()]
    )


def gathered(messages: Sequence[WriterCommitMessage | None]) -> tuple[str, int, list[Part]]:
    """Put together what all tasks have staged; those that failed say nothing."""
    told = [message for message in messages if isinstance(message, StagedRows)]
    if not told:
        return "", 0, []
    return told[0].query, told[0].batch, [part for message in told for part in message.parts]


def state_option(given: Mapping[str, str]) -> StateRows | None:
    """Read the option that says that rows are those of a state, and up to when it has seen all.

    >>> state_option({"rows": "state", "watermark": "5000000"}), state_option({})
    (StateRows(watermark_us=5000000), None)

    Raises:
        InputError: for anything else.
    """
    what, watermark = given.get("rows"), given.get("watermark")
    if what is None and watermark is None:
        return None
    if what != "state" or (watermark is not None and not watermark.isdecimal()):
        raise InputError('rows of a state are written with .option("rows", "state")')
    return StateRows(None if watermark is None else int(watermark))


def seconds(text: str | None, name: str, default: float) -> float:
    """Read an option in seconds, as `90` or `90s`.

    >>> seconds("90s", "commitTimeout", 1.0), seconds(None, "commitTimeout", 1.0)
    (90.0, 1.0)
    """
    if text is None:
        return default
    try:
        number = float(text.strip().removesuffix("s"))
    except ValueError:
        number = 0.0
    if number <= 0:
        raise InputError(f"{name} is a number of seconds above 0, not {text!r}")
    return number
