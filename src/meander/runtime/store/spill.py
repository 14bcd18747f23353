"""What a state server holds beyond its memory: on disk, in files without names.

A file is made with no name at all (`O_TMPFILE`; elsewhere its name is removed at once), so nobody
else can open it, no name from the wire ever becomes a path, and it is gone with its process, however
that ends. `TMPDIR` says where. Every block has a checksum, which is looked at whenever it is read: a
disk that lies is noticed where it lied, and the state is asked for again.
"""

from __future__ import annotations

import os
import tempfile
from zlib import crc32

BLOCK_BYTES = 2**20
"""The smallest piece that is read."""


class SpilledState:
    """A blob on disk; reads like bytes do."""

    def __init__(self, spill: DiskSpill, file: int, blob: bytes) -> None:
        self._spill, self._size = spill, len(blob)
        self._file: int | None = file
        """A descriptor: it is all there is of the file."""
        view = memoryview(blob)
        blocks = [view[at : at + BLOCK_BYTES] for at in range(0, len(blob), BLOCK_BYTES)]
        self._checks = [crc32(block) for block in blocks]

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes | None:
        """Read some bytes; None if they are not what was written."""
        if size <= 0 or offset >= self._size:
            return b""
        first, last = offset // BLOCK_BYTES, (min(offset + size, self._size) - 1) // BLOCK_BYTES
        if self._file is None:
            return None
        try:
            data = os.pread(self._file, (last - first + 1) * BLOCK_BYTES, first * BLOCK_BYTES)
        except OSError:
            return None
        for i, check in enumerate(self._checks[first : last + 1]):
            if crc32(memoryview(data)[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES]) != check:
                return None
        start = offset - first * BLOCK_BYTES
        return data[start : start + size]

    def drop(self) -> None:
        """Give the room back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._spill.bytes -= self._size

    __del__ = drop


class DiskSpill:
    """Room on disk for blobs.

    >>> spill = DiskSpill(100)
    >>> laid = spill.lay_by(b"a state")
    >>> laid.read(2, 3), len(laid), spill.bytes
    (b'sta', 7, 7)
    >>> laid.drop()
    >>> spill.bytes, spill.lay_by(bytes(101)) is None
    (0, True)
    """

    def __init__(self, bytes_max: int, directory: str | None = None) -> None:
        """Take at most so many bytes; `directory` is where `TMPDIR` says if not given."""
        self.bytes_max, self._directory = bytes_max, directory
        self.bytes = 0
        self.spilled = 0
        """Blobs that were ever written, for the metrics."""

    def lay_by(self, blob: bytes) -> SpilledState | None:
        """Write a blob; None if there is no room, or the disk does not take it."""
        if self.bytes + len(blob) > self.bytes_max:
            return None
        try:
            with tempfile.TemporaryFile(buffering=0, dir=self._directory) as file:
                view = memoryview(blob)
                while view:
                    view = view[file.write(view) :]
                kept = os.dup(file.fileno())
        except OSError:
            return None
        self.bytes += len(blob)
        self.spilled += 1
        return SpilledState(self, kept, blob)
