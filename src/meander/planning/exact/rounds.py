"""In which steps to carry a plan out: rounds (the paper's mini-migrations, Section 3).

While a task moves, its new tuples wait. Moving everything at once makes everything wait for the
whole transfer; a round moves a little, so that the wait stays below what the caller allows.

Limits of a round (each optional, all kept together)
  tasks_max   so many tasks
  bytes_max   so many bytes
  pause       a pause budget: the busiest link passes its bytes, `makespan / bandwidth + overhead`,
              within so many milliseconds (`phases` shows that this time is reached exactly)
A task that is larger than bytes_max or than the budget moves alone: its round is `oversized`.

Memory
  No assignment between two rounds makes a node hold more than the memory cap. In general even more
  is kept: what leaves a node in a round makes room there only in the next round, because the old
  owner keeps a frozen copy until the new one has installed the state. Where nothing moves on these
  terms, `gridlock` looks for an exchange (its round says so) or for a node to park a task on.
  A node that the *plan* fills beyond the cap (hashing baselines do) may be filled that far; a node
  that is over the cap now receives nothing before it has shrunk.

Priority
  1. The next move is one of the node that has the most work at that point: overloaded nodes are
     relieved first. A node's tasks leave in ascending order, which keeps the runs few.
  2. A move that would lift its target above the busiest node (now or in the target) is put off
     while any other move is possible, unless the round ends the migration.
  3. A move that does not fit any more is passed over; smaller ones of less priority may enter.

Invariant: each round puts at least one task where it belongs, or parks one so that the next can.

Complexity: a round costs O(m + k log k) for k waiting moves, on arrays. Every round begins from
where things stand: `rounds` is `next_round` repeated, and a controller that learns the true
bandwidth calls `next_round` itself, with new limits each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np

from meander.errors import InputError
from meander.model import Assignment, Ints, Move, NodeId, Plan, Round, Run, exact_tau
from meander.planning.exact.gridlock import exchange, parking
from meander.planning.exact.phases import Hosts, host_of

NO_LIMIT = 2**62
"""More than all bytes or tasks together (`model.TOTAL_MAX`)."""


@dataclass(frozen=True, slots=True)
class PauseBudget:
    """How long tuples may wait in a round, and how fast a link is.

    >>> PauseBudget(budget_ms=100, bandwidth=10**9, overhead_ms=20).link_bytes_max
    80000000
    """

    budget_ms: float
    bandwidth: float
    """Bytes a second over one link."""
    overhead_ms: float = 0.0
    """What a round costs apart from its transfers: publish, freeze, install."""

    def __post_init__(self) -> None:
        if not (0 < self.budget_ms < inf and 0 < self.bandwidth < inf and self.overhead_ms >= 0):
            raise InputError("a pause budget needs pause > 0, bandwidth > 0 and overhead >= 0")
        if self.budget_ms <= self.overhead_ms:
            raise InputError(
                f"a pause of {self.budget_ms} ms leaves no time to move anything: "
                f"the overhead of a round alone is {self.overhead_ms} ms"
            )

    @property
    def link_bytes_max(self) -> int:
        """The most bytes that the busiest link may pass in a round."""
        time_ms = exact_tau(self.budget_ms) - exact_tau(self.overhead_ms)
        return int(time_ms * exact_tau(self.bandwidth) / 1000)

    def predict_ms(self, makespan: int) -> float:
        """Predict the pause of a round whose busiest link passes so many bytes."""
        transfer_ms = Fraction(makespan * 1000) / exact_tau(self.bandwidth)
        return float(transfer_ms + exact_tau(self.overhead_ms))


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """What one round may do at most. None is no limit."""

    tasks_max: int | None = None
    bytes_max: int | None = None
    pause: PauseBudget | None = None

    def __post_init__(self) -> None:
        for name in ("tasks_max", "bytes_max"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} of a round must be at least 1, not {value}")

    def as_numbers(self) -> tuple[int, int, int]:
        """Give the most tasks, the most bytes, and the most bytes over one link."""
        link_max = NO_LIMIT if self.pause is None else self.pause.link_bytes_max
        return self.tasks_max or NO_LIMIT, self.bytes_max or NO_LIMIT, min(link_max, NO_LIMIT)


def rounds(
    plan: Plan, limits: RoundLimits | None = None, hosts: Hosts | None = None
) -> tuple[Round, ...]:
    """Split a plan into rounds that lead from its current assignment to its target.

    No moves, no rounds. The epochs of the rounds count on from the current assignment's.

    Raises:
        DeadlockError: if full nodes wait for each other and no round within the limits helps.

    >>> from meander.model import Problem, Workload
    >>> now = Assignment.from_intervals([(0, 13), (13, 20)])
    >>> then = Assignment.from_intervals({"n1": (0, 9), "n3": (9, 13), "n2": (13, 20)})
    >>> plan = Plan(Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5"), then, "ssm")
    >>> [[move.task for move in r.moves] for r in rounds(plan, RoundLimits(tasks_max=3))]
    [[9, 10, 11], [12]]
    """
    load, problem = plan.problem.workload, plan.problem
    course = _Course(
        problem.current, plan.target, load.size, load.work, problem.memory_cap, hosts
    )  # fmt: skip
    return tuple(course.run(limits or RoundLimits()))


def next_round(
    current: Assignment,
    target: Assignment,
    sizes: Ints,
    loads: Ints,
    limits: RoundLimits,
    memory_cap: int | None = None,
    hosts: Hosts | None = None,
) -> Round:
    """Give the next round on the way from one assignment to another.

    When every task is where it belongs the round is empty; publishing it changes only who is a
    member.

    Args:
        current: where things stand now; also the result of earlier rounds.
        target: where they shall be.
        sizes: bytes of every task.
        loads: work of every task.
        limits: what this round may do.
        memory_cap: most bytes on one node.
        hosts: the host of each node where nodes share links; moves within a host use those of their
            nodes alone.

    Raises:
        DeadlockError: if full nodes wait for each other and no round within the limits helps.
    """
    if not current.tasks == target.tasks == len(sizes) == len(loads):
        raise InputError("current, target, sizes and loads speak of different numbers of tasks")
    return _Course(current, target, sizes, loads, memory_cap, hosts).step(limits)


class _Course:
    """Where things stand on the way to a target. Mutable; `step` is the only way forward."""

    nodes: tuple[NodeId, ...]
    """All that are members before or after; the arrays below speak of their positions here."""

    def __init__(
        self,
        current: Assignment,
        target: Assignment,
        sizes: Ints,
        loads: Ints,
        memory_cap: int | None,
        hosts: Hosts | None,
    ) -> None:
        self.target, self.epoch = target, current.epoch
        self.sizes, self.loads = sizes, loads
        self.nodes = (*target.nodes, *(n for n in current.nodes if n not in set(target.nodes)))
        place = {node: i for i, node in enumerate(self.nodes)}
        self.now = np.array([place[n] for n in current.nodes], dtype=np.int64)[current.owners()]
        self.then = np.array([place[n] for n in target.nodes], dtype=np.int64)[target.owners()]
        self.held, self.load = self._per_node(self.now, sizes), self._per_node(self.now, loads)
        cap = NO_LIMIT if memory_cap is None else min(memory_cap, NO_LIMIT)
        self.caps = np.maximum(cap, self._per_node(self.then, sizes))
        self.busiest_then = int(self._per_node(self.then, loads).max())
        names = [host_of(node, hosts) for node in self.nodes]
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self.links = np.array([number[name] for name in names], dtype=np.int64)

    def run(self, limits: RoundLimits) -> Iterator[Round]:
        """Go all the way."""
        while not np.array_equal(self.now, self.then):
            yield self.step(limits)

    def step(self, limits: RoundLimits) -> Round:
        """Choose the moves of the next round and make them."""
        waiting = np.flatnonzero(self.now != self.then)
        chosen, oversized = self._admit(waiting, limits)
        tasks, targets, swap = waiting[chosen], self.then[waiting[chosen]], False
        if len(waiting) and not len(tasks):
            tasks, targets, swap = self._break_gridlock(waiting, limits)
        return self._move(tasks, targets, oversized, swap)

    def _admit(self, waiting: Ints, limits: RoundLimits) -> tuple[Ints, bool]:
        """Choose by priority what fits: positions in `waiting`, and whether it is oversized."""
        from meander.planning.kernels.rounds import sweep

        size, work = self.sizes[waiting], self.loads[waiting]
        source, target = self.now[waiting], self.then[waiting]
        up, down = self.links[source], self.links[target]
        local, hosts = up == down, int(self.links.max()) + 1
        up, down = np.where(local, hosts + source, up), np.where(local, hosts + target, down)
        order = _by_priority(source, work, self.load)
        chosen, used = np.zeros(len(waiting), dtype=np.bool_), np.zeros(2, dtype=np.int64)
        sent, received = np.zeros((2, hosts + len(self.nodes)), dtype=np.int64)
        ceiling = max(int(self.load.max()), self.busiest_then)
        first = (order, size, work, source, target, up, down)
        state = (chosen, used, self.caps - self.held, self.load.copy(), ceiling, sent, received)
        oversized = sweep(*first, *state, *limits.as_numbers(), True)
        careful = np.flatnonzero(chosen)
        if oversized or len(careful) == len(waiting):
            return careful, bool(oversized)
        oversized = sweep(*first, *state, *limits.as_numbers(), False)
        every = np.flatnonzero(chosen)
        ends = len(every) == len(waiting)
        return (every, bool(oversized)) if ends or not len(careful) else (careful, False)

    def _break_gridlock(self, waiting: Ints, limits: RoundLimits) -> tuple[Ints, Ints, bool]:
        """Find tasks, their targets, and whether full nodes swap."""
        order = waiting[_by_priority(self.now[waiting], self.loads[waiting], self.load)]
        room = self.caps - self.held
        swap = exchange(
            order, self.sizes, self.now, self.then, room, self.links, limits.as_numbers()
        )
        if len(swap):
            return swap, self.then[swap], True
        tasks, host = parking(
            order, self.sizes, self.now, self.then, room, limits.as_numbers(), self.nodes
        )  # fmt: skip
        return tasks, np.full(len(tasks), host), False

    def _move(self, tasks: Ints, targets: Ints, oversized: bool, swap: bool) -> Round:
        """Let tasks change their owners and say so in a round."""
        sources, sizes = self.now[tasks], self.sizes[tasks]
        for amount, change in ((self.held, sizes), (self.load, self.loads[tasks])):
            np.subtract.at(amount, sources, change)
            np.add.at(amount, targets, change)
        self.now[tasks] = targets
        self.epoch = self.epoch.next()
        columns = zip(
            tasks.tolist(), sources.tolist(), targets.tolist(), sizes.tolist(), strict=True
        )
        moves = tuple(Move(t, self.nodes[a], self.nodes[b], size) for t, a, b, size in columns)
        return Round(moves, self._assignment(), oversized, swap)

    def _assignment(self) -> Assignment:
        """Say who owns what now."""
        cuts = np.flatnonzero(self.now[1:] != self.now[:-1]) + 1
        lbs = np.concatenate(([0], cuts))
        owners = [self.nodes[i] for i in self.now[lbs].tolist()]
        ubs = [*cuts.tolist(), len(self.now)]
        runs = tuple(map(Run, lbs.tolist(), ubs, owners))
        if runs == self.target.runs:
            return self.target.at(self.epoch)
        return Assignment(len(self.now), runs, self.nodes, self.epoch)

    def _per_node(self, owners: Ints, values: Ints) -> Ints:
        result = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(result, owners, values)  # bincount would add in floating point
        return result


def _by_priority(source: Ints, work: Ints, load: Ints) -> Ints:
    """Order moves so that each is one of the node with the most work when its turn comes.

    A node's k-th move gets the node's work less that of its first k-1 moves as its rank; ranks
    fall along each node's moves, so sorting by rank is the same as asking before every move.
    Moves of equal rank go in ascending order of tasks.
    """
    grouped = np.argsort(source, kind="stable")
    gone = np.cumsum(work[grouped]) - work[grouped]
    starts = np.flatnonzero(np.diff(source[grouped], prepend=-1))
    lengths = np.diff(np.append(starts, len(source)))
    rank = np.empty(len(source), dtype=np.int64)
    rank[grouped] = load[source[grouped]] - (gone - np.repeat(gone[starts], lengths))
    return np.argsort(-rank, kind="stable")
