"""The tasks that a node holds: one operator, and the state of each task.

This is the runtime's side of an operator. It knows nothing of epochs, chunks or sockets: it
creates, processes, dumps, loads and drops, and it marks dumps so that the state of another
operator, or of another version of it, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic

from meander.errors import InputError, OperatorError, StateError
from meander.model import Ints, TaskId
from meander.operators.base import Context, Operator, S, check_operator
from meander.operators.hashing import Hashes

if TYPE_CHECKING:
    import pyarrow as pa

NAME, VERSION = b"meander.operator", b"meander.state_version"


class TaskStates(Generic[S]):
    """States of some of an operator's tasks.

    >>> import pyarrow as pa
    >>> from meander.operators import WordCount
    >>> from meander.operators.split import split
    >>> here, there = TaskStates(WordCount(), 64), TaskStates(WordCount(), 64)
    >>> rows = split(pa.record_batch({"word": ["a", "b", "a"]}), ["word"], 64)
    >>> for task in rows.tasks.tolist():
    ...     here.create(task)
    >>> _ = here.process(rows.tasks, rows.bounds, rows.batch, rows.hashes)
    >>> there.load(34, here.dump(34))
    >>> frozen = here.drop(34)
    >>> there[34].result().to_pydict()
    {'word': ['a'], 'count': [2]}
    """

    def __init__(self, operator: Operator[S], tasks: int, first: TaskId = 0) -> None:
        """Hold none yet of an operator's tasks; they are numbered from `first` on."""
        check_operator(operator)
        self.operator, self.tasks, self.first = operator, tasks, first
        self._states: dict[TaskId, S] = {}

    def __getitem__(self, task: TaskId) -> S:
        try:
            return self._states[task]
        except KeyError:
            raise InputError(f"task {task} is not here") from None

    def __contains__(self, task: TaskId) -> bool:
        return task in self._states

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def create(self, task: TaskId) -> None:
        """Begin a task that has seen no row."""
        self._put(task, self._call(task, self.operator.create, self._context(task)))

    def process(
        self, tasks: Ints, bounds: Ints, batch: pa.RecordBatch, hashes: Hashes | None = None
    ) -> list[Context]:
        """Take in rows of several tasks, grouped by task (see `split.Split`).

        Returns:
            One context per task, with what it emitted and fed.

        Raises:
            OperatorError: names the task and the rows; the states must not be used again.
        """
        names = [int(task) for task in tasks]
        states, contexts = [self[task] for task in names], [self._context(t) for t in names]
        try:
            self.operator.process_groups(states, bounds, batch, contexts, hashes)
        except OperatorError:
            raise
        except Exception as error:
            rows = int(bounds[0]), int(bounds[-1])
            raise self.operator.failure(contexts[0], rows, error) from error
        return contexts

    def dump(self, task: TaskId) -> list[pa.RecordBatch]:
        """Write a task's state as record batches that say whose they are."""
        return self._marked(self._call(task, self.operator.dump, self[task]))

    def seal(self, task: TaskId) -> int | None:
        """End a version of a task's state; None if the operator keeps no versions."""
        version: int | None = self._call(task, self.operator.seal, self[task])
        return version

    def changes(self, task: TaskId, since: int) -> list[pa.RecordBatch]:
        """Write what changed after a sealed version, as `dump` writes all."""
        return self._marked(self._call(task, self.operator.changes, self[task], since))

    def apply_changes(self, task: TaskId, batches: Sequence[pa.RecordBatch]) -> None:
        """Bring a task, loaded from an older dump, up to date.

        Raises:
            StateError: if the changes are broken, another operator's or another version's.
        """
        batches = self._call(task, self.admitted, batches)
        update, context = self.operator.apply_changes, self._context(task)
        self._states[task] = self._call(task, update, self[task], batches, context)

    def _marked(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Say in the batches' schema whose state they are."""
        marks = {NAME: self.operator.name.encode(), VERSION: b"%d" % self.operator.state_version}
        return [
            batch.replace_schema_metadata({**(batch.schema.metadata or {}), **marks})
            for batch in batches
        ]

    def load(self, task: TaskId, batches: Sequence[pa.RecordBatch]) -> None:
        """Take over a dumped state.

        Raises:
            StateError: if it is broken, another operator's or another version's.
        """
        batches = self._call(task, self.admitted, batches)
        self._put(task, self._call(task, self.operator.load, batches, self._context(task)))

    def take(self, task: TaskId, state: S) -> None:
        """Take over a state that is alive."""
        self._put(task, state)

    def drop(self, task: TaskId) -> S:
        """Forget a task, and give its state to whoever wants to keep it."""
        state = self[task]
        del self._states[task]
        return state

    def size(self, task: TaskId) -> int:
        """Tell how many bytes a move of this task carries."""
        return self.operator.size(self[task])

    def sizes(self) -> dict[TaskId, int]:
        """Tell the size of every task here."""
        return {task: self.operator.size(state) for task, state in self._states.items()}

    def freeze(self, task: TaskId) -> None:
        """Promise never to change a task again."""
        self.operator.freeze(self[task])

    def _context(self, task: TaskId) -> Context:
        return Context(task - self.first, self.tasks)

    def _put(self, task: TaskId, state: S) -> None:
        if task in self._states:
            raise InputError(f"task {task} is here already")
        self._states[task] = state

    def _call(self, task: TaskId, function: Any, *args: Any) -> Any:
        """Call the operator's code; what it raises names the task."""
        try:
            return function(*args)
        except (StateError, OperatorError):
            raise
        except Exception as error:
            raise self.operator.failure_in(function.__name__, task, error) from error

    def admitted(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Take what was written of a state; what an older version wrote is brought up to date.

        Raises:
            StateError: if it is another operator's, or a version's that this one cannot read.
        """
        found = list[Any]()
        for version, group in groupby(batches, self.version_of):
            if version == self.operator.state_version:
                found += group
            elif self.operator.migrates_from(version):
                found += self.operator.migrate(list(group), version)
            else:
                raise StateError(self.operator.misfit(version))
        return found

    def version_of(self, batch: pa.RecordBatch) -> int:
        """Tell which version of this operator has written a batch."""
        metadata = batch.schema.metadata or {}
        name, version = metadata.get(NAME, b"?"), metadata.get(VERSION, b"?")
        if name != self.operator.name.encode():
            raise StateError(f"state of operator {name.decode()}, not of {self.operator.name}")
        if not version.isdigit():
            raise StateError(f"a state without a version, not one of {self.operator.name}")
        return int(version)
