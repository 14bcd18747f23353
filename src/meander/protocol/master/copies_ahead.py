"""The copies that a round waits for: which are asked for, which are ready.

A round whose tasks are large is not published at once. First the old owners are asked to copy the
states to their next owners, while they serve on: as fast as their rows allow (`copy_window`). When all
of them are there, every copy catches up once more, and then the table goes out: what is left to move
while tuples wait is what has changed in that last moment. If a copy does not come, the round goes on
without it after `copy_s_max` in which nothing came: its task moves whole. The copies of the next round
begin while one is installed.
"""

from __future__ import annotations

from collections import defaultdict

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.master.books import Books
from meander.protocol.master.round import CarriedRound
from meander.protocol.messages import Prepare

TURNS = 2
"""The whole state, then what has changed meanwhile."""
COPY_S_MIN = 0.01
"""Nobody can be asked for copies within less."""


class Ahead:
    """Part of the master: the round that comes next, and its copies."""

    def __init__(
        self, books: Books, found: CarriedRound, wait_s: float, copy_s: float | None = None
    ) -> None:
        self.books, self.turn, self.round = books, books.turn, found
        self.wait_s = wait_s
        """How long rows may wait for their turn because of copies."""
        ledger, least = books.ledger, books.turn.settings.copy_bytes_min
        self.tenures: dict[TaskId, Epoch] = {t: ledger.tenure[t] for t, _ in found.moves}
        """Of all tasks of the round: if one changes, the round is cut anew."""
        self.wanted: dict[TaskId, NodeId] = {
            task: to
            for task, to in found.moves
            if task not in ledger.chain and ledger.size[task] >= least
        }
        self.done: dict[TaskId, int] = dict.fromkeys(self.wanted, 0)
        """Turns that are done, of every task that is copied."""
        self._pairs: dict[TaskId, tuple[NodeId, NodeId]] = {
            task: (ledger.owner[task], to) for task, to in self.wanted.items()
        }
        """From which node to which."""
        self._rates = self._needed(copy_s)
        """In bytes a second, where the caller has said how long all may take."""
        self.began = self.moved_on = self.turn.now
        self._asked: dict[TaskId, float] = {}
        """When a turn was asked for that is not done."""

    def _needed(self, copy_s: float | None) -> dict[tuple[NodeId, NodeId], float]:
        """Tell which rates it takes to have all copies within a time."""
        rates: defaultdict[tuple[NodeId, NodeId], float] = defaultdict(float)
        if copy_s is not None:
            for task, pair in self._pairs.items():
                rates[pair] += self.books.ledger.size[task] / max(copy_s, COPY_S_MIN)
        return rates

    @property
    def busiest_bytes(self) -> int:
        """Tell how much the node sends that sends the most."""
        sent: defaultdict[NodeId, int] = defaultdict(int)
        for task, (source, _) in self._pairs.items():
            sent[source] += self.books.ledger.size[task]
        return max(sent.values(), default=0)

    @property
    def stale(self) -> bool:
        """Whether a task has moved since, or a next owner is gone."""
        ledger, up = self.books.ledger, self.books.membership.up
        return any(ledger.tenure[t] != tenure for t, tenure in self.tenures.items()) or any(
            not up(to) for _, to in self.round.moves
        )

    def ready(self) -> bool:
        """Ask for what is missing; say whether the round need not wait any longer."""
        return self._go_on(TURNS)

    def begin(self) -> None:
        """Have the first turn of all, while the round before this one is under way."""
        self._go_on(1)

    def _go_on(self, turns: int) -> bool:
        now, settings = self.turn.now, self.turn.settings
        turn = min(self.done.values(), default=TURNS) + 1
        if turn > turns or now - self.moved_on > settings.copy_s_max:
            return True
        again_s = 4 * settings.retry_s
        late = [
            task
            for task, done in self.done.items()
            if done < turn and now - self._asked.get(task, -1e9) > again_s
        ]
        for task in late:
            self._asked[task] = now
        self._ask(late, turn)
        return False

    def _ask(self, tasks: list[TaskId], turn: int) -> None:
        by_pair: defaultdict[tuple[NodeId, NodeId], list[tuple[TaskId, Epoch, NodeId, int]]] = (
            defaultdict(list)
        )
        for task in tasks:
            item = task, self.tenures[task], self.wanted[task], turn
            by_pair[self._pairs[task]].append(item)
        for pair, items in by_pair.items():
            rate = self._rates.get(pair, 0.0)
            self.turn.send(pair[0], Prepare(tuple(items), self.wait_s, rate))

    def prepared(self, task: TaskId, tenure: Epoch, turn: int) -> None:
        """A copy is up to date, or cannot be made; turn 0: it has grown."""
        if self.tenures.get(task) != tenure or task not in self.done:
            return
        if turn > self.done[task]:
            self.done[task] = turn
            self._asked.pop(task, None)
            self.moved_on = self.turn.now
        elif turn == 0:
            self.moved_on = self.turn.now
