"""Timers: when a task wants to be called, and for which key.

A timer is a pair (key, time). Setting it twice is setting it once; it fires once, where its task is
then, and is gone. Times are microseconds since 1970, of the clock (`Context.timers`) or of the rows
(`Context.event_timers`, which the watermark drives). A key is the tuple of a row's key columns.

The timers of a task are part of its state. The runtime keeps, moves and stores them; an operator
only sets and cancels them, and answers `on_timer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from meander.errors import InputError

Key: TypeAlias = tuple[Any, ...]

AT = "@at_us"
"""The column of the times in a dump, beside those of the key."""
NAN: Final = float("nan")
"""The NaN of every key. NaN is not equal to itself, but an object is found where it was put."""
SPARE = 64
"""A heap may hold so many cancelled timers, and as many again as there are timers."""


def key_values(column: pa.Array, values: list[Any] | None = None) -> list[Any]:
    """Give the values of a key's column (or `values`, if they are there): all NaN are one.

    >>> first, second = (key_values(pa.array([float("nan"), 0.5])) for _ in range(2))
    >>> first == second, len({*first, *second})
    (True, 2)
    """
    found = column.to_pylist() if values is None else values
    if pa.types.is_floating(column.type):
        return [NAN if v != v else v for v in found]  # noqa: PLR0124
    return found


class Timer(NamedTuple):
    """A timer that is due."""

    key: Key
    at_us: int
    event: bool = False
    """Whether it was set in event time."""


class Timers:
    """The timers of one task, in one kind of time.

    >>> timers = Timers()
    >>> timers.set(("ann",), 30)
    >>> timers.set(("bob",), 10)
    >>> timers.set(("ann",), 20)
    >>> timers.cancel(("ann",), 30)
    True
    >>> timers.next_us, timers.of(("ann",))
    (10, [20])
    >>> timers.due(25)
    [(('bob',), 10), (('ann',), 20)]
    >>> timers.cancel(("bob",), 10), timers.next_us
    (True, 20)
    """

    __slots__ = ("_by_key", "_count", "_heap", "_order")

    def __init__(self) -> None:
        self._by_key: dict[Key, set[int]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        """(time, order of setting, key). Those that are not in `_by_key` were cancelled."""
        self._order = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        """Give all timers, soonest first."""
        seen = set()
        for at_us, _, key in sorted(self._heap, key=_by_time):
            if at_us in self._by_key.get(key, ()) and (key, at_us) not in seen:
                seen.add((key, at_us))
                yield key, at_us

    def set(self, key: Key, at_us: int) -> None:
        """Ask to be told at a time; one that has passed is due at once."""
        times = self._by_key.setdefault(key, set())
        if at_us not in times:
            times.add(at_us)
            self._count += 1
            self._order += 1
            heappush(self._heap, (at_us, self._order, key))

    def cancel(self, key: Key, at_us: int) -> bool:
        """Take a timer back; say whether it was set."""
        times = self._by_key.get(key)
        if times is None or at_us not in times:
            return False
        times.remove(at_us)
        self._count -= 1
        if not times:
            del self._by_key[key]
        if len(self._heap) > 2 * self._count + SPARE:
            self._heap = [entry for entry in self._heap if self._is_set(entry)]
            heapify(self._heap)
        return True

    def copy(self) -> Timers:
        """Give others that are set as these are now."""
        found = Timers()
        found.become(self)
        return found

    def become(self, other: Timers) -> None:
        """Be set as others are, and forget what was."""
        self._by_key = {key: set(times) for key, times in other._by_key.items()}
        self._heap, self._order, self._count = list(other._heap), other._order, other._count

    def of(self, key: Key) -> list[int]:
        """List the times that are set for a key, soonest first."""
        return sorted(self._by_key.get(key, ()))

    @property
    def next_us(self) -> int | None:
        """When the next one is due; None if there is none."""
        while self._heap and not self._is_set(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, upto_us: int) -> list[tuple[Key, int]]:
        """List what is due at a time: soonest first, then as it was set."""
        found = []
        while (at_us := self.next_us) is not None and at_us <= upto_us:
            found.append(heappop(self._heap))
        for entry in found:
            heappush(self._heap, entry)
        return [(key, at_us) for at_us, _, key in found]

    def _is_set(self, entry: tuple[int, int, Key]) -> bool:
        times = self._by_key.get(entry[2])
        return times is not None and entry[0] in times

    # ------------------------------------------------------------------ dumps

    def dump(self, fields: Iterable[pa.Field]) -> pa.RecordBatch:
        """Write them as a batch: the columns of the key, and the times."""
        fields, pairs = list(fields), list(self)
        columns = [pa.array([key[i] for key, _ in pairs], f.type) for i, f in enumerate(fields)]
        columns.append(pa.array([at_us for _, at_us in pairs], pa.int64()))
        return pa.record_batch(columns, schema=pa.schema([*fields, pa.field(AT, pa.int64())]))

    @classmethod
    def load(cls, batch: pa.RecordBatch, fields: Iterable[pa.Field]) -> Timers:
        """Read what `dump` wrote.

        Raises:
            ValueError: for anything else.
        """
        if not batch.schema.equals(pa.schema([*fields, pa.field(AT, pa.int64())])):
            raise ValueError(f"timers of the columns {batch.schema.names}")
        result = cls()
        *columns, times = [key_values(column) for column in batch.columns]
        for key, at_us in zip(zip(*columns, strict=True), times, strict=True):
            if at_us is None:
                raise ValueError("a timer without a time")
            result.set(key, at_us)
        return result


def _by_time(entry: tuple[int, int, Key]) -> tuple[int, int]:
    return entry[:2]


class NoTimers(Timers):
    """In the place of timers where an operator has none."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def set(self, key: Key, at_us: int) -> None:
        """Say what is missing."""
        raise InputError(self._why)

    def become(self, other: Timers) -> None:
        """Stay as it is: there are none."""


NO_TIMERS = NoTimers("the operator has no timers: write `on_timer` in its class")
NO_EVENT_TIMERS = NoTimers(
    "the operator has no event time: name its column of timestamps as `event_time`, "
    "and write `on_timer` in its class"
)
