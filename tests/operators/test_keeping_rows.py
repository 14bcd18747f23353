"""Distinct rows, duplicates, tables and the best rows: against plain twins, and the rules."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests_of_operators import run

from meander.errors import InputError
from meander.operators import Deduplicate, Distinct, Input, StreamJoin, TableJoin, TopK
from meander.testing import check

S = 1_000_000
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us")})


def batches(seed: int, count: int = 6, rows: int = 50, keys: int = 12) -> list[pa.RecordBatch]:
    draw = np.random.Generator(np.random.PCG64(seed))
    found = []
    for b in range(count):
        at = (100 + 5 * b) * S + draw.integers(-3 * S, 5 * S, rows)
        columns = [
            pa.array([None if n == 0 else f"key-{n}" for n in draw.integers(0, keys, rows)]),
            pa.array(draw.integers(0, 40, rows), mask=draw.random(rows) < 0.1),
            pa.array(at, pa.timestamp("us"), mask=draw.random(rows) < 0.03),
        ]
        found.append(pa.record_batch(columns, schema=SCHEMA))
    return found


def test_distinct_rows_keep_the_rules_and_are_the_first_of_their_keys() -> None:
    given = batches(1, keys=150)
    done = check(Distinct(SCHEMA, ["k"]), given, same_outputs=True)
    assert done.versions
    assert not done.combined
    found, _ = run(Distinct(SCHEMA, ["k"]), given)
    first: dict[Any, Any] = {}
    for row in (row for batch in given for row in batch.to_pylist()):
        first.setdefault(row["k"], row)
    assert sorted(found, key=repr) == sorted(first.values(), key=repr)


def dedup() -> Deduplicate:
    return Deduplicate(SCHEMA, ["k"], event_time="at", delay_s=4.0)


def test_duplicates_within_the_watermark_are_left_out() -> None:
    for seed in range(3):
        given = batches(seed)
        done = check(dedup(), given, same_outputs=True)
        assert done.versions
        assert done.forgotten
        found, late = run(dedup(), given)
        known: dict[Any, int] = {}
        expected, mark, skipped = [], 0, 0
        for batch in given:
            latest = 0
            times = batch["at"].cast(pa.int64()).to_pylist()
            for row, at in zip(batch.to_pylist(), times, strict=True):
                latest = max(latest, at or 0)
                if at is None or at <= mark:
                    skipped += 1
                elif known.get(row["k"], 0) <= mark:
                    known[row["k"]] = at + 4 * S
                    expected.append(row)
            mark = max(mark, latest - 4 * S)
        assert (found, late) == (expected, skipped)


def test_keys_that_are_forgotten_make_room() -> None:
    op = dedup()
    given = []
    for b in range(8):
        columns = [[f"{b}-{i}" for i in range(1500)], [1] * 1500, [(100 + 10 * b) * S] * 1500]
        given.append(pa.record_batch(columns, schema=SCHEMA))
    found, _ = run(op, given)
    assert len(found) == 8 * 1500
    assert check(op, given[:3]).forgotten


STREAM = pa.schema({"k": pa.string(), "n": pa.int64()})
TABLE = pa.schema({"id": pa.string(), "price": pa.float64(), "name": pa.string()})


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_finds_what_the_table_has_just_then(how: str) -> None:
    op = TableJoin(Input(STREAM, ("k",)), Input(TABLE, ("id",)), names=("s", "t"), how=how)
    draw = np.random.Generator(np.random.PCG64(3))
    given, expected, known = [], [], dict[Any, Any]()
    for _ in range(6):
        parts = []
        for i in range(40):
            key = None if draw.random() < 0.05 else f"long-key-{draw.integers(0, 15)}"
            if draw.random() < 0.3:
                value = (float(draw.integers(0, 99)), f"n{i}")
                parts.append(op.of_input("t", pa.record_batch([[key], [value[0]], [value[1]]],
                                                              schema=TABLE)))  # fmt: skip
                known[key] = value
            else:
                parts.append(op.of_input("s", pa.record_batch([[key], [i]], schema=STREAM)))
                price, name = known.get(key, (None, None)) if key else (None, None)
                if price is not None or how == "left":
                    expected.append({"k": key, "n": i, "price": price, "name": name})
        given.append(pa.concat_batches(parts))
    found, _ = run(op, given)
    assert found == expected
    done = check(op, given, same_outputs=True)
    assert done.versions


def test_rows_of_a_table_that_were_replaced_make_room() -> None:
    op = TableJoin(Input(STREAM, ("k",)), Input(TABLE, ("id",)), names=("s", "t"))
    rows = pa.record_batch([["a", "b"] * 1000, [1.0] * 2000, ["x"] * 2000], schema=TABLE)
    asked = op.of_input("s", pa.record_batch([["a", "c"], [1, 2]], schema=STREAM))
    found, _ = run(op, [*[op.of_input("t", rows)] * 3, asked])
    assert found == [{"k": "a", "n": 1, "price": 1.0, "name": "x"}]


@pytest.mark.parametrize("how", [{"k": 3}, {"k": 2, "ties": True}, {"k": 2, "smallest": True}])
def test_the_best_rows_of_each_key(how: dict[str, Any]) -> None:
    op = TopK(SCHEMA, ["k"], "n", **how)
    given = batches(4)
    done = check(op, given)
    assert done.versions
    assert done.emitted > 20
    found, _ = run(op, given)
    by_key = defaultdict(list)
    for row in (row for batch in given for row in batch.to_pylist()):
        by_key[row["k"]].append(row)
    sign = -1 if how.get("smallest") else 1
    for key, rows in by_key.items():
        ranked = sorted(rows, key=lambda r: -sign * (-1000 if r["n"] is None else r["n"]))
        kept = ranked[: how["k"]]
        if how.get("ties"):
            kept += [r for r in ranked[how["k"] :] if r["n"] == kept[-1]["n"]]
        told = [row for row in found if row["k"] == key][-len(kept) :]
        assert [r["n"] for r in told] == [r["n"] for r in kept]


def test_a_null_is_less_than_the_least_number() -> None:
    schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for given in ([None, least, most], [least, most, None], [most, None, None, least]):
        rows = pa.record_batch([[1] * len(given), pa.array(given, pa.int64())], schema=schema)
        for smallest, best in ((False, [most, least]), (True, [None, least])):
            op = TopK(schema, ["k"], "n", k=2, smallest=smallest, ties=True)
            expected = [None, None] if smallest and given.count(None) > 1 else best
            for batches in ([rows], [rows.slice(at, 1) for at in range(len(given))]):
                found, _ = run(op, batches)
                assert [row["n"] for row in found][-2:] == expected


@pytest.mark.parametrize("kind", [TopK, Distinct, StreamJoin])
def test_columns_may_be_dictionaries(kind: Any) -> None:
    words = pa.dictionary(pa.int32(), pa.string())
    left, right = (pa.schema({"k": words, name: pa.int64()}) for name in ("v", "w"))
    parts = [["a", "b", None, "a"], ["c", "a"], ["b", "d", "c"]]
    given = [
        pa.record_batch([pa.array(part).dictionary_encode(), range(len(part))], schema=left)
        for part in parts
    ]
    if kind is StreamJoin:
        op: Any = StreamJoin(Input(left, ("k",)), Input(right, ("k",)))
        rows = [(name, batch) for batch in given for name in ("left", "right")]
        given = [
            op.of_input(name, b.rename_columns(op.inputs[name].schema.names)) for name, b in rows
        ]
    else:
        op = TopK(left, ["k"], "v") if kind is TopK else Distinct(left, ["k"])
    assert check(op, given).emitted


def test_the_best_rows_are_told_when_their_time_has_come() -> None:
    schema = pa.schema({"ends": pa.timestamp("us"), "item": pa.int64(), "n": pa.int64()})
    op = TopK(schema, ["ends"], "n", k=1, ties=True, closes="ends", delay_s=12.0)
    draw = np.random.Generator(np.random.PCG64(4))
    given, best = [], defaultdict[int, list[Any]](list)
    for b in range(5):
        ends = (10 * b + 10 * draw.integers(0, 2, 60)) * S + 100 * S
        items, n = draw.integers(0, 50, 60), draw.integers(0, 9, 60)
        given.append(pa.record_batch([pa.array(ends, pa.timestamp("us")), items, n], schema=schema))
        for end, item, value in zip(ends.tolist(), items.tolist(), n.tolist(), strict=True):
            best[end].append((value, item))
    found, late = run(op, given)
    assert not late
    told = defaultdict(list)
    for row in found:
        told[round(row["ends"].timestamp() * S)].append((row["n"], row["item"]))
    expected = {
        end: [pair for pair in rows if pair[0] == max(rows)[0]] for end, rows in best.items()
    }
    assert {end: sorted(rows) for end, rows in told.items()} == {
        end: sorted(rows) for end, rows in expected.items()
    }
    done = check(op, given, same_outputs=True)
    assert done.forgotten


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="k is at least 1"):
        TopK(SCHEMA, ["k"], "n", k=0)
    with pytest.raises(InputError, match="no column 'x'"):
        TopK(SCHEMA, ["k"], "x")
    with pytest.raises(InputError, match="closes='at' is no key"):
        TopK(SCHEMA, ["k"], "n", closes="at")
    with pytest.raises(InputError, match="use one of"):
        TableJoin(Input(STREAM, ("k",)), Input(TABLE, ("id",)), how="outer")
