"""Malformed and impossible messages at every machine, in several states.

A refusal is a `MalformedMessage` or a `StaleMessage` and leaves the machine as it was; whatever is
accepted leaves its invariants whole. No other exception ever comes out of `handle`.
"""

from __future__ import annotations

import copy
from enum import Enum
from random import Random
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire import Books, Notes, Settings, Town, chunk

from meander.errors import ProtocolError
from meander.model import Assignment, Epoch
from meander.protocol.blocks import (
    Ack,
    Acks,
    Block,
    Chunk,
    Chunks,
    LoopAcks,
    Offer,
    SeparateRows,
)
from meander.protocol.edges.feeder import Feeder
from meander.protocol.invariants import check
from meander.protocol.master.ledger import Kept
from meander.protocol.messages import (
    MASTER,
    Envelope,
    Event,
    Finish,
    Grant,
    Loaded,
    Message,
    Put,
    Rescale,
    Seal,
    Write,
)
from meander.protocol.node.node import Node
from meander.protocol.table import Table

MESSAGES = get_args(Message)
EVENTS = tuple(kind for kind in get_args(Event) if kind is not Envelope)

# ---------------------------------------------------------------------- machines in several states


def busy():
    """Nodes whose tasks serve, wait and depart, with chunks that wait; feeder, query and server."""
    books = Books("aabb", Settings(lease_s=1e6, checkpoint_s=1.0))
    books.feeder()
    books.query()
    books.write()
    books.send("a", chunk(1, to=2), chunk(3))
    books.move(0, "b")
    books.move(2, "a")
    books.next_table()
    books.tell("b")
    books.send("b", chunk(2), chunk(1, task=3), chunk(3, task=3))
    books.deliver()
    books.tick(2.0, "b")
    books.tell("a")
    books.deliver(Put)
    books.tell("f")
    books.offer((0, 5), (1, 6))
    books.offer((0, 7))
    books.ack(0, 1, 0)
    books.give("q", Write(3, 0, 0, ((1, ((9, None),), 1, 8),)))
    books.give("q", Seal(2, ((0, 0, ((0, 1),)),)))
    return books


def migrating():
    """A master in the middle of everything."""
    town = Town(3, 6, Settings(checkpoint_s=0.3))
    town.feeder()
    town.query()
    town.settle(2.0)
    town.give(MASTER, Rescale(2, tasks_max=1, pause_ms=50.0))
    town.tick(0.5, *(n for n in town.machines if n != MASTER))
    for _ in range(3):
        town.deliver()
    return town


def machines():
    books, town = busy(), migrating()
    late = Books("aab", Settings())
    late.send("a", chunk(1), chunk(3))
    late.now += 2.2
    late.machines["a"].turn.now = late.now
    closing = Books("aab")
    closing.feeder()
    closing.give("f", Finish())
    new = Settings()
    return {
        "node a, at work": (books.machines["a"], books.now),
        "node b, at work": (books.machines["b"], books.now),
        "node without a lease": (late.machines["a"], late.now),
        "node that starts": (Node("a", 1, new, 1, "s", Notes()), 0.0),
        "feeder": (books.machines["f"], books.now),
        "feeder that leaves": (closing.machines["f"], closing.now),
        "feeder that starts": (Feeder("f", new, 1, "f1"), 0.0),
        "query": (books.machines["q"], books.now),
        "server": (books.machines["s"], books.now),
        "master": (town.machines[MASTER], town.now),
        "master that starts": (Town(start=False).machines[MASTER], 0.0),
        "master that claims": (Town(settings=Settings(checkpoint_s=1), start=False).master, 0.0),
    }


MACHINES = machines()


# ---------------------------------------------------------------------- fingerprints

HIDDEN = {"now", "actions", "_story", "_handlers", "_mail", "_checks", "operator"}


def fingerprint(thing: Any, seen: set[int] | None = None) -> Any:
    """Give everything that can be observed of a machine, as plain values; what is shared, once."""
    seen = set() if seen is None else seen
    if isinstance(thing, Table | Enum | str | int | float | bytes | NoneType | Settings):
        return id(thing) if isinstance(thing, Table) else thing
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, dict):
        return tuple((fingerprint(k, seen), fingerprint(v, seen)) for k, v in thing.items())
    if isinstance(thing, set | frozenset):
        return tuple(sorted(map(repr, thing)))
    if isinstance(thing, list | tuple) or type(thing).__name__ == "deque":
        return tuple(fingerprint(item, seen) for item in thing)
    if callable(thing) and not hasattr(thing, "handle"):
        return "function"
    if id(thing) in seen:
        return "shared"
    seen.add(id(thing))
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = {**{s: getattr(thing, s) for s in slots}, **getattr(thing, "__dict__", {})}
    return tuple((k, fingerprint(v, seen)) for k, v in fields.items() if k not in HIDDEN)


def shared(machine):
    """Things that need not be copied with a machine: they never change."""
    found = [machine.settings, getattr(machine, "table", None)]
    return {id(thing): thing for thing in found}


# ---------------------------------------------------------------------- messages, mostly wrong

NAMES = ["a", "b", "c", "f", "q", "s", "n1", "n2", MASTER, "@store", "", "loop/0", "loop/9",
         "loop/x", "loop/-1", "loop/²", "x" * 50]  # fmt: skip
NUMBERS = [*range(-2, 12), 10**6 + 1, 10**6 + 2, 2**31, 2**62, 2**63, 2**70, -(2**70)]
FLOATS = [-1.0, 0.0, 0.5, 9.9, 11.0, 1e9, float("inf"), float("nan")]
JUNK = [None, -1, "x", 2**70, 1.5, float("nan"), True, b"", (), [], {}, Epoch(1, 2),
        Epoch(None, "x"), (1, 2, 3), object]  # fmt: skip
ROWS = [(), ((1, None),), ((3, 1), (4, None))]


class Liar:
    """Makes values of any type, and now and then of another."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def value(self, hint: Any, name: str = "") -> Any:
        if self.random.random() < 0.06:
            return self.random.choice(JUNK)
        origin, args = get_origin(hint), get_args(hint)
        if name == "rows":
            return self.random.choice(ROWS)
        if hint is Epoch:
            generation = self.random.choice((1, 1, 1, 0, 2, -1))
            return Epoch(generation, self.random.choice((*range(12), *NUMBERS)))
        simple = {int: NUMBERS, str: NAMES, bool: (True, False), bytes: (b"", b"xyz"),
                  float: FLOATS, NoneType: (None,), Any: (*TABLES, *JUNK)}  # fmt: skip
        if hint in simple:
            return self.random.choice(simple[hint])
        if origin is tuple and args[-1] is Ellipsis:
            return tuple(self.value(args[0]) for _ in range(self.random.randint(0, 3)))
        if origin is tuple:
            return tuple(self.value(arg, "rows" if arg is Any else "") for arg in args)
        if args:
            return self.value(self.random.choice(args), name)
        return self.built(hint)

    def matrix(self, rows: int) -> Any:
        """Make columns, now and then of another form."""
        width = self.random.randint(0, 3)
        numbers = [n for n in NUMBERS if abs(n) < 2**63]
        flat = [[self.random.choice(numbers) for _ in range(width)] for _ in range(rows)]
        columns = np.array(flat, np.int64).reshape(rows, width)
        if self.random.random() < 0.1:
            columns = self.random.choice((columns[1:], columns.astype(float), columns[0]))
        return columns

    def of_columns(self, kind: Any) -> Any:
        """Make what is no named tuple."""
        name, rows = self.value(str), SeparateRows(ROWS)
        if kind is Acks:
            return Acks(name, self.matrix(6))
        if kind is LoopAcks:
            return LoopAcks([self.of_columns(Acks) for _ in range(self.random.randint(0, 2))])
        if kind is Offer:
            return Offer.of(self.matrix(5), rows, self.value(int))
        if self.random.random() < 0.5:
            return Chunks(tuple(self.built(Chunk) for _ in range(2)), self.value(bool))
        return Chunks(Block(name, self.value(int), self.matrix(5), rows), self.value(bool))

    def built(self, kind: Any) -> Any:
        if kind in (Acks, LoopAcks, Chunks, Offer):
            return self.of_columns(kind)
        hints = HINTS.setdefault(kind, get_type_hints(kind))
        return kind(*(self.value(hints[name], name) for name in kind._fields))

    def envelope(self, machine: Any) -> Envelope:
        """Mostly well addressed, with anything inside; sometimes not even that."""
        choose = self.random.choice
        kinds = [kind for kind in machine.accepts if kind in MESSAGES]
        body = self.built(choose(kinds if self.random.random() < 0.8 else MESSAGES))
        master = type(body).__name__ in ("Welcome", "Grant", "Fence", "Accepted", "Dismiss")
        head: list[Any] = [
            MASTER if master else choose(["a", "b", "s", "f", "q", "n1", "n2"]),
            1 if master else choose([1, machine.incarnation or 1, 10**6 + 1]),
            machine.me,
            choose([0, 0, machine.incarnation]),
            choose([machine.epoch, machine.epoch, Epoch(1, 1)]),
        ]
        if self.random.random() < 0.15:
            head[self.random.randint(0, 4)] = choose([*JUNK, *NUMBERS, *NAMES, Epoch(2, 1)])
        return Envelope(*head, body)

    def event(self, machine: Any) -> Any:
        if self.random.random() < 0.75:
            return self.envelope(machine)
        kinds = [kind for kind in machine.accepts if kind in EVENTS]
        return self.built(self.random.choice(kinds if self.random.random() < 0.8 else EVENTS))


HINTS: dict[Any, dict[str, Any]] = {}


def tables() -> list[Any]:
    """Make tables of all sorts, few of them right."""
    good = MACHINES["node a, at work"][0].table
    runs, nodes = good.assignment.runs, good.assignment.nodes
    entry, rest = good.incoming[0], (good.terms, good.members, good.servers)
    newer = Assignment(4, runs, nodes, Epoch(1, 20))
    assignments = [
        Assignment(4, runs[:1], nodes, Epoch(1, 20)),
        Assignment(4, runs[::-1], nodes, Epoch(1, 20)),
        Assignment(9, runs, nodes, Epoch(1, 20)),
        Assignment(4, runs, nodes, Epoch(7, 20)),
        Assignment(4, None, (), Epoch(1, 20)),
        None,
    ]
    incoming = [
        (entry._replace(ub=99),),
        (entry._replace(chain=()),),
        (entry._replace(tenure=Epoch(1, 99)),),
        (entry, entry),
        (entry._replace(chain=(None,)),),
        None,
    ]
    return [
        good,
        Table(newer, good.incoming, *rest),
        Table(newer, (), *rest),
        *(Table(wrong, good.incoming, *rest) for wrong in assignments),
        *(Table(newer, wrong, *rest) for wrong in incoming),
        Table(newer, (), ((0, 9, Epoch(1, 1)),), good.members, good.servers),
        Table(newer, (), good.terms, {}, good.servers),
        Table(newer, (), good.terms, {"a": 1}, good.servers),
        Table(newer, (), good.terms, good.members, None),
        Table(newer, (), good.terms, good.members, good.servers, (None,)),
    ]


TABLES = tables()


@pytest.mark.parametrize("name", MACHINES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_wrong_message_is_refused_and_changes_nothing(name, seed):
    original, now = MACHINES[name]
    machine, liar = copy.deepcopy(original, shared(original)), Liar(Random(seed))
    before = fingerprint(machine)
    for _ in range(12):
        try:
            machine.handle(liar.event(machine), now)
        except ProtocolError:
            assert fingerprint(machine) == before
        else:
            if machine.ended:
                return
            check(machine)
            before = fingerprint(machine)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("event", [None, 7, "tick", (), Ack(0, Epoch(1, 1), 1, 1, 1)])
def test_what_is_no_event_at_all_is_refused(name, event):
    machine, now = MACHINES[name]
    before = fingerprint(machine)
    with pytest.raises(ProtocolError, match="takes no"):
        machine.handle(event, now)
    assert fingerprint(machine) == before


GOOD_CHUNK = Chunk("f", 1, 1, 1, 1, 1, ((1, None),), 8)


@pytest.mark.parametrize(
    "body",
    [
        Chunks((GOOD_CHUNK._replace(task=-1),)),
        Chunks((GOOD_CHUNK._replace(task=4),)),
        Chunks((GOOD_CHUNK._replace(task=None),)),
        Chunks((GOOD_CHUNK._replace(task=True),)),
        Chunks((GOOD_CHUNK._replace(number=0),)),
        Chunks((GOOD_CHUNK._replace(number=2**70),)),
        Chunks((GOOD_CHUNK._replace(incarnation=0),)),
        Chunks((GOOD_CHUNK._replace(feeder=None),)),
        Chunks((GOOD_CHUNK._replace(feeder="loop/x"),)),
        Chunks((GOOD_CHUNK._replace(feeder="loop/4"),)),
        Chunks((GOOD_CHUNK._replace(first=2),)),
        Chunks((tuple(GOOD_CHUNK),)),
        Chunks((GOOD_CHUNK, GOOD_CHUNK._replace(task=9))),
        Acks("loop/0", ()),
        LoopAcks((Acks("f", ()),)),
        LoopAcks((Acks("loop/x", ()),)),
        LoopAcks((Acks("loop/0", (Ack(-1, Epoch(1, 1), 1, 1, 1),)),)),
        LoopAcks((Acks("loop/0", ()), Acks("loop/0", (Ack(0, Epoch(1, 1), 1, 1, 2),)))),
        Grant(0.0, 1.0, None),
    ],
    ids=str,
)
def test_not_even_the_good_part_of_a_bad_message_is_taken(body):
    original, now = MACHINES["node a, at work"]
    machine = copy.deepcopy(original, shared(original))
    before = fingerprint(machine)
    with pytest.raises(ProtocolError):
        machine.handle(Envelope("f", 1, "a", 0, machine.epoch, body), now)
    assert fingerprint(machine) == before


@given(st.binary(max_size=40))
@example(b"")
def test_a_record_that_is_damaged_in_the_store_is_not_installed(data):
    """1. a task is restored  2. what the store has is no record  3. the node ends and says so: there is
    nothing to go on from."""
    books = Books("aab")
    books.ledger.durable[0] = Kept(Epoch(1, 1), 1, ("key",))
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()
    books.give("b", Loaded("key", data))
    assert books.phase("b", 0) == "awaiting"
    assert "cannot be used: task 0" in books.ended["b"]


def test_a_table_with_another_number_of_tasks_is_refused():
    """A feeder has a lane for each task: what is beyond them is somebody else's memory."""
    other = MACHINES["node a, at work"][0].table
    original, now = next(
        (m, at) for m, at in MACHINES.values()
        if isinstance(m, Feeder) and m.table and m.table.assignment.tasks != other.assignment.tasks
    )  # fmt: skip
    feeder = copy.deepcopy(original, shared(original))
    with pytest.raises(ProtocolError, match="tasks, and there are"):
        feeder.handle(Envelope(MASTER, 1, feeder.me, 0, feeder.epoch, Grant(-1.0, 1.0, other)), now)


def test_a_rescale_of_groups_that_there_are_not_is_refused():
    town = Town()
    for wrong in (Rescale(2, groups=(("a", 1),)), Rescale(2, groups=(("", 99),))):
        with pytest.raises(ProtocolError, match="there is no group"):
            town.master.handle(wrong, 1e6)
