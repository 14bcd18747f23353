"""The retriever: fetches the states of tasks that are awaited, in order, and installs them.

What tuples already wait for comes first; then the order of the round's phase schedule, in which no
sender is asked by two at a time. A state comes in parts and is resumed where it stopped; it counts
when length and checksum are right. A few parts are under way at a time (`parts_max`): the next states
come while one is installed. The chain is asked from its newest link back: a link that was
never installed answers so, and then the one before it has the state.

The durable store answers every load, and is asked for a record once while it has not: only what it
could not read is asked for again, less and less often. It is asked for `loads_max` records at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from meander.errors import MalformedMessage
from meander.model import TaskId
from meander.protocol import reading, records
from meander.protocol.backoff import Backoff
from meander.protocol.messages import (
    NEVER,
    NOT_YET,
    STORE,
    Drop,
    Ending,
    Fetch,
    Load,
    Loaded,
    News,
    Part,
)
from meander.protocol.node.arrivals import Arrivals
from meander.protocol.node.book import Book
from meander.protocol.node.fetching import Fetching
from meander.protocol.node.handover import Handover
from meander.protocol.node.installs import Installs
from meander.protocol.node.slot import Cause, Slot, TaskPhase
from meander.protocol.outbox import restored
from meander.protocol.reading import Blob
from meander.protocol.records import NO_LANES, Base
from meander.protocol.state import Loader, OperatorPort, TaskState, checksum, decode
from meander.protocol.turn import LeasedTurn

ASKS_MAX = 4
"""A server that is silent that often has to wait until the others have been asked."""

Chain: TypeAlias = tuple[str, ...]
"""Names of the records that a task is restored from."""


class Retriever:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        *,
        installs: Installs,
        handover: Handover,
        arrivals: Arrivals,
        serve: Callable[[Slot], None],
    ) -> None:
        self.turn, self.book, self.operator = turn, book, operator
        self.installs, self.handover, self.arrivals = installs, handover, arrivals
        self.serve = serve
        """To be called when a task is installed: it takes what has waited for it."""
        self.awaited: dict[TaskId, Slot] = {}
        self._loading: dict[str, list[Chain]] = {}
        """What the durable store was asked for and has not answered, for which chains: `loads_max`."""
        self._waiting: dict[Chain, dict[TaskId, Slot]] = {}
        """Tasks that are restored from the same records, of which some are not here."""
        self._records: dict[str, Blob] = {}
        """Those that were read, as long as tasks are awaited."""
        self._again = Backoff(turn.settings.retry_s)
        """When the store may be asked for anything after it has failed …"""
        self._failing: dict[str, Backoff] = {}
        """… and when for a record that it could not read, though it has read others since."""
        self.trouble = ""
        """Why the store could not read what it was last asked for; empty: it could."""
        self.fetches: dict[TaskId, Fetching] = {}
        """Those that are being fetched from a state server."""
        self._installed_at = 0.0
        """When the last one was whole."""
        self.bad_blobs = 0
        """States refused for a wrong length or checksum, for the metrics."""
        self.deltas = 0
        """Changes that were applied to snapshots, for the metrics."""
        self.chains = 0
        """States that came with the records that hold them, for the metrics."""

    def await_(self, slot: Slot) -> None:
        """Take a task into the queue (again): its tenure is new."""
        self.forget(slot)
        self.awaited[slot.task] = slot

    def forget(self, slot: Slot) -> None:
        """A task need not be fetched any more."""
        self.awaited.pop(slot.task, None)
        self.fetches.pop(slot.task, None)
        if not self.awaited:
            self._records.clear()
            self._waiting.clear()
            self._failing.clear()

    def wanted(self, slot: Slot) -> None:
        """Tuples wait for this one now: if there is room, it goes first."""
        if self._room():
            self.pump()

    def _room(self) -> bool:
        """Whether one more part may be asked for."""
        under_way = sum(len(fetch.asked) for fetch in self.fetches.values())
        return under_way < self.turn.settings.parts_max

    def pump(self) -> None:
        """Ask for the next states, and again for those that do not come."""
        turn, now = self.turn, self.turn.now
        if not turn.leased:  # the answer would not be taken; the next tick under a lease asks
            return
        for fetch in list(self.fetches.values()):
            if fetch.asked and now - fetch.asked_at > turn.settings.retry_s:
                self._ask_again(fetch)
        self._from_copies()
        for fetch in list(self.fetches.values()):
            self._ask(fetch)
        stored = list[Slot]()
        for slot in self._queue(now):
            link = slot.chain[slot.link]
            if slot.task not in self.awaited or slot.task in self.fetches:
                continue  # what was installed before it has led to that
            if link.node == STORE:
                stored.append(slot)
            elif link.node == turn.me and link.incarnation == turn.incarnation:
                self._from_own_copy(slot)
            elif self._room():
                fetch = self.fetches[slot.task] = Fetching(slot, now)
                self._ask(fetch)
        self._from_store(stored)

    def _from_copies(self) -> None:
        """Install what was copied ahead and is whole; give the rest of others time to come."""
        arrivals = self.arrivals
        if not arrivals.arriving:
            return
        for slot in list(self.awaited.values()):
            found = arrivals.rest_for(slot)
            if found is None:
                continue
            if found.rest is None:
                slot.retry_at = max(slot.retry_at, slot.since + 2 * self.turn.settings.retry_s)
                continue
            arrivals.forget(slot.task)
            self._install_blob(slot, found.rest.data, 0.0, load=arrivals.loader(found))
            arrivals.completed += slot.phase is TaskPhase.SERVING

    def _queue(self, now: float) -> list[Slot]:
        fetched = self.fetches
        ready = [s for s in self.awaited.values() if s.retry_at <= now and s.task not in fetched]
        ready.sort(key=lambda s: (s.waiting_since is None, s.rank, s.task))
        return ready

    def _ask(self, fetch: Fetching) -> None:
        """Ask for more of a state, as far as there is room."""
        while fetch.more and self._room():
            fetch.asked_at = self.turn.now
            if not self._send_for(fetch, fetch.ask(self.turn.settings.part_bytes)):
                return

    def _ask_again(self, fetch: Fetching) -> None:
        """Ask once more for what did not come; a silent server must not make others wait."""
        fetch.asks += 1
        fetch.asked_at = self.turn.now
        if fetch.asks >= ASKS_MAX:
            self._later(fetch.slot)
            return
        for offset in sorted(fetch.asked):
            if not self._send_for(fetch, offset):
                return

    def _send_for(self, fetch: Fetching, offset: int) -> bool:
        slot, table = fetch.slot, self.turn.table
        assert table is not None
        link = slot.chain[slot.link]
        member = table.members.get(link.node)
        if member is None:  # it is gone; the master will say where the state is to come from
            self._later(slot)
            return False
        self.turn.send(member.server, Fetch(slot.task, link.tenure, offset))
        return True

    def _later(self, slot: Slot) -> None:
        slot.retry_at = self.turn.now + self.turn.settings.retry_s
        self.fetches.pop(slot.task, None)

    # ------------------------------------------------------------------ where states come from

    def _from_store(self, slots: Sequence[Slot]) -> None:
        """Install tasks that begin with nothing; ask for the records of the others."""
        known = list[Slot]()
        for slot in slots:
            if slot.task not in self.awaited:
                continue
            if not slot.chain[slot.link].key:
                app = self.operator.empty(slot.task)
                self._install(slot, TaskState(slot.task, app, gated=True), 0, 0.0)
            elif self._may_load() and self._again.due(self.turn.now):
                known.append(slot)
        self._ask_store(known)

    def _may_load(self) -> bool:
        return len(self._loading) < self.turn.settings.loads_max

    def _ask_store(self, slots: Sequence[Slot]) -> None:
        """Restore tasks whose records are all here; ask for what others lack."""
        alike: dict[Chain, list[Slot]] = {}
        for slot in slots:
            if slot.task not in self.awaited:
                continue
            try:
                alike.setdefault(self._chain(slot), []).append(slot)
            except MalformedMessage as error:
                self._unusable(slot, str(error.args[0]))
                return
        whole: dict[TaskId, Chain] = {}
        for chain, some in alike.items():
            lacking = [name for name in chain if name not in self._records]
            if lacking:
                self._load(some, chain, lacking)
            else:
                whole.update((slot.task, chain) for slot in some)
        if whole:
            self._restore(whole)

    def _restore(self, chains: Mapping[TaskId, Chain]) -> None:
        """Restore tasks whose records are all here, or end and say whose cannot be."""
        try:
            self._from_records(chains)
        except MalformedMessage as error:
            if len(chains) == 1:
                self._unusable(self.awaited[min(chains)], str(error.args[0]))
                return
            for task, chain in chains.items():  # so it is known whose they are
                if task in self.awaited and not self.turn.ended:
                    self._restore({task: chain})

    def _load(self, slots: Sequence[Slot], chain: Chain, lacking: Sequence[str]) -> None:
        """Ask for records, unless somebody has."""
        self._waiting.setdefault(chain, {}).update((slot.task, slot) for slot in slots)
        for slot in slots:
            slot.retry_at = self.turn.now + 4 * self.turn.settings.retry_s
        for name in lacking:
            if name in self._loading:
                if chain not in self._loading[name]:
                    self._loading[name].append(chain)
            elif name in self._failing and not self._failing[name].due(self.turn.now):
                for slot in slots:
                    slot.retry_at = self._failing[name].until
            elif self._may_load():
                self._loading[name] = [chain]
                self.turn.do(Load(name))
            else:
                for slot in slots:
                    slot.retry_at = 0.0
                return

    def _chain(self, slot: Slot) -> Chain:
        """Name what a task is restored from; its last record, when it is here, tells of the others."""
        key = slot.chain[slot.link].key
        last = self._records.get(key)
        return (key,) if last is None else (*last.chain(slot.task), key)

    def loaded(self, event: Loaded) -> None:
        """The durable store answers; without a lease that is not used, and asked for again."""
        if event.again:
            self.trouble = event.fault or "it cannot read"
            self._again.failed(self.turn.now)
            failing = self._failing.setdefault(event.key, Backoff(self.turn.settings.retry_s))
            failing.failed(self.turn.now)
        else:
            self.trouble = ""
            self._again.worked()
            self._failing.pop(event.key, None)
        waiting = [(chain, self._wanting(chain)) for chain in self._loading.pop(event.key, ())]
        slots = [slot for _, some in waiting for slot in some]
        if not slots:
            return
        if event.again or not self.turn.leased:
            for slot in slots:
                slot.retry_at = self._again.until
                if event.again:
                    slot.retry_at = max(slot.retry_at, self._failing[event.key].until)
            return
        if event.data is None:
            self._unusable(slots[0], event.fault or f"{event.key} is missing")
            return
        self._records[event.key] = Blob(event.data)
        here = list[Slot]()
        for chain, some in waiting:
            if some and all(name in self._records for name in chain):
                del self._waiting[chain]
                here += some
        self._ask_store(here)  # with its last record a task learns of the others
        if self.turn.ended:
            return
        if len(self._loading) <= self.turn.settings.loads_max // 2:
            self.pump()

    def _wanting(self, chain: Chain) -> list[Slot]:
        """Give the tasks that wait for a chain; some have other tenures by now."""
        slots, wanted = self._waiting.get(chain, {}).values(), (STORE, chain[-1])
        return [
            slot for slot in slots
            if self.awaited.get(slot.task) is slot
            and (slot.chain[slot.link].node, slot.chain[slot.link].key) == wanted
        ]  # fmt: skip

    def _from_records(self, chains: Mapping[TaskId, Chain]) -> None:
        """Restore tasks from records that are here, and install them."""
        blobs = {task: [self._records[name] for name in chain] for task, chain in chains.items()}
        states = reading.restore_all(blobs, self.operator)
        marks = records.seal(self.operator, [state.app for state in states])
        bases = {chain: self._base(chain) for chain in set(chains.values())}
        for name in {name for chain in chains.values() for name in chain}:
            if not self._records[name].joint:
                del self._records[name]  # it was of one task alone
        for (task, chain), state, mark in zip(chains.items(), states, marks, strict=True):
            slot, base, lanes = self.awaited.get(task), bases[chain], records.lanes_of(state)
            if slot is None:
                continue  # what was installed before it has led to that
            self.deltas += len(chain) - 1
            records.accepted(self.operator, state.app, mark)
            own = base._replace(lanes=lanes) if lanes else base
            self._install(slot, state, base.bytes, self.turn.now - slot.since, own, mark)

    def _base(self, chain: Chain) -> Base:
        """Give what the next records of tasks with this chain build on."""
        whole, *changes = (self._records[name].share for name in chain)
        return Base(chain, NO_LANES, whole, sum(changes))

    def _unusable(self, slot: Slot, why: str) -> None:
        """End: there is nothing to go on from, and nothing may take its place unsaid."""
        said = f"the checkpoint cannot be used: task {slot.task}: {why}"
        self.turn.exit(Ending.CHECKPOINT_UNUSABLE, said)

    def _from_own_copy(self, slot: Slot) -> None:
        frozen = self.handover.frozen.get((slot.task, slot.chain[slot.link].tenure))
        if frozen is None:
            self._never(slot)
        else:
            self._install_blob(slot, frozen.blob, 0.0)

    def check_part(self, body: Part) -> str | None:
        """Find what is wrong with a part as such."""
        if body.task < 0 or body.offset < 0 or body.total < NOT_YET:
            return "a task, an offset or a length is negative"
        if body.total >= 0 and body.offset + len(body.data) > body.total:
            return "it runs past the end of the state"
        return None

    def part(self, body: Part) -> None:
        """A state server answers, perhaps later than it was asked."""
        slot = self.awaited.get(body.task)
        if slot is None or slot.chain[slot.link].tenure != body.tenure:
            return
        fetch, now = self.fetches.get(body.task), self.turn.now
        if body.total == NOT_YET:
            if fetch is None:
                return
            self._later(slot)
        elif fetch is None:  # it is there now: its turn comes
            slot.retry_at = 0.0
        elif body.total == NEVER:
            self._never(slot)
        elif not fetch.take(body, now):
            return
        elif fetch.whole:
            self._take_whole(fetch, body.checksum)
        self.pump()

    def _take_whole(self, fetch: Fetching, total: int) -> None:
        """Install a state whose last part has come."""
        del self.fetches[fetch.slot.task]
        # While the one before it was on its way, this one had to wait.
        began, self._installed_at = max(fetch.began, self._installed_at), self.turn.now
        blob = fetch.blob()
        if self._sound(blob, total):
            self._install_blob(fetch.slot, blob, self.turn.now - began)
        else:
            self.bad_blobs += 1
            self._later(fetch.slot)

    def _sound(self, blob: bytes, total: int) -> bool:
        return checksum(blob) == total

    def _never(self, slot: Slot) -> None:
        """That link never had the state: ask the one before it."""
        self.fetches.pop(slot.task, None)
        if slot.link > 0:
            slot.link -= 1
        else:
            slot.link = len(slot.chain) - 1
            self._later(slot)

    # ------------------------------------------------------------------ install

    def _install_blob(
        self, slot: Slot, blob: bytes, transfer_s: float, *, load: Loader | None = None
    ) -> None:
        try:
            state = decode(slot.task, blob, self.operator, gated=True, load=load)
        except MalformedMessage as error:
            self.bad_blobs += 1
            self.turn.tell(News.STATE_REFUSED, task=slot.task, why=str(error))
            self._later(slot)
            return
        written, base, mark = state.written, None, None
        if written is not None:  # what changes from here on can be told apart
            (mark,) = records.seal(self.operator, [state.app])
            base = Base(written.chain, NO_LANES, written.whole_bytes, written.changed_bytes)
            self.chains += 1
        self._install(slot, state, len(blob), transfer_s, base, mark)

    def _release(self, slot: Slot) -> None:
        """Let the state server make room; the frozen copy stays until the master knows."""
        assert self.turn.table is not None
        link = slot.chain[slot.link]
        member = self.turn.table.members.get(link.node)
        if member is not None and link.node != self.turn.me:
            self.turn.send(member.server, Drop(((slot.task, link.tenure, slot.tenure),)))

    def _install(
        self,
        slot: Slot,
        state: TaskState,
        size: int,
        transfer_s: float,
        base: Base | None = None,
        mark: Any = None,
    ) -> None:
        """Serve: first what waited, in order, then what comes. `base`: the records it came from."""
        table = self.turn.table
        assert table is not None
        self.forget(slot)
        self.arrivals.forget(slot.task)
        slot.go(Cause.WHOLE)
        assert slot.phase is TaskPhase.SERVING
        slot.state, slot.dirty, slot.record, slot.urgent = state, base is None, None, False
        slot.base, slot.mark = base if mark else None, mark
        self.installs.add(slot, size, transfer_s)
        self._release(slot)
        slot.waiting_since = None
        state.retire(table.closed)
        restored(state.outbox, None, table)
        if state.outbox.active:
            self.book.loops.add(slot.task)
        self.serve(slot)
