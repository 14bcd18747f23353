"""A state server's disk, in memory: it has little room, and now and then it lies."""

from __future__ import annotations

from random import Random

ROOM_BYTES = 60_000
DAMAGE = 0.2
"""How often what is read is not what was written."""


class Jar:
    """A blob in the cellar."""

    def __init__(self, cellar: Cellar, blob: bytes) -> None:
        self._cellar, self._blob = cellar, blob

    def __len__(self) -> int:
        return len(self._blob)

    def read(self, offset: int, size: int) -> bytes | None:
        """Give some bytes, or say that they are spoilt."""
        if self._cellar.lies and self._cellar.random.random() < DAMAGE:
            self._cellar.damaged += 1
            return None
        return self._blob[offset : offset + size]

    def drop(self) -> None:
        """Give the room back."""
        self._cellar.bytes -= len(self._blob)


class Cellar:
    """Takes what a server has no memory for."""

    def __init__(self, random: Random, *, lies: bool = True) -> None:
        self.random = random
        self.bytes = self.spilled = self.damaged = 0
        self.lies = lies
        """Whether it may spoil what it holds, like all faults until they stop."""

    def lay_by(self, blob: bytes) -> Jar | None:
        """Take a blob if there is room."""
        if self.bytes + len(blob) > ROOM_BYTES:
            return None
        self.bytes += len(blob)
        self.spilled += 1
        return Jar(self, blob)
