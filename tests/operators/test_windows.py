"""Windows against a plain twin, and the rules of an operator."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests_of_operators import run

from meander.errors import InputError
from meander.operators import Aggregate, Window, WindowAggregate, sliding, tumbling, until
from meander.testing import check

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us")})
AGGREGATES = {
    "rows": Aggregate("count"),
    "sum": Aggregate("sum", "n"),
    "max": Aggregate("max", "n"),
}
S = 1_000_000


def batches(
    seed: int, count: int = 6, rows: int = 60, jitter_s: float = 4.0
) -> list[pa.RecordBatch]:
    draw = np.random.Generator(np.random.PCG64(seed))
    found = []
    for b in range(count):
        at = (100 + 7 * b) * S + draw.integers(0, int((7 + jitter_s) * S), rows) - int(jitter_s * S)
        key = [None if n == 9 else f"key-{n}" for n in draw.integers(0, 10, rows)]
        nulls = draw.random(rows) < 0.1
        columns = [
            pa.array(key),
            pa.array(draw.integers(-50, 50, rows), mask=nulls),
            pa.array(at, pa.timestamp("us"), mask=draw.random(rows) < 0.03),
        ]
        found.append(pa.record_batch(columns, schema=SCHEMA))
    return found


WINDOWS = [tumbling("at", 5.0), sliding("at", 10.0, 4.0), tumbling("at", 6.0, offset_s=2.0)]


def operator(window: Window, **how: Any) -> WindowAggregate:
    return WindowAggregate(SCHEMA, ["k"], AGGREGATES, window, **how)


@pytest.mark.parametrize("window", WINDOWS, ids=["tumbling", "sliding", "offset"])
@pytest.mark.parametrize("how", [{"delay_s": 4.0}, {"delay_s": 1.0, "lateness_s": 3.0}, {}])
def test_windows_keep_the_rules(window: Window, how: dict[str, float]) -> None:
    done = check(operator(window, **how), batches(1), same_outputs="lateness_s" not in how)
    assert done.versions
    assert done.emitted > 20
    assert done.forgotten > 10
    assert done.timers


def twin(given: list[pa.RecordBatch], window: Window, delay_us: int, late_us: int = 0) -> Any:
    """Count by hand: batch by batch, a row counts where its window has not ended."""
    found: dict[Any, list[Any]] = defaultdict(lambda: [0, None, None])
    mark = late = 0
    for batch in given:
        columns = [batch["k"], batch["n"], batch["at"].cast(pa.int64())]
        latest = 0
        for k, n, at in zip(*(c.to_pylist() for c in columns), strict=True):
            if at is None:
                continue
            latest, hit = max(latest, at), False
            start = (at - window.origin_us) // window.slide_us * window.slide_us + window.origin_us
            while start + window.size_us > at:
                if not mark or start + window.size_us > mark - late_us:
                    hit = True
                    cell = found[k, start]
                    cell[0] += 1
                    if n is not None:
                        cell[1] = n + (cell[1] or 0)
                        cell[2] = n if cell[2] is None else max(cell[2], n)
                start -= window.slide_us
            late += not hit
        mark = max(mark, latest - delay_us)
    return {key: tuple(cell) for key, cell in found.items()}, late


@pytest.mark.parametrize("window", WINDOWS, ids=["tumbling", "sliding", "offset"])
@pytest.mark.parametrize("delay_s", [0.0, 4.0])
def test_windows_equal_a_count_by_hand(window: Window, delay_s: float) -> None:
    for seed in range(4):
        given = batches(seed)
        rows, late = run(operator(window, delay_s=delay_s), given)
        told = {
            (r["k"], round(r["window_start"].timestamp() * S)): (r["rows"], r["sum"], r["max"])
            for r in rows
        }
        assert len(told) == len(rows), "a window is told once"
        assert (told, late) == twin(given, window, int(delay_s * S))


def test_a_late_row_is_told_again_where_lateness_allows_it() -> None:
    def rows(*pairs: tuple[str, float]) -> pa.RecordBatch:
        columns = [[k for k, _ in pairs], [1] * len(pairs), [int(at * S) for _, at in pairs]]
        return pa.record_batch(columns, schema=SCHEMA)

    given = [rows(("a", 1), ("b", 2), ("c", 12)), rows(("a", 3)), rows(("c", 18)), rows(("a", 4))]
    for window in (tumbling("at", 10.0), sliding("at", 10.0, 5.0)):
        op = operator(window, lateness_s=5.0)
        found, late = run(op, given)
        first = [(r["k"], r["rows"]) for r in found if r["window_start"].timestamp() == 0]
        assert first[:2] == [("a", 1), ("b", 1)]
        assert first[2:] == [("a", 2)]
        assert late == 1


def test_a_row_may_name_the_end_of_its_window() -> None:
    schema = pa.schema(
        {"k": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us"), "ends": pa.timestamp("us")}
    )
    op = WindowAggregate(
        schema, ["k"], {"max": Aggregate("max", "n")}, until("ends", 1.0), event_time="at"
    )
    given = [
        pa.record_batch(
            [[1, 1, 2], [3, 5, 4], [0, S, S], [9 * S + 5, 9 * S + 5, 2 * S]], schema=schema
        ),
        pa.record_batch([[3], [1], [20 * S], [30 * S]], schema=schema),
    ]
    found, _ = run(op, given)
    assert [(r["k"], r["max"]) for r in found] == [(2, 4), (1, 5), (3, 1)]
    check(op, given)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="by"):
        WindowAggregate(SCHEMA, ["k"], {"x": Aggregate("last", "n")}, sliding("at", 4.0, 2.0))
    with pytest.raises(InputError, match="timestamps"):
        operator(tumbling("n", 4.0))
    with pytest.raises(InputError, match="event_time"):
        operator(until("at"))
    with pytest.raises(InputError, match="slide"):
        sliding("at", 4.0, 5.0)


@pytest.mark.parametrize("lateness_s", [0.0, 30.0])
@pytest.mark.parametrize("window", [tumbling("at", 10.0), sliding("at", 10.0, 5.0)])
def test_windows_that_have_ended_before_1970_are_closed(window: Window, lateness_s: float) -> None:
    def rows(*seconds: int) -> pa.RecordBatch:
        n = len(seconds)
        return pa.record_batch([["a"] * n, [1] * n, [s * S for s in seconds]], schema=SCHEMA)

    op = operator(window, lateness_s=lateness_s)
    found, late = run(op, [rows(-100, -4), rows(-99, 12), rows(-98, -11, 13)])
    astride = int(window.slide_us < window.size_us)  # one from -5 to 5 has the row at -4
    assert late == 5 - astride
    begins = sorted({row["window_start"].timestamp() for row in found})
    assert begins == ([-5.0] if astride else []) + ([5.0] if astride else []) + [10.0]
