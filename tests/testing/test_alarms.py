"""Timers in the simulator: once each, whatever happens to their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from meander.model import TaskId
from meander.protocol.state import Emission, OperatorPort
from meander.testing.alarms import SET, Alarms, AlarmTrial
from meander.testing.faults import FAULTS, generate
from meander.testing.outcome import Outcome
from meander.testing.simulate import run


def simulate(seed: int, kind: type[AlarmTrial] = AlarmTrial) -> Outcome:
    schedule = generate(seed=seed, nodes=3, tasks=8, faults=list(FAULTS), seconds=3.0)
    return run(schedule, trial=kind(8, Random(seed), seconds=3.0))


def test_alarms_go_off_once_across_moves_and_crashes() -> None:
    outcomes = [simulate(seed) for seed in range(8)]
    assert [outcome.violations for outcome in outcomes if outcome.failed] == []
    assert sum(outcome.counts["second_moves"] for outcome in outcomes) > 0
    assert sum(outcome.counts["restores"] for outcome in outcomes) > 0


def test_an_alarm_that_goes_off_twice_is_noticed() -> None:
    class Again(Alarms):
        """Leaves what went off in place if its task is an odd one."""

        def elapse(self, task: TaskId, app: Any, now: float) -> Iterable[Emission] | None:
            alarms = list(app.get(SET, ()))
            emissions = super().elapse(task, app, now)
            if task % 2 and alarms:
                app[SET] = alarms
            return emissions

    class Trial(AlarmTrial):
        def operator(self, notice: Callable[[TaskId, str], None]) -> OperatorPort:
            return Again(self.tasks, self._padding, notice)

    assert any("alarms" in text for text in simulate(1, Trial).violations)
