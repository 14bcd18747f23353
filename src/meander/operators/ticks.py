"""Timers of tasks, not of keys: each stands for all that falls due up to it, in whole steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.model import Ints
from meander.operators.base import Context

NUMBERS_MAX = np.iinfo(np.int64).max
"""Ticks of several tasks are numbered together, if there are no more than so many."""


def set_ticks(
    times: Ints, step_us: int, bounds: Ints, contexts: Sequence[Context], keys: int
) -> None:
    """See that each task is called when its times have passed, rounded up to whole steps.

    Args:
        times: in microseconds of event time; rows `bounds[g] … bounds[g+1]-1` are task g's.
        step_us: how far apart two calls are at least.
        bounds: one more than there are tasks.
        contexts: of the tasks.
        keys: how many columns a key has: all are null in that of these timers.

    >>> from meander.operators.timers import Timers
    >>> here = Context(0, 1, event_timers=Timers())
    >>> set_ticks(np.array([3, 7, 10, 11]), 10, np.array([0, 4]), [here], keys=1)
    >>> here.event_timers.of((None,))
    [10, 20]
    """
    if not len(times):
        return
    ticks = -(-times // step_us)
    nobody = (None,) * keys
    first = int(ticks.min())
    span = int(ticks.max()) - first + 1
    if span * len(contexts) > NUMBERS_MAX:  # some are thousands of years apart
        ends = bounds.tolist()
        for context, lb, ub in zip(contexts, ends[:-1], ends[1:], strict=True):
            for tick in np.unique(ticks[lb:ub]).tolist():
                context.event_timers.set(nobody, tick * step_us)
        return
    groups = np.repeat(np.arange(len(contexts)), np.diff(bounds))
    if span * len(contexts) <= max(4 * len(times), 4096):
        seen = np.zeros(span * len(contexts), dtype=np.bool_)
        seen[groups * span + (ticks - first)] = True
        found = np.flatnonzero(seen)
    else:
        found = np.unique(groups * span + (ticks - first))
    for task, tick in zip((found // span).tolist(), (found % span).tolist(), strict=True):
        contexts[task].event_timers.set(nobody, (first + tick) * step_us)
