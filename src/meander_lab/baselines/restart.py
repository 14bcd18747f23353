"""The baseline: stop, write everything, start again. What people do without live migration.

It is done with the product as anybody can do it, and made no slower than it must be: the checkpoint
folder is in memory where there is room, only what changed lately is still to be written when the
stream stops, new nodes are forked from a warm process and read side by side.

    stop inputs │ wait until all is durable │ end the deployment │ start another, which reads │ go on
       stop_s               write_s                 end_s                 start_s
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from meander.run.flow import Site
from meander.runtime.driver.elastic import ElasticOperator

CHECKPOINT_S = 0.5
"""How often what has changed is written; a stop waits for the next time."""
DURABLE_S_MAX = 600.0
ROOM = 8
"""A folder in memory must have so many times the state: records, their successors, and the rest."""
MEMORY = Path("/dev/shm")

DurableDeploy = Callable[[int, str | None, float], AbstractContextManager[ElasticOperator]]
"""Starts a deployment: nodes, checkpoint folder (None: without) and how often it is written."""


class Restarted(NamedTuple):
    """What a restart took."""

    began_s: float
    """Since 1970, as `ended_s`."""
    ended_s: float
    phases: dict[str, float]
    """Seconds of every phase, and `total_s`."""
    bytes_moved: int
    """The state, all of which was written and read."""

    @property
    def seconds(self) -> float:
        """From the stop of the inputs until they flow again."""
        return self.phases["total_s"]


class RestartSite(Site):
    """A site whose number of nodes changes by an end and a new beginning.

    Its deployments must share a checkpoint folder.
    """

    def restart(self, nodes: int) -> Restarted:
        """Go to another number of nodes."""
        began_s, clock, phases = time.time(), [time.monotonic()], dict[str, float]()

        def lap(phase: str) -> None:
            clock.append(time.monotonic())
            phases[phase] = clock[-1] - clock[-2]

        with self._gate:
            self.feeder.flush(timeout_s=DURABLE_S_MAX)
            lap("stop_s")
            self.feeder.flush(durable=True, timeout_s=DURABLE_S_MAX)
            lap("write_s")
            self.feeder.abandon()
            self._stack.close()
            lap("end_s")
            watching = self._monitors[-1:]
            self._open(nodes)
            self.feeder.wait_ready()
            lap("start_s")
        for monitor in watching:
            monitor.stop()  # with the last words of nodes that have ended
        phases["total_s"] = clock[-1] - clock[0]
        return Restarted(began_s, time.time(), phases, self.state_bytes())


@contextmanager
def site_of(
    deploy: DurableDeploy, nodes: int, *, restarts: bool, state_bytes: int, store: str | None = None
) -> Iterator[Site]:
    """Deploy; if there will be restarts, with checkpoints, which they go on from.

    Those are in a folder of this machine, unless the caller names another store.
    """
    if not restarts:
        with Site(lambda n: deploy(n, None, CHECKPOINT_S), nodes) as site:
            yield site
        return
    with (
        checkpoint_folder(state_bytes) if store is None else nullcontext(store) as folder,
        RestartSite(lambda n: deploy(n, str(folder), CHECKPOINT_S), nodes) as site,
    ):
        yield site


@contextmanager
def checkpoint_folder(state_bytes: int) -> Iterator[Path]:
    """Give a new folder: in memory if there is room, else on disk."""
    inside: Any = None
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM * state_bytes:
        inside = MEMORY
    with tempfile.TemporaryDirectory(prefix="meander-restart-", dir=inside) as folder:
        yield Path(folder)
