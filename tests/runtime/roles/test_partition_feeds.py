"""A process that reads a source waits for whoever has the partitions, and ends for what is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import InputError
from meander.runtime.process.spec import Reason
from meander.runtime.roles import partition_feeds
from meander.runtime.roles.partition_feeds import PartitionFeeds


def feeds(*answers: Any) -> tuple[PartitionFeeds, list[Any]]:
    """Make one whose share answers so, one time after the other."""
    left = list(answers)

    def mine() -> list[str]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    share: Any = SimpleNamespace(mine=mine)
    spec: Any = SimpleNamespace(name="words#0")
    return PartitionFeeds(share, spec, SimpleNamespace, lambda _: None, {}), left


def test_one_that_starts_while_the_broker_is_away_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_feeds, "AWAY_S", 0.0)
    away = ConnectionError("no broker answers")
    found, left = feeds(away, away, [])
    assert found.run(lambda: False)[0] is Reason.FINISHED
    assert left == []


def test_a_topic_that_is_not_there_ends_it_at_once() -> None:
    found, _ = feeds(InputError("the topic nowhere"))
    with pytest.raises(InputError, match="nowhere"):
        found.run(lambda: False)
