"""A user's operator behind the protocol's machine.

The machine hands over rows chunk by chunk; here they are only noted, and `settle` gives them to the
operator in as few calls as possible. The shell settles before anything that the rows caused leaves the
process, and everything here that looks at a state settles first.

What a task sends to tasks of operators has to be in its outbox before the machine goes on. So one
that feeds others, or says that it feeds its own input (`feeds = True`), is asked as soon as all chunks
of a message are there (`gather`, `collect`), if it has a `process_groups` of its own. One that has none
is asked chunk by chunk.

The parts, none of which knows the adapter:

    grouping    rows and watermarks that wait, put together for one call
    feeding     what tasks send to tasks of operators, their own among them
    telling     watermarks that they tell those
    timing      watermarks and timers of an operator that is `timed`
    keeping     outputs: part of the task's state until somebody has fetched them
    recording   records for the durable store
    copying     copies ahead of a move
    dumping     moves in one piece
    work        what was done, and how long it took
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from meander.errors import OperatorError
from meander.model import Ints, TaskId
from meander.operators.base import COMBINED_ROWS, Context, Operator, is_state
from meander.operators.letters import ERRORS
from meander.operators.topology import OperatorTasks
from meander.protocol.messages import ONCE, FeederId
from meander.protocol.settings import Settings
from meander.protocol.state import Emission, Pieces
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.app_state import AppState, Call, Sealed
from meander.runtime.process.contexts import Contexts
from meander.runtime.process.copying import CopyMaker
from meander.runtime.process.dumping import Dumper, dump_rows, join_rows, load_rows
from meander.runtime.process.feeding import FEED, Route, Routes, spread
from meander.runtime.process.grouping import Noted, NotedBlock, NotedRows, grouped
from meander.runtime.process.keeping import OutputKeeper, OutputNews
from meander.runtime.process.outputs import ROWS_MAX, Outputs
from meander.runtime.process.recording import Recorder
from meander.runtime.process.telling import WatermarkTeller
from meander.runtime.process.timing import Timing
from meander.runtime.process.user_code import ask, size_of, sizes_of, written
from meander.runtime.process.watermarks import END
from meander.runtime.process.work import Work
from meander.runtime.store.staged import Laid, LaidRows
from meander.runtime.wire.rows import RowBlock, Rows, ends_of, joined


class Place(NamedTuple):
    """Where an operator stands in a topology; as it is here, alone."""

    first: TaskId = 0
    """The number of its first task."""
    routes: Routes | None = None
    """The ways out of it; None: `feed` alone."""
    waits: tuple[int, int] | None = None
    """Whose watermarks its tasks wait for: so many tasks of other operators, and feeders."""
    keeps: bool = True
    """Whether what it emits is kept for readers."""
    work: Work | None = None
    """Counts what all operators of the node do; None: it has one of its own."""
    news: OutputNews | None = None
    """Hears of outputs of all of them; None: it has one of its own."""
    settings: Settings = Settings()
    """Of the protocol."""


class OperatorAdapter:
    """The protocol's `Operator` on a user's."""

    def __init__(
        self,
        operator: Operator[Any],
        tasks: int,
        clock: Clock = REAL,
        *,
        laid: LaidRows | None = None,
        gated: bool = False,
        output_rows_max: int = ROWS_MAX,
        place: Place | None = None,
    ) -> None:
        """Put an operator behind a machine.

        Args:
            operator: the user's.
            tasks: how many it has.
            clock: what it goes by.
            laid: keeps rows of micro-batches that are not committed.
            gated: whether outputs are shown only when a record that holds them is durable.
            output_rows_max: rows of outputs that a task keeps for whoever reads them.
            place: where it stands in a topology; None: it is alone.
        """
        self.operator, self.tasks = operator, tasks
        first, routes, waits, keeps, work, news, settings = place or Place()
        self.keeper = OutputKeeper(
            operator,
            gated=gated,
            rows_max=output_rows_max,
            keeps=keeps,
            keeps_aside=keeps or ERRORS not in (routes or ()),
            news=news,
        )
        self.timing = Timing(
            operator, tasks, self.keeper, clock.wall_us, first, waits,
            lambda: int(1e6 * clock.monotonic()),
        )  # fmt: skip
        self.work = work or Work(tasks, clock, operator.trace_chunks_max)
        self.laid = laid or LaidRows()
        own_way = Route(OperatorTasks(operator.name, operator, first, tasks), tells=False)
        self.routes: Routes = {FEED: [own_way]} if routes is None else routes
        """The ways out of it."""
        ways = [route for some in self.routes.values() for route in some]
        telling = any(route.tells for route in ways)
        self.teller = WatermarkTeller(ways, tasks, settings) if telling else None
        self._sends = len(ways) > 1
        """Whether it feeds others, or itself by an edge."""
        self._recorder = Recorder(operator, tasks, self.timing)
        self._copies = CopyMaker(self._recorder, self.empty)
        self._dumper = Dumper(operator, tasks, self.timing)
        own = type(operator).process_groups is not Operator.process_groups
        self.timed = operator.timed
        """Whether tasks have a watermark and timers."""
        self.defers = own and not getattr(operator, "feeds", False) and not self._sends
        """Whether rows are noted for `settle`."""
        self.gathers = own and not self.defers
        """Whether rows that come together are given to it together, though it feeds."""
        self.takes_blocks = self.defers and not self.timed and not operator.trace_chunks_max
        """Whether rows of many tasks are taken in one go."""
        self._gathering = False
        self._noted = NotedRows()
        """What was noted chunk by chunk. As long as there is any, no block is noted, and conversely:
        a task has its rows in their order."""
        self._blocks: list[NotedBlock] = []
        self._batched: set[TaskId] = set()
        """Tasks with a micro-batch that was noted: the next is a call of its own."""
        self._fresh: Any = None
        """The batch of the message in hand: chunks of another one have waited."""

    # ------------------------------------------------------------------ rows

    def arriving(self, batch: Any) -> None:
        """Hear which batch the next chunks belong to if they did not wait."""
        self._fresh = batch

    def empty(self, task: TaskId) -> AppState:
        """Make the state of a task that has seen nothing."""
        app = AppState(task, None, Outputs(), self.timing.fresh())
        context = self.timing.context(app)
        app.state = ask(self.operator, task, "create", self.operator.create, context)
        return app

    def apply(
        self, task: TaskId, app: AppState, feeder: FeederId, rows: Rows, after: int
    ) -> Iterable[Emission]:
        """Note rows for `settle`; an operator that feeds takes them at once."""
        waited = rows.batch is not self._fresh
        if not self.timed:
            return self._take(Noted(app, feeder, rows.after(after), waited), ())
        found: list[Emission] = []
        for part, watermark in rows.parts():
            said = () if watermark is None else (watermark,)
            found += self._take(Noted(app, feeder, part.after(after), waited), said)
        return found

    def apply_block(self, tasks: Ints, apps: Any, feeder: FeederId, rows: RowBlock) -> None:
        """Note the rows of many tasks for `settle`; `apps` has the state of each, by its number."""
        if self._noted:
            self.settle()
        self._blocks.append(NotedBlock(tasks, apps[tasks].tolist(), feeder, rows))

    def apply_batch(
        self, task: TaskId, app: AppState, feeder: FeederId, parts: Sequence[Rows]
    ) -> Iterable[Emission]:
        """Take a micro-batch: all its rows in one call, then its watermark.

        A write without a query is one of its own, and leaves with its only batch.
        """
        watermarks = [part.watermark for part in parts if part.watermark is not None]
        last = [max(watermarks)] if watermarks else []
        if last and feeder.startswith(ONCE):
            last.append(END)
        full = [part for part in parts if part.count]
        batch = joined(full)[0] if full else parts[0].batch
        rows = Rows(batch, 0, sum(part.count for part in full))
        if self.timing.wait and not full and not last:
            return self._fire_waiting(app)
        if app.task in self._batched:
            self.settle()
        if self.defers:
            self._batched.add(app.task)
        return self._take(Noted(app, feeder, rows, waited=False), last)

    def _take(self, noted: Noted, watermarks: Sequence[int]) -> Iterable[Emission]:
        app, found = noted.app, list[Emission]()
        if noted.rows.count:
            if self.defers or self._gathering:
                if self._blocks:
                    self.settle()
                self._noted.note(noted)
            else:
                found += self._fed(self._process([noted]), self._due_us([noted]))
        if watermarks and (self.defers or self._gathering):
            for watermark in watermarks:
                self._noted.hear(app, noted.feeder, watermark)
        elif watermarks:
            said = [(noted.feeder, watermark) for watermark in watermarks]
            found += self._fed(self.timing.hear({app.task: (app, said)}))
        return found

    def _fire_waiting(self, app: AppState) -> Iterable[Emission]:
        """Have timers that wait for a batch fire behind one without rows for their task."""
        self.settle()
        context = self.timing.context(app)
        self.timing.fire(app, context, by_clock=True)
        if self.defers:
            self._refuse_fed([(app, context)])
        return self._fed([(app, context)])

    def gather(self) -> bool:
        """Hear that many chunks follow: an operator that feeds takes them in one call, too."""
        self._gathering = self.gathers
        return self._gathering

    def collect(self) -> Iterable[tuple[TaskId, Emission]] | None:
        """Give the operator all chunks since `gather`; say which task feeds what. None: there are none.

        Raises:
            OperatorError: naming task, rows and where they came from. The states are spoilt.
        """
        if not self._gathering:
            return None
        self._gathering = False
        if not self._noted:
            return None
        found = list[tuple[TaskId, Emission]]()
        for layer in self._noted.take():
            for group in grouped(layer.noted):
                found += self._spread(self._process(group), self._due_us(group))
            found += self._spread(self.timing.hear(layer.watermarks))
        return found

    def _spread(
        self, calls: Sequence[Call], due_us: int | None = None
    ) -> list[tuple[TaskId, Emission]]:
        """Sort what calls have sent; what they have learned of time may follow it.

        What rows were made of was due at some time; what timers made is due now.
        """
        teller, due_us = self.teller, self.timing.clock() if due_us is None else due_us
        before = None if teller is None else teller.before
        found = list(spread(self.operator, self.routes, calls, before, due_us))
        if teller is not None:
            for app, _ in calls:
                teller.called(app)
        return found

    def _fed(self, calls: Sequence[Call], due_us: int | None = None) -> Iterable[Emission]:
        return [emission for _, emission in self._spread(calls, due_us)]

    def _due_us(self, group: list[Noted]) -> int | None:
        """Tell when the first of some rows was due; None: they do not say."""
        if not self._sends:
            return None
        return min(
            (noted.rows.marks[0].due_us for noted in group if noted.rows.marks), default=None
        )

    def settle(self) -> None:
        """Give the operator all rows that were noted.

        Raises:
            OperatorError: naming task, rows and where they came from. The states are spoilt.
        """
        self._batched.clear()
        if self._blocks:
            blocks, self._blocks = self._blocks, []
            for block in blocks:
                self._process_block(block)
        if not self._noted or self._gathering:
            return
        for layer in self._noted.take():
            for group in grouped(layer.noted) if layer.noted else ():
                self._refuse_fed(self._process(group))
            self._refuse_fed(self.timing.hear(layer.watermarks))

    def _refuse_fed(self, calls: Iterable[Call]) -> None:
        for app, context in calls:
            if context.fed:
                why = "it feeds its own input: say so with `feeds = True` in the class"
                raise OperatorError(self.operator.name, app.task, (0, 0), why)

    def _process(self, group: list[Noted]) -> list[Call]:
        """Call the operator once; the group's tasks ascend, and equal ones are neighbours."""
        began = self.work.now_s()
        batch, starts = joined([noted.rows for noted in group])
        apps, bounds = list[AppState](), list[int]()
        for noted, start in zip(group, starts, strict=True):
            if not apps or apps[-1] is not noted.app:
                apps.append(noted.app)
                bounds.append(start)
        bounds.append(batch.num_rows)
        contexts = [self.timing.context(app) for app in apps]
        states = [app.state for app in apps]
        take = self._adopt if is_state(batch) else self.operator.process_groups
        try:
            take(states, np.array(bounds), batch, contexts)
        except Exception as error:
            raise self._failure(group, starts, contexts, error) from error
        for app, context in zip(apps, contexts, strict=True):
            self.keeper.keep(app, context.emitted, context.aside)
            if self.timed:
                self.timing.follow(app, context)
        busy_s, stand_for = self.work.now_s() - began, self._stand_for(batch)
        self.work.count(group, batch.num_rows, busy_s, stand_for)
        return list(zip(apps, contexts, strict=True))

    def _adopt(
        self,
        states: Sequence[Any],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
    ) -> None:
        """Have rows of a state taken over, task by task."""
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            rows = int(bounds[i]), int(bounds[i + 1])
            try:
                self.operator.adopt(state, batch.slice(rows[0], rows[1] - rows[0]), context)
            except Exception as error:
                raise self.operator.failure(context, rows, error) from error

    def _stand_for(self, batch: pa.RecordBatch) -> Ints | None:
        """Tell how many rows each combined one stands for; None: they are rows as they were fed."""
        if not self.operator.is_combined(batch):
            return None
        counts: Ints = batch.column(COMBINED_ROWS).to_numpy()
        return counts

    def _process_block(self, noted: NotedBlock) -> None:
        """Call the operator once."""
        began, rows = self.work.now_s(), noted.rows.cut()
        contexts = Contexts(noted.apps, self.timing.context)
        states = [app.state for app in noted.apps]
        try:
            self.operator.process_groups(states, rows.bounds, rows.batch, contexts)
        except Exception as error:
            starts = rows.bounds[:-1].tolist()
            raise self._failure(noted.chunks(), starts, contexts, error) from error
        for app, context in contexts.made():
            self.keeper.keep(app, context.emitted, context.aside)
            self._refuse_fed([(app, context)])
        busy_s, stand_for = self.work.now_s() - began, self._stand_for(rows.batch)
        self.work.count_block(noted.tasks, rows, busy_s, stand_for)

    def _failure(
        self,
        group: list[Noted],
        starts: list[int],
        contexts: Sequence[Context],
        error: Exception,
    ) -> OperatorError:
        """Say which task, rows and source batches an error belongs to."""
        found = self.operator.failure(contexts[0], (0, sum(n.rows.count for n in group)), error)
        row = found.rows[0]
        at = max(i for i, start in enumerate(starts) if start <= row)
        noted, why = group[at], str(found).split(": ", 1)[-1]
        marks = noted.rows.marks
        where = " batches {} to {}".format(*ends_of(marks)) if marks else ""
        rows = row - starts[at], found.rows[1] - starts[at]
        return OperatorError(
            self.operator.name, noted.app.task, rows, f"{why} (rows of {noted.feeder}{where})"
        )

    def elapse(self, task: TaskId, app: AppState, now: float) -> Iterable[Emission] | None:
        """Let a task that is served hear that time has passed; None if that changed nothing.

        Raises:
            OperatorError: naming the key and the timer.
        """
        told = self._told(app)
        if not self.timing.due(app):
            return told
        self.settle()
        context = self.timing.elapse(app)
        if context is None:
            return told
        if self.defers:
            self._refuse_fed([(app, context)])
        return [*(told or ()), *self._fed([(app, context)])]

    def _told(self, app: AppState) -> list[Emission] | None:
        """Tell the watermark to those who got no rows, when it is time; None: it is not."""
        if self.teller is None or not self.teller.due(app, now_us := self.timing.steady()):
            return None
        return self.teller.speak(app, now_us)

    def owes(self, app: AppState) -> bool:
        """Whether somebody whom a task feeds has not heard its watermark yet."""
        return self.teller is not None and self.teller.owes(app)

    # ------------------------------------------------------------------ states

    def size(self, app: AppState) -> int:
        """Give a state's size in bytes."""
        size = size_of(self.operator, app) + app.outputs.bytes
        return size if app.time is None else size + app.time.size

    def sizes(self, apps: Sequence[AppState]) -> list[int]:
        """Give the sizes of several states, in bytes."""
        found = zip(apps, sizes_of(self.operator, apps), strict=True)
        return [
            size + app.outputs.bytes + (0 if app.time is None else app.time.size)
            for app, size in found
        ]

    def freeze(self, app: AppState) -> None:
        """Hear that a task leaves: what it has taken in is in its state, which never changes again."""
        self.settle()
        ask(self.operator, app.task, "freeze", self.operator.freeze, app.state)

    def show(self, app: AppState, *, whole: bool = False) -> Any:
        """Give a state as rows for people: results where the state has some, else what is dumped.

        With `whole`, all that it takes to begin with it elsewhere.
        """
        self.settle()
        if whole:
            about = app.state, self.timing.context(app)
            found = ask(self.operator, app.task, "exported", self.operator.exported, *about)
            return pa.Table.from_batches(found) if found else None
        if hasattr(app.state, "result"):
            result = ask(self.operator, app.task, "result", app.state.result)
            return pa.Table.from_batches([result])
        batches = written(self.operator, app)
        return pa.Table.from_batches(batches) if batches else None

    def dump(self, app: AppState) -> bytes:
        """Write a state whole."""
        self.settle()
        return self._dumper.dump(app)

    def load(self, task: TaskId, blob: bytes) -> AppState:
        """Read what `dump` wrote; ValueError if that is not what it is."""
        return self._dumper.load(task, blob)

    def seal(self, app: AppState) -> Sealed:
        """End a version of a task's state."""
        return self._recorder.seal(app)

    def seal_all(self, apps: Sequence[AppState]) -> list[Sealed]:
        """End a version of the states of several tasks."""
        return self._recorder.seal_all(apps)

    def record(self, app: AppState, since: Sealed | None) -> Callable[[], Sequence[Any]]:
        """Take what a record shall hold; what is given back makes the bytes."""
        self.settle()
        return self._recorder.record(app, since)

    def joins(self, apps: Sequence[AppState]) -> list[bool]:
        """Tell which tasks may stand with others in one record."""
        self.settle()
        return self._recorder.joins(apps)

    def record_joint(
        self, apps: Sequence[AppState], since: Sequence[Sealed | None]
    ) -> Callable[[], Sequence[Any]] | None:
        """Take what has changed in several tasks; None: that is asked of one after the other."""
        self.settle()
        return self._recorder.record_joint(apps, since)

    def admitted_joint(self, found: Any) -> Any:
        """Refuse what was read of another operator: ValueError; bring older versions to this one."""
        return self._recorder.admitted_joint(found)

    def open_joint(self, blob: bytes) -> Any:
        """Read what `record_joint` wrote; ValueError if that is not what it is."""
        return self._recorder.open_joint(blob)

    def revise_joint(
        self,
        tasks: Sequence[TaskId],
        apps: Sequence[AppState | None],
        found: Any,
        places: Sequence[int],
    ) -> list[AppState]:
        """Bring tasks up to date with their parts of what `open_joint` gave."""
        return self._recorder.revise_joint(tasks, apps, found, places)

    def revise(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read a record that counts; ValueError if that is not what it is."""
        return self._recorder.revise(task, app, blob)

    @property
    def news(self) -> OutputNews:
        """Tells that there are more outputs to read."""
        return self.keeper.news

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Hear that a record is durable: so are the outputs in it."""
        self.keeper.accepted(app, mark)

    def ahead(self, app: AppState, since: Sealed | None) -> tuple[Any, Pieces] | None:
        """Write what has changed in a state after a mark (None: everything), in pieces."""
        self.settle()
        return self._copies.ahead(app, since)

    def catch_up(self, task: TaskId, app: AppState | None, piece: bytes) -> AppState:
        """Bring a copy up to date with a piece; ValueError if that is not what it is."""
        return self._copies.catch_up(task, app, piece)

    def rest(self, app: AppState, since: Sealed) -> bytes:
        """Write all that a copy of this version lacks."""
        self.settle()
        return self._copies.rest(app, since)

    def complete(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Make a state of a copy and what `rest` wrote; ValueError if that is not what it is."""
        return self._copies.complete(task, app, blob)

    # ------------------------------------------------------------------ rows that wait

    def dump_rows(self, rows: Rows) -> bytes:
        """Write rows that are staged or in a loop."""
        return dump_rows(rows)

    def load_rows(self, blob: bytes) -> Rows:
        """Read what `dump_rows` wrote."""
        return load_rows(blob)

    def join_rows(self, parts: Sequence[Rows]) -> Rows | None:
        """Put rows together that a task has sent to another."""
        return join_rows(parts)

    def lay_by(self, rows: Rows) -> Laid | None:
        """Keep rows that wait for their commit; None if there is no room."""
        return self.laid.lay_by(rows, dump_rows)

    def take_up(self, laid: Laid) -> Rows | None:
        """Give rows that were laid by; None if the disk has lost them."""
        return self.laid.take_up(laid, load_rows, self.settle)
