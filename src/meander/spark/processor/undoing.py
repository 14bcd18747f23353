"""A key of a processor as it was before a call that raised: `on_error="collect"`.

What the processor has done to the key in that call is undone: its variables and its timers.
"""

from __future__ import annotations

from typing import Any

from meander.operators.timers import Key
from meander.spark.processor.handle import Moment


class Before:
    """A key as it was before a call."""

    def __init__(self, moment: Moment, key: Key) -> None:
        self._moment, self._key = moment, key
        entry = moment.state.entries.get(key)
        self._entry = None if entry is None else [_copy(content) for content in entry]
        self._timers = [] if moment.timers is None else moment.timers.of(key)

    def restore(self) -> None:
        """Undo all that was done to the key since."""
        state, timers = self._moment.state, self._moment.timers
        if self._entry is not None:
            state.entries[self._key] = self._entry
            state.touch(self._key)
        else:
            state.remove(self._key)
        if timers is not None:
            for at_us in set(timers.of(self._key)) - set(self._timers):
                timers.cancel(self._key, at_us)
            for at_us in self._timers:
                timers.set(self._key, at_us)


def _copy(content: Any) -> Any:
    return content.copy() if isinstance(content, list | dict) else content


def as_dicts(rows: Any) -> list[dict[str, Any]]:
    """Give a key's rows, of either form, as mappings."""
    if isinstance(rows, list):
        return [row.asDict(True) for row in rows]
    found: list[dict[str, Any]] = rows.to_dict("records")
    return found
