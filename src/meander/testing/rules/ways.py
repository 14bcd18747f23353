"""How `check` tries each rule: what is done otherwise than in the plain run, and what is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meander.model import TaskId
from meander.operators.base import COMBINED_ROWS, Context, Operator
from meander.testing.rules.listed import Checked
from meander.testing.rules.plain import ASPECTS, Plain, fits, record_batches
from meander.testing.rules.rows import by_key, over_the_wire
from meander.testing.rules.script import Cut, ScriptRun, ScriptStep, Seen, cut_by, joined

if TYPE_CHECKING:
    import pyarrow as pa

MOMENTS_MAX = 6
"""So many moments, spread over the rows, are tried as the only one at which tasks move."""
PIECES = 64
"""Batches are cut into at most about so many pieces."""
PIECE_ROWS = 3
"""Of a state that is divisible."""

After = Callable[[ScriptRun, int], None]
"""What is done behind a step: with the run, and the step's place in the script."""


class Check(Plain):
    """All other runs."""

    def run(self) -> Checked:
        """Try one rule after the other."""
        self.check_plain()
        self.check_unseen()
        self.check_moves()
        self.check_apart()
        combined = self.check_combined()
        self.check_cuts()
        versions = self.check_changes()
        return self.summary(versions, combined)

    def replay(
        self,
        rule: str,
        run: ScriptRun,
        after: After = lambda run, at: None,
        *,
        look: bool = True,
        cut: Cut = lambda rows: [rows],
    ) -> None:
        """Take the steps of the script with another run, and compare every task behind each.

        With `look` its state, too; else that only behind the last.
        """
        for at, step in enumerate(self.script):
            with self.rule(rule, step, run.only):
                calls = run.take(step, cut)
            state = look or at == len(self.script) - 1
            for number, contexts in calls.items():
                with self.rule(rule, step, number):
                    found = run.see(number, contexts, state=state)
                aspects = list(ASPECTS)[: None if state else -1]
                self.compare(rule, step, number, self.plain[at][number], found, aspects)
            after(run, at)
        run.operator.close()

    def check_unseen(self) -> None:
        """`dump` changes nothing: run without any, and look at the end."""
        self.replay("dump", ScriptRun(self.copy(), self.tasks), look=False)

    def check_moves(self) -> None:
        """Move all tasks, behind every step and once only; to the same operator, and to a fresh one."""
        everywhere = set(range(len(self.script)))
        spread = range(0, len(self.script), -(-len(self.script) // MOMENTS_MAX))
        for moments in (everywhere, *({moment} for moment in spread)):
            for rule in ("load", "state"):
                self._moved(rule, moments)

    def _moved(self, rule: str, moments: set[int]) -> None:
        def move(run: ScriptRun, at: int) -> None:
            if at not in moments:
                return
            step, there = self.script[at], self.copy() if rule == "state" else run.operator
            for number, task in run.here.items():
                with self.rule(rule, step, number):
                    run.move(task, there)
            if there is not run.operator:
                run.operator.close()
            run.operator = there
            for number in run.here:
                with self.rule(rule, step, number):
                    found = run.see(number, ())
                expected = self.plain[at][number]
                self.compare(rule, step, number, expected, found, ["timers", "state"])

        self.replay(rule, ScriptRun(self.copy(), self.tasks), move)

    def check_apart(self) -> None:
        """Run each task alone, by `process`."""
        for number in range(self.tasks):
            self.replay("apart", ScriptRun(self.copy(), self.tasks, only=number))

    def check_combined(self) -> bool:
        """Have rows combined before they are taken in, by all tasks at once and by each alone."""
        operator = self.copy()
        if not operator.combines:
            return False

        def combined(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
            found = operator.combine(rows)
            assert operator.combined_schema is not None
            record_batches("combine", [found])
            fits("combine", found.schema, operator.combined_schema)
            stand_for = sum(found.column(COMBINED_ROWS).to_pylist())
            if stand_for != rows.num_rows:
                raise ValueError(f"combine of {rows.num_rows} rows stands for {stand_for}")
            return [found]

        for only in (None, *range(self.tasks)):
            run = ScriptRun(self.copy(), self.tasks, only=only)
            self.replay("combine", run, cut=combined)
        operator.close()
        return True

    def check_cuts(self) -> None:
        """Cut rows smaller; join and cut them elsewhere, if neither time nor loops forbid it."""
        rows = max(step.rows.num_rows for step in self.script)
        for size in {max(1, rows // PIECES), max(1, rows // 3)}:
            self._cut(self.script, size)
        fed = any(seen.fed for shown in self.plain for seen in shown.values())
        if not self.operator.timed and not fed:
            whole = joined(self.script)
            for size in {whole[0].rows.num_rows, max(1, rows * 2 // 3)}:
                self._cut(whole, size)

    def _cut(self, script: list[ScriptStep], size: int) -> None:
        run, pieces = ScriptRun(self.copy(), self.tasks), len(self.script) // len(script)
        told: dict[TaskId, list[Context]] = {number: [] for number in run.here}
        for at, step in enumerate(script):
            with self.rule("cuts", step, None):
                for number, contexts in run.take(step, cut_by(size)).items():
                    told[number] += contexts
            for number in run.here:
                expected = self.plain[(at + 1) * pieces - 1][number]
                with self.rule("cuts", step, number):
                    found = run.see(number, told[number])
                self.compare("cuts", step, number, expected, found, ["timers", "state"])
        if self.same_outputs:
            for number, contexts in told.items():
                expected = Seen([row for shown in self.plain for row in shown[number].emitted])
                expected.emitted = by_key(expected.emitted, self.operator.keys)
                found = run.see(number, contexts)
                self.compare("cuts", script[-1], number, expected, found, ["emitted"])
        run.operator.close()

    def check_changes(self) -> bool:
        """Keep copies up to date by changes, behind every step or every third; then go on with them."""
        operator, run = self.operator, ScriptRun(self.copy(), 1)
        if run.operator.seal(run.here[0].state) is None:
            return False
        self._changed(every=1, pieces=operator.divisible)
        self._changed(every=3, pieces=False)
        return True

    def _changed(self, every: int, pieces: bool) -> None:
        copies: dict[TaskId, tuple[Any, int]] = {}
        half = len(self.script) // 2

        def follow(run: ScriptRun, at: int) -> None:
            step, operator = self.script[at], run.operator
            for number, task in run.here.items() if at <= half else ():
                with self.rule("changes", step, number):
                    version = operator.seal(task.state)
                    if type(version) is not int:
                        raise TypeError(f"seal gives {version!r}: a number, or None at all times")
                    if at % every and at < half:
                        continue
                    old, since = copies.get(number, (None, None))
                    found = operator.dump(task.state)
                    if since is not None:
                        found = operator.changes(task.state, since)
                    record_batches("changes", found)
                    copy = _caught_up(operator, old, found, run.context(task), pieces)
                    rows = run.state_rows(copy)
                expected = self.plain[at][number]
                self.compare("changes", step, number, expected, Seen(state=rows), ["state"])
                copies[number] = copy, version
                if at == half:  # the other half is left to the copy
                    task.state = copy

        self.replay("changes", ScriptRun(self.copy(), self.tasks), follow)


def _caught_up(
    operator: Operator[Any],
    copy: Any,
    batches: list[pa.RecordBatch],
    context: Context,
    pieces: bool,
) -> Any:
    """Bring a copy (None: there is none) up to date, in pieces if so wanted."""
    batches = over_the_wire(batches)
    if not pieces:
        if copy is None:
            return operator.load(batches, context)
        return operator.apply_changes(copy, batches, context)
    copy = operator.create(context) if copy is None else copy
    for batch in batches:
        for piece in cut_by(PIECE_ROWS)(batch):
            copy = operator.apply_changes(copy, [piece], context)
    return copy
