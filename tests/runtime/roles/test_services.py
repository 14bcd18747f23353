"""What a node answers to those who are not of the protocol, from books that are made up."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from meander.errors import UnanswerableError
from meander.model import Epoch
from meander.operators import WordCount
from meander.protocol.node.slot import TaskPhase
from meander.runtime.clients.output_scripts import OutputScripts, OutputSpan
from meander.runtime.clients.reader import Reader, new_outputs
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.keeping import OutputKeeper, OutputNews
from meander.runtime.process.loop_counts import counts
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.script import (
    Ask,
    Call,
    FetchRows,
    Sleep,
    Together,
    Until,
    iterate,
    run,
)
from meander.runtime.roles import output_answers
from meander.runtime.roles.answers import moment
from meander.runtime.roles.output_answers import OutputAnswers


def emitted(batches: int, durable: int) -> Outputs:
    outputs = Outputs()
    for number in range(1, batches + 1):
        outputs.add(pa.record_batch({"n": [number]}))
    outputs.durable = durable
    return outputs


def node(gated: bool, known: bool = True, **slots: tuple[TaskPhase, Outputs]) -> Any:
    """Make a node that has tasks t0, t1, … in a phase, with outputs; `known`: to the master."""
    return SimpleNamespace(
        gated=gated,
        installs=SimpleNamespace(settled=lambda _: known and not gated),
        book=SimpleNamespace(
            slots={
                int(name[1:]): SimpleNamespace(
                    phase=phase, state=SimpleNamespace(app=SimpleNamespace(outputs=outputs))
                )
                for name, (phase, outputs) in slots.items()
            }
        ),
    )


def asked(machine: Any, what: str, fields: Any) -> Any:
    """Have a machine answer."""
    process: Any = object()
    answer = getattr(OutputAnswers(process, OutputNews.none()), what)
    return run(answer(fields), lambda step: step.function(machine))


def away() -> TaskPhase:
    return next(phase for phase in TaskPhase if phase is not TaskPhase.SERVING)


def test_only_tasks_that_are_served_count_and_with_checkpoints_only_what_is_durable() -> None:
    here, there = (TaskPhase.SERVING, emitted(5, 3)), (away(), emitted(2, 2))
    assert asked(node(True, t0=here, t1=there), "ends", {}) == {"0": [1, 3, 5]}
    assert asked(node(False, t0=here), "ends", {}) == {"0": [1, 5, 5]}


def test_without_checkpoints_nothing_is_shown_before_the_master_knows_who_serves() -> None:
    machine = node(False, known=False, t0=(TaskPhase.SERVING, emitted(5, 0)))
    assert asked(machine, "ends", {}) == {}
    assert asked(machine, "emitted", {"spans": {"0": [0, 5]}}).num_rows == 0
    assert asked(machine, "outputs", {}).num_rows == 0


def test_what_is_released_is_forgotten_but_nothing_that_nobody_could_read() -> None:
    outputs = emitted(5, 3)
    machine = node(True, t0=(TaskPhase.SERVING, outputs))
    asked(machine, "release", {"upto": {"0": 2}})
    assert outputs.first == 3
    asked(machine, "release", {"upto": {"0": 5}})
    assert outputs.first == 4


def test_a_stretch_is_given_with_its_place_and_what_is_kept() -> None:
    outputs = emitted(5, 5)
    outputs.release(2)
    machine = node(True, t0=(TaskPhase.SERVING, outputs), t1=(away(), emitted(1, 1)))
    found = asked(machine, "emitted", {"spans": {"0": [1, 4], "1": [0, 1]}})
    assert found["number"].to_pylist() == [3, 4]
    assert set(found["task"].to_pylist()) == {0}
    assert json.loads(found.schema.metadata[b"kept"]) == {"0": [3, 5, 4]}


def test_who_fetches_says_what_it_has_and_that_is_forgotten() -> None:
    outputs = emitted(5, 4)
    machine = node(True, t0=(TaskPhase.SERVING, outputs))
    found = asked(machine, "outputs", {"release": {"0": 2}})
    assert found["n"].to_pylist() == [3, 4]
    assert outputs.first == 3


def test_outputs_from_before_a_column_had_a_type_are_told_with_the_others() -> None:
    outputs = Outputs()
    outputs.add(pa.record_batch({"v": pa.nulls(2)}))
    outputs.add(pa.record_batch({"v": [3]}))
    machine = node(True, t0=(TaskPhase.SERVING, outputs))
    outputs.durable = 2
    found = asked(machine, "outputs", {})
    assert found.column_names == ["v", "task", "number"]
    assert found.to_pydict() == {"v": [None, None, 3], "task": [0, 0, 0], "number": [1, 1, 2]}


def test_outputs_that_cannot_be_put_together_are_an_error_and_are_not_forgotten() -> None:
    place = [("task", pa.array([0], pa.int32())), ("number", pa.array([1], pa.int64()))]
    tables = [pa.table({"v": v, **dict(place)}) for v in ([1], ["x"])]
    part = SimpleNamespace(name="Odd", first=0, end=2)

    def outputs(nodes: Any, have: dict[int, int], tasks: range) -> list[pa.Table]:
        have[0] = 7
        return tables

    driver = SimpleNamespace(
        core=SimpleNamespace(topology=SimpleNamespace(output=lambda _: part)),
        reader=lambda: SimpleNamespace(outputs=outputs),
        nodes=dict,
    )
    op: Any = SimpleNamespace(driver=driver, _fetched={0: 3}, _no_outputs={})
    with pytest.raises(UnanswerableError, match=r"the operator Odd has rows .*: int64 vs string"):
        ElasticOperator.outputs(op)
    assert op._fetched == {0: 3}
    tables.pop()
    assert ElasticOperator.outputs(op)["v"].to_pylist() == [1]
    assert op._fetched == {0: 7}


def test_a_node_whose_answer_cannot_be_sent_is_not_taken_for_gone() -> None:
    def refuse(error: Exception) -> Any:
        def do_get(*_: Any) -> Any:
            raise error

        client = nullcontext(SimpleNamespace(do_get=do_get))
        credentials: Any = SimpleNamespace(connect=lambda _: client, call=float)
        return Reader(credentials)

    assert refuse(flight.FlightUnavailableError("no")).fetch("n:1", {}) is None
    with pytest.raises(UnanswerableError, match="the node at n:1 has rows"):
        refuse(pa.ArrowInvalid("Schema at index 1 was different")).outputs({"n": "n:1"}, {})


@pytest.fixture
def backlog(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A node whose answers have five batches of eight bytes; it asks what a script asks."""
    monkeypatch.setattr(output_answers, "ANSWER_BYTES", 40)
    machine = node(True, **{f"t{task}": (TaskPhase.SERVING, emitted(9, 8)) for task in range(3)})
    for slot in machine.book.slots.values():
        slot.term = Epoch(1, 2)
    process: Any = object()
    answers, told = OutputAnswers(process, OutputNews.none()), list[pa.Table]()

    def carry_out(step: Any) -> Any:
        if isinstance(step, Together):
            return [carry_out(each) for each in step.steps]
        if isinstance(step, Ask):
            return {"tasks": 3, "runs": [[0, "n"]], "nodes": {"n": "n:1"}, "trouble": None}
        assert isinstance(step, FetchRows)
        script = getattr(answers, step.fields["kind"])(json.loads(json.dumps(step.fields)))
        told.append(run(script, lambda call: call.function(machine)))
        return told[-1]

    return SimpleNamespace(machine=machine, ask=carry_out, told=told)


def numbers(tables: list[pa.Table]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for table in tables:
        for row in table.to_pylist():
            found.setdefault(row["task"], []).append(row["number"])
    return found


ALL = {task: list(range(1, 9)) for task in range(3)}


def test_all_outputs_of_a_backlog_come_in_answers_that_have_a_bound(backlog: Any) -> None:
    have: dict[int, int] = {}
    found = run(new_outputs({"n": "n:1"}, have), backlog.ask)
    assert numbers(found) == ALL
    assert have == dict.fromkeys(range(3), 8)
    assert [table.num_rows for table in backlog.told] == [5, 5, 5, 5, 4]
    assert {f.first for f in output_answers.served(backlog.machine).values()} == {
        1
    }  # it may fail yet


def test_stretches_of_a_backlog_are_read_in_answers_that_have_a_bound(backlog: Any) -> None:
    about: Any = SimpleNamespace(lineage="one", tasks=3, first=0)
    spans = [OutputSpan(0, 0, 8), OutputSpan(1, 3, 8), OutputSpan(2, 0, 1)]
    found = list(iterate(OutputScripts("d:1", about).read(spans), backlog.ask))
    assert numbers(found) == {0: ALL[0], 1: [4, 5, 6, 7, 8], 2: [1]}
    assert max(table.num_rows for table in backlog.told) <= 5


def test_who_follows_a_backlog_hears_of_every_task_soon_and_of_one_that_is_too_large(
    backlog: Any,
) -> None:
    large = backlog.machine.book.slots[1].state.app.outputs
    large.add(pa.record_batch({"n": list(range(100))}))
    large.durable = 10
    after, heard = [0, 0, 0], list[set[int]]()
    while sum(after) < 26:
        fields = {"kind": "fresh", "first": 0, "after": after}
        table = backlog.ask(FetchRows("n:1", fields, 1.0))
        kept = json.loads(table.schema.metadata[b"kept"])
        heard.append({int(task) for task in kept})
        for row in table.select(["task", "number"]).to_pylist():
            assert row["number"] in (after[row["task"]], after[row["task"]] + 1)
            after[row["task"]] = row["number"]
    assert set.union(*heard[:3]) == {0, 1, 2}
    assert max(table.num_rows for table in backlog.told) == 100


def test_whoever_may_have_it_early_is_given_what_is_not_durable_too() -> None:
    fields = {"first": 0, "after": [1]}
    for early, wanted in ((False, [2, 3]), (True, [2, 3, 4, 5])):
        machine = node(True, t0=(TaskPhase.SERVING, emitted(5, 3)))
        machine.book.slots[0].term = Epoch(1, 2)
        found = asked(machine, "fresh", {**fields, "early": early})
        assert found["number"].to_pylist() == wanted
        assert json.loads(found.schema.metadata[b"kept"]) == {"0": [1, 3, 1, 2]}


def test_a_moment_names_what_a_task_has_taken_in() -> None:
    state = SimpleNamespace(batches={"q": 3}, positions={"f": SimpleNamespace(offset=7)})
    slot: Any = SimpleNamespace(state=state, tenure=Epoch(1, 2))
    told = json.loads(moment(slot))
    assert (told["queries"], told["feeders"]) == ({"q": 3}, {"f": 7})


def test_a_loop_is_counted_by_what_tasks_put_in_and_took_out_of_it() -> None:
    position = SimpleNamespace(number=4)
    positions = {"loop/1": position, "loop/2": position, "words": position}
    lanes = {2: SimpleNamespace(last=4), 3: SimpleNamespace(last=3)}
    state = SimpleNamespace(emitted=9, positions=positions, outbox=SimpleNamespace(lanes=lanes))
    slots = {
        0: SimpleNamespace(phase=TaskPhase.SERVING, state=state),
        1: SimpleNamespace(phase=away(), state=state),
    }
    machine: Any = SimpleNamespace(slots=slots, operator=None)
    assert counts(machine) == {0: (7, 8, 9)}


def test_who_waits_for_durable_outputs_is_not_woken_by_those_that_are_not() -> None:
    news, process = OutputNews.none(), object()
    answers = OutputAnswers(process, news)  # type: ignore[arg-type]

    def waiting(early: bool) -> Until:
        script = answers.fresh({"first": 0, "after": [0], "early": early, "wait_s": 1.0})
        assert type(next(script)) is Call
        step = script.send(({}, []))  # nothing is there
        assert type(step) is Until
        return step

    durable, early = waiting(False), waiting(True)
    assert durable.changed is not early.changed
    assert durable.timeout_s == early.timeout_s == 1.0
    news.kept.ring()
    assert (durable.true(), early.true()) == (False, True)
    news.shown.ring()
    assert durable.true()


def test_while_outputs_come_closely_an_answer_waits_for_those_that_follow() -> None:
    answers = OutputAnswers(object(), OutputNews.none())  # type: ignore[arg-type]
    for gather_s, wanted in ((0.0, Call), (0.004, Sleep)):
        asked = {"first": 0, "after": [0], "early": True, "wait_s": 1.0, "gather_s": gather_s}
        script = answers.fresh(asked)
        next(script)
        assert type(script.send(({}, []))) is Until
        assert type(script.send(True)) is wanted  # there are some
    script = answers.fresh(asked)
    next(script)
    script.send(({}, []))
    assert type(script.send(False)) is Call  # none came


def test_with_checkpoints_outputs_are_shown_when_they_are_durable_and_said_to_be_once() -> None:
    keeper = OutputKeeper(WordCount(), gated=True)
    app = AppState(0, None, Outputs())
    keeper.keep(app, [pa.record_batch({"n": [1]})])
    assert (keeper.news.kept.count, keeper.news.shown.count) == (1, 0)
    mark = Sealed(None, app.outputs.last)
    for _ in range(2):  # the second record holds nothing new
        keeper.accepted(app, mark)
    assert (keeper.news.kept.count, keeper.news.shown.count) == (1, 1)
