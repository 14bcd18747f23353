"""One schedule in both worlds: in the simulator, and with real processes that are harmed from outside.

The rows are the same, the faults are of the same kinds at the same moments. Which process is hit, and
what it is doing just then, is not the same, and need not be: whatever happens, both must end with the
same state, and with outputs that tell of every row once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute

from meander.errors import MeanderError, ProtocolError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.messages import Abort, Event, Rescale, Resume, RollBack
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import live_settings
from meander.testing.faults import Incident, Schedule, generate
from meander.testing.outcome import Outcome
from meander.testing.world.draws import draw_settings
from meander.testing.world.simulate import run_world
from meander.testing.world.trials import (
    EmitTrial,
    Outputs,
    States,
    TrialSize,
    WordTrial,
    WorldTrial,
)
from meander_lab.chaos import havoc
from meander_lab.chaos.load import Difference, Shape
from meander_lab.chaos.local import CHECKPOINT_S, START_S, LocalGround

BEARABLE: Final = ("crash", "server", "feeder", "pause", "reset")
"""Faults that a machine can bear: kills of all kinds, SIGSTOP, connections that are cut."""
ORDERED: Final = ("rescale", "abort", "resume", "roll back")
"""What is asked of both drivers; a schedule of the simulator may have upgrades and nodes that leave."""
STOPPED: Final = ("node", "feeder", "server", "node")
"""Whom a pause stops, by its number in the simulator."""
SEEDS_MAX: Final = 1_000_000
"""A world that keeps no checkpoints gives way to the one so many seeds later."""
TASKS: Final = 8
OFFSETS: Final = 24
LEASE_S: Final = 3.0
"""Shorter than the longest pause."""
READ_S: Final = 0.4
"""How often outputs are read meanwhile."""
END_S_MAX: Final = 60.0
"""How long the end may take when no harm is done any more."""


class End(NamedTuple):
    """How a run ended."""

    states: States
    outputs: Outputs


# ---------------------------------------------------------------------------- what happens


def draw(seed: int, seconds: float = 3.0) -> Schedule:
    """Draw a schedule that both worlds can carry out. At least one feeder is killed.

    Processes keep checkpoints, so the simulated world shall: without them a node crashes instead.
    """
    drawn = generate(seed, 3, TASKS, BEARABLE, seconds, rescales_max=3, world="full")
    random = Random(seed)
    played = [one for one in drawn.incidents if one.kind in (*ORDERED, *BEARABLE)]
    incidents = [*played, Incident(round(random.uniform(0.5, seconds), 3), "feeder", seed)]
    for at, incident in enumerate(incidents):
        if incident.kind == "pause":
            who = random.choice((0, 1, 2, 4))  # neither a query, nor the driver: that is ourselves
            incidents[at] = incident._replace(other=who)
    kinds, number = {incident.kind for incident in incidents}, seed
    while not draw_settings(Random(number), kinds, small=False, seed=number).checkpoint_s:
        number += SEEDS_MAX
    return drawn._replace(seed=number, incidents=tuple(sorted(incidents)))


def words(seed: int) -> WorldTrial:
    """Count words from two feeders."""
    return WordTrial(Random(seed), TASKS, TrialSize(2, OFFSETS, 6, 0, 0))


def emits(seed: int) -> WorldTrial:
    """Answer every row; from one feeder, so that the order of rows is known."""
    return EmitTrial(Random(seed), TASKS, TrialSize(1, OFFSETS, 8, 0, 0))


# ---------------------------------------------------------------------------- the simulator


class WatchedOperator:
    """A trial that remembers how it ended."""

    def __init__(self, trial: WorldTrial) -> None:
        self.trial, self.name, self.tasks = trial, trial.name, trial.tasks
        self.feeders, self.batches, self.operator = trial.feeders, trial.batches, trial.operator
        self.end: End | None = None

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Remember, and judge."""
        self.end = End(states, outputs)
        return self.trial.judge(states, outputs)


def simulated(schedule: Schedule, trial: WorldTrial) -> tuple[End | None, Outcome]:
    """Run it in the simulator; there is no end if it did not come to one."""
    watched = WatchedOperator(trial)
    outcome = run_world(schedule, watched)
    return watched.end, outcome


# ---------------------------------------------------------------------------- real processes


@dataclass(frozen=True)
class TwinApp:
    """The rows of a trial, for feeders in processes of their own."""

    shape: Shape
    kind: Operator[Any] | Topology
    feeds: tuple[tuple[pa.RecordBatch, ...], ...]

    @classmethod
    def of(cls, trial: WorldTrial, seconds: float) -> TwinApp:
        """Spread a trial's rows over the time in which things happen."""
        feeds = tuple(tuple(batches) for batches in trial.feeders.values())
        shape = Shape(0, len(feeds), len(feeds[0]), seconds / len(feeds[0]), 0)
        return cls(shape, trial.operator(), feeds)

    def operator(self) -> Operator[Any] | Topology:
        """Give the operator."""
        return self.kind

    def batch(self, feeder: int, number: int) -> pa.RecordBatch:
        """Give a batch of a feeder."""
        return self.feeds[feeder][number]

    def to(self, feeder: int) -> str | None:
        """There is one input."""
        return None

    def read(self, op: ElasticOperator) -> pa.Table:
        """Leave that to the trial."""
        raise NotImplementedError

    def compare(self, found: pa.Table) -> Difference:
        """Leave that, too."""
        raise NotImplementedError


class RealTwin:
    """A deployment on this machine, and what is done to it."""

    def __init__(self, op: ElasticOperator, launcher: LocalLauncher, app: TwinApp) -> None:
        self.op, self.launcher = op, launcher
        self.ground = LocalGround(op, app)
        self.hits: list[str] = []
        """What was done, in its order."""
        self._stopped: dict[int, float] = {}
        """Processes that stand still: until when."""
        self._shown: list[pa.Table] = []
        self._over = threading.Event()

    def run(self, schedule: Schedule) -> End:
        """Have it all happen, and wait for the end.

        Raises:
            MeanderError: if it does not come.
        """
        self.ground.start_feeders()
        began = time.monotonic() + START_S
        reader = threading.Thread(target=self._keep_reading, name="reader", daemon=True)
        reader.start()
        try:
            for incident in schedule.incidents:
                self._tend_until(began + incident.at)
                self._do(incident)
            self._tend_until(began + schedule.seconds)
        finally:
            self._relent()
        self._order(Resume())  # whoever aborted a migration has it carried on now
        self._wait()
        self._over.set()
        reader.join()
        self._read()
        return End(_states(self.op.state_table(END_S_MAX)), _outputs(self._shown))

    # ------------------------------------------------------------------ meanwhile

    def _tend_until(self, then: float) -> None:
        while (now := time.monotonic()) < then:
            for pid in [pid for pid, until in self._stopped.items() if until <= now]:
                havoc.go_on(pid)
                del self._stopped[pid]
            self.ground.tend()
            time.sleep(0.02)

    def _keep_reading(self) -> None:
        """Read outputs all the time, from a thread of its own: a node that stands still takes long."""
        while not self._over.wait(READ_S):
            with suppress(MeanderError):  # nodes that do not answer; it is asked again
                self._read()

    def _read(self) -> None:
        if self.op.driver.deployment.topology.output().operator.output_schema is not None:
            self._shown.append(self.op.outputs())

    def _relent(self) -> None:
        for pid in self._stopped:
            havoc.go_on(pid)
        self._stopped.clear()

    # ------------------------------------------------------------------ deeds

    def _do(self, incident: Incident) -> None:
        match incident.kind:
            case "rescale":
                self._order(Rescale(incident.target, None, None, None))
            case "abort":
                self._order(Abort())
            case "resume":
                self._order(Resume())
            case "roll back":
                self._order(RollBack())
            case kind:
                self._harm(kind, incident)

    def _order(self, event: Event) -> None:
        with suppress(ProtocolError):  # nothing is under way that could be aborted, or resumed
            self.op.driver.process.command(event).result(30)

    def _harm(self, kind: str, incident: Incident) -> None:
        who = {"crash": "node", "reset": "node", "pause": STOPPED[min(incident.other, 3)]}
        victims = self._victims(who.get(kind, kind))
        if not victims:
            return
        name, pid = victims[incident.target % len(victims)]
        if kind == "pause":
            done = havoc.stop(pid)
            self._stopped[pid] = time.monotonic() + incident.seconds
        elif kind == "reset":
            done = havoc.cut(pid) > 0
        else:
            done = havoc.kill(pid)
        if done:
            self.hits.append(f"{kind} {name}")

    def _victims(self, kind: str) -> list[tuple[str, int]]:
        begins = {"node": "n", "server": "server", "feeder": "f"}[kind]
        pids = sorted(self.launcher.pids.items())
        return [(name, pid) for (name, _), pid in pids if name.startswith(begins)]

    # ------------------------------------------------------------------ the end

    def _wait(self) -> None:
        driver, end = self.op.driver, time.monotonic() + END_S_MAX
        while self.ground.tend():
            driver.check()
            if time.monotonic() > end:
                raise MeanderError(f"the feeders are not done after {END_S_MAX:.0f} s")
            time.sleep(0.02)
        driver.wait_for(driver.serving, END_S_MAX, "all tasks")
        self.op.drain(END_S_MAX)


@contextmanager
def real(trial: WorldTrial, schedule: Schedule, folder: Path) -> Iterator[RealTwin]:
    """Deploy a trial's operator on this machine, with checkpoints in a folder."""
    launcher = LocalLauncher()
    app = TwinApp.of(trial, schedule.seconds)
    with deploy_local(
        trial.operator(), TASKS, schedule.nodes, launcher=launcher, checkpoint=str(folder),
        settings=live_settings(TASKS, checkpoint_s=CHECKPOINT_S, lease_s=LEASE_S),
    ) as op:  # fmt: skip
        yield RealTwin(op, launcher, app)


def _states(table: pa.Table) -> dict[TaskId, pa.Table | None]:
    found = table.drop_columns(["node", "as_of"])
    return {task: _of(found, task) for task in range(TASKS)}


def _of(table: pa.Table, task: TaskId) -> pa.Table:
    mine = table.filter(pa.compute.equal(table["task"], task))
    return mine.drop_columns(["task"])


def _outputs(shown: Sequence[pa.Table]) -> dict[TaskId, list[tuple[int, pa.RecordBatch]]]:
    found: dict[TaskId, list[tuple[int, pa.RecordBatch]]] = {t: [] for t in range(TASKS)}
    for table in shown:
        for task in range(TASKS):
            mine = _of(table, task)
            for number in mine["number"].unique().to_pylist():
                rows = mine.filter(pa.compute.equal(mine["number"], number))
                (batch,) = rows.drop_columns(["number"]).combine_chunks().to_batches()
                found[task].append((number, batch))
    return found


# ---------------------------------------------------------------------------- both


def rows_of(states: States) -> dict[TaskId, list[tuple[str, ...]]]:
    """Give states in an order of their own, to be compared."""
    return {
        task: sorted(tuple(map(repr, row.values())) for row in (table.to_pylist() if table else ()))
        for task, table in states.items()
    }


def answers_of(outputs: Outputs) -> dict[str, list[tuple[int, int]]]:
    """Give the answers of `emits` by key, in the order in which they were shown."""
    found: dict[str, list[tuple[int, int]]] = {}
    for shown in outputs.values():
        for _, batch in sorted(shown, key=lambda pair: pair[0]):
            for row in batch.to_pylist():
                found.setdefault(row["key"], []).append((row["row"], row["n"]))
    return found
