"""Whether an operator can go on from a checkpoint, and what differs if it cannot.

The code of an operator may change between two runs, or while it runs. What may not: its name, its keys,
the version and the schema of its state, unless it can `migrate` the older one, and the number of tasks,
because the records in the store are of those.
"""

from __future__ import annotations

from typing import Any

from meander.errors import CheckpointError, InputError
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.master.manifest import Manifest
from meander.runtime.store.durable import FileStore


def describe(operator: Operator[Any] | Topology) -> dict[str, Any]:
    """Say in a manifest what the state is of; of a topology, also of each operator.

    >>> from meander.operators import WordCount
    >>> describe(WordCount())["state"]
    {'word': 'large_string', 'rows': 'int64'}
    """
    if isinstance(operator, Topology):
        parts = {part.name: describe(part.operator) for part in operator.parts}
        tasks = {part.name: part.tasks for part in operator.parts}
        return {"name": operator.name, "tasks": tasks, "operators": parts}
    schema = getattr(operator, "dump_schema", None)
    kinds = {name: operator.schema.field(name).type for name in operator.keys}
    return {
        "name": operator.name,
        "state_version": operator.state_version,
        "keys": {name: str(kind) for name, kind in kinds.items()},
        "state": None if schema is None else {f.name: str(f.type) for f in schema},
    }


def newest(store: FileStore) -> Manifest | None:
    """Read the newest manifest of a store; None: there is none yet.

    Raises:
        CheckpointError: if it cannot be read.
    """
    file = "manifest"
    try:
        found = store.newest()
        if found is None:
            return None
        file, data = found
        return Manifest.load(data)
    except (InputError, OSError) as error:
        raise CheckpointError(f"{store.files.uri}/{file}: {error}", file=file) from error


def last_generation(store: FileStore) -> int:
    """Give the generation of the last driver of a store; 0: there was none.

    Raises:
        CheckpointError: if that cannot be told.
    """
    try:
        return store.generation()
    except OSError as error:
        raise CheckpointError(f"{store.files.uri} cannot be listed: {error}") from error


def check_resumable(
    store: FileStore, operator: Operator[Any] | Topology, tasks: int
) -> Manifest | None:
    """Find out whether an operator can be deployed on a checkpoint; give its manifest, if any.

    Raises:
        CheckpointError: with all that differs.
    """
    manifest = newest(store)
    if manifest is None:
        return None
    differs = misfits(dict(manifest.about), operator)
    if manifest.tasks != tasks:
        differs.append(f"{manifest.tasks} tasks in the checkpoint, {tasks} here")
    if differs:
        raise CheckpointError(
            f"the checkpoint {store.files.uri} is of another operator or state: {'; '.join(differs)}. "
            "Deploy what fits it, or give an empty folder to begin anew"
        )
    return manifest


def misfits(stored: dict[str, Any], operator: Operator[Any] | Topology) -> list[str]:
    """Say what keeps an operator, or a topology, from going on with the state of another."""
    here, version = describe(operator), stored.get("state_version")
    if isinstance(operator, Topology):
        found, known = differences(stored, here), stored.get("operators") or {}
        for name, one in operator.operators.items():
            found += [f"{name}: {fact}" for fact in misfits(known.get(name, {}), one)]
        return found
    if version is not None and operator.migrates_from(version):
        stored = {**stored, "state_version": here["state_version"], "state": None}
    return differences(stored, here)


def differences(stored: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Say what differs between the operator in a manifest and one that is to go on.

    >>> differences({"name": "A", "state_version": 1}, {"name": "A", "state_version": 2})
    ['state_version 1 in the checkpoint, 2 here']
    >>> differences({"state": {"n": "int64"}}, {"state": {"n": "double", "m": "int64"}})
    ['state n int64 in the checkpoint, double here', 'state m nothing in the checkpoint, int64 here']
    """
    found = []
    for fact in ("name", "state_version"):
        old, new = stored.get(fact), here.get(fact)
        if old is not None and old != new:
            found.append(f"{fact} {old} in the checkpoint, {new} here")
    for fact in ("tasks", "keys", "state"):
        old, new = stored.get(fact), here.get(fact)
        if old is None or new is None:
            continue  # an operator that does not say it beforehand: its `load` will
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                was, is_ = old.get(name, "nothing"), new.get(name, "nothing")
                found.append(f"{fact} {name} {was} in the checkpoint, {is_} here")
        if list(old) != list(new) and not found:
            found.append(f"{fact} in the order {list(old)} in the checkpoint, {list(new)} here")
    return found
