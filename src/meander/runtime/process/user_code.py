"""Calls of the operator's code.

Whatever it raises, or gives that it must not give, names its method and the task (`OperatorError`): it
is the user's to mend, and the message says where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, TypeVar

import pyarrow as pa

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.tasks import NAME, VERSION
from meander.runtime.process.app_state import AppState

T = TypeVar("T")


def ask(
    operator: Operator[Any], task: TaskId, method: str, function: Callable[..., T], *args: Any
) -> T:
    """Call the operator's code, for what it gives or does in a method of its.

    Raises:
        OperatorError: whatever it raises; names its method and the task.
    """
    try:
        return function(*args)
    except Exception as error:
        raise operator.failure_in(method, task, error) from error


def size_of(operator: Operator[Any], app: AppState) -> int:
    """Ask for the size of a state in bytes."""

    def size() -> int:
        found = index(operator.size(app.state))
        if found < 0:
            raise StateError(f"a state has no size of {found} bytes")
        return found

    return ask(operator, app.task, "size", size)


def sizes_of(operator: Operator[Any], apps: Sequence[AppState]) -> Sequence[int]:
    """Ask for the sizes of several states; in one call, if the operator would rather."""
    if not apps or type(operator).sizes is Operator.sizes:
        return [size_of(operator, app) for app in apps]
    states = [app.state for app in apps]
    return ask(operator, apps[0].task, "sizes", operator.sizes, states)


def seals_of(operator: Operator[Any], apps: Sequence[AppState]) -> list[int | None]:
    """End a version of several states; in one call, if the operator would rather."""
    if len(apps) < 2 or type(operator).seals is Operator.seals:
        return [ask(operator, app.task, "seal", operator.seal, app.state) for app in apps]
    states, task = [app.state for app in apps], apps[0].task
    found = list(ask(operator, task, "seals", operator.seals, states))
    if len(found) != len(apps):
        why = StateError(f"it gave {len(found)} versions of {len(apps)} states")
        raise operator.failure_in("seals", task, why)
    return found


def marks_of(operator: Operator[Any]) -> dict[bytes, bytes]:
    """Give what written states say of whose they are."""
    return {NAME: operator.name.encode(), VERSION: b"%d" % operator.state_version}


def written(operator: Operator[Any], app: AppState, since: int | None = None) -> list[Any]:
    """Have the operator write a state, or its changes; the batches say whose they are."""
    marks = marks_of(operator)
    return [
        b.replace_schema_metadata({**(b.schema.metadata or {}), **marks})
        for b in batches_of(operator, app, since)
    ]


def batches_of(operator: Operator[Any], app: AppState, since: int | None) -> list[Any]:
    """Have the operator write a state, or its changes."""
    task = app.task
    if since is None:
        found = ask(operator, task, "dump", operator.dump, app.state)
        return _checked(operator, task, "dump", found)
    found = ask(operator, task, "changes", operator.changes, app.state, since)
    return _checked(operator, task, "changes", found)


def changes_of(
    operator: Operator[Any], apps: Sequence[AppState], since: Sequence[int]
) -> list[tuple[Any, list[int]]] | None:
    """Have the operator write the changes of several states in one go; None: it does not."""
    states, task = [app.state for app in apps], apps[0].task
    found = ask(operator, task, "changes_of", operator.changes_of, states, since)
    for batch, counts in found or ():
        if len(counts) != len(apps) or sum(counts) != batch.num_rows or min(counts) < 0:
            why = StateError("it does not say how many rows of a batch are whose")
            raise operator.failure_in("changes_of", task, why)
    return found


def _checked(operator: Operator[Any], task: TaskId, method: str, found: Any) -> list[Any]:
    """See that the operator has given record batches."""
    if isinstance(found, pa.Table) or not isinstance(found, Iterable):
        why = f"it gave a {type(found).__name__}, not a list of record batches"
        raise operator.failure_in(method, task, StateError(why))
    batches: list[Any] = list(found)
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            why = f"it gave a {type(batch).__name__} among its record batches"
            raise operator.failure_in(method, task, StateError(why))
    return batches
