"""Machines that are broken on purpose, each in the one way its name says.

A simulator that cannot find these cannot find anything: `test_mutants` demands that every one is
caught within a bounded number of seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from meander.model import ZERO_EPOCH
from meander.protocol.blocks import Ack, Acks
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.archive import Archive
from meander.protocol.master.conductor import Conductor
from meander.protocol.master.ledger import Ledger
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Membership, Status
from meander.protocol.messages import Dismiss, PutDone
from meander.protocol.node.copier import Copier
from meander.protocol.node.handover import Handover
from meander.protocol.node.intake import Intake
from meander.protocol.node.manager import MigrationManager
from meander.protocol.node.node import Node
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.retriever import Retriever
from meander.protocol.node.slot import TaskPhase
from meander.protocol.node.staging import Staging
from meander.protocol.records import file_of
from meander.protocol.spans import within
from meander.protocol.turn import LeasedTurn
from meander.testing.faults import Schedule, generate, parse_faults
from meander.testing.process import Classes
from meander.testing.simulate import run


def with_node(node: type[Node]) -> type[Classes]:
    return type("Broken", (Classes,), {"node": node})


def with_class(**classes: type) -> type[Classes]:
    return type("Broken", (Classes,), classes)


def with_parts(**parts: type) -> type[Classes]:
    """A node of which some parts are broken."""
    return with_node(node_with(Node, **parts))


def node_with(base: type[Node], **parts: type) -> type[Node]:
    return type("Broken", (base,), {"parts": replace(base.parts, **parts)})


def master_with(base: type[Master] = Master, **parts: type) -> type[Classes]:
    """A master of which some parts are broken."""
    return with_class(master=type("Broken", (base,), {"parts": replace(base.parts, **parts)}))


# 1 ------------------------------------------------------------------ drop the duplicate check


class TakesDuplicates(Intake):
    def _accept(self, slot, chunk):
        position = slot.state.positions.get(chunk.feeder)
        if position is not None and chunk.number <= position.number:
            self._apply(slot, slot.state, chunk, None)  # as if it had never been seen
        else:
            super()._accept(slot, chunk)


class ForgetsTheGathered(Intake):
    def _collect_some(self):
        self._gathering.collect()  # and nobody puts it into the outbox
        self._gathered = False


# 2 ------------------------------------------------------------------ serve on after the cut


class ServesOn(MigrationManager):
    def _lose(self, runs):
        for slot in self.book.slots.values():
            lost = not any(lb <= slot.task < ub for lb, ub in runs)
            if (
                slot.phase is TaskPhase.SERVING
                and lost
                and (slot.task, slot.tenure) not in self.handover.frozen
            ):
                state = slot.state
                self.freeze(slot)
                slot.state = state
        waiting = {t: s for t, s in self.book.slots.items() if s.phase is TaskPhase.AWAITING}
        everything, self.book.slots = self.book.slots, waiting
        super()._lose(runs)
        self.book.slots = everything


# 3 ------------------------------------------------------------------ delete the copy too early


class DeletesTheCopy(Handover):
    def put_done(self, incarnation: int, body: PutDone) -> None:
        super().put_done(incarnation, body)
        if body.held and incarnation == self.server_incarnation:
            self.frozen.pop((body.task, body.tenure), None)


# 4 ------------------------------------------------------------------ ignore incarnations


class NoIncarnations(Membership):
    def up(self, node, incarnation=None):
        return super().up(node)


class CountsAnything(Ledger):
    def counts(self, node, incarnation, item):
        return list(within(item.tasks))


class BelievesAnybody(Master):
    parts = replace(Master.parts, membership=NoIncarnations, ledger=CountsAnything)

    def _check_envelope(self, env, *, known):
        self._seen.clear()
        Machine._check_envelope(self, env, known=known)


class FeederOfNoIncarnation(Feeder):
    def _joined(self, body):
        super()._joined(body)
        self.outbox.incarnation = 1


# 5 ------------------------------------------------------------------ release a node too early


class DismissesEarly(Conductor):
    def _dismiss(self):
        for peer in list(self._nodes()):
            if peer.status is Status.LEAVING and not self.books.ledger.tasks_of(peer.id):
                peer.dismissing = True
                self.turn.send(peer.id, Dismiss(), peer.incarnation)


# 6 ------------------------------------------------------------------ install a stale state


class InstallsTheOldest(Retriever):
    def await_(self, slot):
        slot.link = 0  # the oldest link of the chain, whoever had it since
        super().await_(slot)


# 7 ------------------------------------------------------------------ forget the wait buffer


class ForgetsTheWaiting(MigrationManager):
    def _let_go(self, slot):
        slot.take_pending()
        slot.orders.clear()
        super()._let_go(slot)


# 8 ------------------------------------------------------------------ re-route without order


class TakesReroutedAtOnce(Node):
    def _on_chunks(self, env, body):
        if self.leased and body.rerouted:
            for chunk in body.chunks:
                slot = self.slots.get(chunk.task)
                if slot is not None and slot.state is not None:
                    position = slot.state.positions.get(chunk.feeder)
                    if position is None or chunk.number > position.number:
                        self.intake._apply(slot, slot.state, chunk, position)
        super()._on_chunks(env, body)


class ReroutesBackwards(Rerouter):
    def flush(self):
        for chunks in self._chunks.values():
            chunks.reverse()
        super().flush()


# 9 ------------------------------------------------------------------ bounce


class Bounces(Intake):
    def take(self, chunk, epoch):
        super().take(chunk, min(epoch, self.turn.epoch))


# 10 ----------------------------------------------------------------- one's own stale copy


class PrefersItsOwnCopy(Retriever):
    def await_(self, slot):
        super().await_(slot)
        for (task, _), frozen in list(self.handover.frozen.items()):
            if task == slot.task and slot.phase is TaskPhase.AWAITING:
                self._install_blob(slot, frozen.blob, 0.0)


# 11 ----------------------------------------------------------------- acknowledge at the rerouter


class AcknowledgingRerouter(Rerouter):
    def add(self, chunk):
        super().add(chunk)
        assert self.turn.table is not None
        term = self.turn.table.term(chunk.task) or ZERO_EPOCH
        ack = Ack(chunk.task, term, chunk.incarnation, chunk.number, 0)
        if not chunk.feeder.startswith("loop/"):
            self.turn.send(chunk.feeder, Acks(chunk.feeder, (ack,)))


# 12 ----------------------------------------------------------------- apply a losing attempt


class AppliesLosers(Staging):
    def _apply(self, slot, item, rows):
        everything = [
            staged.rows
            for key, staged in slot.state.staged.items()
            if key[:2] == (item.query, item.batch)
        ]
        super()._apply(slot, item, everything)


# 13 ----------------------------------------------------------------- a full buffer blocks


class BlocksTheConnection(Node):
    def _on_chunks(self, env, body):
        most = self.settings.waiting_chunks_max
        if any(
            slot.phase is TaskPhase.AWAITING and slot.pending_chunks >= min(most, 4)
            for slot in self.slots.values()
        ):
            return  # nothing is read from a connection as long as one task cannot take more
        super()._on_chunks(env, body)


# 14 ----------------------------------------------------------------- a fenced checkpoint


class AcceptsFencedRecords(Master):
    parts = replace(Master.parts, ledger=CountsAnything)

    def _on_checkpointed(self, env, body):
        peer = self.membership.peers.get(env.sender)
        if peer is None:
            return
        kept = peer.incarnation, peer.status
        peer.incarnation, peer.status = env.incarnation, Status.UP
        super()._on_checkpointed(env, body)
        peer.incarnation, peer.status = kept


# -------------------------------------------------------------------- further ones, of our own


class IgnoresItsLease(LeasedTurn):
    @property
    def leased(self):
        return self.table is not None


class ForgetsTheOutbox(Retriever):
    def _install(self, slot, state, *rest):
        state.outbox.lanes.clear()
        state.outbox.active.clear()
        state.outbox.retained = state.outbox.bytes = 0
        super()._install(slot, state, *rest)


class EmitsBeforeDurable(Retriever):
    def _install(self, slot, state, *rest):
        state.outbox.release()
        super()._install(slot, state, *rest)


class AcksBeforeDurable(Intake):
    def _acks_of(self, feeder, tasks):
        acks = super()._acks_of(feeder, tasks)
        acks.columns[5] = acks.columns[4]
        return acks


class CommitsHalf(Query):
    def _on_committed(self, env, body):
        outcomes = tuple(o._replace(durable=o.applied, missing=False) for o in body.outcomes)
        super()._on_committed(env, body._replace(outcomes=outcomes))


class IgnoresChecksums(Retriever):
    def _sound(self, blob, total):
        return True


class SuspendsEverything(Intake):
    def _accept(self, slot, chunk):
        if any(s.phase is TaskPhase.AWAITING for s in self.book.slots.values()):
            slot.hold(chunk, self.settings.waiting_chunks_max)
        else:
            super()._accept(slot, chunk)


class WaitsWithoutLimit(Intake):
    def _wait(self, slot, chunk):
        self.waits += 1
        slot.hold(chunk, 1_000_000)


class IgnoresTheServersLimit(StateServer):
    def _on_put(self, env, body):
        settings, self.settings = self.settings, replace(self.settings, server_bytes_max=2**60)
        super()._on_put(env, body)
        self.settings = settings


class Unclaimed(Archive):
    def begin(self):
        self.claimed = True
        super().begin()


class IgnoresTerms(Feeder):
    def _adopt(self, old, new):
        if old is None:
            super()._adopt(old, new)
        self._flush()

    def _on_acks(self, env, body):
        acks = tuple(ack._replace(term=ZERO_EPOCH) for ack in body.acks)
        self.outbox.terms[:] = 0
        super()._on_acks(env, Acks(body.feeder, acks))


class TakesAnyParent(Archive):
    @staticmethod
    def chain(known, item):
        return (*known.chain, item.key) if item.parent and known else (item.key,)


class KeepsPendingRecords(Ledger):
    def restore(self, task, to, epoch):
        newest = self.record.get(task)
        super().restore(task, to, epoch)
        if newest is not None:
            self.record[task] = newest  # though its task goes on from an older one


class ForgetsParents(Archive):
    def live(self):
        return {file_of(kept.key) for kept in self.books.ledger.record.values()}


class RestoresTheSnapshot(Retriever):
    def _from_records(self, chains):
        super()._from_records({task: chain[:1] for task, chain in chains.items()})


class ForgetsTheLastChanges(Copier):
    def rest(self, slot, to):
        out = self.outgoing.get(slot.task)
        if out is not None and out.mark is not None:
            out.mark = self.operator.seal(slot.state.app)  # nothing has changed since just now
        return super().rest(slot, to)


# 31 ----------------------------------------------------------------- plan with who shall leave


class KeepsWhoShallLeave(Conductor):
    def __init__(self, books, *rest):
        super().__init__(books, *rest)
        books.leaving = frozenset


# 32 ----------------------------------------------------------------- what a sample had shown unseen


class HoldsUpItsLoop(Intake):
    def _throttled(self, state, feeder):
        return state.outbox.retained >= self.settings.loop_chunks_max  # of the loop, too


class PassesNoOrderOn(Rerouter):
    def add_order(self, item, reply_to):
        self.rerouted += 1


class KeepsWhatWasGivenUp(Staging):
    def unstage(self, body):
        pass


class GivesNothingBack(Conductor):
    def stand_in(self, peer):
        over = self.migration is not None and not self.migration.active
        if over:
            self._head_unasked = lambda *_: None
        super().stand_in(peer)
        self.__dict__.pop("_head_unasked", None)


MUTANTS: dict[str, type[Classes]] = {
    "drop the duplicate check": with_parts(intake=TakesDuplicates),
    "serve on after the cut": with_parts(manager=ServesOn),
    "delete the frozen copy before installed": with_parts(handover=DeletesTheCopy),
    "ignore incarnations": with_class(master=BelievesAnybody, feeder=FeederOfNoIncarnation),
    "release a leaving node too early": master_with(conductor=DismissesEarly),
    "install a state whose epoch is stale": with_parts(retriever=InstallsTheOldest),
    "forget the wait buffer on a second move": with_parts(manager=ForgetsTheWaiting),
    "re-route without order": with_node(node_with(TakesReroutedAtOnce, rerouter=ReroutesBackwards)),
    "bounce a chunk of a newer epoch back": with_parts(intake=Bounces),
    "install one's own stale copy after A-B-A": with_parts(retriever=PrefersItsOwnCopy),
    "acknowledge at the rerouter": with_parts(rerouter=AcknowledgingRerouter),
    "apply a staged batch of a losing attempt": with_parts(staging=AppliesLosers),
    "let a full wait buffer block its connection": with_node(BlocksTheConnection),
    "accept a checkpoint of a fenced incarnation": with_class(master=AcceptsFencedRecords),
    "serve without a lease": with_parts(turn=IgnoresItsLease),
    "forget the outbox of a moved task": with_parts(retriever=ForgetsTheOutbox),
    "emit before it is durable": with_parts(retriever=EmitsBeforeDurable),
    "acknowledge as durable what is only applied": with_parts(intake=AcksBeforeDurable),
    "commit a batch that is not durable": with_class(query=CommitsHalf),
    "install a state without looking at its checksum": with_parts(retriever=IgnoresChecksums),
    "forget what is fed when chunks are gathered": with_parts(intake=ForgetsTheGathered),
    "suspend tasks that do not move": with_parts(intake=SuspendsEverything),
    "let the wait buffer grow without limit": with_parts(intake=WaitsWithoutLimit),
    "hold more than the state server may": with_class(server=IgnoresTheServersLimit),
    "read the manifest without claiming the generation": master_with(archive=Unclaimed),
    "go on after a restore as if nothing had happened": with_class(feeder=IgnoresTerms),
    "take a change whose parent is not there": master_with(
        archive=TakesAnyParent, ledger=KeepsPendingRecords
    ),
    "let go a record that the manifest names": master_with(archive=ForgetsParents),
    "restore a snapshot without its changes": with_parts(retriever=RestoresTheSnapshot),
    "leave the last changes out of the rest": with_parts(copier=ForgetsTheLastChanges),
    "plan with nodes that shall leave": master_with(conductor=KeepsWhoShallLeave),
    "hold a loop up because it is full": with_parts(intake=HoldsUpItsLoop),
    "pass no order on": with_parts(rerouter=PassesNoOrderOn),
    "keep rows that were given up": with_parts(staging=KeepsWhatWasGivenUp),
    "give nothing back to who was stood in for": master_with(conductor=GivesNothingBack),
}


# -------------------------------------------------------------------- how they are hunted


class Hunt(NamedTuple):
    """The schedules that a mutant is let loose on, and within how many it must be caught."""

    seeds_max: int
    faults: str = "all"
    nodes: int = 4
    tasks: int = 16
    rescales_max: int = 4

    def schedule(self, seed: int) -> Schedule:
        kinds = parse_faults(self.faults)
        return generate(seed, self.nodes, self.tasks, kinds, rescales_max=self.rescales_max)


DEFAULT = Hunt(60)
CROWDED = Hunt(100, "clog,partition", nodes=3, tasks=4, rescales_max=16)
"""Few tasks, so each has much to do; many rescales, one before the other is over; late news."""

HUNTS: dict[str, Hunt] = {
    "ignore incarnations": Hunt(40, "crash,reset,pause,feeder"),
    "release a leaving node too early": CROWDED,
    "install a state whose epoch is stale": CROWDED,
    "re-route without order": CROWDED,
    "bounce a chunk of a newer epoch back": CROWDED._replace(faults="lag,reorder"),
    "install one's own stale copy after A-B-A": CROWDED,
    "acknowledge at the rerouter": CROWDED,
    "emit before it is durable": Hunt(60, "crash,reset", nodes=3, tasks=4),
    "install a state without looking at its checksum": Hunt(
        60, "corrupt", nodes=6, tasks=32, rescales_max=16
    ),
    "let the wait buffer grow without limit": Hunt(80, "full,narrow,server", rescales_max=16),
    "read the manifest without claiming the generation": Hunt(100, "master", nodes=3, tasks=4),
    "take a change whose parent is not there": Hunt(100, "crash,reset,store", nodes=3, tasks=4),
    "restore a snapshot without its changes": Hunt(60, "crash,reset,master", nodes=3, tasks=4),
    "keep rows that were given up": Hunt(60, "attempt", nodes=3, tasks=8),
    "give nothing back to who was stood in for": Hunt(300, "crash,launch", rescales_max=1),
}


def hunt(name: str) -> tuple[int, str]:
    """Let a mutant loose; give after how many seeds it was caught (0: never) and by which checker.

    A mutant that falls over by itself is not caught by that.
    """
    plan = HUNTS.get(name, DEFAULT)
    for seed in range(plan.seeds_max):
        outcome = run(plan.schedule(seed), MUTANTS[name])
        if outcome.caught_by:
            return seed + 1, outcome.caught_by
    return 0, ""


def table() -> str:
    """Write what it took to catch each, as a table for the docs."""
    rows = [
        "| mutation | schedules | seeds it took | caught by | must be caught within |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in MUTANTS:
        plan = HUNTS.get(name, DEFAULT)
        where = (
            f"{plan.faults}; {plan.nodes} nodes, {plan.tasks} tasks, ≤ {plan.rescales_max} rescales"
        )
        seeds, by = hunt(name)
        rows.append(f"| {name} | {where} | {seeds} | {by} | {plan.seeds_max} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())  # noqa: T201
