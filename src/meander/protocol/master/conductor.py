"""What happens to tasks: migrations round by round, and what the loss of a node leads to.

Everything is decided from the books (who owns, who holds, who is up) and never from how things came
about, so a migration that is aborted, resumed, rolled back, replaced by another or hit by a crash
goes on by the same few functions: `advance` cuts the next round from what is left between the present
owners and the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from meander.errors import ProtocolError
from meander.model import Assignment, NodeId, Problem, TaskId, Workload
from meander.protocol.master.copies_ahead import Ahead
from meander.protocol.master.membership import Change, Peer, Status
from meander.protocol.master.migration import (
    CarriedRound,
    Carrier,
    Migration,
    MigrationStage,
    MigrationStep,
    PlanFunction,
)
from meander.protocol.master.pacer import PaceLimits, Pacer, RoundReport
from meander.protocol.messages import (
    STORE,
    Dismiss,
    Install,
    Launch,
    Rescale,
    TenureLink,
)

if TYPE_CHECKING:
    from meander.protocol.master.master import Master


class Conductor:
    """Part of the master."""

    def __init__(
        self, master: Master, planner: PlanFunction, carrier: Carrier, tau: Fraction
    ) -> None:
        self.master = master
        self.planner = planner
        self.carrier = carrier
        self.tau = tau
        settings = master.settings
        self.pacer = Pacer(settings.bandwidth_bytes_s, settings.overhead_s)
        self.migration: Migration | None = None
        self.migrations = 0
        self.lost_tasks: set[TaskId] = set()
        """Tasks whose state is gone for good: there were no checkpoints."""
        self.counts = {"aborts": 0, "resumes": 0, "roll_backs": 0, "second_moves": 0, "restores": 0}
        self._fresh = 0
        """Numbers the nodes that join."""
        self._missing: NodeId | None = None
        """A node of the target that was not up when last looked: it is looked at first."""
        self._dismiss_at = 0.0
        """When to look again whether somebody can be let go."""

    # ------------------------------------------------------------------ commands

    def rescale(self, event: Rescale) -> None:
        """Head for another number of nodes, from wherever things stand."""
        master = self.master
        old = self.migration
        origin = self._current()
        if old is not None and old.active:
            origin = old.origin
            master._tell("superseded", **old.report(master._now))
        budget = None if event.pause_ms is None else event.pause_ms / 1000
        self.pacer.start(budget, PaceLimits(event.tasks_max, event.bytes_max))
        self._head_for(self._plan(event.nodes), origin)

    def abort(self) -> None:
        """Stop; tasks under way return to whoever surely holds their state."""
        migration = self._needed(MigrationStep.ABORT)
        migration.go(MigrationStep.ABORT)
        self.counts["aborts"] += 1
        self._turn_back(migration.round_tasks)
        migration.round_tasks, migration.ahead = set(), None
        for peer in self.master.membership.of_kind("node"):
            if peer.status is Status.LEAVING and not peer.dismissing:
                peer.go(Change.STAY)
        self.master._tell("aborted", **migration.report(self.master._now))

    def resume(self) -> None:
        """Go on with what was aborted."""
        migration = self._needed(MigrationStep.RESUME)
        migration.go(MigrationStep.RESUME)
        self.counts["resumes"] += 1
        self._retarget(migration, migration.target)

    def roll_back(self) -> None:
        """Head back to where the migration began."""
        migration = self._needed(MigrationStep.ROLL_BACK)
        migration.go(MigrationStep.ROLL_BACK)
        self.counts["roll_backs"] += 1
        migration.rolling_back = True
        self._retarget(migration, migration.origin)

    def _needed(self, step: MigrationStep) -> Migration:
        """Give the migration that a command is for, or refuse the command."""
        if self.migration is None:
            raise ProtocolError("there is no migration")
        self.migration.refuse_unless(step)
        return self.migration

    def _retarget(self, migration: Migration, target: Assignment) -> None:
        """Head for a target again; one that names nodes which are gone is planned anew."""
        members = self.master.membership
        gone = [n for n in target.nodes if not self._member(n)]
        if gone or any(members.peers[n].dismissing for n in target.nodes):
            target = self._plan(len(target.nodes))
        migration.target, migration.round_tasks, migration.ahead = target, set(), None
        migration.started_at = self.master._now
        self._staff(target)

    # ------------------------------------------------------------------ planning

    def _plan(self, nodes: int, without: NodeId | None = None) -> Assignment:
        """Ask the planner, from where things stand."""
        ledger, current = self.master.ledger, self._current()
        sizes = list(ledger.size)
        if without is not None:  # its tasks are restored from the store, wherever they go
            for task in ledger.tasks_of(without):
                sizes[task] = 0
        workload = Workload([w + 1 for w in ledger.work], sizes)
        fresh = [self._name(i) for i in range(1, nodes + 1)]
        target = self.planner(Problem(workload, current, nodes, self.tau, new_nodes=fresh)).target
        self._fresh += sum(1 for node in target.nodes if node in fresh)
        dismissing = {p.id for p in self.master.membership.of_kind("node") if p.dismissing}
        for gone in sorted({*dismissing, *([without] if without else [])} & set(target.nodes)):
            target = self._swap(target, gone, current)
        return target

    def _name(self, i: int) -> NodeId:
        return f"x{self.master.epoch.generation}-{self._fresh + i}"

    def _swap(self, target: Assignment, gone: NodeId, current: Assignment) -> Assignment:
        """Give the place of a node that is gone to one that the plan would dismiss, or to a new one."""
        spare = [
            n
            for n in current.nodes
            if n not in target.nodes
            and n != gone
            and not self.master.membership.peers[n].dismissing
        ]
        if spare:
            heir = spare[0]
        else:
            self._fresh += 1
            heir = self._name(0)
        runs = tuple(r._replace(node=heir) if r.node == gone else r for r in target.runs)
        nodes = tuple(heir if n == gone else n for n in target.nodes)
        return Assignment(target.tasks, runs, nodes, target.epoch)

    def _current(self) -> Assignment:
        return self.master.ledger.assignment(self.master.membership.nodes(), self.master.epoch)

    def _head_for(self, target: Assignment, origin: Assignment) -> None:
        self.migrations += 1
        self.migration = Migration(self.migrations, origin, target, self.master._now)
        self._staff(target)
        self.master._tell("rescaling", migration=self.migrations, nodes=len(target.nodes))

    def _staff(self, target: Assignment) -> None:
        """Launch who joins; note who leaves and who stays after all."""
        self._missing = None
        master, wanted = self.master, frozenset(target.nodes)
        for node in target.nodes:
            if not self._member(node):
                peer = master.membership.add(node, "node", master._now)
                master._out.append(Launch(node, peer.incarnation))
                master.changed = True
        for peer in list(master.membership.of_kind("node")):
            if peer.id in wanted:
                if peer.status is Status.LEAVING and not peer.dismissing:
                    peer.go(Change.STAY)
            elif peer.status is Status.UP:
                peer.go(Change.LEAVE)
            elif peer.status is Status.STARTING:
                peer.go(Change.LEAVE)
                self._rehome(peer.id, peer.incarnation)

    def _member(self, node: NodeId) -> bool:
        peer = self.master.membership.peers.get(node)
        return peer is not None and peer.status is not Status.GONE

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
            else:
                self._finish_round(migration)
                self._next_round(migration)
        if migration.stage is MigrationStage.DRAINING:
            self._dismiss()
            if not any(p.status is Status.LEAVING for p in self._nodes()):
                self._complete(migration)

    def _all_up(self, nodes: Iterable[NodeId]) -> bool:
        up = self.master.membership.up
        if self._missing is None or up(self._missing):
            self._missing = next((node for node in nodes if not up(node)), None)
        return self._missing is None

    def _nodes(self) -> Iterable[Peer]:
        return self.master.membership.of_kind("node")

    def _finish_round(self, migration: Migration) -> None:
        """Close the books of a round that is done."""
        now = self.master._now
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
            self.pacer.observe_round(migration.measured_s, migration.round_weight)
            migration.round_count = 0

    def _next_round(self, migration: Migration) -> None:
        master, ledger = self.master, self.master.ledger
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
        migration.measured_s, migration.round_at = 0.0, master._now
        migration.round_copy_s = migration.copy_s
        migration.round_epoch = str(master.upcoming)

    def _cut(self, migration: Migration) -> CarriedRound | None:
        """Cut the next round; None while its tasks are copied ahead, or when nothing is left."""
        ledger, ahead = self.master.ledger, migration.ahead
        if ahead is None or ahead.stale:
            limits, weights = self.pacer.limits(), self.pacer.weights(ledger.size)
            found = self.carrier(self._current(), migration.target, weights, limits)
            if found is None:
                migration.ahead = None
                if not ledger.chain:
                    migration.go(MigrationStep.ALL_MOVED)
                return None
            ahead = Ahead(self.master, found)
        migration.copy_s = self.master._now - ahead.began
        copies = self.pacer.budget_s is not None and bool(ahead.wanted)
        migration.ahead = None if not copies or ahead.ready() else ahead
        return ahead.round if migration.ahead is None else None

    def _move(self, task: TaskId, to: NodeId, rank: int = 0) -> None:
        master = self.master
        incarnation = master.membership.peers[master.ledger.owner[task]].incarnation
        master.ledger.move(task, to, incarnation, master.upcoming, rank)
        master.changed = True

    def _check_time(self, migration: Migration) -> None:
        """Turn around what is stuck; roll back what takes far too long."""
        master = self.master
        if master._now - migration.round_at <= master.settings.round_s_max:
            return
        migration.round_at = master._now
        late = master._now - migration.started_at > master.settings.migration_s_max
        if late and not migration.rolling_back:
            self.roll_back()
        else:
            self._turn_back(migration.round_tasks)

    def _turn_back(self, tasks: Iterable[TaskId]) -> None:
        """Return tasks under way to the node that surely holds their state."""
        ledger = self.master.ledger
        for task in tasks:
            chain = ledger.chain.get(task)
            if not chain or chain[0].node == STORE or chain[0].node == ledger.owner[task]:
                continue
            if self._alive(chain[0]) and self._member(ledger.owner[task]):
                self.counts["second_moves"] += 1
                self._move(task, chain[0].node)

    def _dismiss(self) -> None:
        """Let go whoever owns nothing, holds nothing for others, and cannot be sent to any more."""
        master, ledger = self.master, self.master.ledger
        if master.changed or master._now < self._dismiss_at:
            return
        self._dismiss_at = master._now + master.settings.retry_s
        needed = {*ledger.owner, *(link.node for chain in ledger.chain.values() for link in chain)}
        behind = master.membership.behind(master.epoch, master._now)
        for peer in list(self._nodes()):
            if peer.status is not Status.LEAVING:
                continue
            if not peer.dismissing:
                if peer.id in needed or any(other is not peer for other in behind):
                    continue
                peer.dismissing = True
            master._send(peer.id, Dismiss(), peer.incarnation)

    def _complete(self, migration: Migration) -> None:
        migration.go(
            MigrationStep.ALL_BACK if migration.rolling_back else MigrationStep.ALL_DISMISSED
        )
        self.master._tell(migration.stage.value, **migration.report(self.master._now))

    def installed(self, item: Install) -> None:
        """A task serves at its new owner."""
        self.pacer.observe_install(item.size, item.transfer_s)
        self.pacer.observe_share(item.size, self.master.ledger.size[item.task])
        migration = self.migration
        if migration is not None and item.task in migration.round_tasks and item.waited:
            migration.measured_s = max(migration.measured_s, item.pause_s)
        self.settled(item.task)

    def settled(self, task: TaskId) -> None:
        """A chain has become shorter; without one, its task is done with the round."""
        if self.migration is not None and task not in self.master.ledger.chain:
            self.migration.round_tasks.discard(task)

    # ------------------------------------------------------------------ losses

    def lost(self, peer: Peer) -> None:
        """A node is gone: replace it, or spread its tasks if it was leaving anyway."""
        master, incarnation = self.master, peer.incarnation
        if peer.dismissing:
            peer.go(Change.DISMISSED)
            master.changed = True
            return
        tasks = master.ledger.tasks_of(peer.id)
        master._tell("lost", node=peer.id, incarnation=incarnation, tasks=len(tasks))
        master.archive.lost(peer.id, incarnation)
        if peer.status is Status.LEAVING:
            peer.go(Change.LOST)
        else:
            peer.go(Change.LOST)
            master.membership.add(peer.id, "node", master._now)
            master._out.append(Launch(peer.id, peer.incarnation))
        self._rehome(peer.id, incarnation)

    def never_came(self, peer: Peer) -> None:
        """A node that was launched did not register: plan without it."""
        master, incarnation = self.master, peer.incarnation
        others = [p for p in self._nodes() if p is not peer and p.status is not Status.STARTING]
        if not others:  # nobody could take its tasks: try again
            peer.go(Change.LOST)
            master.membership.add(peer.id, "node", master._now)
            master._out.append(Launch(peer.id, peer.incarnation))
            self._rehome(peer.id, incarnation)
            return
        master._tell("never came", node=peer.id, after_s=master._now - peer.since)
        migration = self.migration
        target = self._plan(max(1, len(self._wanted()) - 1), without=peer.id)
        peer.go(Change.LOST)
        origin = migration.origin if migration is not None and migration.active else target
        self._head_for(target, origin)
        self._rehome(peer.id, incarnation)

    def _wanted(self) -> list[NodeId]:
        """List the nodes that shall be there."""
        return [p.id for p in self._nodes() if p.status is not Status.LEAVING]

    def _rehome(self, node: NodeId, incarnation: int) -> None:
        """Find every task that a lost incarnation owned or held, another source and owner."""
        master, ledger = self.master, self.master.ledger
        epoch, lost, at_risk = master.upcoming, list[TaskId](), list[TaskId]()
        for task in range(ledger.tasks):
            owner, chain = ledger.owner[task], ledger.chain.get(task)
            owned = owner == node
            if not owned and not (chain and self._linked(chain, node, incarnation)):
                continue
            to = self._heir(task) if owned else owner
            if chain and chain[0].node != STORE and ledger.rechain(task, to, epoch, self._alive):
                continue
            if master.checkpointing or (chain and chain[0].node == STORE and not chain[0].key):
                ledger.restore(task, to, epoch)
                self.counts["restores"] += 1
            elif owned:
                lost.append(task)
                ledger.owner[task] = to
            else:
                at_risk.append(task)  # unless its state has reached the state server
        master.changed = True
        if at_risk:
            why = "a node died while it handed them over, and there are no checkpoints"
            master._tell("state at risk", tasks=at_risk, why=why)
        if lost:
            self.lost_tasks.update(lost)
            master._tell("state lost", tasks=lost, why="a node died and there are no checkpoints")

    @staticmethod
    def _linked(chain: tuple[TenureLink, ...], node: NodeId, incarnation: int) -> bool:
        return any(link.node == node and link.incarnation == incarnation for link in chain)

    def _alive(self, link: TenureLink) -> bool:
        return link.node == STORE or self.master.membership.up(link.node, link.incarnation)

    def _heir(self, task: TaskId) -> NodeId:
        """Name who gets a task of a lost node: its replacement, its target, or whoever is there."""
        owner = self.master.ledger.owner[task]
        if self._member(owner):
            return owner
        migration = self.migration
        if migration is not None and migration.active:
            target = migration.target.owner(task)
            if self._member(target):
                return target
        return next(p.id for p in self._nodes())
