"""An operator deployed on Spark: counts stay exact, and everything that goes wrong says so."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from agents import alive, sleeper, until
from processes import LOOPBACK, descendants, listening, pid_of
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

import meander
from meander.errors import DeployError, FeederError, InputError, OperatorError
from meander.operators import Context, Operator, WordCount
from meander.runtime.process.source import SourceBatch
from meander.spark.cluster import session_check as ground
from meander.spark.deploy import watch
from meander.spark.deploy.jobs import SparkJobs, pickled

# Executors cannot import tests: operators and sources defined here are sent whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TASKS = 32
BATCHES, ROWS = 60, 2000


def some_words(batch: int) -> Any:
    """Words of one source batch, the same whenever they are asked for."""
    chosen = random.Random(batch)
    return pa.record_batch(
        {"word": [f"w{int(chosen.paretovariate(0.6)) % 3000}" for _ in range(ROWS)]}
    )


def generated(after: int) -> Iterator[SourceBatch]:
    for number in range(after + 1, BATCHES):
        yield SourceBatch(number, some_words(number))


def batch_count(spark: SparkSession) -> dict[str, int]:
    """Spark's own count of all generated words."""
    table = pa.Table.from_batches([some_words(i) for i in range(BATCHES)])
    rows = spark.createDataFrame(table).groupBy("word").count().collect()
    return {row["word"]: row["count"] for row in rows}


def counted(state: DataFrame) -> dict[str, int]:
    found = [(row["word"], row["count"]) for row in state.select("word", "count").collect()]
    assert len(found) == len(dict(found)), "a word was counted in two places"
    return dict(found)


@pytest.fixture(autouse=True)
def nothing_stays(spark: SparkSession) -> Iterator[None]:
    """Whatever a test does: its processes are gone, and its jobs too."""
    before = descendants()
    yield
    tracker = spark.sparkContext.statusTracker()
    assert until(lambda: not tracker.getActiveJobsIds())
    # Idle workers of Spark's own jobs stay for a minute, also those that have read a state; what
    # serves with gRPC must be gone.
    assert until(lambda: not _serving(descendants() - before))


def _serving(pids: set[int]) -> list[int]:
    """List the processes that listen with gRPC, as nodes and state servers do."""
    return [pid for pid in pids & {pid for pid, _, _ in listening()} if _uses_grpc(pid)]


def _uses_grpc(pid: int) -> bool:
    try:
        names = [(entry / "comm").read_text() for entry in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any("grpc" in name or "event_engine" in name for name in names)


def test_word_count_that_is_rescaled_twice_equals_sparks_own(spark: SparkSession) -> None:
    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
        with operator.feeder("words") as feeder:
            for number in range(BATCHES):
                feeder.feed(some_words(number))
                if number == BATCHES // 4:
                    growing = operator.rescale(4, pause_ms=100)
                if number == BATCHES // 2:
                    assert growing.wait(60).nodes == 4
                    shrinking = operator.rescale(3, policy="ssm")
            assert shrinking.wait(60).stage == "completed"
            assert shrinking.progress()["stage"] == "completed"
        nodes = [n for n, state in operator.status()["nodes"].items() if state == "up"]
        assert len([n for n in nodes if not n.startswith("server@")]) == 3
        assert counted(operator.state()) == batch_count(spark)
        assert operator.metrics()["rows"] >= 0
        assert operator.plan(2, pause_ms=50).bytes_moved > 0


def test_nothing_listens_beyond_loopback_and_all_processes_end(spark: SparkSession) -> None:
    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
        pids = [pid_of(address) for address in operator.driver.nodes().values()]
        assert len(set(pids)) == 2
        heard = {(pid, address, port) for pid, address, port in listening()}
        assert {pid for pid, _, _ in heard} >= {os.getpid(), *pids}
        assert {address for _, address, _ in heard} <= LOOPBACK
    assert until(lambda: not any(map(alive, pids)), 30)


def test_a_killed_node_is_noticed_and_restored_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        meander.deploy(
            spark, WordCount(), tasks=TASKS, nodes=2, checkpoint=str(tmp_path), checkpoint_s=0.2
        ) as operator,
        operator.feeder("words") as feeder,
    ):
        for number in range(BATCHES):
            feeder.feed(some_words(number))
            if number == BATCHES // 2:
                name, address = next(iter(operator.driver.nodes().items()))
                os.kill(pid_of(address), signal.SIGKILL)
        feeder.flush(durable=True)
        assert operator.status()["lost tasks"] == []
        assert any(ended.name == name for ended in operator.driver.exits)
        assert counted(operator.state()) == batch_count(spark)


def test_without_checkpoints_a_killed_node_is_reported_and_its_tasks_stay_blocked(
    spark: SparkSession,
) -> None:
    def lose_one() -> None:
        with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
            feeder = operator.feeder("words")
            feeder.feed(some_words(0))
            feeder.flush()
            os.kill(pid_of(next(iter(operator.driver.nodes().values()))), signal.SIGKILL)
            assert until(lambda: bool(operator.status()["lost tasks"]), 30)
            assert len(operator.status()["lost tasks"]) < TASKS
            feeder.feed(some_words(1))
            with pytest.raises(FeederError, match="still on their way"):
                feeder.flush(timeout_s=3)
            with pytest.raises(PythonException, match="cannot be read"):
                operator.state(timeout_s=1).count()

    with pytest.raises(DeployError, match="results are incomplete"):
        lose_one()


def test_a_source_that_is_killed_and_started_again_goes_on_where_it_was(
    spark: SparkSession,
) -> None:
    def slowly(after: int) -> Iterator[SourceBatch]:
        for batch in generated(after):
            time.sleep(0.05)
            yield batch

    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
        first = operator.source("words", slowly)
        assert until(lambda: operator.metrics()["rows"] > 5 * ROWS)
        first.cancel()
        with pytest.raises(DeployError, match="the source words ended: cancelled"):
            first.wait(20)
        ended = operator.source("words", generated).wait(60)
        assert 0 < int(ended.detail.split()[1]) < BATCHES * ROWS, "not all was fed again"
        assert counted(operator.state()) == batch_count(spark)


class Echo(Operator[list[int]]):
    """Emits what comes in, and fails on a row that says so."""

    schema = pa.schema({"word": pa.string()})
    keys = ("word",)

    def __init__(self, scratch: object = None) -> None:
        self.scratch = scratch

    def create(self, context: Context) -> list[int]:
        return [0]

    def process(self, state: list[int], batch: Any, context: Context) -> None:
        if "bad" in batch["word"].to_pylist():
            raise ValueError("I do not like that word")
        state[0] += batch.num_rows
        context.emit(batch)

    def dump(self, state: list[int]) -> list[Any]:
        return [pa.record_batch({"rows": state})]

    def load(self, batches: Any, context: Context) -> list[int]:
        return [int(batches[0]["rows"][0].as_py())]

    def size(self, state: list[int]) -> int:
        return 8


def test_outputs_come_once_across_a_rescale(spark: SparkSession) -> None:
    with meander.deploy(spark, Echo(), tasks=8, nodes=1) as operator:
        with operator.feeder() as feeder:
            feeder.feed(some_words(0))
            feeder.flush()
            seen = operator.outputs()["word"].to_pylist()
            operator.rescale(2).wait(60)
            feeder.feed(some_words(1))
        seen += operator.outputs()["word"].to_pylist()
        none = operator.outputs()
        assert (none.num_rows, none.schema.names) == (0, ["word", "task", "number"])
    fed = [word for i in (0, 1) for word in some_words(i)["word"].to_pylist()]
    assert sorted(seen) == sorted(fed)


def test_an_exception_in_the_operator_names_task_and_rows(spark: SparkSession) -> None:
    wanted = r"Echo failed in task \d+, rows .*ValueError: I do not like that word"
    with (
        pytest.raises(OperatorError, match=wanted),
        meander.deploy(spark, Echo(), tasks=8, nodes=2) as operator,
        operator.feeder() as feeder,
    ):
        feeder.feed(pa.record_batch({"word": ["good", "bad"]}))


def test_an_operator_that_cannot_be_pickled_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(InputError, match=r"operator Echo cannot be sent .*_thread\.lock"):
        meander.deploy(spark, Echo(threading.Lock()))


def test_an_operator_whose_module_executors_lack_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "driver_only.py").write_text(
        "from meander.operators import WordCount\nclass Mine(WordCount): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import driver_only  # type: ignore[import-not-found]

    with pytest.raises(InputError, match=r"No module named 'driver_only'.*addPyFile"):
        meander.deploy(spark, driver_only.Mine(), tasks=8, nodes=1)


def test_without_a_free_slot_the_time_out_explains_itself(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SLOT_S_MAX", 1.0)
    with SparkJobs(spark.sparkContext, "greedy") as jobs:
        for i in range(6):
            jobs.start(f"g{i}", pickled(sleeper), lambda _: None)
        assert until(lambda: ground.in_use(spark.sparkContext) == (6, 6))
        # The probe for the package would wait for a slot as well.
        monkeypatch.setattr("meander.spark.cluster.ship.equip", lambda _: False)
        with pytest.raises(DeployError, match=r"n1 has waited \d+ s for a free slot: 6 of 6"):
            meander.deploy(spark, WordCount(), nodes=2, registration_s_max=4)


def test_deploy_says_that_it_waits_for_a_slot(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1. other jobs hold all slots  2. deploy speaks of it  3. they end, and it goes on."""
    monkeypatch.setattr(watch, "SLOT_S_MAX", 0.5)
    deployed: list[Any] = []
    with SparkJobs(spark.sparkContext, "greedy") as jobs:
        for i in range(6):
            jobs.start(f"s{i}", pickled(sleeper), lambda _: None)
        assert until(lambda: ground.in_use(spark.sparkContext) == (6, 6))
        thread = threading.Thread(
            target=lambda: deployed.append(meander.deploy(spark, WordCount(), tasks=8, nodes=1))
        )
        thread.start()
        assert until(lambda: "deploy waits for a free slot: 6 of 6 are in use" in caplog.text)
    thread.join(120)
    deployed[0].stop()


def endless(_: int) -> Iterator[SourceBatch]:
    time.sleep(600)
    yield SourceBatch(0, some_words(0))


def test_calls_that_cannot_be_are_refused_at_once(spark: SparkSession) -> None:
    with meander.deploy(spark, WordCount(), tasks=8, nodes=1) as operator:
        wrong: list[tuple[Any, Any]] = [("3", None), (2.5, None), (0, None), (2, -5), (True, None)]
        for nodes, pause_ms in wrong:
            with pytest.raises(InputError, match=r"^(nodes|pause_ms) is a .*number.*, not .*$"):
                operator.rescale(nodes, pause_ms=pause_ms)
        source = operator.source("words", endless)
        for call in (operator.feeder, lambda name: operator.source(name, endless)):
            with pytest.raises(InputError, match="there is a source 'words' at work: cancel it"):
                call("words")
        source.cancel()
        with pytest.raises(
            InputError, match="options gather_rows, linger_ms, null_keys, to, not 'nul"
        ):
            operator.source("words", endless, nulKeys="drop")
        with (
            operator.feeder("more"),
            pytest.raises(InputError, match="there is an open feeder 'more': close it"),
        ):
            operator.source("more", endless)
    for call in (operator.feeder, lambda name: operator.source(name, endless)):
        with pytest.raises(DeployError, match="was stopped: deploy it again"):
            call("late")
    with pytest.raises(InputError, match="not the class WordCount"):
        meander.deploy(spark, WordCount)  # type: ignore[arg-type]


def test_too_few_slots_and_spark_connect_are_refused_at_once(spark: SparkSession) -> None:
    class Connected:
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(InputError, match="6 slots and 66 are needed"):
        meander.deploy(spark, WordCount(), nodes=2, nodes_max=64)
    with pytest.raises(InputError, match="Spark Connect"):
        meander.deploy(Connected(), WordCount())  # type: ignore[arg-type]
    few = pytest.raises(InputError, match="6 slots and 10 are needed")
    with meander.deploy(spark, WordCount(), nodes=1) as operator, few:
        operator.rescale(8)
