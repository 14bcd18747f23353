"""Rows of micro-batches that wait for their commit: in memory up to a limit, then on disk.

Rows are laid by message by message, and a message's rows are slices of one batch. While there is room
they stay as they came. Beyond that, what comes is written at once, task by task, so that a commit reads
each task's rows once; what came before stays where it is. When the disk has no room either, rows are
refused: no `StageHeld` is sent, their writer sends them again, and gives up in time.

Files have no names (as in `spill`), and every piece has a checksum: what a disk does not give back as
it was counts as lost, and its micro-batch is written again.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from meander.runtime.wire.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES_MAX = 256 * 2**20
DISK_BYTES_MAX = 16 * 2**30
READ_BYTES_MAX = 64 * 2**20
"""So much of a micro-batch is read from disk before operators have it; one task may go beyond."""
FILE_BYTES = 256 * 2**20
"""A file is full then, and goes when all in it has: 64 of them are enough for all the disk may hold."""


class Message:
    """The batch of a message, as long as rows of it are in memory."""

    __slots__ = ("__weakref__", "_room", "batch", "bytes")

    def __init__(self, room: LaidRows, batch: pa.RecordBatch) -> None:
        self._room, self.batch, self.bytes = room, batch, int(batch.nbytes)
        room.memory_bytes += self.bytes

    def __del__(self) -> None:
        self._room.memory_bytes -= self.bytes


class InMemory(NamedTuple):
    """Rows that stayed as they came."""

    rows: Rows
    message: Message


class File:
    """A file without a name: written at its end, emptied when nothing in it is wanted."""

    def __init__(self, room: LaidRows) -> None:
        self.descriptor = -1
        with tempfile.TemporaryFile(buffering=0) as file:
            self.descriptor = os.dup(file.fileno())
        self._room = room
        self.size = 0
        self._wanted = 0
        """How many pieces of it are."""

    def append(self, blob: bytes) -> OnDisk:
        """Write a piece. Raises OSError."""
        done, view = 0, memoryview(blob)
        while done < len(blob):
            done += os.pwrite(self.descriptor, view[done:], self.size + done)
        found = OnDisk(self, self.size, len(blob), crc32(blob))
        self._wanted += 1
        self.size += len(blob)
        self._room.disk_bytes += len(blob)
        return found

    def leave(self) -> None:
        """Hear that a piece is not wanted any more."""
        self._wanted -= 1
        if not self._wanted:
            self._room.disk_bytes -= self.size
            self.size = 0
            if self.descriptor >= 0:  # what is collected together goes in any order
                os.ftruncate(self.descriptor, 0)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class OnDisk:
    """Rows in a file."""

    __slots__ = ("_check", "_file", "_offset", "size")

    def __init__(self, file: File, offset: int, size: int, check: int) -> None:
        self._file, self._offset, self.size, self._check = file, offset, size, check

    def read(self) -> bytes | None:
        """Give what was written; None if the disk does not."""
        try:
            blob = os.pread(self._file.descriptor, self.size, self._offset)
        except OSError:
            return None
        return blob if crc32(blob) == self._check else None

    def __del__(self) -> None:
        self._file.leave()


Laid: TypeAlias = InMemory | OnDisk


class LaidRows:
    """Room for rows.

    >>> import pyarrow as pa
    >>> room, rows = LaidRows(memory_bytes_max=20), Rows(pa.record_batch({"n": [1, 2]}), 0, 2)
    >>> first = room.lay_by(rows, lambda rows: b"written")
    >>> second = room.lay_by(Rows(pa.record_batch({"n": [3]}), 0, 1), lambda rows: b"written")
    >>> type(first).__name__, room.memory_bytes, second.read(), room.disk_bytes
    ('InMemory', 16, b'written', 7)
    >>> del first, second
    >>> room.memory_bytes, room.disk_bytes
    (0, 0)
    """

    def __init__(
        self, memory_bytes_max: int = MEMORY_BYTES_MAX, disk_bytes_max: int = DISK_BYTES_MAX
    ) -> None:
        self.memory_bytes_max, self.disk_bytes_max = memory_bytes_max, disk_bytes_max
        self.memory_bytes = self.disk_bytes = 0
        self._message: Callable[[], Message | None] = lambda: None
        """Gives the message that rows were laid by of last, if they are still wanted."""
        self._file: File | None = None
        self._read_bytes = 0
        """How much was read from disk and may still wait for operators to take it."""

    def lay_by(self, rows: Rows, write: Callable[[Rows], bytes]) -> Laid | None:
        """Keep rows; None if there is no room for them."""
        message = self._message()
        if message is None or message.batch is not rows.batch:
            if self.memory_bytes + rows.batch.nbytes > self.memory_bytes_max:
                return self._write(write(rows))
            message = Message(self, rows.batch)
            self._message = weakref.ref(message)
        return InMemory(rows, message)

    def take_up(
        self, laid: Laid, load: Callable[[bytes], Rows], settle: Callable[[], None]
    ) -> Rows | None:
        """Give rows that were laid by; None if the disk has lost them.

        Before too much was read from disk, operators `settle`: they take what waits for them.
        """
        if isinstance(laid, InMemory):
            return laid.rows
        blob = laid.read()
        if blob is None:
            return None
        self._read_bytes += len(blob)
        if self._read_bytes > READ_BYTES_MAX:
            settle()
            self._read_bytes = len(blob)
        return load(blob)

    def _write(self, blob: bytes) -> OnDisk | None:
        if self.disk_bytes + len(blob) > self.disk_bytes_max:
            return None
        try:
            if self._file is None or self._file.size >= FILE_BYTES:
                self._file = File(self)
            return self._file.append(blob)
        except OSError:
            return None
