"""Futures of n by analogs: what followed when a day looked like this one.

The *need* of a slot is the number of nodes before rounding (where only n is known, n itself). For
the present moment t, look for past moments u with the same time of day and the same kind of day
(Monday to Thursday, Friday, Saturday, Sunday: what the next day is matters as much as what this one
is) whose last slots looked like the last slots now:

    distance(u) = Σ_j fade^j · (need[t-j] - need[u-j])²  /  Σ_j fade^j
    weight(u)   = exp(-distance(u) / bandwidth) · recency

The bandwidth is the distance of a near analog, so that a quiet day is told from a busy one and a
strange day still has relatives. Each analog is one future: what its need did next, *shifted to
today's level*; the shift fades, as levels return to the usual:

    future_s = need[u+s] + (need[t] - need[u]) · hold^s,      rounded and kept within [least, most]

>>> day = [1.0, 1.0, 2.0, 3.0, 3.0, 2.0]
>>> found = futures(np.array(day * 9), 6, horizon=3, day_slots=6)
>>> found.nodes[0].tolist(), round(float(found.weight.sum()), 6)
([1, 1, 2], 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meander.errors import InputError
from meander.planning.kernels.types import Bools, Floats, Ints

DAYS_A_WEEK = 7
HALF = 0.49
"""A need is noted at most so far from the n that it was rounded to."""


class Futures(NamedTuple):
    """What n may do next, with how likely each course is."""

    nodes: Ints
    """`[future, slot]`: n in the slots after now."""
    weight: Floats
    """One per future; they add up to 1."""


@dataclass(frozen=True)
class Likeness:
    """What makes two moments alike. Chosen on congress volumes before 2020 (docs/forecast.md)."""

    slots: int = 16
    """How many last slots are compared."""
    fade: float = 0.85
    """How much less each slot counts than the one after it."""
    hold: float = 0.8
    """How much of the shift to today's level is left one slot later."""
    relatives: int = 80
    """Most analogs that become futures."""
    near: int = 20
    """The distance of the so-many-th nearest is the bandwidth."""
    fewest: int = 12
    """With fewer of the same time and kind of day, other kinds are admitted, then other times."""
    memory_days: float = 365.0
    """An analog so old counts a third."""


def rounding_to(nodes: int, need: float | None) -> float:
    """Give what is noted of a slot with so many nodes: its need, where that is known.

    However n was decided (a maximum, hysteresis, rounding up), it is n that is planned for: what is
    noted rounds to it.

    >>> rounding_to(3, 2.1), rounding_to(3, 3.2), rounding_to(3, None)
    (2.51, 3.2, 3.0)
    """
    return float(nodes) if need is None else min(max(need, nodes - HALF), nodes + HALF)


def futures(
    need: Floats,
    days_before: int = 0,
    *,
    horizon: int,
    day_slots: int,
    least: int = 1,
    most: int = 2**31,
    likeness: Likeness | None = None,
) -> Futures:
    """Give what may follow the last entry of `need`.

    Args:
        need: nodes before rounding, slot after slot up to now.
        days_before: the day of the week of the first slot, in slots since a Monday began.
        horizon: how many slots ahead.
        day_slots: slots of a day.
        least: fewest nodes.
        most: most nodes.
        likeness: what makes two moments alike.

    Raises:
        InputError: without any slot, or with a horizon or a day of less than one.
    """
    like = likeness or Likeness()
    if len(need) == 0 or horizon < 1 or day_slots < 1:
        raise InputError("futures need at least one slot, a horizon and slots of a day")
    now = len(need) - 1
    past = np.arange(now - horizon + 1)
    if len(past) == 0:
        return _steady(float(need[now]), horizon, least, most)
    past = past[_comparable(past, now, days_before, day_slots, like.fewest)]
    distance = _distance(need, past, now, like)
    order = np.argsort(distance, kind="stable")[: like.relatives]
    past, distance = past[order], distance[order]
    bandwidth = max(float(distance[min(like.near, len(distance)) - 1]), 1e-3)
    age = (now - past) / (day_slots * like.memory_days)
    weight = np.exp(-(distance - distance[0]) / bandwidth - age)
    ahead = np.arange(1, horizon + 1)
    shift = (need[now] - need[past])[:, None] * like.hold**ahead
    course = need[past[:, None] + ahead] + shift
    return Futures(_rounded(course, least, most), weight / weight.sum())


def _steady(need: float, horizon: int, least: int, most: int) -> Futures:
    """Nothing is known: n stays."""
    return Futures(_rounded(np.full((1, horizon), need), least, most), np.ones(1))


def _rounded(course: Floats, least: int, most: int) -> Ints:
    return np.clip(np.floor(course + 0.5).astype(np.int64), least, most)


def _comparable(past: Ints, now: int, days_before: int, day_slots: int, fewest: int) -> Bools:
    """Which moments have the same time and kind of day; more kinds where they are too few."""
    times = np.concatenate([past, [now]]) + days_before
    clock, day = times % day_slots, times // day_slots % DAYS_A_WEEK
    kind = np.maximum(day - 3, 0)  # Monday to Thursday, Friday, Saturday, Sunday
    apart = np.abs(clock[:-1] - clock[-1])
    near = np.minimum(apart, day_slots - apart) <= day_slots // 96
    for found in (near & (kind[:-1] == kind[-1]), near):
        if found.sum() >= fewest:
            return np.asarray(found)
    return np.ones(len(past), dtype=np.bool_)


def _distance(need: Floats, past: Ints, now: int, like: Likeness) -> Floats:
    """How unlike the last slots are; moments before the first slot count as the first."""
    back = np.arange(like.slots)
    counts = like.fade**back
    then = need[np.maximum(past[:, None] - back, 0)]
    here = need[np.maximum(now - back, 0)]
    return np.asarray(((then - here) ** 2 * counts).sum(axis=1) / counts.sum())
