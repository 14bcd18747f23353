"""What a state server holds beyond its memory: on disk, checked, and gone when nobody needs it."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model import Epoch
from meander.protocol.edges.server import StateServer
from meander.protocol.messages import Drop, Fetch, Part, Put, PutDone
from meander.protocol.settings import Settings
from meander.protocol.state import checksum
from meander.runtime.store.spill import BLOCK_BYTES, DiskSpill

T1, T2 = Epoch(1, 1), Epoch(1, 2)


def open_files() -> int:
    return sum(1 for fd in os.listdir("/proc/self/fd") if _is_deleted(fd))


def _is_deleted(fd: str) -> bool:
    try:
        return "deleted" in os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return False


@given(
    st.integers(0, 3 * BLOCK_BYTES),
    st.integers(0, 3 * BLOCK_BYTES),
    st.integers(1, 2 * BLOCK_BYTES),
)
def test_a_blob_is_read_from_any_offset(length, offset, size):
    blob = bytes(range(256)) * (length // 256 + 1)
    laid = DiskSpill(2**30).lay_by(blob)
    assert laid.read(offset, size) == blob[offset : offset + size]
    laid.drop()


def test_files_have_no_names_and_are_gone_when_dropped(tmp_path: Path):
    spill, before = DiskSpill(2**20, str(tmp_path)), open_files()
    laid = [spill.lay_by(b"x" * 1000) for _ in range(3)]
    assert (list(tmp_path.iterdir()), open_files()) == ([], before + 3)
    for one in laid:
        one.drop()
        one.drop()
    assert (open_files(), spill.bytes, spill.spilled) == (before, 0, 3)
    assert laid[0].read(0, 10) is None


def test_a_block_that_is_not_what_was_written_is_noticed():
    laid = DiskSpill(2**30).lay_by(bytes(3 * BLOCK_BYTES))
    os.pwrite(laid._file, b"!", BLOCK_BYTES + 5)
    assert laid.read(0, BLOCK_BYTES) == bytes(BLOCK_BYTES)
    assert laid.read(BLOCK_BYTES - 1, 2) is None
    os.ftruncate(laid._file, 10)
    assert laid.read(2 * BLOCK_BYTES, 5) is None


def test_a_disk_that_takes_nothing_is_no_room(tmp_path: Path):
    assert DiskSpill(2**20, str(tmp_path / "nowhere")).lay_by(b"x") is None


class Server:
    """A state server with 100 bytes of memory and 1000 on disk."""

    def __init__(self):
        self.machine = StateServer("s", Settings(server_bytes_max=100), 1, "i", DiskSpill(1000))
        self.machine.turn.incarnation = 1
        self.sent = []
        self.machine.turn.send = lambda to, body, incarnation=0: self.sent.append((to, body))

    def put(self, task, blob, target=T2):
        body = Put(task, T1, target, blob, checksum(blob))
        self.machine._on_put(_From("a"), body)
        return self._answer(PutDone).held

    def fetch(self, task, offset=0):
        self.machine._on_fetch(_From("b"), Fetch(task, T1, offset))
        return self._answer(Part)

    def _answer(self, kind):
        return [body for _, body in self.sent if isinstance(body, kind)][-1]


class _From:
    def __init__(self, sender):
        self.sender = sender


def test_what_memory_has_no_room_for_goes_to_disk_and_comes_from_there():
    server = Server()
    assert [server.put(task, bytes([task]) * 80) for task in range(3)] == [True] * 3
    assert (server.machine.bytes, server.machine.spill.bytes) == (80, 160)
    part = server.fetch(2, 70)
    assert (part.data, part.total, part.checksum) == (b"\2" * 10, 80, checksum(b"\2" * 80))
    assert not server.put(3, bytes(900)), "neither memory nor disk has room"
    server.machine._on_drop(_From("b"), Drop(((1, T1, T2), (2, T1, T2))))
    assert server.machine.spill.bytes == 0
    assert server.put(3, bytes(900))


def test_a_later_target_replaces_what_is_on_disk():
    server = Server()
    server.put(0, bytes(80))
    server.put(1, bytes(80))
    assert server.put(1, bytes(80), Epoch(1, 3))
    assert (server.machine.bytes, server.machine.spill.bytes) == (80, 80)


def test_a_state_that_cannot_be_read_is_asked_for_again():
    """1. it is on disk  2. it is damaged  3. its owner hears that it is not held  4. it comes again."""
    server = Server()
    server.put(0, bytes(80))
    server.put(1, bytes(80))
    os.ftruncate(server.machine.held[1, T1].blob._file, 3)
    assert server.fetch(1).total == -2
    assert [body.held for to, body in server.sent if to == "a" and isinstance(body, PutDone)][
        -1
    ] is False
    assert (server.machine.damaged, server.machine.spill.bytes) == (1, 0)
    server.sent.clear()
    assert server.put(1, bytes(80))
    assert [to for to, body in server.sent if isinstance(body, Part)] == ["b"], "it was wished for"


def test_a_server_without_a_disk_refuses():
    machine = StateServer("s", Settings(server_bytes_max=100), 1, "i")
    sent = []
    machine.turn.send = lambda to, body, incarnation=0: sent.append(body.held)
    for task in range(2):
        machine._on_put(_From("a"), Put(task, T1, T2, bytes(80), checksum(bytes(80))))
    assert sent == [True, False]


@pytest.mark.parametrize("size", [0, 1])
def test_a_blob_may_be_empty_or_tiny(size):
    laid = DiskSpill(10).lay_by(b"x" * size)
    assert (len(laid), laid.read(0, 5)) == (size, b"x" * size)
    laid.drop()
