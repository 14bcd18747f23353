"""One turn of a machine: who it is, what time it is, and what the event has led to so far.

A machine makes one `Turn` and shares it with its parts. Every event sets its clock and empties its
actions; whatever the machine and its parts decide goes in by `send`, `do`, `tell` and `exit`. So a
part needs to know nothing of the machine it belongs to.
"""

from __future__ import annotations

from typing import Any

from meander.model import ZERO_EPOCH, Epoch
from meander.protocol.messages import (
    Action,
    Ending,
    Envelope,
    Exit,
    Message,
    News,
    PeerId,
    Send,
    Tell,
)
from meander.protocol.settings import Settings
from meander.protocol.table import Table


class Turn:
    """What a machine and its parts share."""

    def __init__(self, me: PeerId, incarnation: int, settings: Settings) -> None:
        self.me = me
        self.incarnation = incarnation
        self.settings = settings
        self.epoch: Epoch = ZERO_EPOCH
        """The newest epoch known here."""
        self.now = 0.0
        """Of the event that is handled, on this process's own clock."""
        self.actions: list[Action] = []
        """What the event has led to."""
        self.ended = False
        """True after an `Exit`: nothing is handled any more."""

    def begin(self, now: float) -> None:
        """Turn to the next event."""
        self.now, self.actions = now, []

    def do(self, action: Action) -> None:
        """Have the shell do something."""
        self.actions.append(action)

    def send(self, to: PeerId, body: Message, to_incarnation: int = 0) -> None:
        """Say something to another process."""
        self.actions.append(
            Send(Envelope(self.me, self.incarnation, to, to_incarnation, self.epoch, body))
        )

    def tell(self, news: News, **facts: Any) -> None:
        """Say something to people."""
        self.actions.append(Tell(news, facts))

    def exit(self, ending: Ending, detail: str) -> None:
        """End this process."""
        self.ended = True
        self.actions.append(Exit(ending, detail))


class LeasedTurn(Turn):
    """That of a process which serves under the master's leases: with what it was told last."""

    def __init__(self, me: PeerId, incarnation: int, settings: Settings) -> None:
        super().__init__(me, incarnation, settings)
        self.table: Table | None = None
        """The newest."""
        self.lease_until = -1.0
        """On this process's own clock."""
        self.behind = False
        """Whether an epoch was heard of that is newer than the table."""
        self.behind_at = 0.0
        """Since when: the answer to a later question tells whether that was true."""

    @property
    def leased(self) -> bool:
        """Whether the table may be acted upon."""
        return self.table is not None and self.now < self.lease_until

    def fall_behind(self) -> None:
        """An epoch was heard of that is not known here: it is asked for."""
        if not self.behind:
            self.behind, self.behind_at = True, self.now
