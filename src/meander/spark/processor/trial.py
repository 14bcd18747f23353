"""A processor in the simulated world: values, lists and maps that are written and deleted all the time.

Every row is answered with all that its key has then. In which order rows of several sources came is
what the answers say: followed in that order, plain Python must find the same after every row, and at
the end the state.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, Row, StructField, StructType

from meander.model import TaskId
from meander.operators.base import Operator
from meander.spark.processor.operator import processor
from meander.testing.world.trials.trial import (
    EXTENT,
    Fed,
    Outputs,
    Places,
    States,
    TrialSize,
    feeder_names,
    rows_by_key,
    shown_rows,
    unequal,
)

KEYS = tuple(f"account{i}" for i in range(32))
"""So many that most have few rows: what is deleted stays deleted for a while, or for good."""
ROWS = pa.schema({"key": pa.string(), "row": pa.int64(), "what": pa.string(), "n": pa.int64()})
ANSWERS = pa.schema(
    {
        "key": pa.string(),
        "row": pa.int64(),
        "now": pa.string(),
        "at": pa.int64(),
        "brief": pa.int64(),
    }
)
WAVES = (
    (*["add"] * 4, "no total", "no list", "no map", "no item"),
    (*["add"] * 4, "no total", "no list", "no map", "no item", *["nothing"] * 7),
    ("nothing",),
)
"""What a row does to its key: adds to all three, or deletes one of them, an item of the map, or all.
It goes in waves: keys come, keys come and go, keys go."""
WAVE_OFFSETS = 2
"""Batches of a source that a wave lasts."""
NUMBER = StructType([StructField("n", LongType())])
ITEM = StructType([StructField("item", LongType())])
ITEMS = 3
BRIEF_MS = 200
LONG_MS = 10 * 365 * 24 * 3600 * 1000
"""How long what is brief lives, and all else beside it: no calendar jumps so far."""


class LedgerProcessor(StatefulProcessor):
    """A total, a list and a map of numbers for each key.

    With something brief beside them, all have a time to live: what is swept away must be that alone.
    """

    def __init__(self, *, brief: bool = False) -> None:
        self._has_brief = brief

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare them."""
        ttl_ms = LONG_MS if self._has_brief else None
        self.total = handle.getValueState("total", NUMBER, ttl_ms)
        self.listed = handle.getListState("listed", NUMBER, ttl_ms)
        self.mapped = handle.getMapState("mapped", ITEM, NUMBER, ttl_ms)
        if self._has_brief:
            self.brief = handle.getValueState("brief", NUMBER, BRIEF_MS)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Do what each row says; answer with what there is then."""
        for row in rows:
            self._do(row["what"], row["n"])
            at = timerValues.getCurrentProcessingTimeInMs()
            brief = self.brief.get() if self._has_brief else None
            shown = None if brief is None else brief[0]
            yield Row(key=key[0], row=row["row"], now=self._now(), at=at, brief=shown)

    def _do(self, what: str, n: int) -> None:
        item = (n % ITEMS,)
        if what == "add":
            self.total.update(((self.total.get() or (0,))[0] + n,))
            self.listed.appendValue((n,))
            found = self.mapped.getValue(item)
            self.mapped.updateValue(item, ((0 if found is None else found[0]) + n,))
            if self._has_brief:
                self.brief.update((n,))
        if what == "no item":
            self.mapped.removeKey(item)
        if what in ("no total", "nothing"):
            self.total.clear()
        if what in ("no list", "nothing"):
            self.listed.clear()
        if what in ("no map", "nothing"):
            self.mapped.clear()

    def _now(self) -> str:
        total = self.total.get()
        listed = [n for (n,) in self.listed.get()]
        mapped = {item: n for (item,), (n,) in self.mapped.iterator()}
        return said(None if total is None else total[0], listed, mapped)

    def close(self) -> None:
        """Nothing to do."""


def said(total: int | None, listed: list[int], mapped: dict[int, int]) -> str:
    """Write what a key has; nothing if it has nothing.

    >>> said(3, [1, 2], {2: 2, 1: 1}), said(None, [], {})
    ('3 [1, 2] [(1, 1), (2, 2)]', '')
    """
    if total is None and not listed and not mapped:
        return ""
    return f"{total} {listed} {sorted(mapped.items())}"


class Account:
    """What a key has, in plain Python."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.listed: list[int] = []
        self.mapped: dict[int, int] = {}

    def do(self, what: str, n: int) -> str:
        """Do what a row says; give what there is then."""
        match what:
            case "add":
                self.total = n + (self.total or 0)
                self.listed.append(n)
                self.mapped[n % ITEMS] = self.mapped.get(n % ITEMS, 0) + n
            case "no total":
                self.total = None
            case "no list":
                self.listed = []
            case "no map":
                self.mapped = {}
            case "no item":
                self.mapped.pop(n % ITEMS, None)
            case _:
                self.total, self.listed, self.mapped = None, [], {}
        return said(self.total, self.listed, self.mapped)


class BriefBook:
    """What is brief in one task, by the times that its answers name.

    >>> book, fed = BriefBook(), {"what": "add", "n": 7}
    >>> book.fits({"key": "k", "at": 1000, "brief": 7}, fed)
    True
    >>> book.fits({"key": "k", "at": 1199, "brief": None}, {"what": "no list", "n": 1})
    False
    >>> book.fits({"key": "k", "at": 1200, "brief": 7}, {"what": "no list", "n": 1})
    False
    """

    def __init__(self) -> None:
        self._written: dict[str, tuple[int, int]] = {}
        """The last value of each key, and when it has outlived its time."""
        self._latest_ms = 0

    def fits(self, row: dict[str, Any], fed: dict[str, Any]) -> bool:
        """Tell whether an answer has what it must; calendars differ, so it may be swept away before."""
        key, at = row["key"], row["at"]
        if fed["what"] == "add":
            self._written[key] = fed["n"], at + BRIEF_MS
            self._latest_ms = max(self._latest_ms, at)
            return bool(row["brief"] == fed["n"])
        n, until = self._written.get(key, (None, 0))
        swept, self._latest_ms = self._latest_ms >= until, max(self._latest_ms, at)
        if row["brief"] is None:
            return n is None or swept or at >= until
        return bool(row["brief"] == n) and at < until


class ProcessorTrial:
    """A processor that deletes."""

    name = "processor"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        numbers = count()

        def columns(rows_max: int, wave: int) -> list[Any]:
            keys = [random.choice(KEYS) for _ in range(random.randint(0, rows_max))]
            does = [(random.choice(WAVES[wave % len(WAVES)]), random.randint(1, 99)) for _ in keys]
            return [keys, [next(numbers) for _ in keys], [w for w, _ in does], [n for _, n in does]]

        self.tasks = tasks
        self.places = Places(KEYS, tasks)
        self.feeders = {
            name: [
                pa.record_batch(columns(4 * extent.offset_rows_max, i // WAVE_OFFSETS), schema=ROWS)
                for i in range(extent.offsets)
            ]
            for name in feeder_names(extent)
        }
        self.batches = [
            pa.table(columns(4 * extent.batch_rows_max, i), schema=ROWS)
            for i in range(extent.batches)
        ]
        self.fed = Fed(self.feeders.values(), self.batches)
        brief = next(numbers) % 2 == 0  # as many rows as there happen to be
        ledger = LedgerProcessor(brief=brief)
        mode = "ProcessingTime" if brief else "None"
        operator = processor(ledger, ANSWERS, keys=["key"], schema=ROWS, form="row", time_mode=mode)
        gone_max = random.choice((0, 0, 0, 2))
        operator.layout = operator.layout._replace(gone_max=gone_max)
        self._pickled = pickle.dumps(operator)

    def operator(self) -> Operator[Any]:
        """Give a copy, as processes get one."""
        found: Operator[Any] = pickle.loads(self._pickled)
        return found

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Follow the outputs; the states must be what they lead to."""
        wrong, followed = [], dict[TaskId, dict[str, str]]()
        for task, shown in outputs.items():
            rows, why = shown_rows(task, shown)
            wrong += why + self.fed.unanswered(task, rows, self.places.of(task))
            followed[task], why = self._followed(task, rows)
            wrong += why
        for task, table in states.items():
            found, why = rows_by_key(table, "key", task, self.places)
            wrong += why
            if task in followed:
                now = {key: _shown(row) for key, row in found.items() if not only_brief(row)}
                wrong += unequal(f"task {task} has", now, followed[task])
        return wrong

    def _followed(self, task: TaskId, rows: list[Any]) -> tuple[dict[str, str], list[str]]:
        """Do as the rows say, in the order that was shown; say where an answer differs."""
        accounts, now, wrong = dict[str, Account](), dict[str, str](), list[str]()
        brief = BriefBook()
        for row in rows:
            key, fed = row["key"], self.fed.rows.get(row["row"])
            if fed is None:
                continue
            now[key] = accounts.setdefault(key, Account()).do(fed["what"], fed["n"])
            if row["now"] != now[key]:
                wrong.append(f"task {task} has shown {row}, a sequential run {now[key]!r}")
            if row["at"] > 0 and not brief.fits(row, fed):
                wrong.append(f"task {task} has shown {row}: not what is brief, by its own time")
        return {key: text for key, text in now.items() if text}, wrong


def only_brief(row: dict[str, Any]) -> bool:
    """Whether all that is left of a key is what is not swept away yet."""
    return not _shown(row) and row.get("brief") is not None


def _shown(row: dict[str, Any]) -> str:
    """Write a row of the state as an answer is written."""
    total, listed, mapped = row["total"], row["listed"] or (), row["mapped"] or ()
    return said(
        None if total is None else total["n"],
        [value["n"] for value in listed],
        {item["item"]: value["n"] for item, value in mapped},
    )
