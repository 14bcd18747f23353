"""Contexts of many tasks that are made when somebody looks: most operators look at none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from meander.operators.base import Context
from meander.runtime.process.app_state import AppState


class Contexts(Sequence[Context]):
    """One for each task of a block."""

    def __init__(self, apps: Sequence[AppState], make: Callable[[AppState], Context]) -> None:
        self._apps, self._make = apps, make
        self._made: dict[int, Context] = {}

    def __len__(self) -> int:
        return len(self._apps)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        found = self._made.get(at)
        if found is None:
            found = self._made[at] = self._make(self._apps[at])
        return found

    def made(self) -> Iterable[tuple[AppState, Context]]:
        """Give those that were looked at, each with its task's state."""
        return [(self._apps[at], context) for at, context in self._made.items()]
