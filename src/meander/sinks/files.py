"""Outputs as Parquet files in a folder: a file is a transaction, and holds its position.

A file is written beside and linked to its name: it is there whole, or not at all. Numbers in names have
no gaps, so the newest file of a writer has the last position; and of two writers of one name only one
gets the next number, so one that was replaced finds out. Names that begin with a dot are not finished.
"""

from __future__ import annotations

import glob
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from meander.errors import InputError, SinkError

POSITION = b"meander.position"


@dataclass(frozen=True)
class Files:
    """A folder of Parquet files, on a disk that every process of the sink has.

    >>> Files("counts").at_least_once
    False
    """

    path: str
    at_least_once: bool = False

    def check(self, schema: pa.Schema | None) -> None:
        """See that the folder is there, or can be made.

        Raises:
            InputError: if not.
        """
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} is no folder for files: {error}") from None

    def open(self, writer: str) -> FileWriter:
        """Make a writer."""
        return FileWriter(Path(self.path), writer)


class FileWriter:
    """Writes the files of one name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._next, self._rows = 1, list[pa.Table]()
        self._beside = folder / f".{name}-{secrets.token_hex(4)}"
        """Where a file is written before it has its name."""

    def recover(self) -> str | None:
        """Read the position in the newest file."""
        numbered = f"{glob.escape(self._name)}-{'[0-9]' * 12}.parquet"
        there = sorted(self._folder.glob(numbered))
        if not there:
            return None
        self._next = int(there[-1].stem.rpartition("-")[2]) + 1
        found: bytes = parquet.read_schema(there[-1]).metadata[POSITION]
        return found.decode()

    def write(self, rows: pa.Table) -> None:
        """Take rows for the next file."""
        self._rows.append(rows)

    def commit(self, position: str) -> None:
        """Write them, with the position, as a file.

        Raises:
            SinkError: if another writer has this one's place, or rows are not of one type.
        """
        try:
            rows = pa.concat_tables(self._rows, promote_options="default")
        except pa.ArrowException as error:
            raise SinkError(
                f"outputs for one file are not of one type: {error}. Give the operator an output_schema"
            ) from None
        self._rows = []
        beside = self._beside
        parquet.write_table(rows.replace_schema_metadata({POSITION: position.encode()}), beside)
        _sync(beside)
        try:
            os.link(beside, self._folder / f"{self._name}-{self._next:012d}.parquet")
        except FileExistsError:
            raise SinkError(f"another writer took the place of {self._name}") from None
        beside.unlink()
        _sync(self._folder)
        self._next += 1

    def close(self) -> None:
        """Forget what was not committed."""
        self._rows = []
        self._beside.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have the disk keep what was written there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
