"""Timers fire when a watermark or the clock makes them due, and what they emit is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import Context, Operator, WordCount
from meander.operators.timers import Timer
from meander.runtime.process.app_state import AppState
from meander.runtime.process.keeping import OutputKeeper
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.timing import Timing, together

S = 1_000_000


class Alarms(Operator[list[Any]]):
    """Emits what fires."""

    schema = pa.schema({"user": pa.string(), "at": pa.timestamp("us")})
    keys = ("user",)
    event_time, delay_s, idle_s = "at", 1.0, 30.0

    def create(self, context: Context) -> list[Any]:
        return []

    def process(self, state: list[Any], batch: Any, context: Context) -> None:
        """Take nothing."""

    def fire(self, state: list[Any], timers: Sequence[Timer], context: Context) -> None:
        if any("boom" in timer.key for timer in timers):
            raise LookupError("boom")
        for timer in timers:
            context.emit(pa.record_batch({"user": [timer.key[0]], "event": [timer.event]}))

    def dump(self, state: list[Any]) -> list[Any]:
        return []

    def load(self, batches: Any, context: Context) -> list[Any]:
        return []

    def size(self, state: list[Any]) -> int:
        return 0


class Place:
    def __init__(self) -> None:
        self.now_us = 0
        operator = Alarms()
        self.timing = Timing(operator, 1, OutputKeeper(operator), lambda: self.now_us)
        self.app = AppState(0, [], Outputs(), self.timing.fresh())

    def emitted(self) -> list[Any]:
        batches = [batch for _, batch in self.app.outputs.after(0)]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_a_watermark_less_the_delay_makes_event_timers_due() -> None:
    place = Place()
    assert place.app.time is not None
    place.app.time.event_timers.set(("a",), 5 * S)
    place.timing.hear({0: (place.app, [("f", 5 * S)])})
    assert place.emitted() == []
    place.timing.hear({0: (place.app, [("f", 6 * S)])})
    assert place.emitted() == [("a", True)]


def test_the_clock_makes_the_others_due_and_nothing_else_is_a_change() -> None:
    place = Place()
    context = place.timing.context(place.app)
    context.timers.set(("a",), 5 * S)
    assert not place.timing.due(place.app) or place.timing.elapse(place.app) is None
    place.now_us = 5 * S
    assert place.timing.due(place.app)
    assert place.timing.elapse(place.app) is not None
    assert place.emitted() == [("a", False)]


def test_timers_and_watermarks_survive_a_dump() -> None:
    place = Place()
    place.timing.context(place.app).timers.set(("a",), 9 * S)
    place.timing.hear({0: (place.app, [("f", 6 * S)])})
    found = place.timing.load(*place.timing.dump(place.app))
    assert found is not None
    assert (found.watermark_us, found.timers.next_us) == (5 * S, 9 * S)


def test_what_fires_and_fails_is_the_operators_fault() -> None:
    place = Place()
    place.timing.context(place.app).timers.set(("boom",), 1)
    place.now_us = S
    with pytest.raises(OperatorError, match=r"fire: .*boom"):
        place.timing.elapse(place.app)


def test_an_operator_without_time_has_none() -> None:
    operator = WordCount()
    timing = Timing(operator, 1, OutputKeeper(operator), lambda: 0)
    app = AppState(0, None, Outputs(), timing.fresh())
    assert (app.time, timing.due(app), timing.dump(app)) == (None, False, (b"", None))
    assert timing.load(b"", None) is None


def test_neighbours_of_one_schema_become_one_batch() -> None:
    a, b = pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})
    assert [batch.num_rows for batch in together([a, a, b, a])] == [2, 1, 1]


@pytest.mark.parametrize("hours", [-3, 3])
def test_who_is_silent_is_told_by_a_clock_that_does_not_jump(hours: int) -> None:
    """The calendar jumps: nobody is silent for that, and whoever is, is so in time."""
    now_us, jump_us, operator = 0, 0, Alarms()
    timing = Timing(
        operator, 1, OutputKeeper(operator), lambda: now_us + jump_us, steady=lambda: now_us
    )
    app = AppState(0, [], Outputs(), timing.fresh())
    assert app.time is not None
    timing.hear({0: (app, [("b", 5 * S), ("a", 9 * S)])})
    jump_us = hours * 3600 * S
    timing.hear({0: (app, [("a", 20 * S)])})
    assert app.time.watermark_us == 4 * S  # b holds it
    now_us = 29 * S
    timing.hear({0: (app, [("a", 30 * S)])})
    assert app.time.watermark_us == 4 * S
    now_us = 31 * S
    assert timing.due(app)
    assert timing.elapse(app) is not None
    assert app.time.watermark_us == 29 * S
