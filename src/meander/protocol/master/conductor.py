"""What happens to tasks: migrations round by round, and what the loss of a node leads to.

Everything is decided from the books (who owns, who holds, who is up) and never from how things came
about, so a migration that is aborted, resumed, rolled back, replaced by another or hit by a crash
goes on by the same few functions: `advance` cuts the next round from what is left between the present
owners and the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from meander.errors import ProtocolError
from meander.model import Assignment, NodeId, TaskId
from meander.protocol.master.archive import Archive
from meander.protocol.master.books import Books
from meander.protocol.master.copies_ahead import Ahead
from meander.protocol.master.groups import Wanted
from meander.protocol.master.membership import Change, Peer, Status
from meander.protocol.master.migration import (
    ENDED,
    Migration,
    MigrationStage,
    MigrationStep,
    Origin,
)
from meander.protocol.master.pacer import PaceLimits, Pacer, RoundReport
from meander.protocol.master.rehoming import Rehoming
from meander.protocol.master.round import CarriedRound, Carrier, cut
from meander.protocol.master.targets import Targets
from meander.protocol.messages import STORE, Dismiss, Install, Launch, News, Rescale

COPY_SHARE = 0.1
"""Of the pause that the caller allows: so long rows may wait for copies, while these are made."""
TURNED_MAX = 4
"""So often the time of a round is doubled."""


class Conductor:
    """Part of the master."""

    def __init__(self, books: Books, archive: Archive, targets: Targets, carrier: Carrier) -> None:
        self.books, self.turn, self.archive = books, books.turn, archive
        self.targets, self.carrier = targets, carrier
        settings = books.turn.settings
        self.pacer = Pacer(settings.bandwidth_bytes_s, settings.overhead_s)
        self.migration: Migration | None = None
        self.migrations = 0
        self.counts = {
            "aborts": 0,
            "resumes": 0,
            "roll_backs": 0,
            "second_moves": 0,
            "restores": 0,
            "stand_ins": 0,
        }
        self.rehoming = Rehoming(books, self.counts)
        self._missing: NodeId | None = None
        """A node of the target that was not ready when last looked: it is looked at first."""
        self._dismiss_at = 0.0
        """When to look again whether somebody can be let go."""

    # ------------------------------------------------------------------ commands

    def rescale(self, event: Rescale) -> None:
        """Head for another number of nodes, from wherever things stand."""
        old, books = self.migration, self.books
        origin = self._here()
        if old is not None and self._unfinished(old):
            origin = old.origin
        origin = origin._replace(one_way=origin.one_way or event.one_way)
        if event.version is not None:
            books.version = event.version
        for peer in self._nodes():
            peer.outgoing = peer.outgoing or peer.id in event.leaving
        budget = None if event.pause_ms is None else event.pause_ms / 1000
        until = None if event.within_s is None else self.turn.now + event.within_s
        self.pacer.start(budget, PaceLimits(event.tasks_max, event.bytes_max), until)
        wanted = self.targets.wanted(event.nodes, event.groups)
        self._head_for(self.targets.plan(wanted, share_max=event.share_max), origin)

    def abort(self) -> None:
        """Stop; tasks under way return to whoever surely holds their state."""
        migration = self._needed(MigrationStep.ABORT)
        migration.go(MigrationStep.ABORT)
        self.counts["aborts"] += 1
        self._turn_back(migration.round_tasks)
        migration.round_tasks, migration.ahead = set(), None
        for peer in self.books.membership.of_kind("node"):
            if peer.status is Status.LEAVING and not peer.dismissing:
                peer.go(Change.STAY)
        self.turn.tell(News.ABORTED, **migration.report(self.turn.now))

    def resume(self) -> None:
        """Go on with what was aborted."""
        migration = self._needed(MigrationStep.RESUME)
        migration.go(MigrationStep.RESUME)
        self.counts["resumes"] += 1
        self._retarget(migration, migration.target)

    def roll_back(self) -> None:
        """Head back to where the migration began, with the operator that there was."""
        migration = self._needed(MigrationStep.ROLL_BACK)
        if migration.origin.one_way:
            raise ProtocolError(
                "the old version of the operator cannot read the state of the new one"
            )
        self.books.version = migration.origin.version
        for peer in self._nodes():
            peer.outgoing = False
        migration.go(MigrationStep.ROLL_BACK)
        self.counts["roll_backs"] += 1
        migration.rolling_back = True
        self._retarget(migration, migration.origin.owners)

    def _needed(self, step: MigrationStep) -> Migration:
        """Give the migration that a command is for, or refuse the command."""
        if self.migration is None:
            raise ProtocolError("there is no migration")
        self.migration.refuse_unless(step)
        return self.migration

    def _retarget(self, migration: Migration, target: Assignment) -> None:
        """Head for a target again; one that names nodes which are gone, or go, is planned anew."""
        leaving = self.books.leaving()
        if any(n in leaving or not self.books.member(n) for n in target.nodes):
            target = self.targets.plan(self.books.groups.counted(target.nodes))
        migration.target, migration.round_tasks, migration.ahead = target, set(), None
        migration.started_at = self.turn.now
        self._staff(target)

    # ------------------------------------------------------------------ heading for a target

    def _here(self) -> Origin:
        """Give what there is now as the origin of a migration."""
        return Origin(self.books.current(), self.books.version)

    def _unfinished(self, migration: Migration) -> bool:
        """Whether things stand between its origin and its target, also after an abort."""
        if migration.stage in ENDED:
            return False
        version = self.books.version
        return migration.active or any(p.outgoing or p.version != version for p in self._nodes())

    def _head_for(self, target: Assignment, origin: Origin, *, carries_on: bool = False) -> None:
        old = self.migration
        if old is not None and old.stage not in ENDED and not carries_on:  # aborted, or under way
            self.turn.tell(News.SUPERSEDED, **old.report(self.turn.now))
        self.migrations += 1
        self.migration = Migration(self.migrations, origin, target, self.turn.now)
        self._staff(target)
        self.turn.tell(News.RESCALING, migration=self.migrations, nodes=len(target.nodes))

    def _carry_on(self, before: Migration, target: Assignment) -> None:
        """Go on with a migration towards another target: one that was rolled back stays so."""
        self._head_for(target, before.origin, carries_on=True)
        assert self.migration is not None
        self.migration.rolling_back = before.rolling_back

    def _head_unasked(self, target: Assignment) -> None:
        """Head for a target because a node is gone: what is under way goes on with that.

        What was aborted does not, and can be resumed no more; but the way back from this one leads to
        where that began, if somebody was still to leave, or another version to come.
        """
        migration = self.migration
        if migration is not None and migration.active:
            self._carry_on(migration, target)
        elif migration is not None and self._unfinished(migration):
            self._head_for(target, migration.origin)
        else:
            self._head_for(target, self._here())

    def _staff(self, target: Assignment) -> None:
        """Launch who joins; note who leaves and who stays after all."""
        self._missing = None
        books, wanted = self.books, frozenset(target.nodes)
        for node in target.nodes:
            if not self.books.member(node):
                peer = books.membership.add(node, "node", self.turn.now)
                peer.version, peer.outgoing = books.version, False
                self.turn.do(Launch(node, peer.incarnation, peer.version))
                books.changed = True
        for peer in list(books.membership.of_kind("node")):
            if peer.id in wanted:
                if peer.status is Status.LEAVING and not peer.dismissing:
                    peer.go(Change.STAY)
            elif peer.status is Status.UP:
                peer.go(Change.LEAVE)
            elif peer.status is Status.STARTING:
                peer.go(Change.LEAVE)
                self._rehome(peer.id, peer.incarnation)

    # ------------------------------------------------------------------ going on

    def advance(self) -> None:
        """Do what can be done now."""
        migration = self.migration
        if migration is None or not migration.active:
            return
        if migration.stage is MigrationStage.LAUNCHING and self._all_up(migration.target.nodes):
            migration.go(MigrationStep.ALL_UP)
        if migration.stage is MigrationStage.MOVING:
            if migration.round_tasks:
                self._check_time(migration)
                self._look_ahead(migration)
            else:
                self._finish_round(migration)
                self._next_round(migration)
        if migration.stage is MigrationStage.DRAINING:
            self._dismiss()
            if not any(p.status is Status.LEAVING for p in self._nodes()):
                self._complete(migration)

    def _all_up(self, nodes: Iterable[NodeId]) -> bool:
        """Whether tasks may move to all of them: rows come with a task, or even before its table."""
        ready = self.books.membership.ready
        if self._missing is None or ready(self._missing):
            self._missing = next((node for node in nodes if not ready(node)), None)
        return self._missing is None

    def _nodes(self) -> Iterable[Peer]:
        return self.books.membership.of_kind("node")

    def _finish_round(self, migration: Migration) -> None:
        """Close the books of a round that is done."""
        now = self.turn.now
        if migration.round_count:
            report = RoundReport(
                migration.round_epoch,
                migration.round_count,
                migration.round_size,
                migration.predicted_s,
                migration.measured_s,
                now - migration.round_at,
                migration.round_copy_s,
            )
            migration.reports.append(report)
            if not self.pacer.observe_round(migration.measured_s, migration.round_weight):
                migration.ahead = None  # it was cut too large
            migration.round_count = 0

    def _next_round(self, migration: Migration) -> None:
        books, ledger = self.books, self.books.ledger
        if not self._all_up(migration.target.nodes):
            return  # one was lost and is being replaced
        found = self._cut(migration)
        if found is None:
            return
        for task, to in found.moves:
            if task in ledger.chain:
                migration.second_moves += 1
                self.counts["second_moves"] += 1
            self._move(task, to, found.ranks.get(task, 0))
            migration.moved += 1
        migration.round_tasks = {task for task, _ in found.moves}
        migration.round_count = len(found.moves)
        migration.round_size = sum(ledger.size[task] for task, _ in found.moves)
        migration.round_weight = found.busiest_bytes
        migration.predicted_s = self.pacer.predict(found.busiest_bytes)
        migration.measured_s, migration.round_at = 0.0, self.turn.now
        migration.round_copy_s = migration.copy_s
        migration.round_epoch = str(books.upcoming)

    def _cut(self, migration: Migration) -> CarriedRound | None:
        """Cut the next round; None while its tasks are copied ahead, or when nothing is left."""
        ledger, ahead = self.books.ledger, migration.ahead
        if ahead is None or ahead.stale:
            ahead = migration.ahead = self._ahead(migration)
            if ahead is None:
                if not ledger.chain:
                    migration.go(MigrationStep.ALL_MOVED)
                return None
        migration.copy_s = self.turn.now - ahead.began
        if self.pacer.copies and ahead.wanted:
            if not ahead.ready():
                return None
            self.pacer.observe_copy(ahead.busiest_bytes, migration.copy_s)
        migration.ahead = None
        return ahead.round

    def _ahead(self, migration: Migration) -> Ahead | None:
        """Cut the next round from what is left; None: nothing is."""
        pacer, current, now = self.pacer, self.books.current(), self.turn.now
        weights = pacer.weights(self.books.ledger.size)
        target = self.books.ledger.restored_first(migration.target)
        hosts = self.books.membership.hosts()
        next_ = cut(self.carrier, pacer, current, target, weights, now, hosts)
        if next_ is None:
            return None
        copy_s = pacer.copy_s(now, next_.found.busiest_bytes, next_.left_bytes)
        return Ahead(self.books, next_.found, self._copy_wait_s(), copy_s)

    def _copy_wait_s(self) -> float:
        """Tell how long rows may wait because others are copied: a small part of what they may."""
        budget_s = self.pacer.budget_s
        return self.turn.settings.copy_wait_s if budget_s is None else budget_s * COPY_SHARE

    def _look_ahead(self, migration: Migration) -> None:
        """Have the next round copied while this one is installed, if it can be sized already.

        Not where a pause was promised: copies would take processors and links from what rows wait for.
        """
        pacer = self.pacer
        if not pacer.copies or not pacer.measured or pacer.budget_s is not None:
            return
        if migration.stage is not MigrationStage.MOVING or not self._all_up(migration.target.nodes):
            return
        if migration.ahead is None or migration.ahead.stale:
            migration.ahead = self._ahead(migration)
        if migration.ahead is not None:
            migration.ahead.begin()

    def _move(self, task: TaskId, to: NodeId, rank: int = 0) -> None:
        books = self.books
        incarnation = books.membership.peers[books.ledger.owner[task]].incarnation
        books.ledger.move(task, to, incarnation, books.upcoming, rank)
        books.changed = True
        self.archive.unsaved = True  # a driver that was replaced shall hear of it, rows or no rows

    def _check_time(self, migration: Migration) -> None:
        """Turn around what is stuck, each time later; roll back what takes far too long."""
        settings, now = self.turn.settings, self.turn.now
        taken_s = now - migration.round_at
        late = now - migration.started_at > settings.migration_s_max
        if late and not migration.rolling_back and not migration.origin.one_way:
            if taken_s > settings.round_s_max:
                migration.round_at = now
                self.roll_back()
        elif taken_s > settings.round_s_max * 2 ** min(migration.turned, TURNED_MAX):
            migration.round_at = now
            migration.turned += 1
            self._turn_back(migration.round_tasks)

    def _turn_back(self, tasks: Iterable[TaskId]) -> None:
        """Return tasks under way to the node that surely holds their state."""
        ledger = self.books.ledger
        for task in tasks:
            chain = ledger.chain.get(task)
            if not chain or chain[0].node == STORE or chain[0].node == ledger.owner[task]:
                continue
            if self.rehoming.alive(chain[0]) and self.books.member(ledger.owner[task]):
                self.counts["second_moves"] += 1
                self._move(task, chain[0].node)

    def _dismiss(self) -> None:
        """Let go whoever owns nothing, holds nothing for others, and cannot be sent to any more."""
        books, ledger = self.books, self.books.ledger
        if books.changed or self.turn.now < self._dismiss_at:
            return
        self._dismiss_at = self.turn.now + self.turn.settings.retry_s
        needed = {*ledger.owner, *(link.node for chain in ledger.chain.values() for link in chain)}
        behind = books.membership.behind(self.turn.epoch, self.turn.now)
        for peer in list(self._nodes()):
            if peer.status is not Status.LEAVING:
                continue
            if not peer.dismissing:
                if peer.id in needed or any(other is not peer for other in behind):
                    continue
                peer.dismissing = True
            self.turn.send(peer.id, Dismiss(), peer.incarnation)

    def _complete(self, migration: Migration) -> None:
        self.archive.unsaved = True  # the manifest names the nodes
        migration.go(
            MigrationStep.ALL_BACK if migration.rolling_back else MigrationStep.ALL_DISMISSED
        )
        self.turn.tell(News(migration.stage.value), **migration.report(self.turn.now))

    def installed(self, item: Install) -> None:
        """A task serves at its new owner."""
        self.pacer.observe_install(item.size, item.transfer_s)
        self.pacer.observe_share(item.size, self.books.ledger.size[item.task])
        migration = self.migration
        if migration is not None and item.task in migration.round_tasks and item.waited:
            migration.measured_s = max(migration.measured_s, item.pause_s)
        self.settled(item.task)

    def settled(self, task: TaskId) -> None:
        """A chain has become shorter; without one, its task is done with the round."""
        if self.migration is not None and task not in self.books.ledger.chain:
            self.migration.round_tasks.discard(task)

    # ------------------------------------------------------------------ losses

    def lost(self, peer: Peer) -> None:
        """A node is gone: replace it, or spread its tasks if it was leaving anyway."""
        books, incarnation = self.books, peer.incarnation
        if peer.dismissing:
            peer.go(Change.DISMISSED)
            books.changed = True
            return
        tasks = books.ledger.tasks_of(peer.id)
        self.turn.tell(News.LOST, node=peer.id, incarnation=incarnation, tasks=len(tasks))
        self.archive.lost(peer.id, incarnation)
        leaving, lost_at = peer.status is Status.LEAVING, min(peer.lost_at, self.turn.now)
        peer.go(Change.LOST)
        if not leaving:
            books.membership.add(peer.id, "node", self.turn.now)
            peer.lost_at = lost_at
            self.turn.do(Launch(peer.id, peer.incarnation, peer.version))
        self._rehome(peer.id, incarnation)

    def stand_in(self, peer: Peer) -> None:
        """Have others take the tasks of a lost node whose successor is late; it gets them back later.

        A slot, a host or an executor may take long to be replaced; the store is as near to all.
        """
        books, migration = self.books, self.migration
        tasks = books.ledger.tasks_of(peer.id)
        others = [
            p.id for p in self._nodes()
            if p.status is Status.UP and (p.version >= peer.version or p.version == books.version)
        ]  # fmt: skip
        group = books.groups.of(peer.id)
        heirs = [node for node in others if books.groups.of(node) == group] or others
        if not heirs and tasks:
            return  # they wait until somebody is there
        peer.lost_at = inf
        if not tasks or not books.checkpointing:
            return
        self.counts["stand_ins"] += 1
        self.turn.tell(News.STOOD_IN, node=peer.id, tasks=len(tasks), nodes=len(heirs))
        if migration is None or not migration.active:
            self._head_unasked(self._as_it_was())
        elif migration.stage is MigrationStage.DRAINING:
            self._carry_on(migration, migration.target)
        self.rehoming.spread(tasks, heirs)

    def _as_it_was(self) -> Assignment:
        """Give the owners as they are, as a target: nobody in it is about to end."""
        if self.books.leaving():
            return self.targets.plan(self._counted())
        return self.books.current()

    def never_came(self, peer: Peer) -> None:
        """A node that was launched did not register: plan without it."""
        books, incarnation = self.books, peer.incarnation
        others = [p for p in self._nodes() if p is not peer and p.status is not Status.STARTING]
        if not others:  # nobody could take its tasks: try again
            peer.go(Change.LOST)
            books.membership.add(peer.id, "node", self.turn.now)
            self.turn.do(Launch(peer.id, peer.incarnation, peer.version))
            self._rehome(peer.id, incarnation)
            return
        self.turn.tell(News.NEVER_CAME, node=peer.id, after_s=self.turn.now - peer.since)
        wanted, group = self._counted(), books.groups.of(peer.id)
        wanted[group] = max(1, wanted[group] - 1)
        target = self.targets.plan(wanted, without=peer.id)
        peer.go(Change.LOST)
        self._head_unasked(target)
        self._rehome(peer.id, incarnation)

    def _counted(self) -> Wanted:
        """Count the nodes of each group that shall be there."""
        return self.books.groups.counted(self.books.wanted())

    def _rehome(self, node: NodeId, incarnation: int) -> None:
        """Find the tasks of a lost incarnation another source and owner."""
        migration = self.migration
        active = migration is not None and migration.active
        target = migration.target if migration is not None and active else None
        self.rehoming.rehome(node, incarnation, target)
