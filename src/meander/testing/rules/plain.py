"""The plain run of `check`: rows as they are given. It shows what all other runs must show.

On the way it sees what one run can show: types and schemas, sizes, and what changes that must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NoReturn

import pyarrow as pa

from meander.errors import InputError, OperatorRuleError
from meander.model import TaskId
from meander.operators.base import Context, Operator, check_operator
from meander.testing.rules.listed import RULES, Checked
from meander.testing.rules.rows import KeptRows, alike, short
from meander.testing.rules.script import ScriptRun, ScriptStep, Seen, conform, copy_of, steps_of

LOOPS_MAX = 100
"""A batch may be fed back so many times."""
GROWTH, GROWTH_BYTES = 8, 256
"""A dump with so many times the bytes, and at least so many, is of a larger state."""
ASPECTS = {"emitted": "emits", "fed": "feeds", "timers": "has the timers", "state": "holds"}
"""What a task shows, and how that is said."""


class Plain:
    """An operator, its rows, and what a plain run of them shows."""

    def __init__(
        self,
        operator: Operator[Any],
        batches: Iterable[pa.RecordBatch | pa.Table],
        tasks: int,
        same_outputs: bool,
    ) -> None:
        check_operator(operator)
        if tasks < 1:
            raise InputError(f"an operator has at least one task, not {tasks}")
        self.operator, self.tasks, self.same_outputs = operator, tasks, same_outputs
        self.batches = conform(operator, batches)
        self.script: list[ScriptStep] = []
        self.plain: list[dict[TaskId, Seen]] = []
        """Per step of the script: what each task shows."""
        self.schema: pa.Schema | None = None
        """Of dumps; None before there was one with rows."""

    def copy(self) -> Operator[Any]:
        """Make an operator as a node has it."""
        try:
            return copy_of(self.operator)
        except Exception as error:
            self.fail("pickle", 0, None, "a copy", f"{type(error).__name__}: {error}", error)

    def check_plain(self) -> None:
        """Run the rows as they are given, and write the script; see types, sizes and what changes."""
        run = ScriptRun(self.copy(), self.tasks, watch=True)
        sizes = [(0, self._size(run, 0, 0), 0)]
        for step in steps_of(run.operator, self.batches):
            fed = self._plain_step(run, step, sizes)
            for _ in range(LOOPS_MAX):
                if not fed:
                    break
                rows = pa.concat_batches([b.select(self.operator.schema.names) for b in fed])
                again = ScriptStep(step.batch, rows, step.now_us, step.watermark_us)
                fed = self._plain_step(run, again, sizes)
            if fed:
                raise InputError(f"batch {step.batch} is fed back more than {LOOPS_MAX} times")
        self.check_kept(run)
        self._check_growth(sizes)
        run.operator.close()

    def _plain_step(
        self, run: ScriptRun, step: ScriptStep, sizes: list[tuple[int, int, TaskId]]
    ) -> list[pa.RecordBatch]:
        calls, shown, fed = run.take(step), dict[TaskId, Seen](), list[pa.RecordBatch]()
        for number, contexts in calls.items():
            self._check_calls(step, contexts)
            fed += [b for context in contexts for b in context.fed if b.num_rows]
            with self.rule("types", step, number):
                dumped = run.operator.dump(run.here[number].state)
                run.timers_of(run.here[number])
            self._check_dump(step, number, dumped)
            run.kept += [("fixed", step.batch, number, KeptRows(c.emitted)) for c in contexts]
            run.kept.append(("fixed", step.batch, number, KeptRows(dumped)))
            sizes.append(
                (sum(b.nbytes for b in dumped), self._size(run, step.batch, number), number)
            )
            shown[number] = run.see(number, contexts)
        self.script.append(step)
        self.plain.append(shown)
        return fed

    # ------------------------------------------------------------------ single results

    def _check_calls(self, step: ScriptStep, contexts: list[Context]) -> None:
        schema, output = self.operator.schema, self.operator.output_schema
        for context in contexts:
            with self.rule("types", step, context.task):
                record_batches("emit", context.emitted)
                record_batches("feed", context.fed)
                for batch in context.emitted if output is not None else ():
                    fits("emit", batch.schema, output)
                for batch in context.fed:
                    fits("feed", batch.select(schema.names).schema, schema)

    def _check_dump(self, step: ScriptStep, task: TaskId, dumped: list[pa.RecordBatch]) -> None:
        with self.rule("types", step, task):
            record_batches("dump", dumped)
            named = getattr(self.operator, "dump_schema", None)
            for batch in dumped:
                if batch.num_rows:  # a column of an empty batch may have no type
                    self.schema = self.schema or named or batch.schema
                    fits("dump", batch.schema, self.schema)

    def _size(self, run: ScriptRun, batch: int, task: TaskId) -> int:
        size = run.operator.size(run.here[task].state)
        if type(size) is not int or size < 0:
            self.fail("size", batch, task, "an int of at least 0", repr(size))
        return size

    def _check_growth(self, sizes: list[tuple[int, int, TaskId]]) -> None:
        (least, small, _), (most, large, task) = min(sizes), max(sizes)
        if most >= max(GROWTH * least, GROWTH_BYTES) and large <= small:
            expected = f"more than the {small} of a state whose dump has {least} bytes"
            found = f"{large} for one whose dump has {most}"
            self.fail("size", len(self.batches) - 1, task, expected, found)

    def check_kept(self, run: ScriptRun) -> None:
        """Refuse what has changed since the operator gave it, or was given it."""
        for rule, batch, task, kept in run.kept:
            if changed := kept.changed():
                then, now = changed
                self.fail(rule, batch, task, short(then, now), short(now, then))

    # ------------------------------------------------------------------ verdicts

    def compare(
        self,
        rule: str,
        step: ScriptStep,
        task: TaskId,
        expected: Seen,
        found: Seen,
        aspects: Iterable[str],
    ) -> None:
        """Refuse what is not as in the plain run."""
        for aspect in aspects:
            plain, here = getattr(expected, aspect), getattr(found, aspect)
            if not alike(plain, here):
                verb = ASPECTS[aspect]
                sides = f"{verb} {short(plain, here)}", f"{verb} {short(here, plain)}"
                self.fail(rule, step.batch, task, *sides)

    def fail(
        self,
        rule: str,
        batch: int,
        task: TaskId | None,
        expected: str,
        found: str,
        cause: BaseException | None = None,
    ) -> NoReturn:
        """Say which rule is broken, and where."""
        at = min(batch, len(self.batches) - 1)
        name = self.operator.name
        raise OperatorRuleError(name, rule, RULES[rule], at, task, expected, found) from cause

    @contextmanager
    def rule(self, rule: str, step: ScriptStep, task: TaskId | None) -> Iterator[None]:
        """Take what the operator's code raises as a breach of a rule."""
        try:
            yield
        except OperatorRuleError:
            raise
        except Exception as error:
            known = "no error"
            self.fail(rule, step.batch, task, known, f"{type(error).__name__}: {error}", error)

    def summary(self, versions: bool, combined: bool) -> Checked:
        """Count what was there to be checked."""
        seen = [list(shown.values()) for shown in self.plain]
        return Checked(
            rows=sum(step.rows.num_rows for step in self.script),
            tasks=sum(any(task.state for task in steps) for steps in zip(*seen, strict=True)),
            emitted=sum(len(task.emitted) for step in seen for task in step),
            fed=sum(len(task.fed) for step in seen for task in step),
            timers=sum(len(task.timers) for step in seen for task in step),
            forgotten=sum(
                max(0, len(before.state) - len(after.state))
                for one, two in pairwise(seen)
                for before, after in zip(one, two, strict=True)
            ),
            versions=versions,
            combined=combined,
        )


def record_batches(what: str, batches: object) -> None:
    """Refuse what is no list of record batches."""
    if not isinstance(batches, list):
        raise TypeError(f"{what} gives a {type(batches).__name__}, not a list of record batches")
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"{what} gives a {type(batch).__name__}, not a record batch")


def fits(what: str, schema: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse other columns than those that the operator names."""
    given, named = ([f"{f.name} {f.type}" for f in s] for s in (schema, wanted))
    if given != named:
        raise TypeError(f"{what} gives the columns {', '.join(given)}, not {', '.join(named)}")
