"""Nodes leave, are replaced and upgraded while rows flow: every count is exact, nothing stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import meander
from meander.errors import CheckpointError, InputError, MigrationError
from meander.operators import WordCount
from meander.operators.base import Context, Operator
from meander.protocol.messages import News, Rescale
from meander.runtime.driver import replacing
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.rescales import Rescaling
from meander.runtime.driver.versions import Version

WORDS = [f"w{i}" for i in range(60)]


class Counts(Operator[dict[str, int]]):
    """Counts words; version 1 of its state is a column of counts."""

    schema = pa.schema({"word": pa.string()})
    keys = ("word",)
    step = 1

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + self.step

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        made = pa.schema({"word": pa.string(), "count": pa.int64()})
        return [pa.record_batch([list(state), list(state.values())], made)]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        return {
            word: count
            for batch in batches
            for word, count in zip(*(batch[c].to_pylist() for c in ("word", "count")), strict=True)
        }

    def size(self, state: dict[str, int]) -> int:
        return 16 * len(state)


class Tenfold(Counts):
    """The same state, other code: each row counts ten."""

    step = 10
    name = "Counts"


class Doubled(Counts):
    """Another state: counts are twice what they were, in another column."""

    name = "Counts"
    step = 2
    state_version = 2

    def migrate(self, batches: Any, version: int) -> list[pa.RecordBatch]:
        assert version == 1
        return [
            pa.record_batch({"word": b["word"], "twice": pa.compute.multiply(b["count"], 2)})
            for b in batches
        ]

    def migrate_back(self, batches: Any, version: int) -> list[pa.RecordBatch]:
        return [
            pa.record_batch({"word": b["word"], "count": pa.compute.divide(b["twice"], 2)})
            for b in batches
        ]

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        (batch,) = super().dump(state)
        return [batch.rename_columns(["word", "twice"])]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        return super().load([b.rename_columns(["word", "count"]) for b in batches], context)


class Stuck(Doubled):
    """There is no way back."""

    migrate_back = Operator.migrate_back


@contextmanager
def flowing(op: ElasticOperator) -> Iterator[Counter[str]]:
    """Feed words all the while; what is yielded is what was fed, complete at the end."""
    fed, over = Counter[str](), threading.Event()

    def feed() -> None:
        with op.feeder() as feeder:
            while not over.is_set():
                feeder.feed(pa.table({"word": WORDS}))
                fed.update(WORDS)
                time.sleep(0.005)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        time.sleep(0.2)
        yield fed
        time.sleep(0.1)
    finally:
        over.set()
        thread.join()


def counts(op: ElasticOperator, column: str = "count") -> dict[str, int]:
    table = op.state_table()
    return dict(zip(table["word"].to_pylist(), table[column].to_pylist(), strict=True))


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def test_a_node_is_vacated_while_rows_flow_and_another_takes_its_place(launcher) -> None:
    with meander.deploy_local(WordCount(), 16, 3, launcher=launcher) as op:
        with flowing(op) as fed:
            report = op.vacate(node="n2").wait(30)
            assert report.nodes == 3
            assert "n2" not in op.driver.nodes()
            assert "n2" not in op.driver.owners()
        assert counts(op) == fed
        assert len(op.driver.nodes()) == 3
        lost = [facts for _, what, facts in op.driver.events if what is News.LOST]
        assert not lost
        until(lambda: any(e.name == "n2" for e in op.driver.exits))
        assert [e.reason.value for e in op.driver.exits if e.name == "n2"] == ["drained"]


def test_two_nodes_leave_at_once_and_what_cannot_be_is_refused(launcher) -> None:
    with meander.deploy_local(WordCount(), 16, 3, launcher=launcher) as op:
        with pytest.raises(InputError, match="no node 'n9'"):
            op.vacate(node="n9")
        with pytest.raises(InputError, match="on this machine"):
            op.vacate(host="127.0.0.1")
        with pytest.raises(InputError, match="which node"):
            op.vacate()
        with flowing(op) as fed:
            op.vacate(node=["n1", "n3"], within_s=10).wait(30)
            assert {"n1", "n3"}.isdisjoint(op.driver.nodes())
        assert counts(op) == fed


def test_a_vacated_node_comes_back_by_a_roll_back(launcher) -> None:
    with meander.deploy_local(WordCount(), 16, 2, launcher=launcher) as op, flowing(op) as fed:
        handle = op.vacate(node="n1")
        handle.roll_back()
        with pytest.raises(MigrationError, match="rolled back"):
            handle.wait(30)
        assert set(op.driver.owners()) <= {"n1", "n2"}
    assert fed


def test_a_node_that_is_sent_sigterm_hands_its_tasks_over(launcher) -> None:
    with meander.deploy_local(WordCount(), 16, 2, launcher=launcher) as op:
        with flowing(op) as fed:
            os.kill(launcher.pids["n1", 1_000_001], signal.SIGTERM)
            until(lambda: any(e.name == "n1" for e in op.driver.exits))
        assert [e.reason.value for e in op.driver.exits if e.name == "n1"] == ["drained"]
        assert News.NOTICED in [what for _, what, _ in op.driver.events]
        assert counts(op) == fed
        assert len(op.driver.nodes()) == 2


# --------------------------------------------------------------------------- upgrades


def test_an_upgrade_with_the_same_state_is_exact_and_no_row_is_lost(launcher) -> None:
    with meander.deploy_local(Counts(), 16, 2, launcher=launcher) as op:
        with op.feeder("first") as feeder:
            feeder.feed(pa.table({"word": WORDS}))
        with flowing(op):
            handle = op.upgrade(Tenfold())
            handle.wait(30)
            assert {"n1", "n2"}.isdisjoint(op.driver.nodes())
        before = counts(op)
        with op.feeder("last") as feeder:
            feeder.feed(pa.table({"word": WORDS}))
        assert counts(op) == {word: count + 10 for word, count in before.items()}
        with pytest.raises(Exception, match="cannot roll back"):
            handle.roll_back()


def test_an_upgrade_carries_the_old_state_over(launcher, tmp_path) -> None:
    options = {"launcher": launcher, "checkpoint": tmp_path, "checkpoint_s": 0.2}
    with meander.deploy_local(Counts(), 16, 2, **options) as op:
        with flowing(op) as fed:
            op.upgrade(Doubled()).wait(30)
        assert counts(op, "twice") == {word: 2 * count for word, count in fed.items()}
    with pytest.raises(CheckpointError, match="state_version 2 in the checkpoint, 1 here"):
        meander.deploy_local(Counts(), 16, 2, **options)
    with meander.deploy_local(Doubled(), 16, 1, **options) as op:
        assert counts(op, "twice") == {word: 2 * count for word, count in fed.items()}


def test_a_checkpoint_of_the_old_version_is_gone_on_from_by_the_new_one(launcher, tmp_path) -> None:
    options = {"launcher": launcher, "checkpoint": tmp_path, "checkpoint_s": 0.2}
    with meander.deploy_local(Counts(), 16, 2, **options) as op, op.feeder() as feeder:
        feeder.feed(pa.table({"word": WORDS}))
        feeder.flush()
    with meander.deploy_local(Doubled(), 16, 2, **options) as op:
        assert counts(op, "twice") == dict.fromkeys(WORDS, 2)


@pytest.mark.parametrize("new", [Tenfold, Doubled])
def test_an_upgrade_is_rolled_back_before_its_last_round(launcher, new) -> None:
    with meander.deploy_local(Counts(), 16, 2, launcher=launcher) as op:
        with op.feeder() as feeder:
            feeder.feed(pa.table({"word": WORDS * 100}))
        handle = op.upgrade(new(), pause_ms=1)
        until(lambda: handle.rescaling.over or handle.progress().get("moved", 0) > 0)
        handle.roll_back()
        with pytest.raises(MigrationError, match="rolled back"):
            handle.wait(30)
        assert counts(op) == dict.fromkeys(WORDS, 100)
        assert type(op.driver.operator) is Counts
        with op.feeder("more") as feeder:
            feeder.feed(pa.table({"word": WORDS}))
        assert counts(op) == dict.fromkeys(WORDS, 101)


def test_an_upgrade_that_ends_just_before_its_way_back_begins_was_completed() -> None:
    held: list[Callable[[Any], Any]] = []
    core: Any = SimpleNamespace(process=SimpleNamespace(do=held.append), versions=[])
    rescaling, old = Rescaling(2), Version(Counts(), b"")
    replacing.upgrade(core, rescaling, old, Rescale(2), one_way=True, back=True)
    rescaling.tell(News.COMPLETED, {})  # the master has not heard of the way back yet
    with pytest.raises(MigrationError, match="was completed: it cannot roll back"):
        held[0](None)
    assert (rescaling.stage, core.versions) == (News.COMPLETED, [])


def test_what_cannot_take_its_place_is_refused(launcher) -> None:
    class Others(Counts):
        name = "Counts"
        schema = pa.schema({"word": pa.string(), "more": pa.int64()})

    class Bare(Counts):
        name = "Counts"
        state_version = 3

    with meander.deploy_local(Counts(), 8, 1, launcher=launcher) as op:
        with pytest.raises(InputError, match="schema"):
            op.upgrade(Others())
        with pytest.raises(InputError, match="a method migrate"):
            op.upgrade(Bare())
        with pytest.raises(InputError, match="name Counts now, WordCount"):
            op.upgrade(WordCount())
        handle = op.upgrade(Stuck())
        with pytest.raises(InputError, match="an upgrade is under way"):
            op.upgrade(Stuck())
        with pytest.raises(InputError, match="no way back"):
            handle.roll_back()
        handle.wait(30)
        op.rescale(2).wait(30)


@pytest.mark.parametrize("victim", ["old", "new"])
def test_a_node_is_killed_in_an_upgrade_that_changes_the_state(launcher, tmp_path, victim) -> None:
    options = {"launcher": launcher, "checkpoint": tmp_path, "checkpoint_s": 0.1}
    with meander.deploy_local(Counts(), 16, 2, **options) as op:
        with flowing(op) as fed:
            handle = op.upgrade(Doubled(), pause_ms=1)
            until(lambda: handle.rescaling.over or handle.progress().get("moved", 0) > 0)
            pids = {name: pid for (name, _), pid in dict(launcher.pids).items() if name[0] in "nx"}
            names = [name for name in sorted(pids) if (name[0] == "n") == (victim == "old")]
            if names:
                os.kill(pids[names[0]], signal.SIGKILL)
            handle.wait(60)
        until(lambda: op.status()["under way"] == 0)
        assert counts(op, "twice") == {word: 2 * count for word, count in fed.items()}
