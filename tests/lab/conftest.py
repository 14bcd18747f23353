"""Three weeks of made-up tweets in a file, and the ground that experiments stand on at toy size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meander.sources.generated import Tweets
from meander_lab.experiments.ground import ExperimentGround


@pytest.fixture(scope="session")
def tweets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of event time passes in a second: 21 days, six tweets an hour in the mean."""
    stream = Tweets(seconds=21 * 24, tweets_s=6.0, speedup=3600.0, slice_s=0.5)
    path = tmp_path_factory.mktemp("tweets") / "tweets.parquet"
    pq.write_table(pa.Table.from_batches([piece.batch for piece in stream.read()]), path)
    return path


@pytest.fixture(scope="session")
def ground(tweets: Path, tmp_path_factory: pytest.TempPathFactory) -> ExperimentGround:
    return ExperimentGround("toy", tweets, tmp_path_factory.mktemp("ground"))
