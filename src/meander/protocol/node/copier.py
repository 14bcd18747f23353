"""Copies ahead: the state of a task travels while its owner serves on; the pause is for the rest.

This is the old owner's side; that of the new owner is in `arrivals`.

    master          old owner                              new owner
      │─ Prepare ──────►│ ends a version, writes it in pieces   │
      │                 │─ Copy 1, 2, 3, … ────────────────────►│ brings its copy up to date
      │                 │◄──────────────────────── Copied 1, 2, … │ (how far; how long rows wait)
      │◄─ Prepared ─────│   (a second turn: what has changed meanwhile)
      │─ table e+1 ────►│ freezes: the task is another's        │─ awaits the task
      │                 │─ Rest ───────────────────────────────►│ completes the copy, installs it

Several pieces are under way at a time, as many as a window holds (`copy_window`), one window for each
node that copies go to: the next piece is written when one is answered. Copies to one node go one after
another, in the order in which they were asked for. What is not answered in time is sent again, from
there on.

A copy is a convenience and never the truth. It is named by its task, the tenure of the owner who
serves it, and a number that this owner gives to every copy it begins; pieces are numbered, and the
rest fits only after the last of them. Whatever is lost, late or refused, the task then moves as it
would have without: its frozen state goes to the state server (`manager`) and is fetched (`retriever`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.messages import (
    MASTER,
    REFUSED,
    Copied,
    Copy,
    Envelope,
    Prepare,
    Prepared,
    Rest,
)
from meander.protocol.node.book import Book
from meander.protocol.node.copy_window import CopyWindow
from meander.protocol.node.gauge import RowWait
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import OperatorPort, Pieces, checksum, encode
from meander.protocol.turn import Turn

SENDS_MAX = 9
"""A copy is given up of which a piece was sent so often and not answered."""


class Piece:
    """A piece of a copy that is not answered."""

    __slots__ = ("body", "sends", "sent_at")

    def __init__(self, body: Copy) -> None:
        self.body = body
        self.sends = 0
        self.sent_at = 0.0


class CopyStage(Enum):
    """How far a turn of a copy is."""

    WANTED = "wanted"
    """Nothing of it is written: others are before it."""
    WRITING = "writing"
    WRITTEN = "written"
    """Its last piece is under way."""
    DONE = "done"


class Outgoing:
    """A copy on its way to a task's next owner."""

    def __init__(self, slot: Slot, to: NodeId, copy: int, turn: int) -> None:
        self.task, self.tenure, self.to, self.copy = slot.task, slot.tenure, to, copy
        self.turn = turn
        """What the master asked for last."""
        self.stage = CopyStage.WANTED
        self.mark: Any = None
        """The version that the copy surely has once all pieces so far are in it; None: none yet."""
        self.next_mark: Any = None
        """The version that it has after this turn."""
        self.take: Pieces = _none
        """Gives the pieces of this turn."""
        self.number = 0
        """Of the last piece that was written."""
        self.unheard: deque[Piece] = deque()
        """Those that are not answered, in order."""
        self.under_way = 0
        """How many of them are; those behind are to be sent again."""
        self.heard_at = 0.0

    @property
    def heard(self) -> int:
        """The number of the last piece that is in the copy."""
        return self.number - len(self.unheard)

    @property
    def waits_since(self) -> float:
        """When there was last reason to expect an answer; something is under way."""
        return max(self.heard_at, self.unheard[0].sent_at)

    def bytes_under_way(self) -> int:
        """Tell how much is under way."""
        return sum(len(self.unheard[i].body.data) for i in range(self.under_way))


def _none(size: int) -> bytes | None:
    return None


class Copier:
    """Part of a node: sends copies of the tasks it serves."""

    def __init__(
        self,
        turn: Turn,
        book: Book,
        operator: OperatorPort,
        refused: Callable[[TaskId, Epoch], None],
        wait: RowWait,
    ) -> None:
        self.turn, self.book, self.operator, self.wait = turn, book, operator, wait
        self.refused = refused
        """To be called when a next owner has no copy that the rest of a frozen task would fit."""
        self.outgoing: dict[TaskId, Outgoing] = {}
        self.windows: dict[NodeId, CopyWindow] = {}
        """Of those that copies go to."""
        self.resent = 0
        """Pieces that were sent again, for the metrics."""
        self.slowed = 0
        """How often a window became narrower because rows waited, for the metrics."""
        self._number = 0
        self._ready: list[tuple[TaskId, Epoch, int]] = []
        """To be reported to the master."""
        self._grown: set[TaskId] = set()
        """Copies that are larger than ever, which the master does not know yet."""
        self._farthest: dict[TaskId, int] = {}
        """The highest piece that was heard of, of this copy or one before it that came to nothing."""
        self._told_at = 0.0
        """When the master last heard which copies have grown."""

    # ------------------------------------------------------------------ what is asked for

    def prepare(self, body: Prepare) -> None:
        """The master asks for copies, or that they catch up."""
        if not self.outgoing:
            self._told_at = self.turn.now
        for task, tenure, to, turn in body.items:
            slot = self.book.slots.get(task)
            if slot is None or slot.phase is not TaskPhase.SERVING or slot.tenure != tenure:
                continue
            self._window(to).allow(body.wait_s, body.rate_bytes_s, self.turn.now)
            found = self.outgoing.get(task)
            if found is None or (found.tenure, found.to) != (tenure, to):
                self._begin(slot, to, turn)
            elif found.turn < turn:
                found.turn = turn
                if found.stage is CopyStage.DONE:
                    found.stage = CopyStage.WANTED
            elif found.stage is CopyStage.DONE:
                self._ready.append((task, tenure, found.turn))
        self._pump()

    def _window(self, to: NodeId) -> CopyWindow:
        found = self.windows.get(to)
        if found is None:
            found = self.windows[to] = CopyWindow(
                self.turn.settings, self.turn.now, flowing=self.wait.flowing()
            )
        return found

    def _begin(self, slot: Slot, to: NodeId, turn: int) -> None:
        if slot.task in self.outgoing:
            self._drop(slot.task)
        self._number += 1
        self.outgoing[slot.task] = Outgoing(slot, to, self._number, turn)

    def _drop(self, task: TaskId) -> Outgoing:
        """Go on with a copy no more."""
        out = self.outgoing.pop(task)
        self.windows[out.to].forget(out.bytes_under_way())
        return out

    # ------------------------------------------------------------------ what leaves

    def _pump(self) -> None:
        """Send as much as the windows hold; report what is ready."""
        for out in list(self.outgoing.values()):
            window = self.windows[out.to]
            while (
                window.open(self.turn.now) and (piece := self._next(out, window.piece)) is not None
            ):
                piece.sends += 1
                piece.sent_at = self.turn.now
                out.under_way += 1
                window.sent(len(piece.body.data))
                self.turn.send(out.to, piece.body)
        self.flush()

    def _next(self, out: Outgoing, size: int) -> Piece | None:
        """Give what is to be sent again, or write the next piece; None: there is none."""
        if out.under_way < len(out.unheard):
            self.resent += 1
            return out.unheard[out.under_way]
        if out.stage is CopyStage.WANTED and not self._start(out):
            return None
        if out.stage is not CopyStage.WRITING:
            return None
        data = out.take(size)
        if data is None:
            out.take, out.stage = _none, CopyStage.WRITTEN
            self._close(out)
            return None
        out.number += 1
        body = Copy(out.task, out.tenure, out.copy, out.number, data, checksum(data))
        out.unheard.append(Piece(body))
        return out.unheard[-1]

    def _start(self, out: Outgoing) -> bool:
        """End a version; False: this operator keeps none, and the task moves whole."""
        state = self.book.slots[out.task].state
        assert state is not None
        ahead = getattr(self.operator, "ahead", None)
        found = None if ahead is None else ahead(state.app, out.mark)
        if found is None:
            self._drop(out.task)
            self._ready.append((out.task, out.tenure, out.turn))
            return False
        (out.next_mark, out.take), out.stage = found, CopyStage.WRITING
        return True

    def _close(self, out: Outgoing) -> None:
        """See whether a turn is done: all its pieces are written, and all are answered."""
        if out.stage is CopyStage.WRITTEN and not out.unheard:
            out.mark, out.stage = out.next_mark, CopyStage.DONE
            self._ready.append((out.task, out.tenure, out.turn))

    def rest(self, slot: Slot, to: NodeId) -> bool:
        """A task is frozen and goes to another node: send what its copy there lacks."""
        if slot.task not in self.outgoing:
            return False
        out = self._drop(slot.task)
        if out.mark is None or (out.tenure, out.to) != (slot.tenure, to):
            return False
        state = slot.state
        assert state is not None
        operator: Any = self.operator
        data = encode(state, operator, operator.rest(state.app, out.mark))
        number = out.number + 1
        self.turn.send(to, Rest(out.task, out.tenure, out.copy, number, data, checksum(data)))
        return True

    # ------------------------------------------------------------------ what comes back

    def copied(self, env: Envelope, body: Copied) -> None:
        """The next owner says how far a copy is, or that it has none that fits."""
        out = self.outgoing.get(body.task)
        if out is None or (env.sender, body.tenure, body.copy) != (out.to, out.tenure, out.copy):
            if body.number == REFUSED:
                self.refused(body.task, body.tenure)
            return
        if body.number == REFUSED:  # another would not fit, either
            self._drop(out.task)
            self._ready.append((out.task, out.tenure, out.turn))
        elif body.number == 0 and out.heard:
            self._drop(out.task)  # it is gone; the master asks again, or the task moves whole
        elif out.heard < body.number <= out.number:
            self._arrived(out, body)
        self._pump()

    def _arrived(self, out: Outgoing, body: Copied) -> None:
        """Pieces are in the copy."""
        window, now = self.windows[out.to], self.turn.now
        waited_s = max(body.wait_s, self.wait.beyond_s())
        while out.heard < body.number:
            piece = out.unheard.popleft()
            size = len(piece.body.data)
            if not out.under_way:  # it was thought to be lost
                window.sent(size)
            out.under_way = max(0, out.under_way - 1)
            self.slowed += window.heard(size, now - piece.sent_at, waited_s, now)
        out.heard_at = now
        if out.heard > self._farthest.get(out.task, 0):
            self._farthest[out.task] = out.heard
            self._grown.add(out.task)
        self._close(out)

    def tick(self) -> None:
        """Send again what was not heard; give up what nobody wants."""
        settings, now = self.turn.settings, self.turn.now
        for out in list(self.outgoing.values()):
            slot, window = self.book.slots[out.task], self.windows[out.to]
            gone = slot.phase is not TaskPhase.SERVING or slot.tenure != out.tenure
            if gone or now - window.heard_at > settings.copy_s_max:
                self._drop(out.task)
            elif out.under_way and now - out.waits_since > settings.retry_s:
                self._go_back(out, window)
        self._tell_grown()
        self._pump()
        if not self.outgoing:
            self.windows.clear()
            self._farthest.clear()

    def _tell_grown(self) -> None:
        """Tell the master now and then that copies grow: it does not wait for those that do not."""
        now = self.turn.now
        if self._grown and now - self._told_at > 4 * self.turn.settings.retry_s:
            outs = [self.outgoing[task] for task in self._grown if task in self.outgoing]
            self._ready += [(out.task, out.tenure, 0) for out in outs]
            self._grown.clear()
            self._told_at = now

    def _go_back(self, out: Outgoing, window: CopyWindow) -> None:
        """Send again what was not heard, or give it up."""
        if any(piece.sends >= SENDS_MAX for piece in out.unheard):
            self._drop(out.task)
            return
        window.lost(self.turn.now)
        window.forget(out.bytes_under_way())
        out.under_way = 0

    def flush(self) -> None:
        """Report what is ready."""
        if self._ready:
            self.turn.send(MASTER, Prepared(tuple(self._ready)))
            self._ready = []
