"""A state that comes in parts from a state server: which are here, which were asked for."""

from __future__ import annotations

from meander.protocol.messages import Part
from meander.protocol.node.slot import Slot


class Fetching:
    """One state under way. Its first part tells how many there are; then several are asked for."""

    def __init__(self, slot: Slot, now: float) -> None:
        self.slot = slot
        self.began = now
        self.asked_at = now
        """When something was last asked for, or came."""
        self.asks = 0
        """How often in vain, since it last came."""
        self.next = 0
        """The offset of what is to be asked for next."""
        self.asked: set[int] = set()
        """Offsets of parts that were asked for and are not here."""
        self._parts: dict[int, bytes] = {}
        self._total = -1
        """Bytes in all; less than 0: nothing has come."""
        self._got = 0

    @property
    def more(self) -> bool:
        """Whether there is more to ask for, as far as is known."""
        return self.next == 0 or self.next < self._total

    def ask(self, size: int) -> int:
        """Give the offset to ask for, of parts of a size."""
        offset = self.next
        self.asked.add(offset)
        self.next += size
        return offset

    def take(self, body: Part, now: float) -> bool:
        """Keep a part that was asked for; False if it was not."""
        if body.offset not in self.asked or self._total not in (-1, body.total):
            return False
        self.asked.remove(body.offset)
        self._parts[body.offset], self._total = body.data, body.total
        self._got += len(body.data)
        self.asked_at, self.asks = now, 0
        return True

    @property
    def whole(self) -> bool:
        """Whether all parts are here."""
        return self._got == self._total

    def blob(self) -> bytes:
        """Put the parts together."""
        return b"".join(self._parts[offset] for offset in sorted(self._parts))
