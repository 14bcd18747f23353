"""What a simulated process sends with: the `Post` of its world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.protocol.messages import Envelope, Event
from meander.runtime.process.script import Script
from meander.runtime.wire.outgoing import others
from meander.runtime.wire.presence import Caller, Presence
from meander.testing.world.links import SimLink
from meander.testing.world.scripts import Done, Running, ScriptRunner
from meander.testing.world.streams import SimStream

if TYPE_CHECKING:
    from meander.testing.world.wires import Wires


class SimPost:
    """One process's end of all its connections: a `Post`."""

    def __init__(
        self,
        wires: Wires,
        identity: Caller,
        deliver: Callable[[Event], None],
        full: Callable[[], bool],
        schemas: Sequence[pa.Schema],
    ) -> None:
        self.wires, self.identity, self.peer = wires, identity, identity.peer
        self.deliver, self.full, self.schemas = deliver, full, schemas
        self.host = identity.address.partition(":")[0]
        self.dropped = self.malformed = 0
        self.refusals: dict[str, str] = {}
        self.unwritable: list[str] = []
        """Messages that could not be put into words: bugs."""
        self.presence = Presence()
        self.links: dict[str, SimLink] = {}
        self.incoming: set[SimStream] = set()
        self.requests: dict[str, Callable[[Mapping[str, Any]], Script[Any]]] = {}
        """Who serves which kind of request."""
        self.begin: Callable[[Script[Any], Done], object] = self._begin
        """Carries out a script as a thread of this process: it ends with it."""
        self._scripts = ScriptRunner(wires.timeline, partial(wires.ask, self))
        self._running: list[Running[Any]] = []
        self.paused = False
        """Neither reads nor writes, nor answers (SIGSTOP); see `Wires.pause`."""
        self.slow_s = 0.0
        """How long its readers take for a message."""
        self.leaving = False
        self.gone = False

    def _begin(self, script: Script[Any], ended: Done) -> Running[Any]:
        running = self._scripts.begin(script, ended)
        self._running = [*(other for other in self._running if not other.over), running]
        return running

    def die(self) -> None:
        """Do nothing more; what was under way stays where it is."""
        self.gone = True
        for running in self._running:
            running.kill()

    @property
    def address(self) -> str:
        """Where this process listens."""
        return self.identity.address

    def post(self, address: str | None, envelope: Envelope) -> None:
        """Send an envelope. Without an address, to whoever dialled us as that peer."""
        if address is None:
            address = self.presence.address(envelope.to)
        if address is None or self.gone or not self._link(address).put(envelope):
            self.dropped += 1
        else:
            self.wires.sent(self, envelope)

    def keep(self, addresses: set[str]) -> None:
        """Dial these in advance; hang up on others that were not sent anything for long."""
        if self.gone:
            return
        for address in sorted(addresses):
            self._link(address)
        unused_since = self.wires.timeline.now - self.wires.idle_s
        for link in others(self.links, addresses, unused_since):
            link.leave()

    def _link(self, address: str) -> SimLink:
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = SimLink(self.wires, self, address)
        return found

    def forget(self, link: SimLink) -> None:
        """A connection has ended."""
        if self.links.get(link.address) is link:
            del self.links[link.address]

    def unwritten(self, envelope: Envelope, error: Exception) -> None:
        """A message cannot be put into words."""
        self.dropped += 1
        self.unwritable.append(f"{type(envelope.body).__name__}: {error!r}")
