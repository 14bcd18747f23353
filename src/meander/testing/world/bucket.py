"""An object store on the simulated disk, as Arrow shows it: real `ArrowFiles` run on it.

An object is put at once when its stream is closed, whatever came so far; there are no folders to make
and no file that one of many can make alone. Its type is none that Arrow knows by name, so that
`ArrowFiles` puts what it publishes, as on S3.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from pyarrow import fs

from meander.runtime.store.filesystem import ArrowFiles
from meander.testing.world.disk import DiskView


def bucket(view: DiskView, root: str = "bucket") -> ArrowFiles:
    """Give a process its files in an object store."""
    return ArrowFiles(fs.PyFileSystem(Bucket(view)), root, f"sim://{root}", view.name)


class _Upload(io.BytesIO):
    """What is written to an object."""

    def __init__(self, view: DiskView, path: str) -> None:
        super().__init__()
        self._view, self._path = view, path

    def write(self, piece: Any) -> int:
        """Take a piece; a first one is only gathered, as object stores send parts of some size."""
        if self.tell():
            self._view.check_room(self._path)
        return super().write(piece)

    def close(self) -> None:
        """Put what came so far."""
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._view.upload(self._path, data)


class _Download(io.BytesIO):
    """An object that is being read."""

    def __init__(self, view: DiskView, path: str) -> None:
        super().__init__(view.read(path, 0, None))
        self._view, self._path = view, path

    def read(self, size: int | None = -1) -> bytes:
        """Ask for a part of it."""
        begin = self.tell()
        data = super().read(size)
        return self._view.read(self._path, begin, len(data))


class Bucket(fs.FileSystemHandler):  # type: ignore[misc]
    """What Arrow calls."""

    def __init__(self, view: DiskView) -> None:
        self._view = view

    def get_type_name(self) -> str:
        """Name a type that Arrow does not know."""
        return "sim"

    def normalize_path(self, path: str) -> str:
        """Leave a path as it is."""
        return path

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """List a folder and what is below; one that is not there raises."""
        assert selector.recursive
        assert not selector.allow_not_found
        infos, folders = list[fs.FileInfo](), [selector.base_dir]
        while folders:
            at = folders.pop()
            try:
                found = self._view.scan(at)
            except FileNotFoundError:
                if at == selector.base_dir:
                    raise
                continue
            for name, is_folder in found:
                if is_folder:
                    folders.append(f"{at}/{name}")
                else:
                    infos.extend(self._info(f"{at}/{name}"))
        return infos

    def _info(self, path: str) -> list[fs.FileInfo]:
        try:
            facts = self._view.facts(path)
        except FileNotFoundError:
            return []
        return [fs.FileInfo(path, fs.FileType.File, mtime=facts.written_s, size=facts.size)]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object."""
        return pa.PythonFile(_Download(self._view, path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Begin an object."""
        return pa.PythonFile(_Upload(self._view, path), mode="w")

    def delete_file(self, path: str) -> None:
        """Delete an object; folders are not there without objects."""
        self._view.unlink(path)
        self._view.disk.prune(path.rpartition("/")[0])

    def create_dir(self, path: str, recursive: bool) -> None:
        """Make no folder: there are none."""

    def _never(self, *_: Any) -> Any:
        raise NotImplementedError("the store does not need it")

    get_file_info = copy_file = move = _never
    delete_dir = delete_dir_contents = delete_root_dir_contents = _never
    open_input_stream = open_append_stream = _never
