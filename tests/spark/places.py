"""A program that puts agents into a session of its own, and says what it saw as one line of JSON.

`python places.py standalone|local-cluster|dynamic|abandon`; each test runs it in a process of its
own, since a process has one Spark context at a time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from typing import Any

from agents import Board, agent, alive, until
from pyspark.sql import SparkSession

from meander.spark import ground, ship
from meander.spark.jobs import Ending, SparkJobs, pickled
from meander.spark.session import local
from meander.spark.standalone import cluster

SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.executor.cores": "2",
}


def executors(spark: SparkSession) -> int:
    """Count executors, without the driver."""
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return len(infos) - 1


def four_agents(spark: SparkSession) -> dict[str, Any]:
    """Four agents on two executors; one is killed, one executor is killed, the others stop."""
    context, told, board = spark.sparkContext, list[Ending](), Board()
    checked = ground.check(spark, 4, others=0)
    sent = ship.equip(context)
    began = time.monotonic()
    with SparkJobs(context, "places") as jobs:
        for i in range(4):
            jobs.start(f"n{i}", pickled(agent, board.port, f"n{i}"), told.append)
        board.hear(4)
        up_s = time.monotonic() - began
        os.kill(board.pids["n0"], signal.SIGKILL)
        noticed = board.lines["n0"].recv(1) == b""
        jobs.wait("n0", 30)
        executor = parent(parent(board.pids["n1"]))
        os.kill(executor, signal.SIGKILL)
        on_it = [n for n in ("n1", "n2", "n3") if parent(parent(board.pids[n])) == 0]
        lost = [name for name in ("n1", "n2", "n3") if ended(board, name)]
        for name in lost:
            jobs.wait(name, 30)
        for name in {"n1", "n2", "n3"} - set(lost):
            board.lines[name].sendall(b"stop")
            jobs.wait(name, 30)
        still = jobs.running()
    gone = until(lambda: not any(map(alive, board.pids.values())))
    return {
        "slots": checked.slots, "sent": sent, "up_s": up_s, "noticed": noticed, "lost": lost,
        "on_it": on_it, "still": still, "gone": gone, "told": {e.name: e[1:] for e in told},
    }  # fmt: skip


def grow_and_shrink(spark: SparkSession) -> dict[str, Any]:
    """Executors come for agents and leave after them."""
    board, told, counts = Board(), list[Ending](), [executors(spark)]
    with SparkJobs(spark.sparkContext, "places") as jobs:
        for i in range(5):
            began = time.monotonic()
            jobs.start(f"n{i}", pickled(agent, board.port, f"n{i}"), told.append)
            board.hear(1)
            last_s = time.monotonic() - began
        counts.append(executors(spark))
        for i in range(1, 5):
            board.lines[f"n{i}"].sendall(b"stop")
        until(lambda: executors(spark) == 1, 60)
        counts.append(executors(spark))
        board.lines["n0"].sendall(b"stop")
        jobs.close(20)
    until(lambda: executors(spark) == 0, 60)
    counts.append(executors(spark))
    return {"executors": counts, "told": sorted(e.value for e in told), "fifth_s": last_s}


def abandon(spark: SparkSession) -> dict[str, Any]:
    """Leave the interpreter with agents running: its end must end them."""
    board = Board()
    jobs = SparkJobs(spark.sparkContext, "places")
    for i in range(2):
        jobs.start(f"n{i}", pickled(agent, board.port, f"n{i}"), lambda _: None)
    board.hear(2)
    globals()["kept"] = board, jobs
    return {"pids": list(board.pids.values()), "driver": os.getpid()}


def parent(pid: int) -> int:
    """Give the parent of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def ended(board: Board, name: str) -> bool:
    """Tell whether an agent's connection has ended, or ends within two seconds."""
    board.lines[name].settimeout(2.0)
    try:
        return board.lines[name].recv(1) == b""
    except TimeoutError:
        return False


def main(place: str) -> None:
    with ExitStack() as stack:
        if place == "local-cluster":
            spark = local("local-cluster[2,3,1024]", extra=SMALL)
        elif place in {"standalone", "dynamic"}:
            where = stack.enter_context(cluster(workers=2, cores=4, memory="1g"))
            more = DYNAMIC if place == "dynamic" else {"spark.cores.max": "6"}
            spark = local(where.master, extra={**SMALL, **more})
        else:
            spark = local("local[4,2]", extra=SMALL)
        what = {"dynamic": grow_and_shrink, "abandon": abandon, "hang": abandon}
        said = what.get(place, four_agents)(spark)
        print(json.dumps(said), flush=True)  # noqa: T201 - it is how the test hears
        if place == "hang":
            time.sleep(600)
        if place != "abandon":
            spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
