"""`check`: every built-in operator passes, and for each rule there is an operator that is caught."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meander.errors import InputError, OperatorError, OperatorRuleError
from meander.operators import (
    Aggregate,
    Context,
    FrequentPatterns,
    KeyedAggregate,
    Operator,
    WordCount,
)
from meander.testing import RULES, check

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
BATCHES = [
    {"word": [f"w{i * step % 50}" for i in range(40)], "n": [i % 7 for i in range(40)]}
    for step in (1, 3, 7, 11)
]
"""Forty of fifty words, in every batch others; some of them are forgotten."""


class Sums(Operator[dict[str, int]]):
    """Sums of `n` by word; a word whose row has n = 0 is forgotten. It keeps all rules."""

    schema, keys = SCHEMA, ("word",)
    output_schema = SCHEMA

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        told = {}
        for word, n in zip(batch["word"].to_pylist(), batch["n"].to_pylist(), strict=True):
            if n:
                state[word] = told[word] = state.get(word, 0) + n
            else:
                state.pop(word, None)
        if told:
            context.emit(self.rows(told))

    def rows(self, state: dict[str, int]) -> Any:
        return pa.record_batch([list(state), list(state.values())], schema=SCHEMA)

    def dump(self, state: dict[str, int]) -> list[Any]:
        return [self.rows(state)]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        return {row["word"]: row["n"] for batch in batches for row in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 16 * len(state)


class Versioned(Sums):
    """Writes what has changed since a version: keys with their sums, or null if they are gone."""

    def create(self, context: Context) -> Any:
        return Log()

    def load(self, batches: Any, context: Context) -> Any:
        return self.apply_changes(Log(), batches, context)

    def seal(self, state: Any) -> int:
        state.version += 1
        return state.version - 1

    def changes(self, state: Any, since: int) -> list[Any]:
        touched = [word for word, version in state.touched.items() if version > since]
        return [pa.record_batch([touched, [state.get(w) for w in touched]], schema=SCHEMA)]

    def apply_changes(self, state: Any, batches: Any, context: Context) -> Any:
        for batch in batches:
            for row in batch.to_pylist():
                if row["n"] is None:
                    state.pop(row["word"], None)
                else:
                    state[row["word"]] = row["n"]
        return state


class Log(dict):
    """A dict that notes what is touched in which version."""

    def __init__(self) -> None:
        self.version, self.touched = 1, {}

    def __setitem__(self, word: str, n: int) -> None:
        super().__setitem__(word, n)
        self.touched[word] = self.version

    def pop(self, word: str, *default: Any) -> Any:
        self.touched[word] = self.version
        return super().pop(word, *default)


CLICKS = pa.schema({"user": pa.string(), "at": pa.timestamp("us")})


class Visits(Operator[dict[str, int]]):
    """Visits of users, told and forgotten when the watermark is five seconds past the last."""

    schema, keys, event_time = CLICKS, ("user",), "at"

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        times = batch["at"].cast(pa.int64()).to_pylist()
        for user, at in zip(batch["user"].to_pylist(), times, strict=True):
            for before in context.event_timers.of((user,)):
                context.event_timers.cancel((user,), before)
            state[user] = state.get(user, 0) + 1
            context.event_timers.set((user,), at + 5_000_000)

    def on_timer(self, state: dict[str, int], timer: Any, context: Context) -> None:
        (user,) = timer.key
        context.emit(pa.record_batch({"user": [user], "visits": [state.pop(user)]}))

    def dump(self, state: dict[str, int]) -> list[Any]:
        return [pa.record_batch({"user": list(state), "visits": list(state.values())})]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        return {row["user"]: row["visits"] for b in batches for row in b.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 40 * len(state)


def clicks() -> list[dict[str, Any]]:
    random, batches = Random(7), []
    for second in range(0, 40, 5):
        users = [f"u{random.randrange(30)}" for _ in range(12)]
        times = [(second + random.randrange(5)) * 1_000_000 for _ in users]
        batches.append({"user": users, "at": pa.array(times, pa.timestamp("us"))})
    return batches


# ------------------------------------------------------------------ operators that keep the rules


def aggregates() -> KeyedAggregate:
    schema = pa.schema({"k": pa.int32(), "s": pa.string(), "x": pa.float64(), "n": pa.int64()})
    kinds = ("count", "sum", "mean", "min", "max", "last")
    made = {f"{kind}_{c}": Aggregate(kind, c) for kind in kinds for c in ("x", "n")}
    return KeyedAggregate(schema, ["k", "s"], made, emit_updates=True)


def measures() -> list[dict[str, Any]]:
    random = Random(3)

    def one() -> dict[str, Any]:
        n = random.randrange(-100, 100)
        return {
            "k": random.choice([1, 2, 3, None]), "s": random.choice(["a", "b", "", None]),
            "x": random.choice([random.gauss(0, 1e6), float("nan"), None]), "n": n,
        }  # fmt: skip

    rows = [[one() for _ in range(40)] for _ in range(4)]
    return [{name: [row[name] for row in part] for name in part[0]} for part in rows]


def patterns() -> list[dict[str, Any]]:
    """Patterns that come and then leave: most of them die."""
    random = Random(5)
    names = [f"a{random.randrange(12)} b{random.randrange(3)}" for _ in range(120)]
    come = [{"pattern": names[at : at + 40], "count": [1] * 40} for at in (0, 40, 80)]
    leave = [{"pattern": part["pattern"], "count": [-1] * 40} for part in come]
    return [{**part, "supers": [0] * 40} for part in [*come, *leave]]


@pytest.mark.parametrize(
    ("operator", "batches"),
    [
        (WordCount(), BATCHES),
        (WordCount(emit_updates=True), BATCHES),
        (aggregates(), measures()),
        (FrequentPatterns(threshold=3), patterns()),
    ],
)
def test_every_built_in_operator_passes(operator: Operator[Any], batches: list[Any]) -> None:
    found = check(operator, batches)
    assert found.tasks > 1
    assert found.versions


def test_the_check_says_what_the_rows_have_led_to() -> None:
    found = check(Sums(), BATCHES, same_outputs=False)
    assert (found.rows, found.tasks, found.versions, found.timers) == (160, 4, False, 0)
    assert found.emitted > 0
    assert check(FrequentPatterns(threshold=3), patterns()).fed > 0
    assert check(Versioned(), BATCHES).versions


def test_timers_are_part_of_what_is_checked() -> None:
    found = check(Visits(), clicks(), same_outputs=True)
    assert found.timers > 0
    assert found.forgotten > 0
    assert found.emitted > 0


# ------------------------------------------------------------------ operators that break one


class NoCopy(Sums):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class NoCopyOpens(Sums):
    def open(self) -> None:
        raise OSError("no model here")


class DumpsTables(Sums):
    def dump(self, state: Any) -> Any:
        return [pa.Table.from_batches([self.rows(state)])]


class DumpsOneBatch(Sums):
    def dump(self, state: Any) -> Any:
        return self.rows(state)


class DumpsTwoSchemas(Sums):
    def dump(self, state: Any) -> Any:
        rows = self.rows(state)
        return [rows.slice(0, 1), rows.slice(1).rename_columns(["word", "m"])]


class EmitsOtherColumns(Sums):
    output_schema = pa.schema({"word": pa.string(), "n": pa.float64()})


class EmitsADict(Sums):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        context.emit({"word": ["a"]})


class Yields(Sums):
    """`process` is a generator, so nothing in it is ever run."""

    def process(self, state: Any, batch: Any, context: Context) -> Any:
        yield super().process(state, batch, context)


class FeedsOtherColumns(Sums):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        context.feed(pa.record_batch({"word": ["a"], "n": ["b"]}))


class ChangesItsInput(Sums):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        column = batch["n"]
        numbers = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column)]
        writable = np.lib.stride_tricks.as_strided(numbers, writeable=True)
        writable += 1


class CountsItsDumps(Sums):
    def dump(self, state: Any) -> Any:
        state["dumps"] = state.get("dumps", 0) + 1
        return super().dump(state)


class SharesItsNumbers(Operator[Any]):
    """Sums of all tasks' rows in an array, of which dumps are views: they change with it."""

    schema, keys = SCHEMA, ("word",)

    def create(self, context: Context) -> Any:
        return np.zeros(1, dtype=np.int64)

    def process(self, state: Any, batch: Any, context: Context) -> None:
        state += sum(batch["n"].to_pylist())

    def dump(self, state: Any) -> list[Any]:
        return [pa.record_batch([pa.array(state)], names=["sum"])]

    def load(self, batches: Any, context: Context) -> Any:
        return batches[0]["sum"].to_numpy().copy()

    def size(self, state: Any) -> int:
        return 8


class EmitsItsNumbers(SharesItsNumbers):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        context.emit(pa.record_batch([pa.array(state)], names=["sum"]))

    def dump(self, state: Any) -> list[Any]:
        return [pa.record_batch([pa.array(state.copy())], names=["sum"])]


class LosesKeys(Sums):
    """Loads only the first rows of a dump."""

    def load(self, batches: Any, context: Context) -> Any:
        return super().load([batch.slice(0, 8) for batch in batches], context)


class ForgetsOrder(Sums):
    """Keeps the first word it saw, which the dump does not say: results differ only later."""

    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        first = next(iter(state), None)
        context.emitted[:] = [self.rows({first: 1})]

    def dump(self, state: Any) -> Any:
        return [self.rows(dict(sorted(state.items())))]


class RefusesToLoad(Sums):
    def load(self, batches: Any, context: Context) -> Any:
        raise KeyError("version")


class KeepsStateInItself(Sums):
    """Remembers words in an attribute, and tells only of new ones."""

    def open(self) -> None:
        self.known: set[str] = set()

    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        (told,) = context.emitted
        new = [row for row in told.to_pylist() if row["word"] not in self.known]
        self.known |= {row["word"] for row in new}
        context.emitted[:] = [pa.RecordBatch.from_pylist(new, schema=SCHEMA)]


class SharesAmongTasks(Sums):
    """Counts calls in an attribute: which task is next depends on the neighbours."""

    def open(self) -> None:
        self.totals: dict[str, int] = {}

    def create(self, context: Context) -> Any:
        return self.totals

    def load(self, batches: Any, context: Context) -> Any:
        self.totals.update(super().load(batches, context))
        return self.totals


class OtherGroups(Sums):
    """Its `process_groups` leaves a row out."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        for state, (lb, ub), context in zip(states, pairwise(bounds), contexts, strict=True):
            self.process(state, batch.slice(lb, max(ub - lb - 1, 0)), context)


class CountsBatches(Sums):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        state["batches"] = state.get("batches", 0) + 1


class LastOfBatch(Sums):
    """Looks at the last row of a batch only: what is last depends on the borders."""

    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch.slice(batch.num_rows - 1), context)


class NoDeletions(Versioned):
    """Its changes do not say what is gone."""

    def changes(self, state: Any, since: int) -> list[Any]:
        (found,) = super().changes(state, since)
        return [found.filter(found["n"].is_valid())]


class OnlySinceTheLast(Versioned):
    """Forgets at each seal what was touched before."""

    def seal(self, state: Any) -> int:
        state.touched = {w: v for w, v in state.touched.items() if v == state.version}
        return super().seal(state)


class NotDivisible(Versioned):
    """Says that any rows of a dump will do, but takes the first for all."""

    divisible = True

    def apply_changes(self, state: Any, batches: Any, context: Context) -> Any:
        return (
            super().apply_changes(state if state.touched else Log(), batches, context)
            if len(state) < 4
            else state
        )


class NegativeSize(Sums):
    def size(self, state: Any) -> int:
        return -1


class FloatSize(Sums):
    def size(self, state: Any) -> Any:
        return 16.0 * len(state)


class ConstantSize(Sums):
    def size(self, state: Any) -> int:
        return 1000


class WrongTimerKey(Visits):
    def process(self, state: Any, batch: Any, context: Context) -> None:
        context.event_timers.set((7,), 10**15)


class TimesByHand(Visits):
    """Keeps what its timers mean in an attribute: it has not moved with them."""

    def open(self) -> None:
        self.seen: dict[str, int] = {}

    def process(self, state: Any, batch: Any, context: Context) -> None:
        super().process(state, batch, context)
        self.seen.update(state)

    def on_timer(self, state: Any, timer: Any, context: Context) -> None:
        self.seen.pop(timer.key[0])
        super().on_timer(state, timer, context)


@pytest.mark.parametrize(
    ("broken", "rule", "words"),
    [
        (NoCopy, "pickle", "cannot pickle"),
        (NoCopyOpens, "pickle", "no model here"),
        (DumpsTables, "types", "dump gives a Table, not a record batch"),
        (DumpsOneBatch, "types", "dump gives a RecordBatch, not a list"),
        (DumpsTwoSchemas, "types", "word string, m int64, not word string, n int64"),
        (EmitsOtherColumns, "types", "emit gives the columns word string, n int64"),
        (EmitsADict, "types", "emit gives a dict"),
        (FeedsOtherColumns, "types", "feed gives the columns word string, n string"),
        (WrongTimerKey, "types", "int"),
        (ChangesItsInput, "input", "only here"),
        (CountsItsDumps, "dump", "'dumps'"),
        (SharesItsNumbers, "fixed", "'sum'"),
        (EmitsItsNumbers, "fixed", "'sum'"),
        (LosesKeys, "load", "holds 8 rows, none only here"),
        (ForgetsOrder, "load", "emits 1 row, 1 of them only here"),
        (RefusesToLoad, "load", "KeyError: 'version'"),
        (KeepsStateInItself, "state", "emits"),
        (TimesByHand, "state", "KeyError"),
        (SharesAmongTasks, "apart", "holds"),
        (OtherGroups, "apart", "emits"),
        (Yields, "apart", "process gives a generator"),
        (CountsBatches, "cuts", "'batches'"),
        (LastOfBatch, "cuts", "holds"),
        (NoDeletions, "changes", "only here"),
        (OnlySinceTheLast, "changes", "only here"),
        (NotDivisible, "changes", "holds"),
        (NegativeSize, "size", "-1"),
        (FloatSize, "size", ".0"),
        (ConstantSize, "size", "1000 for one whose dump has"),
    ],
)
def test_a_broken_rule_is_named(broken: type[Operator[Any]], rule: str, words: str) -> None:
    batches = clicks() if issubclass(broken, Visits) else BATCHES
    with pytest.raises(OperatorRuleError) as caught:
        check(broken(), batches)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.operator, error.rule) == (broken.__name__, rule), error
    assert words in str(error)
    assert RULES[rule] in str(error)
    assert 0 <= error.batch < len(batches)


def test_the_lossy_load_is_shown_with_what_is_missing() -> None:
    with pytest.raises(OperatorRuleError) as caught:
        check(LosesKeys(), BATCHES, tasks=1)
    error = caught.value
    assert (error.task, error.batch) == (0, 0)
    assert error.expected.startswith("holds 34 rows, 26 of them only here: {'word': '")
    assert error.found == "holds 8 rows, none only here"


def test_outputs_may_depend_on_cuts_unless_the_operator_says_they_do_not() -> None:
    check(Sums(), BATCHES)
    with pytest.raises(OperatorRuleError, match="how rows are cut") as caught:
        check(Sums(), BATCHES, same_outputs=True)
    assert caught.value.rule == "cuts"


def test_what_process_raises_is_no_broken_rule() -> None:
    class Fails(Sums):
        def process(self, state: Any, batch: Any, context: Context) -> None:
            raise ZeroDivisionError

    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        check(Fails(), BATCHES)


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="no row"):
        check(Sums(), [])
    with pytest.raises(InputError, match="batch 0 does not fit Sums"):
        check(Sums(), [{"words": ["a"]}])


def test_a_class_of_a_notebook_can_be_checked() -> None:
    class Local(Sums):
        def __init__(self) -> None:
            self.double = lambda n: 2 * n

    check(Local(), BATCHES)


def test_the_page_lists_the_rules() -> None:
    page = Path(__file__).parents[2] / "docs" / "write-an-operator.md"
    table = page.read_text("utf-8").split("| rule | says |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    assert [(rule, says.replace("`", "")) for rule, says in listed] == list(RULES.items())


def test_the_check_does_not_load_the_simulator() -> None:
    loaded = "import sys, meander.testing as t; t.check; print('meander.protocol' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True)
    assert found.stdout.strip() == b"False"
