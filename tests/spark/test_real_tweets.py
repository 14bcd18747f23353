"""The real tweets, when they are there: per-task counts equal an independent count."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from test_profile import cells_of
from twin import count_words

from meander.spark.pipeline import generate
from meander.spark.pipeline.events import EventSource
from meander.spark.pipeline.profiling import ProfileSettings, profile


def rows_of(path: Path, since: datetime, until: datetime) -> list[tuple[int, str | None]]:
    table = pq.read_table(path, filters=(pc.field("ts") >= since) & (pc.field("ts") < until))
    seconds = table["ts"].to_numpy().astype("datetime64[s]").astype(np.int64)
    return list(zip(seconds.tolist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (datetime(2020, 3, 2, tzinfo=UTC), datetime(2020, 3, 4, tzinfo=UTC)),
        pytest.param(
            datetime(2019, 7, 1, tzinfo=UTC), datetime(2020, 9, 1, tzinfo=UTC),
            marks=pytest.mark.slow, id="all",
        ),
    ],
)  # fmt: skip
def test_every_cell_of_the_real_tweets_equals_a_count_in_plain_python(
    spark: SparkSession,
    real: Callable[[str], Path],
    tmp_path: Path,
    since: datetime,
    until: datetime,
) -> None:
    path = real("tweets.parquet")
    source = EventSource((str(path),), since=since, until=until)
    found = profile(spark, source, str(tmp_path / "p"), ProfileSettings(tasks=64))
    assert cells_of(found) == count_words(rows_of(path, since, until), 3600, 64)


@pytest.mark.slow
def test_the_generators_constants_are_those_of_the_real_tweets(
    spark: SparkSession, real: Callable[[str], Path], tmp_path: Path
) -> None:
    path = real("tweets.parquet")
    keys = profile(spark, EventSource((str(path),)), str(tmp_path / "p"), ProfileSettings(tasks=1))
    shares = keys.facts["summary"]["top_share"]
    assert abs(shares["1"] - generate.VOCABULARY[0]) < 1e-4
    assert generate.VOCABULARY[9] < shares["1000"] < generate.VOCABULARY[10]
    hours = pq.read_table(path, columns=["ts"])["ts"].to_numpy().astype("datetime64[h]").astype(int)
    volume = np.bincount(hours - hours.min()).reshape(-1, 24)
    assert np.allclose(volume.mean(0) / volume.mean(), generate.HOURS, atol=1e-3)
    weekday = (hours.min() // 24 + 3 + np.arange(len(volume))) % 7
    days = np.array([volume[weekday == d].mean() for d in range(7)])
    assert np.allclose(days / days.mean(), generate.DAYS, atol=1e-3)
