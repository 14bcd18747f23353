"""Rows that make an operator raise are set aside, and it is as if they had never come."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import InputError, OperatorError
from meander.operators import Aggregate, Context, KeyedAggregate, Operator, Timer, collecting
from meander.operators.letters import with_errors
from meander.operators.timers import Timers
from meander.testing import check

ROWS = pa.schema({"key": pa.string(), "n": pa.int64()})
OUT = pa.schema({"key": pa.string(), "total": pa.int64()})


class Fragile(Operator[dict[str, int]]):
    """Adds up, tells every sum, sets a timer; raises at -1 when all of that is done half."""

    schema, keys, output_schema = ROWS, ("key",), OUT

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for row in batch.to_pylist():
            key, n = row["key"], row["n"]
            state[key] = state.get(key, 0) + abs(n)
            context.timers.set((key,), context.now_us + abs(n))
            context.emit(pa.record_batch([[key], [state[key]]], schema=OUT))
            if n < 0:
                raise ValueError(f"{key} less {-n}")
            if state[key] > 1000:
                raise OverflowError(f"{key} is full")

    def on_timer(self, state: dict[str, int], timer: Timer, context: Context) -> None:
        (key,) = timer.key
        state[key] += 1
        context.emit(pa.record_batch([[key], [-state[key]]], schema=OUT))
        if state[key] % 7 == 0:
            raise RuntimeError("seven")

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch([list(state), list(state.values())], schema=OUT)]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, int]:
        return {row["key"]: row["total"] for batch in batches for row in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 16 * len(state)


def rows_of(pairs: Iterable[tuple[str, int]]) -> pa.RecordBatch:
    found = list(pairs)
    return pa.record_batch([[key for key, _ in found], [n for _, n in found]], schema=ROWS)


class Plain:
    """What must come out, one row after the other."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}
        self.timers = Timers()
        self.emitted: list[tuple[str, int]] = []
        self.aside: list[tuple[str, str]] = []

    def take(self, pairs: Sequence[tuple[str, int]], now_us: int) -> None:
        for key, n in pairs:
            after = self.state.get(key, 0) + abs(n)
            if n < 0 or after > 1000:
                why = f"ValueError: {key} less {-n}" if n < 0 else f"OverflowError: {key} is full"
                self.aside.append((why, json.dumps({"key": key, "n": n})))
                continue
            self.state[key] = after
            self.timers.set((key,), now_us + n)
            self.emitted.append((key, after))

    def pass_time(self, now_us: int) -> None:
        for (key,), at_us in self.timers.due(now_us):
            self.timers.cancel((key,), at_us)
            after = self.state[key] + 1
            if after % 7 == 0:
                told = json.dumps({"key": key, "timer_ms": at_us // 1000})
                self.aside.append(("RuntimeError: seven", told))
                continue
            self.state[key] = after
            self.emitted.append((key, -after))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_if_the_rows_had_never_come(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rows, batches, timers, dumps, and moves; and dumps of its own, often or never."""
    chance, plain, operator = random.Random(seed), Plain(), collecting(Fragile())
    often = chance.choice((100, 1000, 2**20))
    module = import_module("meander.operators.collecting")
    monkeypatch.setattr(module, "CALLS_BYTES_MIN", often)
    timers, emitted, aside, now_us = Timers(), list[Any](), list[Any](), 0

    def here() -> Context:
        return Context(0, 1, now_us=now_us, timers=timers)

    state = operator.create(here())
    for _ in range(60):
        now_us += chance.randrange(40)
        context, what = here(), chance.random()
        if what < 0.6:
            bad = chance.random() < 0.4
            pairs = [
                (chance.choice("abc"), chance.randrange(-20 if bad else 0, 20))
                for _ in range(chance.randrange(1, 9))
            ]
            operator.process(state, rows_of(pairs), context)
            plain.take(pairs, now_us)
        elif what < 0.8:
            due = [Timer(*pair) for pair in timers.due(now_us)]
            operator.fire(state, due, context)
            plain.pass_time(now_us)
        else:
            dumped = operator.dump(state)
            if what < 0.9:  # it moves
                timers = Timers.load(timers.dump([ROWS.field("key")]), [ROWS.field("key")])
                state = operator.load(dumped, here())
        emitted += [tuple(row.values()) for b in context.emitted for row in b.to_pylist()]
        aside += [row for b in context.aside for row in b.to_pylist()]
        assert state.state == plain.state
        assert Counter(timers) == Counter(plain.timers)
    assert emitted == [(key, n, None, None) for key, n in plain.emitted]
    found = [(row["error"].split(": ", 9), row["error_row"]) for row in aside]
    assert [(": ".join(why[-2:]), row) for why, row in found] == plain.aside
    assert plain.aside, "some were set aside"


def test_the_rules_of_operators_hold_for_one_that_collects() -> None:
    pairs = [("a", 3), ("b", -4), ("a", 5), ("c", 900), ("c", 200), ("b", 7)]
    check(collecting(Fragile()), [rows_of(pairs[:2]), rows_of(pairs[2:])])


def test_a_built_in_one_goes_on_behind_a_sum_that_is_too_large() -> None:
    operator = collecting(KeyedAggregate(ROWS, ["key"], {"sum": Aggregate("sum", "n")}))
    context = Context(0, 1)
    state = operator.create(context)
    operator.process(state, rows_of([("a", 2**62), ("a", 2**62), ("a", 5), ("b", 1)]), context)
    assert state.result().to_pydict() == {"key": ["a", "b"], "sum": [2**62 + 5, 1]}
    (letter,) = context.aside[0].to_pylist()
    assert json.loads(letter["error_row"]) == {"key": "a", "n": 2**62}
    assert "a" in letter["error"]


class Moody(Fragile):
    """Does not do the same with the same rows."""

    calls = 0

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        Moody.calls += 1
        if Moody.calls > 1:
            raise ValueError("not again")


def test_one_that_does_not_do_the_same_again_ends_and_says_why() -> None:
    operator, context = collecting(Moody()), Context(0, 1, timers=Timers())
    state = operator.create(context)
    operator.process(state, rows_of([("a", 1)]), context)
    with pytest.raises(OperatorError, match="does the same with the same rows"):
        operator.process(state, rows_of([("a", 2)]), context)


def test_timers_alone_do_not_fill_the_memory() -> None:
    operator, timers = collecting(Fragile()), Timers()
    state = operator.create(Context(0, 1, timers=timers))
    operator.process(state, rows_of([("a", 0)]), Context(0, 1, timers=timers))
    for at_us in range(3000):
        timers.set(("a",), at_us)
        due = [Timer(*pair) for pair in timers.due(at_us)]
        operator.fire(state, due, Context(0, 1, now_us=at_us, timers=timers))
    assert len(state.calls) <= 2**18 // 256 + 1


def test_what_cannot_be_is_refused() -> None:
    taken = Fragile()
    taken.output_schema = pa.schema({"error": pa.string()})
    with pytest.raises(InputError, match="'error'"):
        collecting(taken)
    once = collecting(Fragile())
    assert collecting(once) is once
    assert once.output_schema == with_errors(OUT)
    assert (once.name, once.timed, once.keys) == ("Fragile", True, ("key",))


def test_half_a_character_in_an_error_is_no_harm() -> None:
    class Odd(Fragile):
        def process(self, state: Any, batch: Any, context: Any) -> None:
            raise ValueError("\ud800")

    operator, context = collecting(Odd()), Context(0, 1)
    operator.process(operator.create(context), rows_of([("a", 1)]), context)
    assert context.aside[0]["error"].to_pylist() == ["ValueError: \\ud800"]
