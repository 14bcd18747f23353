"""Timers of tasks against a plain twin, also where times are thousands of years apart."""

import numpy as np
import pytest

from meander.operators import Context
from meander.operators.ticks import set_ticks
from meander.operators.timers import Timers

S = 1_000_000
NEVER = 253_402_214_400 * S
"""9999-12-31: what people write for a time that never comes."""


@pytest.mark.parametrize("step_us", [1, 100_000])
@pytest.mark.parametrize("apart", [[0], [0, 50], [0, 3_600 * S], [0, 1_700_000_000 * S, NEVER]])
def test_each_task_is_called_when_its_times_have_passed(step_us: int, apart: list[int]) -> None:
    draw = np.random.Generator(np.random.PCG64(1))
    for tasks in (1, 64, 4096):
        bounds = np.append(0, np.cumsum(draw.integers(0, 4, tasks)))
        bounds[-1] += 1
        times = draw.choice(apart, bounds[-1]) + draw.integers(0, 2 * S, bounds[-1])
        times[-1] = apart[-1] + S
        here = [Context(task, tasks, event_timers=Timers()) for task in range(tasks)]
        set_ticks(times, step_us, bounds, here, keys=2)
        for task, context in enumerate(here):
            mine = times[bounds[task] : bounds[task + 1]].tolist()
            expected = {((None, None), -(-at // step_us) * step_us) for at in mine}
            assert set(context.event_timers) == expected
