"""Blocks are taken as their chunks would be, one by one."""

from hypothesis import given
from hypothesis import strategies as st
from test_gathered_chunks import Gathers
from wire import Books, Notes

from meander.protocol.blocks import Acks, Block, Chunks, Offer, SeparateRows
from meander.protocol.messages import Envelope, Send, Store, Tick
from meander.protocol.node.express import ACK_BLOCKS, ACK_S
from meander.protocol.reading import Blob
from meander.protocol.records import assemble
from meander.protocol.settings import Settings

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
    """The last that each feeder hears of each task."""
    return {
        (action.envelope.to, ack.task): ack
        for action in actions
        if isinstance(action, Send) and isinstance(action.envelope.body, Acks)
        for ack in action.envelope.body.acks
    }


def wait(books):
    books.now += 2 * ACK_S
    return books.machines["a"].handle(Tick(), books.now)


def known(books):
    slots = books.machines["a"].slots.values()
    return [(s.task, s.dirty, s.work, s.state.app, s.state.positions, s.pending) for s in slots]


@given(messages, st.booleans())
def test_a_block_is_taken_as_its_chunks_are(messages, looked_at):
    """1. blocks come, some of them early, late, or of another incarnation  2. one node takes them as
    they are, one takes their chunks  3. both say the same, and know the same."""
    one, other = Books("a" * TASKS, operator=ByBlocks), Books("a" * TASKS)
    last, mine, theirs = {}, [], []
    for feeder, incarnation, tasks, tick in messages:
        numbers = {}
        for task, step in tasks.items():
            key = feeder, incarnation, task
            numbers[task] = max(1, last.get(key, 0) + 1 + step)
            last[key] = max(last.get(key, 0), numbers[task])
        made = block(0, feeder, incarnation, numbers)
        mine += take(one, None, Chunks(made))
        theirs += take(other, None, Chunks(made.chunks()))
        if looked_at:
            assert known(one) == known(other)
        if tick:
            mine += wait(one)
            theirs += wait(other)
            assert told(mine) == told(theirs)
    assert known(one) == known(other)
    assert told(mine + wait(one)) == told(theirs + wait(other))


def test_rows_in_order_are_taken_in_one_go_and_others_are_not():
    """1. two blocks in order: two calls  2. one that is early: its chunks wait  3. what was missing
    comes: by itself, and then what has waited; the rest of its block in one go."""
    books = Books("a" * TASKS, operator=ByBlocks)
    node = books.machines["a"]
    for number in (1, 2):
        take(books, None, Chunks(block(0, "f", 1, dict.fromkeys(range(TASKS), number))))
    assert node.operator.blocks == 2
    take(books, None, Chunks(block(0, "f", 1, {0: 4})))
    take(books, None, Chunks(block(0, "f", 1, {0: 3, 1: 3})))
    assert node.operator.blocks == 3
    assert [offset for _, offset in node.slots[0].state.app] == [1, 2, 3, 4]
    take(books, None, Chunks(block(0, "f", 1, {0: 5, 1: 4, 2: 3})))
    assert node.operator.blocks == 4


def test_what_comes_again_is_dropped_and_told_and_the_rest_taken_in_one_go():
    """1. a block  2. it comes again, with the next of another task: one call, for that alone, and both
    are told how far they are"""
    books = Books("a" * TASKS, operator=ByBlocks)
    node = books.machines["a"]
    take(books, None, Chunks(block(0, "f", 1, {0: 1, 1: 1})))
    found = told(take(books, None, Chunks(block(0, "f", 1, {0: 1, 1: 1, 2: 1}))))
    assert node.operator.blocks == 2
    assert {task: ack.applied for (_, task), ack in found.items()} == {0: 1, 1: 1, 2: 1}
    assert [offset for _, offset in node.slots[0].state.app] == [1]
    assert not node.slots[0].pending_chunks


def test_a_few_blocks_are_acknowledged_together_and_in_time():
    """1. a block comes: nobody is told  2. a few more: one message  3. another, and a moment passes:
    told, and the clock is asked for that  4. nothing is owed: the clock is not asked."""
    books = Books("a" * TASKS, operator=ByBlocks)
    node, quiet = books.machines["a"], books.machines["a"].due_at()
    for number in range(1, ACK_BLOCKS + 1):
        found = told(take(books, None, Chunks(block(0, "f", 1, {0: number, 1: number}))))
        assert len(found) == (2 if number == ACK_BLOCKS else 0)
    assert {ack.applied for ack in found.values()} == {ACK_BLOCKS}
    assert not told(take(books, None, Chunks(block(0, "f", 1, {0: ACK_BLOCKS + 1}))))
    assert node.due_at() == books.now + ACK_S
    assert told(wait(books))["f", 0].applied == ACK_BLOCKS + 1
    assert node.due_at() > quiet - 1


def test_a_record_tells_what_came_in_blocks_before_it():
    """1. a block comes  2. somebody waits for a record of its task, which the store could not take
    before  3. with the next block it is written: of both."""
    books = Books("a" * TASKS, Settings(lease_s=1e6, checkpoint_s=1e5), ByBlocks)
    node = books.machines["a"]
    take(books, None, Chunks(block(0, "f", 1, {0: 1})))
    slot = node.book.slots[
        0
    ]  # as the commit of a micro-batch leaves it, after the store has failed
    slot.dirty, slot.record = True, None
    node.book.want(slot)
    actions = take(books, None, Chunks(block(0, "f", 1, {0: 2})))
    (store,) = [action for action in actions if isinstance(action, Store)]
    file, (extent,) = assemble(store.data)
    head = Blob(file[extent.offset : extent.offset + extent.length]).head(0)
    assert head["positions"]["f"][1] == 2


class Picked(SeparateRows):
    """Rows that know what was picked of them."""

    def __init__(self, rows, picked):
        super().__init__(rows)
        self.picked = picked

    def pick(self, which):
        self.picked.append(list(which))
        return super().pick(which)


def test_what_is_left_of_a_block_are_chunks_of_the_message_as_it_came():
    """Rows of another batch would be taken for some that had to wait."""
    books = Books("a" * TASKS, operator=ByBlocks)
    made, picked = block(0, "f", 1, {0: 2, 1: 1, 2: 1}), []
    made.rows = Picked(made.rows.rows, picked)
    take(books, None, Chunks(made))
    assert picked == [[1, 2]]
    take(books, None, Chunks(block(0, "f", 1, {0: 1})))
    assert [offset for _, offset in books.machines["a"].slots[0].state.app] == [1, 2]
    assert picked == [[1, 2]]


class GathersBlocks(ByBlocks, Gathers):
    """The same operator, which is given chunks together, too."""


def test_what_is_owed_for_single_chunks_is_told_with_what_came_in_blocks_since():
    """1. a chunk comes early, then the one before it: both are taken one by one, and owed  2. blocks
    come  3. all is told in one turn: no older number behind a newer one."""
    books = Books("a" * TASKS, operator=GathersBlocks)
    node, heard = books.machines["a"], []
    for number in (2, 1, 3, 4):
        actions = take(books, None, Chunks(block(0, "f", 1, {0: number})))
        assert not any(ack.applied > 0 for ack in told(actions).values())
    books.now += 2 * ACK_S
    body = Chunks(block(0, "f", 1, {0: 5}))
    actions = node.take(Envelope("f", 1, "a", 0, books.epoch, body), books.now)
    for action in actions + node.conclude(books.now):
        if isinstance(action, Send) and isinstance(action.envelope.body, Acks):
            heard += [ack.applied for ack in action.envelope.body.acks]
    assert heard == [5]
