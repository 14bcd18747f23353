"""Look at a session before nodes are put into it, and say everything that is wrong at once.

Errors are what would break a run: they come in one message. Notes are what makes it slower or less
forgiving: they are logged once per application.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from meander.errors import InputError
from meander.spark.cluster.executors import executors
from meander.spark.cluster.session import DAEMON, classic

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

RESERVE_SLOTS = 1
"""Kept free for Spark's own jobs, which would wait behind nodes for ever."""
EXECUTORS_S_MAX = 15.0
"""How long executors of a new application may take to register."""
POLL_S = 0.1

Facts = dict[str, str]
"""Settings of the session."""


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """What a session offers."""

    slots: int | None
    """Tasks that can run at once; None where executors are made as needed without a limit."""
    notes: tuple[str, ...]


def check(spark: SparkSession, nodes: int, *, feeders: int = 0) -> SessionCheck:
    """Refuse a session that cannot carry the nodes, and a state server on each of their hosts.

    Args:
        spark: the session.
        nodes: the most nodes that will live at once.
        feeders: that will live in tasks beside them.

    Raises:
        InputError: listing all that is wrong.
    """
    context = classic(spark).sparkContext
    if context._jsc is None:
        raise InputError("this session was stopped: start another one")
    facts = _facts(context.getConf())
    slots = _enough_slots(context, facts, nodes + 1 + feeders + RESERVE_SLOTS)
    others = max(1, min(nodes, len({e.address for e in executors(context)}))) + feeders
    needed = nodes + others + RESERVE_SLOTS
    if slots is not None and slots < needed:  # some may still be registering
        slots = _enough_slots(context, facts, needed)
    wrong = [*faults(facts, dict(os.environ)), *_too_few(slots, needed, nodes, others, facts)]
    if wrong:
        listed = "".join(f"\n  - {line}" for line in wrong)
        raise InputError(f"this session cannot carry {nodes} nodes:{listed}")
    found = SessionCheck(slots, tuple(remarks(facts)))
    for note in found.notes:
        _say(context.applicationId or "", note)
    return found


def faults(facts: Facts, environment: dict[str, str]) -> list[str]:
    """Name settings under which long-lived tasks break.

    >>> faults({"spark.speculation": "true"}, {})
    ['spark.speculation is on: Spark would start a node twice; turn it off']
    """
    wrong = []
    if _true(facts, "spark.speculation"):
        wrong.append("spark.speculation is on: Spark would start a node twice; turn it off")
    idle = facts.get("spark.python.worker.idleTimeoutSeconds", "0")
    if idle not in {"0", "0s"} and _true(facts, "spark.python.worker.killOnIdleTimeout"):
        wrong.append(
            f"spark.python.worker.idleTimeoutSeconds is {idle} with killOnIdleTimeout: Spark would "
            "kill nodes, which send it no rows for hours; set it to 0"
        )
    if environment.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        wrong.append(
            "PYSPARK_PIN_THREAD is false: nodes could not be cancelled one by one; unset it"
        )
    return wrong


def remarks(facts: Facts) -> list[str]:
    """Say what works, but less well than it could.

    >>> remarks({"spark.master": "local[4]", "spark.python.daemon.module": DAEMON})
    ['local[4] tries a task once: a killed worker ends its Spark job with an error in the log, and \
a node in it has to wait for a slot again; use local[4,4]']
    """
    found, master = [], facts.get("spark.master", "")
    if facts.get("spark.python.daemon.module") != DAEMON:
        found.append(
            "this session forks plain Python workers, so that every node imports everything anew: "
            f"start it with spark.python.daemon.module={DAEMON} and nodes start many times faster, and "
            "in their old slot when they die"
        )
    if master.startswith("local[") and "," not in master:
        found.append(
            f"{master} tries a task once: a killed worker ends its Spark job with an error in the log, "
            f"and a node in it has to wait for a slot again; use {master[:-1]},4]"
        )
    idle = facts.get("spark.python.worker.idleTimeoutSeconds", "0")
    if idle not in {"0", "0s"}:
        found.append(f"Spark's log will call nodes idle every {idle} s: they send it no rows")
    if limit := facts.get("spark.executor.pyspark.memory"):
        found.append(f"spark.executor.pyspark.memory={limit} limits the state that nodes can hold")
    return found


def in_use(context: SparkContext) -> tuple[int, int]:
    """Count the Spark tasks that run now, and the slots there are.

    The scheduler itself is asked: what Spark's status tracker says can be seconds old.
    """
    counts = context._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    used = 0
    while counts.hasNext():
        used += int(counts.next())
    return used, slots_now(context)


def tries(context: SparkContext) -> int:
    """Tell how often Spark runs a task before it fails the job; once with a plain `local[N]`."""
    return int(context._jsc.sc().taskScheduler().maxTaskFailures())


def slots_now(context: SparkContext) -> int:
    """Count the tasks that can run at once on the executors there are now."""
    inner = context._jsc.sc()
    profile = inner.resourceProfileManager().defaultResourceProfile()
    return int(inner.maxNumConcurrentTasks(profile))


def waiting(context: SparkContext, node: str, seconds: float) -> str:
    """Explain why a node has not come."""
    used, slots = in_use(context)
    told = f"node {node} has waited {seconds:.0f} s for a free slot: {used} of {slots} are in use"
    if used < slots:
        return f"node {node} has had a slot for some of {seconds:.0f} s but has not registered"
    return f"{told}. Stop other jobs, use fewer nodes, or give the session more slots"


def _enough_slots(context: SparkContext, facts: Facts, needed: int) -> int | None:
    """Count slots, waiting a little where executors are still registering."""
    if _true(facts, "spark.dynamicAllocation.enabled"):
        return _slots_at_most(facts)
    limit = time.monotonic() + EXECUTORS_S_MAX
    while (slots := slots_now(context)) < needed and time.monotonic() < limit:
        if facts.get("spark.master", "").startswith("local["):
            break
        time.sleep(POLL_S)
    return slots


def _slots_at_most(facts: Facts) -> int | None:
    """Count the slots that dynamic allocation can bring; None if it is not limited.

    >>> _slots_at_most({"spark.dynamicAllocation.maxExecutors": "3", "spark.executor.cores": "2"})
    6
    """
    most, cores = (
        facts.get("spark.dynamicAllocation.maxExecutors"),
        facts.get("spark.executor.cores"),
    )
    if most is None or cores is None or not most.isdigit():
        return None
    return int(most) * (int(cores) // int(facts.get("spark.task.cpus", "1")))


def _too_few(slots: int | None, needed: int, nodes: int, others: int, facts: Facts) -> list[str]:
    if slots is None or slots >= needed:
        return []
    if _true(facts, "spark.dynamicAllocation.enabled"):
        cure = "raise spark.dynamicAllocation.maxExecutors"
    else:
        cure = f"start it with local[{needed},4] or more executors, or use fewer nodes"
    cpus = facts.get("spark.task.cpus", "1")
    per = "" if cpus == "1" else f" (spark.task.cpus is {cpus})"
    return [
        f"it has {slots} slots{per} and {needed} are needed: {nodes} nodes, {others} for state servers "
        f"and feeders, {RESERVE_SLOTS} left for Spark; {cure}"
    ]


def _facts(conf: SparkConf) -> Facts:
    return dict(conf.getAll())


def _true(facts: Facts, key: str) -> bool:
    return facts.get(key, "false").lower() == "true"


@cache
def _say(application: str, note: str) -> None:
    """Log a note, once per application."""
    log.warning("%s", note)
