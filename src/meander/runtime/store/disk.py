"""The system calls that files on a disk take; `filesystem` makes something of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa


class FolderEntry(NamedTuple):
    """A name in a folder."""

    name: str
    folder: bool


class Facts(NamedTuple):
    """What is known of a file."""

    size: int
    written_s: float
    """Seconds since 1970."""


class Disk(Protocol):
    """A disk, as one process sees it. Everything raises OSError, as the system does."""

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it; one that is there is no error."""

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer], *, sync: bool) -> None:
        """Write a file piece by piece; `sync`: until the disk has it."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name at once, in place of what has that name."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; FileExistsError: something has it."""

    def unlink(self, path: str) -> None:
        """Take a file's name away."""

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Read from an offset on, as far as there is something; None: to the end."""

    def scan(self, path: str) -> list[FolderEntry]:
        """List what is in a folder."""

    def facts(self, path: str) -> Facts:
        """Look at a file."""

    def sync_folder(self, path: str) -> None:
        """Wait until the disk has a folder's names."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder that is empty."""


class OsDisk:
    """The disks of this machine."""

    def make_folder(self, path: str) -> None:
        """Call mkdir."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, pieces: Iterable[bytes | pa.Buffer], *, sync: bool) -> None:
        """Call open, write, fsync, close."""
        with open(path, "wb") as out:
            for piece in pieces:
                out.write(piece)
            if sync:
                out.flush()
                os.fsync(out.fileno())

    def rename(self, old: str, new: str) -> None:
        """Call rename."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """Call link."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        """Call unlink."""
        os.unlink(path)

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Call open, seek, read, close."""
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def scan(self, path: str) -> list[FolderEntry]:
        """Call opendir, readdir; links to folders are left out."""
        with os.scandir(path) as entries:
            found = [(entry, entry.is_dir()) for entry in entries]
            return [
                FolderEntry(e.name, folder)
                for e, folder in found
                if not (folder and e.is_symlink())
            ]

    def facts(self, path: str) -> Facts:
        """Call stat."""
        facts = os.stat(path)
        return Facts(facts.st_size, facts.st_mtime)

    def sync_folder(self, path: str) -> None:
        """Call open, fsync, close."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove_folder(self, path: str) -> None:
        """Call rmdir."""
        os.rmdir(path)
