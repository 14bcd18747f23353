"""NexMark's generator: persons, auctions and bids at 1 : 3 : 46, from any event to any other.

An event is a function of its number, so a stream can be made in parts, anew, and from any point.
Event n happens n / rate seconds after the stream begins. Columns that carry no meaning (`extra`, a
bid's `channel` and `url`) are left out; texts are shorter than in other generators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Ints
from meander_lab.nexmark import kernels

TIME = pa.timestamp("us", tz="UTC")
PERSON = pa.schema({"id": pa.int64(), "name": pa.string(), "email": pa.string(),
                    "creditCard": pa.string(), "city": pa.string(), "state": pa.string(),
                    "dateTime": TIME})  # fmt: skip
AUCTION = pa.schema({"id": pa.int64(), "itemName": pa.string(), "description": pa.string(),
                     "initialBid": pa.int64(), "reserve": pa.int64(), "dateTime": TIME,
                     "expires": TIME, "seller": pa.int64(), "category": pa.int64()})  # fmt: skip
BID = pa.schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(),
                 "dateTime": TIME})  # fmt: skip
SCHEMAS: Final = {"person": PERSON, "auction": AUCTION, "bid": BID}

START_US: Final = 1_436_918_400_000_000
"""When the stream begins: the fifteenth of July 2015, as in other generators."""
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter",
               "Walter"]  # fmt: skip
LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
PLACES = [("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"),
          ("Portland", "OR"), ("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA"),
          ("Kent", "WA"), ("Cheyenne", "WY")]  # fmt: skip


@dataclass(frozen=True)
class Nexmark:
    """A stream of events.

    >>> stream = Nexmark(rate=1000)
    >>> [stream.batch(kind, 0, 100).num_rows for kind in SCHEMAS]
    [2, 6, 92]
    >>> whole, part = stream.batch("bid", 0, 300), stream.batch("bid", 177, 223)
    >>> part.equals(whole.slice(whole.num_rows - stream.batch("bid", 177, 300).num_rows, part.num_rows))
    True
    """

    rate: int = 10_000
    """Events in a second of event time."""

    def batch(self, kind: str, first: int, last: int) -> pa.RecordBatch:
        """Make the persons, auctions or bids among the events `first … last-1`."""
        if kind == "bid":
            return self._bids(first, last)
        numbers = np.arange(first, last)
        place = numbers % kernels.GROUP
        if kind == "person":
            return self._persons(numbers[place < kernels.PERSONS])
        ends = kernels.PERSONS + kernels.AUCTIONS
        return self._auctions(numbers[(place >= kernels.PERSONS) & (place < ends)])

    def batches(self, kind: str, first: int, last: int, events: int) -> Iterator[pa.RecordBatch]:
        """Make them in parts of so many events each."""
        for at in range(first, last, events):
            yield self.batch(kind, at, min(at + events, last))

    def _times(self, numbers: Ints) -> Ints:
        return START_US + numbers * 1_000_000 // self.rate

    def _bids(self, first: int, last: int) -> pa.RecordBatch:
        room = max(last - first, 0)
        auctions, bidders, prices, numbers = np.empty((4, room), dtype=np.int64)
        count = kernels.bids(first, last, auctions, bidders, prices, numbers)
        times = _time(self._times(numbers[:count]))
        columns = [pa.array(column[:count]) for column in (auctions, bidders, prices)]
        return pa.record_batch([*columns, times], schema=BID)

    def _auctions(self, numbers: Ints) -> pa.RecordBatch:
        horizon = kernels.IN_FLIGHT * kernels.GROUP // kernels.AUCTIONS * 1_000_000 // self.rate
        found = np.empty((5, len(numbers)), dtype=np.int64)
        kernels.auctions(numbers, horizon, *found)
        sellers, categories, initial, reserves, lengths = found
        ids = (
            numbers // kernels.GROUP * kernels.AUCTIONS + numbers % kernels.GROUP - kernels.PERSONS
        )
        times = self._times(numbers)
        columns = [
            pa.array(kernels.FIRST_ID + ids), _texts(numbers, 6, 12), _texts(numbers, 7, 32),
            pa.array(initial), pa.array(reserves), _time(times), _time(times + lengths),
            pa.array(sellers), pa.array(categories),
        ]  # fmt: skip
        return pa.record_batch(columns, schema=AUCTION)

    def _persons(self, numbers: Ints) -> pa.RecordBatch:
        names, cities, states = _lists()
        columns = [
            pa.array(kernels.FIRST_ID + numbers // kernels.GROUP),
            names.take(_choices(numbers, 0, len(names))),
            _texts(numbers, 1, 12),
            _texts(numbers, 2, 16, digits=True),
            cities.take(_choices(numbers, 3, len(cities))),
            states.take(_choices(numbers, 3, len(states))),
            _time(self._times(numbers)),
        ]
        return pa.record_batch(columns, schema=PERSON)


@cache
def _lists() -> tuple[pa.Array, pa.Array, pa.Array]:
    names = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
    return names, pa.array([city for city, _ in PLACES]), pa.array([state for _, state in PLACES])


def _time(words: Ints) -> pa.Array:
    return pa.array(words).view(TIME)


def _choices(numbers: Ints, salt: int, limit: int) -> pa.Array:
    found = np.empty(len(numbers), dtype=np.int64)
    kernels.choices(numbers, salt, limit, found)
    return pa.array(found)


def _texts(numbers: Ints, salt: int, letters: int, *, digits: bool = False) -> pa.Array:
    found: npt.NDArray[np.uint8] = np.empty((len(numbers), letters), dtype=np.uint8)
    kernels.texts(numbers, salt, digits, found)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * letters
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.string(), len(numbers), parts)
