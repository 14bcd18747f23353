"""Watches a deployment from the driver: every chunk's latency, who owns what, what was reported.

Nodes remember chunks (`chunk_trace`); the monitor fetches them twice a second, and takes the rest from
the last report of nodes that end, so that a node's leaving loses nothing. Latencies are looked at by
when rows were *due*, never by when they happened to be applied: a row due before a pause that comes
out after it belongs to the time before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meander.model import NodeId, TaskId
from meander.runtime.process.chunk_trace import WIDTH, as_table
from meander.runtime.process.script import FetchRows, Script, Together

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.runtime.driver.driver import Driver

POLL_S = 0.5
TRACE_S_MAX = 5.0
"""How long a node may take to give its chunks."""
TRACE_CHUNKS_MAX = 500_000
"""What nodes remember between two looks: 16 MB at most, and far less in practice."""

SAMPLES_MAX = 5_000_000
"""Kept by a monitor, the newest: some 165 MB, a quarter of an hour of a busy stream."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Chunks with their latencies, as columns of equal length."""

    due_us: Longs
    latency_us: Longs
    task: Longs
    waited: npt.NDArray[np.bool_]
    rows: Longs

    def __len__(self) -> int:
        return len(self.due_us)

    def where(self, mask: npt.NDArray[np.bool_]) -> Samples:
        """Keep some."""
        return Samples(
            self.due_us[mask], self.latency_us[mask], self.task[mask], self.waited[mask],
            self.rows[mask],
        )  # fmt: skip

    def due(self, from_s: float, until_s: float) -> Samples:
        """Keep those due in a span of time, in seconds since 1970; bounds are whole microseconds."""
        low, high = np.floor([from_s * 1e6, until_s * 1e6])
        return self.where((self.due_us >= low) & (self.due_us < high))

    def of_tasks(self, tasks: Iterable[TaskId]) -> Samples:
        """Keep those of some tasks."""
        return self.where(np.isin(self.task, np.array(list(tasks), dtype=np.int64)))

    def summary(self) -> dict[str, float]:
        """Give percentiles by row, in milliseconds; zeros where there is no row."""
        return {
            "rows": int(self.rows.sum()),
            "p50_ms": self.percentile_ms(0.5),
            "p99_ms": self.percentile_ms(0.99),
            "p999_ms": self.percentile_ms(0.999),
            "max_ms": float(self.latency_us.max(initial=0)) / 1000,
        }

    def percentile_ms(self, share: float) -> float:
        """Give the latency that a share of all rows stays within.

        >>> one = np.array([1, 1, 1])
        >>> latency = np.array([5000, 1000, 9000])
        >>> Samples(one, latency, one, one > 1, np.array([1, 8, 1])).percentile_ms(0.9)
        5.0
        """
        if not len(self):
            return 0.0
        order = np.argsort(self.latency_us)
        seen = np.cumsum(self.rows[order])
        at = int(np.searchsorted(seen, share * seen[-1]))
        return float(self.latency_us[order][min(at, len(order) - 1)]) / 1000

    @classmethod
    def of(cls, tables: list[pa.Table]) -> Samples:
        """Make them of what nodes gave."""

        def column(name: str) -> npt.NDArray[Any]:
            parts = [table[name].to_numpy() for table in tables]
            kind = np.bool_ if name == "waited" else np.int64
            return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

        return cls(*(column(n) for n in ("due_us", "latency_us", "task", "waited", "rows")))

    @classmethod
    def join(cls, parts: Sequence[Samples]) -> Samples:
        """Put samples of several monitors together."""
        every = [cls.of([]), *parts]
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in every]) for name in names))


@dataclass(frozen=True)
class OwnerHistory:
    """Who owned which task from a moment on."""

    at_s: float
    owners: tuple[NodeId, ...]


class Monitor:
    """A thread that looks at a deployment until it is stopped. A context manager."""

    def __init__(self, driver: Driver, poll_s: float = POLL_S) -> None:
        """Prepare to watch; the operator must have been deployed with `trace_chunks_max`."""
        self.owners: list[OwnerHistory] = []
        """Every change of ownership that was seen."""
        self.forgotten = 0
        """Chunks that were given up, the oldest first."""
        self._driver, self._poll_s = driver, poll_s
        self._tables: list[pa.Table] = []
        self._kept = 0
        self._fetched: dict[NodeId, int] = {}
        """Chunks that we have of each node that runs."""
        self._exits = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Look once more, and no longer."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self.look()

    def samples(self, last_s: float | None = None) -> Samples:
        """Give all chunks so far, or those due in the last seconds."""
        with self._lock:
            tables = list(self._tables)
        if last_s is None:
            return Samples.of(tables)
        now = time.time()
        polls = max(1, int(last_s / self._poll_s) + 2) * max(1, len(self._fetched))
        return Samples.of(tables[-polls:]).due(now - last_s, now)

    def look(self) -> None:
        """Fetch what is new."""
        try:
            nodes = self._driver.nodes()
            owners = self._driver.owners()
        except (RuntimeError, TimeoutError):  # the deployment has ended
            nodes, owners = {}, ()
        if owners and (not self.owners or self.owners[-1].owners != owners):
            self.owners.append(OwnerHistory(time.time(), owners))
        for node, table in zip(nodes, self._driver.reader().run(self._traces(nodes)), strict=True):
            if table is not None:
                self._take(node, table)
        self._hear_exits()

    def _traces(self, nodes: Mapping[NodeId, str]) -> Script[list[pa.Table | None]]:
        """Ask nodes for their chunks, all at once; None of whoever does not answer."""
        fetched = self._fetched
        told: list[pa.Table | None] = yield Together(
            [
                FetchRows(address, {"kind": "trace", "after": fetched.get(node, 0)}, TRACE_S_MAX)
                for node, address in nodes.items()
            ]
        )
        return told

    def _take(self, node: NodeId, table: pa.Table) -> None:
        upto = int(table.schema.metadata[b"next"])
        fresh = upto - self._fetched.get(node, 0)
        self._fetched[node] = max(upto, self._fetched.get(node, 0))
        if fresh > 0:
            with self._lock:
                self._tables.append(table.slice(max(0, table.num_rows - fresh)))
                self._kept += self._tables[-1].num_rows
                while self._kept > SAMPLES_MAX:
                    oldest = self._tables.pop(0).num_rows
                    self._kept -= oldest
                    self.forgotten += oldest

    def _hear_exits(self) -> None:
        exits, self._exits = self._driver.staff.exits_after(self._exits)
        for ended in exits:
            if ended.facts.get("trace"):
                numbers = ended.facts["trace"]
                assert len(numbers) % WIDTH == 0, "whole chunks"
                self._take(ended.name, as_table(numbers, ended.facts["trace_next"]))
            self._fetched.pop(ended.name, None)  # another under its name begins at 0

    def _run(self) -> None:
        while not self._stop.wait(self._poll_s):
            self.look()
