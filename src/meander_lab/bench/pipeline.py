"""What a profile costs beside plain Spark SQL that counts the same words.

Each side runs in a process of its own, so that its peak memory is its own. Before the clock starts
it does the same work on a thousandth of the rows, so that neither side pays for starting Spark.

    sql      SELECT word, count(*) … GROUP BY word                     one pass
    profile  the same, and per slot and task: work, bytes, keys        two passes, see `profiling`

`ratio` is of rows per second by the clock, so it means little on a busy machine; `cpu_s` is there too.
Memory is the peak resident size of the JVM and of Python. A JVM takes what it may: read the figure
together with `driver_memory_mb`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from meander.errors import InputError
from meander.spark.cluster.session import local
from meander.spark.pipeline.events import EventSource
from meander.spark.pipeline.generate import Stream, generate
from meander.spark.pipeline.profiling import ProfileSettings, profile
from meander.spark.pipeline.words import words

SIDES = ("sql", "profile")
WARM_UP_ROWS = 20_000


def bench(paths: list[str], tasks: int, master: str | None = None) -> dict[str, Any]:
    """Run both sides on the same files and compare them.

    Raises:
        InputError: when a side fails; the message has its last line.
    """
    found = {side: _run_apart(side, paths, tasks, master) for side in SIDES}
    sql, ours = found["sql"], found["profile"]
    if sql["words"] != ours["words"]:
        raise AssertionError(f"the sides counted {sql['words']} and {ours['words']} words")
    return {
        "rows": ours["rows"], "words": ours["words"], "tasks": tasks,
        "profile_rows_s": ours["rows"] / ours["seconds"],
        "sql_rows_s": sql["rows"] / sql["seconds"],
        "ratio": sql["seconds"] / ours["seconds"],
        "profile_s": ours["seconds"], "sql_s": sql["seconds"],
        "profile_cpu_s": ours["cpu_s"], "sql_cpu_s": sql["cpu_s"],
        "profile_peak_mb": ours["peak_mb"], "sql_peak_mb": sql["peak_mb"],
        "driver_memory_mb": ours["driver_memory_mb"], "cores": ours["cores"],
    }  # fmt: skip


def _run_apart(side: str, paths: list[str], tasks: int, master: str | None) -> dict[str, Any]:
    order = json.dumps({"side": side, "paths": paths, "tasks": tasks, "master": master})
    command = [sys.executable, "-m", "meander_lab.bench.pipeline", order]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"the {side} side failed: {done.stderr.strip().splitlines()[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _side(order: dict[str, Any]) -> dict[str, Any]:
    """Run one side in this process."""
    spark = local(order["master"])
    work: Callable[..., tuple[int, int]] = _sql if order["side"] == "sql" else _profile
    with tempfile.TemporaryDirectory(prefix="meander-bench-") as scratch:
        sample = f"{scratch}/sample"
        generate(spark, Stream(rows=WARM_UP_ROWS, days=2)).write.parquet(sample)
        work(spark, [sample], f"{scratch}/warm", order["tasks"])
        cpu, begin = _cpu_s(spark), time.perf_counter()
        rows, words_counted = work(spark, order["paths"], f"{scratch}/result", order["tasks"])
        seconds, cpu = time.perf_counter() - begin, _cpu_s(spark) - cpu
    peak = sum(_peak_mb(pid) for pid in ("self", _jvm_pid(spark)))
    memory = spark.conf.get("spark.driver.memory", "0m")
    return {
        "rows": rows, "words": words_counted, "seconds": seconds, "cpu_s": cpu, "peak_mb": peak,
        "driver_memory_mb": int((memory or "0m").rstrip("m")),
        "cores": spark.sparkContext.defaultParallelism,
    }  # fmt: skip


def _sql(spark: SparkSession, paths: list[str], output: str, tasks: int) -> tuple[int, int]:
    """Count words as anyone would, and write the counts."""
    del tasks
    events = spark.read.parquet(*paths)
    counts = events.select(F.explode(words(F.col("text"))).alias("word")).groupBy("word").count()
    counts.write.parquet(output)
    total = spark.read.parquet(output).agg(F.sum("count")).collect()[0][0]
    return events.count(), int(total)


def _profile(spark: SparkSession, paths: list[str], output: str, tasks: int) -> tuple[int, int]:
    made = profile(
        spark, EventSource(tuple(paths), "parquet"), output, ProfileSettings(tasks=tasks)
    )
    return int(made.facts["rows"]), int(made.facts["summary"]["occurrences"])


def _jvm_pid(spark: SparkSession) -> str:
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.java.lang.ProcessHandle.current().pid())


def _cpu_s(spark: SparkSession) -> float:
    """Give the processor time of the JVM, which a busy machine distorts less than the clock."""
    times = psutil.Process(int(_jvm_pid(spark))).cpu_times()
    return float(times.user + times.system)


def _peak_mb(pid: str) -> float:
    """Read the peak resident size of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_side(json.loads(sys.argv[1]))) + "\n")
