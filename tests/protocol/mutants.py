"""Machines that are broken on purpose, each in the one way its name says.

A simulator that cannot find these cannot find anything: `test_mutants` demands that every one is
caught within a bounded number of seeds.
"""

from __future__ import annotations

from meander.protocol.conductor import Conductor
from meander.protocol.feeder import Feeder
from meander.protocol.machine import Machine
from meander.protocol.manager import MigrationManager
from meander.protocol.master import Master
from meander.protocol.membership import Membership, Status
from meander.protocol.messages import Acks, Dismiss, PutDone
from meander.protocol.node import Node
from meander.protocol.query import Query
from meander.protocol.rerouter import Rerouter
from meander.protocol.retriever import Retriever
from meander.protocol.server import StateServer
from meander.protocol.slot import Cause, Phase
from meander.protocol.staging import Staging
from meander.testing.process import Classes


def with_node(node: type[Node]) -> type[Classes]:
    return type("Broken", (Classes,), {"node": node})


def with_parts(**parts: type) -> type[Classes]:
    """A node of which some parts are broken."""

    return with_node(node_with(Node, **parts))


def node_with(base: type[Node], **parts: type) -> type[Node]:
    class Broken(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            for name, part in parts.items():
                setattr(self, name, part(self))

    return Broken


# 1 ------------------------------------------------------------------ drop the duplicate check


class TakesDuplicates(Node):
    def _accept(self, slot, chunk):
        position = slot.state.positions.get(chunk.feeder)
        if position is not None and chunk.number <= position.number:
            self._apply(slot, slot.state, chunk, None)  # as if it had never been seen
        else:
            super()._accept(slot, chunk)


# 2 ------------------------------------------------------------------ serve on after the cut


class ServesOn(MigrationManager):
    def _lose(self, runs):
        for slot in self.node.slots.values():
            lost = not any(lb <= slot.task < ub for lb, ub in runs)
            if slot.phase is Phase.SERVING and lost and (slot.task, slot.tenure) not in self.copies:
                state = slot.state
                self.freeze(slot)
                slot.state = state
        waiting = {t: s for t, s in self.node.slots.items() if s.phase is Phase.AWAITING}
        everything, self.node.slots = self.node.slots, waiting
        super()._lose(runs)
        self.node.slots = everything


# 3 ------------------------------------------------------------------ delete the copy too early


class DeletesTheCopy(MigrationManager):
    def put_done(self, body: PutDone) -> None:
        super().put_done(body)
        if body.held:
            self.copies.pop((body.task, body.tenure), None)


# 4 ------------------------------------------------------------------ ignore incarnations


class NoIncarnations(Membership):
    def up(self, node, incarnation=None):
        return super().up(node)


class BelievesAnybody(Master):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.membership = NoIncarnations(self.epoch.generation)

    def _counts(self, env, item):
        return True

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
            if peer.status is Status.LEAVING and not self.master.ledger.tasks_of(peer.id):
                peer.dismissing = True
                self.master._send(peer.id, Dismiss(), peer.incarnation)


class EarlyMaster(Master):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        old = self.conductor
        self.conductor = DismissesEarly(self, old.planner, old.carrier, old.tau)


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
                        self._apply(slot, slot.state, chunk, position)
        super()._on_chunks(env, body)


class ReroutesBackwards(Rerouter):
    def flush(self):
        for chunks in self._chunks.values():
            chunks.reverse()
        super().flush()


# 9 ------------------------------------------------------------------ bounce


class Bounces(Node):
    def _take(self, chunk, epoch):
        super()._take(chunk, min(epoch, self.epoch))


# 10 ----------------------------------------------------------------- one's own stale copy


class PrefersItsOwnCopy(Retriever):
    def await_(self, slot):
        super().await_(slot)
        for (task, _), blob in list(self.node.manager.copies.items()):
            if task == slot.task and slot.phase is Phase.AWAITING:
                self._install_blob(slot, blob, 0.0)


# 11 ----------------------------------------------------------------- acknowledge at the rerouter


class AcknowledgingRerouter(Rerouter):
    def add(self, chunk):
        from meander.model import ZERO_EPOCH
        from meander.protocol.messages import Ack

        super().add(chunk)
        assert self.node.table is not None
        term = self.node.table.term(chunk.task) or ZERO_EPOCH
        ack = Ack(chunk.task, term, chunk.incarnation, chunk.number, 0)
        if not chunk.feeder.startswith("loop/"):
            self.node._send(chunk.feeder, Acks(chunk.feeder, (ack,)))


# 12 ----------------------------------------------------------------- apply a losing attempt


class AppliesLosers(Staging):
    def _apply(self, slot, item, rows):
        everything = [
            staged
            for key, staged in slot.state.staged.items()
            if key[:2] == (item.query, item.batch)
        ]
        super()._apply(slot, item, everything)


# 13 ----------------------------------------------------------------- a full buffer blocks


class BlocksTheConnection(Node):
    def _on_chunks(self, env, body):
        most = self.settings.waiting_chunks_max
        if any(
            slot.phase is Phase.AWAITING and slot.pending_chunks >= min(most, 4)
            for slot in self.slots.values()
        ):
            return  # nothing is read from a connection as long as one task cannot take more
        super()._on_chunks(env, body)


# 14 ----------------------------------------------------------------- a fenced checkpoint


class AcceptsFencedRecords(Master):
    def _counts(self, env, item):
        return True

    def _on_checkpointed(self, env, body):
        peer = self.membership.peers.get(env.sender)
        if peer is None:
            return
        kept = peer.incarnation, peer.status
        peer.incarnation, peer.status = env.incarnation, Status.UP
        super()._on_checkpointed(env, body)
        peer.incarnation, peer.status = kept


# -------------------------------------------------------------------- further ones, of our own


class IgnoresItsLease(Node):
    @property
    def leased(self):
        return self.table is not None


class ForgetsTheOutbox(Retriever):
    def _install(self, slot, state, size, transfer_s):
        state.outbox.lanes.clear()
        state.outbox.active.clear()
        super()._install(slot, state, size, transfer_s)


class EmitsBeforeDurable(Node):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gated = False

    def _ack(self, feeder, task):
        self.gated = self.settings.checkpoint_s > 0
        try:
            return super()._ack(feeder, task)
        finally:
            self.gated = False


class AcksBeforeDurable(Node):
    def _ack(self, feeder, task):
        ack = super()._ack(feeder, task)
        return None if ack is None else ack._replace(durable=ack.applied)


class CommitsHalf(Query):
    def _on_committed(self, env, body):
        outcomes = tuple(o._replace(durable=o.applied, missing=False) for o in body.outcomes)
        super()._on_committed(env, body._replace(outcomes=outcomes))


class LosesWhatItHolds(StateServer):
    def _on_drop(self, env, body):
        super()._on_drop(env, body._replace(items=tuple((t, e, self.epoch) for t, e, _ in body.items)))


MUTANTS: dict[str, type[Classes]] = {
    "drop the duplicate check": with_node(TakesDuplicates),
    "serve on after the cut": with_parts(manager=ServesOn),
    "delete the frozen copy before installed": with_parts(manager=DeletesTheCopy),
    "ignore incarnations": type(
        "Broken", (Classes,), {"master": BelievesAnybody, "feeder": FeederOfNoIncarnation}
    ),
    "release a leaving node too early": type("Broken", (Classes,), {"master": EarlyMaster}),
    "install a state whose epoch is stale": with_parts(retriever=InstallsTheOldest),
    "forget the wait buffer on a second move": with_parts(manager=ForgetsTheWaiting),
    "re-route without order": with_node(
        node_with(TakesReroutedAtOnce, rerouter=ReroutesBackwards)
    ),
    "bounce a chunk of a newer epoch back": with_node(Bounces),
    "install one's own stale copy after A-B-A": with_parts(retriever=PrefersItsOwnCopy),
    "acknowledge at the rerouter": with_parts(rerouter=AcknowledgingRerouter),
    "apply a staged batch of a losing attempt": with_parts(staging=AppliesLosers),
    "let a full wait buffer block its connection": with_node(BlocksTheConnection),
    "accept a checkpoint of a fenced incarnation": type(
        "Broken", (Classes,), {"master": AcceptsFencedRecords}
    ),
    "serve without a lease": with_node(IgnoresItsLease),
    "forget the outbox of a moved task": with_parts(retriever=ForgetsTheOutbox),
    "emit before it is durable": with_node(EmitsBeforeDurable),
    "acknowledge as durable what is only applied": with_node(AcksBeforeDurable),
    "commit a batch that is not durable": type("Broken", (Classes,), {"query": CommitsHalf}),
}

__all__ = ["MUTANTS", "Cause"]
