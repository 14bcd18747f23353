"""A state server: holds the states of departing tasks for whoever fetches them. One per host.

It keeps a state until it receives that it was installed (`Drop`), in memory up to a limit, beyond it
in a `Spill` if it has one; what fits nowhere is refused, and put again later. It knows nothing of
owners: a state is named by task and tenure, so several versions of one task can be here at once,
and a `Drop` for an older destination never frees what was put for a newer one.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

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

WISHES_MAX = 1_000_000
"""Tasks that are not here yet and were asked for: as many as a deployment may have tasks."""


class SpillSlot(Protocol):
    """A blob that is not in memory."""

    def __len__(self) -> int:
        """Give its length."""

    def read(self, offset: int, size: int) -> bytes | None:
        """Give some of its bytes; None if they are not what they were."""

    def drop(self) -> None:
        """Forget it."""


class Spill(Protocol):
    """Room for blobs outside of memory."""

    def lay_by(self, blob: bytes) -> SpillSlot | None:
        """Take a blob; None: there is no room."""


class HeldState(NamedTuple):
    """A state under way."""

    target: Epoch
    blob: bytes | SpillSlot | None
    checksum: int
    source: PeerId = ""
    """Who has put it."""

    @property
    def memory(self) -> int:
        """The bytes of memory that it takes."""
        return len(self.blob) if isinstance(self.blob, bytes) else 0


class StateServer(Client):
    """One state server."""

    kind = "server"
    accepts: ClassVar[tuple[type, ...]] = (*Client.accepts, Put, Fetch, Drop)

    def __init__(
        self,
        me: PeerId,
        settings: Settings,
        generation: int,
        instance: str,
        spill: Spill | None = None,
    ) -> None:
        super().__init__(me, 0, settings, generation, instance)
        self.held: dict[tuple[TaskId, Epoch], HeldState] = {}
        self.spill = spill
        self.bytes = 0
        """Of all blobs in memory: at most `server_bytes_max`, or one blob that is larger."""
        self.damaged = 0
        """Blobs that could not be read again, for the metrics."""
        self._wishes: dict[tuple[TaskId, Epoch], PeerId] = {}
        """Who asked for what is not here yet: told when it comes."""
        self._forgone: dict[tuple[TaskId, Epoch], HeldState] = {}
        """What was here and is not any more, though a chain may name it: who is to put it again."""

    def may_act(self, now: float) -> bool:
        """Say yes: what it holds is named by task and tenure, and no table is needed to give it out."""
        return True

    def _joined(self, body: Welcome) -> None:
        self.turn.incarnation = body.incarnation

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
            self.turn.send(env.sender, PutDone(*key, body.target, held=True))
            return
        if body.blob is not None:
            self._supersede(body.task, body.tenure)
        held = self._take(env.sender, body, old)
        self.turn.send(env.sender, PutDone(*key, body.target, held))
        wisher = self._wishes.pop(key, None) if held else None
        if wisher is not None:
            self._give(wisher, key, 0)

    def _take(self, source: PeerId, body: Put, old: HeldState | None) -> bool:
        """Keep a state in memory, or outside of it; False if there is no room."""
        key = body.task, body.tenure
        size = len(body.blob or b"") - (0 if old is None else old.memory)
        room = self.settings.server_bytes_max - self.bytes
        kept: bytes | SpillSlot | None = body.blob
        if size > max(0, room) and (self.spill is not None or self.bytes > 0):
            assert body.blob is not None
            kept = None if self.spill is None else self.spill.lay_by(body.blob)
            if kept is None:
                if self.bytes > 0:
                    return False
                kept = body.blob  # nothing else is here, and a state may be larger than the limit
        if old is not None:
            self._forget(key)
        self._forgone.pop(key, None)
        self.held[key] = found = HeldState(body.target, kept, body.checksum, source)
        self.bytes += found.memory
        return True

    def _forget(self, key: tuple[TaskId, Epoch]) -> None:
        held = self.held.pop(key)
        self.bytes -= held.memory
        if held.blob is not None and not isinstance(held.blob, bytes):
            held.blob.drop()

    def _forgo(self, key: tuple[TaskId, Epoch]) -> None:
        """Forget a state that may be wanted: whoever put it keeps it, and is to put it again."""
        self._forgone[key] = self.held[key]._replace(blob=None)
        self._forget(key)
        self._remind(key)

    def _remind(self, key: tuple[TaskId, Epoch]) -> None:
        """Say that a state is not here; again with every wish for it, since words may be lost."""
        missing = self._forgone.get(key)
        if missing is not None:
            self.turn.send(missing.source, PutDone(*key, missing.target, held=False))

    def _supersede(self, task: TaskId, tenure: Epoch) -> None:
        """Free older states of a task: a later owner has installed it since.

        A chain may still name them: the later owner may be lost, and its state come here late.
        """
        for key in [k for k in self.held if k[0] == task and k[1] < tenure]:
            self._forgo(key)

    def _check_fetch(self, body: Fetch) -> str | None:
        if min(body.task, body.offset) < 0:
            return "a task or an offset is negative"
        held = self.held.get((body.task, body.tenure))
        if held is not None and held.blob is not None and body.offset > len(held.blob):
            return f"the state of task {body.task} ends before {body.offset}"
        return None

    def _on_fetch(self, env: Envelope, body: Fetch) -> None:
        self._remind((body.task, body.tenure))
        self._give(env.sender, (body.task, body.tenure), body.offset)

    def _give(self, peer: PeerId, key: tuple[TaskId, Epoch], offset: int) -> None:
        held = self.held.get(key)
        if held is None:
            if len(self._wishes) < WISHES_MAX or key in self._wishes:
                self._wishes[key] = peer  # others will have to ask again
            self.turn.send(peer, Part(*key, 0, NOT_YET, b"", 0))
        elif held.blob is None:
            self.turn.send(peer, Part(*key, 0, NEVER, b"", 0))
        else:
            data = self._read(held.blob, offset)
            if data is None:
                self.damaged += 1
                self._forgo(key)
                self._give(peer, key, 0)
            else:
                self.turn.send(peer, Part(*key, offset, len(held.blob), data, held.checksum))

    def _read(self, blob: bytes | SpillSlot, offset: int) -> bytes | None:
        size = self.settings.part_bytes
        return blob[offset : offset + size] if isinstance(blob, bytes) else blob.read(offset, size)

    def _on_drop(self, env: Envelope, body: Drop) -> None:
        for task, tenure, target in body.items:
            held = self.held.get((task, tenure))
            if held is not None and held.target <= target:
                self._forget((task, tenure))

    def _adopt(self, old: Table | None, new: Table) -> None:
        """Free what no chain names any more, whoever forgot to say so."""
        if not (self.held or self._wishes or self._forgone):
            return
        named = new.named
        for book, forget in ((self.held, self._forget), (self._forgone, self._forgone.pop)):
            for key in [k for k, h in book.items() if k not in named and h.target <= new.epoch]:
                forget(key)
        self._wishes = {k: peer for k, peer in self._wishes.items() if k in named}
