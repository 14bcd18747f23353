"""Blocks are taken as their chunks would be, one by one."""

from hypothesis import given
from hypothesis import strategies as st
from wire import Books, Notes

from meander.protocol.blocks import Acks, Block, Chunks, Offer
from meander.protocol.messages import Envelope

TASKS = 3


class ByBlocks(Notes):
    """The same operator, which takes blocks, too."""

    takes_blocks = True
    blocks = 0

    def apply_block(self, tasks, apps, feeder, rows):
        self.blocks += 1
        for i, task in enumerate(tasks.tolist()):
            assert not list(self.apply(task, apps[task], feeder, rows.at(i), -1))


messages = st.lists(
    st.tuples(
        st.sampled_from(["f", "g"]),
        st.sampled_from([1, 1, 1, 2]),
        st.dictionaries(st.integers(0, TASKS - 1), st.integers(-1, 1), min_size=1),
        st.booleans(),
    ),
    max_size=12,
)


def block(number, feeder, incarnation, tasks):
    """A chunk for each task, of some number."""
    groups = [(task, ((n, None),), n, n, 8) for task, n in tasks.items()]
    columns = Offer(groups, 99).columns.copy()
    columns[1] = [tasks[task] for task in columns[0].tolist()]
    return Block(feeder, incarnation, columns, Offer(groups, 99).rows)


def take(books, message, body):
    envelope = Envelope("f", 1, "a", 0, books.epoch, body)
    books.now += 0.01
    return books.machines["a"].handle(envelope, books.now)


def told(actions):
    return sorted(
        (action.envelope.to, ack)
        for action in actions
        if isinstance(action.envelope.body, Acks)
        for ack in action.envelope.body.acks
    )


def known(books):
    slots = books.machines["a"].slots.values()
    return [(s.task, s.dirty, s.work, s.state.app, s.state.positions, s.pending) for s in slots]


@given(messages, st.booleans())
def test_a_block_is_taken_as_its_chunks_are(messages, looked_at):
    """1. blocks come, some of them early, late, or of another incarnation  2. one node takes them as
    they are, one takes their chunks  3. both say the same, and know the same."""
    one, other = Books("a" * TASKS, operator=ByBlocks), Books("a" * TASKS)
    last = {}
    for feeder, incarnation, tasks, tick in messages:
        numbers = {}
        for task, step in tasks.items():
            key = feeder, incarnation, task
            numbers[task] = max(1, last.get(key, 0) + 1 + step)
            last[key] = max(last.get(key, 0), numbers[task])
        made = block(0, feeder, incarnation, numbers)
        mine = take(one, None, Chunks(made))
        theirs = take(other, None, Chunks(made.chunks()))
        assert told(mine) == told(theirs)
        if looked_at:
            assert known(one) == known(other)
        if tick:
            one.tick(0.3, "a")
            other.tick(0.3, "a")
    assert known(one) == known(other)


def test_rows_in_order_are_taken_in_one_go_and_others_are_not():
    """1. two blocks in order: two calls  2. one that is early: its chunks wait  3. what was missing
    comes: by itself, and then what has waited."""
    books = Books("a" * TASKS, operator=ByBlocks)
    node = books.machines["a"]
    for number in (1, 2):
        take(books, None, Chunks(block(0, "f", 1, dict.fromkeys(range(TASKS), number))))
    assert node.operator.blocks == 2
    take(books, None, Chunks(block(0, "f", 1, {0: 4})))
    take(books, None, Chunks(block(0, "f", 1, {0: 3, 1: 3})))
    assert node.operator.blocks == 2
    assert [offset for _, offset in node.slots[0].state.app] == [1, 2, 3, 4]
    take(books, None, Chunks(block(0, "f", 1, {0: 5, 1: 4, 2: 3})))
    assert node.operator.blocks == 3
