"""Rescales for a long time, under load: what has grown?

After every way there and back, when the deployment has as many nodes as at the beginning and stands
still, a sample is taken of all its processes. The first samples are left out: allocators, gRPC and
the kernels take what they need in the first minute. What is left is compared, its beginning with its
end. The stream has so few words that its state stops growing within seconds.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from meander.operators import WordCount
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.run.flow import Feeding, Site
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import live_settings
from meander.sources.pacing import PacedPiece
from meander_lab.chaos import havoc
from meander_lab.chaos.load import Difference, Shape, WordApp

MIB = 2**20
TASKS = 24
NODES = (2, 4)
"""There and back."""
ROWS, BATCH_S = 200, 0.02
WARM_SHARE = 0.2
"""Of the samples; these are left out."""
ENDS = 5
"""So many samples make the beginning, and so many the end."""
GROWTH = 1.1
"""A number may be so much higher at the end …"""
SLACK = {
    "driver_mb": 24.0,
    "server_mb": 24.0,
    "nodes_mb": 48.0,
    "handles": 8,
    "threads": 4,
    "files": 64,
}
"""… and by so much more: allocators keep pages, and connections come and go."""

LEASE_S = 120.0
"""A machine that stands still for a while shall not end a long run: nobody is lost here on purpose."""

Say = Callable[[str], None]


class Sample(NamedTuple):
    """What the deployment holds at one moment."""

    driver_mb: float
    """Resident, of the process that has the master and the feeder."""
    server_mb: float
    nodes_mb: float
    """Of all nodes together."""
    handles: int
    """Open files, pipes and sockets of all processes."""
    threads: int
    files: int
    """Temporary files, and those of the checkpoints."""


def measure(driver: Driver, folder: Path) -> Sample:
    """Take a sample."""

    def find(master: Master) -> list[tuple[str, str]]:
        peers = (p for p in master.membership.peers.values() if p.status is not Status.GONE)
        return [(p.kind, p.address) for p in peers if p.kind != "feeder" and p.address]

    told = driver.process.call(find).result(30)
    pids = {(kind, havoc.pid_at(address)) for kind, address in told}
    nodes = [pid for kind, pid in pids if kind == "node" and pid is not None]
    servers = [pid for kind, pid in pids if kind == "server" and pid is not None]
    sizes = {pid: _size(pid) for pid in (os.getpid(), *nodes, *servers)}
    return Sample(
        sizes[os.getpid()].resident_mb,
        sum(sizes[pid].resident_mb for pid in servers),
        sum(sizes[pid].resident_mb for pid in nodes),
        sum(size.handles for size in sizes.values()),
        sum(size.threads for size in sizes.values()),
        sum(len(files) for _, _, files in os.walk(folder)),
    )


class Footprint(NamedTuple):
    """What one process holds."""

    resident_mb: float
    handles: int
    threads: int


def _size(pid: int) -> Footprint:
    try:
        process = psutil.Process(pid)
        return Footprint(process.memory_info().rss / MIB, process.num_fds(), process.num_threads())
    except psutil.Error:  # it has ended meanwhile
        return Footprint(0.0, 0, 0)


class Soak:
    """One long run."""

    def __init__(self, site: Site, folder: Path, seconds: float, every_s: float, say: Say) -> None:
        self.site, self.folder, self.say = site, folder, say
        self.seconds, self.every_s = seconds, every_s
        self.rescales = 0
        self.samples: list[Sample] = []
        self._words = WordApp(Shape(11, 1, 0, BATCH_S, ROWS))
        self._fed = 0

    def run(self) -> dict[str, Any]:
        """Rescale until the time is over, and tell what has grown."""
        began, op = time.monotonic(), self.site.op
        with Feeding(self._pieces(), self._feed, time.time()) as feeding:
            while time.monotonic() - began < self.seconds:
                for nodes in NODES[::-1]:
                    op.rescale(nodes, pause_ms=100.0).wait(120.0)
                    self.rescales += 1
                    op.driver.check()
                    feeding.check()
                    time.sleep(self.every_s)
                self.samples.append(measure(op.driver, self.folder))
                self.say(_line(self.samples[-1], self.rescales))
            feeding.stop()
        self.site.flush(timeout_s=120.0)
        words = WordApp(self._words.shape._replace(batches=self._fed))
        found = words.compare(op.state(60.0))
        return report(self.samples, self.rescales, found, time.monotonic() - began)

    def _pieces(self) -> Iterator[PacedPiece]:
        """Give batches, with a pause after each: this is no race."""
        for number in count():
            yield PacedPiece(number, self._words.batch(0, number), None)
            time.sleep(BATCH_S)

    def _feed(self, number: int, batch: Any, _: float | None) -> None:
        self.site.feed(batch)
        self._fed = number + 1


def report(
    samples: list[Sample], rescales: int, found: Difference, seconds: float
) -> dict[str, Any]:
    """Compare the beginning with the end.

    >>> flat = [Sample(100.0, 50.0, 120.0, 200, 60, 30)] * 20
    >>> told = report(flat, 40, Difference(10, 0, 0), 60.0)
    >>> told["steady"], told["grown"]
    (True, [])
    >>> leak = [s._replace(handles=200 + 9 * i) for i, s in enumerate(flat)]
    >>> report(leak, 40, Difference(10, 0, 0), 60.0)["grown"]
    ['handles']
    """
    kept = samples[int(len(samples) * WARM_SHARE) :] or samples
    count = max(1, min(ENDS, len(kept) // 2))
    begin, end = _middle(kept[:count]), _middle(kept[-count:])
    grown = [name for name in begin if end[name] > begin[name] * GROWTH + SLACK[name]]
    return {
        "minutes": round(seconds / 60, 2),
        "rescales": rescales,
        "samples": len(samples),
        "rows": found.rows,
        "exact": found.exact,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "begin": begin,
        "end": end,
        "grown": grown,
        "steady": not grown and bool(samples),
    }


def _middle(samples: list[Sample]) -> dict[str, float]:
    columns = zip(*samples, strict=True)
    return {
        name: round(statistics.median(values), 1)
        for name, values in zip(Sample._fields, columns, strict=True)
    }


def _line(sample: Sample, rescales: int) -> str:
    return (
        f"{rescales:5d} rescales   driver {sample.driver_mb:6.1f} MiB   server "
        f"{sample.server_mb:6.1f}   nodes {sample.nodes_mb:6.1f}   {sample.handles} handles   "
        f"{sample.threads} threads   {sample.files} files"
    )


@contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Have all temporary files of this process and its children made in a folder."""
    before, kept = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = kept
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def soak(seconds: float, every_s: float, say: Say) -> dict[str, Any]:
    """Deploy word count on this machine with checkpoints, and rescale it for so long."""
    with tempfile.TemporaryDirectory(prefix="meander-soak-") as name:
        folder = Path(name)
        settings = live_settings(TASKS, checkpoint_s=1.0, lease_s=LEASE_S)

        def deploy(nodes: int) -> ElasticOperator:
            return deploy_local(
                WordCount(), tasks=TASKS, nodes=nodes, settings=settings,
                checkpoint=str(folder / "checkpoints"),
            )  # fmt: skip

        with _temporary(folder), Site(deploy, NODES[0]) as site:
            return Soak(site, folder, seconds, every_s, say).run()
