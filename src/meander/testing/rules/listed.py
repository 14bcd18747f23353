"""The rules by name, and what a check has seen. Cheap to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RULES: Final = {
    "pickle": "an operator can be pickled, and its copy works as it does",
    "types": "batches are Arrow record batches of the schemas that the operator names",
    "input": "process leaves the rows as they are that it is given",
    "dump": "dump, size and seal change nothing",
    "fixed": "what dump and emit gave never changes later",
    "load": "load(dump(state)) behaves as state does, in every later call",
    "state": "all that must survive a move is in the state",
    "apart": "tasks share nothing, and process does what process_groups does",
    "combine": "process_combined does with what combine gives what process does with the rows",
    "cuts": "how rows are cut into batches has no meaning",
    "changes": "apply_changes(copy, changes(state, version)) makes the state, what is gone included",
    "size": "size is an int, not negative, and larger for a state that is much larger",
}
"""The rules that are checked, in their order."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rows have led to, summed over all tasks: a zero was not checked at all."""

    rows: int
    tasks: int
    """That had rows."""
    emitted: int
    """Rows of outputs."""
    fed: int
    """Rows fed back."""
    timers: int
    """Timers seen, after all batches."""
    forgotten: int
    """Rows by which states have become smaller."""
    versions: bool
    """Whether the operator keeps versions: changes were checked."""
    combined: bool
    """Whether the operator combines rows: that was checked."""
