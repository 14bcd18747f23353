"""Copies ahead: the state of a task travels while its owner serves on; the pause is for the rest.

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

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meander.errors import MeanderError, OperatorError
from meander.model import Epoch, NodeId, TaskId
from meander.protocol.messages import MASTER, Copied, Copy, Envelope, Prepare, Prepared, Rest
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import App, Loader, checksum, encode

if TYPE_CHECKING:
    from meander.protocol.node.node import Node

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

    def __init__(self, node: Node) -> None:
        self.node = node
        self.copies: dict[TaskId, Outgoing] = {}
        self._number = 0
        self._ready: list[tuple[TaskId, Epoch, int]] = []
        """To be reported to the master."""

    def prepare(self, body: Prepare) -> None:
        """The master asks for copies, or that they catch up."""
        for task, tenure, to, turn in body.items:
            slot = self.node.slots.get(task)
            if slot is None or slot.phase is not TaskPhase.SERVING or slot.tenure != tenure:
                continue
            found = self.copies.get(task)
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
        found = self.copies[slot.task] = Outgoing(slot, to, self._number, turn)
        self._turn(slot, found)

    def _turn(self, slot: Slot, out: Outgoing) -> None:
        """Write what has changed since the turn before."""
        assert slot.state is not None
        ahead = getattr(self.node.operator, "ahead", None)
        size = self.node.settings.copy_bytes
        found = None if ahead is None else ahead(slot.state.app, out.mark, size)
        if found is None:  # this operator keeps no versions: the task moves whole
            del self.copies[slot.task]
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
            out.sent_at = self.node._now
            self._ready.append((out.task, out.tenure, out.turn))
            return
        out.number += 1
        out.unheard, out.tries = piece, 0
        self._send(out)

    def _send(self, out: Outgoing) -> None:
        assert out.unheard is not None
        out.sent_at = self.node._now
        body = Copy(out.task, out.tenure, out.copy, out.number, out.unheard, checksum(out.unheard))
        self.node._send(out.to, body)

    def copied(self, env: Envelope, body: Copied) -> None:
        """The next owner has taken a piece, or has no such copy."""
        out = self.copies.get(body.task)
        if out is None or (env.sender, body.tenure, body.copy) != (out.to, out.tenure, out.copy):
            if body.number == 0:
                self.node.manager.refused((body.task, body.tenure))
            return
        if body.number == 0:
            del self.copies[body.task]  # the master asks again, or the task moves whole
        elif body.number == out.number and out.unheard is not None:
            out.unheard = None
            # A node that is slow to answer has other things to do: it is left as long again.
            out.next_at = 2 * self.node._now - out.sent_at

    def rest(self, slot: Slot, to: NodeId) -> bool:
        """A task is frozen and goes to another node: send what its copy there lacks."""
        out = self.copies.pop(slot.task, None)
        if out is None or out.mark is None or (out.tenure, out.to) != (slot.tenure, to):
            return False
        state = slot.state
        assert state is not None
        operator: Any = self.node.operator
        data = encode(state, operator, operator.rest(state.app, out.mark))
        number = out.number + 1
        self.node._send(to, Rest(out.task, out.tenure, out.copy, number, data, checksum(data)))
        return True

    def tick(self) -> None:
        """Send what is next, and again what was not heard; give up what nobody wants."""
        settings, now = self.node.settings, self.node._now
        for out in list(self.copies.values()):
            slot = self.node.slots[out.task]
            gone = slot.phase is not TaskPhase.SERVING or slot.tenure != out.tenure
            if gone or now - out.sent_at > settings.copy_s_max:
                del self.copies[out.task]
            elif out.pieces is not None and out.unheard is None and now >= out.next_at:
                self._step(out)
            elif out.unheard is not None and now - out.sent_at > settings.retry_s:
                out.tries += 1
                if out.tries > TRIES_MAX:
                    del self.copies[out.task]
                else:
                    self._send(out)
        self.flush()

    def flush(self) -> None:
        """Report what is ready."""
        if self._ready:
            self.node._send(MASTER, Prepared(tuple(self._ready)))
            self._ready = []


class Arriving:
    """A copy of a task that is still another's."""

    def __init__(self, env: Envelope, body: Copy | Rest) -> None:
        self.name = env.sender, env.incarnation, body.tenure
        self.copy = body.copy
        self.number = 0
        """Of the last piece in it."""
        self.app: App = None
        """None: it has no piece yet."""
        self.rest: Rest | None = None
        """What makes it whole, if it came before the table did."""
        self.heard_at = 0.0


class Copies:
    """Part of a node: keeps copies of tasks that will be its own."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.arriving: dict[TaskId, Arriving] = {}
        self.completed = 0
        """How many tasks were installed from a copy, for the metrics."""

    def take(self, env: Envelope, body: Copy) -> None:
        """Bring a copy up to date with a piece that is next; refuse what does not fit."""
        found = self._match(env, body)
        if found is None:
            return
        if body.number == found.number + 1:
            try:
                operator: Any = self.node.operator
                found.app = operator.catch_up(body.task, found.app, body.data)
            except OperatorError:
                raise  # it would fail on the whole state, too
            except (ValueError, TypeError, AttributeError, MeanderError) as error:
                self._refuse(env, body, str(error))
                return
            found.number, found.heard_at = body.number, self.node._now
        if body.number <= found.number:
            self.node._send(env.sender, Copied(*body[:3], found.number), env.incarnation)

    def _match(self, env: Envelope, body: Copy | Rest) -> Arriving | None:
        """Find the copy that a piece belongs to; the first piece of a newer one begins it."""
        slot = self.node.slots.get(body.task)
        if slot is not None and slot.phase is TaskPhase.SERVING:
            return None  # it is late: the task is here
        found, name = self.arriving.get(body.task), (env.sender, env.incarnation, body.tenure)
        if found is not None and found.name == name and body.copy <= found.copy:
            return found if body.copy == found.copy else None
        if found is not None and found.name[2] > body.tenure:
            return None  # of an earlier owner
        if body.number != 1:
            self._refuse(env, body, "")
            return None
        found = self.arriving[body.task] = Arriving(env, body)
        found.heard_at = self.node._now
        return found

    def _refuse(self, env: Envelope, body: Copy | Rest, why: str) -> None:
        self.arriving.pop(body.task, None)
        if why:
            self.node._tell("copy refused", task=body.task, why=why)
        self.node._send(env.sender, Copied(*body[:3], 0), env.incarnation)

    def complete(self, env: Envelope, body: Rest) -> None:
        """Keep what makes a copy whole; if its task is ours already, it is installed."""
        found = self._match(env, body)
        if found is None:
            return
        if body.number != found.number + 1:
            self._refuse(env, body, "")
            return
        found.rest, found.heard_at = body, self.node._now
        self.node.retriever.pump()

    def rest_for(self, slot: Slot) -> Arriving | None:
        """Give the copy of a task that is awaited, if it is the state that is asked for."""
        found, link = self.arriving.get(slot.task), slot.chain[slot.link]
        if found is None or found.name != (link.node, link.incarnation, link.tenure):
            return None
        return found

    def loader(self, found: Arriving) -> Loader:
        """Give what makes the operator's part of a state from a copy and the rest."""
        operator: Any = self.node.operator

        def complete(task: TaskId, rest: bytes) -> App:
            return operator.complete(task, found.app, rest)

        return complete

    def forget(self, task: TaskId) -> None:
        """The task is here."""
        self.arriving.pop(task, None)

    def adopt(self) -> None:
        """Drop copies of tasks that are neither where they were copied from nor on their way here."""
        table, me = self.node.table, self.node.me
        assert table is not None
        for task, found in list(self.arriving.items()):
            owner, slot = table.owner(task), self.node.slots.get(task)
            if owner == me and slot is not None and slot.phase is TaskPhase.AWAITING:
                wanted = any(found.name == link[:3] for link in slot.chain)
            else:
                wanted = owner == found.name[0]
            if not wanted:
                del self.arriving[task]

    def tick(self) -> None:
        """Drop copies that nobody goes on with."""
        now, most = self.node._now, 2 * self.node.settings.copy_s_max
        for task, found in list(self.arriving.items()):
            if now - found.heard_at > most:
                del self.arriving[task]
