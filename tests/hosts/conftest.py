"""Hosts for tests, where there can be some; else the reason why there are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from meander_lab.hosts.hosts import Hosts, hosts
from meander_lab.hosts.tools import obstacle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this directory in one worker: each looks at what others have left."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("hosts"))


@pytest.fixture(scope="session")
def may_have_hosts() -> None:
    found = obstacle()
    if found is not None:
        pytest.skip(found.words)


@pytest.fixture(scope="module")
def cluster(may_have_hosts: None) -> Iterator[Hosts]:
    with hosts(3) as made:
        yield made
