"""The operator: what users write.

An operator is code without state; a *state* is a value of the operator's own making, one per
task, which the runtime keeps, moves, stores and gives back. So an operator never knows which
tasks its node owns today, and a task never notices that it moved.

    create ─► process, on_timer, process, …  ─► dump ─► (wire, disk) ─► load ─► process, …

Rules for those who write one
  1. All that must survive a move is in the state. Attributes set in `open` are scratch.
  2. `process` sees the rows of one task, in their feeder's order; no other thread has the state
     meanwhile (it is one at a time, not always the same).
     The same holds for `on_timer`.
  3. `dump` does not change the state, and what it gave does not change later.
  4. `load(dump(state))` behaves as `state` does, in every later call.
  5. When `process` raises, the state is never used again: it is restored from elsewhere.

`meander.testing.check(operator, batches)` tries whether they are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from meander.errors import InputError, MeanderError, OperatorError, StateError
from meander.model import Ints, TaskId
from meander.operators.hashing import Hashes, hash_columns
from meander.operators.inputs import Input, as_joint
from meander.operators.timers import NO_EVENT_TIMERS, NO_TIMERS, Timer, Timers

S = TypeVar("S")

COMBINED_ROWS: Final = "#rows"
"""The column of combined rows that tells how many rows each stands for."""
STATE_ROWS: Final = "#state"
"""The column, of nulls, that tells rows of a state from any others."""


class Combined(NamedTuple):
    """Rows combined group by group."""

    batch: pa.RecordBatch
    """Of the operator's `combined_schema`."""
    bounds: Ints
    """Rows `bounds[g] … bounds[g+1]-1` are those of group g."""
    hashes: Hashes
    """Of their keys."""


@dataclass(slots=True)
class Context:
    """Where a call happens, and where its outputs go."""

    task: TaskId
    """Among the operator's own, from 0."""
    tasks: int
    """m, the number of the operator's tasks."""
    emitted: list[pa.RecordBatch] = field(default_factory=list)
    """Batches for whoever reads the output, and for operators that it feeds, in order."""
    sent: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)
    """Batches for outputs that have a name, in order."""
    aside: list[pa.RecordBatch] = field(default_factory=list)
    """Batches of rows that could not be taken (`letters`): for readers of the output, and for
    operators that an edge from `errors` leads to; not for those that the output feeds."""
    fed: list[pa.RecordBatch] = field(default_factory=list)
    """Batches that go back into the operator's own input, each row to its key's task."""
    now_us: int = 0
    """The time of this call, in microseconds since 1970; only for operators with timers."""
    watermark_us: int = 0
    """No row that is older is expected any more; 0 as long as nothing is known."""
    late_us: int | None = None
    """Where timers wait (`timers_wait`): rows no later than this are late; else None."""
    timers: Timers = NO_TIMERS
    """Of this task, by the clock."""
    event_timers: Timers = NO_EVENT_TIMERS
    """Of this task, in event time: they fire when the watermark passes them."""

    def emit(self, batch: pa.RecordBatch, to: str = "") -> None:
        """Send rows to the output, or to another that an edge of the topology names."""
        if to:
            self.sent.append((to, batch))
        else:
            self.emitted.append(batch)

    def feed(self, batch: pa.RecordBatch) -> None:
        """Send rows back into this operator (a loop)."""
        self.fed.append(batch)


class Operator(ABC, Generic[S]):
    """Base of all operators; `S` is the type of one task's state.

    >>> import pyarrow as pa
    >>> class Longest(Operator[dict[str, int]]):
    ...     '''The longest text of each user.'''
    ...
    ...     schema = pa.schema({"user": pa.string(), "text": pa.string()})
    ...     keys = ("user",)
    ...
    ...     def create(self, context):
    ...         return {}
    ...
    ...     def process(self, state, batch, context):
    ...         lengths = pa.compute.utf8_length(batch["text"])
    ...         for user, length in zip(batch["user"].to_pylist(), lengths.to_pylist()):
    ...             state[user] = max(length, state.get(user, 0))
    ...
    ...     def dump(self, state):
    ...         return [pa.record_batch({"user": list(state), "longest": list(state.values())})]
    ...
    ...     def load(self, batches, context):
    ...         pairs = (zip(b["user"].to_pylist(), b["longest"].to_pylist()) for b in batches)
    ...         return {user: longest for batch in pairs for user, longest in batch}
    ...
    ...     def size(self, state):
    ...         return sum(map(len, state)) + 16 * len(state)
    """

    schema: pa.Schema
    """The Arrow schema of the rows that come in; rows may have more columns."""
    keys: tuple[str, ...]
    """The columns that decide a row's task."""
    inputs: Mapping[str, Input] = MappingProxyType({})
    """The inputs by name, if there are several; `schema` is then their `joint_schema`, and `of_input`
    brings rows to it. Empty: there is one, without a name, whose rows are of `schema`."""
    event_time: str | None = None
    """The column of timestamps that tells when a row happened. It makes the watermark: the least, over
    all feeders, of the latest time that a feeder has sent, less `delay_s`."""
    delay_s: float = 0.0
    """So much out of order may rows come: the watermark stays that far behind."""
    idle_s: float = 60.0
    """A feeder that has sent nothing for so long does not hold the watermark back any more."""
    feeders_min: int = 1
    """The watermark starts when so many feeders have been heard: with several sources, none of them
    makes the others late by being first."""
    timers_wait: bool = False
    """Whether timers wait for the next rows of their task, and fire behind those, by the watermark and
    the clock that they were given; else as soon as they are due."""
    collects: bool = False
    """Whether rows that it cannot take are set aside, rather than end everything."""
    late_rows: int = 0
    """Count here what you leave out because it came behind the watermark: it is in the metrics."""
    trace_chunks_max: int = 0
    """How many chunks of rows a node remembers one by one, for latencies over time; 0: none."""
    divisible: bool = False
    """Whether `apply_changes` takes any rows of `dump` and `changes`, in their order, the first on a
    state that was just created. Then a state is copied ahead of a move in small pieces."""
    state_version: int = 1
    """Raise it when `load` no longer understands what an older `dump` wrote, and write `migrate`."""
    output_schema: pa.Schema | None = None
    """The Arrow schema of what it emits; without it outputs cannot be read as a DataFrame."""
    state_schema: pa.Schema | None = None
    """The Arrow schema that a state is shown with; None: that of its first dump."""
    combined_schema: pa.Schema | None = None
    """The Arrow schema of what `combine` gives: the keys as `schema` has them, what else it takes, and
    `#rows` (int64), how many rows each row stands for. None: rows are not combined."""
    adopted_schema: pa.Schema | None = None
    """The Arrow schema of rows of a state that `adopt` takes: the keys as `schema` has them, and what
    else it takes (`state_rows` adds the mark). None: it takes none."""

    @property
    def name(self) -> str:
        """The operator's name in errors, metrics and stored state."""
        return type(self).__name__

    @property
    def timed(self) -> bool:
        """Whether tasks hear of time: there is an event time, or `on_timer` is written."""
        return self.event_time is not None or type(self).on_timer is not Operator.on_timer

    @property
    def combines(self) -> bool:
        """Whether rows may be combined before they are sent: it says so, and hears of no time.

        Who inherits `combine` and has a `process` of its own does not: it would not see the rows.
        """
        if self.combined_schema is None or self.timed:
            return False
        order = type(self).__mro__
        mine = next(i for i, kind in enumerate(order) if "combine" in vars(kind))
        taking = {"process", "process_groups"}
        return all(not taking & vars(kind).keys() for kind in order[:mine])

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The schemas of rows that may be sent to its tasks."""
        combined = self.combined_schema if self.combines else None
        found = (self.schema, combined, self.adopted_schema)
        return tuple(schema for schema in found if schema is not None)

    def of_input(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows of a named input to `schema`, so that they can be fed.

        Raises:
            InputError: if there is no such input, or the batch lacks a column of it.
        """
        return as_joint(self.inputs, self.schema, name, batch)

    def collecting(self) -> Operator[Any] | None:
        """Give one like this that sets rows aside itself; None: others do that (`collecting`)."""
        return None

    def open(self) -> None:
        """Prepare scratch in this process; called once before anything else."""

    def close(self) -> None:
        """Undo `open`; called once, when the process ends in good order or by an error."""

    @abstractmethod
    def create(self, context: Context) -> S:
        """Make the state of a task that has seen no row."""

    @abstractmethod
    def process(self, state: S, batch: pa.RecordBatch, context: Context) -> None:
        """Take in rows of one task: change its state, `context.emit` and `context.feed`."""

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make few rows of `combined_schema` of the rows of one source batch, to be sent instead.

        Where they are sent, `process_combined` takes them and must do what `process` does with the
        rows. Called in feeders, and only as long as it leaves clearly fewer rows.
        """
        raise NotImplementedError

    def process_combined(self, state: S, batch: pa.RecordBatch, context: Context) -> None:
        """Take in rows that `combine` gave, of one task, as `process` takes rows."""
        raise NotImplementedError

    def adoptable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows of a state, as people have them, to `adopted_schema`.

        Raises:
            InputError: naming the column that is missing, or that nobody knows.
        """
        raise InputError(f"{self.name} takes no initial state: it has no adopted_schema")

    def adopt(self, state: S, batch: pa.RecordBatch, context: Context) -> None:
        """Take rows of a state from elsewhere into the state of a task; nothing is emitted.

        It is a change like any other: `changes` after it has what was taken over.
        """
        raise NotImplementedError

    def exported(self, state: S, context: Context) -> list[pa.RecordBatch]:
        """Write a state as rows that `adoptable` understands: all that it needs elsewhere."""
        return self.dump(state)

    def on_timer(self, state: S, timer: Timer, context: Context) -> None:
        """Hear that a timer is due. It is no longer set; all that `process` may do is allowed."""

    def fire(self, state: S, due: Sequence[Timer], context: Context) -> None:
        """Hear of timers that are due, soonest first; they are still set.

        Override it only to be faster than one call per timer. What is set in here and due already
        comes with the next call.
        """
        for timer in due:
            timers = context.event_timers if timer.event else context.timers
            if timers.cancel(timer.key, timer.at_us):  # not if one before it has cancelled it
                try:
                    self.on_timer(state, timer, context)
                except Exception as error:
                    raise self.timer_failure(context, timer, error) from error

    def timer_failure(self, context: Context, timer: Timer, error: BaseException) -> OperatorError:
        """Say which operator, task and timer an error belongs to."""
        why = str(self.failure(context, (0, 0), error)).split(": ", 1)[-1]
        where = f"timer of {timer.key} at {timer.at_us} us: {why}"
        return OperatorError(self.name, context.task, (0, 0), where)

    @abstractmethod
    def dump(self, state: S) -> list[pa.RecordBatch]:
        """Write the state as record batches of one schema."""

    @abstractmethod
    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> S:
        """Make the state that `dump` wrote; raise StateError for anything else."""

    def migrate(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        """Make of what an older version of this operator wrote what this one would have written.

        Its states and their changes come in pieces, each in a call of its own: what becomes of a row
        depends on that row alone.
        """
        raise StateError(self.misfit(version))

    def migrate_back(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        """Make of what this operator wrote what the older version would have; for `roll_back`."""
        raise StateError(f"{self.name} has no migrate_back to state version {version}")

    def misfit(self, version: int) -> str:
        """Say that a state is of another version."""
        return f"{self.name} writes state version {self.state_version}; this is version {version}"

    def migrates_from(self, version: int) -> bool:
        """Whether states of another version can be read."""
        own = type(self).migrate is not Operator.migrate and version < self.state_version
        return own or "migrate" in vars(self)  # a way back (`runtime.driver.versions`)

    @abstractmethod
    def size(self, state: S) -> int:
        """Tell how many bytes a move of this state carries; asked for every second."""

    def sizes(self, states: Sequence[S]) -> Sequence[int]:
        """Tell the sizes of several states. Override it only to be faster than one call per state."""
        return [self.size(state) for state in states]

    def freeze(self, state: S) -> None:
        """Hear that the state leaves: it will be dumped, and is never changed any more."""

    def seal(self, state: S) -> int | None:
        """End a version of the state and give its number; None if no versions are kept."""
        return None

    def seals(self, states: Sequence[S]) -> Sequence[int | None]:
        """End a version of several states. Override it only to be faster than one call per state."""
        return [self.seal(state) for state in states]

    def changes(self, state: S, since: int) -> list[pa.RecordBatch]:
        """Write what changed after a sealed version; the whole state if no versions are kept.

        Checkpoints and copies ahead hold marks of their own, and come back to one after a failure: any
        version that was sealed may be asked for, again and in any order. Sealing must not forget what
        was removed before; if it has, write the whole, so that `apply_changes` can tell.
        """
        return self.dump(state)

    def changes_of(
        self, states: Sequence[S], since: Sequence[int]
    ) -> list[tuple[pa.RecordBatch, list[int]]] | None:
        """Write what changed in several states, each after a version of its own, in one go.

        Gives batches with rows of all states in their order, and how many of them are whose:
        `apply_changes` is given those of one state. After version 0 that is everything, for `load`.
        None: ask for one after the other.
        """
        return None

    def apply_changes(self, state: S, batches: Sequence[pa.RecordBatch], context: Context) -> S:
        """Bring an older copy of a state up to date with `changes`, and give it."""
        return self.load(batches, context)

    def apply_changes_of(
        self,
        states: Sequence[S | None],
        parts: Sequence[tuple[pa.RecordBatch, Ints]],
        contexts: Sequence[Context],
    ) -> list[S]:
        """Bring older copies of several states up to date with what `changes_of` wrote of them.

        Rows `bounds[i] … bounds[i+1]-1` of a batch are the i-th state's. None for a state: there is no
        older copy, and they are all of it. Override it only to be faster than one call per state.
        """
        found = list[S]()
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            cuts = [(batch, int(bounds[i]), int(bounds[i + 1])) for batch, bounds in parts]
            batches = [batch.slice(lb, ub - lb) for batch, lb, ub in cuts if ub > lb]
            if state is None:
                found.append(self.load(batches, context))
            else:
                found.append(self.apply_changes(state, batches, context))
        return found

    def process_groups(
        self,
        states: Sequence[S],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Take in rows of several tasks, grouped: `bounds[i] … bounds[i+1]-1` are the i-th's.

        Override it only to be faster than one call per task. An operator that combines is given rows
        of `schema` or of `combined_schema`.

        Raises:
            OperatorError: names the task and the rows.
        """
        process = self.process_combined if self.is_combined(batch) else self.process
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            rows = int(bounds[i]), int(bounds[i + 1])
            try:
                process(state, batch.slice(rows[0], rows[1] - rows[0]), context)
            except Exception as error:
                raise self.failure(context, rows, error) from error

    def combine_groups(self, batch: pa.RecordBatch, bounds: Ints, hashes: Hashes) -> Combined:
        """Combine the rows of several source batches, each for itself.

        Override it only to be faster than one call per source batch.

        Args:
            batch: rows of `schema`.
            bounds: rows `bounds[g] … bounds[g+1]-1` are those of the g-th source batch.
            hashes: of the rows' keys.
        """
        parts, ends = list[pa.RecordBatch](), [0]
        for lb, ub in pairwise(bounds.tolist()):
            parts.append(self.combine(batch.slice(lb, ub - lb)))
            ends.append(ends[-1] + parts[-1].num_rows)
        whole = pa.concat_batches(parts)
        keys = [whole.column(key) for key in self.keys]
        return Combined(whole, np.array(ends), hash_columns(keys))

    def is_combined(self, batch: pa.RecordBatch) -> bool:
        """Whether these are rows that were combined."""
        return self.combined_schema is not None and COMBINED_ROWS in batch.schema.names

    def failure(
        self, context: Context, rows: tuple[int, int], error: BaseException
    ) -> OperatorError:
        """Say which operator, task and rows an error belongs to."""
        if isinstance(error, OperatorError):
            return error
        known = isinstance(error, MeanderError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        return OperatorError(self.name, context.task, rows, why)

    def failure_in(self, method: str, task: TaskId, error: BaseException) -> OperatorError:
        """Say which operator, method and task an error belongs to that is not about rows."""
        if isinstance(error, OperatorError):
            return error
        known = isinstance(error, MeanderError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        return OperatorError(self.name, task, (0, 0), f"{method}: {why}")


def state_rows(fields: Iterable[pa.Field]) -> pa.Schema:
    """Make an `adopted_schema` of columns: the mark is added.

    >>> state_rows([pa.field("word", pa.string()), pa.field("rows", pa.int64())]).names
    ['word', 'rows', '#state']
    """
    return pa.schema([*fields, pa.field(STATE_ROWS, pa.null())])


def is_state(batch: pa.RecordBatch) -> bool:
    """Whether these are rows of a state."""
    return STATE_ROWS in batch.schema.names


def check_operator(operator: Operator[Any]) -> None:
    """Refuse an operator that lacks what every operator must say.

    Raises:
        InputError: naming what is missing.
    """
    if not isinstance(cast(object, operator), Operator):
        given = f"the class {operator.__name__}" if isinstance(operator, type) else repr(operator)
        raise InputError(f"an operator is an instance of a subclass of Operator, not {given:.80}")
    for attribute in ("schema", "keys"):
        if not hasattr(operator, attribute):
            raise InputError(f"{operator.name} must have the attribute {attribute!r}")
    if not operator.keys:
        raise InputError(f"{operator.name}: keys is empty; name the columns that decide the task")
    for key in operator.keys:
        if key not in operator.schema.names:
            raise InputError(f"{operator.name}: the schema has no key column {key!r}")
    if operator.event_time is not None:
        _check_event_time(operator)
    if operator.combined_schema is not None:
        _check_combined(operator, operator.combined_schema)


def _check_event_time(operator: Operator[Any]) -> None:
    column, schema = operator.event_time, operator.schema
    if column not in schema.names:
        raise InputError(f"{operator.name}: the schema has no event-time column {column!r}")
    if not pa.types.is_timestamp(schema.field(column).type):
        kind = schema.field(column).type
        raise InputError(f"{operator.name}: event time {column!r} is {kind}, not a timestamp")
    if operator.delay_s < 0 or operator.idle_s <= 0 or operator.feeders_min < 1:
        raise InputError(
            f"{operator.name}: delay_s is at least 0, idle_s more, feeders_min at least 1"
        )


def _check_combined(operator: Operator[Any], combined: pa.Schema) -> None:
    if type(operator).combine is Operator.combine:
        raise InputError(f"{operator.name} has a combined_schema, and no method combine")
    for key in operator.keys:
        kind = operator.schema.field(key).type
        if key not in combined.names or combined.field(key).type != kind:
            raise InputError(
                f"{operator.name}: combined_schema needs the key {key!r}, of type {kind}"
            )
    if COMBINED_ROWS in operator.schema.names:
        raise InputError(
            f"{operator.name}: {COMBINED_ROWS!r} is the name of a column of combined rows"
        )
    if COMBINED_ROWS not in combined.names or combined.field(COMBINED_ROWS).type != pa.int64():
        raise InputError(
            f"{operator.name}: combined_schema needs the column {COMBINED_ROWS!r} of type int64: how "
            "many rows a row stands for"
        )
