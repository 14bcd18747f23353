"""The versions of a deployment's operator: the first, and those that it was upgraded to.

Nodes of two versions run side by side while an upgrade is under way, and feeders send to both. So all
that rows are made of stays the same; what a state is made of may change, if the new version can read
the old one's (`Operator.migrate`). The old one cannot read the new one's: the way back is then another
version, the old code with the new one's `migrate_back`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from meander.errors import InputError
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.runtime.store.resume import describe, misfits

ROWS = ("schema", "keys", "event_time", "combined_schema", "output_schema")
"""What feeders, readers and queries know of an operator."""
STREAMS = ("names_and_tasks", "edges", "inputs", "outputs", "groups", "together")
"""What they and all nodes know of a topology."""


class Version(NamedTuple):
    """One version of the operator."""

    operator: Operator[Any] | Topology
    pickled: bytes
    """The same, for nodes."""


def changes_state(old: Operator[Any] | Topology, new: Operator[Any] | Topology) -> bool:
    """See that nodes of two versions can work side by side; tell whether their states differ.

    Raises:
        InputError: naming all that differs and may not.
    """
    if isinstance(old, Topology) and isinstance(new, Topology):
        _check_streams(old, new)
        both = zip(old.operators.values(), new.operators.values(), strict=True)
        changed = [changes_state(one, other) for one, other in both]
        return any(changed)
    if isinstance(old, Topology) or isinstance(new, Topology):
        raise InputError(
            "what runs is a topology, or will be one, and the other is a single operator"
        )
    differs = [
        f"{what} is {getattr(old, what)!r} now, and would be {getattr(new, what)!r}"
        for what in ROWS
        if getattr(old, what) != getattr(new, what)
    ]
    if new.state_version < old.state_version:
        differs.append(f"its state_version {new.state_version} is older than {old.state_version}")
    differs += [text.replace("in the checkpoint", "now") for text in misfits(describe(old), new)]
    if differs:
        raise InputError(
            f"{new.name} cannot take the place of {old.name} while it runs: {'; '.join(differs)}. "
            "A state of another make needs a higher state_version and a method migrate"
        )
    return new.state_version != old.state_version


def _check_streams(old: Topology, new: Topology) -> None:
    """Refuse a topology with other tasks or streams: those that are under way could not arrive."""
    for what in STREAMS:
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            raise InputError(
                f"{new.name} cannot take the place of {old.name} while it runs: {what} is {before} "
                f"now, and would be {after}"
            )


def reverting(
    old: Operator[Any] | Topology, new: Operator[Any] | Topology
) -> Operator[Any] | Topology:
    """Make the old version such that it reads what the new one has written.

    Raises:
        InputError: if the new one has no `migrate_back`.
    """
    if isinstance(old, Topology) and isinstance(new, Topology):
        pairs = zip(old.operators.items(), new.operators.values(), strict=True)
        made = {name: _reverting(one, other) for (name, one), other in pairs}
        return replace(old, operators=made)
    assert isinstance(old, Operator), "`changes_state` was asked before"
    assert isinstance(new, Operator), "as well"
    return _reverting(old, new)


def _reverting(old: Operator[Any], new: Operator[Any]) -> Operator[Any]:
    if new.state_version == old.state_version:
        return old
    if type(new).migrate_back is Operator.migrate_back:
        raise InputError(
            f"{new.name} has changed the state, and has no method migrate_back: there is no way back"
        )
    found = copy(old)
    object.__setattr__(found, "migrate", _Back(new))
    return found


class _Back:
    """The `migrate` of an old version: the new one's way back."""

    def __init__(self, new: Operator[Any]) -> None:
        self._new = new

    def __call__(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        return self._new.migrate_back(batches, version)
