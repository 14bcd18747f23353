"""Real processes on real sockets: words are counted exactly, whatever happens to the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from runtime_kit import (
    LOOPBACK,
    Stream,
    children,
    counted,
    doomed,
    listening,
    pid_of,
    until,
)
from runtime_operators import Countdown, Explodes

from meander.errors import (
    DeployError,
    FeederError,
    InputError,
    MigrationError,
    ModuleMissingError,
    OperatorError,
    OperatorFailedError,
)
from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher, WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import Reason, live_settings


def test_words_are_counted_exactly_while_nodes_come_and_go() -> None:
    stream = Stream()
    before = set(children(os.getpid()))
    with deploy_local(WordCount(), tasks=32, nodes=2) as op:
        assert op.driver.nodes().keys() == {"n1", "n2"}
        for pid in {os.getpid(), *children(os.getpid())} - before:
            assert listening(pid) <= LOOPBACK
        with op.feeder("words", gather_rows=2000, linger_ms=2) as feeder:
            for batch in stream.batches(100):
                feeder.feed(batch)
            feeder.flush()
            preview = op.plan(4, pause_ms=100)
            up = op.rescale(4, pause_ms=100)
            while not up.ended.is_set():
                feeder.feed(stream.batch())
            report = up.wait()
            assert report.nodes == len(op.driver.nodes()) == 4
            assert min(report.moved, len(preview.moves)) > 0  # by loads that may have changed since
            down = op.rescale(3, tasks_max=2)
            while not down.ended.is_set():
                feeder.feed(stream.batch())
            assert len(down.wait().rounds) > 0  # how many tasks move is a matter of their loads
            for batch in stream.batches(100):
                feeder.feed(batch)
        assert counted(op) == stream.counts
        metrics = op.metrics()
        assert sum(rows for rows, _, _ in metrics["tasks"].values()) <= sum(stream.counts.values())
        assert metrics["latency"]["count"] == metrics["rows"]
        assert metrics["refused"] == metrics["malformed"] == 0
        assert metrics["staged_rows"] == metrics["late_rows"] == 0
        assert len(op.driver.nodes()) == 3
        with pytest.raises(InputError):
            op.rescale(33)
    until(lambda: set(children(os.getpid(), deep=False)) <= before)
    assert {e.reason for e in op.driver.exits} <= {Reason.DRAINED, Reason.STOPPED}


def test_a_killed_node_is_restored_from_checkpoints_without_a_wrong_count(
    tmp_path: Path, launcher: WarmLauncher
) -> None:
    stream = Stream(2)
    with deploy_local(
        WordCount(),
        tasks=16,
        nodes=3,
        checkpoint=str(tmp_path),
        checkpoint_s=0.2,
        launcher=launcher,
    ) as op:
        with op.feeder("words", gather_rows=1000) as feeder:
            for i, batch in enumerate(stream.batches(300)):
                feeder.feed(batch)
                if i in (100, 200):
                    os.kill(pid_of(op, "n2"), signal.SIGKILL)
                time.sleep(0.002)
        assert counted(op) == stream.counts
        lost = [facts for _, what, facts in op.driver.events if what == "lost"]
        assert [(f["node"], f["tasks"] > 0) for f in lost] == [("n2", True)] * 2
        assert op.driver.lost_tasks == set()
    # The whole deployment comes again from its checkpoints, and the feeder goes on.
    with deploy_local(
        WordCount(),
        tasks=16,
        nodes=2,
        checkpoint=str(tmp_path),
        checkpoint_s=0.2,
        launcher=launcher,
    ) as op:
        assert op.driver.generation == 2
        assert counted(op) == stream.counts
        with op.feeder("words") as feeder:
            assert feeder.wait_ready() == 299
            feeder.feed(stream.batch(), offset=300)
        assert counted(op) == stream.counts


def test_without_checkpoints_a_killed_node_is_reported_and_its_tasks_wait(
    launcher: WarmLauncher,
) -> None:
    stream = Stream(3)
    with doomed(deploy_local(WordCount(), tasks=8, nodes=2, launcher=launcher)) as op:
        feeder = op.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush()
        os.kill(pid_of(op, "n1"), signal.SIGKILL)
        until(lambda: op.driver.lost_tasks)
        assert any(what == "lost" for _, what, _ in op.driver.events)
        assert op.driver.lost_tasks == {0, 1, 2, 3}
        assert op.status()["lost tasks"] == [0, 1, 2, 3]
        feeder.feed(stream.batch())
        with pytest.raises(FeederError, match="still on their way"):
            feeder.flush(timeout_s=1.0)
        feeder.abandon()
        assert "results are incomplete" in str(op.driver.lost())


def test_a_feeder_may_take_the_name_of_one_that_has_closed(launcher: WarmLauncher) -> None:
    stream = Stream(8)
    with deploy_local(WordCount(), tasks=8, nodes=1, launcher=launcher) as op:
        for _ in range(3):
            with op.feeder("words") as feeder:
                feeder.feed(stream.batch())
        assert counted(op) == stream.counts


def test_to_stop_does_not_wait_for_a_node_that_is_starting(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), tasks=8, nodes=1, launcher=launcher) as op:
        op.driver.staff._running.add(("n9", 1))  # launched, and never heard of
        began = time.monotonic()
        op.stop(drain_s_max=600.0)
        assert time.monotonic() - began < 300.0, "whoever was asked to stop has stopped"


def test_outputs_come_once_and_in_order_across_moves(launcher: WarmLauncher) -> None:
    stream = Stream(5, rows=200)
    with deploy_local(WordCount(emit_updates=True), tasks=8, nodes=2, launcher=launcher) as op:
        last: Counter[str] = Counter()

        def collect() -> None:
            for row in op.outputs().to_pylist():
                assert row["count"] > last[row["word"]]
                last[row["word"]] = row["count"]

        with op.feeder("words", gather_rows=200) as feeder:
            for i, batch in enumerate(stream.batches(60)):
                feeder.feed(batch)
                if i == 20:
                    handle = op.rescale(3)
                if i % 10 == 0:
                    collect()
            handle.wait(30)
        until(lambda: collect() or last == stream.counts)


def test_rows_that_an_operator_feeds_to_itself_arrive_exactly_once(
    launcher: WarmLauncher,
) -> None:
    with deploy_local(Countdown(), tasks=8, nodes=2, launcher=launcher) as op:
        with op.feeder("numbers") as feeder:
            for _ in range(5):
                feeder.feed(Countdown.batch([6, 3]))
            op.rescale(3).wait(30)
            feeder.feed(Countdown.batch([6]))
        wanted = {0: 11, 1: 11, 2: 11, 3: 11, 4: 6, 5: 6, 6: 6}
        until(lambda: _numbers(op) == wanted)


def _numbers(op: ElasticOperator) -> dict[int, int]:
    state = op.state()
    return dict(zip(state["number"].to_pylist(), state["seen"].to_pylist(), strict=True))


def test_a_feeder_that_is_replaced_replays_and_nothing_counts_twice(
    launcher: WarmLauncher,
) -> None:
    stream = Stream(8, rows=300)
    batches = list(stream.batches(120))
    with deploy_local(WordCount(), tasks=16, nodes=2, launcher=launcher) as op:
        for end, gather in ((40, 500), (80, 3000), (120, 1000)):  # each cuts chunks its own way
            feeder = op.feeder("words", gather_rows=gather)
            known = feeder.wait_ready()
            assert known < end
            for offset in range(known + 1, end):
                feeder.feed(batches[offset], offset=offset)
            if end < 120:
                time.sleep(0.02)
                feeder.abandon()
            else:
                feeder.close()
        assert counted(op) == stream.counts


def test_a_migration_can_be_aborted_resumed_and_rolled_back(launcher: WarmLauncher) -> None:
    stream = Stream(6)
    with deploy_local(WordCount(), tasks=16, nodes=2, launcher=launcher) as op:
        with op.feeder("words") as feeder:
            feeder.feed(stream.batch())
            handle = op.rescale(4, tasks_max=1)
            handle.abort()
            assert handle.progress()["stage"] == "aborted"
            feeder.feed(stream.batch())
            handle.resume()
            handle.wait(30)
            assert len(op.driver.nodes()) == 4
            other = op.rescale(2, tasks_max=1)
            other.roll_back()
            with pytest.raises(MigrationError, match="rolled back"):
                other.wait(30)
            assert len(op.driver.nodes()) == 4
            feeder.feed(stream.batch())
        assert counted(op) == stream.counts


def test_an_operator_that_raises_is_reported_with_task_and_row_and_ends_the_deployment(
    launcher: WarmLauncher,
) -> None:
    with doomed(deploy_local(Explodes(), tasks=4, nodes=2, launcher=launcher)) as op:
        feeder = op.feeder("words")
        feeder.feed(Stream(7, rows=20).batch())
        with pytest.raises(
            OperatorError, match=r"task \d+, rows \d+ to \d+: ValueError: boom .*words"
        ) as error:
            until(lambda: feeder.flush() or op.driver.check(), 30)
        assert op.status()["failure"]
        assert isinstance(error.value, OperatorFailedError)
        assert "boom" in error.value.trace
        until(lambda: any("boom" in e.trace for e in op.driver.exits))


class Garbler(LocalLauncher):
    """Sends what no other process can import."""

    def pickle(self, value: object, what: str) -> bytes:
        return b"cno_such_module\nThing\n."


def test_an_operator_that_cannot_be_sent_or_made_is_a_clear_error() -> None:
    class Held(WordCount):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(
        InputError, match=r"the operator Held cannot be sent to nodes: TypeError.*lock"
    ):
        deploy_local(Held())
    with pytest.raises(ModuleMissingError, match="no_such_module"):
        deploy_local(WordCount(), nodes=1, launcher=Garbler())


class Nowhere(LocalLauncher):
    """Has no free slot."""

    def launch(self, spec: object) -> None:
        pass


def test_a_node_that_never_registers_is_explained() -> None:
    with pytest.raises(DeployError, match=r"n1 never registered.*free slots"):
        deploy_local(WordCount(), nodes=1, launcher=Nowhere(), registration_s_max=0.5)


def test_a_superseded_migration_says_so_and_the_next_one_holds(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), tasks=16, nodes=2, launcher=launcher) as op:
        first, second = op.rescale(4, tasks_max=1), op.rescale(3)
        with pytest.raises(MigrationError, match="superseded"):
            first.wait(30)
        assert second.wait(30).nodes == 3


SCRIPT = """
import sys, time
from meander.operators import WordCount
from meander.runtime.driver.local import deploy_local
op = deploy_local(WordCount(), tasks=4, nodes=2)
print("up", flush=True)
time.sleep(60)
"""


def test_no_process_outlives_a_driver_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"up\n"
        processes = children(driver.pid)
        assert len(processes) == 4  # the nursery, two nodes, a state server
        driver.kill()
        driver.wait()
        until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in processes), 10)


def test_settings_leave_room_per_task() -> None:
    assert live_settings(64).retained_chunks_max == 256 * 64
    assert threading.active_count() < 100
