"""What the tests of the dashboard share: made-up deployments, a served page, a browser."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from meander.dashboard.feed import Feed
from meander.dashboard.server import DashboardServer
from meander.dashboard.snapshot import Deployed, Snapshot, Told
from meander.model import Assignment
from meander.protocol.messages import MASTER, Rescale
from meander.runtime.driver.look import Look, MigrationLook, NodeLook, look
from meander.runtime.driver.options import Dashboard
from meander.runtime.driver.totals import Totals
from meander.runtime.process.metrics import Histogram
from meander.testing.scale import run_until, started

TOKEN = "a token of the tests"
SHOTS = os.path.abspath(found) if (found := os.environ.get("MEANDER_SHOTS", "")) else ""
"""Where screenshots for the docs go; empty: to a folder of the tests."""
ROUND = {"epoch": "1.2", "tasks": 4, "bytes": 4000, "predicted_s": 0.06, "measured_s": 0.05,
         "duration_s": 0.1, "copy_s": 0.0}  # fmt: skip

T = TypeVar("T")


def made_up(
    nodes: int = 4, tasks: int = 64, hosts: int = 2, at_s: float | None = None, rows: int = 0,
    **changes: Any,
) -> Snapshot:  # fmt: skip
    """Make up a moment of a deployment: loads by chance, always the same ones."""
    chance = random.Random(7)
    names = [f"n{i + 1}" for i in range(nodes)]
    owners = tuple(names[task * nodes // tasks] for task in range(tasks))
    books = Look(
        epoch="1.7",
        owners=owners,
        coming={},
        work=tuple(chance.randrange(50, 1000) for _ in range(tasks)),
        sizes=tuple(chance.randrange(1000, 100_000) for _ in range(tasks)),
        nodes=tuple(
            NodeLook(name, f"10.0.0.{i * hosts // nodes + 1}", "up") for i, name in enumerate(names)
        ),
        feeders=("words",),
        migration=None,
        checkpointing=False,
        saved_s=None,
        saved=True,
        restores=0,
        store="",
    )
    in_look = {name: changes.pop(name) for name in list(changes) if name in Look.__annotations__}
    latency = Histogram()
    latency.record(2500, rows)
    totals = {**Totals().total(), "rows": rows, "latency": latency.dump()}
    counts = {name: {"rows": rows // nodes, "turn_s": rows / nodes / 1e5} for name in names}
    feeding = {"words": {"chunks": 12, "bytes": 4096, "full": 0.02}}
    about = Deployed("WordCount", "run1", "127.0.0.1:4711", 1, "ssm", 0.2, ("word",))
    now = Snapshot(at_s or time.time(), about, replace(books, **in_look), totals, counts, feeding)
    return replace(now, **changes)


def moving(now: Snapshot, nodes: int = 6, number: int = 1) -> Snapshot:
    """Put a migration under way into a moment."""
    books = now.look
    names = [f"n{i + 1}" for i in range(nodes)]
    index = np.array([task * nodes // books.tasks for task in range(books.tasks)])
    migration = MigrationLook(
        number=number, stage="moving", active=True, nodes_before=len(books.nodes),
        target=Assignment.from_owners(index, names), moved=9, rounds=(ROUND, ROUND),
        round_tasks=frozenset({10, 11}), round_count=3, round_bytes=5000, predicted_s=0.07,
        measured_s=0.02, copying=False, budget_s=0.1, seconds=1.5,
    )  # fmt: skip
    told = Told(now.at_s - 1, "rescaling", {"migration": number, "nodes": nodes})
    return replace(
        now, look=replace(books, migration=migration, coming={10: "n1", 11: "n1"}), told=(told,)
    )


def simulated(nodes: int, tasks: int, target: int, hosts: int = 40) -> Snapshot:
    """Take a moment of a simulated deployment of any size, in the midst of a rescale."""
    cluster = started(nodes, tasks)
    cluster.give(cluster.processes[MASTER], Rescale(target))
    conductor = cluster.master.conductor
    run_until(cluster, 600.0, lambda: bool(conductor.migration and conductor.migration.round_tasks))
    found = look(cluster.master)
    named = tuple(replace(it, host=f"10.0.0.{i % hosts + 1}") for i, it in enumerate(found.nodes))
    return replace(made_up(), look=replace(found, nodes=named))


def ended(now: Snapshot, measured_s: float = 0.05) -> Snapshot:
    """End the migration of a moment."""
    assert now.look.migration is not None
    migration = replace(now.look.migration, active=False, stage="completed")
    rounds = [ROUND, {**ROUND, "measured_s": measured_s}]
    facts = {"migration": migration.number, "stage": "completed", "nodes": 6, "rounds": rounds,
             "moved": 11, "second_moves": 0, "seconds": 2.0}  # fmt: skip
    return replace(
        now,
        look=replace(now.look, migration=migration, coming={}),
        told=(*now.told, Told(now.at_s, "completed", facts)),
    )


@contextmanager
def served(feed: Feed, **options: Any) -> Iterator[DashboardServer]:
    """Serve what a feed has, without a deployment."""
    server = DashboardServer(feed, Dashboard(token=TOKEN, **options), "run1", None)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def request(
    server: Any, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, Mapping[str, str], str]:
    """Ask a server; give the status, the headers and the text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), told)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def programs() -> tuple[str, str] | None:
    """Find a Chromium and its driver."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def soon(look: Callable[[], T], seconds: float = 60.0) -> T:
    """Wait until something is there; give it."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() > end:
            assert found, "it did not come about in time"
            return found
        time.sleep(0.05)
