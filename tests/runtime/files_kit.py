"""All kinds of files that checkpoints can be in, for the tests that hold for every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from pyarrow import fs

from meander.errors import InputError
from meander.runtime.store.bucket import StoreBucket, open_bucket
from meander.runtime.store.filesystem import ArrowFiles, Files, LocalFiles, ObjectFiles
from meander.testing.world.bucket import bucket
from meander.testing.world.disk import SimDisk
from meander_lab.errors import NoServerError
from meander_lab.servers import s3

Open = Callable[[], Files]
"""Opens the same files, as one more process does."""


def local(path: Path) -> Open:
    return lambda: LocalFiles(path, sync=False)


def subtree(path: Path) -> Open:
    """As HDFS: Arrow's, with folders and renames."""
    path.mkdir(parents=True, exist_ok=True)
    return lambda: ArrowFiles(fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()), "")


def memory(path: Path) -> Open:
    """An object store in this process, by the real client."""
    from obstore.store import MemoryStore

    store = MemoryStore()
    return lambda: ObjectFiles(StoreBucket(store), "memory://")


def blind(path: Path) -> Open:
    """The same without conditional writes."""
    from obstore.store import MemoryStore

    store = MemoryStore()
    return lambda: ObjectFiles(StoreBucket(store, conditional=False), "memory://")


def sim_disk(path: Path) -> Open:
    disk = SimDisk(Random(1), lambda: 0.0)
    return lambda: LocalFiles("/checkpoint", disk=disk.view("x"))


def sim_bucket(path: Path) -> Open:
    disk = SimDisk(Random(1), lambda: 0.0)
    return lambda: bucket(disk.view("x"))


def sim_blind(path: Path) -> Open:
    disk = SimDisk(Random(1), lambda: 0.0)
    return lambda: bucket(disk.view("x"), conditional=False)


AT_HAND = [local, subtree, memory, blind, sim_disk, sim_bucket, sim_blind]
"""Without a server."""
ALONE = {local, memory, sim_disk, sim_bucket}
"""Where a file can be made by one of many alone."""


@contextmanager
def s3_server() -> Iterator[s3.S3]:
    """Run an S3 server, or skip."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(s3.server())
        except (NoServerError, InputError) as error:
            pytest.skip(f"no S3 server here: {error}")
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


def on_s3(running: s3.S3, folder: str, *, conditional: bool) -> Open:
    """A folder on a server, with or without its conditional writes."""
    where = running.address(f"tests/{folder}")
    running.bucket("tests")
    return lambda: ObjectFiles(open_bucket(where, conditional=conditional), where)
