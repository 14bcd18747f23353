"""Micro-batches on real processes: written in pieces by many, committed once, whatever is repeated."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from runtime_kit import WORDS, Stream, counted, until

from meander.errors import (
    InputError,
    OperatorGoneError,
    OperatorRefusedError,
    QueryError,
    ReplayError,
    RolledBackError,
    RowsLostError,
)
from meander.operators import WordCount
from meander.protocol.master.membership import Status
from meander.runtime.clients.driver_client import DriverClient, pack, unpack
from meander.runtime.clients.query import QueryClient, client_of, leave_all, new_attempt
from meander.runtime.clients.query_process import PIECES_MAX
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import live_settings

TASKS = 32


@pytest.fixture
def op(launcher: WarmLauncher) -> Iterator[ElasticOperator]:
    with deploy_local(WordCount(), tasks=TASKS, nodes=2, launcher=launcher) as op:
        yield op


@pytest.fixture
def client(op: ElasticOperator) -> Iterator[QueryClient]:
    about = DriverClient(op.address, op.driver.issue("query")).about()
    with QueryClient(about, op.address, op.driver.issue("query")) as client:
        yield client


def words(*found: str) -> Any:
    return pa.record_batch({"word": found}, schema=WORDS)


def staged(op: ElasticOperator) -> int:
    """Rows that are laid by at all nodes."""
    told = (op.driver.reader().ask(a, "metrics") for a in op.driver.nodes().values())
    return sum(int(m["staged_rows"]) for m in told)


def test_a_batch_that_does_not_fit_into_memory_is_on_disk_until_it_is_committed(
    launcher: WarmLauncher,
) -> None:
    """Also when its tasks move in between."""
    settings = replace(live_settings(TASKS), staged_bytes_max=2**16)
    with deploy_local(
        WordCount(), tasks=TASKS, nodes=2, launcher=launcher, settings=settings
    ) as op:
        about = DriverClient(op.address, op.driver.issue("query")).about()
        with QueryClient(about, op.address, op.driver.issue("query")) as client:
            batches = [words(*(f"w{n}" for n in range(20_000))) for _ in range(5)]
            parts = [
                part
                for partition, batch in enumerate(batches)
                for part in client.write("q", 0, partition, new_attempt(), [batch])
            ]
            assert op.metrics()["staged_disk_bytes"] > 10**5
            op.rescale(3).wait(60)
            client.commit("q", 0, parts)
        expected = Counter(word for batch in batches for word in batch["word"].to_pylist())
        assert counted(op) == expected
        until(lambda: op.metrics()["staged_disk_bytes"] == 0)
        assert op.metrics()["staged_refused"] == 0


def test_a_batch_is_applied_when_it_is_committed_and_only_once(
    op: ElasticOperator, client: QueryClient
) -> None:
    parts = [
        part
        for partition, rows in enumerate((["a", "b", "a"], ["a", "c"]))
        for part in client.write("q", 0, partition, new_attempt(), [words(*rows)])
    ]
    assert counted(op) == Counter()
    client.commit("q", 0, parts)
    expected = Counter({"a": 3, "b": 1, "c": 1})
    assert counted(op) == expected
    # The query is replayed: another order, another partitioning, new attempts.
    again = client.write("q", 0, 0, new_attempt(), [words("c", "a"), words("a", "b", "a")])
    client.commit("q", 0, again)
    assert counted(op) == expected
    assert staged(op) == 0


def test_a_query_that_was_rolled_back_is_refused_before_anything_is_applied(
    op: ElasticOperator, client: QueryClient
) -> None:
    """1. batches 0 to 2  2. the query goes on from an older checkpoint, with batch 1."""
    for batch in range(3):
        client.commit("q", batch, client.write("q", batch, 0, new_attempt(), [words("a", "b")]))
    with pytest.raises(
        RolledBackError, match=r"writes batch 1, but .* up to 2 .*newest checkpoint"
    ):
        client.write("q", 1, 0, new_attempt(), [words("b", "c", "a")])
    assert counted(op) == Counter({"a": 3, "b": 3})
    until(lambda: staged(op) == 0)


def test_a_replay_with_other_rows_says_so(op: ElasticOperator, client: QueryClient) -> None:
    """1. a batch is applied  2. its query, which is not deterministic, replays it with another row."""
    client.commit("q", 0, client.write("q", 0, 0, new_attempt(), [words("a", "b")]))
    op.rescale(1).wait(60)
    again = client.write("q", 0, 0, new_attempt(), [words("a", "a", "b")])
    with pytest.raises(ReplayError, match=r"had taken in 1 and should now have 2.*deterministic"):
        client.commit("q", 0, again)
    client.commit("q", 1, client.write("q", 1, 0, new_attempt(), [words("a")]))
    assert counted(op) == Counter({"a": 2, "b": 1})


def test_rows_are_cut_into_pieces_and_pieces_wait_for_answers(
    op: ElasticOperator, client: QueryClient
) -> None:
    client.queries.piece_rows = 1000
    stream = Stream()
    parts = client.write("q", 0, 3, new_attempt(), stream.batches(20))
    assert [piece - 3 * PIECES_MAX for piece, _, _ in parts] == list(range(10))
    client.commit("q", 0, parts)
    assert counted(op) == stream.counts


def test_queries_are_counted_apart(op: ElasticOperator, client: QueryClient) -> None:
    for query in ("one", "two"):
        client.commit(query, 0, client.write(query, 0, 0, new_attempt(), [words("a")]))
    assert counted(op) == Counter({"a": 2})


def test_a_rescale_between_write_and_commit_needs_nothing(
    op: ElasticOperator, client: QueryClient
) -> None:
    """1. rows are staged  2. their tasks move, twice  3. the batch is committed."""
    stream = Stream()
    for batch, nodes in enumerate((4, 1)):
        parts = client.write("q", batch, 0, new_attempt(), stream.batches(10))
        op.rescale(nodes).wait(60)
        client.commit("q", batch, parts)
    assert counted(op) == stream.counts
    assert len(op.driver.nodes()) == 1, "a process of a query keeps no node from leaving"


def test_losing_and_abandoned_attempts_leave_nothing_behind(
    op: ElasticOperator, client: QueryClient
) -> None:
    lost = client.write("q", 0, 0, new_attempt(), [words("x", "y")])
    won = client.write("q", 0, 0, new_attempt(), [words("a")])
    client.commit("q", 0, won)
    given_up = client.write("q", 1, 0, new_attempt(), [words("x", "y")])
    assert staged(op) == 2
    client.abandon("q", 1, given_up)
    until(lambda: staged(op) == 0)
    assert counted(op) == Counter({"a": 1}), lost


def test_a_source_that_raises_half_way_leaves_nothing_staged(
    op: ElasticOperator, client: QueryClient
) -> None:
    def broken() -> Iterator[Any]:
        yield words("a", "b")
        raise OSError("the source broke")

    client.queries.piece_rows = 1
    with pytest.raises(OSError, match="the source broke"):
        client.write("q", 0, 0, new_attempt(), broken())
    until(lambda: staged(op) == 0)


def test_rows_that_were_lost_fail_the_batch_which_is_written_again(
    op: ElasticOperator, client: QueryClient
) -> None:
    parts = client.write("q", 0, 0, new_attempt(), [words("a", "b")])
    client.abandon("q", 0, parts)
    until(lambda: staged(op) == 0)
    with pytest.raises(RowsLostError, match="writes the batch once more"):
        client.commit("q", 0, parts)
    assert counted(op) == Counter()
    client.commit("q", 0, client.write("q", 0, 0, new_attempt(), [words("a", "b")]))
    assert counted(op) == Counter({"a": 1, "b": 1})


def _write_and_hang(address: str, credentials: Any, ready: Any) -> None:
    client = client_of(address, credentials)
    client.write("q", 0, 0, new_attempt(), [words("a", "b")])
    ready.set()
    signal.pause()


def test_a_killed_writer_is_replaced_and_its_rows_do_not_count(
    op: ElasticOperator, client: QueryClient
) -> None:
    """1. a worker stages its rows and is killed  2. another attempt wins  3. nothing is left of it, and
    nobody waits for the dead process."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    worker = context.Process(
        target=_write_and_hang, args=(op.address, op.driver.issue("query"), ready), daemon=True
    )
    worker.start()
    assert ready.wait(60)
    assert staged(op) == 2
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    client.commit("q", 0, client.write("q", 0, 0, new_attempt(), [words("b", "a")]))
    assert counted(op) == Counter({"a": 1, "b": 1})
    assert staged(op) == 0


def test_the_driver_commits_for_whoever_asks(op: ElasticOperator, client: QueryClient) -> None:
    desk = DriverClient(op.address, op.driver.issue("query"))
    parts = client.write("q", 0, 0, new_attempt(), [words("a")])
    request = {"query": "q", "batch": 0, "parts": pack(parts)}
    assert desk.ask("commit", request)["done"]
    assert desk.ask("commit", request)["done"], "asking twice commits once"
    assert counted(op) == Counter({"a": 1})
    desk.ask("abandon", {"query": "q", "batch": 1, "parts": pack(parts)})
    with pytest.raises(OperatorRefusedError, match="was not committed"):
        desk.ask("commit", {"query": "q", "batch": -1, "parts": pack(parts)})


def test_what_was_staged_fits_into_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes or so per partition and task; what is too much says what to do."""
    random = np.random.default_rng(1)

    def parts(count: int, tasks: int) -> list[Any]:
        rows = random.integers(1, 300, (count, tasks)).tolist()
        return [
            (piece * PIECES_MAX, new_attempt(), tuple(enumerate(row)))
            for piece, row in enumerate(rows)
        ]

    many = parts(40, 500)
    assert unpack(pack(many)) == tuple(many)
    assert len(pack(many)) < 2.5 * 40 * 500
    for wrong in ("", "AAAA", pack(many)[:-40], pack([(0, 0, ((1, 1),))])[:-8]):
        with pytest.raises(ValueError, match="the parts of a batch cannot be read"):
            unpack(wrong)
    monkeypatch.setattr("meander.runtime.clients.driver_client.REQUEST_BYTES_MAX", 10_000)
    with pytest.raises(InputError, match="fewer, larger partitions"):
        pack(many)


def test_a_client_is_kept_by_its_process_and_replaced_when_it_ended(op: ElasticOperator) -> None:
    credentials = op.driver.issue("query")
    first = client_of(op.address, credentials)
    assert client_of(op.address, credentials) is first
    first.close()
    second = client_of(op.address, credentials)
    assert second is not first
    second.commit("q", 0, second.write("q", 0, 0, new_attempt(), [words("a")]))
    leave_all()
    peers = op.driver.master.membership.peers
    until(lambda: peers[second.name].status is Status.GONE)  # long before its lease is over
    assert client_of(op.address, credentials) is not second
    leave_all()


def test_bad_addresses_tokens_and_rows_say_so(op: ElasticOperator, client: QueryClient) -> None:
    with pytest.raises(InputError, match="is no address"):
        DriverClient("nowhere", "t")
    with pytest.raises(OperatorRefusedError, match="refused the token"):
        DriverClient(op.address, "another token").about()
    with pytest.raises(OperatorGoneError, match="no operator answers"):
        DriverClient("127.0.0.1:1", "t").about()
    with pytest.raises(InputError, match="no column 'word'"):
        client.write("q", 0, 0, new_attempt(), [pa.record_batch({"text": ["a"]})])
    facts = DriverClient(op.address, op.driver.credentials).ask("about")
    with pytest.raises(OperatorRefusedError, match="install the same ones"):
        type(client.about).parse({**facts, "versions": {**facts["versions"], "pyarrow": "1.2.3"}})


def test_a_client_whose_driver_ends_says_so(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), tasks=TASKS, nodes=1, launcher=launcher) as op:
        address, credentials = op.address, op.driver.issue("query")
        client = client_of(address, credentials)
        client.wait_ready()
    until(lambda: not client.alive)
    with pytest.raises(QueryError, match="has ended"):
        client.write("q", 0, 0, new_attempt(), [words("a")])
    with pytest.raises(OperatorGoneError, match="no operator answers"):
        client_of(address, credentials)
