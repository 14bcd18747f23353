"""Processes are killed for real: what was durable goes on, exactly, elsewhere or later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from runtime_kit import SharedLauncher, Stream, children, counted, pid_of, until
from runtime_operators import Countdown

from meander.errors import CheckpointError, DeployError, FeederError
from meander.operators import Aggregate, KeyedAggregate, WordCount
from meander.protocol.records import Ref, file_of
from meander.runtime.clients.driver_client import DriverClient, pack
from meander.runtime.clients.query import QueryClient, new_attempt
from meander.runtime.driver import service as reception
from meander.runtime.driver.driver import Driver
from meander.runtime.store.durable import FileStore
from meander.runtime.store.resume import newest


@pytest.fixture(scope="module")
def launcher() -> Iterator[SharedLauncher]:
    shared = SharedLauncher()
    yield shared
    shared.end()


def kill(driver: Driver, *nodes: str) -> None:
    """Kill processes, all at once."""
    for pid in [pid_of(driver, node) for node in nodes]:
        os.kill(pid, signal.SIGKILL)


def losses(driver: Driver) -> int:
    return sum(1 for _, what, _ in driver.events if what == "lost")


def names(manifest_of: Path) -> list[tuple[str, ...]]:
    manifest = newest(FileStore(manifest_of))
    if manifest is None:
        return []
    return [kept.chain for kept in manifest.records.values()]


def test_two_nodes_and_a_state_server_die_while_tasks_move(
    tmp_path: Path, launcher: SharedLauncher
) -> None:
    """1. rows flow, records build on each other  2. tasks move one by one, and two of three nodes and
    the state server are killed at once  3. the rest goes on; in the end every count is right."""
    stream = Stream(7)
    with Driver(
        WordCount(), tasks=12, nodes=3, checkpoints=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as driver:  # fmt: skip
        with driver.feeder("words", gather_rows=500) as feeder:
            for i, batch in enumerate(stream.batches(300)):
                feeder.feed(batch)
                time.sleep(0.002)
                if i == 50:
                    until(lambda: names(tmp_path))
                if i == 100:
                    until(lambda: any(len(chain) > 1 for chain in names(tmp_path)))
                    handle = driver.rescale(5, tasks_max=1)
                    kill(driver, "n1", "n2", "server@127.0.0.1")
            handle.wait(60.0)
        assert counted(driver) == stream.counts
        assert len(driver.nodes()) == 5
        told = driver.metrics()["checkpoint"]
        assert min(told["snapshots"], told["deltas"], told["bytes"], told["files"]) > 0
        assert told["pause"]["count"] <= told["snapshots"] + told["deltas"]
        assert told["durable"]["count"] > 0
        assert driver.lost_tasks == set()


def test_a_loop_is_exact_though_nodes_die(tmp_path: Path, launcher: SharedLauncher) -> None:
    """What a task had fed to others is sent again verbatim, and takes effect once."""
    with Driver(
        Countdown(), tasks=8, nodes=3, checkpoints=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as driver:  # fmt: skip
        with driver.feeder("numbers", gather_rows=1) as feeder:
            for i in range(60):
                feeder.feed(Countdown.batch([i % 9]))
                time.sleep(0.01)
                if i in (20, 40):
                    kill(driver, "n2")
        wanted = Counter({n: sum(1 for i in range(60) if i % 9 >= n) for n in range(9)})

        def seen() -> Counter[int]:
            state = driver.state()
            return Counter(dict(zip(*(state[c].to_pylist() for c in ("number", "seen")))))  # noqa: B905

        until(lambda: seen() == wanted, 30.0)
        assert driver.lost_tasks == set()


def test_a_micro_batch_is_durable_when_its_commit_returns(
    tmp_path: Path, launcher: SharedLauncher
) -> None:
    """1. the period is an hour: only commits write  2. a batch is committed  3. all nodes are killed
    4. the batch is there, and written again it counts once."""
    stream = Stream(6)
    with Driver(
        WordCount(), tasks=8, nodes=2, checkpoints=str(tmp_path), checkpoint_s=3600.0,
        launcher=launcher,
    ) as driver:  # fmt: skip
        about = DriverClient(driver.address, driver.issue("query")).about()
        with QueryClient(about, driver.address, driver.issue("query")) as client:
            for number in range(3):
                batches = list(stream.batches(4))
                client.commit("q", number, client.write("q", number, 0, new_attempt(), batches))
                kill(driver, "n1", "n2")
                until(lambda n=number: losses(driver) == 2 * n + 2, 120.0)  # type: ignore[misc]
                until(driver.serving, 120.0)
                assert counted(driver) == stream.counts
            client.commit("q", 2, client.write("q", 2, 1, new_attempt(), batches))
        assert counted(driver) == stream.counts


SCRIPT = """
import sys, time
sys.path.insert(0, {here!r})
from runtime_kit import Stream
from meander.operators import WordCount
from meander.runtime.driver.driver import Driver

stream = Stream(9)
with Driver(WordCount(), tasks=12, nodes=3, checkpoints={where!r}, checkpoint_s=0.1) as driver:
    feeder = driver.feeder("words", gather_rows=500)
    for offset in range(100_000):
        feeder.feed(stream.batch(), offset=offset)
        time.sleep(0.002)
        if offset == 200:
            print("flows", flush=True)
"""


def test_a_driver_that_was_killed_is_followed_by_one_with_another_number_of_nodes(
    tmp_path: Path, launcher: SharedLauncher
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
    with Driver(
        WordCount(), tasks=12, nodes=2, checkpoints=tmp_path.as_uri(), checkpoint_s=0.1,
        launcher=launcher,
    ) as driver:  # fmt: skip
        assert driver.generation == 2
        with driver.feeder("words") as feeder:
            durable = feeder.wait_ready()
            assert 0 < durable < total
            for offset in range(durable + 1, total):
                feeder.feed(batches[offset], offset=offset)
        assert counted(driver) == stream.counts


def test_of_two_drivers_on_one_checkpoint_the_older_is_fenced(
    tmp_path: Path, launcher: SharedLauncher
) -> None:
    stream = Stream(3)
    settings = {"tasks": 4, "nodes": 1, "checkpoints": str(tmp_path), "checkpoint_s": 0.1}
    old = Driver(WordCount(), **settings)  # type: ignore[arg-type]
    with old:
        feeder = old.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush(durable=True)
        with Driver(WordCount(), launcher=launcher, **settings) as new:  # type: ignore[arg-type]
            with suppress(DeployError):  # applied there, and never durable; or refused by now
                feeder.feed(Stream(4).batch())
            until(lambda: old.failure is not None)
            with pytest.raises(DeployError, match="a later driver has taken over"):
                old.check()
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
    tmp_path: Path, launcher: SharedLauncher
) -> None:
    """1. words are counted and the driver stops  2. what cannot go on is refused with what differs,
    before anything starts  3. other code with the same state goes on  4. a file is damaged: the
    deployment ends with an error that names the task and the file."""
    stream = Stream(5)
    settings = {"nodes": 2, "checkpoints": str(tmp_path), "checkpoint_s": 0.1}
    with (
        Driver(WordCount(), tasks=4, launcher=launcher, **settings) as driver,  # type: ignore[arg-type]
        driver.feeder("words") as feeder,
    ):
        feeder.feed(stream.batch())
    for operator, tasks, why in (
        (Renamed(), 4, "name WordCount in the checkpoint, Renamed here"),
        (Version2(), 4, "state_version 1 in the checkpoint, 2 here"),
        (Sums(), 4, r"state rows int64 in the checkpoint, nothing here; state sum\(size\)"),
        (WordCount(), 8, "4 tasks in the checkpoint, 8 here"),
    ):
        with pytest.raises(CheckpointError, match=why):
            Driver(operator, tasks=tasks, launcher=launcher, **settings)  # type: ignore[arg-type]
    with Driver(Faster(), tasks=4, launcher=launcher, **settings) as driver:  # type: ignore[arg-type]
        assert driver.generation == 2
        assert counted(driver) == stream.counts
    name = names(tmp_path)[2][0]
    ref, file = Ref.parse(name), tmp_path / file_of(name)
    data = bytearray(file.read_bytes())
    data[ref.offset + ref.length // 2] ^= 1
    file.write_bytes(data)
    with (
        pytest.raises(CheckpointError, match=f"task 2: wrong checksum in {ref.file}"),
        Driver(WordCount(), tasks=4, launcher=launcher, **settings) as broken,  # type: ignore[arg-type]
    ):
        until(broken.check)  # raises as soon as a node has read it


def test_a_store_that_takes_nothing_is_told_and_all_goes_on_when_it_does_again(
    tmp_path: Path,
    launcher: SharedLauncher,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. nodes cannot write their records any more  2. `status` says so and what to do, a feeder that
    waits says what for, now and then, and so does a commit  3. the store takes them again: everything
    is durable, and every count is right."""
    monkeypatch.setattr(reception, "PATIENCE_S", 0.5)
    stream = Stream(8)
    log, away = tmp_path / "log", tmp_path / "away"
    with Driver(
        WordCount(), tasks=4, nodes=2, checkpoints=str(tmp_path), checkpoint_s=0.1,
        launcher=launcher,
    ) as driver:  # fmt: skip
        feeder = driver.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush(durable=True)
        assert driver.status()["store"] is None
        log.rename(away)
        log.write_text("no folder: as good as a full disk")
        feeder.feed(stream.batch())
        until(lambda: driver.status()["store"])
        told = driver.status()["store"]
        assert "the durable store fails n" in told
        assert "make room" in told
        until(lambda: feeder.machine.trouble)
        with pytest.raises(FeederError, match="the durable store fails n"):
            feeder.flush(durable=True, timeout_s=1.0)
        about = DriverClient(driver.address, driver.issue("query")).about()
        with QueryClient(about, driver.address, driver.issue("query")) as client:
            parts = client.write("q", 0, 0, new_attempt(), [stream.batch()])
            order = {"query": "q", "batch": 0, "parts": pack(parts)}
            until(lambda: "store fails n" in client_asks(driver, order)["why"])
        said = [r.getMessage() for r in caplog.records if "words is held up" in r.getMessage()]
        assert 1 <= len(said) <= 3
        log.unlink()
        away.rename(log)
        feeder.feed(stream.batch())
        feeder.close()
        assert counted(driver) == stream.counts
        until(lambda: driver.status()["store"] is None)
    with Driver(
        WordCount(), tasks=4, nodes=1, checkpoints=str(tmp_path), launcher=launcher
    ) as again:
        assert counted(again) == stream.counts


def client_asks(driver: Driver, order: dict[str, Any]) -> dict[str, Any]:
    """Ask for a commit as Spark's sink does."""
    answer: dict[str, Any] = DriverClient(driver.address, driver.issue("query")).ask(
        "commit", order
    )
    assert not answer["done"]
    return answer


def test_a_start_that_the_store_fails_says_so(
    tmp_path: Path, launcher: SharedLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileStore, generation: int) -> bool:
        raise OSError("Input/output error")

    monkeypatch.setattr(FileStore, "_claim", refuse)
    with (
        pytest.raises(DeployError, match="the durable store fails master: Input/output error"),
        Driver(
            WordCount(), tasks=4, nodes=1, checkpoints=str(tmp_path), launcher=launcher,
            registration_s_max=1.0,
        ),
    ):  # fmt: skip
        pass
