"""Somebody waits until rows are durable: they are written at once, and not in the next round."""

from __future__ import annotations

from wire import Books, Settings

from meander.protocol.blocks import Acks, Offer
from meander.protocol.messages import Accepted, Checkpointed, Hasten, Hurry, Tick
from meander.protocol.node.checkpointer import Checkpointer

SLOW = Settings(checkpoint_s=60.0, lease_s=1e6)
"""Nobody would wait for the next round."""


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


def test_a_round_that_is_under_way_is_followed_by_another_at_once():
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
    books.tick(0.1)
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


def test_without_checkpoints_there_is_nothing_to_hurry():
    books = Books("ab")
    books.feeder()
    books.give("f", offer(0, 1))
    books.give("f", Hasten())
    assert not books.pending(Hurry)


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
