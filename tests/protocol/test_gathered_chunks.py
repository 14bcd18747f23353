"""Chunks of several messages are given to an operator together, and acknowledged together."""

from math import inf

import pytest
from wire import Books, Notes, chunk

from meander.protocol.blocks import Ack, Acks, Chunks, LoopAcks
from meander.protocol.messages import Envelope, Send, Tick
from meander.protocol.node.express import ACK_BYTES, ACK_S
from meander.protocol.node.intake import GATHER_S
from meander.protocol.node.owing import Owed
from meander.protocol.settings import Settings


class Gathers(Notes):
    """The same operator, which would rather take many chunks at once."""

    def __init__(self):
        super().__init__()
        self.gathering, self.noted, self.calls = False, [], 0

    def gather(self):
        self.gathering = True
        return True

    def apply(self, task, app, feeder, rows, after):
        if not self.gathering:
            return super().apply(task, app, feeder, rows, after)
        self.noted.append((task, app, feeder, rows, after))
        return []

    def collect(self):
        self.gathering = False
        if not self.noted:
            return None
        noted, self.noted = self.noted, []
        self.calls += 1
        return [(one[0], e) for one in noted for e in super(Gathers, self).apply(*one)]


@pytest.fixture
def books():
    return Books("aab", operator=Gathers)


def take(books, *chunks, after_s=0.0):
    """Take chunks as an event of a turn that is not over."""
    books.now += after_s
    return books.machines["a"].take(
        Envelope("f", 1, "a", 0, books.epoch, Chunks(chunks)), books.now
    )


def conclude(books, after_s=0.0):
    books.now += after_s
    return books.machines["a"].conclude(books.now)


def bodies(actions, kind):
    return [
        a.envelope.body for a in actions if isinstance(a, Send) and type(a.envelope.body) is kind
    ]


def test_chunks_of_a_turn_are_one_call(books):
    """1. two messages of one turn are noted  2. at its end the operator is called once."""
    operator = books.machines["a"].operator
    books.now += 1.0
    assert take(books, chunk(1)) == take(books, chunk(2), chunk(1, task=1)) == []
    assert (operator.calls, len(operator.noted)) == (0, 3)
    conclude(books)
    assert (operator.calls, books.notes(0), books.notes(1)) == (1, [1, 2], [1])


def test_turns_that_follow_closely_are_one_call(books):
    """1. the first row is given at once  2. the next, soon after it, waits  3. as long as it may."""
    operator = books.machines["a"].operator
    books.now += 1.0
    take(books, chunk(1))
    conclude(books)
    take(books, chunk(2), after_s=GATHER_S / 4)
    assert conclude(books) == []
    take(books, chunk(3), after_s=GATHER_S / 4)
    assert conclude(books) == []
    assert (operator.calls, books.machines["a"].due_at()) == (1, -inf)
    conclude(books, after_s=GATHER_S)
    assert (operator.calls, books.notes(0)) == (2, [1, 2, 3])


def test_whatever_looks_at_a_task_finds_what_it_has_taken(books):
    """1. a chunk that feeds another task is noted  2. the task moves before the turn has ended  3. its
    state has what it took, and its outbox what it sent."""
    books.node("c")
    books.now += 1.0
    take(books, chunk(1, to=2))
    books.move(0, "c")
    books.publish()
    books.run_quietly()
    state = books.machines["c"].slots[0].state
    assert (state.positions["f"].number, state.emitted) == (1, 1)
    books.tick(1.0)
    books.run_quietly()
    assert (books.notes(0), books.notes(2)) == ([1], [1])


def test_the_clock_gives_the_operator_what_waits(books):
    operator = books.machines["a"].operator
    books.now += 1.0
    take(books, chunk(1))
    conclude(books)
    take(books, chunk(2), after_s=GATHER_S / 4)
    conclude(books)
    books.machines["a"].handle(Tick(), books.now)
    assert (operator.calls, books.notes(0)) == (2, [1, 2])


def test_without_a_lease_nothing_of_it_leaves():
    """1. chunks are noted  2. the lease ends before the turn does  3. nothing is sent."""
    books = Books("aab", operator=Gathers)
    node = books.machines["a"]
    books.now += 1.0
    take(books, chunk(1, to=2))
    node.turn.lease_until = books.now
    assert conclude(books) == []
    node.turn.lease_until = books.now + 100.0
    (sent,) = bodies(conclude(books), Chunks)
    assert [c.feeder for c in sent.chunks] == ["loop/0"]


def test_tasks_of_a_node_are_told_in_one_message(books):
    """1. two tasks of a feed one of b  2. b answers both in one message  3. a believes it."""
    books.now += 1.0
    books.send("a", chunk(1, to=2), chunk(1, task=1, to=2))
    books.deliver(Chunks)
    books.tick(ACK_S, "b")
    (envelope,) = books.pending(LoopAcks)
    assert [acks.feeder for acks in envelope.body.told] == ["loop/0", "loop/1"]
    books.deliver(LoopAcks)
    slots = books.machines["a"].slots
    assert [slots[task].state.outbox.idle for task in (0, 1)] == [True, True]


def test_a_feeder_is_told_after_a_moment(books):
    books.now += 1.0
    take(books, chunk(1))
    assert bodies(conclude(books), Acks) == []
    (acks,) = bodies(conclude(books, after_s=ACK_S), Acks)
    assert [(ack.task, ack.applied) for ack in acks.acks] == [(0, 1)]
    assert bodies(conclude(books, after_s=ACK_S), Acks) == []


def test_what_came_twice_is_answered_at_once(books):
    books.now += 1.0
    take(books, chunk(1))
    conclude(books)
    take(books, chunk(1), after_s=GATHER_S)
    (acks,) = bodies(conclude(books), Acks)
    assert [ack.applied for ack in acks.acks] == [1]


# ---------------------------------------------------------------------- what is owed


def owing(**changes):
    return Owed(Settings(**{"window_chunks": 8, "loop_chunks_max": 64, **changes}))


def test_nothing_is_owed_at_first():
    assert (owing().at(), owing().take(1e9)) == (inf, {})


def test_half_a_window_of_a_lane_is_told_at_once():
    owed = owing()
    for _ in range(3):
        owed.note("f", 0, 1, 5.0)
        owed.note("f", 1, 1, 5.5)
    assert (owed.at(), owed.take(5.0)) == (5.0 + ACK_S, {})
    owed.note("f", 0, 1, 5.0)
    assert owed.take(5.0) == {"f": {0, 1}}
    assert owed.at() == inf


def test_a_task_is_told_by_all_its_lanes():
    """It takes no more itself once it keeps too many chunks, whomever they are for."""
    owed = owing(window_chunks=16)
    for task in range(7):
        owed.note("loop/0", task, 1, 5.0)
        owed.note("f", task, 1, 5.0)
    assert owed.at() == 5.0 + ACK_S
    owed.note("loop/0", 7, 1, 5.0)
    assert owed.take(5.0) == {"loop/0": set(range(8)), "f": set(range(7))}


def test_many_bytes_are_told_at_once():
    owed = owing()
    owed.note("f", 0, ACK_BYTES, 5.0)
    assert owed.take(5.0) == {"f": {0}}


def test_a_window_of_one_is_told_at_once():
    owed = owing(window_chunks=1)
    owed.note("loop/1", 0, 1, 5.0)
    assert owed.take(5.0) == {"loop/1": {0}}


def test_acknowledgements_are_equal_by_what_they_say():
    one, other = Ack(0, (1, 1), 1, 1, 1), Ack(0, (1, 1), 1, 2, 1)
    told = LoopAcks((Acks("loop/0", (one,)),))
    assert told == LoopAcks([Acks("loop/0", (one,))])
    assert told != LoopAcks([Acks("loop/0", (other,))])
    assert told != one
