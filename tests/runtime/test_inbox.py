"""What waits for a machine is bounded: readers wait, and with them their writers."""

from __future__ import annotations

import threading

import pyarrow as pa
from runtime_kit import until

from meander.model import Epoch
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import (
    MASTER,
    Beat,
    Copy,
    Envelope,
    Grant,
    Loaded,
    Part,
    Put,
    Rest,
)
from meander.runtime.wire.inbox import Inbox, size_of
from meander.runtime.wire.rows import Mark, Rows

BATCH = pa.record_batch({"word": ["x" * 1000] * 100})
AT = Epoch(1, 1)


def envelope(body: object) -> Envelope:
    return Envelope("a", 1, "b", 0, AT, body)  # type: ignore[arg-type]


def rows(size: int) -> Envelope:
    """Make a chunk that claims a size."""
    chunk = Chunk("f", 1, 0, 1, 1, 1, Rows(BATCH, 0, 100, (Mark(1, 100, 0),)), size)
    return envelope(Chunks((chunk,)))


def test_rows_and_states_weigh_what_they_are_and_not_what_they_say() -> None:
    assert size_of(rows(1)) == BATCH.get_total_buffer_size() >= BATCH.nbytes
    assert size_of(envelope(Put(1, AT, AT, b"12345", 0))) == 5
    assert size_of(envelope(Put(1, AT, AT, None, 0))) == 0
    assert size_of(envelope(Part(1, AT, 0, 9, b"123", 0))) == 3
    assert size_of(envelope(Copy(1, AT, 1, 1, b"1234", 0))) == 4
    assert size_of(envelope(Rest(1, AT, 1, 2, b"123456", 0))) == 6
    assert size_of(Loaded("log/1", b"1234567")) == 7
    assert size_of(Loaded("log/1", None)) == 0
    assert size_of(envelope(Beat(1.0))) == 0
    assert size_of(None) == 0


def test_it_is_full_by_bytes_and_by_number() -> None:
    box = Inbox(events_max=5, bytes_max=3 * BATCH.get_total_buffer_size())
    for _ in range(3):
        box.put(rows(1))
    assert not box.full
    box.put(rows(1))
    assert box.full
    box.get()
    assert not box.full
    for _ in range(4):
        box.put(None)
    assert box.full


def test_what_the_master_says_and_what_is_restored_do_not_wait_behind_rows() -> None:
    box, record = Inbox(), Loaded("log/1", b"1234567")
    some, grant = rows(1), Envelope(MASTER, 1, "b", 0, AT, Grant(1.0, 1.0, None))
    for event in (some, record, grant):
        box.put(event)
    assert box.bytes == BATCH.get_total_buffer_size() + 7
    assert [box.from_master(), box.from_master()] == [grant, None]
    assert [box.get(), box.bytes] == [record, BATCH.get_total_buffer_size()]
    assert [box.get(), box.get(), box.get()] == [some, None, None]
    assert (box.waiting, box.bytes) == (0, 0)


def test_the_books_are_right_when_many_threads_put() -> None:
    box = Inbox()
    threads = [
        threading.Thread(target=lambda: [box.put(rows(1)) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        until(lambda: box.waiting)
        box.get()
    for thread in threads:
        thread.join()
    assert box.bytes == 0
