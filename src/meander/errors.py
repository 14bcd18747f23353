"""Everything Meander raises on purpose, in one tree. What is not here is a bug.

    MeanderError
    ├── InputError            what the caller gave is wrong (exit code 2)
    ├── InfeasibleError       no assignment meets the caps; carries the smallest feasible τ (exit 3)
    ├── DeadlockError         full nodes wait for each other and no round helps (exit 3)
    ├── TooLargeError         more than an exact method can do; names the method that can
    ├── OperatorError         an operator failed; names operator, task, and its rows or method
    ├── OperatorRuleError     an operator breaks a rule of operators; names rule, batch and task
    ├── StateError            dumped state that cannot be loaded; nothing of it was taken over
    ├── CheckpointError       a checkpoint that cannot be used: broken, or of something else
    ├── SumOverflowError      a sum of integers left 64 bits
    └── ProtocolError         a message that no correct peer sends; refused, and nothing has changed
        ├── MalformedMessage  it cannot be read: negative task, wrong checksum, unknown kind
        └── StaleMessage      it was true once: a past generation, epoch or incarnation

Every error can be pickled, keeps its facts as attributes, and says what to do.

Beside the tree stands `BrokenRuleError`: a bug of Meander's own, found before it does harm.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any


class MeanderError(Exception):
    """Base of all errors raised on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[MeanderError], args: tuple[Any, ...], facts: dict[str, Any]
) -> MeanderError:
    """Make an unpickled error without calling its constructor, which wants facts and not a text."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InputError(MeanderError, ValueError):
    """What the caller gave is wrong. The message names the place and what would be right."""


class InfeasibleError(MeanderError):
    """No assignment to the wanted number of nodes meets the caps.

    Attributes:
        why: the reason in one sentence, with its numbers.
        tau_min: the smallest τ at which the problem has a solution; None if no τ helps
            (the memory cap alone is too small).
    """

    def __init__(self, why: str, tau_min: Fraction | None) -> None:
        self.why = why
        self.tau_min = tau_min
        if tau_min is None:
            advice = "no tau helps: raise memory_cap or the number of nodes"
        else:
            advice = (
                f"the smallest feasible tau is {tau_min} (about {float(tau_min):.4f}); "
                "use relax to solve there"
            )
        super().__init__(f"{why}; {advice}")


class DeadlockError(MeanderError):
    """Full nodes wait for each other, and no round within its limits and the memory cap helps.

    Attributes:
        nodes: the nodes that are too full for what they are to receive.
        tasks: the tasks that cannot move.
    """

    def __init__(self, nodes: tuple[str, ...], tasks: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.tasks = tasks
        super().__init__(
            f"{_some(nodes)} are too full for the tasks they wait for ({_some(tasks)}) and no node "
            "has room to park one: raise memory_cap or the limits of a round, or lend a node"
        )


def _some(items: tuple[object, ...]) -> str:
    """Name the first few."""
    shown = ", ".join(map(str, items[:5]))
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"


class TooLargeError(MeanderError):
    """An exact method was asked for more than it can do in reasonable time or memory."""


class OperatorError(MeanderError):
    """An operator raised, or gave what it must not give. The cause is chained.

    The task's state may hold a part of the rows: it must not be used again, only restored.

    Attributes:
        operator: the name of the operator's class.
        task: the task in hand.
        rows: first and last + 1 of the rows in hand, counted in the batch that came in; (0, 0):
            it worked on none.
    """

    def __init__(self, operator: str, task: int, rows: tuple[int, int], why: str) -> None:
        self.operator = operator
        self.task = task
        self.rows = rows
        place = f"task {task}"
        if rows[1] > rows[0]:
            place += f", rows {rows[0]} to {rows[1] - 1}"
        super().__init__(f"{operator} failed in {place}: {why}")


class OperatorRuleError(MeanderError, AssertionError):
    """An operator breaks a rule that all operators must keep (`meander.testing.check`).

    Attributes:
        operator: the name of the operator's class.
        rule: a word for the rule, of `meander.testing.check.RULES`.
        batch: after which batch it was seen, counted from 0.
        task: which task it was seen in; None: it concerns no single one.
        expected: what a plain run shows, in short.
        found: what was found instead.
    """

    def __init__(
        self,
        operator: str,
        rule: str,
        sentence: str,
        batch: int,
        task: int | None,
        expected: str,
        found: str,
    ) -> None:
        self.operator, self.rule, self.batch, self.task = operator, rule, batch, task
        self.expected, self.found = expected, found
        place = f"after batch {batch}" + ("" if task is None else f" in task {task}")
        super().__init__(
            f"{operator} breaks the rule {rule!r} {place}: {sentence}\n"
            f"  expected: {expected}\n  found:    {found}"
        )


class StateError(MeanderError):
    """Dumped state cannot be loaded: broken, of another operator, or of another version."""


class CheckpointError(MeanderError):
    """A checkpoint cannot be used: a file is missing or broken, or it is of another operator.

    Attributes:
        task: whose record it is; None: it concerns all.
        file: which file of the checkpoint it is in; empty: none in particular.
    """

    def __init__(self, why: str, task: int | None = None, file: str = "") -> None:
        self.task, self.file = task, file
        super().__init__(why)


class SumOverflowError(MeanderError, OverflowError):
    """A sum of integers left 64 bits.

    Attributes:
        row: the row of the batch that was too much; None if no single row was.
    """

    def __init__(self, what: str, row: int | None = None) -> None:
        self.row = row
        place = "" if row is None else f" at row {row}"
        super().__init__(f"{what} leaves 64 bits{place}: sum floats, or use a smaller unit")


class ProtocolError(MeanderError):
    """A message that no correct peer sends now. It was refused and changed nothing.

    Its story is written when somebody reads it: most refusals are only counted.

    >>> print(ProtocolError("it came too late", lambda: ("1.0 this", "2.0 that")))
    it came too late
      1.0 this
      2.0 that
    """

    def __init__(self, message: str, story: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Say what is wrong, and who can tell what led there."""
        super().__init__(message)
        self._story = story

    @property
    def story(self) -> tuple[str, ...]:
        """The last events that led here, oldest first, for a person to read."""
        return self._story()

    def __str__(self) -> str:
        return "\n  ".join([str(self.args[0]), *self.story])


class BrokenRuleError(AssertionError):
    """A machine was about to do what its own tables do not allow: a bug in Meander, please report it.

    The machine may be half-changed, so its process ends; another goes on from what is durable.
    """


class MalformedMessage(ProtocolError):  # noqa: N818 - it is the message that is malformed
    """It cannot be read: a negative task, a wrong checksum, an unknown kind."""


class StaleMessage(ProtocolError):  # noqa: N818
    """It was true once: it carries a past generation, epoch or incarnation."""
