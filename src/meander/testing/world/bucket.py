"""An object store on the simulated disk: a `Bucket`, as `ObjectFiles` of production use it.

An object is put at once and whole; there are no folders to make. It may have conditional writes or not.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from meander.runtime.store.bucket import Entry
from meander.runtime.store.filesystem import ObjectFiles
from meander.testing.world.disk import DiskView


def bucket(view: DiskView, root: str = "bucket", *, conditional: bool = True) -> ObjectFiles:
    """Give a process its files in an object store."""
    return ObjectFiles(SimBucket(view, root, conditional), f"sim://{root}", view.name)


class SimBucket:
    """What a process sees of it."""

    def __init__(self, view: DiskView, root: str, conditional: bool) -> None:
        self._view, self._root, self._conditional = view, root, conditional

    def put(self, path: str, pieces: Iterable[bytes | pa.Buffer]) -> None:
        """Put an object."""
        self._view.upload(self._at(path), pieces)

    def put_new(self, path: str, data: bytes) -> bool | None:
        """Put an object unless it is there."""
        return self._view.upload_new(self._at(path), data) if self._conditional else None

    def get(self, path: str, offset: int, length: int | None) -> bytes:
        """Read a part of an object."""
        return self._view.read(self._at(path), offset, length)

    def entries(self, folder: str) -> list[Entry]:
        """List a folder and what is below."""
        found, folders = list[Entry](), [folder]
        while folders:
            at = folders.pop()
            try:
                entries = self._view.scan(self._at(at))
            except FileNotFoundError:
                continue
            for name, is_folder in entries:
                path = f"{at}/{name}" if at else name
                if is_folder:
                    folders.append(path)
                else:
                    found += self._entry(path)
        return found

    def _entry(self, path: str) -> list[Entry]:
        try:
            return [Entry(path, *self._view.facts(self._at(path)))]
        except FileNotFoundError:
            return []

    def delete(self, paths: list[str]) -> None:
        """Delete objects, in whatever order it comes."""
        for path in self._view.disk.random.sample(paths, len(paths)):
            self._view.remove_object(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"
