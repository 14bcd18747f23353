"""A rescale from the outside: what may be asked for, and what waiting for it gives."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import DeployError, InputError, MigrationError
from meander.protocol.messages import News
from meander.runtime.driver.handle import RescaleHandle
from meander.runtime.driver.rescales import wish


@pytest.mark.parametrize(
    "asked",
    [
        {"nodes": 0},
        {"nodes": 65},
        {"nodes": True},
        {"nodes": 4, "pause_ms": -1},
        {"nodes": 4, "pause_ms": float("nan")},
        {"nodes": 4, "tasks_max": 0},
        {"nodes": 4, "within_s": 0},
        {"nodes": 4, "within_s": float("inf")},
        {"nodes": 4, "within_s": "10"},
        {"nodes": 4, "within_s": True},
        {"nodes": 4, "bytes_max": 1.5},
    ],
)
def test_what_cannot_be_is_refused_before_anything_moves(asked: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        wish(64, **asked)


def handle() -> RescaleHandle:
    driver: Any = SimpleNamespace(totals=SimpleNamespace(total=dict))
    return RescaleHandle(driver, 4, lambda _: nullcontext())


def test_another_end_than_the_wanted_one_is_raised() -> None:
    superseded, failed = handle(), handle()
    superseded.rescaling.tell(News.RESCALING, {})
    assert not superseded.ended.is_set()
    superseded.rescaling.tell(News.SUPERSEDED, {})
    with pytest.raises(MigrationError, match="superseded"):
        superseded.wait(0.0)
    failed.rescaling.fail(DeployError("no slots"))
    with pytest.raises(DeployError, match="no slots"):
        failed.wait(0.0)


def test_before_the_first_word_there_is_nothing_to_report() -> None:
    with pytest.raises(MigrationError, match="nothing to report"):
        handle().report()
