"""Stream joins against a plain twin, and the rules of an operator."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests_of_operators import run

from meander.errors import InputError, StateError
from meander.operators import Context, Input, StreamJoin
from meander.testing import check

S = 1_000_000
TIME = pa.timestamp("us")
LEFT = pa.schema({"k": pa.string(), "a": pa.int64(), "at": TIME, "ends": TIME})
RIGHT = pa.schema({"id": pa.string(), "b": pa.string(), "then": TIME})


def join(**how: Any) -> StreamJoin:
    timed = how.get("between_s") is not None
    left, right = ("at", "then") if timed else (None, None)
    return StreamJoin(Input(LEFT, ("k",), left), Input(RIGHT, ("id",), right), **how)


def rows(seed: int, count: int = 6, each: int = 40, jitter_s: float = 3.0) -> list[tuple[Any, ...]]:
    """Give (side, key, number, time) batch by batch; both sides, with nulls."""
    draw = np.random.Generator(np.random.PCG64(seed))
    found = []
    for b in range(count):
        part = []
        for _ in range(each):
            key = None if draw.random() < 0.05 else f"key-{draw.integers(0, 8)}"
            at = (100 + 6 * b) * S + int(draw.integers(0, int((6 + jitter_s) * S)))
            at = None if draw.random() < 0.03 else at - int(jitter_s * S)
            part.append((int(draw.integers(0, 2)), key, int(draw.integers(0, 1000)), at))
        found.append(part)
    return found


def batches(op: StreamJoin, given: list[Any]) -> list[pa.RecordBatch]:
    """Bring the rows to the operator, sides mixed as they came."""
    found = []
    for part in given:
        parts = []
        for side, key, n, at in part:
            ends = None if at is None else at + (n % 7) * S
            if side == 0:
                row = pa.record_batch([[key], [n], [at], [ends]], schema=LEFT)
            else:
                row = pa.record_batch([[key], [str(n)], [at]], schema=RIGHT)
            parts.append(op.of_input(list(op.inputs)[side], row))
        found.append(pa.concat_batches(parts))
    return found


def twin(given: list[Any], how: str, lower: float, upper: float | str, delay_s: float) -> Any:
    """Join by hand; rows behind the watermark of their batch are late."""
    kept: list[Any] = []
    mark = late = 0
    for part in given:
        for row in part:
            if row[3] is not None and row[3] <= mark:
                late += 1
            else:
                kept.append(row)
        mark = max([mark, *(row[3] - int(delay_s * S) for row in part if row[3] is not None)])
    found = []
    for side, key, n, at in kept:
        if side:
            continue
        mine = []
        for other, theirs, m, then in kept:
            if other and key is not None and key == theirs and at is not None and then is not None:
                top = at + (n % 7) * S if isinstance(upper, str) else at + upper * S
                if at + lower * S <= then <= top:
                    mine.append((key, n, at, str(m), then))
        found += mine or ([(key, n, at, None, None)] if how == "left" else [])
    return sorted(found, key=repr), late


def told(found: list[dict[str, Any]]) -> list[Any]:
    """Give outputs as the twin gives them."""

    def us(value: Any) -> Any:
        return None if value is None else round(value.timestamp() * S)

    pairs = [(r["k"], r["a"], us(r["at"]), r["b"], us(r["then"])) for r in found]
    return sorted(pairs, key=repr)


CASES = [
    {"between_s": (-2.0, 5.0), "delay_s": 3.0},
    {"between_s": (-2.0, 5.0), "delay_s": 0.5, "how": "left"},
    {"between_s": (1.0, 4.0), "delay_s": 3.0, "how": "left"},
    {"between_s": (-4.0, -1.0), "delay_s": 3.0, "how": "left"},
    {"between_s": (0.0, "ends"), "delay_s": 3.0},
    {"between_s": (0.0, "ends"), "delay_s": 1.0, "how": "left"},
]


@pytest.mark.parametrize("how", [*CASES, {}])
def test_joins_keep_the_rules(how: dict[str, Any]) -> None:
    op = join(**how)
    done = check(op, batches(op, rows(1)), same_outputs=how.get("how") != "left")
    assert done.versions
    assert done.emitted > 20
    assert not how or done.forgotten > 20


@pytest.mark.parametrize("how", CASES)
def test_joins_by_interval_equal_a_join_by_hand(how: dict[str, Any]) -> None:
    for seed in range(3):
        given, op = rows(seed), join(**how)
        found, late = run(op, batches(op, given))
        lower, upper = how["between_s"]
        expected = twin(given, how.get("how", "inner"), lower, upper, how["delay_s"])
        assert (told(found), late) == expected


def test_a_join_without_an_interval_keeps_all_rows() -> None:
    given, op = rows(5), join()
    found, _ = run(op, batches(op, given))
    flat = [row for part in given for row in part]
    pairs = [
        (key, n, at, str(m), then)
        for side, key, n, at in flat
        for other, theirs, m, then in flat
        if not side and other and key is not None and key == theirs
    ]
    assert told(found) == sorted(pairs, key=repr)


def test_many_pairs_and_rows_that_are_gone_find_room() -> None:
    op = join(between_s=(0.0, 1.0))
    here, found = Context(0, 1), 0
    from meander.operators.timers import Timers

    here.event_timers = Timers()
    state = op.create(here)
    for second in range(6):
        n = 2000
        left = pa.record_batch([["x"] * n, range(n), [second * S + 1] * n, [None] * n], schema=LEFT)
        right = pa.record_batch([["x"] * 3, ["y"] * 3, [second * S + 2] * 3], schema=RIGHT)
        for name, batch in (("left", left), ("right", right)):
            op.process(state, op.of_input(name, batch), here)
        found += sum(batch.num_rows for batch in here.emitted)
        here.emitted = []
        here.watermark_us = second * S
        due = here.event_timers.due(here.watermark_us)
        if due:
            from meander.operators import Timer

            op.fire(state, [Timer(*pair, True) for pair in due], here)
        assert len(state) < 8000
    assert found == 6 * 2000 * 3


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="between_s"):
        join(how="left")
    with pytest.raises(InputError, match="use one of"):
        join(how="outer")
    with pytest.raises(InputError, match="one name"):
        StreamJoin(Input(LEFT, ("k",)), Input(LEFT, ("k",)))
    op, here = join(), Context(0, 1)
    with pytest.raises(InputError, match="no input"):
        op.of_input("middle", pa.record_batch([], schema=pa.schema([])))
    with pytest.raises(StateError, match="another join"):
        op.load([pa.record_batch({"#sequence": [1], "x": [2]})], here)
