"""The master's part that knows what is durable: takes records in, writes the manifest, lets files go.

    Checkpointed ──► it counts? ──► ledger.record ──► Store(manifest) ──► Stored ──► Accepted
                                                                                └──► Discard, Sweep

Rules of the file
  1. A generation begins with a manifest of its own, which says what it has found; nobody acts before.
  2. A record counts if the task's owner made it under its present tenure (or the oldest link of its
     chain did), and if it builds on what the ledger has for that task. Else it is as if it never was.
  3. One manifest is written at a time; what comes meanwhile goes into the next. Nobody is told that a
     record is durable before the manifest that names it is written.
  4. A file is let go only when neither the last manifests nor the next one name it, and nobody
     restores from it. What crashed writers left without a word is swept: files of past generations
     after the first manifest of this one, those of a lost node after its loss.
  5. What the store could not do is tried again, less and less often, and reported meanwhile. That
     the manifest could not be read never means that there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from meander.errors import InputError
from meander.model import Epoch, TaskId
from meander.protocol.backoff import Backoff
from meander.protocol.master.books import Books
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY, Manifest, ManifestLog
from meander.protocol.messages import (
    Accepted,
    Checkpointed,
    Discard,
    Ending,
    Envelope,
    Load,
    Loaded,
    News,
    PeerId,
    RecordNote,
    Store,
    Stored,
    Sweep,
)
from meander.protocol.records import file_of
from meander.protocol.spans import Spans, holds, spans, within

MANIFESTS_KEPT = 2
"""The newest, and the one before it: whoever reads it just now shall find its files."""
SWEPT_LEASES = 2
"""After so many leases nobody writes any more who was taken for lost."""
LOG = "log/"
ADVICE = "Until it works, nothing becomes durable and nothing is lost: make room or mend it"


class Archive:
    """Part of the master."""

    def __init__(self, books: Books, about: Mapping[str, Any], lineage: str = "") -> None:
        self.books, self.turn = books, books.turn
        self.about = dict(about)
        """What the manifest says of the operator."""
        self.lineage = lineage
        """That of the checkpoint; until the manifest is read, and if there is none, our own."""
        self.learnt: Mapping[str, Any] = {}
        """What the manifest keeps for drivers to come; the master makes no use of it."""
        self.troubles: dict[PeerId, str] = {}
        """What the store could not do when it was last asked, by who asked: nodes, or the master."""
        self._again = Backoff(books.turn.settings.retry_s)
        self.claimed = False
        """Whether the store has granted this generation: then the manifest is being read."""
        self.known = False
        """Whether it was: then the first one of this generation is written before anything begins."""
        self.saved_at: float | None = None
        """When the last manifest was written; None: none was."""
        self.unsaved = False
        self._writing = False
        """Whether the store has been asked for something that it has not answered: the claim, what the
        manifest says, then one manifest after another."""
        self._write_at = 0.0
        self._accepting: list[tuple[PeerId, int, RecordNote]] = []
        """Records that the next manifest will hold: (node, incarnation, record)."""
        self._written: list[tuple[PeerId, int, RecordNote]] = []
        """Those in the manifest that is being written, as far as somebody waits for them."""
        self._writing_records: dict[TaskId, Kept] = {}
        """All that it holds."""
        self._named: deque[Mapping[TaskId, Kept]] = deque(maxlen=MANIFESTS_KEPT)
        """What the last manifests hold."""
        self._log = ManifestLog()
        self._files: set[str] = set()
        """Files that are known and were not let go."""
        self._sweeps: list[tuple[float, Sweep]] = []
        """Where drivers before us and lost nodes may have left files, and from when on to look."""
        self._clean_at = 0.0

    # ------------------------------------------------------------------ the beginning

    def begin(self) -> None:
        """Make sure that no earlier master can write any more; then ask for what it has left."""
        if self._writing or not self._again.due(self.turn.now):
            return
        if self.known:
            self.hurry()
            self.save()
            return
        self._writing = True
        if self.claimed:  # what the manifest says now is final
            self._do(Load(MANIFEST_KEY))
        else:
            generation = self.turn.epoch.generation
            self._do(Store(CLAIM_KEY, str(generation).encode(), fence=generation))

    def loaded(self, event: Loaded) -> None:
        """The store answers about the manifest, or could not, and is asked again.

        Raises:
            InputError: if what it has cannot be used.
        """
        self._writing = False
        if event.again:
            self._failed(event.fault)
            return
        self._worked()
        self.read(event.data, event.fault)
        self.known = True
        self.save()

    def read(self, data: bytes | None, fault: str) -> None:
        """Take over what the last master left.

        Raises:
            InputError: if it cannot be used.
        """
        if data is None and fault:
            raise InputError(fault)
        ledger, found = self.books.ledger, dict[TaskId, Kept]()
        if data is not None:
            manifest = Manifest.load(data)
            if manifest.tasks != ledger.tasks:
                raise InputError(
                    f"it has {manifest.tasks} tasks and the operator is deployed with "
                    f"{ledger.tasks}: the number of tasks cannot change, deploy with "
                    f"tasks={manifest.tasks}"
                )
            found, self.lineage = manifest.records, manifest.lineage or self.lineage
            self.learnt = manifest.learnt
            self.books.offsets.clear()
            self.books.offsets.update(manifest.offsets)
        ledger.record, ledger.durable = dict(found), found
        self._files = _files(found)
        self._named.append(found)
        self._sweep_twice(Sweep(LOG, below=self.turn.epoch.generation))
        # A manifest of a driver before us may come to the store after this, and take back what we go
        # by. The first one of this generation hides it; so it is written before anybody is told of it.
        self.unsaved = True

    # ------------------------------------------------------------------ records

    def checkpointed(self, env: Envelope, body: Checkpointed) -> list[TaskId]:
        """Take in what a node has stored; name the tasks that must be installed there, then."""
        ledger, again = self.books.ledger, list[tuple[Spans, Epoch, int]]()
        installed = list[TaskId]()
        for item in body.items:
            tasks, known = self._take(ledger.counts(env.sender, env.incarnation, item), item)
            if known:
                again.append((spans(known), item.tenure, item.number))
            if not tasks:
                continue
            for task in tasks if ledger.chain else ():
                if task in ledger.chain and ledger.installed(task, item.tenure, env.sender):
                    installed.append(task)
            self._files.add(file_of(item.key))
            taken = item._replace(tasks=spans(tasks))
            self._accepting.append((env.sender, env.incarnation, taken))
            self.unsaved = True
        if again:
            self.turn.send(env.sender, Accepted(tuple(again)), env.incarnation)
        self.save()
        return installed

    def _take(self, tasks: Sequence[TaskId], item: RecordNote) -> tuple[list[TaskId], list[TaskId]]:
        """Enter the record of tasks where it is news; name those, and those whose manifest has it.

        Tasks with the same records share what is kept of them.
        """
        kept: dict[int, tuple[Kept | None, Kept | None]] = {}
        record, taken, again = self.books.ledger.record, list[TaskId](), list[TaskId]()
        for task in tasks:
            known = record.get(task)
            found = kept.get(id(known))
            if found is None:  # `known` stays in there, so nothing else is at its place meanwhile
                found = kept[id(known)] = known, self._next(known, item)
            if found[1] is not None:
                record[task] = found[1]
                taken.append(task)
            elif _has(known, item) and not self._pending(task, item.key):
                again.append(task)
        return taken, again

    @classmethod
    def _next(cls, known: Kept | None, item: RecordNote) -> Kept | None:
        """Give what is kept of a task with this record; None: it is no news, or fits nothing."""
        chain = () if _has(known, item) else cls.chain(known, item)
        return Kept(item.tenure, item.number, chain) if chain else None

    def _pending(self, task: TaskId, key: str) -> bool:
        """Whether the manifest that has a task's record is still to be written."""
        return any(
            item.key == key and holds(item.tasks, task)
            for _, _, item in (*self._accepting, *self._written)
        )

    @staticmethod
    def chain(known: Kept | None, item: RecordNote) -> tuple[str, ...]:
        """Give the chain that a record ends; empty: what it builds on is not there."""
        if not item.parent:
            return (item.key,)
        if known is None or known.chain[-1] != item.parent:
            return ()
        return (*known.chain, item.key)

    def lost(self, node: PeerId, incarnation: int) -> None:
        """A node is gone: what it wrote and could not report is swept, and once more later.

        A write that was under way may come to the store after it.
        """
        self.note(node, "")
        self._sweep_twice(Sweep(f"{LOG}{self.turn.epoch.generation}/{node}.{incarnation}/"))
        self.unsaved = True  # and with the next manifest

    def _sweep_twice(self, sweep: Sweep) -> None:
        """Look for what writers have left who may live on, and write, until they know better."""
        now = self.turn.now
        self._sweeps += [(now, sweep), (now + SWEPT_LEASES * self.turn.settings.lease_s, sweep)]

    # ------------------------------------------------------------------ the manifest

    def save(self) -> None:
        """Write the manifest if it changed; one write at a time."""
        books, now, generation = self.books, self.turn.now, self.turn.epoch.generation
        self.unsaved |= any(at <= now for at, _ in self._sweeps)  # they follow a manifest
        if self._writing or not self.unsaved or not self._again.due(now):
            return
        if now < self._write_at and not self._accepting:
            return  # offsets alone are not urgent
        self._writing, self.unsaved = True, False
        self._write_at = now + self.turn.settings.checkpoint_s
        self._written, self._accepting = self._accepting, []
        self._writing_records = dict(books.ledger.record)
        books.ledger.put_back.clear()
        manifest = Manifest(
            generation,
            books.ledger.tasks,
            tuple(books.membership.nodes() or books.first_nodes),
            self._writing_records,
            dict(books.offsets),
            self.about,
            self.lineage,
            self.learnt,
        )
        data, append = self._log.next(manifest)
        self._do(Store(MANIFEST_KEY, data, fence=generation, append=append))

    def describe(self, about: Mapping[str, Any]) -> None:
        """Have the next manifest say something else of the operator; it is written whole."""
        self.about, self.unsaved = dict(about), True
        self._log.forget()

    def learn(self, learnt: Mapping[str, Any]) -> None:
        """Have the next manifest keep this for drivers to come; it is written whole."""
        self.learnt, self.unsaved = learnt, True
        self._log.forget()

    def due_at(self) -> float:
        """Tell when the manifest is to be written; infinity: there is no need, or it is under way."""
        if self._writing:
            return inf
        if not self.unsaved:
            sweep_at = min((at for at, _ in self._sweeps), default=inf)
            return max(sweep_at, self._write_at, self._again.until)
        return self._again.until if self._accepting else max(self._write_at, self._again.until)

    @property
    def written(self) -> bool:
        """Whether the manifest says all there is to say."""
        return not (self.unsaved or self._writing)

    @property
    def saved(self) -> bool:
        """Whether the manifest says all there is to say, or cannot be written now."""
        return bool(self.troubles) or self.written

    def hurry(self) -> None:
        """Write what is unsaved at the next tick, however little it is."""
        self._write_at = self.turn.now

    def stored(self, event: Stored) -> None:
        """The store answers about the claim or a manifest."""
        if not self._writing or event.key != (MANIFEST_KEY if self.known else CLAIM_KEY):
            return
        self._writing = False
        if event.fenced:
            self.turn.tell(News.FENCED, generation=self.turn.epoch.generation)
            self.turn.exit(Ending.REPLACED, "a later generation has taken over")
            return
        if event.done:
            self._worked()
        else:
            self._failed(event.fault)
        if not self.known:
            self.claimed = event.done
            self.begin()
        elif event.done:
            self._accept_written()
            self._let_go()
        else:
            self._log.forget()
            self._accepting = self._written + self._accepting
            self.unsaved = True

    # ------------------------------------------------------------------ what the store could not do

    def _failed(self, why: str) -> None:
        self.note(self.turn.me, why or "it refuses")
        self._again.failed(self.turn.now)

    def _worked(self) -> None:
        self.note(self.turn.me, "")
        self._again.worked()

    def note(self, who: PeerId, why: str) -> None:
        """Hear what the store could not do for somebody; empty: all is well there."""
        before = bool(self.troubles)
        if why:
            self.troubles[who] = why
        else:
            self.troubles.pop(who, None)
        if before != bool(self.troubles):
            news = News.STORE_FAILS if self.troubles else News.STORE_WORKS
            self.turn.tell(news, who=who, why=why)

    def told(self) -> str:
        """Say why nothing becomes durable, and what to do; empty: all is well."""
        if self.troubles:
            who, why = next(iter(self.troubles.items()))
            more = f" and {len(self.troubles) - 1} more" if len(self.troubles) > 1 else ""
            what = f"the durable store fails {who}{more}: {why:.300}"
        elif self.books.checkpointing and not self.books.started:
            asked = ("the claim of this driver", "the manifest", "this driver's first manifest")
            what = f"the durable store has not answered about {asked[self.claimed + self.known]}"
        else:
            return ""
        return f"{what}. {ADVICE}"

    def _accept_written(self) -> None:
        books = self.books
        self._named.append(self._writing_records)
        books.ledger.written(self._writing_records)
        held = books.ledger.durable
        self.saved_at = self.turn.now
        by_node: dict[tuple[PeerId, int], list[tuple[Spans, Epoch, int]]] = {}
        for node, incarnation, item in self._written:
            has = {
                id(kept): item.key in kept.chain
                for kept in map(held.get, within(item.tasks))
                if kept
            }
            tasks = [task for task in within(item.tasks) if task in held and has[id(held[task])]]
            if tasks:
                told = by_node.setdefault((node, incarnation), [])
                told.append((spans(tasks), item.tenure, item.number))
        self._written = []
        for (node, incarnation), items in by_node.items():
            if books.membership.up(node, incarnation):  # else its tasks went on from older records
                self.turn.send(node, Accepted(tuple(items)), incarnation)

    # ------------------------------------------------------------------ letting go

    def live(self) -> set[str]:
        """Name the files that somebody may still need."""
        ledger = self.books.ledger
        live = _files(ledger.record, *self._named)
        for task, chain in ledger.chain.items():
            if chain[0].key and task in ledger.restoring:  # with all that it builds on
                live.update(map(file_of, ledger.restoring[task]))
        return live

    def _let_go(self) -> None:
        turn = self.turn
        if turn.now < self._clean_at:
            return
        self._clean_at = turn.now + turn.settings.checkpoint_s
        live = self.live()
        done = self._files - live
        if done:
            self._files &= live
            self._do(Discard(tuple(sorted(done))))
        due = [sweep for at, sweep in self._sweeps if at <= turn.now]
        self._sweeps = [(at, sweep) for at, sweep in self._sweeps if at > turn.now]
        for sweep in due:
            self._do(sweep._replace(keep=frozenset(live)))

    def _do(self, action: Store | Load | Discard | Sweep) -> None:
        self.turn.do(action)


def _has(known: Kept | None, item: RecordNote) -> bool:
    """Whether a record is no news: it is kept, or a later one is."""
    return known is not None and (item.tenure, item.number) <= known[:2]


def _files(*held: Mapping[TaskId, Kept]) -> set[str]:
    """Name the files that records lie in; most of what manifests hold is the same in all of them."""
    distinct = dict[int, Kept]()
    for records in held:
        distinct.update(zip(map(id, records.values()), records.values(), strict=True))
    return set(map(file_of, set[str]().union(*(kept.chain for kept in distinct.values()))))
