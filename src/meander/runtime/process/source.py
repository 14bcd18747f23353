"""What sources and feeders hand to each other: the interface of a partitioned, replayable source.

    partitions() ─► ["0", "1", …]                      who reads which: the source's tasks share them
    read("1", after=41, schema) ─► SourceBatch …       from any offset, as often as it is asked
    read_together({"1": 41, "2": 7}, schema)           several at once, where that costs less

**One partition is one feeder.** Its offsets are those that chunks bear on their way to the operator's
tasks, and that tasks keep with their state. So there is no second book: whoever reads a partition next
asks which offset is durable for sure, reads on from there, and tasks leave out what they have.

An offset names a batch, the same rows whenever it is read (a file, a generator); or, where batches
are cut as rows happen to come (a log such as Kafka), every row has an offset of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from meander.errors import InputError
from meander.model import Ints

if TYPE_CHECKING:
    import pyarrow as pa


class SourceBatch(NamedTuple):
    """What a feeder's source gives."""

    offset: int
    """Ascends; the same batch has the same offset whenever the source is read."""
    batch: Any
    """A pyarrow table or record batch, or what else a feeder takes."""
    due_s: float | None = None
    """When its rows are due, in seconds since 1970; None: now."""


class SourceRows(NamedTuple):
    """The same, of a source whose batches are cut otherwise whenever it is read."""

    offset: Ints
    """Of each row; none is lower than the one before, and a row has the same in every read."""
    batch: Any
    due_s: npt.NDArray[np.float64] | None = None
    """When each is due, in seconds since 1970; None: now."""


Given: TypeAlias = SourceBatch | SourceRows | None
"""What a source gives; None: there is nothing now, and it may be stopped."""


@runtime_checkable
class PartitionedSource(Protocol):
    """A stream in partitions, each of which can be read again from any offset.

    A value: it is pickled to where it is read, and opens there what it needs.
    """

    def check(self) -> None:
        """Refuse what cannot be read, before anything is started.

        Raises:
            InputError: saying what is wrong.
        """

    def partitions(self) -> Sequence[str]:
        """Name the partitions; asked again now and then. New ones come at the end, none ever goes.

        Raises:
            ConnectionError: if nobody can tell now; it is asked again soon.
        """

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        """Give what follows an offset, as it comes; it ends when no more can come.

        Where nothing comes for a while it gives None, a few times a second: it is stopped then.

        Args:
            partition: one of `partitions()`.
            after: the last offset that needs no replay; -1: all do.
            schema: of the rows that the operator takes: the columns that are needed.
        """


@runtime_checkable
class JointSource(PartitionedSource, Protocol):
    """One whose partitions cost less if they are read together: as a broker's do, in one request."""

    def read_together(
        self, after: Mapping[str, int], schema: pa.Schema
    ) -> Iterator[tuple[str, Given]]:
        """Give what follows an offset of each partition, as it comes, with the partition's name.

        Where nothing comes for a while it gives None, of whichever it likes.
        """


@runtime_checkable
class BegunSource(PartitionedSource, Protocol):
    """One that may begin at what is newest: where that is, is settled once, when the source begins.

    Whoever reads a partition of which nothing is durable yet may be the second or the third to do so:
    what came meanwhile is not to be passed over.
    """

    def begun(self) -> PartitionedSource:
        """Give what all its processes read, now and later; `check` has been called.

        Raises:
            InputError: if nobody can tell where its partitions are.
        """


@runtime_checkable
class PlacedSource(BegunSource, Protocol):
    """The same, where what was settled is kept in the checkpoint, for the program's next run.

    What comes while the program is away is not to be passed over either.
    """

    def begun(self) -> PlacedSource:
        """Give what all its processes read, as `BegunSource` does."""

    def places(self) -> Any:
        """Say where its partitions begin, in what JSON has, without secrets.

        None: whoever reads it knows that without having it kept.
        """

    def placed(self, places: Any) -> PlacedSource:
        """Give what `begun` gave when `places` was asked of it; if that was of another stream, `begun`.

        Raises:
            InputError: as `begun`.
        """


Source: TypeAlias = Callable[[int], Iterable[Given]]
"""A source without partitions: gives the batches after an offset; -1: all."""


class OnePartition:
    """A source without partitions, as one that has a single one, without a name."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def check(self) -> None:
        """See that it can be called; what it gives cannot be known before it is read.

        Raises:
            InputError: if it cannot.
        """
        if not callable(self.source):
            raise InputError(
                "a source is a `meander.sources.Kafka` or the like, or a function of the last offset, "
                f"not {self.source!r}"
            )

    def partitions(self) -> Sequence[str]:
        """Name the only one."""
        return [""]

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        """Give what follows an offset."""
        return iter(self.source(after))


class SourceShare(NamedTuple):
    """What one process reads of a source: every so many-th partition."""

    source: PartitionedSource
    number: int = 0
    """Of this process."""
    of: int = 1
    """How many there are."""

    @classmethod
    def parse(cls, source: Any) -> SourceShare:
        """Take what a process was given to read: a share, or a source of one partition."""
        return source if isinstance(source, cls) else cls(OnePartition(source))

    def mine(self) -> list[str]:
        """Name the partitions that belong to it now.

        >>> class Three(OnePartition):
        ...     def partitions(self): return ["a", "b", "c"]
        >>> [SourceShare(Three(None), number, 2).mine() for number in (0, 1)]
        [['a', 'c'], ['b']]
        """
        return list(self.source.partitions())[self.number :: self.of]

    def groups(self, partitions: Sequence[str]) -> list[tuple[str, ...]]:
        """Say which of these partitions are read together, on one thread.

        >>> SourceShare(OnePartition(None)).groups(["a", "b"])
        [('a',), ('b',)]
        """
        if isinstance(self.source, JointSource):
            return [tuple(partitions)] if partitions else []
        return [(partition,) for partition in partitions]

    def read(self, after: Mapping[str, int], schema: pa.Schema) -> Iterator[tuple[str, Given]]:
        """Give what follows an offset of each partition of a group."""
        if isinstance(self.source, JointSource):
            return self.source.read_together(after, schema)
        ((partition, offset),) = after.items()
        return ((partition, given) for given in self.source.read(partition, offset, schema))
