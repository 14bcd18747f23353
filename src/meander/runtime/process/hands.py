"""Carries out what a machine wants done: on the network, in the store, with processes and people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meander.protocol.messages import Discard, Launch, Load, Send, Store, Sweep, Tell
from meander.runtime.process.addresses import AddressBook
from meander.runtime.store.durable import StoreWorker
from meander.runtime.wire.transport import Transport


class Hands:
    """One machine's."""

    def __init__(
        self,
        addresses: AddressBook,
        store: StoreWorker,
        launch: Callable[[Launch], None] | None = None,
        tell: Callable[[Tell], None] | None = None,
    ) -> None:
        self.addresses, self.store = addresses, store
        self.transport: Transport | None = None
        """None before it begins."""
        self._launch, self._tell = launch, tell

    def carry_out(self, action: Any) -> None:
        """Do what an action says."""
        kind = type(action)
        if kind is Send:
            assert self.transport is not None
            self._dial(self.transport)
            self.transport.post(self.addresses.of(action.envelope), action.envelope)
        elif kind is Store or kind is Load or kind is Discard or kind is Sweep:
            self.store.give(action)
        elif kind is Launch:
            assert self._launch is not None
            self._launch(action)
        elif kind is Tell and self._tell is not None:
            self._tell(action)

    def to_master(self, envelope: Any) -> None:
        """Send the master something beside the turns; from any thread."""
        assert self.transport is not None
        self.transport.post(self.addresses.master, envelope)

    def _dial(self, transport: Transport) -> None:
        """Dial whoever a new table names, before there is something to send."""
        peers = self.addresses.news()
        if peers is not None:
            transport.keep(peers)
