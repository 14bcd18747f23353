"""Tasks of a query hold all slots: a node that is lost is soon back, a new one harms nobody."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agents import alive, until
from processes import pid_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from word_counts import counted

import meander
from meander.operators import WordCount
from meander.runtime.process.spec import Reason, live_settings
from meander.spark.cluster import session_check as ground
from meander.spark.datasource.sink import ROOM
from meander.spark.deploy.deploy import SparkOperator, answers_of

PARTITIONS = 16
"""Of a micro-batch: more than there are slots."""
BACK_S_MAX = 30.0
ASKED = 30
"""So often tasks ask whether to make room: four of them, each once a second."""
WORDS = [f"w{i % 700}" for i in range(20_000)]


def start(spark: SparkSession, operator: SparkOperator, folder: Path) -> Any:
    rows = spark.readStream.schema("word string").parquet(str(folder / "rows"))
    writer = rows.repartition(PARTITIONS).writeStream.format("meander")
    writer = writer.option("operator", operator.address).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "query")).start()


def room_asked_for(operator: SparkOperator) -> list[str | None]:
    """Write down what tasks are told that ask whether to make room."""
    actions, told = answers_of(operator.driver), list[str | None]()
    room = actions[ROOM]

    def listen(fields: Mapping[str, Any]) -> str | None:
        told.append(room(fields))
        return told[-1]

    actions[ROOM] = listen
    return told


def finish(spark: SparkSession, operator: SparkOperator, folder: Path, query: Any) -> None:
    """Wait for the query; it may have lost rows with the node, and is then started again."""
    for _ in range(3):
        try:
            assert query.awaitTermination(120)
            return
        except StreamingQueryException:
            query = start(spark, operator, folder)
    raise AssertionError("the query failed again and again")


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["node", "seat", "job"])
def test_a_node_that_is_killed_while_a_query_holds_all_slots_is_soon_back(
    spark: SparkSession, tmp_path: Path, whom: str
) -> None:
    """1. a node stands still, so that the tasks of a wide micro-batch wait for it and hold every slot
    2. it is killed, or the worker that holds its slot, for the first time or once too often, so that
    Spark gives its job up  3. it is back  4. the counts are right."""
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"word": WORDS}), tmp_path / "rows" / "0.parquet")
    settings = live_settings(16, lease_s=120.0, checkpoint_s=0.5)  # it stands still for a while
    with meander.deploy(
        spark, WordCount(), tasks=16, nodes=2, checkpoint=str(tmp_path / "store"), settings=settings
    ) as operator:

        def back(lives: int) -> bool:
            there = operator.driver.nodes().get("n1") is not None and operator.driver.serving()
            return there and [e.name for e in operator.driver.exits] == ["n1"] * lives

        if whom == "job":  # it has a second try only
            os.kill(operator.seats()["n1"], signal.SIGKILL)
            assert until(lambda: back(1), BACK_S_MAX)
        before = len(operator.driver.exits)
        pid, seat = pid_of(operator.driver.nodes()["n1"]), operator.seats()["n1"]
        os.kill(pid, signal.SIGSTOP)
        query = start(spark, operator, tmp_path)
        assert until(lambda: ground.in_use(spark.sparkContext) == (6, 6), 30)
        began = time.monotonic()
        os.kill(pid if whom == "node" else seat, signal.SIGKILL)
        assert until(lambda: not alive(pid), 5), "a node outlived its seat"
        assert until(lambda: back(before + 1), BACK_S_MAX)
        assert time.monotonic() - began < BACK_S_MAX
        if whom == "node":
            assert operator.seats()["n1"] == seat, "it kept its slot"
        finish(spark, operator, tmp_path, query)
        assert counted(operator) == Counter(WORDS)
        assert {ended.reason for ended in operator.driver.exits} == {Reason.KILLED}
    assert until(lambda: not any(map(alive, operator.seats().values())), 10)


@pytest.mark.slow
def test_a_rescale_while_a_query_holds_all_slots_does_not_harm_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """1. a node stands still, and a wide micro-batch waits for it with every slot  2. a second node is
    wanted: its job is the youngest  3. no task fails for it  4. it comes when the batch is done."""
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"word": WORDS}), tmp_path / "rows" / "0.parquet")
    settings = live_settings(16, lease_s=120.0)
    with meander.deploy(
        spark, WordCount(), tasks=16, nodes=1, nodes_max=2, settings=settings
    ) as operator:
        pid = pid_of(operator.driver.nodes()["n1"])
        os.kill(pid, signal.SIGSTOP)
        query = start(spark, operator, tmp_path)
        assert until(lambda: ground.in_use(spark.sparkContext) == (6, 6), 30)
        asked = room_asked_for(operator)
        rescaling = operator.rescale(2)
        assert until(lambda: len(asked) >= ASKED, 60), "no task waits for the node"
        os.kill(pid, signal.SIGCONT)
        assert set(asked) == {None}
        assert query.awaitTermination(120), "and without an error"
        rescaling.wait(60)
        assert len(operator.driver.nodes()) == 2
        assert counted(operator) == Counter(WORDS)


def test_nodes_that_leave_give_their_slots_back(spark: SparkSession) -> None:
    with meander.deploy(spark, WordCount(), tasks=16, nodes=3) as operator:
        before, _ = ground.in_use(spark.sparkContext)
        operator.rescale(1).wait(60)
        assert until(lambda: ground.in_use(spark.sparkContext)[0] == before - 2, 20)
    assert until(lambda: ground.in_use(spark.sparkContext)[0] == 0, 20)
