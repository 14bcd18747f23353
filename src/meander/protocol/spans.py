"""Tasks as spans: neighbours are told by where they begin and end, however many they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, starmap
from typing import TypeAlias

import numpy as np

from meander.model import Int, Many, TaskId

Spans: TypeAlias = Many[tuple[Int, Int]]
"""Tasks `lb … ub - 1` of each; they ascend."""


def spans(tasks: Sequence[TaskId]) -> tuple[tuple[int, int], ...]:
    """Give the spans of tasks that ascend.

    >>> spans([2, 3, 4, 9]), spans([])
    (((2, 5), (9, 10)), ())
    """
    if len(tasks) and tasks[-1] - tasks[0] == len(tasks) - 1:
        return ((tasks[0], tasks[-1] + 1),)
    numbers = np.array(tasks, np.int64)
    ends = np.flatnonzero(np.diff(numbers, append=numbers[-1:]) != 1)
    lasts = numbers[ends]
    firsts = numbers[np.append(0, ends[:-1] + 1)] if len(ends) else lasts
    return tuple(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def within(spans: Iterable[tuple[int, int]]) -> Iterable[TaskId]:
    """Give the tasks of spans.

    >>> list(within(((2, 5), (9, 10))))
    [2, 3, 4, 9]
    """
    return chain.from_iterable(starmap(range, spans))


def count(spans: Iterable[tuple[int, int]]) -> int:
    """Tell how many tasks spans have.

    >>> count(((2, 5), (9, 10)))
    4
    """
    return sum(ub - lb for lb, ub in spans)


def holds(spans: Iterable[tuple[int, int]], task: TaskId) -> bool:
    """Whether a task is within spans.

    >>> holds(((2, 5), (9, 10)), 5), holds(((2, 5), (9, 10)), 9)
    (False, True)
    """
    return any(lb <= task < ub for lb, ub in spans)


def fault(spans: Iterable[tuple[int, int]], tasks: int) -> str | None:
    """Find what is wrong with spans; `tasks` there are in all.

    >>> fault(((2, 5), (9, 10)), 10), fault(((2, 5), (4, 6)), 10)
    (None, 'tasks 4 to 5 do not ascend, or are not there')
    """
    end = 0
    for lb, ub in spans:
        if not end <= lb < ub <= tasks:
            return f"tasks {lb} to {ub - 1} do not ascend, or are not there"
        end = ub
    return None if end else "there is no task"
