"""What a deployment learns while it runs, slot by slot, for the policy `ahead`.

Time is cut into slots of the calendar. Whoever has the clock tells now and then how many nodes there
are, and how many are needed before that is rounded (`see`), of which counts what rounds to those that
there are. When a slot is over, its mean is one entry. All entries are what there is to remember
(`facts`, `recall`): a driver that goes on from a checkpoint goes on learning. Slots in which nobody
looked, since there was no driver, count as the last one before.

A plan looks from the slot that goes on, whose entry for now is the mean so far, of which again counts
what rounds to the n that is planned for. `observed` plans a replay the same way.

It also keeps whether n came as it expected, which every plan says.

>>> learner = Learner(slot_s=3600)
>>> [learner.see(3600.0 * h + 1, nodes) for h, nodes in enumerate([4, 4, 6])]
[False, True, True]
>>> learner.facts()
{'slot_s': 3600, 'first': 0, 'need': [4.0, 4.0]}
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np

from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.ahead.analogs import rounding_to
from meander.planning.ahead.horizon import Ahead

DAY_S: Final = 86_400
THURSDAY: Final = 3
"""Days from a Monday to the first of 1970."""
SLOTS_MAX: Final = 10_000
"""Remembered, the newest: 13 months of hours."""
JUDGED: Final = 24
"""Of so many slots it is told whether they came as expected."""
DIGITS: Final = 2
"""Of a need, behind the point, as it is remembered."""


class Learner:
    """Sees a deployment's days pass, and plans ahead."""

    def __init__(self, slot_s: float) -> None:
        """Begin knowing nothing; a day has a whole number of slots."""
        self.slot_s = slot_s
        self.day_slots = round(DAY_S / slot_s)
        self._first = 0
        """Number of the first slot that is remembered, since 1970."""
        self._needs: deque[float] = deque(maxlen=SLOTS_MAX)
        self._slot: int | None = None
        """The one that is going on."""
        self._seen: list[float] = []
        """What was told in it."""
        self._judged: deque[bool] = deque(maxlen=JUDGED)
        self._ahead: Ahead | None = None

    @property
    def slots(self) -> int:
        """How many are remembered."""
        return len(self._needs)

    # ------------------------------------------------------------------ learning

    def see(self, wall_s: float, nodes: int, need: float | None = None) -> bool:
        """Take what is now, in seconds since 1970; tell whether there is something new to remember."""
        slot = int(wall_s // self.slot_s)
        over = self._slot is not None and slot > self._slot
        if over and self._seen:
            self._close(slot)
        if self._slot is None or slot > self._slot:
            self._slot = slot
        self._seen.append(rounding_to(nodes, need))
        return over

    def _close(self, until: int) -> None:
        """Enter the slot that is over, and those without a driver before this one."""
        assert self._slot is not None
        need = round(float(np.mean(self._seen)), DIGITS)
        self._seen.clear()
        if not self._needs:
            self._first = self._slot
        if self._ahead is not None:
            expected = self._ahead.futures()
            chance = np.bincount(expected.nodes[:, 0], expected.weight)
            self._judged.append(int(chance.argmax()) == _rounded(need))
        if until - self._slot >= SLOTS_MAX:  # nothing that was remembered still is
            self._needs.clear()
            self._first, self._ahead = until - SLOTS_MAX, None
        for _ in range(min(until - self._slot, SLOTS_MAX)):
            self._enter(need)

    def _enter(self, need: float) -> None:
        if len(self._needs) == SLOTS_MAX:
            self._first += 1
        self._needs.append(need)
        if self._ahead is None:
            self._ahead = self._made()
        else:
            self._ahead.observe(_rounded(need), need)

    def _made(self) -> Ahead:
        """Make the policy of what is remembered."""
        week = 7 * self.day_slots
        before = (self._first + THURSDAY * self.day_slots) % week
        made = Ahead(day_slots=self.day_slots, days_before=before, window=0)
        for need in self._needs:
            made.observe(_rounded(need), need)
        return made

    # ------------------------------------------------------------------ remembering

    def facts(self) -> dict[str, Any]:
        """Give what is to be remembered."""
        return {"slot_s": self.slot_s, "first": self._first, "need": list(self._needs)}

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Go on from what was remembered; slots of another length are worth nothing here."""
        if facts.get("slot_s") != self.slot_s or not facts.get("need"):
            return
        self._first = int(facts["first"])
        self._needs.extend(float(need) for need in facts["need"])
        self._slot = self._first + len(self._needs) - 1  # until it is seen what time it is
        self._seen = [self._needs.pop()]
        self._ahead = self._made() if self._needs else None

    # ------------------------------------------------------------------ planning

    def plan(self, problem: Problem, tau: Fraction | None = None, *, preview: bool = False) -> Plan:
        """Plan a migration; a preview leaves no trace.

        Args:
            problem: what is to be planned.
            tau: of migrations to come, where this one has another.
            preview: plan as if, and remember nothing of it.

        Raises:
            InfeasibleError: if no assignment meets today's caps.
        """
        ahead = self._ahead or Ahead(day_slots=self.day_slots, window=0)
        so_far = float(np.mean(self._seen)) if self._seen else None
        found = (copy.deepcopy(ahead) if preview else ahead).plan(problem, so_far, tau)
        if not self._judged:
            return found
        came = f"n came as expected in {sum(self._judged)} of the last {len(self._judged)} slots"
        return replace(found, note=f"{found.note}; {came}" if found.note else came)


def _rounded(need: float) -> int:
    return max(1, int(need + 0.5))


@cache
def warm() -> None:
    """Compile what planning ahead needs, or load it from the cache: not while somebody waits.

    >>> warm()
    """
    learner, now = Learner(DAY_S / 4), Assignment.from_intervals([(0, 4), (4, 8)])
    for slot in range(60):
        learner.see(slot * learner.slot_s, 2 + slot % 2)
    load = Workload([1, 2] * 4, [1] * 8)
    learner.plan(Problem(load, now, nodes=3, tau=1))
