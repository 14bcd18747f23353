"""Load, rescales and harm under a seed; at the end every result is compared with a plain count.

The seed decides the stream and the order of what is done; when it happens is up to the machine. So a
seed that failed does the same things again, though not at the very same moments. How long the tasks of
nodes that were killed are not served is measured beside it (`recovery`).
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import psutil

from meander.errors import MeanderError
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.messages import Rescale
from meander.runtime.driver.elastic import ElasticOperator
from meander_lab.chaos import havoc
from meander_lab.chaos.load import ChaosApp, Difference
from meander_lab.chaos.recovery import Loss, Recoveries

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
Deeds = dict[Callable[[], None], int]


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

    @property
    def restarts(self) -> int:
        """How often a feeder or a query was started again."""

    @property
    def op(self) -> ElasticOperator:
        """What runs there."""

    def start_feeders(self) -> None:
        """Begin the stream."""

    def tend(self) -> int:
        """Start feeders again that have died; give how many (or how much of their work) is left."""

    def seats(self) -> dict[str, int]:
        """Tell the pids of the Spark workers that hold the slots of nodes; none without Spark."""

    def find(self, address: str) -> int | None:
        """Find the process that listens on `host:port`; None if there is none that we may see."""

    def executors(self) -> int:
        """Count the executors that are there; those of one's own alone."""


class Victim(NamedTuple):
    """A process that could be harmed."""

    kind: str
    name: str
    incarnation: int
    pid: int


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
        self.recoveries = Recoveries(self.driver.process)
        self.unfinished = 0
        self._chance = random.Random(wish.seed)
        self._stopped: dict[int, float] = {}
        """Processes that stand still: until when."""
        self._full_until = 0.0
        self._processes: dict[tuple[str, int, str], psutil.Process] = {}
        """Processes that were found; each knows its hour of birth, as numbers come again."""

    # ------------------------------------------------------------------ the run

    def run(self) -> dict[str, Any]:
        """Do it all, and tell what came of it."""
        trouble, difference, began = "", Difference(0, 0, 0), time.monotonic()
        try:
            with self.recoveries:
                self.ground.start_feeders()
                self._harm()
                self._drain()
            self.say("comparing with a plain count …")
            difference = self._difference()
        except MeanderError as error:
            trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
            for line in self._story():
                self.say(line)
        finally:
            self._relent()
        return self._report(difference, trouble, time.monotonic() - began)

    def _difference(self) -> Difference:
        """Compare what came of it with a plain count."""
        return self.app.compare(self.app.read(self.op))

    def _deeds(self) -> Deeds:
        """Tell what may be done, and how often in proportion."""
        return {
            self._rescale: 30, self._kill_node: 20, self._kill_two: 6, self._kill_server: 8,
            self._kill_sender: 10, self._kill_executor: 6 if self.wish.executors else 0,
            self._stop: 14, self._cut: 10, self._fill: 6,
            self._kill_seat: 6 if self.wish.seats else 0,
        }  # fmt: skip

    def _harm(self) -> None:
        deeds = self._deeds()
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
        """Wait for all that is to come; as long as rows are applied, or less is left, there is hope."""
        self._relent()
        seen, end = (-1, -1), time.monotonic() + STILL_S_MAX
        while left := self.ground.tend():
            self.driver.check()
            now = int(self.op.metrics()["rows"]), left
            if now != seen:
                seen, end = now, time.monotonic() + STILL_S_MAX
            if time.monotonic() > end:
                raise MeanderError(
                    f"no row was applied for {STILL_S_MAX:.0f} s, with no harm done: {now[0]} were, "
                    f"and {left} feeders or outputs are left"
                )
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
                self._losing([victim], f"kill {victim.name}")
            if havoc.kill(victim.pid):
                self._note("kills", f"kill {victim.name}", KILLED[kind])

    def _kill_seat(self) -> None:
        choice, found = self._chance.random(), self._victims("node")
        if found:
            victim = found[int(choice * len(found))]
            seat = self.ground.seats().get(victim.name)
            if seat is not None:
                how = f"kill the seat of {victim.name}"
                self._losing([victim], how)
                havoc.kill(seat)
                self._note("kills", how, "seats killed")

    def _kill_executor(self) -> None:
        choice, found = self._chance.random(), self._victims("node")
        if found:
            victim = found[int(choice * len(found))]
            java = _executor(victim)
            if java is not None:
                how = f"kill the executor of {victim.name}"
                last = self.ground.executors() <= 1
                lost = [other for other in found if _executor(other) == java]
                self._losing(lost, f"{how}, the last" if last else how, last=last)
                havoc.kill(java)
                if last:
                    self.done["last executors killed"] += 1
                self._note("kills", how, "executors killed")

    def _stop(self) -> None:
        choice, seconds = self._chance.random(), self._chance.choice(STOP_S)
        found = [v for kind in ("node", "server", self.ground.senders) for v in self._victims(kind)]
        if found:
            victim = found[int(choice * len(found))]
            if victim.pid not in self._stopped and havoc.stop(victim.pid):
                self._stopped[victim.pid] = time.monotonic() + seconds
                if victim.kind != self.ground.senders:
                    self.recoveries.stands(seconds)
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

    def _losing(self, victims: list[Victim], how: str, *, last: bool = False) -> None:
        """Remember which tasks will be without an owner."""
        owners, epoch = self.driver.ask(lambda m: (tuple(m.ledger.owner), m.epoch))
        now = time.monotonic()
        for name, incarnation in ((victim.name, victim.incarnation) for victim in victims):
            tasks = frozenset(task for task, owner in enumerate(owners) if owner == name)
            self.recoveries.add(Loss(how, name, incarnation, tasks, epoch, now, last=last))

    # ------------------------------------------------------------------ what came of it

    def _story(self) -> Iterator[str]:
        """Tell what is known of a deployment that did not get on."""
        yield f"status: {self.op.status()}"
        for at, what, facts in self.driver.events[-STORY_EVENTS:]:
            yield f"  {at - time.monotonic():8.1f} s  {what} {dict(facts)}"[:300]
        for ended in self.driver.exits[-STORY_EVENTS:]:
            yield f"  ended: {ended.name}/{ended.incarnation} {ended.reason.value}, {ended.detail}"

    def _report(self, found: Difference, trouble: str, seconds: float) -> dict[str, Any]:
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
            **self.recoveries.report(),
            "details": details,
            "trouble": trouble,
        }


def _executor(victim: Victim) -> int | None:
    """Find the executor that a process lives in."""
    return next((pid for pid, command in havoc.ancestors(victim.pid) if command == "java"), None)
