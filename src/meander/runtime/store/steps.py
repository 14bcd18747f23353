"""What the durable store does with files, one step after another.

An operation of the store is a generator of steps. Whoever drives it carries out each step in one go and
sends back what came of it, or throws in what it raised. Between two steps anything may happen: another
process does a step of its own, or this one dies and the next step never comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from meander.runtime.store.filesystem import FileEntry, Files


class WriteFile(NamedTuple):
    """`Files.write`."""

    files: Files
    path: str
    pieces: Iterable[bytes | pa.Buffer]

    def __call__(self) -> None:
        """Do it."""
        self.files.write(self.path, self.pieces)


class Publish(NamedTuple):
    """`Files.publish`."""

    files: Files
    path: str
    data: bytes

    def __call__(self) -> None:
        """Do it."""
        self.files.publish(self.path, self.data)


class Create(NamedTuple):
    """`Files.create`."""

    files: Files
    path: str
    data: bytes

    def __call__(self) -> bool | None:
        """Do it."""
        return self.files.create(self.path, self.data)


class Read(NamedTuple):
    """`Files.read`."""

    files: Files
    path: str
    offset: int = 0
    length: int | None = None

    def __call__(self) -> bytes | None:
        """Do it."""
        return self.files.read(self.path, self.offset, self.length)


class List(NamedTuple):
    """`Files.list`."""

    files: Files
    folder: str
    beside: bool = False

    def __call__(self) -> list[FileEntry]:
        """Do it."""
        return self.files.list(self.folder, beside=self.beside)


class Delete(NamedTuple):
    """`Files.delete`."""

    files: Files
    paths: list[str]

    def __call__(self) -> None:
        """Do it."""
        self.files.delete(self.paths)


T = TypeVar("T")
Step: TypeAlias = WriteFile | Publish | Create | Read | List | Delete
Steps: TypeAlias = Generator[Step, Any, T]


def carry_out(steps: Steps[T]) -> T:
    """Take all steps, one right after the other; give what the operation gives.

    >>> carry_out(nothing_to_do("done"))
    'done'
    """
    try:
        step = next(steps)
        while True:
            try:
                came = step()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(came)
    except StopIteration as end:
        result: T = end.value
        return result


def nothing_to_do(result: T) -> Steps[T]:
    """Give a result without a step."""
    yield from ()
    return result
