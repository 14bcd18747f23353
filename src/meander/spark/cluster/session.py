"""A Spark session with sane local settings, or the one the user already has.

Settings that cannot be changed in a running session (memory, addresses) are only given to a new
one. A session that the user made is used as it is: jobs carry their own settings where they
matter (`settings`).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from meander.errors import InputError
from meander.runtime.process.memory import KEEP
from meander.spark.cluster.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session: TypeAlias = SparkSession
    """For those who hold a session without importing pyspark."""

PARTITIONS_PER_CORE = 2
"""Enough to even out stragglers, few enough that a small shuffle stays cheap."""

DRIVER_MEMORY_SHARE = 4
"""A local driver, which is also the executor, takes at most this fraction of the machine …"""
DRIVER_MEMORY_MB_MAX = 4096
"""… and at most this: hash aggregation spills, so more brings nothing."""

DAEMON = "meander.spark.cluster.daemon"
"""Forks Python workers that have everything heavy imported."""

SPARE_SLOTS = 4
"""Slots of a local session beside nodes and state server: feeders, and Spark's own jobs."""
TASK_FAILURES = 4
"""How often Spark tries a task; a plain `local[N]` would try once, and then fail the job."""

LOOPBACK = "127.0.0.1"

QUIET = Path(__file__).with_name("log4j2.properties")
POOL, POOLS = "meander", Path(__file__).with_name("pools.xml")
"""Of nodes, where the session has it: they come before queries, which wait for them."""

NO_CONNECT = (
    "this is a Spark Connect session, which has no SparkContext: Meander needs a classic one. "
    "Unset SPARK_REMOTE and start the session with .master(…) instead of .remote(…)"
)


def local(
    master: str | None = None,
    *,
    nodes: int | None = None,
    ui: bool = False,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Give the running session, or start a quiet local one.

    Args:
        master: where to run; ignored when a session is running. By default `local[*]`, or enough
            slots for `nodes`.
        nodes: the most nodes that will live in this session at once.
        ui: serve Spark's own web page (on loopback).
        extra: further settings for a new session; they win over the defaults.

    Raises:
        InputError: without Java, or for Spark Connect.
    """
    if os.environ.get("SPARK_REMOTE"):
        raise InputError(NO_CONNECT)
    os.environ["JAVA_HOME"] = str(java_home())
    # Python workers must find meander: without this Spark takes the first python3 of the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Web pages, and the executors of `local-cluster`, would listen on every interface.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return classic(running)
    builder = SparkSession.builder.appName("meander").master(master or _master(nodes))
    for key, value in {**_defaults(ui), **(extra or {})}.items():
        builder = builder.config(key, value)
    # Spark says every wrong query in the log as well: the exception is enough.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return classic(builder.getOrCreate())


def classic(spark: SparkSession) -> SparkSession:
    """Refuse Spark Connect; give any other session back.

    Raises:
        InputError: for a Connect session.
    """
    if "connect" in type(spark).__module__:
        raise InputError(NO_CONNECT)
    return spark


def _master(nodes: int | None) -> str:
    """Give a local master with a slot for each node, a state server and some more.

    >>> _master(8), _master(None)
    ('local[13,4]', 'local[*]')
    """
    return f"local[{nodes + 1 + SPARE_SLOTS},{TASK_FAILURES}]" if nodes else "local[*]"


def _defaults(ui: bool) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": f"{_driver_memory_mb()}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        "spark.python.daemon.module": DAEMON,
        "spark.python.task.killTimeout": "100ms",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": POOLS.as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (os.cpu_count() or 1)),
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **{
            f"spark.executorEnv.{name}": os.environ.get(name, value) for name, value in KEEP.items()
        },
    }


def _driver_memory_mb() -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(DRIVER_MEMORY_MB_MAX, machine // DRIVER_MEMORY_SHARE))


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change SQL settings for the DataFrames that are made inside, then put the old ones back."""
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn whatever Spark raises into one line that says what was being done.

    Raises:
        InputError: for any error of Spark; the original is its cause.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = next((line for line in lines if "[" in line and "]" in line), lines[0])
        raise InputError(f"{what}: {told}") from error
