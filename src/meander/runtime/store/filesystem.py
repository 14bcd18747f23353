"""The few things that the durable store needs of a file system: a disk, any that Arrow knows, a bucket.

    write     a file of its own name, never written twice; it counts when a manifest names it
    publish   a small file that others see whole or not at all
    create    a small file that only one of many can make; None where a file system cannot promise that
    read, list, delete

What is relied upon: whoever has written a file finds it, whole, in every read and list that begins
later, from any host. POSIX file systems, HDFS, S3, GCS and Azure promise that; nothing here needs a
rename of something large, a lock or a conditional write.

On a local disk what is written is also synced, file and folder. Other file systems have it in their
own hands when a file is closed. On an object store a file is one object, which is there at once.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from meander.errors import InputError
from meander.runtime.store.bucket import SCHEMES, Bucket, open_bucket
from meander.runtime.store.disk import Disk, OsDisk

log = logging.getLogger(__name__)

NO_CONDITION = (
    "%s takes no notice of If-None-Match: who may write is told by listings of claims alone"
)


class FileEntry(NamedTuple):
    """A file."""

    path: str
    """From the root, with `/`."""
    size: int
    written_s: float
    """Seconds since 1970."""


class Files(Protocol):
    """A tree of files. Methods raise OSError for what the file system cannot do."""

    uri: str

    def prepare(self) -> None:
        """Make the folder if need be; InputError: there can be none. Only a driver does."""

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Write a file; after it has failed, the name is not used again."""

    def publish(self, path: str, data: bytes) -> None:
        """Write a file that appears whole."""

    def create(self, path: str, data: bytes) -> bool | None:
        """Write a file unless it is there; None: whether it is cannot be known in time."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read a file, or a part of it; None if it is not there."""

    def list(self, folder: str, *, beside: bool = False) -> list[FileEntry]:
        """List all files in a folder and below, by name; all of them, or it raises.

        With `beside` those that were written beside their place, and are there still.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, in any order; what is not there is no error."""


def open_files(where: str | Path) -> Files:
    """Give the files under a path or a URI (`file:`, `hdfs:`, `s3:`, `gs:`, …).

    Raises:
        InputError: for a URI that nobody can make sense of.
    """
    text = str(where)
    parts = urlsplit(text)
    if len(parts.scheme) < 2:
        return LocalFiles(Path(text))
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InputError(f"{text!r} is no local path: write file:///folder")
        return LocalFiles(Path(unquote(parts.path)))
    if parts.scheme in SCHEMES:
        return ObjectFiles(open_bucket(text), text.rstrip("/"))
    try:
        system, root = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{text!r} cannot be opened as a file system: {error}") from None
    return ArrowFiles(system, root, text)


class Besides:
    """Gives names for files that are written beside their place: no two, whoever else does the same."""

    def __init__(self, me: str) -> None:
        self._me, self._numbers = me or secrets.token_hex(8), itertools.count(1)

    def of(self, path: str) -> str:
        """Give a name beside a path, which no listing shows."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}.{self._me}.{next(self._numbers)}"


class LocalFiles:
    """A folder on a disk of this machine, or on one that is mounted like it."""

    def __init__(
        self, root: str | Path, *, sync: bool = True, disk: Disk | None = None, me: str = ""
    ) -> None:
        """Use a folder; nothing is done with it yet.

        Args:
            root: where it is.
            sync: whether to wait until the disk has what is written.
            disk: the disk; that of this machine unless told.
            me: tells this process from others that use the folder; drawn unless told.
        """
        self.root, self.sync = Path(root).absolute(), sync
        self.uri = self.root.as_uri()
        self._disk, self._besides = disk or OsDisk(), Besides(me)
        self._prefix = f"{self.root.as_posix().rstrip('/')}/"

    def prepare(self) -> None:
        """Make the folder."""
        try:
            self._disk.make_folder(str(self.root))
        except OSError as error:
            raise InputError(f"{self.root} cannot be a folder for checkpoints: {error}") from None

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Write and sync."""
        file, folder = self._make_room(path)
        with self._whole_or_gone(file):
            self._disk.write(file, pieces, sync=self.sync)
        self._sync_folder(folder)

    def publish(self, path: str, data: bytes) -> None:
        """Write beside, sync, rename."""
        file, folder = self._make_room(path)
        beside = self._besides.of(file)
        with self._whole_or_gone(beside):
            self._disk.write(beside, [data], sync=self.sync)
            self._disk.rename(beside, file)
        self._sync_folder(folder)

    def create(self, path: str, data: bytes) -> bool | None:
        """Write beside, then link: of many one succeeds, and nobody sees it half written."""
        file, folder = self._make_room(path)
        beside = self._besides.of(file)
        with self._whole_or_gone(beside):
            self._disk.write(beside, [data], sync=self.sync)
        try:
            self._disk.link(beside, file)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):  # swept by a later driver
                self._disk.unlink(beside)
        self._sync_folder(folder)
        return True

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read."""
        try:
            return self._disk.read(self._prefix + path, offset, length)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, folder: str, *, beside: bool = False) -> list[FileEntry]:
        """List; a file that is being published is not there yet.

        What goes meanwhile, a file or a folder, is no error. A folder that cannot be listed is: taken
        for empty, a checkpoint would be taken for none.
        """
        found, folders = [], [folder]
        while folders:
            at = folders.pop()
            try:
                entries = self._disk.scan(self._prefix + at)
            except FileNotFoundError:
                continue
            for name, is_folder in entries:
                path = f"{at}/{name}" if at else name
                if is_folder:
                    folders.append(path)
                elif name.startswith(".") == beside:
                    with suppress(FileNotFoundError):
                        found.append(FileEntry(path, *self._disk.facts(self._prefix + path)))
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete, and folders that become empty with it."""
        folders = set()
        for path in paths:
            file = self._prefix + path
            with suppress(FileNotFoundError, NotADirectoryError):
                self._disk.unlink(file)
            folders.add(file.rpartition("/")[0])
        for folder in sorted(folders):
            with suppress(OSError):
                self._disk.remove_folder(folder)

    def _make_room(self, path: str) -> tuple[str, str]:
        """Make the folder of a file; give both."""
        file = self._prefix + path
        folder = file.rpartition("/")[0]
        self._disk.make_folder(folder)
        return file, folder

    @contextmanager
    def _whole_or_gone(self, file: str) -> Iterator[None]:
        """Delete a file that could not be written: it would take room that others need."""
        try:
            yield
        except BaseException:
            with suppress(OSError):
                self._disk.unlink(file)
            raise

    def _sync_folder(self, folder: str) -> None:
        if self.sync:
            self._disk.sync_folder(folder)


class ArrowFiles:
    """A folder on a file system of Arrow's, such as HDFS."""

    def __init__(self, system: fs.FileSystem, root: str, uri: str = "", me: str = "") -> None:
        """Use a folder; `me` tells this process from others that do, and is drawn unless told."""
        self.system, self.root = system, root.rstrip("/")
        self.uri = uri or f"{system.type_name}:{root}"
        self._besides = Besides(me)

    def prepare(self) -> None:
        """Do nothing: folders come with their files."""

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Write; closing a stream keeps what came so far, so what has failed is deleted."""
        full = self._at(path)
        if "/" in full:
            self.system.create_dir(full.rpartition("/")[0], recursive=True)
        try:
            with self.system.open_output_stream(full, compression=None) as out:
                for piece in pieces:
                    out.write(piece)
        except BaseException:
            with suppress(OSError):
                self.system.delete_file(full)
            raise

    def publish(self, path: str, data: bytes) -> None:
        """Write beside it, where nobody looks, and rename."""
        beside = self._besides.of(path)
        self.write(beside, [data])
        try:
            self.system.move(self._at(beside), self._at(path))
        except BaseException:
            with suppress(OSError):
                self.system.delete_file(self._at(beside))
            raise

    def create(self, path: str, data: bytes) -> bool | None:
        """Arrow has no such thing."""
        return None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read."""
        try:
            with self.system.open_input_file(self._at(path)) as file:
                size = file.size()
                end = size if length is None else min(size, offset + length)
                data: bytes = file.read_at(max(0, end - offset), offset)
                return data
        except FileNotFoundError:
            return None

    def list(self, folder: str, *, beside: bool = False) -> list[FileEntry]:
        """List; a file that is being published is not there yet."""
        found = []
        for info in self._infos(folder):
            if info.type == fs.FileType.File and info.base_name.startswith(".") == beside:
                path = info.path[len(self.root) + 1 :] if self.root else info.path
                written = info.mtime.timestamp() if info.mtime is not None else 0.0
                found.append(FileEntry(path, info.size, written))
        return sorted(found)

    def _infos(self, folder: str) -> Sequence[fs.FileInfo]:
        """Look twice, since a folder below may go meanwhile; what is not there then has no files.

        Arrow is not asked to excuse a folder that is not there: on HDFS it excuses one that cannot be
        reached as well.
        """
        selector = fs.FileSelector(self._at(folder), recursive=True)
        for _ in range(2):
            try:
                infos: Sequence[fs.FileInfo] = self.system.get_file_info(selector)
                return infos
            except FileNotFoundError:
                continue
        return []

    def delete(self, paths: Iterable[str]) -> None:
        """Delete."""
        for path in paths:
            with suppress(FileNotFoundError):
                self.system.delete_file(self._at(path))


class ObjectFiles:
    """A prefix in an object store."""

    def __init__(self, bucket: Bucket, uri: str, me: str = "") -> None:
        """Use a bucket; `me` tells this process from others that do, and is drawn unless told."""
        self.uri = uri
        self._bucket, self._besides = bucket, Besides(me)
        self._conditional = True

    def prepare(self) -> None:
        """Find out whether the bucket can be written, and whether it keeps to `If-None-Match`.

        There are stores that take no notice of it. They would grant one generation to many.
        """
        probe = self._besides.of("claim/probe")
        try:
            created = [self._bucket.put_new(probe, b"") for _ in range(2)]
            self._bucket.delete([probe])
        except OSError as error:
            raise InputError(f"{self.uri} cannot be a folder for checkpoints: {error}") from None
        self._conditional = created[1] is False
        if not self._conditional:
            log.info(NO_CONDITION, self.uri)

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Put."""
        self._bucket.put(path, pieces)

    def publish(self, path: str, data: bytes) -> None:
        """Put: nobody sees an object before it is whole."""
        self._bucket.put(path, [data])

    def create(self, path: str, data: bytes) -> bool | None:
        """Put on condition that there is none."""
        return self._bucket.put_new(path, data) if self._conditional else None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes | None:
        """Get."""
        try:
            return self._bucket.get(path, offset, length)
        except FileNotFoundError:
            return None

    def list(self, folder: str, *, beside: bool = False) -> list[FileEntry]:
        """List."""
        found = self._bucket.entries(folder)
        return sorted(
            FileEntry(*entry)
            for entry in found
            if entry.path.rpartition("/")[2].startswith(".") == beside
        )

    def delete(self, paths: Iterable[str]) -> None:
        """Delete."""
        if gone := list(paths):
            self._bucket.delete(gone)
