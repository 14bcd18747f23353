"""The durable store: where checkpoints and the manifest are. Here: a directory.

The master's writes carry a fence. A generation can be claimed once, and from then on fenced writes
of lower generations are refused (see `protocol.manifest`). In a directory that is a lock held for
the length of one small write, so it must be on a file system whose locks work across its hosts.
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from meander.protocol.manifest import CLAIM_KEY
from meander.protocol.messages import Discard, Load, Loaded, Store, Stored

log = logging.getLogger(__name__)

_PART = re.compile(r"[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,200}")


class DurableStore(Protocol):
    """What the protocol needs of a store. Methods may raise OSError: then nothing was done."""

    def write(self, action: Store) -> Stored:
        """Write under a key, whole or not at all."""

    def read(self, key: str) -> bytes | None:
        """Give what is under a key."""

    def discard(self, keys: tuple[str, ...]) -> None:
        """Forget keys."""


class NoStore:
    """For deployments without checkpoints."""

    def write(self, action: Store) -> Stored:
        """Refuse."""
        return Stored(action.key, done=False)

    def read(self, key: str) -> bytes | None:
        """Know nothing."""
        return None

    def discard(self, keys: tuple[str, ...]) -> None:
        """Do nothing."""


class DirectoryStore:
    """A directory on a disk that all processes share.

    >>> import tempfile
    >>> store = DirectoryStore(tempfile.mkdtemp())
    >>> store.write(Store("generation", b"2", fence=2)).done
    True
    >>> store.write(Store("manifest", b"late", fence=1))
    Stored(key='manifest', done=False, fenced=True)
    """

    def __init__(self, path: str | Path, *, sync: bool = True) -> None:
        """Use a directory, made if need be; `sync`: wait until the disk has what is written."""
        self.path = Path(path)
        self.sync = sync
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, action: Store) -> Stored:
        """Write to a file beside, then rename."""
        if not action.fence:
            self._replace(self._file(action.key), action.data)
            return Stored(action.key, done=True)
        with self._locked():
            fence = int(self.read("fence") or b"0")
            if action.fence < fence + (action.key == CLAIM_KEY):
                return Stored(action.key, done=False, fenced=True)
            if action.fence > fence:
                self._replace(self._file("fence"), b"%d" % action.fence)
            self._replace(self._file(action.key), action.data)
        return Stored(action.key, done=True)

    def read(self, key: str) -> bytes | None:
        """Read a file."""
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None

    def discard(self, keys: tuple[str, ...]) -> None:
        """Delete files."""
        for key in keys:
            self._file(key).unlink(missing_ok=True)

    def generation(self) -> int:
        """Give the last generation that was claimed; 0 if none was."""
        return int(self.read("fence") or b"0")

    def _file(self, key: str) -> Path:
        parts = key.split("/")
        if not all(_PART.fullmatch(part) for part in parts):
            raise OSError(f"{key!r} is no key")
        return self.path.joinpath(*parts)

    def _replace(self, file: Path, data: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        with open(beside, "wb") as out:
            out.write(data)
            if self.sync:
                out.flush()
                os.fsync(out.fileno())
        os.replace(beside, file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.path / ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class StoreWorker:
    """Carries out store actions on a thread of its own, and answers with events."""

    def __init__(self, store: DurableStore) -> None:
        self.store = store
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, deliver: Callable[[Any], None]) -> None:
        """Begin; answers go to `deliver`."""
        self._thread = threading.Thread(
            target=self._run, args=(deliver,), name="store", daemon=True
        )
        self._thread.start()

    def give(self, action: Store | Load | Discard) -> None:
        """Hand in an action."""
        self._queue.put(action)

    def close(self) -> None:
        """Finish what was handed in, and end."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self, deliver: Callable[[Any], None]) -> None:
        while (action := self._queue.get()) is not None:
            try:
                if isinstance(action, Store):
                    deliver(self.store.write(action))
                elif isinstance(action, Load):
                    deliver(Loaded(action.key, self.store.read(action.key)))
                else:
                    self.store.discard(action.keys)
            except OSError as error:
                log.warning("the durable store failed: %s", error)
                if isinstance(action, Store):
                    deliver(Stored(action.key, done=False))
