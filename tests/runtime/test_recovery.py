"""Processes are killed for real: what was durable goes on, exactly, elsewhere or later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from runtime_kit import Stream, children, counted, doomed, pid_of, until
from runtime_operators import Countdown

from meander.errors import CheckpointError, DeployError, FeederError
from meander.operators import Aggregate, KeyedAggregate, WordCount
from meander.protocol.records import Ref, file_of
from meander.runtime.clients.driver_client import DriverClient, pack
from meander.runtime.clients.query import QueryClient, new_attempt
from meander.runtime.driver import service as reception
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.store.durable import FileStore
from meander.runtime.store.resume import newest


def kill(op: ElasticOperator, *nodes: str) -> None:
    """Kill processes, all at once."""
    for pid in [pid_of(op, node) for node in nodes]:
        os.kill(pid, signal.SIGKILL)


def losses(op: ElasticOperator) -> int:
    return sum(1 for _, what, _ in op.driver.events if what == "lost")


def names(manifest_of: Path) -> list[tuple[str, ...]]:
    manifest = newest(FileStore(manifest_of))
    if manifest is None:
        return []
    return [kept.chain for kept in manifest.records.values()]


def test_two_nodes_and_a_state_server_die_while_tasks_move(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    """1. rows flow, records build on each other  2. tasks move one by one, and two of three nodes and
    the state server are killed at once  3. the rest goes on; in the end every count is right."""
    stream = Stream(7)
    with deploy_local(
        WordCount(), tasks=12, nodes=3, checkpoint=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as op:  # fmt: skip
        with op.feeder("words", gather_rows=500) as feeder:
            for i, batch in enumerate(stream.batches(300)):
                feeder.feed(batch)
                time.sleep(0.002)
                if i == 50:
                    until(lambda: names(tmp_path))
                if i == 100:
                    until(lambda: any(len(chain) > 1 for chain in names(tmp_path)))
                    handle = op.rescale(5, tasks_max=1)
                    kill(op, "n1", "n2", "server@127.0.0.1")
            handle.wait(60.0)
        assert counted(op) == stream.counts
        assert len(op.driver.nodes()) == 5
        told = op.metrics()["checkpoint"]
        assert min(told["snapshots"], told["deltas"], told["bytes"], told["files"]) > 0
        assert told["pause"]["count"] <= told["snapshots"] + told["deltas"]
        assert told["durable"]["count"] > 0
        assert op.driver.lost_tasks == set()


def test_a_loop_is_exact_though_nodes_die(tmp_path: Path, launcher: WarmLauncher) -> None:
    """What a task had fed to others is sent again verbatim, and takes effect once."""
    with deploy_local(
        Countdown(), tasks=8, nodes=3, checkpoint=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as op:  # fmt: skip
        with op.feeder("numbers", gather_rows=1) as feeder:
            for i in range(60):
                feeder.feed(Countdown.batch([i % 9]))
                time.sleep(0.01)
                if i in (20, 40):
                    kill(op, "n2")
        wanted = Counter({n: sum(1 for i in range(60) if i % 9 >= n) for n in range(9)})

        def seen() -> Counter[int]:
            state = op.state()
            return Counter(dict(zip(*(state[c].to_pylist() for c in ("number", "seen")))))  # noqa: B905

        until(lambda: seen() == wanted, 30.0)
        assert op.driver.lost_tasks == set()


def test_a_micro_batch_is_durable_when_its_commit_returns(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    """1. the period is an hour: only commits write  2. a batch is committed  3. all nodes are killed
    4. the batch is there, and written again it counts once."""
    stream = Stream(6)
    with deploy_local(
        WordCount(), tasks=8, nodes=2, checkpoint=str(tmp_path), checkpoint_s=3600.0,
        launcher=launcher,
    ) as op:  # fmt: skip
        about = DriverClient(op.address, op.driver.issue("query")).about()
        with QueryClient(about, op.address, op.driver.issue("query")) as client:
            for number in range(3):
                batches = list(stream.batches(4))
                client.commit("q", number, client.write("q", number, 0, new_attempt(), batches))
                kill(op, "n1", "n2")
                until(lambda n=number: losses(op) == 2 * n + 2, 120.0)  # type: ignore[misc]
                until(op.driver.serving, 120.0)
                assert counted(op) == stream.counts
            client.commit("q", 2, client.write("q", 2, 1, new_attempt(), batches))
        assert counted(op) == stream.counts


SCRIPT = """
import sys, time
sys.path.insert(0, {here!r})
from runtime_kit import Stream
from meander.operators import WordCount
from meander.runtime.driver.local import deploy_local

stream = Stream(9)
with deploy_local(WordCount(), tasks=12, nodes=3, checkpoint={where!r}, checkpoint_s=0.1) as op:
    feeder = op.feeder("words", gather_rows=500)
    for offset in range(100_000):
        feeder.feed(stream.batch(), offset=offset)
        time.sleep(0.002)
        if offset == 800:
            print("flows", flush=True)
"""


def test_a_driver_that_was_killed_is_followed_by_one_with_another_number_of_nodes(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    """1. a driver is killed with its stream flowing  2. its processes end  3. another goes on with the
    same checkpoint, and the feeder replays what was not durable."""
    script = SCRIPT.format(here=str(Path(__file__).parent), where=str(tmp_path))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "flows\n"
        started = children(first.pid)
        assert len(started) >= 4
        os.kill(first.pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), 30.0)
    stream, total = Stream(9), 2000
    batches = list(stream.batches(total))
    with deploy_local(
        WordCount(), tasks=12, nodes=2, checkpoint=tmp_path.as_uri(), checkpoint_s=0.1,
        launcher=launcher,
    ) as op:  # fmt: skip
        assert op.driver.generation == 2
        with op.feeder("words") as feeder:
            durable = feeder.wait_ready()
            assert 0 < durable < total
            for offset in range(durable + 1, total):
                feeder.feed(batches[offset], offset=offset)
        assert counted(op) == stream.counts


def test_of_two_drivers_on_one_checkpoint_the_older_is_fenced(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    stream = Stream(3)
    settings = {"tasks": 4, "nodes": 1, "checkpoint": str(tmp_path), "checkpoint_s": 0.1}
    old = deploy_local(WordCount(), **settings)  # type: ignore[arg-type]
    with doomed(old):
        feeder = old.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush(durable=True)
        with deploy_local(WordCount(), launcher=launcher, **settings) as new:  # type: ignore[arg-type]
            with suppress(DeployError):  # applied there, and never durable; or refused by now
                feeder.feed(Stream(4).batch())
            until(lambda: old.driver.failure is not None)
            with pytest.raises(DeployError, match="a later driver has taken over"):
                old.driver.check()
            assert counted(new) == stream.counts
        feeder.abandon()


class Renamed(WordCount):
    """The same state under another name."""


class Faster(WordCount):
    """The same operator with other code."""

    name = "WordCount"
    scratch = 7


class Version2(WordCount):
    name = "WordCount"
    state_version = 2


class Sums(KeyedAggregate):
    name = "WordCount"

    def __init__(self) -> None:
        import pyarrow as pa

        schema = pa.schema({"word": pa.string(), "size": pa.int64()})
        super().__init__(schema, ["word"], {"size": Aggregate("sum", "size")})


def test_an_operator_goes_on_if_its_state_is_of_the_same_kind(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    """1. words are counted and the driver stops  2. what cannot go on is refused with what differs,
    before anything starts  3. other code with the same state goes on  4. a file is damaged: the
    deployment ends with an error that names the task and the file."""
    stream = Stream(5)
    settings = {"nodes": 2, "checkpoint": str(tmp_path), "checkpoint_s": 0.1}
    with (
        deploy_local(WordCount(), tasks=4, launcher=launcher, **settings) as op,  # type: ignore[arg-type]
        op.feeder("words") as feeder,
    ):
        feeder.feed(stream.batch())
    for operator, tasks, why in (
        (Renamed(), 4, "name WordCount in the checkpoint, Renamed here"),
        (Version2(), 4, "state_version 1 in the checkpoint, 2 here"),
        (Sums(), 4, r"state rows int64 in the checkpoint, nothing here; state sum\(size\)"),
        (WordCount(), 8, "4 tasks in the checkpoint, 8 here"),
    ):
        with pytest.raises(CheckpointError, match=why):
            deploy_local(operator, tasks=tasks, launcher=launcher, **settings)  # type: ignore[arg-type]
    with deploy_local(Faster(), tasks=4, launcher=launcher, **settings) as op:  # type: ignore[arg-type]
        assert op.driver.generation == 2
        assert counted(op) == stream.counts
    name = names(tmp_path)[2][0]
    ref, file = Ref.parse(name), tmp_path / file_of(name)
    data = bytearray(file.read_bytes())
    data[ref.offset + ref.length // 2] ^= 1
    file.write_bytes(data)
    with (
        pytest.raises(CheckpointError, match=f"task 2: wrong checksum in {ref.file}"),
        deploy_local(WordCount(), tasks=4, launcher=launcher, **settings) as broken,  # type: ignore[arg-type]
    ):
        until(broken.driver.check)  # raises as soon as a node has read it


def test_a_store_that_takes_nothing_is_told_and_all_goes_on_when_it_does_again(
    tmp_path: Path,
    launcher: WarmLauncher,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. nodes cannot write their records any more  2. `status` says so and what to do, a feeder that
    waits says what for, now and then, and so does a commit  3. the store takes them again: everything
    is durable, and every count is right."""
    monkeypatch.setattr(reception, "PATIENCE_S", 0.5)
    stream = Stream(8)
    log, away = tmp_path / "log", tmp_path / "away"
    with deploy_local(
        WordCount(), tasks=4, nodes=2, checkpoint=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as op:  # fmt: skip
        feeder = op.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush(durable=True)
        assert op.status()["store"] is None
        log.rename(away)
        log.write_text("no folder: as good as a full disk")
        feeder.feed(stream.batch())
        until(lambda: op.status()["store"])
        told = op.status()["store"]
        assert "the durable store fails n" in told
        assert "make room" in told
        until(lambda: feeder.machine.trouble)
        with pytest.raises(FeederError, match="the durable store fails n"):
            feeder.flush(durable=True, timeout_s=1.0)
        about = DriverClient(op.address, op.driver.issue("query")).about()
        with QueryClient(about, op.address, op.driver.issue("query")) as client:
            parts = client.write("q", 0, 0, new_attempt(), [stream.batch()])
            order = {"query": "q", "batch": 0, "parts": pack(parts)}
            until(lambda: "store fails n" in client_asks(op, order)["why"])
        said = [r.getMessage() for r in caplog.records if "words is held up" in r.getMessage()]
        assert 1 <= len(said) <= 3
        log.unlink()
        away.rename(log)
        feeder.feed(stream.batch())
        feeder.close()
        assert counted(op) == stream.counts
        until(lambda: op.status()["store"] is None)
    with deploy_local(
        WordCount(), tasks=4, nodes=1, checkpoint=str(tmp_path), launcher=launcher
    ) as again:
        assert counted(again) == stream.counts


def client_asks(op: ElasticOperator, order: dict[str, Any]) -> dict[str, Any]:
    """Ask for a commit as Spark's sink does."""
    answer: dict[str, Any] = DriverClient(op.address, op.driver.issue("query")).ask("commit", order)
    assert not answer["done"]
    return answer


def test_a_start_that_the_store_fails_says_so(
    tmp_path: Path, launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileStore, generation: int) -> bool:
        raise OSError("Input/output error")

    monkeypatch.setattr(FileStore, "_claim", refuse)
    with (
        pytest.raises(DeployError, match="the durable store fails master: Input/output error"),
        deploy_local(
            WordCount(), tasks=4, nodes=1, checkpoint=str(tmp_path), launcher=launcher,
            registration_s_max=1.0,
        ),
    ):  # fmt: skip
        pass
