"""Copies ahead, as they cross the wire: a round does not wait for them for ever, nor does a copy.

Goes by what masters ask for and hear, and by the pieces that nodes send. A master that has heard of no
copy for `copy_s_max` goes on without: it does not ask for the same once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from meander.protocol.messages import Copy, Prepare

SENDS_MAX: Final = 9
"""A piece of a copy that is not answered is sent so often: once, and again eight times."""
SLACK: Final = 1.1
"""Clocks differ by so much."""
SLACK_S: Final = 0.05


class Named(Protocol):
    """A process, of either world."""

    @property
    def name(self) -> str:
        """Its name."""


class CopyBook:
    """Knows what each master waits for, and how often each piece was sent."""

    def __init__(self, copy_s_max: float, violated: Callable[[str, str], None]) -> None:
        self._wait_s_max = SLACK * copy_s_max + SLACK_S
        self._violated = violated
        self._asked: dict[Named, dict[Any, float]] = {}
        """When each master first asked for what, since it last went on."""
        self._heard: dict[Named, float] = {}
        """When each has last heard of a copy."""
        self._unread: set[Named] = set()
        """Those that may not have read yet what they were told of copies."""
        self._sends: Counter[tuple[Any, ...]] = Counter()

    def asks(self, driver: Named, body: Prepare, now: float) -> None:
        """A master asks for copies, perhaps once more."""
        asked, heard = self._asked.setdefault(driver, {}), self._heard.get(driver, 0.0)
        for item in body.items:
            waited_s = now - max(asked.setdefault(item, now), heard)
            if waited_s > self._wait_s_max:
                self._violated(
                    "limit", f"a round waits {waited_s:.1f} s for a copy of task {item[0]}"
                )

    def hears(self, driver: Named) -> None:
        """Word of copies has reached a master, who has yet to read it."""
        self._unread.add(driver)

    def looked(self, driver: Named, now: float, *, read: bool) -> None:
        """A master has taken a turn; read: it has nothing more to read."""
        if driver in self._unread:
            self._heard[driver] = now
            if read:
                self._unread.remove(driver)

    def goes_on(self, driver: Named) -> None:
        """Something else has happened to a master: the round that it waits with may be another."""
        self._asked.pop(driver, None)

    def copies(self, node: Named, body: Copy) -> None:
        """A node sends a piece, perhaps once more."""
        piece = node, body.task, body.tenure, body.copy, body.number
        self._sends[piece] += 1
        if self._sends[piece] > SENDS_MAX:
            self._violated(
                "limit", f"{node.name} sends piece {body.number} of task {body.task} on and on"
            )
