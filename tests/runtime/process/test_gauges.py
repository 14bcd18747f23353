"""What a node measures of itself: the load that its beats tell, and how long records take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.gauge import STATS_S, RateGauge
from meander.runtime.process.stopwatch import COUNTS, CheckpointWatch, unused


def slot(task: int, phase: TaskPhase) -> Any:
    return SimpleNamespace(task=task, phase=phase, state=SimpleNamespace(app=task))


def test_the_load_of_tasks_that_are_served_is_told_once_a_second() -> None:
    away = next(phase for phase in TaskPhase if phase is not TaskPhase.SERVING)
    adapter: Any = SimpleNamespace(
        sizes=lambda apps: [100 + app for app in apps],
        work=SimpleNamespace(rates=lambda tasks, since: 10 * tasks),
    )
    gauge, slots = RateGauge(adapter), [slot(1, TaskPhase.SERVING), slot(2, away)]
    gauge.counted = lambda: {"rows": 5.0}
    told = gauge.read(100.0, slots)
    assert tuple(told) == ((1,), (10,), (101,), (("rows", 5.0),))
    assert not any(gauge.read(100.0 + STATS_S / 2, slots))
    assert gauge.read(100.0 + STATS_S, slots) == told


def test_a_record_counts_when_it_is_durable_and_a_turn_when_it_made_one() -> None:
    watch = CheckpointWatch()
    watch.begin()
    watch.end(0)
    watch.begin()
    watch.encoded([7])
    watch.end(1)
    watch.durable([8])
    assert (watch.pause.count, watch.accepted.count) == (1, 0)
    watch.durable([7])
    watch.durable([7])
    assert watch.accepted.count == 1
    told = watch.told({"files": 2, "of no interest": 9})
    assert (told["files"], told["pause"]["count"], told["durable"]["count"]) == (2, 1, 1)
    assert told.keys() == unused().keys() >= set(COUNTS)
