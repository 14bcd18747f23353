"""A program that puts something into a session of its own, and says what it saw as a line of JSON.

`python places.py PLACE WHAT`; each test runs it in a process of its own, since a process has one
Spark context at a time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from agents import Board, agent, alive, until
from processes import descendants, pid_of
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import meander
from meander import processor
from meander.operators import WordCount
from meander.runtime.process.source import SourceBatch
from meander.spark.cluster import session_check as ground
from meander.spark.cluster import ship
from meander.spark.cluster.session import DAEMON, local
from meander.spark.deploy.jobs import JobEnd, SparkJobs, pickled
from meander_lab.servers.standalone import cluster

SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
BATCHES = 100
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
    context, told, board = spark.sparkContext, list[JobEnd](), Board()
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
        "still": still, "gone": gone, "told": {e.name: (e.value, e.trouble) for e in told},
    }  # fmt: skip


def grow_and_shrink(spark: SparkSession) -> dict[str, Any]:
    """Executors come for agents and leave after them."""
    board, told, counts = Board(), list[JobEnd](), [executors(spark)]
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


def stopped(spark: SparkSession) -> dict[str, Any]:
    """Stop the context under an operator, then the operator."""
    operator = meander.deploy(spark, WordCount(), tasks=8, nodes=2)
    pids = [pid_of(address) for address in operator.driver.nodes().values()]
    spark.stop()
    gone = until(lambda: not any(map(alive, pids)))
    operator.stop()
    return {"gone": gone, "why": sorted({ended.detail for ended in operator.driver.exits})}


def warmed(spark: SparkSession) -> dict[str, Any]:
    """One node on one of two executors. The other is killed; when the next has come, the node's."""

    def daemons() -> dict[int, int]:
        """Find the Python daemons that have begun to fork, each under its executor."""
        found = (pid for pid in descendants() if DAEMON in command(pid) and descendants(pid))
        return {parent(pid): pid for pid in found if "java" in command(parent(pid))}

    def ready(*without: int) -> bool:
        return len(set(daemons()) - set(without)) == 2

    with (
        TemporaryDirectory() as folder,
        meander.deploy(spark, WordCount(), tasks=8, nodes=1, checkpoint=folder) as operator,
    ):
        first = until(ready, 60)
        (node,) = operator.driver.nodes().values()
        mine = {pid for pid in daemons() if pid_of(node) in descendants(pid)}
        (other,) = set(daemons()) - mine
        os.kill(other, signal.SIGKILL)
        began = time.monotonic()
        again = until(lambda: ready(other), 60)
        again_s, began = time.monotonic() - began, time.monotonic()
        os.kill(*mine, signal.SIGKILL)
        until(lambda: node not in operator.driver.nodes().values(), 30)
        operator.driver.wait_for(operator.driver.serving, 60, "the node")
        back_s = time.monotonic() - began
        return {"first": first, "again": again, "again_s": again_s, "back_s": back_s}


def command(pid: int) -> str:
    """Give the command line of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid: int) -> int:
    """Give the parent of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def ended(board: Board, name: str) -> bool:
    """Tell whether an agent's connection has ended, or ends before long."""
    board.lines[name].settimeout(20.0)
    try:
        return board.lines[name].recv(1) == b""
    except TimeoutError:
        return False


def elastic(spark: SparkSession) -> dict[str, Any]:
    """Word count that is rescaled twice, against Spark's own; the rows come from a Spark task."""
    with meander.deploy(spark, WordCount(), tasks=32, nodes=2) as operator:
        source = operator.source("words", slowly)
        told = [operator.rescale(n, pause_ms=100).wait(120).stage for n in (3, 2)]
        source.wait(120)
        found = {row["word"]: row["count"] for row in operator.state().collect()}
        homes = sorted(set(operator.driver.nodes().values()))
    table = pa.table({"word": [word for i in range(BATCHES) for word in words(i)]})
    rows = spark.createDataFrame(table).groupBy("word").count().collect()
    wanted = {row["word"]: row["count"] for row in rows}
    return {"told": told, "exact": found == wanted, "words": len(found), "homes": homes}


class Tally(StatefulProcessor):
    """Counts the rows of each key, as one writes it for Spark."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, *_: Any) -> Iterator[Row]:  # noqa: N802
        n = (self.count.get()[0] if self.count.exists() else 0) + sum(1 for _ in rows)
        self.count.update((n,))
        yield Row(word=key[0], n=n)

    def close(self) -> None:
        pass


def stream(spark: SparkSession) -> dict[str, Any]:
    """A processor between sink and source, with TLS on every door; rescaled twice."""
    counts, found = Counter[str](), dict[str, int]()
    tally = processor(
        Tally(), "word string, n long", keys=["word"], schema="word string", form="row"
    )

    def take(rows: Any, _: int) -> None:
        for row in rows.collect():
            found[row.word] = max(row.n, found.get(row.word, 0))

    with TemporaryDirectory() as folder:
        (source := Path(folder, "in")).mkdir()
        texts = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
        with meander.deploy(spark, tally, tasks=16, nodes=2, nodes_max=3, tls=True) as operator:
            out = operator.transform(texts.parquet(str(source)), checkpoint=f"{folder}/checkpoint")
            query = out.writeStream.foreachBatch(take).start()
            for number, nodes in enumerate((3, 2)):
                for half in range(2):
                    chosen = words(2 * number + half)
                    counts.update(chosen)
                    pq.write_table(pa.table({"word": chosen}), beside := Path(folder, "new"))
                    beside.rename(source / f"{number}{half}.parquet")
                    if not half:
                        handle = operator.rescale(nodes)
                handle.wait(120)
            exact = until(lambda: found == counts, 120)
            query.stop()
    return {"exact": exact, "words": len(found)}


def vacated(spark: SparkSession) -> dict[str, Any]:
    """A node is vacated, the operator upgraded, and an executor decommissioned, while rows flow."""
    made: Counter[str] = Counter()
    for number in range(2 * BATCHES):
        made.update(words(number))
    with meander.deploy(spark, WordCount(), tasks=16, nodes=2) as counts:
        task = counts.source("slow", lambda after: slowly(after, 2 * BATCHES))
        counts.vacate(node="n1").wait(60)
        first = sorted(counts.driver.nodes())
        counts.upgrade(WordCount()).wait(60)
        second = sorted(counts.driver.nodes())
        context = spark.sparkContext
        inner, jvm = context._jsc.sc(), context._jvm
        seats = counts._launcher._seats
        executor = next(s.executor for s in seats._seats.values() if s.spec.name == second[0])
        info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
        there = seats.nodes_at(executor)
        told = info("maintenance", jvm.scala.Option.empty())
        inner.schedulerBackend().decommissionExecutor(executor, told, False, False)
        gone = until(lambda: not set(there) & set(counts.driver.nodes()), 60)
        task.wait(120)
        lost = [facts for _, what, facts in counts.driver.events if what == "lost"]
        began = time.monotonic()
        rows = counts.state().collect()
        read_s = time.monotonic() - began
    found = {row["word"]: row["count"] for row in rows}
    return {"first": first, "second": second, "gone": gone, "there": there, "lost": lost,
            "exact": found == made, "read_s": read_s}  # fmt: skip


def shipped(spark: SparkSession) -> dict[str, Any]:
    """The same where executors lack the package."""
    context = spark.sparkContext
    before = ship._ask(context)["meander"]
    said = elastic(spark)
    home = context.parallelize([0], 1).map(lambda _: __import__("meander").__file__).collect()[0]
    return {**said, "before": before, "home": home, "sent": ship.equip(context)}


def slowly(after: int, batches: int = BATCHES) -> Iterator[SourceBatch]:
    for number in range(after + 1, batches):
        time.sleep(0.05)
        yield SourceBatch(number, pa.record_batch({"word": words(number)}))


def words(number: int) -> list[str]:
    chosen = random.Random(number)
    return [f"w{int(chosen.paretovariate(0.6)) % 3000}" for _ in range(1000)]


def session(place: str, stack: ExitStack) -> SparkSession:
    """Start a session of a kind."""
    if place == "local":
        return local("local[6,2]", extra=SMALL)
    if place == "local-cluster":
        return local("local-cluster[2,3,1024]", extra=SMALL)
    if place == "leaving":
        more = {"spark.decommission.enabled": "true"}
        return local("local-cluster[3,4,1024]", extra={**SMALL, **more})
    where = stack.enter_context(cluster(workers=2, cores=4, memory="1g"))
    more = {"spark.cores.max": "6"}
    if place == "dynamic":
        more = DYNAMIC
    elif place == "bare":
        # Executors whose Python does not find the package, as on a cluster without it.
        folder = stack.enter_context(TemporaryDirectory())
        Path(folder, "sitecustomize.py").write_text(
            "import sys\nsys.path = [p for p in sys.path if not p.endswith('/src')]\n"
        )
        more |= {
            "spark.executorEnv.PYTHONPATH": folder,
            "spark.python.daemon.module": "pyspark.daemon",
        }
    return local(where.master, extra={**SMALL, **more})


def main(place: str, what: str) -> None:
    with ExitStack() as stack:
        spark = session(place, stack)
        did = {"agents": four_agents, "grow": grow_and_shrink, "elastic": elastic,
               "shipped": shipped, "stopped": stopped, "stream": stream, "warmed": warmed,
               "vacated": vacated, "abandon": abandon, "hang": abandon}  # fmt: skip
        print(json.dumps(did[what](spark)), flush=True)  # noqa: T201 - it is how the test hears
        if what == "hang":
            time.sleep(600)
        if what != "abandon":
            spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
