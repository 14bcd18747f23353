"""Long-lived functions in Spark tasks: how they start, end, die, and what is said of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents import Board, agent, alive, failing, sleeper, until
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander.spark.cluster import session_check as ground
from meander.spark.deploy.jobs import JobEnd, JobOutcome, SparkJobs, cancelled, pickled


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.close()


@pytest.fixture
def jobs(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkJobs]:
    with SparkJobs(spark.sparkContext, request.node.name) as made:
        yield made


def test_functions_live_side_by_side_and_tell_what_they_return(
    jobs: SparkJobs, board: Board
) -> None:
    told: list[JobEnd] = []
    for name in ("a", "b", "c"):
        jobs.start(name, pickled(agent, board.port, name), told.append)
    board.hear(3)
    assert jobs.running() == ("a", "b", "c")
    assert len(set(board.pids.values())) == 3
    board.lines["b"].sendall(b"stop")
    assert jobs.wait("b", 20)
    assert told == [JobEnd("b", JobOutcome.RETURNED, "b heard stop")]
    for name in ("a", "c"):
        board.lines[name].close()
    assert jobs.close(grace_s=20) == ()
    assert sorted(ending.value for ending in told) == [
        "a heard nothing", "b heard stop", "c heard nothing",
    ]  # fmt: skip
    assert until(lambda: not any(map(alive, board.pids.values()))), "a process outlived its task"


def test_what_has_ended_keeps_nothing_and_after_the_end_nothing_starts(
    spark: SparkSession,
) -> None:
    told: list[JobEnd] = []
    with SparkJobs(spark.sparkContext, "closed") as jobs:
        jobs.start("a", pickled(len, "four"), told.append)
        assert jobs.wait("a", 60)
        assert jobs._jobs["a"].payload == b""
    jobs.start("b", pickled(len, "four"), told.append)
    assert told == [JobEnd("a", JobOutcome.RETURNED, 4), cancelled("b")]
    assert jobs.running() == ()


def test_a_free_slot_is_theirs_before_it_is_an_older_jobs(
    spark: SparkSession, jobs: SparkJobs
) -> None:
    def slowly(row: int) -> int:
        time.sleep(1.5)
        return row

    def rows() -> int:
        return spark.sparkContext.parallelize(range(18), 18).map(slowly).count()  # six at a time

    told: list[JobEnd] = []
    with ThreadPoolExecutor(1) as pool:
        older = pool.submit(rows)
        assert until(lambda: ground.in_use(spark.sparkContext) == (6, 6), 30)
        jobs.start("a", pickled(len, "four"), told.append)
        assert jobs.wait("a", 60)
        assert not older.done(), "it had to wait until nothing of the older one waited"
        assert older.result() == 18
    assert told == [JobEnd("a", JobOutcome.RETURNED, 4)]


def test_a_killed_process_is_noticed_by_its_socket_and_not_started_again(
    jobs: SparkJobs, board: Board
) -> None:
    told: list[JobEnd] = []
    jobs.start("a", pickled(agent, board.port, "a"), told.append)
    board.hear(1)
    board.lines["a"].settimeout(20.0)
    os.kill(board.pids["a"], signal.SIGKILL)
    assert board.lines["a"].recv(1) == b"", "the connection must end with the process"
    assert jobs.wait("a", 20)
    assert "second attempt has left" in told[0].trouble


def test_cancelling_kills_the_process_and_waits_for_its_death(
    jobs: SparkJobs, board: Board
) -> None:
    told: list[JobEnd] = []
    jobs.start("a", pickled(agent, board.port, "a"), told.append)
    board.hear(1)
    jobs.cancel("a")
    assert jobs.wait("a", 20)
    assert told == [cancelled("a")]
    assert until(lambda: not alive(board.pids["a"]), 2.0)


def test_a_cancel_before_the_job_is_submitted_is_not_lost(jobs: SparkJobs) -> None:
    told: list[JobEnd] = []
    for i in range(10):
        jobs.start(f"a{i}", pickled(sleeper), told.append)
        jobs.cancel(f"a{i}")
    assert jobs.close() == ()
    assert {ending.trouble for ending in told} == {"cancelled"}


def test_they_outlive_the_daemon_of_others(
    spark: SparkSession, jobs: SparkJobs, board: Board
) -> None:
    """Spark ends it when a task of a query is interrupted while its worker is made."""
    told: list[JobEnd] = []
    jobs.start("a", pickled(agent, board.port, "a"), told.append)
    board.hear(1)
    parent = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid())
    os.kill(parent.first(), signal.SIGKILL)
    assert parent.first(), "Spark starts the next"
    board.lines["a"].sendall(b"stop")
    assert jobs.wait("a", 20)
    assert told == [JobEnd("a", JobOutcome.RETURNED, "a heard stop")]


def test_an_exception_comes_back_with_its_traceback(jobs: SparkJobs) -> None:
    told: list[JobEnd] = []
    jobs.start("a", pickled(failing, 7), told.append)
    assert jobs.wait("a", 20)
    assert told[0].value is None
    assert "in failing" in told[0].trouble
    assert told[0].trouble.endswith("ValueError: task 7 is bad\n")


def test_a_name_is_used_once(jobs: SparkJobs) -> None:
    jobs.start("a", pickled(failing, 7), lambda _: None)
    with pytest.raises(InputError, match="started before"):
        jobs.start("a", pickled(failing, 7), lambda _: None)


def test_without_a_free_slot_it_is_said_why(jobs: SparkJobs, board: Board) -> None:
    names = [f"n{i}" for i in range(6)]
    for name in names:
        jobs.start(name, pickled(agent, board.port, name), lambda _: None)
    board.hear(6)
    jobs.start("n6", pickled(agent, board.port, "n6"), lambda _: None)
    assert ground.in_use(jobs.context) == (6, 6)
    told = ground.waiting(jobs.context, "n6", 30)
    assert told.startswith("node n6 has waited 30 s for a free slot: 6 of 6 are in use")


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(InputError, match=r"the operator Bad cannot be sent .*_thread\.lock"):
        pickled(print, threading.Lock(), what="the operator Bad")


def test_a_module_that_executors_lack_is_named(jobs: SparkJobs) -> None:
    module = types.ModuleType("only_on_the_driver")
    exec("def f(): pass", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        payload = pickled(module.f)
    finally:
        del sys.modules[module.__name__]
    told: list[JobEnd] = []
    jobs.start("a", payload, told.append)
    assert jobs.wait("a", 20)
    assert "addPyFile('only_on_the_driver.py')" in told[0].trouble


def test_workers_come_from_a_daemon_that_has_imported_everything(jobs: SparkJobs) -> None:
    def look() -> tuple[bool, int]:
        import sys

        return "numba" in sys.modules, len(os.listdir("/proc/self/task"))

    told: list[JobEnd] = []
    jobs.start("a", cloudpickle.dumps((look, ())), told.append)
    assert jobs.wait("a", 20)
    assert told[0].value == (True, 1), "imported, and no thread came with the fork"
