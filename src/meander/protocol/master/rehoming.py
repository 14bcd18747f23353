"""What the loss of a node means for its tasks: each gets another source of its state, and an owner."""

from __future__ import annotations

from meander.model import Assignment, NodeId, TaskId
from meander.protocol.master.books import Books
from meander.protocol.messages import STORE, News, TenureLink


class Rehoming:
    """Part of the master."""

    def __init__(self, books: Books, counts: dict[str, int]) -> None:
        self.books, self.counts = books, counts

    def rehome(self, node: NodeId, incarnation: int, target: Assignment | None) -> None:
        """Find every task that a lost incarnation owned or held, another source and owner."""
        books, ledger = self.books, self.books.ledger
        lost, at_risk = list[TaskId](), list[TaskId]()
        for task in range(ledger.tasks):
            owner, chain = ledger.owner[task], ledger.chain.get(task)
            owned = owner == node
            if not owned and not (chain and _linked(chain, node, incarnation)):
                continue
            to = self._heir(task, target) if owned else owner
            if self._give(task, to):
                continue
            if owned:
                lost.append(task)
                ledger.owner[task] = to
            else:
                at_risk.append(task)  # unless its state has reached the state server
        books.changed = True
        self._tell(lost, at_risk)

    def spread(self, tasks: list[TaskId], heirs: list[NodeId]) -> None:
        """Give tasks that nobody serves to others, neighbours to one; there are checkpoints."""
        for i, task in enumerate(tasks):
            self._give(task, heirs[i * len(heirs) // len(tasks)])
        self.books.changed = True

    def _give(self, task: TaskId, to: NodeId) -> bool:
        """Give a task to a node, from what is left of its chain or the store; False: from neither."""
        books, ledger = self.books, self.books.ledger
        chain, epoch = ledger.chain.get(task), books.upcoming
        if chain and chain[0].node != STORE and ledger.rechain(task, to, epoch, self.alive):
            return True
        if books.checkpointing or (chain and chain[0].node == STORE and not chain[0].key):
            ledger.restore(task, to, epoch)
            self.counts["restores"] += 1
            return True
        return False

    def _tell(self, lost: list[TaskId], at_risk: list[TaskId]) -> None:
        turn = self.books.turn
        if at_risk:
            why = "a node died while it handed them over, and there are no checkpoints"
            turn.tell(News.STATE_AT_RISK, tasks=at_risk, why=why)
        if lost:
            why = "a node died and there are no checkpoints"
            turn.tell(News.STATE_LOST, tasks=lost, why=why)

    def alive(self, link: TenureLink) -> bool:
        """Whether what a link of a chain names can still be asked for."""
        return link.node == STORE or self.books.membership.up(link.node, link.incarnation)

    def _heir(self, task: TaskId, target: Assignment | None) -> NodeId:
        """Name who gets a task of a lost node: its replacement, its target, or whoever is there."""
        owner = self.books.ledger.owner[task]
        if self.books.member(owner):
            return owner
        if target is not None:
            aimed = target.owner(task)
            if self.books.member(aimed):
                return aimed
        members, leaving = self.books.membership.nodes(), self.books.leaving()
        return next((node for node in members if node not in leaving), members[0])


def _linked(chain: tuple[TenureLink, ...], node: NodeId, incarnation: int) -> bool:
    return any(link.node == node and link.incarnation == incarnation for link in chain)
