"""NexMark's queries 0 to 8 and 11 as values: operators by name, and edges between them.

An edge takes rows of a stream (`person`, `auction`, `bid`) or of another operator to an operator.
Whoever feeds a stream changes its rows before: chooses some, names columns, computes others. All
columns that are called alike mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.operators import (
    Aggregate,
    Context,
    Deduplicate,
    Input,
    KeyedAggregate,
    Operator,
    Project,
    SessionAggregate,
    StreamJoin,
    TopK,
    WindowAggregate,
    sliding,
    until,
)
from meander.operators.best_rows import BestRows, Ranked
from meander.operators.topology import Topology
from meander_lab.nexmark.events import BID, SCHEMAS, TIME

Change = Callable[[pa.RecordBatch], pa.RecordBatch]

WINDOW_S: Final = 10.0
HOP_S: Final = 2.0
EXCHANGE: Final = 0.908
EVERY_AUCTION: Final = 123
CATEGORY: Final = 10
STATES: Final = ("OR", "ID", "CA")
LAST: Final = 10
IDS: Final = 4096
"""Auctions that expire at the same moment are in the order of their ids, modulo this."""


@dataclass(frozen=True)
class Edge:
    """Rows from a stream or an operator to an operator."""

    source: str
    to: str
    input: str | None = None
    """By which of its inputs; None: it has one without a name."""
    change: Change | None = None
    """Of a stream: what is done to its rows before they are fed."""

    @property
    def end(self) -> str:
        """What it leads to, as topologies name it."""
        return self.to if self.input is None else f"{self.to}.{self.input}"


@dataclass(frozen=True)
class Query:
    """A topology whose last operator's outputs are the answer."""

    name: str
    operators: dict[str, Operator[Any]]
    """In an order in which no edge leads back."""
    edges: tuple[Edge, ...]
    keys: tuple[str, ...] = ()
    """Of an answer that is told again whenever it changes: the last word on each key counts."""

    @property
    def answers(self) -> str:
        """The operator whose outputs are the answer."""
        return list(self.operators)[-1]

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(dict.fromkeys(e.source for e in self.edges if e.source in SCHEMAS))

    def topology(self, tasks: int) -> Topology:
        """Give it as what can be deployed, each operator with so many tasks."""
        between = [(e.source, e.end) for e in self.edges if e.source in self.operators]
        return Topology(self.operators, between, tasks)


def _columns(**of: str) -> Change:
    """Take columns under new names."""

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(name) for name in of.values()]
        return pa.record_batch(columns, names=list(of))

    return change


def _schema(kind: str, **of: str) -> pa.Schema:
    return pa.schema([(name, SCHEMAS[kind].field(old).type) for name, old in of.items()])


def q0() -> Query:
    """Give all bids."""
    keep = Project(BID, ["auction"])
    return Query("q0", {"bids": keep}, (Edge("bid", "bids"),))


def q1() -> Query:
    """Give all bids in another currency."""
    schema = pa.schema([f if f.name != "price" else f.with_type(pa.float64()) for f in BID])

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        euros = pc.multiply(batch["price"].cast(pa.float64()), EXCHANGE)
        columns = [euros if name == "price" else batch[name] for name in schema.names]
        return pa.record_batch(columns, schema=schema)

    convert = Project(BID, ["auction"], select=change, output_schema=schema)
    return Query("q1", {"convert": convert}, (Edge("bid", "convert"),))


def q2() -> Query:
    """Give the bids for some auctions."""

    def where(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(batch["auction"].to_numpy() % EVERY_AUCTION == 0)

    wanted = pa.schema([BID.field("auction"), BID.field("price")])
    choose = Project(wanted, ["auction"], where=where)
    return Query("q2", {"choose": choose}, (Edge("bid", "choose"),))


def q3() -> Query:
    """Tell who in some states sells things of a category: two streams joined, for ever."""

    def of_category(batch: pa.RecordBatch) -> pa.RecordBatch:
        return _columns(auction="id", seller="seller")(
            batch.filter(pc.equal(batch["category"], CATEGORY))
        )

    def of_states(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.is_in(batch["state"], pa.array(STATES)))

    join = StreamJoin(
        Input(_schema("auction", auction="id", seller="seller"), ("seller",)),
        Input(_schema("person", id="id", name="name", city="city", state="state"), ("id",)),
        names=("auctions", "persons"),
    )
    edges = (Edge("auction", "join", "auctions", of_category),
             Edge("person", "join", "persons", of_states))  # fmt: skip
    return Query("q3", {"join": join}, edges)


def _winning() -> tuple[dict[str, Operator[Any]], tuple[Edge, ...]]:
    """Find the highest bid of each auction while it was open; told when it has expired."""
    of = {"id": "id", "seller": "seller", "category": "category", "opened": "dateTime",
          "expires": "expires"}  # fmt: skip
    bid = {"auction": "auction", "price": "price", "at": "dateTime"}
    join = StreamJoin(
        Input(_schema("auction", **of), ("id",), "opened"),
        Input(_schema("bid", **bid), ("auction",), "at"),
        names=("auctions", "bids"),
        between_s=(0.0, "expires"),
    )
    assert join.output_schema is not None
    closing = WindowAggregate(
        join.output_schema, ["id", "seller", "category", "expires"],
        {"price": Aggregate("max", "price")}, until("expires", 1.0), event_time="at",
    )  # fmt: skip
    edges = (Edge("auction", "join", "auctions", _columns(**of)),
             Edge("bid", "join", "bids", _columns(**bid)), Edge("join", "closing"))  # fmt: skip
    return {"join": join, "closing": closing}, edges


def q4() -> Query:
    """Give the mean of the highest bids in each category."""
    operators, edges = _winning()
    schema = operators["closing"].output_schema
    mean = KeyedAggregate(schema, ["category"], {"mean": Aggregate("mean", "price")},
                          emit_updates=True)  # fmt: skip
    return Query(
        "q4", {**operators, "mean": mean}, (*edges, Edge("closing", "mean")), ("category",)
    )


def q5() -> Query:
    """Give the auctions with the most bids of the last ten seconds, every two."""
    count = WindowAggregate(
        BID, ["auction"], {"bids": Aggregate("count")}, sliding("dateTime", WINDOW_S, HOP_S)
    )
    hottest = TopK(count.output_schema, ["window_end"], "bids", ties=True, closes="window_end")
    return Query(
        "q5", {"count": count, "hottest": hottest}, (Edge("bid", "count"), Edge("count", "hottest"))
    )


class MeanOfBest(TopK):
    """The mean of the best rows of each key, told whenever it changes."""

    def __init__(self, schema: pa.Schema, key: str, by: str, of: str, k: int) -> None:
        super().__init__(schema, [key], by, k=k)
        self._of = of
        self.output_schema = pa.schema([schema.field(key), ("mean", pa.float64())])

    def emit(self, state: BestRows, found: Ranked, context: Context) -> None:
        """Tell of the means of keys whose best rows have changed."""
        key, values = state.rows.take(pa.array(found.rows), [self.keys[0], self._of])
        firsts = np.flatnonzero(found.ranks == 1)
        sums = np.add.reduceat(values.to_numpy().astype(np.float64), firsts)
        means = sums / np.diff(np.append(firsts, len(values)))
        context.emit(
            pa.record_batch([key.take(pa.array(firsts)), means], schema=self.output_schema)
        )


def q6() -> Query:
    """Give the mean price of the last ten things that each seller has sold."""
    operators, edges = _winning()

    def by_time(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch["expires"].cast(pa.int64()).to_numpy()
        place = at * IDS + batch["id"].to_numpy() % IDS
        return pa.record_batch([batch["seller"], place, batch["price"]], names=names)

    names = ["seller", "place", "price"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    sold = operators["closing"].output_schema
    placed = Project(sold, ["seller"], select=by_time, output_schema=schema)
    mean = MeanOfBest(schema, "seller", "place", "price", LAST)
    operators |= {"placed": placed, "mean": mean}
    edges = (*edges, Edge("closing", "placed"), Edge("placed", "mean"))
    return Query("q6", operators, edges, ("seller",))


def _window_end(column: str) -> Change:
    """Add the end of a row's window."""

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        size = round(WINDOW_S * 1e6)
        at = batch[column].cast(pa.int64()).to_numpy()
        return batch.append_column("window_end", pa.array((at // size + 1) * size).view(TIME))

    return change


def q7() -> Query:
    """Give the highest bids of each ten seconds."""
    schema = pa.schema([*BID, ("window_end", TIME)])
    highest = TopK(schema, ["window_end"], "price", ties=True, closes="window_end",
                   event_time="dateTime")  # fmt: skip
    return Query(
        "q7", {"highest": highest}, (Edge("bid", "highest", None, _window_end("dateTime")),)
    )


def q8() -> Query:
    """Tell who came and put something up within the same ten seconds."""
    person = {"id": "id", "name": "name", "came": "dateTime"}
    auction = {"seller": "seller", "opened": "dateTime"}

    def ending(of: dict[str, str], column: str) -> Change:
        take, add = _columns(**of), _window_end(column)
        return lambda batch: add(take(batch))

    ends = pa.field("window_end", TIME)
    join = StreamJoin(
        Input(_schema("person", **person).append(ends), ("id", "window_end"), "came"),
        Input(_schema("auction", **auction).append(ends), ("seller", "window_end"), "opened"),
        names=("persons", "auctions"),
        between_s=(-WINDOW_S, WINDOW_S),
    )
    once = Deduplicate(join.output_schema, ["id", "window_end"], event_time="window_end",
                       delay_s=WINDOW_S)  # fmt: skip
    edges = (Edge("person", "join", "persons", ending(person, "came")),
             Edge("auction", "join", "auctions", ending(auction, "opened")),
             Edge("join", "once"))  # fmt: skip
    return Query("q8", {"join": join, "once": once}, edges)


def q11() -> Query:
    """Count each bidder's bids without a pause of ten seconds."""
    count = SessionAggregate(BID, ["bidder"], {"bids": Aggregate("count")},
                             event_time="dateTime", gap_s=WINDOW_S)  # fmt: skip
    return Query("q11", {"count": count}, (Edge("bid", "count"),))


QUERIES: Final = {f.__name__: f for f in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11)}
COLUMNS: Final[dict[str, Sequence[str]]] = {
    "q0": ("auction", "bidder", "price", "dateTime"),
    "q1": ("auction", "bidder", "price", "dateTime"),
    "q2": ("auction", "price"),
    "q3": ("name", "city", "state", "auction"),
    "q4": ("category", "mean"),
    "q5": ("auction", "bids", "window_end"),
    "q6": ("seller", "mean"),
    "q7": ("auction", "bidder", "price", "dateTime"),
    "q8": ("id", "name", "window_end"),
    "q11": ("bidder", "bids", "window_start", "window_end"),
}
"""The columns of each answer."""
