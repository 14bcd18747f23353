"""States that a node has frozen, and what its state server must hold of them for others.

A frozen state is kept until no chain names its tenure. It goes to the state server of the host, a few
at a time, and again until the server confirms it or has been replaced by one that holds nothing.
"""

from __future__ import annotations

from functools import cached_property

from meander.model import Epoch, TaskId
from meander.protocol.messages import Drop, PeerId, Put, PutDone
from meander.protocol.node.book import Book
from meander.protocol.node.slot import Cause, TaskPhase
from meander.protocol.state import OperatorPort, TaskState, checksum, encode
from meander.protocol.table import Table
from meander.protocol.turn import LeasedTurn


class Frozen:
    """A state that does not change any more; written as a blob when somebody needs that."""

    def __init__(self, state: TaskState, operator: OperatorPort) -> None:
        self._state, self._operator = state, operator

    @cached_property
    def blob(self) -> bytes:
        """The state, written."""
        return encode(self._state, self._operator)

    @cached_property
    def checksum(self) -> int:
        """Of the blob."""
        return checksum(self.blob)


class Handover:
    """Part of a node."""

    def __init__(self, turn: LeasedTurn, book: Book, server: PeerId) -> None:
        self.turn, self.book, self.server = turn, book, server
        self.frozen: dict[tuple[TaskId, Epoch], Frozen] = {}
        """Of tasks that departed, by tenure, until no chain names them."""
        self.puts: dict[tuple[TaskId, Epoch], Frozen | None] = {}
        """What the state server must hold for others. None: that tenure was never installed."""
        self._targets: dict[tuple[TaskId, Epoch], Epoch] = {}
        """For which tenure each of them is meant: a new one may have to be given it again."""
        self._held: set[tuple[TaskId, Epoch]] = set()
        """Puts that the server has confirmed."""
        self._copied: dict[tuple[TaskId, Epoch], float] = {}
        """Those whose new owner has all but the rest: until when they need not be put."""
        self.server_incarnation = 0
        self._again_at: dict[tuple[TaskId, Epoch], float] = {}
        """When to put again what the server has not confirmed; absent: it was not put yet."""
        self._carried_at = 0.0
        """When the link to the server can have carried all that was put."""

    def add(self, key: tuple[TaskId, Epoch], frozen: Frozen, *, copied: bool) -> None:
        """Keep a state; `copied`: its new owner has all but the rest, which is on its way."""
        self.frozen[key] = frozen
        if copied:
            self._copied[key] = self.turn.now + 4 * self.turn.settings.retry_s

    def adopt(self, table: Table) -> None:
        """Keep just the states that a chain names, and say of the others in it that there is none."""
        turn, slots, wanted = self.turn, self.book.slots, dict[tuple[TaskId, Epoch], Epoch]()
        for entry, tenure, incarnation in table.held_by_node.get(turn.me, ()):
            if incarnation == turn.incarnation:
                wanted.update(((t, tenure), entry.tenure) for t in range(entry.lb, entry.ub))
        for key, target in wanted.items():
            if self._targets.get(key) != target:
                if key in self._targets:  # not for whom it was copied
                    self._copied.pop(key, None)
                self.puts[key], self._targets[key] = self.frozen.get(key), target
                self._held.discard(key)
                self._again_at.pop(key, None)
        settled = [k for k in self.frozen if k not in wanted]
        for key in settled:
            del self.frozen[key]
        kept = {task for task, _ in self.frozen} if settled else set()
        for task, _ in settled:
            if slots[task].phase is TaskPhase.DEPARTING and task not in kept:
                slots[task].go(Cause.SETTLED)
        gone = [k for k in self.puts if k not in wanted]
        if gone:
            turn.send(self.server, Drop(tuple((*k, self._targets[k]) for k in gone)))
        for key in gone:
            del self.puts[key], self._targets[key]
            self._held.discard(key)
            self._copied.pop(key, None)
            self._again_at.pop(key, None)
        incarnation = table.servers.get(self.server, 0)
        if incarnation != self.server_incarnation:  # a new one, and it has nothing
            self.server_incarnation = incarnation
            self._held.clear()
            self._again_at.clear()
        self.put()

    @property
    def unheld(self) -> bool:
        """Whether the server lacks something that it must hold."""
        return len(self._held) != len(self.puts)

    def put(self) -> None:
        """Give the server what it lacks; of states that must be written first, a few at a time.

        An event that wrote them all would keep rows waiting for as long as that takes. The next few
        follow when the server confirms one, or with the next tick.
        """
        if not self.unheld:
            return
        settings, now, again_at = self.turn.settings, self.turn.now, self._again_at
        due = [
            key
            for key in self.puts
            if key not in self._held
            and self._copied.get(key, now) <= now
            and again_at.get(key, now) <= now
        ]
        due.sort(key=lambda key: again_at.get(key, 0.0))
        room = settings.record_bytes_turn
        for key in due:
            frozen = self.puts[key]
            blob, total = (None, 0) if frozen is None else (frozen.blob, frozen.checksum)
            size = len(blob or b"")
            self.turn.send(self.server, Put(*key, self._targets[key], blob, total))
            # Not again before the link can have carried it.
            self._carried_at = max(self._carried_at, now) + size / settings.bandwidth_bytes_s
            again_at[key] = self._carried_at + settings.retry_s
            room -= size
            if room <= 0:
                return

    def refused(self, task: TaskId, tenure: Epoch) -> None:
        """Its new owner has no copy that the rest would fit: it has to be fetched."""
        key = task, tenure
        if self._copied.pop(key, None) is not None:
            self._again_at.pop(key, None)
            self.put()

    def put_done(self, incarnation: int, body: PutDone) -> None:
        """A life of the server holds a state, or has no room for it now."""
        if incarnation != self.server_incarnation:
            return  # what a past life of the server held is gone
        key = body.task, body.tenure
        if self._targets.get(key) != body.target:
            return
        if body.held:
            self._held.add(key)
            if self.turn.leased:
                self.put()
        else:  # now, or not any more
            self._held.discard(key)
