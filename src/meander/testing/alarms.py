"""The simulator's trial with timers: what must fire once, wherever its task is by then.

Some rows set an alarm, which goes off after a few ticks of whichever node serves the task then. A task
notes the alarms that are set and those that went off; some of these feed a row to another task. At the
end every alarm is in exactly one of the two lists, once, across moves, crashes and restored states.
Feeders also offer watermarks (chunks without rows) to all tasks, as with an event time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from meander.model import TaskId
from meander.protocol.messages import FeederId
from meander.protocol.state import App, AppRows, Emission
from meander.testing.tally import MASK, Tally, TallyTrial, fed_to, mix
from meander.testing.trial import Verdict

SHARE = 4
"""One row in so many sets an alarm."""
TICKS_MAX = 6
SET, RANG = "!set", "!rang"
"""Where a task keeps them: [row, ticks to go, row, ticks to go, …] and [row, row, …]."""


def sets_alarm(row: int) -> bool:
    """Whether a row sets an alarm."""
    return mix(row ^ 0x5A) % SHARE == 0


def rung(row: int) -> int:
    """Give the row that an alarm feeds on, if it feeds one: not one that any feeder has."""
    return row | 1 << 60


class Alarms(Tally):
    """The operator."""

    timed = True

    def apply(
        self, task: TaskId, app: App, feeder: FeederId, rows: AppRows, after: int
    ) -> Iterable[Emission]:
        """Note every row; set alarms."""
        if not feeder.startswith("loop/"):
            for row in rows:
                ordered = feeder.startswith("feeder")
                if sets_alarm(row) and not (ordered and row >> 8 <= after):
                    app.setdefault(SET, []).extend((row, 1 + mix(row) % TICKS_MAX))
                    app.stamps[SET] = app.version
        return super().apply(task, app, feeder, rows, after)

    def apply_batch(
        self, task: TaskId, app: App, feeder: FeederId, parts: Sequence[AppRows]
    ) -> Iterable[Emission]:
        """Note the rows of a micro-batch."""
        return [e for rows in parts for e in self.apply(task, app, feeder, rows, -1)]

    def elapse(self, task: TaskId, app: App, now: float) -> Iterable[Emission] | None:
        """Count down, and ring."""
        alarms = app.get(SET)
        if not alarms:
            return None
        pairs = list(zip(alarms[::2], alarms[1::2], strict=True))
        app[SET] = [n for row, ticks in pairs if ticks > 1 for n in (row, ticks - 1)]
        rang = [row for row, ticks in pairs if ticks <= 1]
        app.setdefault(RANG, []).extend(rang)
        app.stamps[SET] = app.stamps[RANG] = app.stamps[""] = app.version
        emissions, count = [], app[""]
        for row in rang:
            target = fed_to(rung(row), self.tasks)
            if target is not None:
                count[0] += 1
                emissions.append(Emission(target, ((count[0], rung(row)),), 16))
        return emissions


class AlarmTrial(TallyTrial):
    """Feeders, a query and tasks of random sizes, for `Alarms`."""

    kinds = (Alarms,)
    watermarks = True
    """Feeders announce them."""

    def judge(self, states: Mapping[TaskId, App]) -> Verdict:
        """Compare alarms, then all else; what alarms fed on counts like what rows did."""
        wanted, violations = self._alarms(), list[str]()
        rang: dict[TaskId, list[int]] = {}
        plain: dict[TaskId, dict[str, list[int]]] = {}
        for task, app in states.items():
            plain[task] = {f: note for f, note in app.items() if f not in (SET, RANG)}
            rang[task] = app.get(RANG, [])
            found = Counter(rang[task]) + Counter(app.get(SET, [])[::2])
            want = wanted.get(task, Counter())
            if found != want:
                violations.append(
                    f"task {task}: alarms {found - want} too many, {want - found} lost"
                )
        self._rang = [row for rows in rang.values() for row in rows]
        verdict = super().judge(plain)
        return verdict._replace(violations=violations + verdict.violations)

    def _alarms(self) -> dict[TaskId, Counter[int]]:
        """Give the alarms that rows set, per task."""
        rows = [(t, r) for f, n in self.feeders.items() for t, _, r in self.rows(f, 0, n - 1)]
        rows += [pair for number in range(self.batches) for pair in self.batch(number)]
        found: dict[TaskId, Counter[int]] = {}
        for task, row in rows:
            if sets_alarm(row):
                found.setdefault(task, Counter())[row] += 1
        return found

    def _sequential(
        self,
    ) -> tuple[dict[tuple[TaskId, FeederId], list[int]], dict[TaskId, list[int]]]:
        """Add to the loops what alarms fed on that went off."""
        direct, loops = super()._sequential()
        for row in map(rung, self._rang):
            target = fed_to(row, self.tasks)
            if target is not None:
                entry = loops.setdefault(target, [0, 0])
                entry[0] += 1
                entry[1] = (entry[1] + mix(row)) & MASK
        return direct, loops
