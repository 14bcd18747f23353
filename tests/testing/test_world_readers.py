"""Readers and callers on virtual time, against made-up nodes: what they see, and complain of."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import OperatorGoneError
from meander.protocol.node.slot import TaskPhase
from meander.protocol.settings import Settings
from meander.protocol.state import TaskState
from meander.runtime.clients.driver_client import DeploymentInfo
from meander.runtime.clock import Clock
from meander.runtime.process.keeping import OutputNews
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.script import Ask, FetchRows, Script
from meander.runtime.roles.answers import NodeAnswers
from meander.runtime.roles.assembly import NodeAssembly
from meander.runtime.wire.version import versions
from meander.testing.timeline import Timeline
from meander.testing.world.callers import CallBook, SimCaller
from meander.testing.world.readers import SimReader, excused_by
from meander.testing.world.scripts import Done, ScriptRunner

TASKS = 4
SCHEMA = pa.schema({"n": pa.int64()})


class Place:
    """A node that is made up: real outputs, real answers."""

    def __init__(self) -> None:
        self.gated, self.slots = True, dict[int, Any]()
        self.book = SimpleNamespace(slots=self.slots)
        self.installs = SimpleNamespace(settled=lambda _: True)
        self.checkpointer = SimpleNamespace(hurry=lambda: None)
        process: Any = SimpleNamespace(call=self.call, machine=SimpleNamespace(me="n"))
        common: Any = SimpleNamespace(process=process)
        adapter: Any = SimpleNamespace(
            show=lambda app, *, whole: pa.table({"n": [app.outputs.last]}),
            news=OutputNews.none(),
        )
        self.operator = adapter
        gauge: Any = SimpleNamespace()
        parts = NodeAssembly(common, common, adapter, gauge, gauge)
        common.me = "n"
        self.requests: Any = {**NodeAnswers(parts, gauge).requests, "metrics": _told}

    def call(self, function: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(function(self))
        return found


def _told(_: Any) -> Script[Any]:
    yield from ()
    return {}


class World:
    """Two nodes whose tasks emit, become durable and move; every tenth request is lost."""

    def __init__(self, seed: int) -> None:
        self.timeline, self.random = Timeline(), Random(seed)
        self.places = {"n1": Place(), "n2": Place()}
        self.owner = dict.fromkeys(range(TASKS), "n1")
        self.rows_max = 10**6
        self.lineage = "one"
        self.seen: dict[tuple[int, int], pa.RecordBatch] = {}
        self.wrong: list[str] = []
        self.lost = 0
        self.emits = True
        for task in range(TASKS):
            app = SimpleNamespace(outputs=Outputs())
            state = TaskState(0, app, gated=False)
            slot = SimpleNamespace(phase=TaskPhase.SERVING, state=state, tenure=1)
            self.places["n1"].slots[task] = slot
        self.runner = ScriptRunner(self.timeline, self.ask, call=lambda process, f: process.call(f))
        self.clock = Clock(lambda: self.timeline.now, lambda: 0)
        self.timeline.after(0.1, self.step)

    def outputs(self, task: int) -> Outputs:
        found: Outputs = self.places[self.owner[task]].slots[task].state.app.outputs
        return found

    def step(self, _: Any) -> None:
        self.timeline.after(self.random.uniform(0.0, 0.2), self.step)
        task = self.random.randrange(TASKS)
        outputs = self.outputs(task)
        if self.random.random() < 0.2:
            self.move(task)
        elif self.emits:
            outputs.add(pa.record_batch({"n": [outputs.last] * self.random.randint(1, 3)}, SCHEMA))
        if self.random.random() < 0.5 or not self.emits:
            outputs.durable = outputs.last
            outputs.retain(self.rows_max, outputs.durable)

    def move(self, task: int) -> None:
        source = self.owner[task]
        target = "n2" if source == "n1" else "n1"
        slot = self.places[source].slots.pop(task)
        self.owner[task] = target
        slot.phase = next(phase for phase in TaskPhase if phase is not TaskPhase.SERVING)
        self.places[target].slots[task] = slot
        serve = partial(setattr, slot, "phase")
        self.timeline.after(self.random.uniform(0.0, 0.3), serve, TaskPhase.SERVING)

    # ------------------------------------------------------------------ requests

    def ask(self, step: Ask | FetchRows, done: Done) -> None:
        if self.random.random() < 0.1:
            self.timeline.after(0.5, lambda _: done(None, OperatorGoneError(step.address)))
            return
        self.timeline.after(self.random.uniform(0.0, 0.05), lambda _: self.serve(step, done))

    def serve(self, step: Ask | FetchRows, done: Done) -> None:
        what = step.what if isinstance(step, Ask) else step.fields["kind"]
        if step.address == "driver:1":
            done(self.about().json() if what == "about" else self.told(), None)
        else:
            self.runner.begin(self.places[step.address].requests[what](step.fields), done)

    def told(self) -> dict[str, Any]:
        runs = [[task, self.owner[task]] for task in range(TASKS)]
        return {"tasks": TASKS, "runs": runs, "nodes": {n: n for n in self.places}, "trouble": None}

    def about(self) -> DeploymentInfo:
        return DeploymentInfo(
            "made up", "run", self.lineage, 1, TASKS, ("n",), SCHEMA, None, SCHEMA, None,
            None, None, Settings(), True, "", versions(),
        )  # fmt: skip

    # ------------------------------------------------------------------ what is seen

    def show(self, task: int, number: int, batch: pa.RecordBatch) -> None:
        if not self.seen.setdefault((task, number), batch).equals(batch):
            self.wrong.append(f"output {number} of task {task} is another")
        if number > self.outputs(task).durable:
            self.wrong.append(f"output {number} of task {task} is not durable")

    def missed(self, task: int, numbers: list[int]) -> None:
        self.wrong.append(f"outputs {numbers} of task {task} were missed")

    def note_lost(self, *_: Any) -> None:
        self.lost += 1

    def reader(self, **options: Any) -> SimReader:
        return SimReader(
            self.runner, self.random, self.clock, lambda: "driver:1",
            shown=self.show, missed=self.missed, lost=self.note_lost, **options,
        )  # fmt: skip

    def lasts(self) -> list[int]:
        return [self.outputs(task).last for task in range(TASKS)]


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_sees_everything_once_or_the_same_again(seed: int) -> None:
    """1. tasks emit and move, requests are lost  2. the reader is killed again and again  3. in the end
    it has seen all, and nothing was taken back."""
    world = World(seed)
    reader = world.reader()
    while world.timeline.now < 60.0:
        world.timeline.run(world.timeline.now + 0.05)
        if world.random.random() < (0.1 if reader.planned is not None else 0.01):
            reader.kill()
    world.emits = False
    world.timeline.run(90.0)
    assert reader.read_upto(world.lasts())
    expected = {(t, n) for t in range(TASKS) for n in range(1, world.lasts()[t] + 1)}
    assert set(world.seen) == expected
    assert len(expected) > 100
    assert world.wrong == []
    assert world.lost == 0
    assert reader.counts["batches"] > len(expected), "no stretch was read twice"
    assert reader.counts["releases"]
    reader.stop()
    lives = reader.counts["lives"]
    world.timeline.run(100.0)
    assert reader.counts["lives"] == lives


def test_a_reader_complains_of_outputs_that_were_dropped_and_begins_anew() -> None:
    world = World(1)
    reader = world.reader(releases=False)
    world.timeline.run(10.0)
    world.rows_max = 1
    reader.kill()
    world.timeline.run(40.0)
    assert world.lost
    assert reader.counts["lost"] == world.lost
    assert world.wrong == []


def test_a_reader_complains_of_another_lineage() -> None:
    world = World(2)
    reader = world.reader()
    world.timeline.run(10.0)
    world.lineage = "two"
    reader.kill()
    world.timeline.run(20.0)
    assert world.lost == 1


def test_a_reader_sees_what_is_changed_missing_or_not_durable() -> None:
    """Outputs that a node forgets without a word, shows too early, or shows as others."""
    world = World(3)
    world.reader(releases=False)
    world.timeline.run(20.0)
    outputs = world.outputs(0)
    for number in range(3):  # its last batches become others
        outputs._batches[number] = number + 1, pa.record_batch({"n": [-1]}, SCHEMA)
    world.reader(releases=False)
    world.timeline.run(25.0)
    assert any("is another" in text for text in world.wrong)
    del outputs._batches[5]
    world.wrong.clear()
    world.reader(releases=False)
    world.timeline.run(30.0)
    assert any("[6] of task 0 were missed" in text for text in world.wrong)
    world.wrong.clear()
    for place in world.places.values():
        place.gated = False
    world.timeline.run(60.0)
    assert any("not durable" in text for text in world.wrong)


def test_what_one_reader_lets_go_excuses_what_another_misses() -> None:
    world = World(4)
    first, second = world.reader(), world.reader(releases=False)
    world.timeline.run(5.0)
    second.stop()
    assert not any(excused_by(first, [first, second], task) for task in range(TASKS))
    world.timeline.run(30.0)
    assert any(excused_by(second, [first, second], task) for task in range(TASKS))


def test_every_call_is_answered_or_fails_in_time() -> None:
    world = World(5)
    book, asked = CallBook(world.timeline), list[int]()
    caller = SimCaller(
        book, world.ask, world.random, world.clock, lambda: "driver:1",
        shown=world.show, wrong=world.wrong.append, tasks=TASKS,
        preview=lambda nodes: bool(asked.append(nodes)),
    )  # fmt: skip
    for _ in range(60):
        world.timeline.run(world.timeline.now + 0.5)
        caller.call()
        caller.call_at(world.places["n1"].requests, TASKS, lambda: True, world.runner)
    world.timeline.run(200.0)
    assert book.overdue() == []
    assert asked
    assert book.counts["answered"]
    assert book.counts["OperatorGoneError"]
    assert {"metrics", "outputs", "state", "state at a node"} <= set(caller.counts)
    assert world.seen
    assert world.wrong == []


def test_what_a_node_shows_in_the_middle_of_a_turn_is_looked_at_too() -> None:
    """A node shows what is not durable to whoever asks it right behind rows, and to nobody else."""
    world = World(6)
    caller = SimCaller(
        CallBook(world.timeline), world.ask, world.random, world.clock, lambda: None,
        shown=world.show, wrong=world.wrong.append, tasks=TASKS,
    )  # fmt: skip
    for gated in (True, False):
        assert world.wrong == []
        for place in world.places.values():
            place.gated = gated
        for _ in range(40):
            world.timeline.run(world.timeline.now + 0.5)
            for place in world.places.values():
                caller.call_at(place.requests, TASKS, lambda: True, world.runner)
    assert any("not durable" in text for text in world.wrong)


def test_a_call_that_nobody_answers_is_overdue() -> None:
    timeline = Timeline()
    book = CallBook(timeline)
    lost = book.asking(lambda step, done: None)
    lost(Ask("n1", "metrics", {}, 5.0), lambda *_: None)
    book.open("state at a node", 5.0, lambda: True)
    timeline.run(5.5)
    assert book.overdue() == []
    timeline.run(7.0)
    assert book.overdue() == ["metrics at n1"]
