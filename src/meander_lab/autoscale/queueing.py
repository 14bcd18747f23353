"""A deployment as queues, second by second: what the orders of a policy do to latency and nodes.

Tasks have shares of the load; a node takes the rows of its interval of tasks in order, `rate` a second.
What it cannot take waits. The latency of a second is that of its last row at the node where it is
longest: what waits there, over the rate, and what a row takes anyhow. A second is *violated* if that is
more than is promised.

A rescale is planned by the product's planner (least bytes within the cap) and takes its time:

    live      new nodes are paid from the order on; they serve when they have started and states have
              moved. Meanwhile the others take a little less, and rows of moving tasks wait a pause
    restart   nothing is taken for 6 to 24 s, as with Flink; then the new nodes serve

What a second costs is the nodes that are paid in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from meander.autoscale.signals import Floats, Signals
from meander.autoscale.split import Split
from meander.model import Assignment, Ints, Problem, Workload
from meander.planning import plan
from meander.protocol.master.targets import tau_of
from meander_lab.autoscale.traces import Trace

EVEN = 1.05
"""How much more than the best plan's the busiest node may have."""
WORK = 1_000_000
"""What the tasks' shares add up to, in whole numbers."""


@dataclass(frozen=True)
class Ground:
    """What nodes and rescales can do: as measured with the real runtime (`checked`), or assumed."""

    rate: float = 10_000.0
    """Rows a second that a node takes."""
    base_s: float = 0.02
    """What a row takes where none waits."""
    launch_s: float = 1.5
    """Until a new node serves, where a slot is free."""
    move_s: float = 0.6
    """What rounds take as such."""
    bytes_s: float = 100e6
    """How fast states leave a node, or come to it."""
    pause_s: float = 0.06
    """What rows of moving tasks wait."""
    copying: float = 0.1
    """The share of a node's time that a rescale takes while it lasts."""
    restart_s: tuple[float, float] = (6.0, 24.0)
    """What a restart takes: Flink's, at least and at most."""
    state_bytes: int = 1 << 30
    tasks: int = 128
    skew: float = 0.4
    """Of the tasks' work: the standard deviation of its logarithm."""
    nodes: tuple[int, int] = (2, 32)
    latency_ms: float = 200.0
    utilisation: float = 0.7
    pause_ms: float = 100.0

    def workload(self) -> Workload:
        """Give the work and the bytes of every task."""
        rng = np.random.default_rng(17)
        work = np.exp(rng.normal(0.0, self.skew, self.tasks))
        size = np.exp(rng.normal(0.0, self.skew, self.tasks))
        return Workload(
            (work / work.sum() * WORK).astype(np.int64),
            (size / size.sum() * self.state_bytes).astype(np.int64),
        )

    @property
    def peak_rows_s(self) -> float:
        """The load that three quarters of the most nodes just take, at the utilisation."""
        return 0.75 * self.nodes[1] * self.utilisation * self.rate / 1.05


@dataclass(frozen=True)
class Order:
    """What a policy wants: so many nodes, none with more than a share of the work."""

    nodes: int
    share_max: float | None = None
    """None: the best plan's, and a little."""


class Policy(Protocol):
    """Decides, second by second."""

    name: str
    restarts: bool
    """Whether its rescales are restarts."""

    def first(self, load: float) -> int:
        """Tell how many nodes to start with, for the load of the first second."""

    def step(self, seen: Signals) -> Order | None:
        """Take a second's signals; order a rescale, or nothing."""

    def rescaled(self, at_s: float, seconds: float, moved: int, before: int, after: int) -> None:
        """Hear of the end of a rescale."""


@dataclass
class Outcome:
    """What became of a trace under a policy."""

    violation_s: int = 0
    node_s: float = 0.0
    rescales: int = 0
    bytes: int = 0
    over_s: int = 0
    """Seconds in which the busiest node was busier than asked for."""
    latency_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Second by second."""
    nodes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class Rescale:
    """One under way."""

    target: Assignment
    began: int
    ends: int
    moves_at: int
    """From when on states move."""
    moved: int
    """Bytes."""


class Play:
    """One trace under one policy."""

    def __init__(self, ground: Ground, trace: Trace, policy: Policy, seed: int = 0) -> None:
        self.ground, self.trace, self.policy = ground, trace, policy
        self.load = ground.workload()
        self._rng = np.random.default_rng(seed)
        nodes = policy.first(float(trace.rows_s[:10].mean()))
        even = Assignment.from_intervals([(0, self.load.tasks)])
        self.split = Split(self.load.work)
        self.now = self._plan(even, Order(nodes))[0]
        self._shares = self.load.work / self.load.work.sum()
        self._moving: Rescale | None = None
        self._set(self.now)
        self._waiting = np.zeros(self.load.tasks)
        """Rows, task by task."""
        self._waits = False

    def run(self) -> Outcome:
        """Go through the trace."""
        found = Outcome(
            latency_s=np.zeros(self.trace.seconds), nodes=np.zeros(self.trace.seconds, np.int64)
        )
        for second, rows in enumerate(self.trace.rows_s.tolist()):
            self._second(second, rows, found)
        found.violation_s = int((found.latency_s > self.ground.latency_ms / 1000).sum())
        found.node_s = float(found.nodes.sum())
        return found

    # ------------------------------------------------------------------ one second

    def _second(self, second: int, rows: float, found: Outcome) -> None:
        ground, moving = self.ground, self._moving
        if moving is not None and second >= moving.ends:
            self._end(second, moving, found)
            moving = None
        rate, pause_s = ground.rate, 0.0
        if moving is not None:
            if self.policy.restarts:
                rate = 0.0
            elif second >= moving.moves_at:
                rate, pause_s = rate * (1 - ground.copying), ground.pause_s
        served, waits_s, waiting = self._serve(rows, rate)
        found.latency_s[second] = waits_s + ground.base_s + pause_s
        paid = len(self.now.nodes)
        if moving is not None:
            paid = max(paid, len(moving.target.nodes))
        found.nodes[second] = paid
        if rows * self._busiest > ground.utilisation * ground.rate:
            found.over_s += 1
        heading = None if moving is None else len(moving.target.nodes)
        seen = Signals(
            second + 1.0, len(self.now.nodes), rows, waiting, served, served / ground.rate,
            self.load.work, self.load.size, self._busiest, heading,
        )  # fmt: skip
        order = self.policy.step(seen)
        if order is not None:
            if moving is not None:
                self._replace(second + 1, moving, found)
            self._begin(second + 1, order)

    def _serve(self, rows: float, rate: float) -> tuple[Floats, float, float]:
        """Let every node take what it can; give that, how long the last row waits, and what waits."""
        if not self._waits and rows * self._busiest <= rate:
            return rows * self._node_shares, 0.0, 0.0
        tasks = self._waiting + rows * self._shares
        nodes = np.add.reduceat(tasks, self._starts)
        served = np.minimum(nodes, rate)
        left = np.divide(nodes - served, nodes, out=np.zeros_like(nodes), where=nodes > 0)
        self._waiting = tasks * np.repeat(left, self._lengths)
        longest, total = float((nodes - served).max()), float(self._waiting.sum())
        self._waits = longest > 0
        return served, longest / self.ground.rate + (1.0 if rate == 0 else 0.0), total

    # ------------------------------------------------------------------ rescales

    def _begin(self, second: int, order: Order) -> None:
        ground = self.ground
        target, moved, busiest = self._plan(self.now, order)
        launch_s = 0.0
        if len(target.nodes) > len(self.now.nodes):
            launch_s = ground.launch_s
        if self.policy.restarts:
            took = float(self._rng.uniform(*ground.restart_s))
        else:
            took = launch_s + ground.move_s + busiest / ground.bytes_s
        ends = second + max(1, round(took))
        self._moving = Rescale(target, second, ends, second + round(launch_s), moved)

    @staticmethod
    def _replace(second: int, moving: Rescale, found: Outcome) -> None:
        """Count a rescale that another replaces: it was one, and what has moved by now moves back."""
        share = (second - moving.moves_at) / max(1, moving.ends - moving.moves_at)
        found.rescales += 1
        found.bytes += round(2 * moving.moved * min(1.0, max(0.0, share)))

    def _end(self, second: int, moving: Rescale, found: Outcome) -> None:
        before = len(self.now.nodes)
        self._moving = None
        if self._waits:
            self._leave_behind(moving.target)
        self._set(moving.target)
        found.rescales += 1
        found.bytes += moving.moved
        took = second - moving.began
        self.policy.rescaled(float(second), took, moving.moved, before, len(self.now.nodes))

    def _leave_behind(self, target: Assignment) -> None:
        """Let what waits for a node wait there: it has come, and is taken in order.

        Only where a node goes do rows follow their tasks. Here those of moved tasks are counted with
        tasks that the node keeps.
        """
        before, after = self.now.owners(), target.owners()
        for i, name in enumerate(self.now.nodes):
            had = before == i
            kept = had & (after == target.nodes.index(name)) if name in target.nodes else ~had & had
            if kept.any():
                total = self._waiting[had].sum()
                self._waiting[had] = 0.0
                self._waiting[kept] = total * self._shares[kept] / self._shares[kept].sum()

    def _set(self, target: Assignment) -> None:
        self.now = target
        runs = sorted((lb, ub) for lb, ub, _ in target.runs if ub > lb)
        self._starts = np.array([lb for lb, _ in runs])
        self._lengths = np.array([ub - lb for lb, ub in runs])
        self._node_shares = np.add.reduceat(self._shares, self._starts)
        self._busiest = float(self._node_shares.max())

    def _plan(self, now: Assignment, order: Order) -> tuple[Assignment, int, int]:
        """Give the target, the bytes that move, and those at the node with most of them."""
        most = order.share_max or EVEN * self.split.share(order.nodes)
        tau = tau_of(most, order.nodes)
        fresh = [f"x{self._rng.integers(1 << 40)}" for _ in range(order.nodes)]
        problem = Problem(self.load, now, order.nodes, tau, new_nodes=fresh)
        found = plan(problem, "ssm", relax=True)
        sums: Counter[str] = Counter()
        for task, old, new, *_ in found.moves:
            for node in (f"from {old}", f"to {new}"):
                sums[node] += int(self.load.size[task])
        return found.target, found.cost, max(sums.values(), default=0)


def play(ground: Ground, trace: Trace, make: Callable[[Trace], Policy], seed: int = 0) -> Outcome:
    """Let a policy go through a trace."""
    return Play(ground, trace, make(trace), seed).run()
