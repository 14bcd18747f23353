"""The vocabulary: small frozen values that planner, protocol, runtime and command line share.

Here: tasks, intervals, runs, assignments with their epoch, workloads, problems, plans, rounds.
Not here: how a plan is found (`planning`), how it is carried out (`protocol`).

Conventions
  * Tasks are `0 … m-1`; an interval is half-open `[lb, ub)`; boundaries are `0 … m`.
  * Work and bytes are whole numbers (int64), so that every comparison with a cap is exact.
  * "n nodes" means *at most* n non-empty intervals: a node may be idle.
  * τ is the paper's Definition in Section 4.1: `load ≤ (1+τ)·W/n`, as an exact fraction.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from meander.errors import InputError

NAME_CHARS_MAX = 512
"""Ids, addresses, keys of the store."""
ITEMS_MAX = 2_000_000
"""In one list."""

_T = TypeVar("_T")
Int: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number of 64 bits. These are limits on what comes off a wire."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Many: TypeAlias = Annotated[tuple[_T, ...], Meta(max_length=ITEMS_MAX)]
TaskId: TypeAlias = Int
NodeId: TypeAlias = Name
Ints: TypeAlias = npt.NDArray[np.int64]

TASKS_MAX = 2**31 - 1
"""A task is `((hash >>> 32) * m) >>> 32` in 64-bit arithmetic: beyond this the product wraps."""

TOTAL_MAX = 2**62
TAU_MAX = Fraction(sys.float_info.max)
"""Plans tell τ as a float."""
POWER_MAX = 400
"""Of ten, in a text."""
"""Largest sum of work or of bytes: twice it still fits into int64, so kernels cannot overflow."""


class Epoch(NamedTuple):
    """The number of an assignment. A new generation (a new driver) outranks every old number.

    >>> Epoch(1, 0) > Epoch(0, 99)
    True
    >>> str(Epoch(2, 7).next())
    '2.8'
    """

    generation: Count
    number: Count

    def next(self) -> Epoch:
        """Give the epoch after this one."""
        return Epoch(self.generation, self.number + 1)

    def __str__(self) -> str:
        return f"{self.generation}.{self.number}"


ZERO_EPOCH = Epoch(0, 0)


class Interval(NamedTuple):
    """Tasks `lb … ub-1`; empty when `lb == ub`."""

    lb: int
    ub: int

    def __str__(self) -> str:
        return f"[{self.lb}, {self.ub})"


class Run(NamedTuple):
    """An interval with its owner: one entry of a routing table."""

    lb: Int
    ub: Int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who owns which tasks, as a short list of runs.

    In a finished plan every node owns one interval. Between two rounds of a migration, or under
    consistent hashing, a node may own several runs; an idle node owns none.

    The constructor trusts its caller; `from_intervals`, `from_owners` and `from_runs` check.

    >>> a = Assignment.from_intervals({"n1": (0, 13), "n2": (13, 20)})
    >>> a.owner(13), a.tasks, a.intervals()["n1"]
    ('n2', 20, Interval(lb=0, ub=13))
    """

    tasks: Int
    """m, the number of tasks."""
    runs: Many[Run]
    """Non-empty, ascending, adjacent, covering `[0, tasks)`; neighbours have different owners."""
    nodes: Many[NodeId]
    """All members, idle ones included, each once. In a plan: in the order of their intervals."""
    epoch: Epoch = ZERO_EPOCH

    @classmethod
    def from_intervals(
        cls,
        intervals: Mapping[NodeId, tuple[int, int]] | Sequence[tuple[int, int]],
        tasks: int | None = None,
        epoch: Epoch = ZERO_EPOCH,
    ) -> Assignment:
        """Build from one `[lb, ub)` per node; a bare list names its nodes n1, n2, ….

        Raises:
            InputError: where intervals overlap, leave a gap or run past the last task.
        """
        if not isinstance(intervals, Mapping):
            intervals = {f"n{i}": pair for i, pair in enumerate(intervals, 1)}
        if not intervals:
            raise InputError("current has no nodes: give at least one interval")
        runs: list[Run] = []
        for node, pair in intervals.items():
            if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_int, pair))):
                raise InputError(
                    f"node {node}: an interval is a pair of whole numbers [lb, ub), not {pair!r}"
                )
            lb, ub = pair
            if not 0 <= lb <= ub:
                raise InputError(f"node {node}: interval [{lb}, {ub}) needs 0 <= lb <= ub")
            if lb < ub:
                runs.append(Run(lb, ub, str(node)))
        runs.sort()
        tasks = max((r.ub for r in runs), default=0) if tasks is None else tasks
        return cls.from_runs(runs, tuple(map(str, intervals)), tasks, epoch)

    @classmethod
    def from_runs(
        cls,
        runs: Iterable[tuple[int, int, NodeId]],
        nodes: Sequence[NodeId],
        tasks: int,
        epoch: Epoch = ZERO_EPOCH,
    ) -> Assignment:
        """Build from `(lb, ub, node)` triples in ascending order; joins neighbours of one owner.

        Raises:
            InputError: where runs overlap, leave a gap, name an unknown node or nothing at all.
        """
        if not 0 < tasks <= TASKS_MAX:
            raise InputError(f"the number of tasks must be from 1 to {TASKS_MAX}, not {tasks}")
        if len(set(nodes)) != len(nodes):
            raise InputError("a node is named twice")
        known, joined, reached = frozenset(nodes), list[Run](), 0
        for lb, ub, node in runs:
            if node not in known:
                raise InputError(f"run [{lb}, {ub}) belongs to {node}, which is not a node here")
            if lb != reached or ub <= lb:
                fault = "overlap at" if lb < reached else "leave a gap before"
                raise InputError(f"intervals {fault} task {lb}: [{lb}, {ub}) of {node}")
            if joined and joined[-1].node == node:
                joined[-1] = Run(joined[-1].lb, ub, node)
            else:
                joined.append(Run(lb, ub, node))
            reached = ub
        if reached != tasks:
            raise InputError(f"intervals cover [0, {reached}), but there are {tasks} tasks")
        return cls(tasks, tuple(joined), tuple(nodes), epoch)

    @classmethod
    def from_owners(
        cls, owners: Ints, nodes: Sequence[NodeId], epoch: Epoch = ZERO_EPOCH
    ) -> Assignment:
        """Build from the index into `nodes` of every task's owner.

        >>> Assignment.from_owners(np.array([0, 0, 1, 0]), ["a", "b"]).runs
        (Run(lb=0, ub=2, node='a'), Run(lb=2, ub=3, node='b'), Run(lb=3, ub=4, node='a'))
        """
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        runs = [Run(lb, ub, nodes[int(owners[lb])]) for lb, ub in pairwise(cuts)]
        return cls.from_runs(runs, nodes, len(owners), epoch)

    def owner(self, task: TaskId) -> NodeId:
        """Name the node that owns a task."""
        if not 0 <= task < self.tasks:
            raise InputError(f"there is no task {task}: tasks are 0 to {self.tasks - 1}")
        return self.runs[bisect_right(self.runs, task, key=_run_lb) - 1].node

    def owners(self) -> Ints:
        """Give, for every task, the index of its owner in `nodes`."""
        index = {node: i for i, node in enumerate(self.nodes)}
        lengths = [run.ub - run.lb for run in self.runs]
        return np.repeat(np.array([index[r.node] for r in self.runs], dtype=np.int64), lengths)

    def runs_of(self, node: NodeId) -> tuple[Interval, ...]:
        """List the runs of one node."""
        return tuple(Interval(r.lb, r.ub) for r in self.runs if r.node == node)

    @property
    def contiguous(self) -> bool:
        """Whether every node owns at most one run."""
        return len({r.node for r in self.runs}) == len(self.runs)

    def intervals(self) -> dict[NodeId, Interval]:
        """Give each node's interval, idle nodes with an empty one.

        Raises:
            InputError: if a node owns several runs.
        """
        if not self.contiguous:
            raise InputError("a node holds several runs here: ask for runs, not for intervals")
        held = {r.node: Interval(r.lb, r.ub) for r in self.runs}
        result, reached = {}, 0
        for node in self.nodes:
            result[node] = held.get(node, Interval(reached, reached))
            reached = result[node].ub
        return result

    def at(self, epoch: Epoch) -> Assignment:
        """Give the same owners under another epoch."""
        return Assignment(self.tasks, self.runs, self.nodes, epoch)


def _run_lb(run: Run) -> int:
    return run.lb


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class Workload:
    """Work and state bytes of every task; the constructor checks both.

    >>> load = Workload([1, 2, 3], [10, 0, 5])
    >>> load.tasks, load.total_work, load.total_size
    (3, 6, 15)
    """

    work: Ints
    """`w_j`, one whole number per task, `>= 0`."""
    size: Ints
    """`|s_j|` in bytes, one whole number per task, `>= 0`."""

    def __init__(self, work: npt.ArrayLike, size: npt.ArrayLike) -> None:
        object.__setattr__(self, "work", _whole_numbers("work", work))
        object.__setattr__(self, "size", _whole_numbers("size", size))
        if len(self.work) != len(self.size):
            raise InputError(
                f"work has {len(self.work)} tasks and size has {len(self.size)}: "
                "give one of each per task"
            )

    @property
    def tasks(self) -> int:
        """m, the number of tasks."""
        return len(self.work)

    @cached_property
    def work_prefix(self) -> Ints:
        """`W[x]`: the work of tasks `0 … x-1`, for every boundary x."""
        return _prefix(self.work)

    @cached_property
    def size_prefix(self) -> Ints:
        """`S[x]`: the bytes of tasks `0 … x-1`, for every boundary x."""
        return _prefix(self.size)

    @cached_property
    def total_work(self) -> int:
        """The work of all tasks."""
        return int(self.work_prefix[-1])

    @cached_property
    def total_size(self) -> int:
        """The bytes of all tasks."""
        return int(self.size_prefix[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Workload, (self.work, self.size)


def _prefix(values: Ints) -> Ints:
    result = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=result[1:])
    result.flags.writeable = False
    return result


def _whole_numbers(what: str, values: npt.ArrayLike) -> Ints:
    """Check one array of a workload and give it as a read-only int64 copy."""
    try:
        raw = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{what}: not a list of numbers ({error})") from None
    if raw.ndim != 1 or raw.size == 0:
        raise InputError(f"{what} must be a flat, non-empty list with one number per task")
    if raw.size > TASKS_MAX:
        raise InputError(f"{what} has {raw.size} tasks; at most {TASKS_MAX} are possible")
    if raw.dtype.kind == "O":  # whole numbers beyond 64 bits arrive as objects
        for i, value in enumerate(raw):
            if not _is_int(value):
                raise InputError(f"{what} of task {i} is {value!r}, not a number")
            if abs(int(value)) > TOTAL_MAX:
                raise InputError(f"{what} of task {i} is {value}: more than 2^62 in one task")
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "iuf":
        raise InputError(f"{what}: expected whole numbers, found {raw.dtype}")
    _check_each(what, "is negative", raw, raw < 0)
    if raw.dtype.kind == "f":
        _check_each(what, "is not finite", raw, ~np.isfinite(raw))
        _check_each(what, "is not a whole number (use a smaller unit)", raw, raw != np.floor(raw))
    _check_each(what, "is more than 2^62", raw, raw > TOTAL_MAX)
    if sum(raw.tolist()) > TOTAL_MAX:
        raise InputError(f"{what} adds up to more than 2^62: use a larger unit")
    result = raw.astype(np.int64)
    result.flags.writeable = False
    return result


def _check_each(
    what: str, fault: str, values: npt.NDArray[Any], bad: npt.NDArray[np.bool_]
) -> None:
    if bad.any():
        task = int(np.argmax(bad))
        raise InputError(f"{what} of task {task} is {values[task]}, which {fault}")


def _check_power(tau: Fraction | float | str) -> None:
    """Refuse a text such as 1e999999999: as a fraction it would fill the memory."""
    power = re.search(r"e([+-]?[0-9_]+)\s*$", tau, re.IGNORECASE) if isinstance(tau, str) else None
    if power is not None and abs(int(power[1])) > POWER_MAX:
        raise InputError(f"tau must be a number within reason, not {tau!r}")


def exact_tau(tau: Fraction | float | str) -> Fraction:
    """Read τ as an exact fraction: `0.4`, `"0.4"` and `"2/5"` are all 2/5.

    >>> exact_tau(0.4) == exact_tau("2/5") == Fraction(2, 5)
    True
    """
    if isinstance(tau, bool) or not isinstance(tau, Fraction | int | float | str):
        raise InputError(f"tau must be a number or a fraction such as 2/5, not {tau!r}")
    try:
        _check_power(tau)
        value = Fraction(repr(tau)) if isinstance(tau, float) else Fraction(tau)
    except InputError:
        raise
    except (ValueError, ZeroDivisionError):
        raise InputError(f"tau must be a number or a fraction such as 2/5, not {tau!r}") from None
    if value < 0:
        raise InputError(f"tau must not be negative, but is {tau}")
    if value > TAU_MAX:
        raise InputError("tau must be a number within reason: what a float can hold")
    return value


class Group(NamedTuple):
    """Operators that have nodes of their own, as a part of a problem."""

    operators: tuple[int, ...]
    """Their numbers."""
    nodes: int
    """How many nodes they shall have."""
    members: tuple[NodeId, ...]
    """Their nodes now."""
    new_nodes: tuple[NodeId, ...]
    """Ids for those that join."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Where the tasks are, what they weigh, and how many nodes shall share them.

    >>> now = Assignment.from_intervals([(0, 13), (13, 20)])
    >>> p = Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5")
    >>> p.cap
    9
    """

    workload: Workload
    current: Assignment
    nodes: int
    """n′, how many nodes shall there be."""
    tau: Fraction
    memory_cap: int | None = None
    """Most bytes of state that one node may hold after the migration; None for no limit."""
    new_nodes: tuple[NodeId, ...] = field(default=())
    """Ids for nodes that join; when too few, the smallest unused n1, n2, … are taken."""
    leaving: frozenset[NodeId] = field(default=frozenset())
    """Nodes of `current` that must not be there afterwards, whatever they hold."""
    hosts: Mapping[NodeId, str] = field(default_factory=dict)
    """On which host each node is, as far as that is known."""
    groups: tuple[Group, ...] = field(default=())
    """Operators with nodes of their own; none: all share all nodes."""

    def __init__(
        self,
        workload: Workload,
        current: Assignment,
        nodes: int,
        tau: Fraction | float | str,
        memory_cap: int | None = None,
        new_nodes: Sequence[NodeId] = (),
        leaving: Iterable[NodeId] = (),
        hosts: Mapping[NodeId, str] | None = None,
        groups: Iterable[Group] = (),
    ) -> None:
        if current.tasks != workload.tasks:
            raise InputError(
                f"current covers {current.tasks} tasks, but the workload has {workload.tasks}"
            )
        if not _is_int(nodes) or nodes < 1:
            raise InputError(f"nodes must be a whole number of at least 1, not {nodes!r}")
        if memory_cap is not None and (not _is_int(memory_cap) or memory_cap < 0):
            raise InputError(f"memory_cap must be a whole number of bytes, not {memory_cap!r}")
        if len({*new_nodes, *current.nodes}) != len(new_nodes) + len(current.nodes):
            raise InputError("new_nodes: an id is taken or stands twice")
        if strangers := sorted(set(leaving) - set(current.nodes)):
            raise InputError(
                f"leaving: {', '.join(strangers)} is no node of the current assignment"
            )
        put = object.__setattr__
        put(self, "workload", workload)
        put(self, "current", current)
        put(self, "nodes", int(nodes))
        put(self, "tau", exact_tau(tau))
        put(self, "memory_cap", memory_cap)
        put(self, "new_nodes", tuple(new_nodes))
        put(self, "leaving", frozenset(leaving))
        put(self, "hosts", dict(hosts or {}))
        put(self, "groups", tuple(groups))

    @cached_property
    def staying(self) -> tuple[NodeId, ...]:
        """The nodes of `current` that may be there afterwards."""
        return tuple(node for node in self.current.nodes if node not in self.leaving)

    @cached_property
    def gain_prefix(self) -> Ints:
        """`G[x]`: the bytes of tasks `0 … x-1` that can stay where they are, for every boundary x."""
        if not self.leaving:
            return self.workload.size_prefix
        stays = np.array([node not in self.leaving for node in self.current.nodes])
        return _prefix(np.where(stays[self.current.owners()], self.workload.size, 0))

    @cached_property
    def cap(self) -> int:
        """The most work one node may have: `floor((1+τ)·W/n′)`."""
        return int((1 + self.tau) * self.workload.total_work / self.nodes)

    def joining(self, count: int) -> tuple[NodeId, ...]:
        """Name nodes that join, beginning with `new_nodes`."""
        names = list(self.new_nodes[:count])
        taken, i = {*self.current.nodes, *names}, 1
        while len(names) < count:
            if f"n{i}" not in taken:
                names.append(f"n{i}")
            i += 1
        return tuple(names)


class Move(NamedTuple):
    """One task from one node to another."""

    task: TaskId
    source: NodeId
    target: NodeId
    size: int


class Transfer(NamedTuple):
    """So many bytes from one node to another, as part of a phase."""

    source: NodeId
    target: NodeId
    size: int


class Phase(NamedTuple):
    """Transfers side by side: every node sends to at most one and receives from at most one.

    All transfers of a phase take the same time; `size` is that time in bytes of one link.
    """

    size: int
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """The part of a plan that is carried out at once (the paper's mini-migration)."""

    moves: tuple[Move, ...]
    after: Assignment
    """Who owns what once this round is done."""
    oversized: bool = False
    """Its only task is larger than the limits of a round allow; it had to move alone."""
    exchange: bool = False
    """Full nodes swap tasks here: until the round ends they also hold what they are sending."""

    @property
    def size(self) -> int:
        """The bytes that this round moves."""
        return sum(move.size for move in self.moves)


@dataclass(frozen=True, eq=False)
class Plan:
    """A target assignment for a problem, with what it costs and who found it."""

    problem: Problem
    target: Assignment
    policy: str
    """The name of the planner: `ssm`, `storm`, ….  """
    optimal: bool = False
    """True iff proven to be of least cost among all interval assignments within the caps."""
    bound: int | None = None
    """A proven lower bound of the cost, where one is known; equal to the cost if optimal."""
    note: str = ""
    """One sentence for the reader: why this plan, what was relaxed."""

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Every task that changes its owner, ascending."""
        before, after = self.problem.current, self.target
        index = {
            node: i
            for i, node in enumerate({**dict.fromkeys(before.nodes), **dict.fromkeys(after.nodes)})
        }
        names = list(index)
        here = np.array([index[n] for n in before.nodes], dtype=np.int64)[before.owners()]
        there = np.array([index[n] for n in after.nodes], dtype=np.int64)[after.owners()]
        moved = np.flatnonzero(here != there)
        columns = zip(moved.tolist(), here[moved].tolist(), there[moved].tolist(),
                      self.problem.workload.size[moved].tolist(), strict=True)  # fmt: skip
        return tuple(Move(task, names[a], names[b], size) for task, a, b, size in columns)

    @cached_property
    def cost(self) -> int:
        """The bytes that move."""
        return self.problem.workload.total_size - self._kept()

    def _kept(self) -> int:
        """Bytes of tasks that stay: one merge of the two lists of runs."""
        prefix, kept, i, j = self.problem.workload.size_prefix, 0, 0, 0
        old, new = self.problem.current.runs, self.target.runs
        while i < len(old) and j < len(new):
            lb, ub = max(old[i].lb, new[j].lb), min(old[i].ub, new[j].ub)
            if lb < ub and old[i].node == new[j].node:
                kept += int(prefix[ub]) - int(prefix[lb])
            if old[i].ub <= new[j].ub:
                i += 1
            else:
                j += 1
        return kept

    @property
    def cost_share(self) -> float:
        """The bytes that move as a share of all state; 0 when there is no state."""
        total = self.problem.workload.total_size
        return self.cost / total if total else 0.0

    @cached_property
    def loads(self) -> dict[NodeId, int]:
        """The work of each node after the migration."""
        return self._per_node(self.problem.workload.work_prefix)

    @cached_property
    def sizes(self) -> dict[NodeId, int]:
        """The state bytes of each node after the migration."""
        return self._per_node(self.problem.workload.size_prefix)

    def _per_node(self, prefix: Ints) -> dict[NodeId, int]:
        result = dict.fromkeys(self.target.nodes, 0)
        for lb, ub, node in self.target.runs:
            result[node] += int(prefix[ub]) - int(prefix[lb])
        return result

    @property
    def max_load(self) -> int:
        """The work of the busiest node."""
        return max(self.loads.values())

    @property
    def imbalance(self) -> float:
        """The busiest node's work over `W/n′`: 1.0 is perfect, 1+τ the limit."""
        total = self.problem.workload.total_work
        return self.max_load * self.problem.nodes / total if total else 1.0

    @property
    def within_caps(self) -> bool:
        """Whether every node meets the load cap (τ) and the memory cap."""
        memory = self.problem.memory_cap
        return self.max_load <= self.problem.cap and (
            memory is None or max(self.sizes.values()) <= memory
        )

    @property
    def leaving(self) -> tuple[NodeId, ...]:
        """Nodes of the current assignment that are no members of the target."""
        stay = frozenset(self.target.nodes)
        return tuple(n for n in self.problem.current.nodes if n not in stay)

    @property
    def joining(self) -> tuple[NodeId, ...]:
        """Nodes of the target that are no members of the current assignment."""
        old = frozenset(self.problem.current.nodes)
        return tuple(n for n in self.target.nodes if n not in old)
