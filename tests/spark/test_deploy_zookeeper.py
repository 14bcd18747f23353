"""Tables through ZooKeeper: processes learn of epochs from a watch, and nobody else can make them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from agents import until

from meander.errors import InputError
from meander.model import Assignment, Epoch, Run
from meander.operators import WordCount
from meander.protocol.messages import MASTER, Beat, Envelope, Grant, Member
from meander.protocol.table import Table
from meander.runtime.driver.local import deploy_local
from meander.runtime.wire import publisher as bulletin
from meander.runtime.wire.publisher import ZooKeeperBoard
from meander_lab.servers.zookeeper import server


@pytest.fixture(scope="module")
def hosts() -> Iterator[str]:
    with server() as where:
        yield where


def news(number: int, to: str = "n1", sent: float = -1.0) -> Envelope:
    epoch = Epoch(1, number)
    table = Table(
        Assignment(4, (Run(0, 4, "n1"),), ("n1",), epoch),
        (),
        (),
        {"n1": Member(1, "s1")},
        {"s1": 1},
    )
    return Envelope(MASTER, 1, to, 1, epoch, Grant(sent, 0.0, table))


def epochs(heard: list[Any]) -> list[int]:
    return [envelope.body.table.epoch.number for envelope in heard]


def test_a_table_is_put_up_once_and_everybody_hears_of_it(hosts: str) -> None:
    master, node, feeder = (ZooKeeperBoard(hosts, "r1", "secret") for _ in range(3))
    master.open()
    heard: dict[str, list[Any]] = {"n1": [], "f1": []}
    try:
        node.subscribe("n1", heard["n1"].append)
        feeder.subscribe("f1", heard["f1"].append)
        assert all(master.publish(news(7, to)) for to in ("n1", "n2", "f1"))
        assert master.published == 1
        assert until(lambda: epochs(heard["n1"]) == epochs(heard["f1"]) == [7])
        assert master.publish(news(8))
        assert until(lambda: epochs(heard["n1"]) == epochs(heard["f1"]) == [7, 8])
        assert [envelope.to for envelope in heard["f1"]] == ["f1", "f1"]
    finally:
        for board in (node, feeder, master):
            board.close()


def test_what_is_no_news_for_all_is_sent_as_ever(hosts: str) -> None:
    master = ZooKeeperBoard(hosts, "r2", "secret")
    master.open()
    try:
        assert not master.publish(news(7, sent=1.0)), "a lease is one process's own"
        assert not master.publish(news(7)._replace(body=Beat(0.0)))
    finally:
        master.close()
    assert not master.publish(news(8)), "without ZooKeeper tables are pushed"


def test_a_table_that_the_master_did_not_sign_is_not_believed(hosts: str) -> None:
    master, stranger, node = (ZooKeeperBoard(hosts, "r3", t) for t in ("secret", "guess", "secret"))
    heard: list[Any] = []
    master.open()
    stranger.open()
    try:
        node.subscribe("n1", heard.append)
        stranger.publish(news(9))
        assert until(lambda: stranger._client.get(stranger._path)[0] != b"")
        master.publish(news(10))
        assert until(lambda: epochs(heard) == [10])
    finally:
        for board in (node, stranger, master):
            board.close()


def test_a_zookeeper_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulletin, "START_S_MAX", 0.5)
    with pytest.raises(InputError, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer"):
        ZooKeeperBoard("127.0.0.1:1", "r4", "secret").open()


def test_counts_stay_exact_when_tables_travel_through_zookeeper(hosts: str) -> None:
    chosen = random.Random(5)
    words = [f"w{chosen.randrange(500)}" for _ in range(20_000)]
    op = deploy_local(WordCount(), tasks=16, nodes=2, zookeeper=hosts)
    with op, op.feeder("words") as feeder:
        for start in range(0, len(words), 1000):
            feeder.feed(pa.record_batch({"word": words[start : start + 1000]}))
            if start == 5000:
                growing = op.rescale(3)
        growing.wait(60)
        feeder.flush()
        board: Any = op.driver.transport.board  # type: ignore[union-attr]
        listener: Any = feeder.transport.board
        assert board.published > 0
        assert listener.heard > 0
        found = {row["word"]: row["count"] for row in op.state().to_pylist()}
    assert found == {word: words.count(word) for word in set(words)}
