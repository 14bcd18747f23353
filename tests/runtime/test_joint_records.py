"""Records of many tasks: each of them is restored from its part alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from meander.errors import MalformedMessage
from meander.operators import WordCount
from meander.operators.split import split
from meander.protocol import reading, records
from meander.protocol.reading import Blob
from meander.protocol.records import Base, Group, Ref
from meander.protocol.state import Position, TaskState
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.rows import Mark, Rows

TASKS = 4


def fed(
    adapter: OperatorAdapter, states: dict[int, TaskState], words: list[str], number: int
) -> None:
    rows = split(pa.record_batch({"word": words}), ["word"], TASKS)
    for i, task in enumerate(rows.tasks.tolist()):
        begin, end = int(rows.bounds[i]), int(rows.bounds[i + 1])
        part = Rows(rows.batch, begin, end - begin, (Mark(number, end - begin, 0),))
        assert not list(adapter.apply(task, states[task].app, "f", part, -1))
        states[task].positions["f"] = Position(1, number, number)


def shown(adapter: OperatorAdapter, state: TaskState) -> list[Any]:
    rows: list[Any] = adapter.show(state.app).to_pylist()
    return sorted(rows, key=str)


def test_each_task_is_restored_from_its_part() -> None:
    """1. four tasks stand in one record, whole  2. words come, known and new ones, and an empty change:
    they stand in another  3. each task is what it was; none takes what is another's."""
    adapter = OperatorAdapter(WordCount(), TASKS)
    states = {task: TaskState(task, adapter.empty(task), gated=True) for task in range(TASKS)}
    base: Base | None = None
    marks: list[Any] = [None] * TASKS
    blobs: list[Blob] = []
    words = [f"w{n}" for n in range(40)]
    for number, some in enumerate((words[:30], [*words[5:10], *words[30:]], []), start=1):
        fed(adapter, states, some, number)
        every = list(states.values())
        assert all(records.may_join(every, adapter))
        positions, batches = [dict(s.positions) for s in every], [dict(s.batches) for s in every]
        chain = base.chain if base else ()
        group = Group(chain, list(states), every, marks, positions, batches)
        part = records.write_joint([group], adapter)
        assert part is not None
        data, (extent,) = records.assemble([part])
        blobs.append(Blob(data[extent.offset :]))
        marks = records.seal(adapter, [state.app for state in every])
        base = records.based(
            base, str(Ref(f"log/1/n1.1/{number}", *extent)), extent.length // TASKS
        )
    assert base is not None
    together = reading.restore_all(dict.fromkeys((0, 2, 3), blobs), adapter)
    for task, state in zip((0, 2, 3), together, strict=True):
        assert shown(adapter, state) == shown(adapter, states[task])
    for task, state in states.items():
        again = reading.restore(task, blobs, adapter)
        assert shown(adapter, again) == shown(adapter, state)
        assert (again.positions, again.durable) == (state.positions, state.positions)
        assert blobs[2].chain(task) == base.chain[:2]
        with pytest.raises(MalformedMessage, match="begins with a snapshot"):
            reading.restore(task, blobs[1:], adapter)
    with pytest.raises(MalformedMessage, match="not of task 7"):
        reading.restore(7, blobs, adapter)
    with pytest.raises(MalformedMessage):
        reading.restore(0, [Blob(blobs[0].data[:-1])], adapter)


def test_what_has_outputs_stands_alone() -> None:
    adapter = OperatorAdapter(WordCount(emit_updates=True), TASKS)
    states = {task: TaskState(task, adapter.empty(task), gated=True) for task in range(TASKS)}
    fed(adapter, states, ["a", "b", "c", "d", "e", "f"], 1)
    told = dict(zip(states, records.may_join(list(states.values()), adapter), strict=True))
    assert told == {task: not state.positions for task, state in states.items()}
