"""`meander bench spark`: do the sides count the same rows, and would a wrong count be seen?"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander_lab.bench.spark_data import FILES, WARM_UP, StreamRows, files_of, tweets, wide
from meander_lab.bench.spark_rescale import excess
from meander_lab.bench.spark_sides import aggregate, drain, drop, sink


@pytest.fixture
def few(tmp_path: Path, spark: SparkSession) -> StreamRows:
    """Two batches that warm up and two that count, of three tweets a file."""
    texts = [f"to be or  not {i}" for i in range(24)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "all.parquet")
    return tweets(tmp_path / "all.parquet", batches=2, per_file=3, folder=tmp_path, spark=spark)


def test_the_truth_is_that_of_the_texts(few: StreamRows) -> None:
    assert few.batches == [5 * 3 * FILES] * (WARM_UP + 2)
    counts = dict(zip(*(few.counts[name].to_pylist() for name in ("word", "count")), strict=True))
    assert counts["to"] == counts["not"] == 24
    assert counts["7"] == 1
    assert "" not in counts


def test_both_sides_count_the_rows_and_a_wrong_count_is_seen(
    few: StreamRows, spark: SparkSession, tmp_path: Path
) -> None:
    """The other sides are in the long tier, with the whole bench."""
    ours = sink(spark, few, tmp_path / "meander", 2, durable=True)
    assert ours.equal
    other = replace(few)
    other.__dict__["counts"] = few.counts.slice(1)  # a truth that lacks a word
    theirs = aggregate(spark, other, tmp_path / "spark", 2)
    assert not theirs.equal
    for pace in (ours, theirs):
        assert len(pace.batch_ms) == 2  # those that warm up do not count
        assert pace.rows_s > 0


@pytest.mark.slow
def test_all_sides_count_the_same(few: StreamRows, spark: SparkSession, tmp_path: Path) -> None:
    assert aggregate(spark, few, tmp_path / "spark", 2).equal
    assert sink(spark, few, tmp_path / "texts", 2, durable=True, texts="text").equal
    for pace in (drop(spark, few, tmp_path / "noop"), drain(spark, few, tmp_path / "drain")):
        assert len(pace.batch_ms) == 2
        assert pace.rows_s > 0


def test_a_stream_of_wide_keys_begins_with_every_key_once(tmp_path: Path) -> None:
    rows = wide(keys=1000, batches=3, per_file=50, folder=tmp_path / "rows")
    assert rows.skipped == 1
    assert rows.batches == [1000, *[50 * FILES] * 3]
    assert rows.counts.num_rows == 1000
    assert {len(word) for word in rows.counts["word"].to_pylist()} == {100}


def test_a_stream_can_seem_to_end_earlier(tmp_path: Path) -> None:
    rows = wide(keys=100, batches=3, per_file=5, folder=tmp_path / "rows")
    whole = files_of(rows.path)
    with rows.ending_after(2):
        assert files_of(rows.path) == whole[: 2 * FILES]
    assert files_of(rows.path) == whole


def test_too_few_texts_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "few.parquet")
    with pytest.raises(InputError, match="too few rows"):
        tweets(tmp_path / "few.parquet", 2, 3, tmp_path / "a", spark)
    pq.write_table(pa.table({"words": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="no column text"):
        tweets(tmp_path / "other.parquet", 2, 3, tmp_path / "b", spark)


def test_a_pause_is_what_is_beyond_the_usual() -> None:
    """Batches of 1 and 3 s in turn: the longest of two is usually 3 s, whatever happens."""
    ends = [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 12.0, 13.0, 16.0, 17.0]
    assert excess(ends, began=13.5, ended=13.6) == (3.0, 3.0)
    late = [*ends[:8], 33.0, 34.0]
    assert excess(late, began=13.5, ended=32.0) == (20.0, 3.0)


@pytest.mark.slow
def test_the_whole_bench_in_small() -> None:
    command = [sys.executable, "-m", "meander.cli.main", "bench", "spark", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"]
    assert found["pause_ratio"] > 0
    assert min(found[f"{side}_rows_s"] for side in ("meander", "spark", "noop", "texts")) > 0
    assert "changelog" in found["durability"]["spark"]
