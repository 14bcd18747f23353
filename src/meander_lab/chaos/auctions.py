"""NexMark's joins for chaos: q3, one operator and two streams; q8, a join with a topology behind it.

What the query tells is compared, row by row, with a plain program over the same events, which shares
nothing with the deployment but the generator.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from meander.operators.topology import Topology
from meander.runtime.driver.elastic import ElasticOperator
from meander_lab.chaos.load import Difference, Shape, difference
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.queries import (
    CATEGORY,
    COLUMNS,
    QUERIES,
    STATES,
    WINDOW_S,
    Edge,
    Query,
)

RATE: Final = 4_000
"""Events in a second of event time: it runs faster than the clock, so that many windows end."""
TASKS: Final = 24
"""Of all operators together."""
SHOWN_S_MAX: Final = 60.0
"""How long the last answers may take to be durable, and so to be shown."""
AFTER_S: Final = 1.0
"""So long after the last answer that is due nothing more may come."""


@dataclass(frozen=True)
class AuctionApp:
    """A query of NexMark: a feeder for each of its streams."""

    name: str
    given: Shape

    @property
    def shape(self) -> Shape:
        """How much there is: `rows` events in a batch, of which a stream has its share."""
        return self.given._replace(feeders=len(self._query.streams))

    @property
    def _query(self) -> Query:
        return QUERIES[self.name]()

    def _edge(self, feeder: int) -> Edge:
        query = self._query
        return next(edge for edge in query.edges if edge.source == query.streams[feeder])

    def operator(self) -> Topology:
        """Make the topology."""
        query = self._query
        return query.topology(TASKS // len(query.operators))

    def to(self, feeder: int) -> str | None:
        """Name the input of a stream."""
        return self._edge(feeder).end

    def batch(self, feeder: int, number: int) -> pa.RecordBatch:
        """Make the part of a stream that lies in a batch of events."""
        edge, rows = self._edge(feeder), self.given.rows
        batch = Nexmark(RATE).batch(edge.source, number * rows, (number + 1) * rows)
        return batch if edge.change is None else edge.change(batch)

    def read(self, op: ElasticOperator) -> pa.Table:
        """Read all answers: until as many are there as must be, and none for a while."""
        wanted, end = self._answers().total(), time.monotonic() + SHOWN_S_MAX
        found = [op.outputs()]
        while sum(table.num_rows for table in found) < wanted and time.monotonic() < end:
            time.sleep(0.1)
            found.append(op.outputs())
        time.sleep(AFTER_S)
        return pa.concat_tables([*found, op.outputs()])

    def compare(self, found: pa.Table) -> Difference:
        """Compare answer by answer."""
        columns = [found[name].to_pylist() for name in COLUMNS[self.name]]
        told = Counter(zip(*columns, strict=True))
        sizes = [
            Nexmark(RATE).batch(kind, 0, self._events).num_rows for kind in self._query.streams
        ]
        return difference(self._answers(), told, sum(sizes))

    @property
    def _events(self) -> int:
        return self.given.batches * self.given.rows

    def _answers(self) -> Counter[Any]:
        persons, auctions = (
            Nexmark(RATE).batch(kind, 0, self._events).to_pylist() for kind in ("person", "auction")
        )
        return {"q3": _sellers, "q8": _newcomers}[self.name](persons, auctions)


def _sellers(persons: list[dict[str, Any]], auctions: list[dict[str, Any]]) -> Counter[Any]:
    """Answer q3: who in some states sells things of a category."""
    some = {p["id"]: (p["name"], p["city"], p["state"]) for p in persons if p["state"] in STATES}
    return Counter(
        (*some[a["seller"]], a["id"])
        for a in auctions
        if a["category"] == CATEGORY and a["seller"] in some
    )


def _newcomers(persons: list[dict[str, Any]], auctions: list[dict[str, Any]]) -> Counter[Any]:
    """Answer q8: who came and put something up within the same window."""

    def window(row: dict[str, Any]) -> int:
        return int(row["dateTime"].timestamp() // WINDOW_S)

    selling = {(a["seller"], window(a)) for a in auctions}
    ends = {p["id"]: window(p) for p in persons}
    here = {p["id"]: p for p in persons if (p["id"], ends[p["id"]]) in selling}
    zone = persons[0]["dateTime"].tzinfo if persons else None
    return Counter(
        (key, p["name"], _time((ends[key] + 1) * WINDOW_S, zone)) for key, p in here.items()
    )


def _time(seconds: float, zone: Any) -> Any:
    from datetime import datetime

    return datetime.fromtimestamp(seconds, zone)
