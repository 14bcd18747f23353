"""What is compiled before the first rows come is what they need."""

import pyarrow as pa
from wire import Books

from meander.operators import WordCount
from meander.protocol import kernels
from meander.protocol.blocks import Acks, Chunks
from meander.protocol.messages import Send
from meander.runtime.clients.offers import offer_of
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.codec import decode, encode

TASKS = 4
COMPILED = [kernel for kernel in vars(kernels).values() if hasattr(kernel, "signatures")]


def adapter():
    return OperatorAdapter(WordCount(), TASKS)


def test_no_kernel_is_compiled_for_a_row_that_was_not_compiled_before():
    """1. everything is compiled as `warm` calls it  2. a block is offered, sent as bytes, taken, and
    acknowledged as bytes  3. nothing was compiled for that."""
    kernels.warm()
    before = [list(kernel.signatures) for kernel in COMPILED]
    books = Books("aabb", operator=adapter)
    feeder, word = books.feeder(), iter("abcdefgh")
    for offset in range(3):
        batch = pa.record_batch({"word": [next(word), next(word)]})
        sent = feeder.handle(offer_of([(offset, 0, batch)], ("word",), TASKS), books.now)
        for action in sent:
            came = decode(*encode(action.envelope), (WordCount().schema,))
            assert isinstance(came.body, Chunks)
            node = books.machines[came.to]
            told = node.handle(came, books.now) + node.handle(came, books.now)
            node.operator.settle()
            for ack in told:
                if isinstance(ack, Send) and isinstance(ack.envelope.body, Acks):
                    feeder.handle(decode(*encode(ack.envelope)), books.now)
    assert feeder.outbox.settled
    books.tick(5.0, "f")
    assert [list(kernel.signatures) for kernel in COMPILED] == before
