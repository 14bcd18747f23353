"""What must hold inside one machine after every event; only a bug can break it.

`check(machine)` raises an `AssertionError` that says what is wrong and what led there. It looks at
everything, so it is for tests and for every k-th event of a simulation, never for production.
Truths between machines (one owner per task, nothing lost) are the business of `meander.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from meander.protocol.blocks import Block
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.offered import Offered
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Peer, Status
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.outbox import Outbox
from meander.protocol.state import TaskState

OWNED = (TaskPhase.SERVING, TaskPhase.AWAITING)


def check(machine: Machine) -> None:
    """Check any machine.

    Raises:
        AssertionError: with the first thing that is wrong, and the story.
    """
    if isinstance(machine, Node):
        check_node(machine)
    elif isinstance(machine, Master):
        check_master(machine)
    elif isinstance(machine, StateServer):
        check_server(machine)
    elif isinstance(machine, Feeder):
        check_offered(machine.outbox, machine)


def _demand(holds: bool, machine: Machine, text: str | Callable[[], str]) -> None:
    """Raise if something does not hold; a text that takes long to make is made only then."""
    if not holds:
        told = text if isinstance(text, str) else text()
        raise AssertionError("\n  ".join([f"{machine.me}: {told}", *machine.story()]))


# --------------------------------------------------------------------------- outboxes


def check_offered(outbox: Offered, machine: Machine) -> None:
    """Check the books of a feeder."""
    counts = outbox.durable, outbox.applied, outbox.sent, outbox.last
    ascending = all((low <= high).all() for low, high in pairwise(counts))
    _demand(ascending, machine, lambda: f"lanes of {outbox.feeder} count {counts}")
    next_, offsets = outbox.durable + 1, np.full(len(outbox.last), -1)
    for block in outbox.blocks:
        waits = block.numbers > outbox.durable[block.tasks]
        tasks, numbers, firsts, lasts, _ = block.columns[:, waits]
        whole = (numbers == next_[tasks]).all()
        _demand(whole, machine, partial(_kept, outbox, block, "not all of them"))
        sorted_ = (firsts <= lasts).all() and (offsets[tasks] <= firsts).all()
        _demand(sorted_, machine, partial(_kept, outbox, block, "their offsets do not ascend"))
        next_[tasks], offsets[tasks] = numbers + 1, lasts
    kept = (next_ == outbox.last + 1).all()
    _demand(kept, machine, f"{outbox.feeder} has let go of what is not durable")
    open_ = all((block.numbers > outbox.durable[block.tasks]).any() for block in outbox.blocks)
    _demand(open_, machine, f"{outbox.feeder} keeps what is durable")
    held = sum(block.bytes for block in outbox.blocks)
    _demand(held == outbox.bytes, machine, f"{outbox.feeder} keeps {held} bytes")


def _kept(outbox: Offered, block: Block, what: str) -> str:
    return f"{outbox.feeder} keeps {block.chunks()}: {what}"


def check_outbox(outbox: Outbox, machine: Machine) -> None:
    """Check the books of a feeder or a loop."""
    retained = 0
    for task, lane in outbox.lanes.items():
        counts = (0, lane.durable, lane.applied, lane.sent, lane.released, lane.last)
        ascending = all(a <= b for a, b in pairwise(counts))
        _demand(ascending, machine, f"lane {task} of {outbox.feeder} counts {counts}")
        numbers = [chunk.number for chunk in lane.chunks]
        whole = numbers == list(range(lane.durable + 1, lane.last + 1))
        _demand(whole, machine, f"lane {task} of {outbox.feeder} keeps {numbers}, not all of them")
        offsets = [offset for chunk in lane.chunks for offset in (chunk.first, chunk.last)]
        sorted_ = all(a <= b for a, b in pairwise(offsets))
        _demand(sorted_, machine, f"offsets of lane {task} do not ascend: {offsets}")
        idle = not lane.chunks or task in outbox.active
        _demand(idle, machine, f"lane {task} of {outbox.feeder} has chunks but is not active")
        retained += len(lane.chunks)
    _demand(retained == outbox.retained, machine, f"{outbox.feeder} keeps {retained} chunks")
    held = sum(chunk.size for lane in outbox.lanes.values() for chunk in lane.chunks)
    _demand(held == outbox.bytes, machine, f"{outbox.feeder} keeps {held} bytes")


# --------------------------------------------------------------------------- nodes


def _check_copies(node: Node) -> None:
    """Check what is copied ahead: the windows count what is under way."""
    copier = node.copier
    for to, window in copier.windows.items():
        outs = [out for out in copier.outgoing.values() if out.to == to]
        size = sum(out.bytes_under_way() for out in outs)
        _demand(size == window.under_way, node, f"{size} bytes are under way to {to}")


def check_node(node: Node) -> None:
    """Check a node: phases, buffers, copies, states.

    By the book: `slots` would close the express, and have the operator do what it has not been given.
    """
    for slot in node.book.slots.values():
        for fault in _faults_of(slot, node):
            _demand(False, node, f"task {slot.task}, {slot.phase.value}: {fault}")
        if slot.state is not None:
            _check_state(slot, slot.state, node)
    awaiting = {t for t, slot in node.book.slots.items() if slot.phase is TaskPhase.AWAITING}
    _demand(node.retriever.awaited.keys() == awaiting, node, "the retriever's queue is another")
    fetches = node.retriever.fetches
    _demand(fetches.keys() <= awaiting, node, "a state is fetched that nobody waits for")
    parts = sum(len(fetch.asked) for fetch in fetches.values())
    _demand(parts <= node.settings.parts_max, node, f"{parts} parts of states are asked for")
    _check_copies(node)
    parked = len(node.rerouter.parked)
    _demand(parked <= node.settings.parked_messages_max, node, f"{parked} messages are parked")
    for task, item in node.installs.unconfirmed.items():
        slot = node.book.slots[task]
        serves = slot.phase is TaskPhase.SERVING and slot.tenure == item.tenure
        _demand(serves, node, f"reports task {task} as installed, which it does not serve")
    if node.table is not None and not node.ended:
        _check_against_table(node)


def _faults_of(slot: Slot, node: Node) -> Iterator[str]:
    if (slot.state is not None) != (slot.phase is TaskPhase.SERVING):
        yield "it has a state if and only if it serves"
    kept = sum(len(lane) for lane in slot.pending.values())
    if kept != slot.pending_chunks or kept > node.settings.waiting_chunks_max:
        yield f"it keeps {kept} chunks and counts {slot.pending_chunks}"
    if slot.phase not in OWNED and (kept or slot.orders):
        yield "chunks or orders wait at a node that does not own the task"
    if slot.orders and slot.phase is TaskPhase.SERVING:
        yield "orders wait though it serves"
    for feeder, lane in slot.pending.items():
        odd = [n for n, c in lane.items() if (c.feeder, c.task, c.number) != (feeder, slot.task, n)]
        if odd or len({c.incarnation for c in lane.values()}) > 1:
            yield f"the buffer of {feeder} mixes chunks: {list(lane.values())}"
    if slot.phase is TaskPhase.AWAITING and not 0 <= slot.link < len(slot.chain):
        yield f"it asks link {slot.link} of {slot.chain}"
    if slot.record is not None and slot.state is None:
        yield "a record is under way of a state that is not here"


def _check_state(slot: Slot, state: TaskState, node: Node) -> None:
    check_outbox(state.outbox, node)
    for feeder, durable in state.durable.items():
        applied = state.positions.get(feeder)
        behind = applied is not None and durable[:2] <= applied[:2]
        _demand(behind, node, f"task {slot.task}: {feeder} is durable at {durable} after {applied}")
    for query, batch in state.durable_batches.items():
        behind = batch <= state.batches.get(query, -1)
        _demand(behind, node, f"task {slot.task}: batch {batch} of {query} is durable, not applied")
    for (query, batch, *_), item in state.staged.items():
        open_ = batch > state.batches.get(query, -1) and item.task == slot.task
        _demand(open_, node, f"task {slot.task} keeps rows of batch {batch}, which it has applied")
    for feeder, lane in slot.pending.items():
        position = state.positions.get(feeder)
        late = [] if position is None else [c for c in lane.values() if c[1:4:2] <= position[:2]]
        _demand(not late, node, f"task {slot.task} keeps chunks of {feeder} that it has applied")


def _check_against_table(node: Node) -> None:
    table = node.table
    assert table is not None
    _demand(table.epoch == node.epoch, node, f"it is at {node.epoch} with a table of {table.epoch}")
    member = table.members.get(node.me)
    current = member is not None and member.incarnation == node.incarnation
    runs = table.tasks_by_node.get(node.me, ()) if current else ()
    owned = {task for lb, ub in runs for task in range(lb, ub)}
    here = {task for task, slot in node.book.slots.items() if slot.phase in OWNED}
    _demand(here <= owned, node, f"it serves or awaits {here - owned}, which are another's")
    if node.gated:  # without checkpoints a lost task has an owner that has nothing of it
        _demand(here == owned, node, f"it owns {owned - here} and does nothing about it")
    named = {
        (task, tenure)
        for entry, tenure, incarnation in table.held_by_node.get(node.me, ())
        if incarnation == node.incarnation
        for task in range(entry.lb, entry.ub)
    }
    frozen, puts = node.handover.frozen.keys(), node.handover.puts
    _demand(frozen <= named, node, f"frozen states that no chain names: {frozen - named}")
    _demand(puts.keys() == named, node, f"chains name {named}, puts are {puts}")
    departing = {t for t, slot in node.book.slots.items() if slot.phase is TaskPhase.DEPARTING}
    kept = {task for task, _ in frozen}
    _demand(departing <= kept, node, f"no frozen copy of {departing - kept}, which are departing")


# --------------------------------------------------------------------------- servers, master


def check_server(server: StateServer) -> None:
    """Check a state server: its bytes and its limit."""
    sizes = [held.memory for held in server.held.values()]
    _demand(sum(sizes) == server.bytes, server, f"holds {sum(sizes)} bytes, counts {server.bytes}")


def check_master(master: Master) -> None:
    """Check the master's books against each other and against what it has published."""
    if not master.started:
        return
    ledger, members = master.ledger, master.membership
    alive = frozenset(members.nodes())
    for task, owner in enumerate(ledger.owner):
        _demand(owner in alive, master, f"task {task} belongs to {owner}, which is no member")
        ahead = max(ledger.tenure[task], ledger.term.get(task, ledger.tenure[task]))
        _demand(ahead <= master.epoch, master, f"task {task} has a tenure of {ahead}, not yet told")
    for task, chain in ledger.chain.items():
        tenures = [*(link.tenure for link in chain), ledger.tenure[task]]
        good = bool(chain) and all(a < b for a, b in pairwise(tenures))
        _demand(good, master, f"the chain of task {task} does not ascend: {chain}")
    for peer in members.peers.values():
        known = peer.acked <= master.epoch
        _demand(known, master, f"{peer.id} acknowledged {peer.acked}, which never was")
        leaves = not peer.dismissing or peer.status in (Status.LEAVING, Status.GONE)
        _demand(leaves, master, f"{peer.id} is being dismissed and is {peer.status.value}")
    migration = master.conductor.migration
    if migration is not None and migration.active:
        unwanted = {p.id for p in members.of_kind("node") if _unwanted(p, master.books.version)}
        good = unwanted.isdisjoint(migration.target.nodes)
        _demand(good, master, f"of {sorted(unwanted)} some are wanted, and shall leave")
    table = master.table
    assert table is not None
    _demand(table.fault is None, master, f"it has published a table with a fault: {table.fault}")
    told = [table.owner(task) for task in range(ledger.tasks)]
    _demand(told == ledger.owner, master, "the owners are others than it has published")
    _demand(not master.books.changed, master, "changes are left unpublished")


def _unwanted(peer: Peer, version: int) -> bool:
    """Whether somebody wants a node gone."""
    return peer.outgoing or peer.version != version
