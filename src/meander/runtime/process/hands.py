"""Carries out what a machine wants done: on the network, in the store, with processes and people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from meander.protocol.messages import Discard, Envelope, Launch, Load, Send, Store, Sweep, Tell
from meander.runtime.process.addresses import AddressBook
from meander.runtime.wire.rows import by_kind


class Post(Protocol):
    """What a process sends with. Nothing here waits, and what cannot be sent is dropped and counted."""

    dropped: int
    """Messages that found no room or no way."""
    malformed: int
    """Messages that came and could not be read."""
    refusals: dict[str, str]
    """Why a peer will never speak with us, by its address."""

    @property
    def address(self) -> str:
        """Where this process listens."""

    def post(self, address: str | None, envelope: Envelope) -> None:
        """Send an envelope. Without an address, to whoever dialled us as that peer."""

    def keep(self, addresses: set[str]) -> None:
        """Dial these in advance; hang up on others that were not sent anything for long."""


class StorePort(Protocol):
    """What a process stores with: every write and every load is answered with an event."""

    def start(self, deliver: Callable[[Any], None]) -> None:
        """Begin; answers go to `deliver`."""

    def give(self, action: Any) -> None:
        """Hand in an action."""

    def close(self) -> None:
        """Finish what was handed in, and end."""

    def idle(self) -> bool:
        """Whether it was closed, and nothing is queued or under way."""


class Hands:
    """One machine's."""

    def __init__(
        self,
        addresses: AddressBook,
        store: StorePort | None,
        launch: Callable[[Launch], None] | None = None,
        tell: Callable[[Tell], None] | None = None,
    ) -> None:
        self.addresses, self.store = addresses, store
        self.post: Post | None = None
        """None before it begins."""
        self._launch, self._tell = launch, tell

    def carry_out(self, action: Any) -> None:
        """Do what an action says."""
        kind = type(action)
        if kind is Send:
            assert self.post is not None
            self._dial(self.post)
            for envelope in by_kind(action.envelope):
                self.post.post(self.addresses.of(envelope), envelope)
        elif kind is Store or kind is Load or kind is Discard or kind is Sweep:
            assert self.store is not None
            self.store.give(action)
        elif kind is Launch:
            assert self._launch is not None
            self._launch(action)
        elif kind is Tell and self._tell is not None:
            self._tell(action)

    def to_master(self, envelope: Any) -> None:
        """Send the master something beside the turns; from any thread."""
        assert self.post is not None
        self.post.post(self.addresses.master, envelope)

    def _dial(self, post: Post) -> None:
        """Dial whoever a new table names, before there is something to send."""
        peers = self.addresses.news()
        if peers is not None:
            post.keep(peers)
