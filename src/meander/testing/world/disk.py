"""A disk in memory that the processes of a simulated cluster share, and its faults.

`SimDisk` is the disk itself: what is done to it is done at once and cannot fail. Every process has a
`DiskView` of it, which is a `runtime.store.disk.Disk`: the same system calls, which fail, and which a
process can die in.

A listing takes a while. Whoever drives a process says since when (`DiskView.since`): a name that was
made or removed since then is seen or not, as it comes; every other name is seen. POSIX and S3 promise
that, and no more.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, NamedTuple

from meander.runtime.store.disk import Facts, FolderEntry

GONE_MAX = 64
"""So many removed names a folder remembers, for listings that began before."""


class Dead(BaseException):
    """Ends whatever a process does when it has died: no code of its own may catch it and go on."""


@dataclass
class Faults:
    """What goes wrong, as shares of the calls; to be changed at any time."""

    read: float = 0.0
    """EIO on a read."""
    scan: float = 0.0
    """EIO on a folder that is listed, also on one in the middle of a walk."""
    full: float = 0.0
    """ENOSPC on a write: before the first byte, or after some."""
    change: float = 0.0
    """EIO on what changes names (make, rename, link, delete, sync); half of them after it was done."""
    odd: float = 0.0
    """A write ends by an error that is none of the disk's: what is to be written cannot be made."""
    cut: float = 0.0
    """The process dies in a write: what it wrote so far stays."""
    slow: float = 0.0
    """A step of the store takes up to `slow_s` longer."""
    slow_s: float = 2.0


def _error(number: int, path: str) -> OSError:
    """Make the error that the system would raise; OSError knows its kind by the number."""
    return OSError(number, os.strerror(number), path)


class _File:
    __slots__ = ("data", "written_s")

    def __init__(self, data: bytes, written_s: float) -> None:
        self.data, self.written_s = data, written_s


class _Folder:
    __slots__ = ("entries", "gone")

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.gone: deque[tuple[float, str, _File | _Folder]] = deque(maxlen=GONE_MAX)
        """When, which name, what it was."""


class _Entry(NamedTuple):
    """What is under a name, and since when."""

    node: _File | _Folder
    born_s: float


class SimDisk:
    """The disk: without faults, for checkers and for the views.

    >>> disk = SimDisk(Random(1), lambda: 0.0)
    >>> disk.view("n1").make_folder("/a/b"); disk.put("/a/b/c", b"x")
    >>> disk.peek("/a/b/c"), list(disk.paths("/a"))
    (b'x', ['/a/b/c'])
    """

    def __init__(self, random: Random, now: Callable[[], float]) -> None:
        self.random, self.now = random, now
        self.faults = Faults()
        """Of all views that have none of their own."""
        self.changes = 0
        """Of names and of what is in files: counts up."""
        self._root = _Entry(_Folder(), -inf)

    def view(self, name: str) -> DiskView:
        """Give a new process its view."""
        return DiskView(self, name)

    # ------------------------------------------------------------------ for checkers

    def peek(self, path: str) -> bytes | None:
        """Give what a file really holds now; None: it is not there."""
        try:
            return self.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def written_s(self, path: str) -> float:
        """Tell when a file was written; -inf: it is not there."""
        try:
            return self._file(path).written_s
        except (FileNotFoundError, NotADirectoryError):
            return -inf

    def paths(self, folder: str) -> Iterator[str]:
        """Name all files in a folder and below, hidden ones too."""
        try:
            node = self.find(folder).node
        except (FileNotFoundError, NotADirectoryError):
            return
        if isinstance(node, _Folder):
            for name, entry in sorted(node.entries.items(), key=lambda pair: pair[0]):
                path = f"{folder.rstrip('/')}/{name}"
                if isinstance(entry.node, _File):
                    yield path
                else:
                    yield from self.paths(path)

    # ------------------------------------------------------------------ for views

    def find(self, path: str, since: float = inf) -> _Entry:
        """Look a path up; what was made or removed since then may be there or not."""
        entry = self._root
        for name in path.split("/"):
            if name:
                node = entry.node
                found = node.entries.get(name) if type(node) is _Folder else None
                sure = found is not None and found.born_s <= since
                entry = found if found and sure else self._under(node, name, since, path)
        return entry

    def _under(self, node: _File | _Folder, name: str, since: float, path: str) -> _Entry:
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        entry = node.entries.get(name)
        if entry is not None and (entry.born_s <= since or self.coin()):
            return entry
        if entry is None and since < inf:
            for died_s, was, gone in node.gone:
                if was == name and died_s > since and self.coin():
                    return _Entry(gone, -inf)
        raise _error(errno.ENOENT, path)

    def names(self, path: str, since: float) -> list[FolderEntry]:
        """List a folder, as somebody does who began then."""
        folder = self.find(path, since).node
        if not isinstance(folder, _Folder):
            raise _error(errno.ENOTDIR, path)
        found = [
            FolderEntry(name, type(entry.node) is _Folder)
            for name, entry in folder.entries.items()
            if entry.born_s <= since or self.coin()
        ]
        if since < inf:
            for died_s, name, node in folder.gone:
                if died_s > since and name not in folder.entries and self.coin():
                    found.append(FolderEntry(name, type(node) is _Folder))
        return found

    def read(self, path: str) -> bytes:
        """Give a file's bytes."""
        return self._file(path).data

    def make_folder(self, path: str) -> None:
        """Make a folder and those above."""
        node = self._root.node
        for name in path.split("/"):
            if name:
                if not isinstance(node, _Folder):
                    raise _error(errno.ENOTDIR, path)
                entry = node.entries.get(name)
                if entry is None:
                    self.changes += 1
                    entry = node.entries[name] = _Entry(_Folder(), self.now())
                node = entry.node
        if not isinstance(node, _Folder):
            raise _error(errno.EEXIST, path)

    def put(self, path: str, data: bytes) -> None:
        """Write a file; its folder is there."""
        folder, name = self._place(path)
        entry, now = folder.entries.get(name), self.now()
        self.changes += 1
        if entry is None:
            folder.entries[name] = _Entry(_File(data, now), now)
        elif isinstance(entry.node, _File):
            entry.node.data, entry.node.written_s = data, now
        else:
            raise _error(errno.EISDIR, path)

    def rename(self, old: str, new: str) -> None:
        """Move a file's name; one that it replaces was there all the time."""
        there, (folder, name) = self._place(old), self._place(new)
        node = self._file(old)
        replaced = folder.entries.get(name)
        if replaced is not None and isinstance(replaced.node, _Folder):
            raise _error(errno.EISDIR, new)
        if replaced is None or replaced.node is not node:
            self.changes += 1
            folder.entries[name] = _Entry(node, replaced.born_s if replaced else self.now())
            self._drop(*there)

    def link(self, old: str, new: str) -> None:
        """Add a name."""
        node, (folder, name) = self._file(old), self._place(new)
        if name in folder.entries:
            raise _error(errno.EEXIST, new)
        self.changes += 1
        folder.entries[name] = _Entry(node, self.now())

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._file(path)
        self._drop(*self._place(path))

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        node = self.find(path).node
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        if node.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._drop(*self._place(path))

    def prune(self, folder: str) -> None:
        """Remove a folder and those above it as far as they are empty."""
        while folder:
            node = self.find(folder).node
            if not isinstance(node, _Folder) or node.entries:
                return
            self.remove_folder(folder)
            folder = folder.rpartition("/")[0]

    def coin(self) -> bool:
        """Say yes half of the times."""
        return self.random.random() < 0.5

    def _file(self, path: str) -> _File:
        node = self.find(path).node
        if isinstance(node, _Folder):
            raise _error(errno.EISDIR, path)
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self.find(above).node
        if not isinstance(folder, _Folder):
            raise _error(errno.ENOTDIR, path)
        return folder, name

    def _drop(self, folder: _Folder, name: str) -> None:
        self.changes += 1
        folder.gone.append((self.now(), name, folder.entries.pop(name).node))


class DiskView:
    """The disk as one process sees it; a `Disk`."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self.disk, self.name = disk, name
        self.faults = disk.faults
        self.since = inf
        """When the listing that goes on has begun; inf: it takes no time."""
        self.dead = False
        self._calls_left: float = inf
        self._writes, self._refused = 0, range(0)

    def kill(self) -> None:
        """Let the process be dead: it does nothing any more."""
        self.dead = True

    def die_after(self, calls: int) -> None:
        """Let the process die in the call after so many; in a write, when some of it is written."""
        self._calls_left = calls

    def refuse(self, writes: range) -> None:
        """Let there be no room for these of its writes, counted from 1."""
        self._refused = writes

    # ------------------------------------------------------------------ the calls

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        self._change(self.disk.make_folder, path)

    def write(self, path: str, pieces: Iterable[Any], *, sync: bool) -> None:
        """Write a file: whole, or some of it."""
        full, cut = self._is_full(), self._dies() or self._draws(self.faults.cut)
        if full and self.disk.coin():
            raise _error(errno.ENOSPC, path)
        self._stumble(path)
        data = bytearray()
        self.disk.put(path, b"")
        try:
            for piece in pieces:
                data += piece
            if full or cut:
                del data[self.disk.random.randrange(len(data) + 1) :]
        finally:
            self.disk.put(path, bytes(data))
        self._end(cut)
        if full:
            raise _error(errno.ENOSPC, path)

    def upload(self, path: str, pieces: Iterable[Any]) -> None:
        """Put an object, as object stores do: at once, in folders that nobody makes."""
        data = b"".join(pieces)
        self._stumble(path)
        self._upload(path, data)

    def upload_new(self, path: str, data: bytes) -> bool:
        """Put an object unless there is one; the answer may be lost as any other."""
        if self.disk.peek(path) is not None:
            self._end(self._dies())
            return False
        self._upload(path, data)
        return True

    def _upload(self, path: str, data: bytes) -> None:
        self._end(self._dies() or self._draws(self.faults.cut))
        if self._is_full():
            raise _error(errno.ENOSPC, path)
        self._change(self._put_object, path, data)

    def remove_object(self, path: str) -> None:
        """Delete an object, if it is there; folders are not there without objects."""
        with suppress(FileNotFoundError):
            self._change(self.disk.unlink, path)
            self.disk.prune(path.rpartition("/")[0])

    def _put_object(self, path: str, data: bytes) -> None:
        self.disk.make_folder(path.rpartition("/")[0])
        self.disk.put(path, data)

    def rename(self, old: str, new: str) -> None:
        """Rename."""
        self._change(self.disk.rename, old, new)

    def link(self, old: str, new: str) -> None:
        """Link."""
        self._change(self.disk.link, old, new)

    def unlink(self, path: str) -> None:
        """Delete a file."""
        self._change(self.disk.unlink, path)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Read."""
        self._end(self._dies())
        data = self.disk.read(path)
        if self._draws(self.faults.read):
            raise _error(errno.EIO, path)
        return data[offset : None if length is None else offset + length]

    def scan(self, path: str) -> list[FolderEntry]:
        """List a folder."""
        self._end(self._dies())
        if self._draws(self.faults.scan):
            raise _error(errno.EIO, path)
        return self.disk.names(path, self.since)

    def facts(self, path: str) -> Facts:
        """Look at a file."""
        self._end(self._dies())
        node = self.disk.find(path, self.since).node
        return Facts(len(node.data), node.written_s) if isinstance(node, _File) else Facts(0, 0.0)

    def sync_folder(self, path: str) -> None:
        """Sync: nobody here loses what he has written, but it can fail."""
        self._change(self.disk.find, path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder."""
        self._change(self.disk.remove_folder, path)

    # ------------------------------------------------------------------ what goes wrong

    def _change(self, change: Callable[..., object], *where: Any) -> None:
        """Change something, unless the disk fails; it may fail after it was done."""
        self._end(self._dies())
        fails = self._draws(self.faults.change)
        if not fails or self.disk.coin():
            change(*where)
        if fails:
            raise _error(errno.EIO, where[0])

    def _stumble(self, path: str) -> None:
        if self._draws(self.faults.odd):
            raise ValueError(f"{path} cannot be made into bytes")

    def _is_full(self) -> bool:
        """Whether there is no room for the next write."""
        self._writes += 1
        return self._writes in self._refused or self._draws(self.faults.full)

    def _draws(self, share: float) -> bool:
        return share > 0.0 and self.disk.random.random() < share

    def _dies(self) -> bool:
        """Whether this call is the last one."""
        if self.dead:
            raise Dead(self.name)
        self._calls_left -= 1
        return self._calls_left < 0

    def _end(self, dies: bool) -> None:
        if dies:
            self.dead = True
            raise Dead(self.name)
