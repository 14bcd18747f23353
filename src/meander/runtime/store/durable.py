"""The durable store: where records and the manifest are, on any file system (`filesystem`).

    claim/00000003                          which driver (generation) may write manifests
    manifest/00000003-00000017.json         which records are durable: generation, number
    log/3/n2.3000001/17                     records of many tasks: generation, node and incarnation

Files are never changed. The master's writes are fenced without a lock, a conditional write or a rename:

  * A driver *claims* its generation before it reads the manifest. Where a file can be created by one
    alone, one alone is granted a generation. Elsewhere everybody writes a claim under a name of its
    own, then looks: whoever sees another claim as high or higher has lost. (Two that begin in the same
    moment may both lose; they may not both win.)
  * A manifest counts if no higher claim is there *after* it is written. Either the old driver sees the
    new claim, and acknowledges nothing by its manifest; or the claim came after, and the new driver,
    which looks for manifests after its claim, finds that manifest.
  * The newest manifest is the last by name. A manifest that an old driver has written too late lies
    before those of the new one, which writes its own before it lets any file go.
  * All this rests on listings that are whole. A listing that fails raises; one that lacks the claim of
    the very driver that asks is not believed; and a manifest that is listed and cannot be read is not
    taken for none. Whoever asked learns that it failed, and asks again.
"""

from __future__ import annotations

import logging
import queue
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from meander.protocol.master.archive import MANIFESTS_KEPT
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY
from meander.protocol.messages import Discard, Load, Loaded, Store, Stored, Sweep
from meander.protocol.records import Assembly, Ref, cut
from meander.runtime.store.complaint import Complaint
from meander.runtime.store.filesystem import FileEntry, Files, open_files

log = logging.getLogger(__name__)

READERS = 4
"""So many records are read side by side: a far store answers late, not slowly."""
WHY_CHARS_MAX = 300
"""What is told of an error."""
_PART = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,200}")


class DurableStore(Protocol):
    """What the protocol needs of a store. Methods may raise OSError: then nothing counts as done."""

    def write(self, action: Store) -> Stored:
        """Write under a key, whole or not at all."""

    def read(self, key: str) -> bytes | None:
        """Give what is under a key; ValueError: it cannot be used."""

    def discard(self, keys: Sequence[str]) -> None:
        """Forget keys."""

    def sweep(self, action: Sweep) -> None:
        """Forget all keys under a prefix but some."""


class NoStore:
    """For deployments without checkpoints."""

    def write(self, action: Store) -> Stored:
        """Refuse."""
        return Stored(action.key, done=False)

    def read(self, key: str) -> bytes | None:
        """Know nothing."""
        return None

    def discard(self, keys: Sequence[str]) -> None:
        """Do nothing."""

    def sweep(self, action: Sweep) -> None:
        """Do nothing."""


class FileStore:
    """A store in files.

    >>> import tempfile
    >>> store = FileStore(tempfile.mkdtemp())
    >>> store.write(Store("generation", b"2", fence=2)).done
    True
    >>> store.write(Store("manifest", b"late", fence=1))
    Stored(key='manifest', done=False, fenced=True, extents=(), fault='')
    """

    def __init__(self, where: str | Path | Files) -> None:
        """Use a path, a URI, or files that are open."""
        self.files: Files = open_files(where) if isinstance(where, str | Path) else where
        self._me = secrets.token_hex(8)
        """Tells this driver's claim from others."""
        self._number = 0
        """Of the last manifest that was written."""

    # ------------------------------------------------------------------ writing

    def write(self, action: Store) -> Stored:
        """Write a file of records, a manifest, or a claim."""
        if action.key == CLAIM_KEY:
            granted = self._claim(action.fence)
            return Stored(action.key, done=granted, fenced=not granted)
        if action.key == MANIFEST_KEY:
            done = self._publish(action.fence, action.data)
            return Stored(action.key, done=done, fenced=not done)
        file = Assembly(action.data)  # record by record: never all of them in memory
        self.files.write(_path(action.key), file)
        return Stored(action.key, done=True, extents=tuple(file.extents))

    def _claim(self, generation: int) -> bool:
        name, mine = f"claim/{generation:08d}", self._me.encode()
        if self._fenced(generation):
            return False
        granted = self.files.create(name, mine)
        if granted is None:  # nobody can be kept from claiming it as well: look who did
            own = f"{name}-{self._me}"
            self.files.write(own, [mine])
            rivals = [n for n, path in self._claims() if n >= generation and path != own]
            if rivals:
                self.files.delete([own])
            granted = not rivals
        elif not granted:
            granted = self.files.read(name) == mine  # asked again, because the answer was lost
        if granted:
            self.files.delete(path for n, path in self._claims() if n < generation)
        return granted and not self._fenced(generation)

    def _publish(self, generation: int, data: bytes) -> bool:
        if self._replaced(generation):
            return False
        self._number += 1
        self.files.publish(f"manifest/{generation:08d}-{self._number:08d}.json", data)
        if self._replaced(generation):
            return False
        old = [entry.path for entry in self.manifests()[:-MANIFESTS_KEPT]]
        if old:
            self.files.delete(old)
        return True

    def _fenced(self, generation: int) -> bool:
        return any(n > generation for n, _ in self._claims())

    def _replaced(self, generation: int) -> bool:
        """Whether a later driver has claimed, going by a listing that has at least our own claim."""
        newest = max((n for n, _ in self._claims()), default=0)
        if newest < generation:
            raise OSError(
                f"{self.files.uri} does not list the claim of this driver (generation {generation}): "
                "was the folder emptied, or is its disk no longer mounted?"
            )
        return newest > generation

    def _claims(self) -> list[tuple[int, str]]:
        return [(_number(entry.path), entry.path) for entry in self.files.list("claim")]

    # ------------------------------------------------------------------ reading

    def read(self, key: str) -> bytes | None:
        """Read the newest manifest, or a record.

        Raises:
            ValueError: if a record is missing or damaged; names its file.
            OSError: if what is there cannot be read, or is not known.
        """
        if key == MANIFEST_KEY:
            return self._newest()
        if "#" not in key:
            return self.files.read(_path(key))
        ref = Ref.parse(key)
        return cut(ref, self.files.read(_path(ref.file), ref.offset, ref.length))

    def _newest(self) -> bytes | None:
        """Read the newest manifest; None: there is none.

        One that its driver lets go meanwhile has been followed by others: look again.
        """
        tried = ""
        while manifests := self.manifests():
            path = manifests[-1].path
            data = self.files.read(path)
            if data is not None:
                return data
            if path == tried:
                raise OSError(f"{self.files.uri}/{path} is listed and cannot be read")
            tried = path
        if tried:
            raise OSError(f"{self.files.uri}/{tried} was listed and is gone")
        return None

    def manifests(self) -> list[FileEntry]:
        """List the manifests, the newest last."""
        return [entry for entry in self.files.list("manifest") if entry.path.endswith(".json")]

    def generation(self) -> int:
        """Give the last generation that was claimed; 0 if none was."""
        written = [_number(entry.path) for entry in self.manifests()]
        return max([n for n, _ in self._claims()] + written, default=0)

    # ------------------------------------------------------------------ letting go

    def discard(self, keys: Sequence[str]) -> None:
        """Delete files."""
        self.files.delete([_path(key) for key in keys])

    def sweep(self, action: Sweep) -> None:
        """Delete what crashed writers left."""
        keep = frozenset(action.keep)
        found = [entry.path for entry in self.files.list(action.prefix.rstrip("/"))]
        left = [p for p in found if p.startswith(action.prefix) and p not in keep]
        self.files.delete(p for p in left if not (action.spare and p.startswith(action.spare)))


def _number(path: str) -> int:
    """Give the generation in the name of a claim or a manifest; 0 for anything else."""
    head = path.rpartition("/")[2].partition("-")[0].partition(".")[0]
    return int(head) if head.isascii() and head.isdecimal() else 0


def _path(key: str) -> str:
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise OSError(f"{key!r} is no key")
    return key


StoreAction: TypeAlias = Store | Load | Discard | Sweep


class StoreWorker:
    """Carries out store actions on threads of its own, and answers with events.

    Writes keep their order. Reads do not wait for writes: a task that is restored is waited for. Every
    write and every load is answered, whatever goes wrong: whoever asked need not ask twice.
    """

    def __init__(self, store: DurableStore) -> None:
        self.store = store
        self._writes: queue.SimpleQueue[StoreAction | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[StoreAction | None] = queue.SimpleQueue()
        """Not longer than what a node may have asked for (`retriever.LOADS_MAX`)."""
        self._threads: list[threading.Thread] = []
        kinds: dict[type, str] = {Store: "write", Load: "read", Discard: "delete", Sweep: "sweep"}
        self._complaints = {
            kind: Complaint(f"the durable store cannot {what}") for kind, what in kinds.items()
        }

    def start(self, deliver: Callable[[Stored | Loaded], None]) -> None:
        """Begin; answers go to `deliver`."""
        work = [("store", self._writes)] + [("store reads", self._reads)] * READERS
        for name, actions in work:
            thread = threading.Thread(
                target=self._run, args=(actions, deliver), name=name, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def give(self, action: StoreAction) -> None:
        """Hand in an action."""
        (self._reads if isinstance(action, Load) else self._writes).put(action)

    def close(self) -> None:
        """Finish what was handed in, and end."""
        for work in (self._writes, *[self._reads] * READERS):
            work.put(None)
        for thread in self._threads:
            thread.join(5.0)

    def _run(
        self,
        work: queue.SimpleQueue[StoreAction | None],
        deliver: Callable[[Stored | Loaded], None],
    ) -> None:
        while (action := work.get()) is not None:
            complaint = self._complaints[type(action)]
            try:
                answer = self._do(action)
            except Exception as error:
                why = _told(error)
                complaint.say(why)
                answer = _failed(action, why)
            else:
                complaint.over()
            if answer is not None:
                deliver(answer)

    def _do(self, action: StoreAction) -> Stored | Loaded | None:
        if isinstance(action, Store):
            return self.store.write(action)
        if isinstance(action, Load):
            try:
                return Loaded(action.key, self.store.read(action.key))
            except ValueError as error:
                return Loaded(action.key, None, str(error))
        if isinstance(action, Sweep):
            self.store.sweep(action)
        else:
            self.store.discard(action.keys)
        return None


def _told(error: Exception) -> str:
    """Describe an error in text that can travel; one that no store should raise, with its kind."""
    log.debug("the durable store failed", exc_info=error)
    why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return why[:WHY_CHARS_MAX].encode(errors="replace").decode()


def _failed(action: StoreAction, why: str) -> Stored | Loaded | None:
    if isinstance(action, Store):
        return Stored(action.key, done=False, fault=why)
    return Loaded(action.key, None, why, again=True) if isinstance(action, Load) else None
