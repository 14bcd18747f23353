"""The master: who is a member, which epoch holds, what is durable. One per deployment, in the driver.

Rules of the file
  1. The master alone issues incarnations, epochs and the manifest.
  2. Every change ends in one newly published table; `settle` publishes once per event.
  3. What others have been sent is never taken back, only followed by a newer epoch.

How a migration goes on and what a loss leads to is in `conductor`, what is durable in `archive`; the
books are `ledger` (tasks) and `membership` (processes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, ClassVar

from meander.errors import InputError
from meander.model import TOTAL_MAX, Epoch, NodeId
from meander.protocol.machine import Machine
from meander.protocol.master.archive import Archive
from meander.protocol.master.books import Books
from meander.protocol.master.conductor import Conductor
from meander.protocol.master.groups import Groups
from meander.protocol.master.ledger import Ledger
from meander.protocol.master.manifest import MANIFEST_KEY
from meander.protocol.master.membership import Change, Membership, Peer, Status
from meander.protocol.master.round import Carrier, PlanFunction
from meander.protocol.master.targets import Targets
from meander.protocol.messages import (
    MASTER,
    STORE,
    Abort,
    Action,
    Beat,
    Bye,
    Checkpointed,
    Dismiss,
    Ending,
    Envelope,
    Event,
    FeederId,
    Fence,
    Grant,
    Hello,
    Installed,
    Launch,
    Loaded,
    News,
    PeerLost,
    Prepared,
    Rescale,
    Resume,
    RollBack,
    Stored,
    Tick,
    Welcome,
)
from meander.protocol.settings import Settings
from meander.protocol.spans import fault
from meander.protocol.table import Table

KINDS = ("node", "server", "feeder", "query")


@dataclass(frozen=True)
class MasterParts:
    """What a master is made of; tests put broken parts here."""

    ledger: type[Ledger] = Ledger
    membership: type[Membership] = Membership
    archive: type[Archive] = Archive
    conductor: type[Conductor] = Conductor


class Master(Machine):
    """The master of one operator."""

    parts: ClassVar[MasterParts] = MasterParts()

    accepts: ClassVar[tuple[type, ...]] = (
        Tick, PeerLost, Stored, Loaded, Rescale, Abort, Resume, RollBack, Hello, Beat, Installed,
        Checkpointed, Bye, Prepared,
    )  # fmt: skip

    def __init__(
        self,
        settings: Settings,
        tasks: int,
        nodes: tuple[NodeId, ...],
        planner: PlanFunction,
        carrier: Carrier,
        *,
        tau: Fraction = Fraction(1, 5),
        generation: int = 1,
        about: Mapping[str, Any] | None = None,
        lineage: str = "",
        groups: Groups | None = None,
    ) -> None:
        """Begin; `groups` tell the operators apart, where there are several."""
        super().__init__(MASTER, 1, settings)
        self.turn.epoch = Epoch(generation, 0)
        groups = groups or Groups((tasks,))
        self.ledger = self.parts.ledger(tasks, groups.dealt_out(nodes))
        self.membership = self.parts.membership(generation)
        self.books = Books(self.turn, self.ledger, self.membership, nodes, groups)
        self.archive = self.parts.archive(self.books, about or {}, lineage)
        self.targets = Targets(self.books, planner, tau)
        self.conductor = self.parts.conductor(self.books, self.archive, self.targets, carrier)
        self.table: Table | None = None
        self.closed: dict[FeederId, tuple[int, float]] = {}
        """Feeders that left for good: under which incarnation, and until when that is remembered."""
        self.published_at = 0.0
        self._watch_at = -inf
        """When somebody may have been silent for too long, at the earliest."""

    @property
    def started(self) -> bool:
        """Whether it is known what the master before has left, and no later word of it can count."""
        return self.books.started

    # ------------------------------------------------------------------ the door

    def take(self, event: Event, now: float) -> list[Action]:
        """Take one event; whatever it changed is published at its end."""
        actions = super().take(event, now)
        if self.started and not self.ended:
            self.settle()
        return actions

    def _check_envelope(self, env: Envelope, *, known: bool) -> None:
        super()._check_envelope(env, known=known)
        if env.epoch > self.epoch:
            raise self._malformed(f"{env.sender} speaks of epoch {env.epoch}, which never was")
        peer = self.membership.peers.get(env.sender)
        if env.incarnation > (self.membership.forgotten if peer is None else peer.incarnation):
            raise self._malformed(f"{env.sender} was never given incarnation {env.incarnation}")
        if type(env.body) is not Hello:
            return
        if env.sender in ("", MASTER, STORE) or (peer and peer.kind != env.body.kind):
            raise self._malformed(f"{env.sender!r} cannot be a {env.body.kind}")

    def settle(self) -> None:
        """End an event: go on with what it has made possible, and publish what it has changed."""
        self.conductor.advance()
        if self.books.joined or self.books.settled:
            age_s, pause_s = self.turn.now - self.published_at, self._pause_s()
            if self.books.settled and (not self.ledger.chain or age_s > max(1.0, pause_s)):
                self.books.changed = True
            if self.books.joined and age_s > pause_s:
                self.books.changed = True
        if self.books.changed:
            self._publish()

    def _pause_s(self) -> float:
        """Say how long to gather what is not urgent: a table goes to everybody over one link."""
        size = 0 if self.table is None else self.table.size
        sent_s = size * len(self.membership.peers) / self.settings.publish_bytes_s
        return max(self.settings.gather_s, sent_s)

    def _publish(self) -> None:
        books = self.books
        self.turn.epoch = books.upcoming
        books.changed = books.settled = books.joined = False
        self.published_at = self.turn.now
        members = self.membership
        self.table = Table(
            books.current(),
            self.ledger.incoming(),
            self.ledger.terms(),
            members.members(),
            members.servers(),
            tuple((feeder, incarnation) for feeder, (incarnation, _) in self.closed.items()),
            members.addresses(),
        )
        news = Grant(-1.0, 0.0, self.table)
        for peer in members.peers.values():
            if peer.status in (Status.UP, Status.LEAVING):
                self.turn.send(peer.id, news, peer.incarnation)

    # ------------------------------------------------------------------ start and time

    def _on_loaded(self, event: Loaded) -> None:
        if self.archive.known or not self.archive.claimed or event.key != MANIFEST_KEY:
            return
        try:
            self.archive.loaded(event)
        except InputError as error:
            self.turn.tell(News.REFUSED, why=str(error))
            why = f"the checkpoint cannot be used: {error}"
            self.turn.exit(Ending.CHECKPOINT_UNUSABLE, why)

    def _start(self) -> None:
        self.books.started = True
        for node in self.books.first_nodes:
            peer = self.membership.add(node, "node", self.turn.now)
            self.turn.do(Launch(node, peer.incarnation, self.books.version))
        for task in range(self.ledger.tasks):
            self.ledger.restore(task, self.ledger.owner[task], self.books.upcoming)
        self.books.changed = True

    def _on_tick(self, _: Tick) -> None:
        if not self.started:
            if self.books.checkpointing:
                self.archive.begin()
            else:
                self._start()
            return
        for feeder, (_incarnation, until) in list(self.closed.items()):
            if until < self.turn.now:
                del self.closed[feeder]
                self.books.changed = True
        self._watch()
        if self.books.checkpointing:
            self.archive.save()

    def due_at(self) -> float:
        """Tell when it wants to look at the clock again: often while tasks or tables are under way."""
        books, migration = self.books, self.conductor.migration
        moving = migration is not None and migration.active
        if not self.started or moving or books.joined or books.settled:
            return -inf
        return min(self._watch_at, self.archive.due_at() if books.checkpointing else inf)

    def _watch(self) -> None:
        """Look for processes that are silent; those who come from now on have longer than a beat."""
        now = self.turn.now
        self._watch_at = now + self.settings.beat_s
        for peer in list(self.membership.peers.values()):
            until = self._silent_at(peer)
            if until >= now:
                self._watch_at = min(self._watch_at, until)
            elif peer.status is Status.GONE:
                # Whoever bore that name has ended: workers, nodes and feeders come and go, each under
                # a name of its own, and the book must not grow with them.
                self.membership.forget(peer)
            elif peer.status is Status.STARTING:
                if peer.since + self.settings.launch_s_max < now:
                    self.conductor.never_came(peer)
                else:
                    self.conductor.stand_in(peer)
            elif peer.kind == "node":
                self.conductor.lost(peer)
            else:
                self._gone(peer)
                if peer.kind == "server":
                    self.books.changed = True

    @staticmethod
    def _gone(peer: Peer) -> None:
        """Count on it no more; if it comes again, then as another."""
        peer.go(Change.LOST)
        peer.past.add(peer.instance)

    def _silent_at(self, peer: Peer) -> float:
        """Tell until when a process may be silent."""
        if peer.status is Status.GONE:
            return max(peer.since, peer.lease_until) + 4 * self._lease()
        if peer.status is Status.STARTING:
            settings = self.settings
            if peer.kind != "node":
                return inf
            return min(peer.since + settings.launch_s_max, peer.lost_at + settings.replace_s_max)
        return peer.lease_until

    def _on_peer_lost(self, event: PeerLost) -> None:
        peer = self.membership.peers.get(event.peer)
        if peer is None or peer.incarnation != event.incarnation or peer.kind != "node":
            return  # the others register again, as another instance
        if peer.status is not Status.GONE:
            self.conductor.lost(peer)

    # ------------------------------------------------------------------ registration and leases

    def _check_hello(self, body: Hello) -> str | None:
        return None if body.kind in KINDS else f"unknown kind {body.kind!r}"

    def _on_hello(self, env: Envelope, body: Hello) -> None:
        if not self.started:
            return
        if body.kind == "node":
            self._node_hello(env, body)
        else:
            self._other_hello(env, body)

    def _node_hello(self, env: Envelope, body: Hello) -> None:
        peer = self.membership.peers.get(env.sender)
        stale = peer is None or peer.status is Status.GONE or env.incarnation < peer.incarnation
        if stale or peer is None:
            self.turn.send(env.sender, Fence(), env.incarnation)
            return
        if peer.status is Status.STARTING:
            peer.go(Change.HELLO)
            peer.instance, peer.server, peer.address = body.instance, body.server, body.address
            peer.lost_at = inf
            self.books.joined = True
        self._welcome(peer)

    def _other_hello(self, env: Envelope, body: Hello) -> None:
        peer = self.membership.peers.get(env.sender)
        if peer is not None and body.instance in peer.past:
            self.turn.send(env.sender, Fence(body.instance))
            return
        if peer is None or peer.instance != body.instance:
            if peer is not None and peer.kind == "feeder" and peer.status is Status.UP:
                self.turn.send(peer.id, Fence(peer.instance), peer.incarnation)  # two of one name?
            peer = self.membership.add(env.sender, body.kind, self.turn.now)
            peer.instance, peer.address = body.instance, body.address
            peer.go(Change.HELLO)
            if body.kind == "server" or body.address:
                self.books.joined = True
        self._welcome(peer)

    def _welcome(self, peer: Peer) -> None:
        peer.lease_until = max(peer.lease_until, self.turn.now + self._lease())
        if self.table is not None:
            offset = self.books.offsets.get(peer.id, -1)
            grant = Grant(-1.0, 0.0, self.table)
            to = peer.incarnation if peer.kind == "node" else 0
            self.turn.send(peer.id, Welcome(peer.incarnation, offset, grant, peer.instance), to)

    def _lease(self) -> float:
        return self.settings.lease_s * self.settings.lease_margin

    def _check_beat(self, body: Beat) -> str | None:
        most = TOTAL_MAX // self.ledger.tasks - 1
        if not len(body.tasks) == len(body.work) == len(body.sizes):
            return "statistics are not of as many tasks as they say"
        for told, limit in (
            (body.tasks, self.ledger.tasks - 1),
            (body.work, most),
            (body.sizes, most),
        ):
            if told and not 0 <= min(told) <= max(told) <= limit:
                return f"statistics from {min(told)} to {max(told)} are impossible"
        return None if body.offset >= -1 else "an offset counts from -1"

    def _on_beat(self, env: Envelope, body: Beat) -> None:
        peer = self.membership.peers.get(env.sender)
        if peer is None or peer.status is Status.GONE or env.incarnation != peer.incarnation:
            self._turn_away(env)
            return
        if peer.status is Status.STARTING:
            return
        peer.acked = max(peer.acked, env.epoch)
        peer.lease_until = self.turn.now + self._lease()
        for task, work, size in zip(body.tasks, body.work, body.sizes, strict=True):
            self.ledger.work[task] = work
            self.ledger.size[task] = size
        if peer.kind == "feeder" and body.offset > self.books.offsets.get(peer.id, -1):
            self.books.offsets[peer.id] = body.offset
            self.archive.unsaved = True
        self.archive.note(peer.id, body.trouble)
        if peer.kind == "node" and body.ends_s >= 0 and not peer.noticed:
            peer.noticed = True
            self.turn.tell(News.NOTICED, node=peer.id, within_s=body.ends_s)
        if body.sent >= 0:
            lacks = env.epoch < self.epoch or body.missing
            table = self.table if lacks else None
            grant = Grant(body.sent, self.settings.lease_s, table, self.archive.told())
            self.turn.send(peer.id, grant, peer.incarnation)

    def _turn_away(self, env: Envelope) -> None:
        """Tell somebody who is not known any more to end; a feeder that has said goodbye is done."""
        incarnation, _ = self.closed.get(env.sender, (0, 0.0))
        done = incarnation == env.incarnation
        self.turn.send(env.sender, Dismiss() if done else Fence(), env.incarnation)

    def _on_bye(self, env: Envelope, body: Bye) -> None:
        peer = self.membership.peers.get(env.sender)
        if peer is None or peer.incarnation != env.incarnation:
            return
        if peer.kind == "feeder":
            if peer.status is not Status.GONE:
                self._gone(peer)
                self.closed[peer.id] = peer.incarnation, self.turn.now + self.settings.closed_s
                self.books.offsets[peer.id] = max(body.offset, self.books.offsets.get(peer.id, -1))
                self.archive.unsaved = self.books.changed = True
            self.turn.send(peer.id, Dismiss(), peer.incarnation)
        elif peer.kind == "query":
            if peer.status is not Status.GONE:
                self._gone(peer)
        elif peer.kind == "node" and body.failure:
            trace = "\n".join(body.trace)
            self.turn.tell(News.OPERATOR_FAILED, node=peer.id, why=body.failure, trace=trace)
            if peer.status is not Status.GONE:
                self.conductor.lost(peer)
        elif peer.kind == "node" and peer.dismissing and peer.status is Status.LEAVING:
            peer.go(Change.DISMISSED)
            self.books.changed = True

    # ------------------------------------------------------------------ installs and commands

    def _check_installed(self, body: Installed) -> str | None:
        for item in body.items:
            if (
                not 0 <= item.task < self.ledger.tasks
                or min(item.size, item.pause_s, item.transfer_s) < 0
            ):
                return f"install of task {item.task} is impossible"
            if item.tenure > self.epoch:
                return f"nobody has tenure {item.tenure} yet"
        return None

    def _on_installed(self, env: Envelope, body: Installed) -> None:
        if self.membership.up(env.sender, env.incarnation):
            for item in body.items:
                if self.ledger.installed(item.task, item.tenure, env.sender):
                    self.books.settled = True
                    self.conductor.installed(item)

    def _check_prepared(self, body: Prepared) -> str | None:
        if any(not 0 <= task < self.ledger.tasks for task, _, _ in body.items):
            return "there is no such task"
        return None

    def _on_prepared(self, env: Envelope, body: Prepared) -> None:
        migration = self.conductor.migration
        if migration is None or migration.ahead is None:
            return
        if self.membership.up(env.sender, env.incarnation):
            for item in body.items:
                migration.ahead.prepared(*item)

    def _on_rescale(self, event: Rescale) -> None:
        self.conductor.rescale(event)

    def _check_rescale(self, event: Rescale) -> str | None:
        if not 1 <= event.nodes <= self.ledger.tasks:
            return f"nodes must be from 1 to the number of tasks ({self.ledger.tasks})"
        if any(limit is not None and limit <= 0 for limit in event[1:5]):
            return "a pause budget, a time and the limits of a round are greater than 0"
        groups = self.books.groups
        for group, nodes in event.groups:
            if group not in groups.operators or not 1 <= nodes <= groups.tasks_of(group):
                return f"there is no group {group!r} that could have {nodes} nodes"
        if not event.groups and event.nodes < len(groups.operators):
            return f"{len(groups.operators)} groups need a node each"
        return None if self.started else "the master has not started"

    def _on_abort(self, _: Abort) -> None:
        self.conductor.abort()

    def _on_resume(self, _: Resume) -> None:
        self.conductor.resume()

    def _on_roll_back(self, _: RollBack) -> None:
        self.conductor.roll_back()

    # ------------------------------------------------------------------ what is durable

    def _check_checkpointed(self, body: Checkpointed) -> str | None:
        for item in body.items:
            wrong = fault(item.tasks, self.ledger.tasks)
            if wrong or item.number < 1 or not item.key:
                return f"a record is impossible: {wrong or 'it has no number, or no name'}"
        return None

    def _on_checkpointed(self, env: Envelope, body: Checkpointed) -> None:
        if self.membership.up(env.sender, env.incarnation):
            for task in self.archive.checkpointed(env, body):
                self.books.settled = True
                self.conductor.settled(task)

    def _on_stored(self, event: Stored) -> None:
        self.archive.stored(event)
        if not self.started and self.archive.saved_at is not None:
            self._start()

    # ------------------------------------------------------------------ for people

    def status(self) -> dict[str, Any]:
        """Tell where things stand."""
        migration = self.conductor.migration
        return {
            "epoch": str(self.epoch),
            "nodes": {p.id: p.status.value for p in self.membership.peers.values()},
            "hosts": self.membership.hosts(),
            "under way": len(self.ledger.chain),
            "migration": None if migration is None else migration.report(self.turn.now),
            "store": self.archive.told() or None,
        }
