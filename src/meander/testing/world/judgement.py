"""What is judged when a simulated world has come to its end: states, outputs, answers, what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from meander.errors import (
    CheckpointError,
    DeployError,
    InputError,
    MalformedMessage,
    OperatorFailedError,
)
from meander.model import TaskId
from meander.protocol.edges.server import StateServer
from meander.protocol.messages import News
from meander.protocol.node.node import Node
from meander.protocol.reading import Blob, restore
from meander.protocol.records import file_of
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.store.durable import left_by
from meander.testing.world.driver import WAY_BACK, SimDriver
from meander.testing.world.sinks import SimSink
from meander.testing.world.user import Failure

if TYPE_CHECKING:
    from meander.testing.world.checkers import WorldCheckers
    from meander.testing.world.world import World

HEALED_S: Final = 10.0
"""So long after all faults are over their consequences may show."""
LATER_DRIVER: Final = "later driver"
"""Whoever was replaced is told so."""
LOSES_ROWS: Final = frozenset({"master", "cut", "raise", "dump", "store", "limits"})
"""What ends drivers: the next one knows nothing of rows that were staged. And a lack of room: staged
rows that move with their task find none."""
ORDER_S: Final = 1.0
"""So long an order may be without an answer."""
OVERDUE_S: Final = 1.0
"""So long after its time a timer may wait."""
HEARD_S: Final = 0.5
"""So long after all is quiet everybody has heard of the last table."""
UNNEEDED_MAX: Final = 22
"""So many files may wait to be deleted."""


class Judgement:
    """The last look at one world."""

    def __init__(self, world: World, checkers: WorldCheckers) -> None:
        self.world, self.checkers, self.violated = world, checkers, checkers.violated

    def final(self) -> None:
        """Everything has come to its end: compare, and look for what was left over."""
        world = self.world
        world.behave()  # what is read from here on is read by those who judge
        states = {
            t: s for t, s in world.people.states().items() if t not in self.checkers.lost_tasks
        }
        missing = set(range(world.tasks)) - set(states) - self.checkers.lost_tasks
        if missing:
            self.violated("end", f"tasks {sorted(missing)} are served by nobody")
        outputs: dict[TaskId, list[tuple[int, pa.RecordBatch]]] = {}
        if world.people.readers:
            outputs = {task: [] for task in states if task not in world.people.gone}
            for (task, number), batch in sorted(
                self.checkers.shown.items(), key=lambda item: item[0]
            ):
                if task in outputs:
                    outputs[task].append((number, batch))
        if world.people.sinks:
            outputs = self._written(world.people.sinks, set(states))
        for text in world.trial.judge(states, outputs):
            self.violated("end", text)
        if world.durable:
            if world.people.sinks:
                outputs = self._durable(outputs)
            for text in world.trial.judge(self._restored(states), outputs):
                self.violated("store", f"what would be restored: {text}")
        for order in world.driver.under_way():
            self.violated("answer", f"{order.what} of {order.at:.3f} has not come to its end")
        self._vacated(world.driver)
        self._of_one_version(world.driver)
        self._ended_once(world.driver)
        self._as_asked(world.driver)
        self._left_over()
        self._overdue()
        self._unneeded()
        self._beside()
        self.rest()
        self._let_go()

    def _written(
        self, sinks: Sequence[SimSink], tasks: set[TaskId]
    ) -> dict[TaskId, list[tuple[int, pa.RecordBatch]]]:
        """A sink has every output once, or at least once; give them as it was told of them."""
        emitted, dropped = self.world.people.emitted(), self.world.limits.output_rows < ROWS_MAX
        found: dict[TaskId, list[tuple[int, pa.RecordBatch]]] = {}
        for sink in sinks:
            for text in sink.wrong(emitted, dropped=dropped):
                self.violated("sink", text)
            for task in tasks.intersection(sink.tasks):
                outputs = sink.outputs(task, emitted[task - sink.first], dropped=dropped)
                if outputs is not None:
                    found[task] = outputs
        return found

    def _durable(
        self, outputs: dict[TaskId, list[tuple[int, pa.RecordBatch]]]
    ) -> dict[TaskId, list[tuple[int, pa.RecordBatch]]]:
        """Leave out what the checkpoint has not: a sink may have been told of it all the same."""
        self.checkers.look_at_store()
        last = partial(self.checkers.store.outputs, self.checkers.oracle.manifest)
        return {task: [it for it in has if it[0] <= last(task)] for task, has in outputs.items()}

    def _vacated(self, driver: SimDriver) -> None:
        """Whoever was to leave has left, wherever that was said to be done."""
        there = set(driver.core.master.membership.nodes())
        for order in driver.book:
            done = order.rescaling is not None and order.rescaling.stage == News.COMPLETED
            if done and (left := there.intersection(order.gone)):
                self.violated("answer", f"{sorted(left)} are there, and should have left")

    def _of_one_version(self, driver: SimDriver) -> None:
        """All nodes run what the last upgrade has brought, or what it was rolled back to."""
        code = driver.core.versions[0].pickled
        for order in driver.book:
            if not order.code or not order.granted or order.rescaling is None:
                continue
            if order.rescaling.stage == News.SUPERSEDED:
                return  # whoever took its place may have gone on with it
            if order.what == WAY_BACK or order.rescaling.stage == News.COMPLETED:
                code = order.code
        for resident in self.world.living():
            if resident.code and self.world.counted_on(resident) and resident.code != code:
                text = f"{resident.name} runs {resident.code!r}, and all should run {code!r}"
                self.violated("answer", text)

    def _as_asked(self, driver: SimDriver) -> None:
        """A rescale that is told to be completed has headed for as many nodes as were asked for."""
        for order in driver.book:
            rescaling = order.rescaling
            if order.what != "rescale" or rescaling is None or rescaling.facts is None:
                continue
            brought, command = rescaling.facts["nodes"], rescaling.command
            whole = command is not None and not command.groups
            if whole and rescaling.stage == News.COMPLETED and brought != rescaling.nodes:
                text = f"a rescale to {rescaling.nodes} nodes was completed with {brought}"
                if not (self.world.counts["launches_failed"] or self.checkers.never_came):
                    self.violated("answer", text)

    def _ended_once(self, driver: SimDriver) -> None:
        """Nobody hears of the end of a rescale that goes on."""
        for order in driver.book:
            ends = sum(ended is order.rescaling for ended in driver.ended)
            if order.what != WAY_BACK and ends > 1:
                self.violated("answer", f"{order.what} of {order.at:.3f} has ended {ends} times")

    def _restored(self, tasks: Iterable[TaskId]) -> dict[TaskId, pa.Table | None]:
        """Give the states of tasks as the checkpoint alone has them."""
        self.checkers.look_at_store()
        manifest = self.checkers.oracle.manifest
        found: dict[TaskId, pa.Table | None] = {}
        for task in tasks:
            owner = self.world.people.owner(task)
            kept = None if manifest is None else manifest.records.get(task)
            if kept is not None and owner is not None and owner.node is not None:
                read = [self.checkers.store.record(key) for key in kept.chain]
                blobs = [Blob(blob) for blob in read if blob is not None]
                adapter = owner.node.adapter
                try:
                    found[task] = adapter.show(restore(task, blobs, adapter).app)
                except MalformedMessage as error:
                    self.violated("store", f"what would be restored: {error}")
        return found

    def others(self) -> None:
        """States are lost, and that was told: what tasks have that never were is right so far."""
        judge = getattr(self.world.trial, "judge_rest", None)  # not every trial can tell
        self.world.behave()
        gone = self.checkers.lost_tasks | self.checkers.tasks_at_risk
        states = {task: s for task, s in self.world.people.states().items() if task not in gone}
        shown = self.checkers.shown
        outputs: dict[TaskId, list[tuple[int, pa.RecordBatch]]] = {task: [] for task in states}
        for task, found in outputs.items():  # as far as all is seen
            while (batch := shown.get((task, len(found) + 1))) is not None:
                found.append((len(found) + 1, batch))
        for text in () if judge is None else judge(states, outputs):
            self.violated("end", text)

    def posts(self) -> None:
        """However a run ends: every message could be put into words, be read and be taken."""
        whole = "corrupt" not in self.world.kinds
        for resident in self.world.residents:
            if whole and resident.actor.begun:
                unread, refused = resident.post.malformed, resident.actor.process.counts["refused"]
                if (
                    unread or refused > self.checkers.hasty[resident]
                ):  # what is late is stale, and none of these
                    text = f"cannot read {unread} messages and refuses {refused}, and all are whole"
                    self.violated("crash", f"{resident.name} {text}")
            for text in resident.post.unwritable:
                self.violated(
                    "crash", f"{resident.name} cannot put into words what it sends: {text}"
                )

    def rest(self) -> None:
        """Whatever was lost: every call was answered, and nothing failed without a cause.

        A rescale that has to move a lost state waits, as rows for it do.
        """
        self._answers()
        self._failures()
        self._failed_batches()

    def _answers(self) -> None:
        world = self.world
        for what in world.people.book.overdue():
            self.violated("answer", f"nobody has answered {what}")
        for driver in world.user.drivers:
            for order in driver.unanswered():
                if order.at < world.timeline.now - ORDER_S:
                    self.violated("answer", f"{order.what} of {order.at:.3f} has no answer")

    def _failed_batches(self) -> None:
        """Staged rows are lost with a node, or with a driver; else no micro-batch fails."""
        lost = self.world.people.query.rows_lost
        drivers = len(self.world.user.drivers)
        if (
            lost
            and not self.checkers.nodes_lost
            and drivers == 1
            and not self.world.kinds & LOSES_ROWS
        ):
            self.violated("cause", f"micro-batches failed, and no node was lost: {lost[0]}")

    def _failures(self) -> None:
        """A deployment fails because an operator did, a later driver took over, or the disk failed.

        When it is told of a later driver does not matter: it hears of it with its next write.
        """
        healed = self.world.schedule.seconds + HEALED_S
        for failure in self.world.user.failures:
            late = failure.at > healed and LATER_DRIVER not in str(failure.error)
            if late or not self._deserved(failure):
                self.violated(
                    "cause", f"run {failure.run} failed at {failure.at:.3f}: {failure.error}"
                )

    def _deserved(self, failure: Failure) -> bool:
        """Whether what a user is told has happened: in that run, and before."""
        world, error, text = self.world, failure.error, str(failure.error)
        if isinstance(error, OperatorFailedError):
            run = f"run{failure.run}"
            failed = (r for r in world.residents if (r.name, r.run) == (error.node, run))
            return " fails" in text and any(r.mischief and r.mischief.failed for r in failed)
        disk_failed = world.disk_failed_at < failure.at
        if isinstance(error, CheckpointError | InputError):
            return disk_failed  # whoever dies in a write leaves no harm
        if not isinstance(error, DeployError):
            return False
        if LATER_DRIVER in text:
            return world.user.has_rival(failure.run, failure.at)
        started = world.counts["launches_failed"] > 0 or disk_failed
        return text.startswith("processes end before they register") and started

    def _overdue(self) -> None:
        """Timers have fired that were due, by the clock of whoever serves their task."""
        if self.world.kinds & {"jump", "pause", "slow", "long", "lazy"}:
            return  # it may have had no turn since
        for task in range(self.world.tasks):
            owner = self.world.people.owner(task)
            state = None
            if owner is not None and owner.node is not None:
                state = owner.node.node.slots[task].state
            known = None if state is None else state.app.time
            at_us = None if known is None else known.timers.next_us
            if owner is None or at_us is None:
                continue
            late_s = (owner.actor.time.wall_us() - at_us) / 1e6
            if late_s > OVERDUE_S:
                self.violated("left", f"a timer of task {task} was due {late_s:.1f} s ago")

    def _unneeded(self) -> None:
        """Records that nothing needs are let go."""
        world, manifest = self.world, self.checkers.oracle.manifest
        if not world.durable or world.kinds & {"store", "cut", "master"} or manifest is None:
            return  # a file that could not be deleted stays until somebody sweeps
        named = {file_of(key) for kept in manifest.records.values() for key in kept.chain}
        unneeded = self.checkers.store.files("log") - named
        if len(unneeded) > UNNEEDED_MAX:
            self.violated(
                "left", f"{len(unneeded)} files of records are of no use: {min(unneeded)}"
            )

    def _let_go(self) -> None:
        """When nothing moves any more, soon nobody keeps what was kept for moves."""
        if any(self._kept()):
            self.world.timeline.run(self.world.timeline.now + HEARD_S)
            for text in self._kept():
                self.violated("left", text)

    def _kept(self) -> Iterator[str]:
        """Name what processes keep for tasks that move, and rows on disk; copies go by themselves."""
        world = self.world
        table = self.checkers.owners.table(world.resident(world.driver.actor))
        for resident in world.living() if table is not None and not table.incoming else ():
            machine = resident.actor.machine
            kept: dict[str, Collection[object]] = {}
            if isinstance(machine, Node):
                handover = machine.handover
                kept = {"frozen states": handover.frozen, "states for its server": handover.puts}
                kept |= {"awaited tasks": machine.retriever.awaited}
                kept |= {"parked messages": machine.rerouter.parked}
            elif isinstance(machine, StateServer):
                kept = {"states": machine.held, "wishes": machine._wishes}
            if kept and world.counted_on(resident):
                yield from (f"{resident.name}: {len(it)} {w}" for w, it in kept.items() if it)
                if resident.node is not None and (size := resident.node.adapter.laid.disk_bytes):
                    yield f"{resident.name}: {size} bytes of staged rows on disk"

    def _beside(self) -> None:
        """What drivers had not brought to its place when they ended is not there for ever.

        A driver sweeps once its own manifest counts: then what was written before its claim is gone.
        """
        world, store, manifest = self.world, self.checkers.store, self.checkers.oracle.manifest
        generation = world.driver.core.generation
        if not world.durable or "store" in world.kinds or manifest is None:
            return
        if manifest.generation != generation or not world.driver.core.master.archive.written:
            return  # it is about to sweep
        driver = next(r for r in world.residents if r.actor is world.driver.actor)
        if driver.store is not None and not driver.store.idle():
            return  # perhaps it does
        since = store.written_s(f"claim/{generation:08d}")
        for name in sorted(store.files("claim") | store.files("manifest")):
            if 0 < left_by(name) < generation and store.written_s(name) < since:
                self.violated("left", f"{name} is beside its place, and its writer is gone")

    def _left_over(self) -> None:
        for resident in self.world.living():
            machine = resident.actor.machine
            if not isinstance(machine, Node):
                continue
            if not self.world.counted_on(resident):
                continue  # it was replaced: nobody tells it what became of a batch, and it ends
            for slot in machine.slots.values():
                if slot.pending_chunks:
                    self.violated("left", f"{resident.name}: task {slot.task} still keeps chunks")
                if slot.state is not None and slot.state.staged:
                    self.violated("left", f"{resident.name}: task {slot.task} has staged rows")
        for way, count in self.world.wires.waiting().items():
            if count > 64:
                self.violated("left", f"{count} messages wait from {way[0]} to {way[1]}")
