"""A virtual clock: things happen in the order of their time, in one thread, as fast as they can."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

PATIENCE_S = 90.0
"""So long after the last fault all must have come to its end …"""
LONGEST_S = 300.0
"""… or so long, where something new comes all the time."""


class Timeline:
    """Calls functions at virtual times.

    >>> line, seen = Timeline(), []
    >>> line.at(2.0, seen.append, "b"); line.at(1.0, seen.append, "a")
    >>> line.run(until=5.0); seen, line.now
    (['a', 'b'], 5.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[[Any], object], Any]] = []
        self._count = 0

    def at(self, time: float, what: Callable[[Any], object], arg: Any = None) -> None:
        """Call `what(arg)` at a time; at equal times, first come, first called."""
        self._count += 1
        now = self.now
        heappush(self._heap, (time if time > now else now, self._count, what, arg))

    def after(self, delay: float, what: Callable[[Any], object], arg: Any = None) -> None:
        """Call `what(arg)` after a delay."""
        self._count += 1
        at = self.now + delay if delay > 0.0 else self.now
        heappush(self._heap, (at, self._count, what, arg))

    def clear(self) -> None:
        """Forget all that was to come, and with it whoever was to be called."""
        self._heap.clear()

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Go on until a time, or until `done` says so (asked now and then)."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, what, arg = heappop(heap)
            what(arg)
            self.steps += 1
            if done is not None and self.steps & 31 == 0 and done():
                return
        self.now = until

    def run_patiently(
        self, begun: float, done: Callable[[], bool], told: Callable[[], object]
    ) -> None:
        """Go on until `done` says so, or patience is over, which is counted from when faults end.

        Who gets on stays patient for longer, as long as what is `told` changes: a loop with checkpoints
        whose tasks keep two chunks at most sends two for each record, and goes on for as long as that
        takes.
        """
        step_s = PATIENCE_S / 3
        self.run(begun + PATIENCE_S - step_s, done)
        until = begun + PATIENCE_S
        while not done() and until <= begun + LONGEST_S:
            before = told()
            self.run(until, done)
            if told() == before:
                return
            until += step_s
