"""Sessions against a plain twin, and the rules of an operator."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests_of_operators import run

from meander.errors import InputError, OperatorError
from meander.operators import Aggregate, Context, SessionAggregate
from meander.operators.timers import Timers
from meander.testing import check

S = 1_000_000
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us")})
AGGREGATES = {
    "rows": Aggregate("count"),
    "n": Aggregate("count", "n"),
    "sum": Aggregate("sum", "n"),
    "min": Aggregate("min", "x"),
    "mean": Aggregate("mean", "n"),
}


def sessions(delay_s: float = 4.0) -> SessionAggregate:
    return SessionAggregate(SCHEMA, ["k"], AGGREGATES, event_time="at", gap_s=3.0, delay_s=delay_s)


def batches(seed: int, count: int = 8, rows: int = 40, keys: int = 12) -> list[pa.RecordBatch]:
    draw = np.random.Generator(np.random.PCG64(seed))
    found = []
    for b in range(count):
        at = (100 + 5 * b) * S + draw.integers(-4 * S, 5 * S, rows)
        at = np.where(draw.random(rows) < 0.5, at // S * S, at)  # some sessions touch
        columns = [
            pa.array([None if n == 0 else f"key-{n}" for n in draw.integers(0, keys, rows)]),
            pa.array(draw.integers(0, 40, rows), mask=draw.random(rows) < 0.2),
            pa.array(np.where(draw.random(rows) < 0.1, np.nan, draw.random(rows))),
            pa.array(at, pa.timestamp("us"), mask=draw.random(rows) < 0.03),
        ]
        found.append(pa.record_batch(columns, schema=SCHEMA))
    return found


@pytest.mark.parametrize("delay_s", [4.0, 0.0])
def test_sessions_keep_the_rules(delay_s: float) -> None:
    done = check(sessions(delay_s), batches(1), same_outputs=True)
    assert done.versions
    assert done.emitted > 20
    assert done.forgotten > 10
    assert done.timers


def test_sessions_equal_those_found_by_sorting() -> None:
    for seed in range(4):
        given = batches(seed)
        found, late = run(sessions(9.0), given)
        assert not late
        by_key = defaultdict(list)
        for batch in given:
            times = batch["at"].cast(pa.int64()).to_pylist()
            for row, at in zip(batch.to_pylist(), times, strict=True):
                if at is not None:
                    by_key[row["k"]].append((at, row["n"]))
        expected: list[Any] = []
        for key, rows in by_key.items():
            mine: list[Any] = []
            for at, n in sorted(rows, key=lambda pair: pair[0]):
                if not mine or at > mine[-1][2]:
                    mine.append([key, at, at, 0, None])
                mine[-1][2] = at + 3 * S
                mine[-1][3] += 1
                mine[-1][4] = mine[-1][4] if n is None else n + (mine[-1][4] or 0)
            expected += mine

        def us(value: Any) -> int:
            return round(value.timestamp() * S)

        told = [
            [r["k"], us(r["window_start"]), us(r["window_end"]), r["rows"], r["sum"]] for r in found
        ]
        assert sorted(told, key=repr) == sorted(expected, key=repr)


def test_sessions_that_touch_are_one() -> None:
    def rows(*seconds: int) -> pa.RecordBatch:
        n = len(seconds)
        columns = [["a"] * n, [1] * n, [0.5] * n, [second * S for second in seconds]]
        return pa.record_batch(columns, schema=SCHEMA)

    for given in ([rows(110, 113)], [rows(113), rows(110)], [rows(110, 116), rows(113)]):
        found, late = run(sessions(9.0), given)
        assert not late
        assert [row["rows"] for row in found] == [sum(batch.num_rows for batch in given)]


def test_rows_before_1970_are_late() -> None:
    given = []
    for seconds in ([-100, -3], [-99, 50]):
        columns = [["a", "a"], [1, 1], [0.5, 0.5], [second * S for second in seconds]]
        given.append(pa.record_batch(columns, schema=SCHEMA))
    found, late = run(sessions(0.0), given)
    assert late == 3
    assert [row["window_start"].timestamp() for row in found] == [50.0]


def test_sessions_that_are_over_make_room() -> None:
    op, given = sessions(), []
    for b in range(6):
        n = 1500
        columns = [[f"{b}-{i}" for i in range(n)], [1] * n, [0.5] * n, [(100 + 10 * b) * S] * n]
        given.append(pa.record_batch(columns, schema=SCHEMA))
    found, _ = run(op, given)
    assert len(found) == 6 * 1500
    here = Context(0, 1)
    here.event_timers = Timers()
    state = op.create(here)
    for batch in given:
        op.process(state, batch, here)
    op.apply_changes(state, [pa.record_batch({"#floor": [10**12]})], here)
    assert state.count == 0
    assert len(state.keys) == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="last"):
        SessionAggregate(SCHEMA, ["k"], {"x": Aggregate("last", "n")}, event_time="at", gap_s=1.0)
    with pytest.raises(InputError, match="gap"):
        SessionAggregate(SCHEMA, ["k"], AGGREGATES, event_time="at", gap_s=0.0)
    op, here = sessions(), Context(0, 1)
    here.event_timers = Timers()
    rows = pa.record_batch([["a"] * 2, [2**62] * 2, [0.0] * 2, [S] * 2], schema=SCHEMA)
    with pytest.raises(OperatorError, match="64 bits"):
        op.process(op.create(here), rows, here)
