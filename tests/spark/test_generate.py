"""Generated tweets: the same everywhere, and shaped as the data they were fitted to."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import bit_xor, col, xxhash64

from meander.errors import InputError
from meander.spark.pipeline import generate as module
from meander.spark.pipeline.generate import Stream, generate, hourly_rates, write_tweets

SMALL = Stream(rows=4000, users=500, days=14)


def fingerprint(frame: DataFrame) -> int:
    return frame.agg(bit_xor(xxhash64("ts", "user", "text"))).collect()[0][0]


def test_rows_depend_on_the_seed_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = fingerprint(generate(spark, SMALL))
    monkeypatch.setattr(module, "ROWS_PER_FILE", 600)
    parted = generate(spark, SMALL)
    assert parted.rdd.getNumPartitions() == 7
    assert fingerprint(parted) == once
    assert fingerprint(generate(spark, Stream(rows=4000, users=500, days=14, seed=8))) != once


def test_the_stream_ascends_speaks_in_syllables_and_follows_the_wave(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_tweets(spark, SMALL, str(tmp_path / "t"))
    rows = spark.read.parquet(str(tmp_path / "t")).orderBy("ts").toArrow()
    times = rows["ts"].to_numpy()
    assert rows.num_rows == 4000
    assert times[0] >= np.datetime64("2011-10-01")
    assert times[-1] < np.datetime64("2011-10-15")
    users = rows["user"].to_numpy()
    assert 1 <= users.min() < users.max() <= 500
    texts = rows["text"].to_pylist()
    syllable = f"(?:{'|'.join(sorted(module.CONSONANTS, key=len, reverse=True))})[aeiou]"
    assert all(re.fullmatch(f"(?:(?:{syllable}){{1,4}} ?)*", text) for text in texts)
    lengths = [len(text.split()) for text in texts]
    assert 30.5 < np.mean(lengths) < 33.5
    per_hour = np.bincount(times.astype("datetime64[h]").astype(int) % 24, minlength=24)
    assert per_hour[14:22].min() > 5 * per_hour[7:10].max()
    counts = Counter(word for text in texts for word in text.split())
    top = counts.most_common(1)[0]
    assert top[0] == "ba"
    assert 0.035 < top[1] / sum(lengths) < 0.05
    with pytest.raises(InputError, match="not empty"):
        write_tweets(spark, SMALL, str(tmp_path / "t"))


def test_every_rank_has_its_own_word(spark: SparkSession) -> None:
    edges = [1, 100, 101, 10_100, 10_101, 1_010_100, 1_010_101, 2**22]
    ids = [r for edge in edges for r in range(max(1, edge - 100), min(edge + 100, 2**22) + 1)]
    ranks = sorted({*ids, *range(1, 2**22 + 1, 997)})
    given = spark.createDataFrame(pa.table({"id": ranks}))
    spelt = given.select(module._word(col("id").cast("int")).alias("word"))
    assert spelt.distinct().count() == len(ranks)


def test_days_differ_and_bursts_have_their_own_topic() -> None:
    rates = hourly_rates(Stream(days=200))
    assert len(rates.rate) == 4800
    assert rates.rate.min() > 0
    burst = np.array(rates.topic) >= 200
    assert 0 < burst.sum() < 480
    assert (rates.share[burst] == module.BURST_TOPIC_SHARE).all()
    assert rates.topic[:24] == (0,) * 24 or burst[:24].any()


def test_wrong_sizes_are_refused() -> None:
    for wrong in ({"rows": 0}, {"users": 0}, {"days": 4000}, {"seed": -1}):
        with pytest.raises(InputError):
            Stream(**wrong)
