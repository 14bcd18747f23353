"""A process that reads a source waits for whoever has the partitions, and ends for what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import FeederError, InputError
from meander.protocol.messages import Ending
from meander.protocol.settings import Settings
from meander.runtime.process.source import SourceBatch, SourceShare
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles import partition_feeds
from meander.runtime.roles.partition_feeds import PartitionFeeds
from meander.runtime.wire.credentials import Credentials


def feeds(*answers: Any) -> tuple[PartitionFeeds, list[Any]]:
    """Make one whose share answers so, one time after the other."""
    left = list(answers)

    def mine() -> list[str]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    share: Any = SimpleNamespace(mine=mine)
    spec: Any = SimpleNamespace(name="words#0")
    return PartitionFeeds(share, spec, SimpleNamespace, lambda _: None, {}), left


def test_one_that_starts_while_the_broker_is_away_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_feeds, "AWAY_S", 0.0)
    away = ConnectionError("no broker answers")
    found, left = feeds(away, away, [])
    assert found.run(lambda: False)[0] is Reason.FINISHED
    assert left == []


def test_a_topic_that_is_not_there_ends_it_at_once() -> None:
    found, _ = feeds(InputError("the topic nowhere"))
    with pytest.raises(InputError, match="nowhere"):
        found.run(lambda: False)


class Joint:
    """Has partitions that are read together; `told` has what is read, or the end."""

    def __init__(self, *found: Any) -> None:
        self.found, self.asked = found, list[dict[str, int]]()

    def check(self) -> None:
        """Refuse nothing."""

    def partitions(self) -> list[str]:
        """Name them."""
        return ["0", "1"]

    def read(self, partition: str, after: int, schema: Any) -> Any:
        """Nobody reads one alone."""
        raise AssertionError("they are read together")

    def read_together(self, after: Mapping[str, int], schema: Any) -> Any:
        """Give what there is, and end."""
        self.asked.append(dict(after))
        yield from self.found


class Fed:
    """Stands for feeders: notes what each was fed."""

    def __init__(self, fails: int = 0) -> None:
        self.rows = dict[str, list[tuple[int, str]]]()
        self.left = list[str]()
        self.closed = list[str]()
        self.finishes = list[Callable[[], None]]()
        """Each tells whoever feeds to finish."""
        self.fails = fails

    def from_spec(self, spec: Any, operator: Any) -> Any:
        """Make one; the first so many find their place taken."""
        rows = self.rows.setdefault(spec.name, [])

        def feed(batch: str, *, offset: int, due_s: float | None) -> None:
            if self.fails:
                self.fails -= 1
                found.ending = Ending.REPLACED
                raise FeederError("another has its place")
            rows.append((offset, batch))

        found = SimpleNamespace(
            wait_ready=lambda: rows[-1][0] if rows else -1, schema=None, feed=feed, ending=None,
            check=lambda: None, close=lambda: self.closed.append(spec.name), rows=0,
            when_told=self.finishes.append,
            abandon=lambda: self.left.append(spec.name),
        )  # fmt: skip
        return found


def run_joint(
    source: Joint,
    fed: Fed,
    monkeypatch: pytest.MonkeyPatch,
    gone: Callable[[], bool] = lambda: False,
    taken_s: float = 0.0,
) -> tuple[Reason, str]:
    """Have all that a source gives fed."""
    monkeypatch.setattr(partition_feeds, "FeederClient", fed)
    monkeypatch.setattr(partition_feeds, "TAKEN_S", taken_s)
    spec = ProcessSpec(
        kind="feeder", name="words#0", incarnation=1, run="r", master="", tasks=4,
        credentials=Credentials("t"),
        settings=Settings(), generation=1,
    )  # fmt: skip
    return PartitionFeeds(SourceShare(source), spec, SimpleNamespace, lambda _: None, {}).run(gone)


def test_partitions_that_are_read_together_have_a_feeder_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Joint(
        ("0", SourceBatch(4, "a")), ("1", SourceBatch(7, "b")), ("0", None),
        ("0", SourceBatch(5, "c")),
    )  # fmt: skip
    fed = Fed()
    assert run_joint(source, fed, monkeypatch)[0] is Reason.FINISHED
    assert fed.rows == {"words/0": [(4, "a"), (5, "c")], "words/1": [(7, "b")]}
    assert source.asked == [{"0": -1, "1": -1}]
    assert sorted(fed.left) == ["words/0", "words/1"]


def test_where_one_was_taken_over_all_are_read_again_from_what_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, fed = Joint(("0", SourceBatch(4, "a")), ("1", SourceBatch(7, "b"))), Fed(fails=1)
    assert run_joint(source, fed, monkeypatch)[0] is Reason.FINISHED
    assert source.asked == [{"0": -1, "1": -1}] * 2
    assert fed.rows == {"words/0": [(4, "a")], "words/1": [(7, "b")]}
    assert len(fed.left) == 4


def test_one_that_stops_leaves_its_place_to_who_has_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It registered once more when its wait was cut short, and had the other one fenced."""
    monkeypatch.setattr(partition_feeds, "DISCOVER_S", 0.01)
    source, fed = Joint(("0", SourceBatch(4, "a"))), Fed(fails=1)
    ended = run_joint(source, fed, monkeypatch, gone=lambda: len(fed.left) >= 2, taken_s=60.0)
    assert ended[0] is Reason.DRIVER_LOST
    assert source.asked == [{"0": -1, "1": -1}]
    assert len(fed.left) == 2


def test_partitions_that_come_later_are_read_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, fed = Joint(), Fed()
    found = [["0"], ["0", "1"], ["0", "1"]]
    monkeypatch.setattr(Joint, "partitions", lambda _: found.pop(0) if found else ["0", "1"])
    monkeypatch.setattr(partition_feeds, "DISCOVER_S", 0.0)
    gate = threading.Event()
    monkeypatch.setattr(
        Joint, "read_together", lambda self, after, schema: _held(self, after, gate)
    )
    assert run_joint(source, fed, monkeypatch)[0] is Reason.FINISHED
    assert source.asked == [{"0": -1}, {"1": -1}]


def _held(source: Joint, after: Mapping[str, int], gate: threading.Event) -> Any:
    """Read the first group until the second is read."""
    source.asked.append(dict(after))
    if "1" in after:
        gate.set()
    elif not gate.wait(10):
        raise AssertionError("nobody reads the partition that came later")
    yield from ()


def test_one_that_is_to_finish_reads_no_more_and_closes_its_feeders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, fed = Joint(), Fed()

    def for_ever(self: Joint, after: Mapping[str, int], schema: Any) -> Any:
        yield "0", SourceBatch(4, "a")
        fed.finishes[0]()
        while True:
            yield "0", SourceBatch(5, "b")

    monkeypatch.setattr(Joint, "read_together", for_ever)
    assert run_joint(source, fed, monkeypatch)[0] is Reason.FINISHED
    assert fed.rows == {"words/0": [(4, "a")], "words/1": []}
    assert sorted(fed.closed) == ["words/0", "words/1"]
