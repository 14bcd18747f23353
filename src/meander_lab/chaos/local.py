"""Chaos on this machine: nodes, state servers and feeders as children of a nursery."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager

from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import Reason, live_settings
from meander_lab.chaos.havoc import HavocDisk, pid_at
from meander_lab.chaos.load import ChaosApp, ChaosSource

TASKS = 24
START_S = 1.0
"""From the order to start the feeders until the stream begins."""
CHECKPOINT_S = 0.3


class LocalGround:
    """A deployment with feeders in processes of their own."""

    senders = "feeder"
    find = staticmethod(pid_at)

    def __init__(self, op: ElasticOperator, app: ChaosApp) -> None:
        self.op, self.app, self.restarts = op, app, 0
        self._launched: dict[str, int] = {}
        """By feeder: how often it was started."""
        self._ended = 0
        """Exits that were looked at."""
        self._finished: set[str] = set()
        self._start_s = 0.0

    def start_feeders(self) -> None:
        """Begin the stream."""
        self._start_s = time.time() + START_S
        for number in range(self.app.shape.feeders):
            self._start(f"f{number}")

    def tend(self) -> int:
        """Start feeders again that have died."""
        exits, self._ended = self.op.driver.staff.exits_after(self._ended)
        for ended in exits:
            if ended.kind == "feeder" and ended.incarnation == self._launched[ended.name]:
                if ended.reason is Reason.FINISHED:
                    self._finished.add(ended.name)
                else:
                    self.restarts += 1
                    self._start(ended.name)
        return self.app.shape.feeders - len(self._finished)

    def seats(self) -> dict[str, int]:
        """There are none."""
        return {}

    def executors(self) -> int:
        """There are none."""
        return 0

    def _start(self, name: str) -> None:
        self._launched[name] = self._launched.get(name, 0) + 1
        number = int(name[1:])
        source = ChaosSource(self.app, number, self._start_s)
        payload = pickle.dumps((source, {"to": self.app.to(number)}))
        spec = self.op.driver.spec("feeder", name, self._launched[name], source=payload)
        self.op.driver.staff.start(spec)


@contextmanager
def local_ground(app: ChaosApp, disk: HavocDisk, nodes: int) -> Iterator[LocalGround]:
    """Deploy on this machine, with checkpoints on a disk."""
    settings = live_settings(TASKS, checkpoint_s=CHECKPOINT_S)
    with deploy_local(
        app.operator(), tasks=TASKS, nodes=nodes, settings=settings,
        checkpoint=str(disk.path / "checkpoints"),
    ) as op:  # fmt: skip
        yield LocalGround(op, app)
