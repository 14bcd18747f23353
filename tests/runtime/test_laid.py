"""Rows that wait for their commit: bounded in memory, then on disk, and rather lost than wrong."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from meander.operators import WordCount
from meander.operators.topology import Topology
from meander.protocol.messages import Staged
from meander.protocol.settings import Settings
from meander.protocol.state import TaskState, decode, encode
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.app_state import AppState
from meander.runtime.process.topology_adapter import TopologyAdapter
from meander.runtime.store import staged
from meander.runtime.store.staged import InMemory, LaidRows, OnDisk
from meander.runtime.wire.rows import Rows


def message(number: int, tasks: int = 4, rows: int = 1000) -> list[Rows]:
    """Make rows of one message: a slice for each task."""
    words = [f"{number}-{task}-{row % 10}" for task in range(tasks) for row in range(rows)]
    batch = pa.record_batch({"word": words})
    return [Rows(batch, task * rows, rows) for task in range(tasks)]


def made(memory: int, disk: int = 2**30) -> OperatorAdapter:
    adapter = OperatorAdapter(WordCount(), 1)
    adapter.laid = LaidRows(memory, disk)
    return adapter


def test_a_large_micro_batch_is_not_held_in_memory() -> None:
    """1. fifty messages, with room for two in memory  2. the rest is on disk  3. all comes back."""
    nbytes = message(0)[0].batch.nbytes
    adapter = made(2 * nbytes + 100)
    before = pa.total_allocated_bytes()
    laid = [adapter.lay_by(rows) for number in range(50) for rows in message(number)]
    assert adapter.laid.memory_bytes <= 2 * nbytes + 100
    assert pa.total_allocated_bytes() - before < 10 * nbytes
    assert sum(isinstance(found, OnDisk) for found in laid) == 48 * 4
    for number in range(50):
        for task, rows in enumerate(message(number)):
            found = laid[4 * number + task]
            assert found is not None
            back = adapter.take_up(found)
            assert back is not None
            assert back.table().equals(rows.table())
    del laid, found, back
    assert (adapter.laid.memory_bytes, adapter.laid.disk_bytes) == (0, 0)


def test_a_message_stays_in_memory_as_long_as_any_of_its_rows() -> None:
    adapter = made(10**6)
    first, *others = [adapter.lay_by(rows) for rows in message(0)]
    assert isinstance(first, InMemory)
    nbytes = adapter.laid.memory_bytes
    del others
    assert adapter.laid.memory_bytes == nbytes > 0
    del first
    assert adapter.laid.memory_bytes == 0


def test_where_there_is_no_room_rows_are_refused_until_there_is() -> None:
    adapter = made(0, 30_000)
    laid = [adapter.lay_by(rows) for rows in message(0)]
    assert None in laid
    assert adapter.laid.disk_bytes <= 30_000
    laid.clear()
    assert adapter.lay_by(message(1)[0]) is not None


def test_a_disk_that_takes_nothing_refuses_and_one_that_lies_has_lost_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = made(0)
    found = adapter.lay_by(message(0)[0])
    assert isinstance(found, OnDisk)
    os.pwrite(found._file.descriptor, b"lies", 100)
    assert adapter.take_up(found) is None

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert adapter.lay_by(message(0)[1]) is None


def second_of_two(laid: LaidRows) -> TopologyAdapter:
    """Give two operators; task 1 is of the second."""
    return TopologyAdapter(
        Topology({"a": WordCount(), "b": WordCount()}, tasks=1), Settings(), laid=laid
    )


@pytest.mark.parametrize("task", [0, 1])
def test_a_commit_reads_some_and_lets_the_operator_have_it(
    monkeypatch: pytest.MonkeyPatch, task: int
) -> None:
    """What is read from disk is not gathered again in memory until the end of the commit."""
    adapter = second_of_two(LaidRows(0)) if task else made(0)
    laid = [adapter.lay_by(rows) for number in range(20) for rows in message(number, tasks=1)]
    monkeypatch.setattr(staged, "READ_BYTES_MAX", 3 * adapter.laid.disk_bytes // 20)
    app = adapter.empty(task)
    waiting = []
    for number, found in enumerate(laid):
        assert found is not None
        rows = adapter.take_up(found)
        assert rows is not None
        list(adapter.apply(task, app, "q", rows, -1))
        waiting.append(1000 * (number + 1) - adapter.work.rows)
    assert max(waiting) <= 4000
    assert sum(adapter.show(app)["count"].to_pylist()) == 20 * 1000


def test_rows_on_disk_move_with_their_task_and_lost_ones_are_left_out() -> None:
    adapter = made(0)
    state = TaskState(0, AppState(0, adapter.empty(0).state, adapter.empty(0).outputs), gated=False)
    for partition in (0, 1):
        laid = adapter.lay_by(message(partition, tasks=1)[0])
        state.staged["q", 0, partition, 0] = Staged("q", 0, partition, 0, 0, laid, 1000)
    lost = state.staged["q", 0, 1, 0].rows
    os.pwrite(lost._file.descriptor, b"lies", lost._offset)
    other = made(10**6)
    moved = decode(0, encode(state, adapter), other, gated=False)
    assert list(moved.staged) == [("q", 0, 0, 0)]
    back = other.take_up(moved.staged["q", 0, 0, 0].rows)
    assert back is not None
    assert back.table().equals(message(0, tasks=1)[0].table())
