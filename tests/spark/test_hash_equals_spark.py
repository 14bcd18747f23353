"""Our hash against Spark's own `xxhash64`, value by value, over random columns of every type."""

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from meander.operators.hashing import hash_columns, tasks_of

ROWS = 3000


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").appName("hash")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(key, value)
    running = SparkSession.getActiveSession() is not None
    spark = builder.getOrCreate()
    yield spark
    if not running:
        spark.stop()


def random_table(seed: int) -> pa.Table:
    rng, np_rng = random.Random(seed), np.random.default_rng(seed)

    def column(kind: pa.DataType, special: list, draw) -> pa.Array:
        values = [None, *special]
        values += [draw() if rng.random() > 0.05 else None for _ in range(ROWS - len(values))]
        return pa.array(values, kind)

    def integers(kind: pa.DataType, bits: int, signed: bool = True) -> pa.Array:
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return column(kind, [low, high, 0, 1], lambda: rng.randint(low, high))

    def text() -> str:
        letters = "aZ0 _é\u0130Σß中😀\u0000"
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, 70)))

    def decimal(digits: int, scale: int):
        def draw() -> Decimal:
            size = 10 ** rng.randint(1, digits)
            return Decimal(f"{rng.randint(-size + 1, size - 1)}E-{scale}")

        top = 10**digits - 1
        special = [Decimal(f"{number}E-{scale}") for number in (top, -top, 0)]
        return column(pa.decimal128(digits, scale), special, draw)

    def day() -> dt.date:
        return dt.date(1900, 1, 1) + dt.timedelta(rng.randint(0, 90_000))

    def moment() -> dt.datetime:
        return instant + dt.timedelta(milliseconds=rng.randint(0, 2**41))

    def micro() -> dt.datetime:
        return moment() + dt.timedelta(microseconds=rng.randint(0, 999))

    def blob() -> bytes:
        return rng.randbytes(rng.randint(0, 70))

    instant = dt.datetime(1969, 1, 1, tzinfo=dt.UTC)
    floats = [0.0, -0.0, float("nan"), float("inf"), -float("inf")]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "boolean": column(pa.bool_(), [True, False], lambda: rng.random() < 0.5),
            "byte": integers(pa.int8(), 8),
            "short": integers(pa.int16(), 16),
            "int": integers(pa.int32(), 32),
            "long": integers(pa.int64(), 64),
            "ubyte": integers(pa.uint8(), 8, signed=False),
            "ushort": integers(pa.uint16(), 16, signed=False),
            "uint": integers(pa.uint32(), 32, signed=False),
            "float": column(pa.float32(), floats, lambda: float(np.float32(np_rng.normal()))),
            "double": column(pa.float64(), floats, lambda: float(np_rng.normal() * 1e9)),
            "date": column(pa.date32(), [], day),
            "timestamp": column(pa.timestamp("us", "UTC"), [instant], micro),
            "millis": column(pa.timestamp("ms", "UTC"), [instant], moment),
            "decimal": decimal(12, 3),
            "wide_decimal": decimal(38, 5),
            "string": column(pa.string(), ["", "a", "x" * 31, "x" * 32, "x" * 33, "x" * 64], text),
            "binary": column(pa.binary(), [b"", b"\x00", b"\xff" * 40], blob),
        }
    )


def test_every_type_several_columns_and_tasks_equal_spark(
    session: SparkSession, tmp_path: Path
) -> None:
    table = random_table(seed=7)
    pq.write_table(table, tmp_path / "rows.parquet")
    keys = [[name] for name in table.column_names]
    keys += [["string", "long"], ["long", "string"], ["float", "binary", "date", "boolean"]]
    keys += [["string", "string"], ["decimal", "wide_decimal", "timestamp", "double"]]
    columns = [f"xxhash64({', '.join(key)}) AS h{i}" for i, key in enumerate(keys)]
    hashed = "shiftrightunsigned(xxhash64(string), 32)"
    columns.append(f"CAST(shiftrightunsigned({hashed} * 1000, 32) AS INT) AS task")
    rows = session.read.parquet(str(tmp_path / "rows.parquet")).orderBy("id")
    spark = rows.selectExpr(*columns).toArrow()
    for i, key in enumerate(keys):
        ours = hash_columns([table[name] for name in key]).view(np.int64)
        theirs = spark[f"h{i}"].to_numpy()
        differ = np.flatnonzero(ours != theirs)
        assert not len(differ), (key, table.select(key).slice(differ[0], 1).to_pylist())
    ours = tasks_of(hash_columns([table["string"]]), 1000)
    assert ours.tolist() == spark["task"].to_pylist()
