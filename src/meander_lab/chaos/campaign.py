"""Load, rescales and harm under a seed; at the end every result is compared with a plain count.

The seed decides the stream and the order of what is done; when it happens is up to the machine. So a
seed that failed does the same things again, though not at the very same moments.

Recovery is measured from the kill of a node to the moment at which all tasks that it owned are served
again, by others or by its successor. If that one is harmed before, it is one long recovery. What a node
or a state server that stands still has, nobody else may have before its lease is over: recoveries
beside which none did are also told apart (`undisturbed`).
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, NamedTuple, Protocol

import psutil

from meander.errors import MeanderError
from meander.model import TaskId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.messages import Rescale
from meander.runtime.driver.elastic import ElasticOperator
from meander_lab.chaos import havoc
from meander_lab.chaos.load import ChaosApp, Difference

STEP_S = (0.1, 1.0)
"""Between two things that are done."""
STOP_S = (0.3, 1.0, 3.0, 15.0)
"""How long a process stands still; the last is longer than a lease, with its margin."""
FULL_S = (0.5, 2.0)
STORY_EVENTS = 60
"""Are told when something goes wrong."""
STILL_S_MAX = 300.0
"""How long nothing may happen when nothing is harmed any more and feeders have not finished."""

KILLED = {
    "node": "nodes killed", "server": "state servers killed", "feeder": "feeders killed",
    "query": "sink workers killed",
}  # fmt: skip

Say = Callable[[str], None]


class ChaosOptions(NamedTuple):
    """What shall be done."""

    seconds: float = 120.0
    seed: int = 7
    nodes_max: int = 5
    executors: bool = False
    """Whether executors may be killed: there is more than one."""
    seats: bool = False
    """Whether the Spark workers that hold the nodes' slots may be killed, too."""
    kills_per_minute: float | None = None
    """How many there shall be, in the long run; None: as `STEP_S` has it."""


class ChaosGround(Protocol):
    """Where the deployment runs."""

    senders: str
    """The kind of peers that send rows: `feeder`, or `query` for the workers of a sink."""
    restarts: int
    """How often a feeder or a query was started again."""

    @property
    def op(self) -> ElasticOperator:
        """What runs there."""

    def start_feeders(self) -> None:
        """Begin the stream."""

    def tend(self) -> int:
        """Start feeders again that have died; give how many have not finished."""

    def seats(self) -> dict[str, int]:
        """Tell the pids of the Spark workers that hold the slots of nodes; none without Spark."""

    def find(self, address: str) -> int | None:
        """Find the process that listens on `host:port`; None if there is none that we may see."""


class Victim(NamedTuple):
    """A process that could be harmed."""

    kind: str
    name: str
    incarnation: int
    pid: int


class Loss(NamedTuple):
    """A node that was killed."""

    name: str
    incarnation: int
    tasks: frozenset[TaskId]
    at: float


class Recovery(NamedTuple):
    """A loss that is over."""

    seconds: float
    disturbed: bool
    """Whether a node or a state server stood still meanwhile."""


class Campaign:
    """One run of chaos."""

    def __init__(
        self,
        ground: ChaosGround,
        app: ChaosApp,
        disk: havoc.HavocDisk,
        wish: ChaosOptions,
        say: Say,
    ) -> None:
        self.ground, self.app, self.disk, self.wish, self.say = ground, app, disk, wish, say
        self.op, self.driver = ground.op, ground.op.driver
        self.done: Counter[str] = Counter()
        """What was done, by kind."""
        self.recoveries: list[Recovery] = []
        self.unfinished = 0
        self._chance = random.Random(wish.seed)
        self._lost: list[Loss] = []
        """Nodes that were killed, and whose tasks are not known to be served again."""
        self._stands: list[tuple[float, float]] = []
        """From when to when nodes and state servers were to stand still."""
        self._stopped: dict[int, float] = {}
        """Processes that stand still: until when."""
        self._full_until = 0.0
        self._processes: dict[tuple[str, int, str], psutil.Process] = {}
        """Processes that were found; each knows its hour of birth, as numbers come again."""
        self._over = threading.Event()

    # ------------------------------------------------------------------ the run

    def run(self) -> dict[str, Any]:
        """Do it all, and tell what came of it."""
        trouble, difference, began = "", Difference(0, 0, 0), time.monotonic()
        watch = threading.Thread(target=self._watch, name="recovery", daemon=True)
        watch.start()
        try:
            self.ground.start_feeders()
            self._harm()
            self._drain()
            self.say("comparing with a plain count …")
            difference = self.app.compare(self.op.state_table(60.0))
        except MeanderError as error:
            trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
            for line in self._story():
                self.say(line)
        finally:
            self._relent()
            self._over.set()
            watch.join(5.0)
        return self._report(difference, trouble, time.monotonic() - began)

    def _harm(self) -> None:
        deeds = {
            self._rescale: 30, self._kill_node: 20, self._kill_two: 6, self._kill_server: 8,
            self._kill_sender: 10, self._kill_executor: 6 if self.wish.executors else 0,
            self._stop: 14, self._cut: 10, self._fill: 6,
            self._kill_seat: 6 if self.wish.seats else 0,
        }  # fmt: skip
        kills = sum(n for deed, n in deeds.items() if deed.__name__.startswith("_kill"))
        pace = self._pace(kills / sum(deeds.values()))
        end = time.monotonic() + self.wish.seconds
        while time.monotonic() < end:
            (deed,) = self._chance.choices(list(deeds), list(deeds.values()))
            deed()
            pause = time.monotonic() + pace * self._chance.uniform(*STEP_S)
            while time.monotonic() < min(pause, end):
                time.sleep(0.02)
                self._tend()

    def _pace(self, kills_per_deed: float) -> float:
        """Tell how much longer than usual the steps between deeds are."""
        wish = self.wish.kills_per_minute
        return 1.0 if wish is None else 60 * kills_per_deed / wish / statistics.mean(STEP_S)

    def _tend(self) -> None:
        """Let those go on whose time is over; start feeders again that were killed."""
        now = time.monotonic()
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            havoc.go_on(pid)
            del self._stopped[pid]
        if self._full_until and self._full_until <= now:
            self.disk.free()
            self._full_until = 0.0
        self.unfinished = self.ground.tend()
        self.driver.check()

    def _relent(self) -> None:
        """Harm nobody any more."""
        for pid in self._stopped:
            havoc.go_on(pid)
        self._stopped.clear()
        self.disk.free()
        self._full_until = 0.0

    def _drain(self) -> None:
        """Wait for the feeders; as long as rows are applied there is hope."""
        self._relent()
        rows, end = -1, time.monotonic() + STILL_S_MAX
        while self.ground.tend():
            self.driver.check()
            now = int(self.op.metrics()["rows"])
            if now != rows:
                rows, end = now, time.monotonic() + STILL_S_MAX
            if time.monotonic() > end:
                raise MeanderError(f"no row was applied for {STILL_S_MAX:.0f} s, with no harm done")
            time.sleep(0.2)
        self.driver.wait_for(self.driver.serving, STILL_S_MAX, "all tasks")
        self.op.drain(STILL_S_MAX)

    # ------------------------------------------------------------------ deeds

    def _victims(self, kind: str) -> list[Victim]:
        def find(master: Master) -> list[tuple[str, int, str]]:
            return [
                (p.id, p.incarnation, p.address)
                for p in master.membership.peers.values()
                if p.kind == kind and p.status is not Status.GONE and p.address
            ]

        found = []
        for name, incarnation, address in sorted(self.driver.process.call(find).result(30)):
            pid = self._pid(name, incarnation, address)
            if pid is not None and pid != os.getpid():
                found.append(Victim(kind, name, incarnation, pid))
        return found

    def _pid(self, name: str, incarnation: int, address: str) -> int | None:
        """Find a process, once: to look for it costs the driver time that its master needs."""
        key = name, incarnation, address
        if key not in self._processes:
            pid = self.ground.find(address)
            if pid is None:
                return None
            try:
                self._processes[key] = psutil.Process(pid)
            except psutil.NoSuchProcess:
                return None
        process = self._processes[key]
        return process.pid if process.is_running() else None  # not if another has its number now

    def _rescale(self) -> None:
        nodes = self._chance.randint(1, self.wish.nodes_max)
        tasks_max = self._chance.choice((None, 1, 3))
        pause_ms = self._chance.choice((None, 50.0))
        self.driver.process.command(Rescale(nodes, pause_ms, tasks_max, None)).result(30)
        self._note("rescales", f"rescale to {nodes}")

    def _kill_node(self) -> None:
        self._kill("node")

    def _kill_server(self) -> None:
        self._kill("server")

    def _kill_sender(self) -> None:
        self._kill(self.ground.senders)

    def _kill_two(self) -> None:
        self._kill("node")
        self._kill(self._chance.choice(("node", "server", self.ground.senders)))

    def _kill(self, kind: str) -> None:
        choice = self._chance.random()
        found = self._victims(kind)
        if found:
            victim = found[int(choice * len(found))]
            if kind == "node":
                self._losing([victim])
            if havoc.kill(victim.pid):
                self._note("kills", f"kill {victim.name}", KILLED[kind])

    def _kill_seat(self) -> None:
        choice, found = self._chance.random(), self._victims("node")
        if found:
            victim = found[int(choice * len(found))]
            seat = self.ground.seats().get(victim.name)
            if seat is not None:
                self._losing([victim])
                havoc.kill(seat)
                self._note("kills", f"kill the seat of {victim.name}", "seats killed")

    def _kill_executor(self) -> None:
        choice, found = self._chance.random(), self._victims("node")
        if found:
            victim = found[int(choice * len(found))]
            java = _executor(victim)
            if java is not None:
                self._losing([other for other in found if _executor(other) == java])
                havoc.kill(java)
                self._note("kills", f"kill the executor of {victim.name}", "executors killed")

    def _stop(self) -> None:
        choice, seconds = self._chance.random(), self._chance.choice(STOP_S)
        found = [v for kind in ("node", "server", self.ground.senders) for v in self._victims(kind)]
        if found:
            victim = found[int(choice * len(found))]
            if victim.pid not in self._stopped and havoc.stop(victim.pid):
                now = time.monotonic()
                self._stopped[victim.pid] = now + seconds
                if victim.kind != self.ground.senders:
                    self._stands.append((now, now + seconds))
                self._note("stops", f"stop {victim.name} for {seconds} s")

    def _cut(self) -> None:
        choice = self._chance.random()
        found = [v for kind in ("node", "server", self.ground.senders) for v in self._victims(kind)]
        if found:
            victim = found[int(choice * len(found))]
            count = havoc.cut(victim.pid)
            self.done["connections cut"] += count
            self._note("cuts", f"cut {count} connections of {victim.name}")

    def _fill(self) -> None:
        seconds = self._chance.uniform(*FULL_S)
        if not self._full_until and self.disk.fill():
            self._full_until = time.monotonic() + seconds
            self._note("disk_full", f"fill the disk for {seconds:.1f} s")

    def _note(self, what: str, text: str, detail: str = "") -> None:
        self.done[what] += 1
        if detail:
            self.done[detail] += 1
        self.say(text)

    # ------------------------------------------------------------------ recovery

    def _losing(self, victims: list[Victim]) -> None:
        """Remember which tasks will be without an owner."""
        owners = self.driver.owners()
        for victim in victims:
            tasks = frozenset(t for t, owner in enumerate(owners) if owner == victim.name)
            if tasks:
                self._lost.append(Loss(victim.name, victim.incarnation, tasks, time.monotonic()))

    def _watch(self) -> None:
        """Look when they are served again."""
        while not self._over.wait(0.03):
            if not self._lost:
                continue
            try:
                over = self.driver.process.call(self._recovered).result(10)
            except (RuntimeError, TimeoutError):
                continue
            for loss in over:
                now = time.monotonic()
                stood = any(begin < now and loss.at < end for begin, end in self._stands)
                self.recoveries.append(Recovery(now - loss.at, stood))
                self._lost.remove(loss)

    def _recovered(self, master: Master) -> list[Loss]:
        ledger, peers = master.ledger, master.membership.peers

        def served(task: TaskId, loss: Loss) -> bool:
            owner = peers.get(ledger.owner[task])
            dead = owner is None or (owner.id, owner.incarnation) == (loss.name, loss.incarnation)
            return task not in ledger.chain and not dead

        return [x for x in list(self._lost) if all(served(task, x) for task in x.tasks)]

    def _story(self) -> Iterator[str]:
        """Tell what is known of a deployment that did not get on."""
        yield f"status: {self.op.status()}"
        for at, what, facts in self.driver.events[-STORY_EVENTS:]:
            yield f"  {at - time.monotonic():8.1f} s  {what} {dict(facts)}"[:300]
        for ended in self.driver.exits[-STORY_EVENTS:]:
            yield f"  ended: {ended.name}/{ended.incarnation} {ended.reason.value}, {ended.detail}"

    def _report(self, found: Difference, trouble: str, seconds: float) -> dict[str, Any]:
        times = sorted(recovery.seconds for recovery in self.recoveries)
        alone = sorted(found.seconds for found in self.recoveries if not found.disturbed)
        self.done["senders started again"] = self.ground.restarts
        details = {k: v for k, v in sorted(self.done.items()) if " " in k}
        return {
            "seed": self.wish.seed,
            "seconds": round(seconds, 1),
            **{k: self.done[k] for k in ("kills", "stops", "cuts", "disk_full", "rescales")},
            "rows": found.rows,
            "exact": not trouble and found.exact,
            "lost": found.lost,
            "duplicated": found.duplicated,
            "recoveries": len(times),
            **{f"recovery_{name}": value for name, value in _shares(times).items()},
            "undisturbed": {"recoveries": len(alone), **_shares(alone)},
            "details": details,
            "trouble": trouble,
        }


def _shares(times: list[float]) -> dict[str, float | None]:
    """Tell within how many seconds half, 99 of 100 and all were over; of times that ascend.

    >>> _shares([0.5, 1.0, 4.0])
    {'s_p50': 1.0, 's_p99': 4.0, 's_max': 4.0}
    """
    if not times:
        return {"s_p50": None, "s_p99": None, "s_max": None}
    found = statistics.median(times), times[ceil(0.99 * len(times)) - 1], times[-1]
    return {name: round(t, 3) for name, t in zip(("s_p50", "s_p99", "s_max"), found, strict=True)}


def _executor(victim: Victim) -> int | None:
    """Find the executor that a process lives in."""
    return next((pid for pid, command in havoc.ancestors(victim.pid) if command == "java"), None)
