"""When to send what inside a round: a phase schedule that keeps the busiest link busy throughout.

Problem
  A round moves `T[a, b]` bytes from a to b. Every link sends to at most one and receives from at
  most one at a time (two senders into one downlink share it and both become slow). Transfers may
  be interrupted. Find the shortest schedule: the *preemptive open shop* of Gonzalez and Sahni.

Answer
  No schedule is shorter than `D = max(row sums, column sums)`: the busiest up- or downlink must
  pass all of its bytes. And D is always reached. Fill T up with idle bytes until each row and each
  column sums to D; such a matrix is D times a doubly stochastic one, so its non-zeros contain a
  perfect matching (Birkhoff, von Neumann). Send along the matching until its first entry is used
  up; all sums are D minus that time, so the rest is of the same kind. Repeat until nothing is left.

Invariant
  Before each phase all rows and columns, idle bytes included, have the same sum.

Bounds
  E pairs (a, b) with bytes, R senders, C receivers, N = max(R, C). The north-west corner rule adds
  at most 2N-1 idle entries; each phase uses up at least one entry and the last one N of them:
  **at most E + N phases**. A phase repairs the last matching: O(E + N) per entry used up, so
  O((E + N)²) together. Whole numbers throughout.

Tiny example
  a sends 4 to c and 2 to d, b sends 3 to c. D = 7, the downlink of c. Three phases reach it:
  (b→c beside a→d) for 2, (a→c) for 4, (b→c) for 1; c receives in all of them.

Links
  Nodes on one host share its link. `hosts` says which node is where; then a *host* sends to one
  and receives from one at a time. Transfers within a host pass no link: they are in no phase.

References: T. Gonzalez, S. Sahni, "Open shop scheduling to minimize finish time", JACM 23(4), 1976;
W. Rödiger et al., "Locality-sensitive operators for parallel main-memory database clusters",
ICDE 2014 (the paper's reference [20]). Deviation: their schedule works on whole partitions of a
hash join and pads with a mirrored matrix; ours pads with at most 2N-1 idle entries.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from meander.errors import InputError
from meander.model import Ints, Move, NodeId, Phase, Round, TaskId, Transfer

Hosts: TypeAlias = Mapping[NodeId, str]
Pair: TypeAlias = tuple[NodeId, NodeId]


class TransferPiece(NamedTuple):
    """A part of one task's bytes, sent in one phase."""

    phase: int | None
    """Index of the phase; None when no link is needed: an empty state, or one within a host."""
    task: TaskId
    source: NodeId
    target: NodeId
    offset: int
    """Where the part begins in the task's state."""
    size: int


def makespan(moves: Sequence[Move], hosts: Hosts | None = None) -> int:
    """Give the bytes that the busiest up- or downlink passes: no schedule is shorter.

    >>> makespan([Move(0, "a", "c", 4), Move(1, "a", "d", 2), Move(2, "b", "c", 3)])
    7
    """
    up: dict[str, int] = defaultdict(int)
    down: dict[str, int] = defaultdict(int)
    for (a, b), size in _bytes_per_pair(moves, hosts).items():
        up[host_of(a, hosts)] += size
        down[host_of(b, hosts)] += size
    return max([*up.values(), *down.values()], default=0)


def phases(moves: Sequence[Move], hosts: Hosts | None = None) -> tuple[Phase, ...]:
    """Schedule the transfers of a round; the sizes of the phases add up to `makespan`.

    Every schedule passes `check_phases` before it is given.

    Args:
        moves: the moves of one round.
        hosts: the host of each node, where nodes share links; None: each node has its own.

    >>> for phase in phases([Move(0, "a", "c", 4), Move(1, "a", "d", 2), Move(2, "b", "c", 3)]):
    ...     print(phase.size, *(f"{t.source}→{t.target}" for t in phase.transfers))
    2 b→c a→d
    4 a→c
    1 b→c
    """
    amount = _bytes_per_pair(moves, hosts)
    if not amount:
        return ()
    pairs = sorted(amount, key=lambda pair: (-amount[pair], pair))  # large ones first: fewer phases
    senders = _numbered(host_of(a, hosts) for a, _ in pairs)
    receivers = _numbered(host_of(b, hosts) for _, b in pairs)
    rows = np.array([senders[host_of(a, hosts)] for a, _ in pairs], dtype=np.int64)
    cols = np.array([receivers[host_of(b, hosts)] for _, b in pairs], dtype=np.int64)
    left = np.array([amount[pair] for pair in pairs], dtype=np.int64)
    result: list[Phase] = []
    last: list[int] = []
    for step, sending in _matchings(rows, cols, left, max(len(senders), len(receivers))):
        time = step
        if sending == last:  # only an idle entry was used up: the same phase goes on
            time += result.pop().size
        result.append(Phase(time, tuple(Transfer(*pairs[e], time) for e in sending)))
        last = sending
    schedule = tuple(result)
    check_phases(schedule, moves, hosts)
    return schedule


def order_of_moves(round_: Round, schedule: Sequence[Phase]) -> tuple[TransferPiece, ...]:
    """Map a schedule back to tasks: which bytes of which task go in which phase.

    Between two nodes the tasks go one after the other, in the order of the round; a task whose
    bytes do not fit into a phase goes on in the next one that has its pair. States that need no
    link come first, with phase None.

    Raises:
        InputError: if the schedule is not one of this round.

    >>> moves = (Move(0, "a", "b", 4), Move(1, "a", "b", 2), Move(2, "c", "b", 3))
    >>> from meander.model import Assignment
    >>> done = Round(moves, Assignment.from_intervals({"b": (0, 3)}))
    >>> [(p.phase, p.task, p.offset, p.size) for p in order_of_moves(done, phases(moves))]
    [(0, 2, 0, 3), (1, 0, 0, 4), (1, 1, 0, 2)]
    """
    scheduled = {(t.source, t.target) for phase in schedule for t in phase.transfers}
    waiting: dict[Pair, deque[TransferPiece]] = defaultdict(deque)
    result: list[TransferPiece] = []
    for task, a, b, size in round_.moves:
        if size and (a, b) in scheduled:
            waiting[a, b].append(TransferPiece(None, task, a, b, 0, size))
        else:
            result.append(TransferPiece(None, task, a, b, 0, size))
    for k, phase in enumerate(schedule):
        for a, b, budget in phase.transfers:
            result += _take(waiting[a, b], k, budget)
    if any(waiting.values()):
        raise InputError("these phases leave bytes of the round behind: schedule this round anew")
    return tuple(result)


def check_phases(
    schedule: Sequence[Phase], moves: Sequence[Move], hosts: Hosts | None = None
) -> None:
    """Check everything that `phases` promises; an AssertionError names what is broken."""
    amount = _bytes_per_pair(moves, hosts)
    sent: dict[Pair, int] = defaultdict(int)
    for k, phase in enumerate(schedule):
        assert isinstance(phase.size, int), f"phase {k} has a size that is no whole number"
        assert phase.size > 0, f"phase {k} takes no time"
        assert phase.transfers, f"phase {k} is idle"
        up = [host_of(t.source, hosts) for t in phase.transfers]
        down = [host_of(t.target, hosts) for t in phase.transfers]
        assert len(set(up)) == len(up), f"phase {k}: a link sends to two at once"
        assert len(set(down)) == len(down), f"phase {k}: a link receives from two at once"
        for a, b, size in phase.transfers:
            assert size == phase.size, f"phase {k}: {a}→{b} lasts {size}, not {phase.size}"
            sent[a, b] += size
    assert sent == amount, "the phases do not add up to the bytes of the moves"
    total, shortest = sum(phase.size for phase in schedule), makespan(moves, hosts)
    assert total == shortest, f"the schedule takes {total}, the busiest link only {shortest}"
    links = max(
        len({host_of(a, hosts) for a, _ in amount}), len({host_of(b, hosts) for _, b in amount})
    )
    assert len(schedule) <= len(amount) + links, f"{len(schedule)} phases are too many"


def _matchings(rows: Ints, cols: Ints, left: Ints, width: int) -> list[tuple[int, list[int]]]:
    """Decompose into (time, pairs that send), idle entries added and left out again."""
    from meander.planning.kernels.phases import advance

    pairs, longest = (
        len(rows),
        int(max(_sums(rows, left, width).max(), _sums(cols, left, width).max())),
    )
    idle_rows, idle_cols, idle = _idle(rows, cols, left, width, longest)
    rows, cols = np.append(rows, idle_rows), np.append(cols, idle_cols)
    left = np.append(left, idle)
    by_row = np.argsort(rows, kind="stable")  # pairs before idle entries, large before small
    first = np.searchsorted(rows[by_row], np.arange(width + 1))
    cols, left = cols[by_row], left[by_row]
    row_edge, col_row = np.full((2, width), -1, dtype=np.int64)
    used, came_from, cursor = np.zeros((3, width), dtype=np.int64)
    stamp, stack = np.zeros(width, dtype=np.bool_), np.zeros(width + 1, dtype=np.int64)
    result = []
    while longest > 0:
        step = advance(
            first, cols, left, row_edge, col_row, used, stamp, came_from, cursor, stack
        )  # fmt: skip
        sending = by_row[used]
        result.append((int(step), np.sort(sending[sending < pairs]).tolist()))
        longest -= step
    return result


def _idle(rows: Ints, cols: Ints, left: Ints, width: int, longest: int) -> tuple[Ints, Ints, Ints]:
    """Fill every row and column up to the longest, by the north-west corner rule."""
    lack_row = (longest - _sums(rows, left, width)).tolist()
    lack_col = (longest - _sums(cols, left, width)).tolist()
    r, c, at_row, at_col, idle = 0, 0, list[int](), list[int](), list[int]()
    while r < width and c < width:
        some = min(lack_row[r], lack_col[c])
        if some:
            at_row.append(r)
            at_col.append(c)
            idle.append(some)
        lack_row[r] -= some
        lack_col[c] -= some
        r, c = (r + 1, c) if lack_row[r] == 0 else (r, c + 1)
    columns = np.array([at_row, at_col, idle], dtype=np.int64)
    return columns[0], columns[1], columns[2]


def _sums(index: Ints, values: Ints, width: int) -> Ints:
    result = np.zeros(width, dtype=np.int64)
    np.add.at(result, index, values)  # bincount would add in floating point
    return result


def _take(waiting: deque[TransferPiece], phase: int, budget: int) -> list[TransferPiece]:
    """Send so many bytes of the tasks that wait between two nodes."""
    sent = []
    while budget and waiting:
        _, task, a, b, offset, size = waiting.popleft()
        now = min(size, budget)
        sent.append(TransferPiece(phase, task, a, b, offset, now))
        if now < size:
            waiting.appendleft(TransferPiece(None, task, a, b, offset + now, size - now))
        budget -= now
    if budget:
        raise InputError("these phases send more than the round has: schedule this round anew")
    return sent


def _bytes_per_pair(moves: Sequence[Move], hosts: Hosts | None) -> dict[Pair, int]:
    """Add up what passes a link between two nodes; nothing where there is nothing to send."""
    amount: dict[Pair, int] = defaultdict(int)
    for move in moves:
        if move.size and host_of(move.source, hosts) != host_of(move.target, hosts):
            amount[move.source, move.target] += move.size
    return dict(amount)


def host_of(node: NodeId, hosts: Hosts | None) -> str:
    """Name the link of a node: its host's, or its own where nothing is said of hosts."""
    if hosts is None:
        return node
    try:
        return hosts[node]
    except KeyError:
        raise InputError(f"hosts does not say where node {node} is") from None


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(dict.fromkeys(names))}
