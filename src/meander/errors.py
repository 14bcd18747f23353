"""Everything Meander raises on purpose, in one tree. What is not here is a bug.

    MeanderError
    ├── InputError              what the caller gave is wrong (exit code 2)
    │   ├── ModuleMissingError  a process cannot import what the operator is made of
    │   └── UnreadableError     a message of a log is not what it should be
    ├── InfeasibleError         no assignment meets the caps; carries the smallest feasible τ (exit 3)
    ├── DeadlockError           full nodes wait for each other and no round helps (exit 3)
    ├── TooLargeError           more than an exact method can do; names the method that can
    ├── OperatorError           an operator failed; names operator, task, and its rows or method
    │   └── OperatorFailedError it did so at a node, and the deployment has ended
    ├── OperatorRuleError       an operator breaks a rule of operators; names rule, batch and task
    ├── StateError              dumped state that cannot be loaded; nothing of it was taken over
    ├── CheckpointError         a checkpoint that cannot be used: broken, or of something else
    ├── SumOverflowError        a sum of integers left 64 bits
    ├── DeployError             a deployment cannot start, or cannot go on
    ├── LaunchError             processes cannot be started at all
    ├── EndedError              a process ended otherwise than it should
    ├── LostStateError          nodes died with the state of their tasks, and nothing was kept
    ├── MigrationError          a migration did not come to the end that was wanted
    ├── NotQuietError           rows are still on their way in a loop that should be empty
    ├── FeederError             a feeder cannot go on; what it has not reported must be fed again
    ├── QueryError              a micro-batch could not be written or committed
    │   ├── RowsLostError       staged rows were lost with a node: write the batch again
    │   ├── RolledBackError     the query's checkpoint is older than the operator
    │   └── ReplayError         a batch was replayed with other rows than before
    ├── SinkError               Spark's micro-batch was not applied; started again it counts once
    ├── OperatorGoneError       nobody answers at an operator's address
    ├── OperatorRefusedError    the operator is there and refuses: a wrong token, other versions
    ├── UnanswerableError       rows are there, and do not fit into one answer
    ├── UnreadError             some tasks could not be read in time
    ├── OutputsLostError        outputs were dropped before they were read
    ├── OutputsBrokenError      no more outputs will come
    └── ProtocolError           a message that no correct peer sends; refused, nothing has changed
        ├── MalformedMessage    it cannot be read: negative task, wrong checksum, unknown kind
        └── StaleMessage        it was true once: a past generation, epoch or incarnation

Beside it stand the bugs of Meander's own that are found before they do harm:

    AssertionError
    ├── BrokenRuleError         a machine was about to leave its own tables
    └── CertificateError        a plan is not what it claims to be

Every error can be pickled, keeps its facts as attributes, and says what to do.
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


class ModuleMissingError(InputError):
    """A process cannot import what the operator is made of: only the driver has it.

    Attributes:
        module: its name.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(
            f"No module named {module!r} where nodes run: send it along (on Spark with "
            f"spark.sparkContext.addPyFile), or define the operator in the script"
        )


class UnreadableError(InputError):
    """A message of a log is not what it should be.

    Attributes:
        message: which one of those that were read together, from 0.
        why: what is wrong with it.
    """

    def __init__(self, message: int, why: str) -> None:
        self.message, self.why = message, why
        super().__init__(f"message {message}: {why}")


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


class OperatorFailedError(OperatorError):
    """An operator failed at a node. It would fail again elsewhere: the deployment has ended.

    Attributes:
        node: where.
        trace: what Python said there.
    """

    def __init__(self, node: str, why: str, trace: str = "") -> None:
        self.operator, self.task, self.rows = "", -1, (0, 0)
        self.node, self.trace = node, trace
        Exception.__init__(self, f"{node}: {why}")


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
        what: whose sum it is.
        row: the row of the batch that was too much; None if no single row was.
    """

    def __init__(self, what: str, row: int | None = None) -> None:
        self.what, self.row = what, row
        place = "" if row is None else f" at row {row}"
        super().__init__(f"{what} leaves 64 bits{place}: sum floats, or use a smaller unit")


# ---------------------------------------------------------------- a deployment and its processes


class DeployError(MeanderError):
    """A deployment cannot start, or cannot go on. The message says what the processes said."""


class LaunchError(MeanderError):
    """Processes cannot be started at all."""


class EndedError(MeanderError):
    """A process ended otherwise than it should.

    Attributes:
        reason: a word for it, of `meander.runtime.process.spec.Reason`.
        detail: one sentence.
        trace: where it happened, as Python tells it; empty if it is not known.
    """

    def __init__(self, reason: str, detail: str, trace: str = "") -> None:
        self.reason, self.detail, self.trace = reason, detail, trace
        super().__init__(detail)


class LostStateError(MeanderError):
    """Nodes died with the state of their tasks, and there was no checkpoint.

    Attributes:
        nodes: which died.
        tasks: whose state is gone.
    """

    def __init__(self, nodes: tuple[str, ...], tasks: tuple[int, ...]) -> None:
        self.nodes, self.tasks = nodes, tasks
        super().__init__(
            f"{', '.join(nodes)} died, and with it the state of tasks {list(tasks)}: no count can be "
            "trusted any more. With --checkpoint DIR the stream would have gone on"
        )


class MigrationError(MeanderError):
    """A migration did not come to the end that was wanted."""


class NotQuietError(MeanderError):
    """Rows are still on their way in a loop that should be empty by now.

    Attributes:
        waited_s: how long was waited.
        left: what is on its way, in words.
    """

    def __init__(self, waited_s: float, left: str) -> None:
        self.waited_s, self.left = waited_s, left
        super().__init__(
            f"the loop is not empty after {waited_s:.0f} s ({left}): are all feeders flushed?"
        )


# ---------------------------------------------------------------- rows in


class FeederError(MeanderError):
    """The feeder cannot go on. What it has not reported as durable must be fed again."""


class QueryError(MeanderError):
    """A micro-batch could not be written or committed. Nothing of it was applied half."""


class RowsLostError(QueryError):
    """Staged rows were lost with a node before they were applied: the batch must be written again.

    Attributes:
        batch: which.
        task: whose rows.
    """

    def __init__(self, batch: int, task: int) -> None:
        self.batch, self.task = batch, task
        super().__init__(
            f"rows of batch {batch} for task {task} were lost with a node before they were "
            "applied: nothing of them was counted. Start the query again from its checkpoint, "
            "and it writes the batch once more"
        )


class RolledBackError(QueryError):
    """The operator has later batches of this query: its checkpoint is older than the operator.

    Attributes:
        query: whose batch it is.
        batch: what it writes now.
        task: who has later ones.
        newest: the newest batch there.
    """

    def __init__(self, query: str, batch: int, task: int, newest: int) -> None:
        self.query, self.batch, self.task, self.newest = query, batch, task, newest
        super().__init__(
            f"query {query} writes batch {batch}, but the operator has its batches up to "
            f"{newest} (task {task}): the query's checkpoint is older than the operator. "
            "Nothing of the batch was applied: later ones would be cut otherwise than before, "
            "and rows be lost or counted twice. Go on from the query's newest checkpoint; or bring "
            "the operator back to the same moment; or start both anew, operator and checkpoint"
        )


class ReplayError(QueryError):
    """A batch was replayed with other rows than some tasks had applied.

    Attributes:
        query: whose batch it is.
        batch: which.
        task: where it was seen.
        before: rows that the task had taken in.
        now: rows that it should have taken in by the replay.
    """

    def __init__(self, query: str, batch: int, task: int, before: int, now: int) -> None:
        self.query, self.batch, self.task, self.before, self.now = query, batch, task, before, now
        super().__init__(
            f"batch {batch} of {query} was replayed with other rows: task {task} had taken "
            f"in {before} and should now have {now}. So rows of this batch are lost or "
            "counted twice, and the counts cannot be trusted. Make the query deterministic (no "
            "rand(), no current time, a source that gives the same rows again), and start operator "
            "and query anew"
        )


class SinkError(MeanderError):
    """Spark's micro-batch was not applied. Started again, the query writes it again; it counts once."""


# ---------------------------------------------------------------- asking an operator


class OperatorGoneError(MeanderError):
    """Nobody answers at an operator's address.

    Attributes:
        address: where nobody answers.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"no operator answers at {address}: it was stopped, or its driver has ended. Deploy it "
            "again, and start the query from its checkpoint with the new op.address"
        )


class OperatorRefusedError(MeanderError):
    """The operator is there and does not want to speak with us: a wrong token, other versions."""


class UnanswerableError(MeanderError):
    """Rows are there, and do not fit into one answer: their columns are not of one type.

    Attributes:
        where: who has them.
        why: they do not fit.
    """

    def __init__(self, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(
            f"{where} has rows that do not fit into one answer: {why}. Give the operator an "
            "`output_schema`, and emit batches with it"
        )


class UnreadError(MeanderError):
    """Some tasks could not be read in time: they are on the move, or their node is gone.

    Attributes:
        what: state or outputs.
        tasks: whose.
    """

    def __init__(self, what: str, tasks: tuple[int, ...]) -> None:
        self.what, self.tasks = what, tasks
        super().__init__(
            f"{what} of tasks {_some(tasks)} cannot be read: they are on the move, or their node was "
            "lost. Look at status(); read again when they are back"
        )


class OutputsLostError(MeanderError):
    """Outputs were dropped before they were read."""


class OutputsBrokenError(MeanderError):
    """No more outputs will come: what feeds the operator has failed."""


# ---------------------------------------------------------------- messages


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

    def __reduce__(self) -> tuple[Any, ...]:
        return _retold, (type(self), self.args[0], self.story)

    @property
    def story(self) -> tuple[str, ...]:
        """The last events that led here, oldest first, for a person to read."""
        return self._story()

    def __str__(self) -> str:
        return "\n  ".join([str(self.args[0]), *self.story])


def _retold(kind: type[ProtocolError], message: str, story: tuple[str, ...]) -> ProtocolError:
    """Make an unpickled refusal: who told its story stayed behind, so the story came along."""
    return kind(message, lambda: story)


class MalformedMessage(ProtocolError):  # noqa: N818 - it is the message that is malformed
    """It cannot be read: a negative task, a wrong checksum, an unknown kind."""


class StaleMessage(ProtocolError):  # noqa: N818
    """It was true once: it carries a past generation, epoch or incarnation."""


# ---------------------------------------------------------------- bugs of our own


class BrokenRuleError(AssertionError):
    """A machine was about to do what its own tables do not allow: a bug in Meander, please report it.

    The machine may be half-changed, so its process ends; another goes on from what is durable.
    """


class CertificateError(AssertionError):
    """A plan is not what it claims to be: a bug in its planner, please report it with the problem."""
