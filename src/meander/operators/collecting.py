"""Any operator, with rows that make it raise set aside: `on_error="collect"`.

An operator that has raised may have changed its state half. So beside every state there is what it
takes to have it again as it was: an older dump, and the calls since.

    dump ── call ── call ── call ── ✗         ─►    load(dump), call, call, call    ─►    row by row
                                 raises              (what they emit, nobody hears)

The rows of a call that raised are then given one by one, so that only those are set aside that cannot
be taken. A new dump is made when the calls have brought as many bytes as the state has (or the
checkpoint makes one), so all dumps together cost about what the rows do. What is given up: memory for
a second copy, incremental checkpoints and copies ahead (a state that was made anew has no versions).

One rule more for the operator: given the same rows again, it does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple

import pyarrow as pa

from meander.errors import OperatorError
from meander.operators.base import Context, Operator, S, check_operator
from meander.operators.letters import Letters, with_errors
from meander.operators.timers import Timer, Timers

CALLS_BYTES_MIN: Final = 2**18
"""Calls are remembered up to this, however small the state is."""
CALL_BYTES: Final = 256
"""What a call takes beside its rows: one that only heard of a timer has none."""
ALIKE: Final = (
    "schema", "keys", "inputs", "event_time", "delay_s", "idle_s", "feeders_min", "timers_wait",
    "trace_chunks_max", "state_version", "state_schema", "adopted_schema", "late_rows",
    "feeds", "dump_schema",
)  # fmt: skip


class Call(NamedTuple):
    """A call that did not raise."""

    run: Callable[[Any, Context], None]
    now_us: int
    watermark_us: int
    late_us: int | None


@dataclass(slots=True)
class Kept(Generic[S]):
    """A task's state, and what it takes to have it again as it was before a call."""

    state: S
    base: list[pa.RecordBatch] | None = None
    """An older dump; None: it began empty."""
    timers: tuple[Timers, Timers] | None = None
    """Those of both kinds at that time; None: nothing was called since."""
    calls: list[Call] = field(default_factory=list)
    """What was called since."""
    bytes: int = 0
    """What they take."""

    def __getattr__(self, name: str) -> Any:
        if name in Kept.__slots__:
            raise AttributeError(name)
        return getattr(self.state, name)

    def begin_at(self, dump: list[pa.RecordBatch]) -> None:
        """Go on from a dump of the state as it is."""
        self.base, self.timers, self.calls, self.bytes = dump, None, [], 0


def collecting(operator: Operator[Any]) -> Operator[Any]:
    """Give an operator that does what this one does, and sets rows aside that it cannot take.

    Raises:
        InputError: if its output has a column `error` or `error_row`.

    >>> from meander.operators import WordCount
    >>> class Scores(WordCount):
    ...     '''Cannot count bad words.'''
    ...
    ...     def process(self, state, batch, context):
    ...         super().process(state, batch, context)
    ...         if "bad" in batch["word"].to_pylist():
    ...             raise ValueError("a bad word")
    >>> scores, here = collecting(Scores()), Context(task=0, tasks=1)
    >>> state = scores.create(here)
    >>> scores.process(state, pa.record_batch({"word": ["to", "bad", "be"]}), here)
    >>> state.result().to_pydict()
    {'word': ['to', 'be'], 'count': [1, 1]}
    >>> here.aside[0].to_pylist()
    [{'error': 'ValueError: a bad word', 'error_row': '{"word": "bad"}'}]
    """
    check_operator(operator)
    if operator.collects:
        return operator
    own = operator.collecting()
    return Collecting(operator) if own is None else own


class Collecting(Operator[Kept[S]]):
    """An operator that sets rows aside which another cannot take; `collecting` makes one."""

    collects = True

    def __init__(self, operator: Operator[S]) -> None:
        self.operator = operator
        for name in ALIKE:
            if hasattr(operator, name) and getattr(operator, name) is not getattr(self, name, None):
                setattr(self, name, getattr(operator, name))
        self._emits = operator.output_schema or pa.schema([])
        self.output_schema = with_errors(self._emits)

    @property
    def name(self) -> str:
        """As the other one is called: their states are the same."""
        return self.operator.name

    @property
    def timed(self) -> bool:
        """Whether the other one hears of time."""
        return self.operator.timed

    # ------------------------------------------------------------------ rows and timers

    def process(self, state: Kept[S], batch: pa.RecordBatch, context: Context) -> None:
        """Have rows taken; if that raises, one by one."""

        def take(rows: pa.RecordBatch) -> Exception | None:
            def run(inner: S, here: Context) -> None:
                self.operator.process(inner, rows, here)

            return self._tried(state, run, rows.nbytes, context)

        letters = Letters(self._emits)
        if take(batch) is not None:
            for at in range(batch.num_rows):
                row = batch.slice(at, 1)
                error = take(row)
                if error is not None:
                    letters.add(error, row.to_pylist())
        letters.send(context)

    def fire(self, state: Kept[S], due: Sequence[Timer], context: Context) -> None:
        """Have timers heard; if that raises, one by one, and one that raises is over."""

        def hear(timers: Sequence[Timer]) -> Exception | None:
            def run(inner: S, here: Context) -> None:
                self.operator.fire(inner, timers, here)

            return self._tried(state, run, 0, context)

        letters = Letters(self._emits)
        if hear(due) is not None:
            for timer in due:
                error = hear([timer])
                if error is not None:
                    self._cancel(state, timer, context)
                    key = dict(zip(self.keys, timer.key, strict=False))
                    letters.add(error, [{**key, "timer_ms": timer.at_us // 1000}])
        letters.send(context)

    def _cancel(self, state: Kept[S], timer: Timer, context: Context) -> None:
        def run(inner: S, here: Context) -> None:
            timers = here.event_timers if timer.event else here.timers
            timers.cancel(timer.key, timer.at_us)

        self._tried(state, run, 0, context)

    def _tried(
        self, kept: Kept[S], run: Callable[[S, Context], None], size: int, context: Context
    ) -> Exception | None:
        """Call the operator; undo all that it did if it raises, and give what it raised."""
        if kept.timers is None:
            kept.timers = context.timers.copy(), context.event_timers.copy()
        outs = context.emitted, context.sent, context.fed
        ends, late = [len(out) for out in outs], self.operator.late_rows
        try:
            run(kept.state, context)
            context.emitted[ends[0] :] = map(self._widened, context.emitted[ends[0] :])
        except Exception as error:
            for out, end in zip(outs, ends, strict=True):
                del out[end:]
            self._undo(kept, context, error)
            self.operator.late_rows = late
            return error
        self.late_rows = self.operator.late_rows
        self._note(kept, Call(run, context.now_us, context.watermark_us, context.late_us), size)
        return None

    def _widened(self, emitted: pa.RecordBatch) -> pa.RecordBatch:
        return Letters(self._emits).widened(emitted)

    def _note(self, kept: Kept[S], call: Call, size: int) -> None:
        """Remember a call, or dump when it is cheaper than to remember."""
        kept.calls.append(call)
        kept.bytes += size + CALL_BYTES
        if kept.bytes > CALLS_BYTES_MIN and kept.bytes > self.operator.size(kept.state):
            kept.begin_at(self.operator.dump(kept.state))

    def _undo(self, kept: Kept[S], context: Context, error: Exception) -> None:
        """Make the state as it was before a call that raised."""
        assert kept.timers is not None
        context.timers.become(kept.timers[0])
        context.event_timers.become(kept.timers[1])
        try:
            here = _silent(context)
            create, load = self.operator.create, self.operator.load
            state = create(here) if kept.base is None else load(kept.base, here)
            for run, now_us, watermark_us, late_us in kept.calls:
                run(state, replace(_silent(context), now_us=now_us, watermark_us=watermark_us,
                                   late_us=late_us))  # fmt: skip
        except Exception as again:
            why = (
                f"{error!r} cannot be set aside: rows that it had taken make it raise {again!r} when "
                'given again; with on_error="collect" an operator does the same with the same rows'
            )
            raise OperatorError(self.name, context.task, (0, 0), why) from again
        kept.state = state
        kept.begin_at(self.operator.dump(state))  # more may follow: they need not go so far back
        kept.timers = context.timers.copy(), context.event_timers.copy()

    # ------------------------------------------------------------------ as the other one does

    def create(self, context: Context) -> Kept[S]:
        """Begin a task that has seen nothing."""
        return Kept(self.operator.create(context))

    def dump(self, state: Kept[S]) -> list[pa.RecordBatch]:
        """Write the state; whatever comes later can be undone up to here."""
        found = self.operator.dump(state.state)
        state.begin_at(found)
        return found

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> Kept[S]:
        """Make the state that `dump` wrote."""
        return Kept(self.operator.load(batches, context), list(batches))

    def adopt(self, state: Kept[S], batch: pa.RecordBatch, context: Context) -> None:
        """Take rows of a state over."""

        def run(inner: S, here: Context) -> None:
            self.operator.adopt(inner, batch, here)

        error = self._tried(state, run, batch.nbytes, context)
        if error is not None:
            raise error

    def adoptable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows of a state to `adopted_schema`."""
        return self.operator.adoptable(rows)

    def exported(self, state: Kept[S], context: Context) -> list[pa.RecordBatch]:
        """Write a state as rows that `adoptable` understands."""
        return self.operator.exported(state.state, context)

    def size(self, state: Kept[S]) -> int:
        """Tell the size of the state itself."""
        return self.operator.size(state.state)

    def freeze(self, state: Kept[S]) -> None:
        """Hear that the state leaves."""
        self.operator.freeze(state.state)

    def migrate(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        """Bring what an older version wrote up to date."""
        return self.operator.migrate(batches, version)

    def migrate_back(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        """Make what an older version would have written."""
        return self.operator.migrate_back(batches, version)

    def migrates_from(self, version: int) -> bool:
        """Whether states of another version can be read."""
        return self.operator.migrates_from(version) or "migrate" in vars(self)

    def of_input(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows of a named input to `schema`."""
        return self.operator.of_input(name, batch)

    def open(self) -> None:
        """Prepare scratch in this process."""
        self.operator.open()

    def close(self) -> None:
        """Undo `open`."""
        self.operator.close()


def _silent(context: Context) -> Context:
    """Give a context whose outputs nobody hears."""
    return replace(context, emitted=[], sent=[], aside=[], fed=[])
