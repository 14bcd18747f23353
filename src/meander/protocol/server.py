"""A state server: holds the states of departing tasks for whoever fetches them. One per host.

It keeps a state until it is told that it was installed (`Drop`), within a limit. It knows nothing
of owners: a state is named by task and tenure, so several versions of one task can be here at once,
and a `Drop` for an older destination never frees what was put for a newer one.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from meander.model import Epoch, TaskId
from meander.protocol.client import Client
from meander.protocol.messages import (
    NEVER,
    NOT_YET,
    Drop,
    Envelope,
    Fetch,
    Part,
    PeerId,
    Put,
    PutDone,
    Welcome,
)
from meander.protocol.settings import Settings
from meander.protocol.state import checksum
from meander.protocol.table import Table


class Held(NamedTuple):
    """A state under way."""

    target: Epoch
    blob: bytes | None
    checksum: int


class StateServer(Client):
    """One state server."""

    kind = "server"
    accepts: ClassVar[tuple[type, ...]] = (*Client.accepts, Put, Fetch, Drop)

    def __init__(self, me: PeerId, settings: Settings, generation: int, instance: str) -> None:
        super().__init__(me, 0, settings, generation, instance)
        self.held: dict[tuple[TaskId, Epoch], Held] = {}
        self.bytes = 0
        """Of all blobs held: at most `server_bytes_max`, or one blob that is larger."""
        self._wishes: dict[tuple[TaskId, Epoch], PeerId] = {}
        """Who asked for what is not here yet: told when it comes."""

    def _joined(self, body: Welcome) -> None:
        self.incarnation = body.incarnation

    def _check_put(self, body: Put) -> str | None:
        if body.task < 0 or not body.tenure < body.target:
            return "a task is negative, or a state is meant for a tenure before its own"
        if body.blob is not None and checksum(body.blob) != body.checksum:
            return f"the state of task {body.task} does not have its checksum"
        return None

    def _on_put(self, env: Envelope, body: Put) -> None:
        key = body.task, body.tenure
        old = self.held.get(key)
        if old is not None and old.target >= body.target:
            self._send(env.sender, PutDone(*key, body.target, held=True))
            return
        if body.blob is not None:
            self._supersede(body.task, body.tenure)
        size = len(body.blob or b"") - (len(old.blob or b"") if old is not None else 0)
        room = self.settings.server_bytes_max - self.bytes
        held = size <= max(0, room) or self.bytes == 0
        if held:
            self.held[key] = Held(body.target, body.blob, body.checksum)
            self.bytes += size
        self._send(env.sender, PutDone(*key, body.target, held))
        wisher = self._wishes.pop(key, None) if held else None
        if wisher is not None:
            self._give(wisher, key, 0)

    def _supersede(self, task: TaskId, tenure: Epoch) -> None:
        """Free older states of a task: a later owner has installed it since.

        Their nodes keep them, and put them again should the later owner be lost.
        """
        for key in [k for k in self.held if k[0] == task and k[1] < tenure]:
            self.bytes -= len(self.held.pop(key).blob or b"")

    def _check_fetch(self, body: Fetch) -> str | None:
        if min(body.task, body.offset) < 0:
            return "a task or an offset is negative"
        held = self.held.get((body.task, body.tenure))
        if held is not None and held.blob is not None and body.offset > len(held.blob):
            return f"the state of task {body.task} ends before {body.offset}"
        return None

    def _on_fetch(self, env: Envelope, body: Fetch) -> None:
        self._give(env.sender, (body.task, body.tenure), body.offset)

    def _give(self, peer: PeerId, key: tuple[TaskId, Epoch], offset: int) -> None:
        held = self.held.get(key)
        if held is None:
            self._wishes[key] = peer
            self._send(peer, Part(*key, 0, NOT_YET, b"", 0))
        elif held.blob is None:
            self._send(peer, Part(*key, 0, NEVER, b"", 0))
        else:
            data = held.blob[offset : offset + self.settings.part_bytes]
            self._send(peer, Part(*key, offset, len(held.blob), data, held.checksum))

    def _on_drop(self, env: Envelope, body: Drop) -> None:
        for task, tenure, target in body.items:
            held = self.held.get((task, tenure))
            if held is not None and held.target <= target:
                del self.held[task, tenure]
                self.bytes -= len(held.blob or b"")

    def _adopt(self, old: Table | None, new: Table) -> None:
        """Free what no chain names any more, whoever forgot to say so."""
        if not (self.held or self._wishes):
            return
        named = new.named
        for key, held in list(self.held.items()):
            if key not in named and held.target <= new.epoch:
                del self.held[key]
                self.bytes -= len(held.blob or b"")
        self._wishes = {k: peer for k, peer in self._wishes.items() if k in named}
