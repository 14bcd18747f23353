"""Whatever is written can be read; whatever else comes is refused as malformed, and nothing worse."""

from __future__ import annotations

import json
import typing
import zlib
from base64 import b64encode
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.errors import MalformedMessage
from meander.model import Assignment, Epoch
from meander.protocol.blocks import Ack, Acks, Block, Chunk, Chunks, LoopAcks
from meander.protocol.client import Client
from meander.protocol.messages import (
    MASTER,
    Copy,
    Envelope,
    Fence,
    Grant,
    Incoming,
    Install,
    Installed,
    Member,
    Message,
    Part,
    Put,
    Rest,
    Stage,
    Staged,
    TenureLink,
    Welcome,
)
from meander.protocol.settings import Settings
from meander.protocol.table import Table
from meander.runtime.wire.codec import BLOB, DECODERS, decode, encode
from meander.runtime.wire.columns import framed, unframed
from meander.runtime.wire.rows import Mark, Marks, Rows, ends_of

WORDS = pa.schema({"word": pa.string()})
numbers = st.integers(0, 2**40)
names = st.text(max_size=20)
epochs = st.builds(Epoch, numbers, numbers)


def sent(body: Message) -> Envelope:
    return Envelope("n1", 3, "n2", 0, Epoch(1, 7), body)


def read(envelope: Envelope, *schemas: pa.Schema) -> Envelope:
    return decode(*encode(envelope), schemas or [WORDS])


def table() -> Table:
    return Table(
        Assignment.from_intervals({"n1": (0, 3), "n2": (3, 8)}, epoch=Epoch(1, 7)),
        (Incoming(3, 5, Epoch(1, 7), (TenureLink("n1", 1, Epoch(1, 2)),), 2),),
        ((0, 8, Epoch(1, 1)),),
        {"n1": Member(1, "s"), "n2": Member(2, "s")},
        {"s": 4},
        (("old", 3),),
        {"n1": "127.0.0.1:9"},
    )


@given(
    st.lists(st.builds(Ack, numbers, epochs, numbers, numbers, numbers)),
    names,
)
def test_acknowledgements_come_back_as_they_were(acks: list[Ack], feeder: str) -> None:
    envelope = sent(Acks(feeder, tuple(acks)))
    assert read(envelope) == envelope


@given(
    st.lists(st.tuples(names, st.lists(st.builds(Ack, numbers, epochs, numbers, numbers, numbers))))
)
def test_acknowledgements_of_many_come_back_as_they_were(told: list[tuple[str, list[Ack]]]) -> None:
    envelope = sent(LoopAcks(Acks(feeder, tuple(acks)) for feeder, acks in told))
    assert read(envelope) == envelope


@pytest.mark.parametrize("counts", [(1,), (3,), (-1, 3)])
def test_acknowledgements_of_many_fit_those_whom_they_are_for(counts: tuple[int, ...]) -> None:
    two = np.ones((6, 2), np.int64).tobytes()
    head = encode(sent(LoopAcks([Acks("loop/0", ())] * len(counts)))).header
    header, _ = unframed(head)
    for count in counts:
        header = header.replace(b'["loop/0",0]', f'["loop/0",{count}]'.encode(), 1)
    with pytest.raises(MalformedMessage, match="acknowledgements"):
        decode(framed(header, two), None)


@given(
    st.lists(
        st.builds(Install, numbers, epochs, numbers, st.floats(0, 1e9), st.just(0.5), st.booleans())
    )
)
def test_installs_come_back_as_they_were(items: list[Install]) -> None:
    envelope = sent(Installed(tuple(items)))
    assert read(envelope) == envelope


def test_a_table_comes_back_as_it_was() -> None:
    found = read(sent(Welcome(2, -1, Grant(-1.0, 2.5, table()), "i1"))).body
    assert isinstance(found, Welcome)
    for field in ("assignment", "incoming", "terms", "members", "servers", "closed", "addresses"):
        assert getattr(found.grant.table, field) == getattr(table(), field)


@given(st.lists(st.lists(names, min_size=1, max_size=5), min_size=1, max_size=4), st.booleans())
def test_rows_of_many_chunks_travel_in_one_batch(groups: list[list[str]], together: bool) -> None:
    whole = pa.record_batch({"word": [w for g in groups for w in g]}, schema=WORDS)
    chunks, at = [], 0
    for i, group in enumerate(groups):
        batch = whole if together else pa.record_batch({"word": group}, schema=WORDS)
        rows = Rows(batch, at if together else 0, len(group), (Mark(9, len(group), 5),))
        chunks.append(Chunk("f", 1, i, 1, 9, 9, rows, 10))
        at += len(group)
    found = read(sent(Chunks(tuple(chunks), rerouted=True))).body
    assert isinstance(found, Chunks)
    assert [c.rows.table()["word"].to_pylist() for c in found.chunks] == groups
    assert [c._replace(rows=None) for c in found.chunks] == [c._replace(rows=None) for c in chunks]
    assert len({id(c.rows.batch) for c in found.chunks}) == 1


def shared(*counts: list[int]) -> Chunks:
    """Chunks that were cut from the same three source batches."""
    words = [f"w{i}" for i in range(sum(map(sum, counts)))]
    batch, sources = pa.record_batch({"word": words}, schema=WORDS), ((4, 10), (5, 11), (7, 12))
    chunks, at = [], 0
    for task, found in enumerate(counts):
        marks = Marks(sources, found)
        rows = Rows(batch, at, sum(found), marks)
        chunks.append(Chunk("f", 1, task, 1, *ends_of(marks), rows, 10))
        at += sum(found)
    return Chunks(tuple(chunks), rerouted=False)


def test_marks_of_the_same_source_batches_travel_once() -> None:
    wire = encode(sent(shared([1, 2, 0], [0, 1, 0], [3, 0, 4])))
    assert json.loads(wire.header)[-1][-1] == [[[4, 10], [5, 11], [7, 12]]]
    found = decode(*wire, [WORDS]).body
    assert isinstance(found, Chunks)
    assert [list(c.rows.marks) for c in found.chunks] == [
        [(4, 1, 10), (5, 2, 11)], [(5, 1, 11)], [(4, 3, 10), (7, 4, 12)],
    ]  # fmt: skip
    last = found.chunks[2].rows.after(4)
    assert (list(last.marks), last.count) == ([(7, 4, 12)], 4)
    assert len({id(c.rows.marks.sources) for c in found.chunks}) == 1
    again = decode(*encode(sent(found)), [WORDS]).body
    assert isinstance(again, Chunks)
    assert [list(c.rows.marks) for c in again.chunks] == [list(c.rows.marks) for c in found.chunks]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        ((1, 0, 9), [1, 1, 0]),  # other counts than rows
        ((1, 0, 9), [1, 2]),  # of fewer batches
        ((1, 0, 10), 1),  # no such book
        ((1, 0, 10), -1),
        ((1, 0, 9), [4, -1, 0]),
        ((1, 0, 9), [0, 0, 0]),
        ((1, 0, 9), []),
        ((1, 0, 9), [1, "2", 0]),
        ((1, 0, 4), 3),  # its first offset is another
        ((1, 0, 5), 7),
        ((2, 0), [[4, 10], [4, 11], [7, 12]]),  # they do not ascend
        ((2, 0), [[4, 10], [5], [7, 12]]),
        ((2, 0), [[4, 10], [5, 2.5], [7, 12]]),
        ((2,), {}),
    ],
)
def test_marks_that_do_not_fit_are_refused(at: tuple[int, ...], value: object) -> None:
    wire = encode(sent(shared([1, 2, 0])))
    header = json.loads(wire.header)
    place = header[-1]
    for step in at[:-1]:
        place = place[step]
    place[at[-1]] = value
    with pytest.raises(MalformedMessage):
        decode(json.dumps(header).encode(), wire.batch, [WORDS])


@given(st.one_of(st.none(), st.binary(max_size=100)))
def test_states_come_back_as_they_were(blob: bytes | None) -> None:
    put = sent(Put(3, Epoch(1, 2), Epoch(1, 3), blob, 77))
    assert read(put) == put
    for kind in (Copy, Rest):
        body = kind(3, Epoch(1, 2), 4, 5, blob or b"", 77)
        assert read(sent(body)).body == body
    part = sent(Part(3, Epoch(1, 2), 0, 100, blob or b"", 77))
    assert read(part) == part


def test_staged_rows_come_back_as_they_were() -> None:
    batch = pa.record_batch({"word": ["a", "b"]}, schema=WORDS)
    body = Stage((Staged("q", 1, 2, 3, 4, Rows(batch, 1, 1), 1, 8),), "q")
    found = read(sent(body)).body
    assert isinstance(found, Stage)
    assert found.items[0].rows.table()["word"].to_pylist() == ["b"]
    assert found.items[0]._replace(rows=None) == body.items[0]._replace(rows=None)


def test_every_message_has_a_reader() -> None:
    kinds = (*typing.get_args(Message), Block)
    assert {kind.__name__ for kind in kinds} == set(DECODERS)


# --------------------------------------------------------------------------- what is refused

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
kinds = st.sampled_from([kind.__name__ for kind in typing.get_args(Message)] + ["Nonsense"])


@settings(max_examples=300)
@given(kinds, st.lists(anything, max_size=6), st.booleans())
def test_arbitrary_fields_are_refused_or_well_typed(
    kind: str, fields: list[object], rows: bool
) -> None:
    header = json.dumps([kind, "a", 1, "b", 0, [1, 1], fields]).encode()
    batch = pa.record_batch({"word": ["a"]}, schema=WORDS) if rows else None
    try:
        found = decode(header, batch, [WORDS])
    except MalformedMessage:
        return
    assert type(found.body).__name__ == kind


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused(header: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(header, None, [WORDS])


@settings(max_examples=200)
@given(st.data())
def test_a_changed_byte_never_does_worse_than_be_refused(data: st.DataObject) -> None:
    batch = pa.record_batch({"word": ["a", "b"]}, schema=WORDS)
    chunk = Chunk("f", 1, 0, 1, 9, 9, Rows(batch, 0, 2, (Mark(9, 2, 5),)), 10)
    body = data.draw(st.sampled_from([Chunks((chunk,)), Grant(1.0, 2.0, table()), Fence()]))
    wire = encode(sent(body))
    header = bytearray(wire.header)
    header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        decode(bytes(header), wire.batch, [WORDS])


def refused(fields: object, batch: pa.RecordBatch | None, kind: str = "Chunks") -> str:
    header = json.dumps([kind, "a", 1, "b", 0, [1, 1], fields]).encode()
    with pytest.raises(MalformedMessage) as error:
        decode(header, batch, [WORDS])
    return str(error.value)


def test_rows_that_do_not_fit_are_refused() -> None:
    two = pa.record_batch({"word": ["a", "b"]}, schema=WORDS)
    chunk = ["f", 1, 0, 1, 9, 9, 10, 0, [[9, 2, 5]]]
    assert "rows of" in refused([False, [chunk], []], pa.record_batch({"other": [1]}))
    assert "marks and rows" in refused([False, [[*chunk[:8], [[9, 1, 5]]]], []], two)
    assert "outside" in refused([False, [[*chunk[:7], 3, [[9, 2, 5]]]], []], two)
    assert "ascend" in refused([False, [[*chunk[:8], [[8, 2, 5]]]], []], two)
    assert "no marks" in refused([False, [[*chunk[:8], []]], []], two)
    assert "outside" in refused([False, [chunk], []], None)


def test_a_batch_whose_offsets_leave_its_data_is_refused() -> None:
    offsets = pa.array([0, 1_000_000, 1], pa.int32()).buffers()[1]  # seen by a full check only
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a")])
    batch = pa.RecordBatch.from_arrays([column], schema=WORDS)
    chunk = ["f", 1, 0, 1, 9, 9, 1, 0, [[9, 2, 5]]]
    assert "offset" in refused([False, [chunk], []], batch)


def test_huge_numbers_long_names_and_deep_nesting_are_refused() -> None:
    held = ["q", 1, 1, 1]
    assert "9223372036854775807" in refused([[[*held, 2**64]], []], None, "StageHeld")
    assert ">= 0" in refused([[[[[1, 2]], [1, -1], 1]]], None, "Accepted")
    assert "length <= 512" in refused("f" * 513, None, "Acks")
    counts = ["f", 1, 0, 1, 9, 9, 10, 0, [], [0] * 2_000_001, 0]
    assert "length <= 2000000" in refused([False, [counts], []], None)
    assert "got `bool`" in refused([True], None, "Bye")
    assert "malformed" in refused([float("inf"), [], -1, False], None, "Beat")
    with pytest.raises(MalformedMessage):
        decode(b"[" * 100_000, None, [WORDS])
    with pytest.raises(MalformedMessage):
        decode(b'["Bye","a",1,"b",0,[1,1],[' + b"9" * 5000 + b"]]", None, [WORDS])


def test_overlapping_tables_are_refused() -> None:
    wire = encode(sent(Grant(1.0, 2.0, table())))
    text = wire.header.decode().replace('"runs"', "")
    broken = text.replace('[3,8,"n2"]', '[2,8,"n2"]')
    assert broken != text
    with pytest.raises(MalformedMessage):
        decode(broken.encode(), None)


def test_states_must_be_one_binary_value() -> None:
    two = pa.record_batch({"blob": [b"a", b"b"]}, schema=BLOB)
    assert "one binary" in refused([1, [1, 1], 0, 5, "", 7], two, "Part")
    null = pa.record_batch({"blob": [None]}, schema=BLOB)
    assert "null" in refused([1, [1, 1], 0, 5, "", 7], null, "Part")
    one = pa.record_batch({"blob": [b"a"]}, schema=BLOB)
    assert "where none should be" in refused([1, [1, 1], 0, 5, "YQ==", 7], one, "Part")
    assert "missing" in refused([1, [1, 1], 0, 5, "", 7], None, "Part")
    assert "where none should be" in refused([1, [1, 1], [1, 2], None, 7], one, "Put")


def test_a_farewell_fits_a_message_however_much_an_operator_says() -> None:
    node = Client("n1", 1, Settings(), 1, "n1/1/1")
    said = node.farewell("boom " * 1000, "a long line " * 1000 + "\n\udc80\n" * 1000)
    wire = encode(said)
    assert decode(wire.header, wire.batch) == said


def test_a_large_table_is_packed_once_and_comes_out_the_same() -> None:
    names = tuple(f"node-{n}" for n in range(200))
    spans = {name: (n, n + 1) for n, name in enumerate(names)}
    members = {name: Member(1, "server@h") for name in names}
    addresses = {name: f"10.0.0.{n}:4000" for n, name in enumerate(names)}
    assignment = Assignment.from_intervals(spans, epoch=Epoch(1, 3))
    table = Table(assignment, (), (), members, {}, addresses=addresses)
    envelopes = [
        Envelope(MASTER, 1, name, 1, Epoch(1, 3), Grant(-1.0, 0.0, table)) for name in names[:2]
    ]
    wires = [encode(envelope) for envelope in envelopes]
    assert all(len(wire.header) < len(json.dumps(addresses)) for wire in wires)
    assert table.written is table.written
    found = decode(wires[1].header, None)
    assert found.to == "node-1"
    assert found.body.table.addresses == addresses
    assert found.body.table.assignment == table.assignment


def test_a_table_that_is_packed_wrongly_is_malformed() -> None:
    head = ["Grant", MASTER, 1, "n1", 1, [1, 0]]
    for packed in ("", "AAAA", b64encode(zlib.compress(b"{}")).decode(), "not base64"):
        with pytest.raises(MalformedMessage):
            decode(json.dumps([*head, [0.0, 0.0, packed, ""]]).encode(), None)
