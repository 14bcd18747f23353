"""Settings for all tests, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from meander.runtime.driver.launch import WarmLauncher

# The first call of a kernel may compile it: no example has a deadline.
settings.register_profile("meander", deadline=None)
settings.load_profile("meander")


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what calls most kernels in one worker: on a new machine they are compiled once, not twice.

    Groups are begun by their size: this one and Spark's (`spark/conftest.py`) are the first of the two
    workers, and all other tests follow one by one, so that both workers end together.
    """
    for item in items:
        if item.path.parent in (HERE / "planning", HERE / "operators"):
            item.add_marker(pytest.mark.xdist_group("kernels"))


@pytest.fixture(scope="session")
def launcher() -> Iterator[WarmLauncher]:
    """One warm process for the deployments of all tests, one after another: each takes seconds else."""
    from meander.runtime.driver.launch import WarmLauncher

    with WarmLauncher() as warm:
        yield warm
