"""The oracle: what is called durable is compared with the bytes in the store."""

import pytest

from meander.model import Epoch
from meander.protocol.blocks import Ack, Acks, Chunk, Chunks
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import MANIFEST_KEY, Manifest
from meander.protocol.messages import Accepted, CommitOutcome, Committed, Extent
from meander.protocol.records import Ref, assemble, write
from meander.protocol.state import Emission, Position, TaskState
from meander.testing.oracle import Oracle
from meander.testing.tally import Tally
from meander.testing.trial import OperatorTrial

TENURE = Epoch(1, 3)


class Store:
    """A store with the record of task 0, and what the oracle has to say."""

    def __init__(self):
        self.files = {}
        self.said = []
        feeds = {"f": [(0, None), (1, None), (0, None)]}
        trial = OperatorTrial(lambda: Tally(2, (0, 0), print), 2, feeds)
        self.oracle = Oracle(self.files.get, lambda by, text: self.said.append((by, text)), trial)

    def put(self, *, number, offset, batch, emitted, offsets=None):
        state = TaskState(0, Tally(2, (0, 0), print).empty(0), gated=True)
        state.positions["f"] = Position(1, number, offset)
        state.batches["q"] = batch
        for _ in range(emitted):
            state.emit(Emission(1, ((1, 1),), 8))
        file = f"log/1/n1.1/{len(self.files)}"
        data, extents = assemble([write(0, state, Tally(2, (0, 0), print), None)])
        self.files[file] = data
        assert isinstance(extents[0], Extent)
        kept = Kept(TENURE, number, (str(Ref(file, *extents[0])),))
        self.files[MANIFEST_KEY] = Manifest(1, 2, ("n1",), {0: kept}, offsets or {}).dump()
        self.oracle.look()


@pytest.fixture
def store():
    store = Store()
    store.put(number=2, offset=0, batch=4, emitted=3)
    return store


def acks(durable, incarnation=1):
    return Acks("f", (Ack(0, TENURE, incarnation, 9, durable),))


def chunks(number):
    return Chunks((Chunk("loop/0", 1, 1, number, number, number, (), 8),))


def committed(batch, *, durable=True):
    return Committed("q", batch, (CommitOutcome(0, TENURE, True, durable, missing=False),))


def test_what_is_in_the_store_may_be_called_durable(store):
    store.oracle.acks("n1", acks(2))
    store.oracle.committed("n1", committed(4))
    store.oracle.chunks("n1", chunks(3))
    store.oracle.accepted("master", Accepted(((((0, 1),), TENURE, 2),)))
    store.oracle.offset("f", 0, "f")
    store.oracle.applied("n1", 1, "loop/0", 2)
    assert store.said == []


@pytest.mark.parametrize(
    "lie",
    [
        lambda oracle: oracle.acks("n1", acks(3)),
        lambda oracle: oracle.acks("n1", acks(1, incarnation=2)),
        lambda oracle: oracle.committed("n1", committed(5)),
        lambda oracle: oracle.chunks("n1", chunks(4)),
        lambda oracle: oracle.accepted("master", Accepted(((((0, 1),), TENURE, 3),))),
        lambda oracle: oracle.accepted("master", Accepted(((((1, 2),), TENURE, 1),))),
        lambda oracle: oracle.offset("f", 1, "f"),
        lambda oracle: oracle.applied("n1", 1, "loop/0", 3),
    ],
)
def test_what_is_not_in_the_store_may_not(store, lie):
    lie(store.oracle)
    assert [by for by, _ in store.said] == ["oracle"]


def test_what_is_only_applied_is_no_promise(store):
    store.oracle.acks("n1", acks(0))
    store.oracle.committed("n1", committed(9, durable=False))
    assert store.said == []


def test_the_store_may_go_back_but_not_behind_what_was_promised(store):
    store.put(number=1, offset=0, batch=4, emitted=3)  # nobody was told of chunk 2
    assert store.said == []
    store.oracle.acks("n1", acks(1))
    store.oracle.chunks("n1", chunks(3))
    store.put(number=1, offset=0, batch=4, emitted=2)
    assert len(store.said) == 1


def test_the_offsets_in_the_manifest_are_a_promise_too(store):
    store.put(number=3, offset=0, batch=4, emitted=3, offsets={"f": 2})
    assert len(store.said) == 2  # rows 1 and 2 are nowhere
