"""A broker and a session with Spark's connector to it, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.spark.cluster.session import local
from meander_lab.errors import NoJarsError
from meander_lab.servers.kafka import LocalBroker, broker_jars, connector


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep them out of the default tier: `make test-kafka` runs them, in a process of their own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def jars() -> str:
    """Spark's connector; without Maven, or where it cannot fetch, there is nothing to test with."""
    try:
        broker_jars()
        return connector()
    except NoJarsError as error:
        pytest.skip(f"no Kafka here: {error}")


@pytest.fixture(scope="session")
def local_broker(jars: str) -> Iterator[LocalBroker]:
    with LocalBroker() as made:
        yield made


@pytest.fixture(scope="session")
def servers(local_broker: LocalBroker) -> str:
    return local_broker.address


@pytest.fixture(scope="session")
def spark(jars: str) -> Iterator[SparkSession]:
    small = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    session = local(nodes=4, extra=small)
    yield session
    session.stop()
