"""Rows on their way to tasks, and the answers: columns where all is in order, objects where it is not.

A *chunk* is rows of one feeder for one task, numbered without gaps. A *block* is chunks of one feeder,
one for each of several tasks, as columns: an offer to a feeder is one, so is what it sends to a node.
As long as rows are in order and at home, nobody looks at a single chunk; who must (a wait buffer, a
rerouter) takes it out of the block.

    columns   tasks    ascend: a node's part of an offer is a slice of it
              numbers  of the chunks, per (feeder, task)
              firsts   source offset of the first row
              lasts    source offset of the last row; offsets ascend in every (feeder, task)
              sizes    bytes, for limits and links
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from meander.model import TASKS_MAX, Epoch, Int, Ints, Name, TaskId
from meander.protocol import kernels
from meander.protocol.shape import INT_MAX, shape

Which: TypeAlias = slice | Ints
"""Chunks of a block: neighbours, or any by their places."""
ALL: Final = slice(None)
"""All chunks of a block."""
Group: TypeAlias = tuple[TaskId, Any, int, int, int]
"""A task's part of an offer: task, rows, first offset, last offset, bytes."""


class Chunk(NamedTuple):
    """Rows of one feeder for one task, numbered without gaps per (feeder, task)."""

    feeder: Name
    incarnation: Int
    """Of the feeder: a new one replays by source offset and numbers from 1 again."""
    task: TaskId
    number: Int
    first: Int
    """Source offset of the first row."""
    last: Int
    """Source offset of the last row. Offsets ascend in every (feeder, task)."""
    rows: Any
    """Opaque to the protocol; the operator slices it by offset."""
    size: Int = 1
    """Bytes, for limits and links."""


class BlockRows(Protocol):
    """The rows of a block. Nothing of the protocol looks into them."""

    def at(self, index: int) -> Any:
        """Give the rows of one chunk."""

    def pick(self, which: Which) -> BlockRows:
        """Give the rows of some chunks."""


class SeparateRows:
    """Rows that are kept chunk by chunk.

    >>> SeparateRows(["a", "b", "c"]).pick(slice(1, 3)).at(0)
    'b'
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def at(self, index: int) -> Any:
        """Give the rows of one chunk."""
        return self.rows[index]

    def pick(self, which: Which) -> SeparateRows:
        """Give the rows of some chunks."""
        found = self.rows[which] if type(which) is slice else [self.rows[i] for i in which]
        return SeparateRows(found)


class Block:
    """Chunks of one feeder as columns."""

    __slots__ = ("columns", "feeder", "incarnation", "rows")

    def __init__(self, feeder: Name, incarnation: int, columns: Ints, rows: BlockRows) -> None:
        self.feeder, self.incarnation = feeder, incarnation
        self.columns = columns
        """`int64[5, chunks]`: tasks, numbers, firsts, lasts, sizes."""
        self.rows = rows

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def tasks(self) -> Ints:
        """They ascend."""
        tasks: Ints = self.columns[0]
        return tasks

    @property
    def numbers(self) -> Ints:
        """Of the chunks."""
        numbers: Ints = self.columns[1]
        return numbers

    @property
    def bytes(self) -> int:
        """Of all chunks."""
        return int(np.add.reduce(self.columns[4]))

    def pick(self, which: Which) -> Block:
        """Give some of the chunks."""
        columns = np.ascontiguousarray(self.columns[:, which])
        return Block(self.feeder, self.incarnation, columns, self.rows.pick(which))

    def chunks(self, which: Which = ALL) -> tuple[Chunk, ...]:
        """Give each chunk by itself, or each of some."""
        feeder, incarnation, at = self.feeder, self.incarnation, self.rows.at
        places = range(len(self))[which] if type(which) is slice else which
        return tuple(
            Chunk(feeder, incarnation, task, number, first, last, at(int(i)), size)
            for i, (task, number, first, last, size) in zip(
                places, self.columns[:, which].T.tolist(), strict=True
            )
        )

    def fault(self, tasks: int | None) -> str | None:
        """Find what is wrong with the columns as such; with `tasks`, of so many in all."""
        columns = self.columns
        if not len(self) or self.incarnation < 1:
            return "a block without chunks, or of no incarnation"
        wrong = kernels.fault(columns, TASKS_MAX if tasks is None else tasks)
        if wrong == kernels.IMPOSSIBLE:
            return f"chunks of {self.feeder!r} are impossible"
        if wrong:
            return f"tasks {columns[0, 0]} to {columns[0, -1]} do not ascend, or are not there"
        return None


class Offer:
    """Rows read from a source, grouped by task.

    >>> offer = Offer([(9, "rows of 9", 0, 1, 16), (7, "rows of 7", 0, 0, 8)], 1)
    >>> offer.tasks.tolist(), offer.rows.at(0), offer.groups[1]
    ([7, 9], 'rows of 7', (9, 'rows of 9', 0, 1, 16))
    """

    __slots__ = ("columns", "last", "rows")

    def __init__(self, groups: Iterable[Group], last: int) -> None:
        """Put rows together, task by task: (task, rows, first offset, last offset, bytes)."""
        found = sorted(groups, key=lambda group: group[0])
        flat = [(task, 0, first, end, size) for task, _, first, end, size in found]
        self.columns: Ints = np.ascontiguousarray(np.array(flat, np.int64).reshape(-1, 5).T)
        """As a block has them; without numbers, as yet."""
        self.rows: BlockRows = SeparateRows([rows for _, rows, *_ in found])
        self.last = last
        """The last source offset covered, also when its row went nowhere."""

    @classmethod
    def of(cls, columns: Ints, rows: BlockRows, last: int) -> Offer:
        """Offer rows that are grouped already."""
        offer = cls.__new__(cls)
        offer.columns, offer.rows, offer.last = columns, rows, last
        return offer

    @property
    def tasks(self) -> Ints:
        """They ascend, none stands twice."""
        tasks: Ints = self.columns[0]
        return tasks

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each task's by itself."""
        numbers = enumerate(self.columns.T.tolist())
        return tuple((t, self.rows.at(i), first, end, n) for i, (t, _, first, end, n) in numbers)

    @staticmethod
    def is_sound(value: Any) -> bool:
        """Tell whether all fields are of their types."""
        if type(value) is not Offer or type(value.last) is not int:
            return False
        return abs(value.last) <= INT_MAX and _is_matrix(value.columns, 5)

    def __repr__(self) -> str:
        return f"Offer({self.groups}, {self.last})"


class Chunks:
    """Chunks gathered for one node: by a feeder, a loop, or another node's rerouter.

    >>> chunk = Chunk("f", 1, 7, 1, 0, 0, "rows")
    >>> Chunks((chunk,)).chunks == (chunk,)
    True
    """

    __slots__ = ("_chunks", "block", "rerouted")

    def __init__(self, chunks: Iterable[Chunk] | Block, rerouted: bool = False) -> None:
        self.block = chunks if type(chunks) is Block else None
        """The same as columns; None: they were put together one by one."""
        self._chunks = None if self.block is not None else tuple(chunks)  # type: ignore[arg-type]
        self.rerouted = rerouted

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Each by itself."""
        if self._chunks is None:
            assert self.block is not None
            self._chunks = self.block.chunks()
        return self._chunks

    @property
    def bytes(self) -> int:
        """Of all chunks, as their feeders count them."""
        return self.block.bytes if self.block is not None else sum(c.size for c in self.chunks)

    @property
    def rows(self) -> Any:
        """The rows of the block, or of the first chunk; None: there is no chunk."""
        if self.block is not None:
            return self.block.rows
        return self.chunks[0].rows if self.chunks else None

    @staticmethod
    def is_sound(value: Any) -> bool:
        """Tell whether all fields are of their types."""
        if type(value) is not Chunks or type(value.rerouted) is not bool:
            return False
        block = value.block
        if block is None:
            return _IS_CHUNKS(value.chunks)
        named = type(block.feeder) is str and type(block.incarnation) is int
        return named and _is_matrix(block.columns, 5)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Chunks:
            return NotImplemented
        return (self.chunks, self.rerouted) == (other.chunks, other.rerouted)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Chunks({self.chunks}{', rerouted=True' if self.rerouted else ''})"


class Ack(NamedTuple):
    """How far one task has come with one feeder, as its owner knows it."""

    task: TaskId
    term: Epoch
    incarnation: Int
    """Of the feeder that the two numbers belong to."""
    applied: Int
    """Opens the window."""
    durable: Int
    """Frees the replay buffer."""


class Acks:
    """Acknowledgements for one feeder. A rerouter never sends one.

    >>> ack = Ack(7, Epoch(1, 3), 1, 5, 4)
    >>> Acks("f", (ack,)).columns.T.tolist(), Acks("f", Acks("f", (ack,)).columns).acks == (ack,)
    ([[7, 1, 3, 1, 5, 4]], True)
    """

    __slots__ = ("_acks", "columns", "feeder")

    def __init__(self, feeder: Name, acks: Iterable[Ack] | Ints) -> None:
        self.feeder = feeder
        self._acks: tuple[Ack, ...] | None = None
        if not isinstance(acks, np.ndarray):
            self._acks = tuple(acks)
            flat = [(a.task, *a.term, a.incarnation, a.applied, a.durable) for a in self._acks]
            acks = np.ascontiguousarray(np.array(flat, np.int64).reshape(-1, 6).T)
        self.columns: Ints = acks
        """`int64[6, acks]`: task, generation and number of the term, incarnation, applied, durable."""

    @property
    def acks(self) -> tuple[Ack, ...]:
        """Each by itself."""
        if self._acks is None:
            self._acks = tuple(
                Ack(task, Epoch(generation, number), *counts)
                for task, generation, number, *counts in self.columns.T.tolist()
            )
        return self._acks

    @property
    def fault(self) -> str | None:
        """What is wrong with them as such; None: nothing is."""
        if kernels.impossible(self.columns):
            return "something is negative, or more is durable than applied"
        return None

    @staticmethod
    def is_sound(value: Any) -> bool:
        """Tell whether all fields are of their types."""
        return type(value) is Acks and type(value.feeder) is str and _is_matrix(value.columns, 6)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Acks:
            return NotImplemented
        return self.feeder == other.feeder and np.array_equal(self.columns, other.columns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Acks({self.feeder!r}, {self.acks})"


class LoopAcks:
    """Acknowledgements for tasks of one node that feed others, each as its feeder.

    >>> acks = Acks("loop/3", (Ack(7, Epoch(1, 3), 1, 5, 4),))
    >>> LoopAcks((acks,)).told[0].feeder, LoopAcks((acks,)) == LoopAcks([acks])
    ('loop/3', True)
    """

    __slots__ = ("told",)

    def __init__(self, told: Iterable[Acks]) -> None:
        self.told = tuple(told)

    @staticmethod
    def is_sound(value: Any) -> bool:
        """Tell whether all fields are of their types."""
        if type(value) is not LoopAcks or type(value.told) is not tuple:
            return False
        return all(map(Acks.is_sound, value.told))

    def __eq__(self, other: object) -> bool:
        return self.told == other.told if type(other) is LoopAcks else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LoopAcks({self.told})"


def acks_in(body: Any) -> tuple[Acks, ...]:
    """Give the acknowledgements in a message, feeder by feeder."""
    if type(body) is Acks:
        return (body,)
    return body.told if type(body) is LoopAcks else ()


def _is_matrix(columns: Any, rows: int) -> bool:
    """Tell whether something is so many columns of whole numbers."""
    return (
        type(columns) is np.ndarray
        and columns.ndim == 2
        and len(columns) == rows
        and columns.dtype == np.int64
    )


_IS_CHUNKS = shape(tuple[Chunk, ...])
