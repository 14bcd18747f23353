"""Copies ahead, at the new owner: what comes of tasks that are still another's (`copier` sends it).

A copy grows piece by piece, in order, and is dropped when it does not fit or nobody goes on with it:
its task then moves as it would have without.
"""

from __future__ import annotations

from typing import Any

from meander.errors import MeanderError, OperatorError
from meander.model import TaskId
from meander.protocol.messages import REFUSED, Copied, Copy, Envelope, News, Rest
from meander.protocol.node.book import Book
from meander.protocol.node.gauge import RowWait
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import Loader, OperatorPort
from meander.protocol.turn import LeasedTurn


class Arriving:
    """A copy of a task that is still another's."""

    def __init__(self, env: Envelope, body: Copy | Rest) -> None:
        self.name = env.sender, env.incarnation, body.tenure
        self.copy = body.copy
        self.number = 0
        """Of the last piece in it."""
        self.app: Any = None
        """None: it has no piece yet."""
        self.rest: Rest | None = None
        """What makes it whole, if it came before the table did."""
        self.heard_at = 0.0


class Arrivals:
    """Part of a node: keeps copies of tasks that will be its own."""

    def __init__(self, turn: LeasedTurn, book: Book, operator: OperatorPort, wait: RowWait) -> None:
        self.turn, self.book, self.operator, self.wait = turn, book, operator, wait
        self.arriving: dict[TaskId, Arriving] = {}
        self.completed = 0
        """How many tasks were installed from a copy, for the metrics."""

    def take(self, env: Envelope, body: Copy) -> None:
        """Bring a copy up to date with a piece that is next, and say how far it is."""
        found = self._match(env, body)
        if found is None:
            return
        if body.number == found.number + 1:
            try:
                operator: Any = self.operator
                found.app = operator.catch_up(body.task, found.app, body.data)
            except OperatorError:
                raise  # it would fail on the whole state, too
            except (ValueError, TypeError, AttributeError, MeanderError) as error:
                self._refuse(env, body, str(error))
                return
            found.number, found.heard_at = body.number, self.turn.now
        told = Copied(*body[:3], found.number, self.wait.beyond_s())
        self.turn.send(env.sender, told, env.incarnation)

    def _match(self, env: Envelope, body: Copy | Rest) -> Arriving | None:
        """Find the copy that a piece belongs to; any of a newer one begins it: some may be late."""
        slot = self.book.slots.get(body.task)
        if slot is not None and slot.phase is TaskPhase.SERVING:
            return None  # it is late: the task is here
        found, name = self.arriving.get(body.task), (env.sender, env.incarnation, body.tenure)
        if found is not None and found.name == name and body.copy <= found.copy:
            return found if body.copy == found.copy else None
        if found is not None and found.name[2] > body.tenure:
            return None  # of an earlier owner
        found = self.arriving[body.task] = Arriving(env, body)
        found.heard_at = self.turn.now
        return found

    def _refuse(self, env: Envelope, body: Copy | Rest, why: str) -> None:
        self.arriving.pop(body.task, None)
        if why:
            self.turn.tell(News.COPY_REFUSED, task=body.task, why=why)
        self.turn.send(env.sender, Copied(*body[:3], REFUSED), env.incarnation)

    def complete(self, env: Envelope, body: Rest) -> bool:
        """Keep what makes a copy whole; True: if its task is ours already, it can be installed."""
        found = self._match(env, body)
        if found is None:
            return False
        if body.number != found.number + 1:
            self._refuse(env, body, "")
            return False
        found.rest, found.heard_at = body, self.turn.now
        return True

    def rest_for(self, slot: Slot) -> Arriving | None:
        """Give the copy of a task that is awaited, if it is the state that is asked for."""
        found, link = self.arriving.get(slot.task), slot.chain[slot.link]
        if found is None or found.name != (link.node, link.incarnation, link.tenure):
            return None
        return found if found.number or found.rest else None

    def loader(self, found: Arriving) -> Loader:
        """Give what makes the operator's part of a state from a copy and the rest."""
        operator: Any = self.operator

        def complete(task: TaskId, rest: bytes) -> Any:
            return operator.complete(task, found.app, rest)

        return complete

    def forget(self, task: TaskId) -> None:
        """The task is here."""
        self.arriving.pop(task, None)

    def adopt(self) -> None:
        """Drop copies of tasks that are neither where they were copied from nor on their way here."""
        table, me = self.turn.table, self.turn.me
        assert table is not None
        for task, found in list(self.arriving.items()):
            owner, slot = table.owner(task), self.book.slots.get(task)
            if owner == me and slot is not None and slot.phase is TaskPhase.AWAITING:
                wanted = any(found.name == link[:3] for link in slot.chain)
            else:
                wanted = owner == found.name[0]
            if not wanted:
                del self.arriving[task]

    def tick(self) -> None:
        """Drop copies that nobody goes on with."""
        now, most = self.turn.now, 2 * self.turn.settings.copy_s_max
        for task, found in list(self.arriving.items()):
            if now - found.heard_at > most:
                del self.arriving[task]
