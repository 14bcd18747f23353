"""The durable store: where records and the manifest are, on any file system (`filesystem`).

    claim/00000003                            which driver (generation) may write manifests
    manifest/00000003-00000017-00000000.json  which records are durable: generation, number, whole
    manifest/00000003-00000017-00000001.json  the first change of that; they are read as one
    log/3/n2.3000001/17                       records of many tasks: generation, node and incarnation

Files are never changed. The master's writes are fenced without a lock, a conditional write or a rename:

  * A driver *claims* its generation before it reads the manifest. Where a file can be created by one
    alone (a link; `If-None-Match`), the name is the generation's. Elsewhere everybody writes a claim
    under a name of its own. Then everybody looks: whoever sees another claim as high or higher has
    lost, and takes back what has a name of its own. (Two that begin in the same moment may both lose;
    they may not both win, even if only one of them can create files alone.)
  * A claim that was granted is not taken back, nor looked at for rivals a second time: by then there
    may be one, which has seen it and has lost; if both were taken back, nobody could tell that the
    generation was given away.
  * A manifest counts if no higher claim is there *after* it is written. Either the old driver sees the
    new claim, and acknowledges nothing by its manifest; or the claim came after, and the new driver,
    which looks for manifests after its claim, finds that manifest.
  * The newest manifest is the last by name. A manifest that an old driver has written too late lies
    before those of the new one, which writes its own before it lets any file go. If there is none yet,
    and the new one dies, whoever comes next goes on from the late one: nothing counted since.
  * All this rests on listings that are whole. A listing that fails raises; one that lacks the claim of
    the very driver that asks is not believed; and a manifest that is listed and cannot be read is not
    taken for none. Whoever asked learns that it failed, and asks again.
  * A listing takes a while, and what comes or goes meanwhile is in it or not. Claims are deleted from
    the lowest on: if one's own is still there after a listing, no higher one has gone meanwhile, so
    those that were there are in it. Of the manifests a driver deletes only some before its own.
"""

from __future__ import annotations

import queue
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from meander.protocol.master.archive import MANIFESTS_KEPT
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY
from meander.protocol.messages import Load, Loaded, Store, Stored, Sweep
from meander.protocol.records import Assembly, Ref, cut
from meander.runtime.clock import REAL, Clock
from meander.runtime.store.answering import DurableStore, StoreAction, answer, complaints
from meander.runtime.store.filesystem import FileEntry, Files, open_files
from meander.runtime.store.steps import (
    Create,
    Delete,
    List,
    Publish,
    Read,
    Steps,
    WriteFile,
    carry_out,
    nothing_to_do,
)

READERS = 4
"""So many records are read side by side: a far store answers late, not slowly."""
_PART = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,200}")

_BESIDE = re.compile(r"\.([0-9]{8,})(?:-[0-9]{8,}-[0-9]{8,}\.json)?\..+\.[0-9]+")
"""What `filesystem.Besides` makes of the name of a claim or a manifest."""


class NoStore:
    """For deployments without checkpoints."""

    def writing(self, action: Store) -> Steps[Stored]:
        """Refuse."""
        return nothing_to_do(Stored(action.key, done=False))

    def reading(self, key: str) -> Steps[bytes | None]:
        """Know nothing."""
        return nothing_to_do(None)

    def discarding(self, keys: Sequence[str]) -> Steps[None]:
        """Do nothing."""
        return nothing_to_do(None)

    def sweeping(self, action: Sweep) -> Steps[None]:
        """Do nothing."""
        return nothing_to_do(None)


class FileStore:
    """A store in files: what it does as steps (`writing`, `reading`, …), and the same done at once.

    >>> import tempfile
    >>> store = FileStore(tempfile.mkdtemp())
    >>> store.write(Store("generation", b"2", fence=2)).done
    True
    >>> store.write(Store("manifest", b"late", fence=1))
    Stored(key='manifest', done=False, fenced=True, extents=(), fault='')
    """

    def __init__(self, where: str | Path | Files, me: str = "") -> None:
        """Use a path, a URI, or files that are open; `me` is drawn unless told."""
        self.files: Files = open_files(where) if isinstance(where, str | Path) else where
        self._me = me or secrets.token_hex(8)
        """Tells this driver's claim from others."""
        self._own = ""
        """The file of its claim."""
        self._sure = False
        """Whether its last manifest counted: then the next is written, and looked after, at once. Else
        nothing is written before it is known who may: there may be another disk by now."""
        self._number = self._change = 0
        """Of the last manifest that was written whole, and of its last change."""

    # ------------------------------------------------------------------ at once

    def write(self, action: Store) -> Stored:
        """Write a file of records, a manifest, or a claim."""
        return carry_out(self.writing(action))

    def read(self, key: str) -> bytes | None:
        """Read the newest manifest, or a record.

        Raises:
            ValueError: if a record is missing or damaged; names its file.
            OSError: if what is there cannot be read, or is not known.
        """
        return carry_out(self.reading(key))

    def newest(self) -> tuple[str, bytes] | None:
        """Read the newest manifest, and name its file; None: there is none.

        Raises:
            OSError: if what is there cannot be read, or is not known.
        """
        return carry_out(self._newest())

    def manifests(self) -> list[FileEntry]:
        """List the manifests, the newest last."""
        return carry_out(self._manifests())

    def generation(self) -> int:
        """Give the last generation that was claimed; 0 if none was."""
        return carry_out(self._generation())

    def discard(self, keys: Sequence[str]) -> None:
        """Delete files."""
        carry_out(self.discarding(keys))

    def sweep(self, action: Sweep) -> None:
        """Delete what crashed writers left."""
        carry_out(self.sweeping(action))

    # ------------------------------------------------------------------ writing

    def writing(self, action: Store) -> Steps[Stored]:
        """Write a file of records, a manifest, or a claim."""
        if action.key == CLAIM_KEY:
            granted = yield from self._claim(action.fence)
            return Stored(action.key, done=granted, fenced=not granted)
        if action.key == MANIFEST_KEY:
            done = yield from self._publish(action)
            return Stored(action.key, done=done, fenced=not done)
        file = Assembly(action.data)  # record by record: never all of them in memory
        yield WriteFile(self.files, _path(action.key), file)
        return Stored(action.key, done=True, extents=tuple(file.extents))

    def _claim(self, generation: int) -> Steps[bool]:
        own, mine = f"claim/{generation:08d}", self._me.encode()
        claims = yield from self._claims()
        if any(n > generation for n, _ in claims):
            return False
        created: bool | None = yield Create(self.files, own, mine)
        if created is None:  # nobody can be kept from claiming it as well
            own = f"{own}-{self._me}"
            if own != self._own:
                yield WriteFile(self.files, own, [mine])
        elif not created and (yield Read(self.files, own)) != mine:  # mine: the answer was lost
            return False
        claims = yield from self._claims()
        if own != self._own and any(n >= generation and path != own for n, path in claims):
            if created is None:  # else leave it: by then the name may be another's
                yield Delete(self.files, [own])
            return False
        self._own = own  # from now on it is not taken back: see above
        for n, path in claims:
            if n < generation:
                yield Delete(self.files, [path])  # one by one, the lowest first
        return not (yield from self._replaced(generation))

    def _publish(self, action: Store) -> Steps[bool]:
        generation = action.fence
        sure, self._sure = self._sure, False
        if not sure and (yield from self._replaced(generation)):
            return False
        if action.append:
            self._change += 1
        else:
            self._number, self._change = self._number + 1, 0
        name = f"manifest/{generation:08d}-{self._number:08d}-{self._change:08d}.json"
        yield Publish(self.files, name, action.data)
        if (yield from self._replaced(generation)):
            return False
        self._sure = True
        if not action.append:
            yield from self._let_go_before(name)
        return True

    def _let_go_before(self, name: str) -> Steps[None]:
        """Delete the manifests before this one, but for the last of them with its changes."""
        manifests = yield from self._manifests()
        upto = [entry.path for entry in manifests if entry.path <= name]
        kept = sorted({_log_of(path) for path in upto})[-MANIFESTS_KEPT:]
        gone = [path for path in upto if _log_of(path) not in kept]
        if gone:
            yield Delete(self.files, gone)

    def _replaced(self, generation: int) -> Steps[bool]:
        """Whether a later driver has claimed, going by a listing that our own claim has outlived."""
        for _ in range(2):
            claims = yield from self._claims()
            if any(n > generation for n, _ in claims):
                return True
            listed = any(path == self._own for _, path in claims)
            if listed and (yield Read(self.files, self._own)) == self._me.encode():
                return False
        raise OSError(
            f"{self.files.uri} does not list the claim of this driver (generation {generation}): "
            "was the folder emptied, or is its disk no longer mounted?"
        )

    def _claims(self) -> Steps[list[tuple[int, str]]]:
        entries: list[FileEntry] = yield List(self.files, "claim")
        return [(_number(entry.path), entry.path) for entry in entries]

    # ------------------------------------------------------------------ reading

    def reading(self, key: str) -> Steps[bytes | None]:
        """Read the newest manifest, or a record; raises what `read` raises."""
        if key == MANIFEST_KEY:
            newest = yield from self._newest()
            return None if newest is None else newest[1]
        data: bytes | None
        if "#" not in key:
            data = yield Read(self.files, _path(key))
            return data
        ref = Ref.parse(key)
        data = yield Read(self.files, _path(ref.file), ref.offset, ref.length)
        return cut(ref, data)

    def _newest(self) -> Steps[tuple[str, bytes] | None]:
        """Read the newest manifest, and name its file; None: there is none.

        Those that are let go meanwhile have been followed by others: look again.
        """
        tried: str | None = None
        while True:
            manifests = yield from self._manifests()
            path = manifests[-1].path if manifests else ""
            parts = list[bytes | None]()
            for part in manifest_parts(path) if path else ():
                parts.append((yield Read(self.files, part)))
            if parts and None not in parts:
                return path, b"".join(part for part in parts if part is not None)
            if tried and not path:
                raise OSError(f"{self.files.uri}/{tried} was listed and is gone")
            if path == tried:
                break
            tried = path
        if path:
            raise OSError(f"{self.files.uri}/{path} is listed and cannot be read")
        return None

    def _manifests(self) -> Steps[list[FileEntry]]:
        entries: list[FileEntry] = yield List(self.files, "manifest")
        return [entry for entry in entries if entry.path.endswith(".json")]

    def _generation(self) -> Steps[int]:
        manifests = yield from self._manifests()
        claims = yield from self._claims()
        written = [_number(entry.path) for entry in manifests]
        return max([n for n, _ in claims] + written, default=0)

    # ------------------------------------------------------------------ letting go

    def discarding(self, keys: Sequence[str]) -> Steps[None]:
        """Delete files."""
        yield Delete(self.files, [_path(key) for key in keys])

    def sweeping(self, action: Sweep) -> Steps[None]:
        """Delete what crashed writers left.

        With what is of earlier generations goes what their drivers wrote beside a claim or a manifest,
        and did not bring there. One that lives finds that its write has failed: it was replaced.
        """
        entries: list[FileEntry] = yield List(self.files, action.prefix.rstrip("/"))
        yield Delete(self.files, [e.path for e in entries if action.takes(e.path)])
        for folder in ("claim", "manifest") if action.below else ():
            entries = yield List(self.files, folder, beside=True)
            yield Delete(
                self.files, [e.path for e in entries if 0 < left_by(e.path) < action.below]
            )


def manifest_parts(path: str) -> list[str]:
    """Name the files of a manifest, given the last: the whole, and its changes in order.

    >>> manifest_parts("manifest/00000003-00000017-00000001.json")
    ['manifest/00000003-00000017-00000000.json', 'manifest/00000003-00000017-00000001.json']
    >>> manifest_parts("manifest/00000003-00000017.json")  # before there were changes
    ['manifest/00000003-00000017.json']
    """
    log = _log_of(path)
    last = path.removeprefix(log).removesuffix(".json").removeprefix("-")
    return [f"{log}-{n:08d}.json" for n in range(int(last) + 1)] if last.isdecimal() else [path]


def left_by(path: str) -> int:
    """Tell which generation wrote a file beside its place; 0: it is none such (a probe, another's).

    >>> left_by("manifest/.00000003-00000017-00000000.json.0f2b.4"), left_by("claim/.00000003.0f2b.1")
    (3, 3)
    >>> left_by("claim/.probe.0f2b.1"), left_by("manifest/.00000003-00000017-00000000.json.crc")
    (0, 0)
    """
    found = _BESIDE.fullmatch(path.rpartition("/")[2])
    return int(found[1]) if found else 0


def _log_of(path: str) -> str:
    """Name what a manifest and its changes have in common."""
    return path[: path.index("/") + len("/00000003-00000017")]


def _number(path: str) -> int:
    """Give the generation in the name of a claim or a manifest; 0 for anything else."""
    head = path.rpartition("/")[2].partition("-")[0].partition(".")[0]
    return int(head) if head.isascii() and head.isdecimal() else 0


def _path(key: str) -> str:
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise OSError(f"{key!r} is no key")
    return key


class StoreWorker:
    """Carries out store actions on threads of its own, and answers with events.

    Writes keep their order. Reads do not wait for writes: a task that is restored is waited for.
    """

    def __init__(self, store: DurableStore, clock: Clock = REAL) -> None:
        self.store = store
        self._writes: queue.SimpleQueue[StoreAction | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[StoreAction | None] = queue.SimpleQueue()
        """Not longer than what a node may have asked for (`Settings.loads_max`)."""
        self._threads: list[threading.Thread] = []
        self._complaints = complaints(clock)

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

    def idle(self) -> bool:
        """Whether it was closed, and nothing is queued or under way."""
        return not any(thread.is_alive() for thread in self._threads)

    def _run(
        self,
        work: queue.SimpleQueue[StoreAction | None],
        deliver: Callable[[Stored | Loaded], None],
    ) -> None:
        while (action := work.get()) is not None:
            answered = carry_out(answer(self.store, action, self._complaints))
            if answered is not None:
                deliver(answered)
