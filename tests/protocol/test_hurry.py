"""Somebody waits until rows are durable: they are written at once, and not in the next round."""

from __future__ import annotations

from wire import Books, Settings

from meander.protocol.blocks import Acks, Offer
from meander.protocol.messages import Accepted, Checkpointed, Hasten, Hurry, Tick
from meander.protocol.node.checkpointer import Checkpointer

SLOW = Settings(checkpoint_s=60.0, lease_s=1e6)
"""Nobody would wait for the next round."""
QUICK = Settings(checkpoint_s=1.0, lease_s=1e6)


def offer(*tasks, offset=0):
    return Offer(tuple((task, ((offset, None),), offset, offset, 8) for task in tasks), offset)


def fed(owners="aab", settings=SLOW):
    """A feeder whose rows are applied; the first round, of what is empty, is durable."""
    books = Books(owners, settings)
    books.feeder()
    books.tick()
    accept(books)
    books.mail.clear()
    books.give("f", offer(*range(len(owners))))
    books.deliver()
    books.tick(0.1)
    assert not books.stores
    return books


def accept(books):
    """Let the store have what is being written, and the master say that it counts."""
    books.write()
    for envelope in books.lose(Checkpointed):
        items = [(i.tasks, i.tenure, i.number) for i in envelope.body.items]
        books.say("master", envelope.sender, Accepted(tuple(items)))


def records(books):
    return [len(action.data) for name, action in books.stores if name == "a"]


def writers(books):
    return [name for name, _ in books.stores]


def test_nodes_write_at_once_what_somebody_waits_for():
    """1. rows are applied, and the next round is far away  2. somebody waits  3. both nodes write, once
    4. all is durable."""
    books = fed()
    books.give("f", Hasten())
    assert [e.to for e in books.pending(Hurry)] == ["a", "b"]
    books.deliver(Hurry)
    books.tick()
    books.tick(0.1)
    assert writers(books) == ["a", "b"]
    accept(books)
    books.tick(0.1)
    books.deliver(Acks)
    assert books.machines["f"].outbox.idle
    books.give("f", Hasten())
    assert not books.pending(Hurry)


def test_only_those_are_asked_whose_tasks_have_rows_that_are_not_durable():
    books = fed()
    books.ack(0, 1, 1)
    books.ack(1, 1, 1)
    books.give("f", Hasten())
    assert [e.to for e in books.pending(Hurry)] == ["b"]


def test_a_round_that_is_under_way_is_followed_by_another():
    """1. somebody waits: a round begins  2. more rows come, and somebody waits for them  3. nothing is
    written until the first round is durable, then they are."""
    books = fed()
    books.give("f", Hasten())
    books.deliver(Hurry)
    books.tick()
    books.give("f", offer(0, 1, offset=1))
    books.give("f", Hasten())
    books.deliver()
    for _ in range(3):
        books.tick(0.1)
    assert writers(books) == ["a", "b"]
    accept(books)
    books.tick(0.31)
    assert writers(books) == ["a"]


def test_a_store_that_has_just_failed_is_left_alone_however_much_somebody_waits():
    books = fed()
    books.give("f", Hasten())
    books.deliver(Hurry)
    books.tick()
    books.write(done=False)
    until = books.now + SLOW.retry_s
    while books.now < until - 0.06:
        books.machines["a"].checkpointer.hurry()
        books.tick(0.05)
        assert not books.stores
    books.tick(0.2)
    assert "a" in writers(books)


def test_a_store_that_has_failed_is_left_alone_though_an_earlier_round_counts_meanwhile():
    """1. a round is written and does not count yet  2. the next does not wait for it for ever, and the
    store fails, twice  3. the first counts, and somebody waits: not before the store may be tried."""
    books = fed("aab", QUICK)
    node = books.machines["a"]
    node.checkpointer.hurry()
    books.tick(0.0, "a")
    accept(books)
    books.give("f", offer(0, offset=1))
    books.deliver()
    books.tick(1.5, "a")
    books.write()
    first = books.lose(Checkpointed)
    books.give("f", offer(1, offset=2))
    books.deliver()
    for _ in range(2):
        books.tick(2.5, "a")
        assert "a" in writers(books)
        books.write(done=False)
    until = node.checkpointer._again.until
    assert until > books.now + QUICK.retry_s
    for envelope in first:
        items = [(i.tasks, i.tenure, i.number) for i in envelope.body.items]
        books.say("master", envelope.sender, Accepted(tuple(items)))
    assert not node.checkpointer._round
    node.checkpointer.hurry()
    books.tick(until - books.now - 0.05, "a")
    assert not books.stores


def test_without_checkpoints_there_is_nothing_to_hurry():
    """1. a feeder asks nobody  2. whoever drains asks nodes all the same: they have nothing to go on
    with for ever."""
    books = Books("ab")
    books.feeder()
    books.give("f", offer(0, 1))
    books.give("f", Hasten())
    assert not books.pending(Hurry)
    books.machines["a"].checkpointer.hurry()
    assert not books.machines["a"].goes_on


def test_whoever_waits_all_the_time_does_not_have_tasks_written_more_seldom():
    """1. a record takes longer than the time between two rounds until it counts  2. somebody hurries
    all the time  3. the next round waits for it, and has all tasks."""
    books = fed("aab", QUICK)
    books.now += 1.0
    books.give("f", Hasten())
    books.deliver(Hurry)
    books.tick(0.0, "a")
    assert records(books) == [2]
    books.give("f", offer(0, 1, offset=1))
    books.deliver()
    for _ in range(15):  # until shortly before rounds wait no longer
        books.machines["a"].checkpointer.hurry()
        books.tick(0.1, "a")
        assert records(books) == [2]
    accept(books)
    books.tick(0.02, "a")
    assert records(books) == [2]


def test_rounds_that_somebody_waits_for_take_half_of_the_time_at_most():
    """1. a round takes 0.4 s  2. rows come and somebody waits: the next begins 0.4 s later."""
    books = fed("aab", SLOW)
    node = books.machines["a"]
    node.checkpointer.hurry()
    books.tick(0.0, "a")
    books.now += 0.4
    accept(books)
    books.give("f", offer(0, offset=1))
    books.deliver()
    node.checkpointer.hurry()
    books.tick(0.3, "a")
    assert not books.stores
    assert not node.goes_on
    assert node.checkpointer.due_at() <= books.now + 0.11
    books.tick(0.11, "a")
    assert records(books) == [1]


def test_micro_batches_one_behind_the_other_hold_up_no_round():
    """What is written because a batch was committed is of no round."""
    books = fed("aab", QUICK)
    found = books.machines["a"].checkpointer
    slot = books.machines["a"].slots[1]
    books.machines["a"].book.urgent[1], slot.urgent = slot, True
    found.flush()
    assert not found._round
    assert found.due_at() <= books.now + 1.0


def test_who_waits_is_seen_by_the_clock_and_not_before_the_store_may_be_tried():
    """`due_at` says when, and `goes_on` whether at once."""
    books = fed()
    node = books.machines["a"]
    found: Checkpointer = node.checkpointer
    assert found.due_at() > books.now + 50.0
    assert not node.goes_on
    found.hurry()
    assert found.due_at() <= books.now
    assert node.goes_on
    books.give("a", Tick())
    assert not node.goes_on
