"""Between two drivers: what one has made durable, every later one has read.

Goes by what crossed to the stores and back: neither driver is asked, nor how its store finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meander.protocol.messages import Load, Loaded, Store, Stored

Place: TypeAlias = tuple[int, int]
"""Of a manifest: generation, and number among those of its driver; (0, 0): before all."""


class FenceBook:
    """Knows the manifests of a world in their order: which counted, and which were read.

    >>> fence = FenceBook(lambda by, text: print(by, text))
    >>> first, second = Store("manifest", b"1", fence=1), Store("manifest", b"2", fence=1)
    >>> fence.handed_in(first); fence.handed_in(second)
    >>> fence.answered(1, first, Stored("manifest", done=True))
    >>> fence.answered(2, Load("manifest"), Loaded("manifest", b"1"))
    >>> fence.answered(1, second, Stored("manifest", done=True))
    fence a manifest of generation 1 counts, and generation 2 began without it
    """

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated
        self._places: dict[bytes, Place] = {}
        """Of a manifest, by all that it says."""
        self._number, self._last = 0, (0, b"")
        self._said: dict[int, bytes] = {}
        """By generation: what its manifest says when the last write has come to its end."""
        self._given: dict[Store, Place] = {}
        self._counted: Place = (0, 0)
        """The last that counted."""
        self._read: dict[int, Place] = {}
        """What the driver of each generation began with."""

    def handed_in(self, action: Store) -> None:
        """A driver is about to write a manifest, for the first time or again."""
        said = self._says(action)
        if self._last != (action.fence, said):  # else it is tried again
            self._last = action.fence, said
            self._number += 1
        self._said[action.fence] = said
        self._places[said] = self._given[action] = action.fence, self._number

    def _says(self, action: Store) -> bytes:
        assert isinstance(action.data, bytes)
        return self._said[action.fence] + action.data if action.append else action.data

    def answered(self, generation: int, action: Store | Load, answer: Stored | Loaded) -> None:
        """A driver of some generation hears of a manifest that it wrote, or asked for."""
        if isinstance(action, Store) and isinstance(answer, Stored):
            if answer.done:
                place = self._given[action]
                self._counted = max(self._counted, place)
                for later, read in self._read.items():
                    self._compare(place, later, read)
        elif isinstance(answer, Loaded) and not answer.again and not answer.fault:
            read = (0, 0) if answer.data is None else self._places[answer.data]
            self._read[generation] = read
            self._compare(self._counted, generation, read)

    def _compare(self, counted: Place, later: int, read: Place) -> None:
        if counted[0] < later and read < counted:
            self._violated(
                "fence",
                f"a manifest of generation {counted[0]} counts, and generation {later} began "
                "without it",
            )
