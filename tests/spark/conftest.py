"""One Spark session for all tests of this directory, and where the real data may be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from meander.spark.cluster.session import local

DATA = Path(os.environ.get("MEANDER_DATA") or Path(__file__).parents[3] / "shared" / "data")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this directory in one worker: one JVM is enough."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    small = {
        "spark.driver.memory": "1g",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    session = local("local[6,2]", extra=small)  # four nodes, a state server, and one for Spark
    yield session
    session.stop()


@pytest.fixture
def real() -> Callable[[str], Path]:
    def find(name: str) -> Path:
        if not (DATA / name).is_file():
            pytest.skip(f"no {name} in {DATA}: set MEANDER_DATA to the directory of the real data")
        return DATA / name

    return find


@pytest.fixture
def rows_file(tmp_path: Path) -> Callable[..., str]:
    def write(**columns: Any) -> str:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table(columns), path)
        return str(path)

    return write
