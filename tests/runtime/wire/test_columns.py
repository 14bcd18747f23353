"""Blocks as bytes: they come back as they were, and what is not right is refused."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import MalformedMessage
from meander.model import Epoch
from meander.protocol.blocks import Block, Chunks
from meander.protocol.messages import Envelope
from meander.runtime.clients.offers import offer_of
from meander.runtime.wire.codec import decode, encode
from meander.runtime.wire.columns import framed, unframed

WORDS = pa.schema({"word": pa.string()})
TASKS = 8

batches = st.lists(
    st.lists(st.sampled_from("abcdefghijklm"), min_size=1, max_size=8), min_size=1, max_size=4
)


def block_of(texts):
    items = [(7 + 2 * i, 100 * i, pa.record_batch({"word": t})) for i, t in enumerate(texts)]
    offer = offer_of(items, ("word",), TASKS)
    columns = offer.columns.copy()
    columns[1] = 1 + np.arange(columns.shape[1])
    return Block("f", 3, columns, offer.rows)


def sent(block, rerouted=False):
    return Envelope("f", 3, "n1", 0, Epoch(1, 2), Chunks(block, rerouted))


def plain(chunks):
    return [
        (*c[:6], c.size, c.rows.table()["word"].to_pylist(), list(c.rows.marks)) for c in chunks
    ]


@given(batches, st.booleans(), st.data())
def test_a_block_comes_back_as_it_was(texts, rerouted, data):
    block = block_of(texts)
    places = st.lists(st.integers(0, len(block) - 1), min_size=1, unique=True).map(sorted)
    which = data.draw(st.one_of(places.map(np.array), st.just(slice(0, len(block)))))
    part = block.pick(which)
    body = decode(*encode(sent(part, rerouted)), (WORDS,)).body
    assert body.block is not None
    assert body.rerouted == rerouted
    assert plain(body.chunks) == plain(part.chunks())
    rows = [word for c in part.chunks() for word in c.rows.table()["word"].to_pylist()]
    assert body.rows.batch["word"].to_pylist() == rows, "and no other row travels"


@given(batches)
def test_every_row_of_an_offer_stands_in_its_task_in_the_order_of_its_source(texts):
    found = {}
    for chunk in block_of(texts).chunks():
        words, at = chunk.rows.table()["word"].to_pylist(), 0
        for offset, rows, _ in chunk.rows.marks:
            found.setdefault(chunk.task, []).extend((offset, w) for w in words[at : at + rows])
            at += rows
        assert at == len(words)
        assert (chunk.first, chunk.last) == (found[chunk.task][0][0], found[chunk.task][-1][0])
    given_ = {(7 + 2 * i, w) for i, text in enumerate(texts) for w in text}
    assert {pair for pairs in found.values() for pair in pairs} == given_
    assert sum(map(len, found.values())) == sum(map(len, texts))


def damaged(change):
    wire = encode(sent(block_of([["a", "b", "c", "d"], ["a", "e", "f"]])))
    header, columns = unframed(wire.header)
    count = (len(columns) - 7 * 2) // 48
    numbers = np.frombuffer(columns[: 48 * count], np.int64).reshape(6, count).copy()
    index = np.frombuffer(columns[48 * count :], np.uint16).copy()
    change(numbers, index)
    return framed(header, numbers.tobytes() + index.tobytes()), wire.batch


def swap(numbers, index):
    starts = [*numbers[5].tolist(), 7]
    lb, ub = next((a, b) for a, b in pairwise(starts) if b - a > 1)
    index[lb:ub] = index[lb:ub][::-1]


@pytest.mark.parametrize(
    "change",
    [
        lambda n, _: n[5].fill(0),
        lambda n, _: n[5].__setitem__(0, 1),
        lambda n, _: n[5].__setitem__(-1, 7),
        lambda n, _: n[2].__iadd__(1),
        lambda n, _: n[3].__iadd__(2),
        lambda _, index: index.fill(2),
        lambda _, index: index.fill(0),
        swap,
    ],
)
def test_numbers_that_do_not_fit_the_rows_are_refused(change):
    header, batch = damaged(change)
    with pytest.raises(MalformedMessage):
        decode(header, batch, (WORDS,))


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 6, 40, -1, -2, -9])
def test_a_header_that_is_cut_is_refused(cut):
    wire = encode(sent(block_of([["a", "b"], ["c"]])))
    with pytest.raises(MalformedMessage):
        decode(wire.header[:cut], wire.batch, (WORDS,))
    with pytest.raises(MalformedMessage):
        decode(wire.header, None, (WORDS,))
    with pytest.raises(MalformedMessage):
        decode(wire.header + b"\0", wire.batch, (WORDS,))
