"""Copies ahead: the state of a task travels while its owner serves on; the pause is for the rest.

This is the old owner's side; that of the new owner is in `arrivals`.

    master          old owner                              new owner
      │─ Prepare ──────►│ ends a version, writes it in pieces   │
      │                 │─ Copy 1, 2, … ───────────────────────►│ brings its copy up to date
      │                 │◄──────────────────────────── Copied ──│
      │◄─ Prepared ─────│   (a second turn: what has changed meanwhile)
      │─ table e+1 ────►│ freezes: the task is another's        │─ awaits the task
      │                 │─ Rest ───────────────────────────────►│ completes the copy, installs it

A copy is a convenience and never the truth. It is named by its task, the tenure of the owner who
serves it, and a number that this owner gives to every copy it begins; pieces are numbered, and the
rest fits only after the last of them. Whatever is lost, late or refused, the task then moves as it
would have without: its frozen state goes to the state server (`manager`) and is fetched (`retriever`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.messages import MASTER, Copied, Copy, Envelope, Prepare, Prepared, Rest
from meander.protocol.node.book import Book
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import OperatorPort, checksum, encode
from meander.protocol.turn import Turn

TRIES_MAX = 8
"""A piece that is not answered so often, or a copy that is refused so often, is given up."""


class Outgoing:
    """A copy on its way to a task's next owner."""

    def __init__(self, slot: Slot, to: NodeId, copy: int, turn: int) -> None:
        self.task, self.tenure, self.to, self.copy = slot.task, slot.tenure, to, copy
        self.turn = turn
        """What the master asked for last; done when `pieces` is None."""
        self.mark: Any = None
        """The version that the copy surely has once all pieces so far are in it; None: none yet."""
        self.next_mark: Any = None
        """The version that it has after this turn."""
        self.pieces: Iterator[bytes] | None = None
        self.number = 0
        """Of the last piece sent."""
        self.unheard: bytes | None = None
        """That piece, until it is acknowledged."""
        self.tries = 0
        self.sent_at = 0.0
        self.next_at = 0.0
        """When the next piece may leave, at the earliest. One leaves with every tick at most."""


class Copier:
    """Part of a node: sends copies of the tasks it serves."""

    def __init__(
        self,
        turn: Turn,
        book: Book,
        operator: OperatorPort,
        refused: Callable[[TaskId, Epoch], None],
    ) -> None:
        self.turn, self.book, self.operator = turn, book, operator
        self.refused = refused
        """To be called when a next owner has no copy that the rest of a frozen task would fit."""
        self.outgoing: dict[TaskId, Outgoing] = {}
        self._number = 0
        self._ready: list[tuple[TaskId, Epoch, int]] = []
        """To be reported to the master."""

    def prepare(self, body: Prepare) -> None:
        """The master asks for copies, or that they catch up."""
        for task, tenure, to, turn in body.items:
            slot = self.book.slots.get(task)
            if slot is None or slot.phase is not TaskPhase.SERVING or slot.tenure != tenure:
                continue
            found = self.outgoing.get(task)
            if found is None or (found.tenure, found.to) != (tenure, to):
                self._begin(slot, to, turn)
            elif found.turn < turn:
                found.turn = turn
                if found.pieces is None:
                    self._turn(slot, found)
            elif found.pieces is None:
                self._ready.append((task, tenure, found.turn))
        self.flush()

    def _begin(self, slot: Slot, to: NodeId, turn: int) -> None:
        self._number += 1
        found = self.outgoing[slot.task] = Outgoing(slot, to, self._number, turn)
        self._turn(slot, found)

    def _turn(self, slot: Slot, out: Outgoing) -> None:
        """Write what has changed since the turn before."""
        assert slot.state is not None
        ahead = getattr(self.operator, "ahead", None)
        size = self.turn.settings.copy_bytes
        found = None if ahead is None else ahead(slot.state.app, out.mark, size)
        if found is None:  # this operator keeps no versions: the task moves whole
            del self.outgoing[slot.task]
            self._ready.append((slot.task, slot.tenure, out.turn))
            return
        out.next_mark, out.pieces = found
        self._step(out)

    def _step(self, out: Outgoing) -> None:
        """Send the next piece; after the last one, the turn is done."""
        assert out.pieces is not None
        piece = next(out.pieces, None)
        if piece is None:
            out.mark, out.pieces = out.next_mark, None
            out.sent_at = self.turn.now
            self._ready.append((out.task, out.tenure, out.turn))
            return
        out.number += 1
        out.unheard, out.tries = piece, 0
        self._send(out)

    def _send(self, out: Outgoing) -> None:
        assert out.unheard is not None
        out.sent_at = self.turn.now
        body = Copy(out.task, out.tenure, out.copy, out.number, out.unheard, checksum(out.unheard))
        self.turn.send(out.to, body)

    def copied(self, env: Envelope, body: Copied) -> None:
        """The next owner has taken a piece, or has no such copy."""
        out = self.outgoing.get(body.task)
        if out is None or (env.sender, body.tenure, body.copy) != (out.to, out.tenure, out.copy):
            if body.number == 0:
                self.refused(body.task, body.tenure)
            return
        if body.number == 0:
            del self.outgoing[body.task]  # the master asks again, or the task moves whole
        elif body.number == out.number and out.unheard is not None:
            out.unheard = None
            # A node that is slow to answer has other things to do: it is left as long again.
            out.next_at = 2 * self.turn.now - out.sent_at

    def rest(self, slot: Slot, to: NodeId) -> bool:
        """A task is frozen and goes to another node: send what its copy there lacks."""
        out = self.outgoing.pop(slot.task, None)
        if out is None or out.mark is None or (out.tenure, out.to) != (slot.tenure, to):
            return False
        state = slot.state
        assert state is not None
        operator: Any = self.operator
        data = encode(state, operator, operator.rest(state.app, out.mark))
        number = out.number + 1
        self.turn.send(to, Rest(out.task, out.tenure, out.copy, number, data, checksum(data)))
        return True

    def tick(self) -> None:
        """Send what is next, and again what was not heard; give up what nobody wants."""
        settings, now = self.turn.settings, self.turn.now
        for out in list(self.outgoing.values()):
            slot = self.book.slots[out.task]
            gone = slot.phase is not TaskPhase.SERVING or slot.tenure != out.tenure
            if gone or now - out.sent_at > settings.copy_s_max:
                del self.outgoing[out.task]
            elif out.pieces is not None and out.unheard is None and now >= out.next_at:
                self._step(out)
            elif out.unheard is not None and now - out.sent_at > settings.retry_s:
                out.tries += 1
                if out.tries > TRIES_MAX:
                    del self.outgoing[out.task]
                else:
                    self._send(out)
        self.flush()

    def flush(self) -> None:
        """Report what is ready."""
        if self._ready:
            self.turn.send(MASTER, Prepared(tuple(self._ready)))
            self._ready = []
