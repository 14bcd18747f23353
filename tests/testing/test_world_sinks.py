"""Sinks in the full world: what they wrote is judged, and a sink that loses or doubles rows is seen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pyarrow as pa
import pytest

from meander.errors import SinkError
from meander.testing import generate, run_world
from meander.testing.faults import ALL_FAULTS, Schedule
from meander.testing.world.draws import SinkKind, draw_sink
from meander.testing.world.sinks import SimTopic, TopicWriter

ROWS = pa.table({"n": [1, 2]})
KINDS = [
    SinkKind(),
    SinkKind(at_least_once=True),
    SinkKind(at_least_once=True, writes_through=True),
]


def schedules(kind: SinkKind) -> Iterator[Schedule]:
    """Draw schedules of an operator that emits, with a sink of a kind that is killed now and then."""
    for seed in count():
        if draw_sink(seed) == kind:
            found = generate(seed, 3, 8, ALL_FAULTS, 2.0, world="full")._replace(trial="emits")
            if any(incident.kind == "reader" for incident in found.incidents):
                yield found


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_sink_has_written_is_right_whatever_becomes_of_its_processes(kind: SinkKind) -> None:
    drawn = schedules(kind)
    for _ in range(3):
        outcome = run_world(next(drawn))
        assert not outcome.failed, outcome.violations
        assert outcome.counts["sink_kills"] > 0
        assert outcome.counts["sink_commits"] > 1


@pytest.mark.parametrize(
    ("kind", "told"),
    [(KINDS[0], "out too often"), (KINDS[0], "are not out"), (KINDS[1], "are not out")],
    ids=str,
)
def test_a_topic_that_takes_rows_twice_or_not_is_found_out(
    kind: SinkKind, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(self: SimTopic, name: str, rows: list[pa.Table]) -> None:
        kept(self, name, [*rows, *rows] if told == "out too often" else rows[1:])

    kept = SimTopic.put
    monkeypatch.setattr(SimTopic, "put", put)
    outcome = run_world(next(schedules(kind)))
    assert any(v.by == "sink" and told in v.text for v in outcome.seen), outcome.violations


def test_a_topic_keeps_rows_and_position_together_and_fences() -> None:
    def opened() -> TopicWriter:
        return topic.open("counts.0")

    topic = SimTopic(Random(1), lambda: False, at_least_once=False, writes_through=False)
    first, second = opened(), opened()
    assert first.recover() is None
    first.write(ROWS)
    assert not topic.rows
    first.commit("2")
    assert (topic.rows["counts.0"].total(), topic.positions["counts.0"]) == (2, "2")
    assert second.recover() == "2"
    first.write(ROWS)
    with pytest.raises(SinkError, match=r"took the place of counts\.0"):
        first.commit("3")
    assert (topic.rows["counts.0"].total(), topic.positions["counts.0"]) == (2, "2")
