"""Feeders and loops: numbers, windows, acknowledgements, replay."""

from __future__ import annotations

import pytest
from wire import Books, Notes, Settings, chunk

from meander.errors import MalformedMessage
from meander.model import Epoch
from meander.protocol.blocks import Ack, Acks, Chunks, LoopAcks, Offer
from meander.protocol.master.ledger import Kept
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Beat,
    Bye,
    Checkpointed,
    Dismiss,
    Finish,
    loop_feeder,
)
from meander.protocol.outbox import PACKED_BYTES_MAX, Outbox
from meander.protocol.state import Emission

CHECKPOINTS = Settings(lease_s=1e6, checkpoint_s=1.0)


def fed(settings=None, owners="aab", **changes):
    """Nodes a and b, a server, and a feeder f."""
    books = Books(owners, settings or Settings(lease_s=1e6, **changes))
    books.feeder()
    return books


def sent(books):
    """List (task, number) of the chunks on the pile, and take them away."""
    return [(c.task, c.number) for e in books.lose(Chunks) for c in e.body.chunks]


# ---------------------------------------------------------------------- windows


def test_a_task_gets_no_more_than_its_window_until_it_acknowledges():
    """1. four rows for task 0, a window of two  2. two are sent  3. the first is acknowledged  4. the
    third is sent."""
    books = fed(window_chunks=2)
    for offset in range(4):
        books.offer((0, offset))
    assert sent(books) == [(0, 1), (0, 2)]
    books.ack(0, 1, 1)
    assert sent(books) == [(0, 3)]


def test_credit_is_per_task():
    """1. task 0 has used its window up  2. a row for task 1 is sent all the same."""
    books = fed(window_chunks=1)
    books.offer((0, 0))
    books.offer((0, 1), (1, 2))
    assert sent(books) == [(0, 1), (1, 1)]


def test_a_feeder_that_keeps_too_much_takes_no_more_rows():
    """1. a feeder may keep two chunks  2. it has two: there is no room, and an offer is refused
    3. one becomes durable: there is room."""
    books = fed(retained_chunks_max=2)
    books.offer((0, 0), (1, 1))
    assert not books.machines["f"].room
    with pytest.raises(MalformedMessage, match="no room"):
        books.offer((0, 2))
    books.ack(0, 1, 1)
    assert books.machines["f"].room


def test_what_is_not_acknowledged_in_time_is_sent_again():
    """1. a chunk is sent and lost  2. time passes  3. it is sent again, under the same number."""
    books = fed()
    books.offer((0, 0))
    sent(books)
    books.tick(0.1, "f")
    assert sent(books) == []
    books.tick(1.0, "f")
    assert sent(books) == [(0, 1)]


def test_applied_opens_the_window_and_durable_frees_the_buffer():
    """1. two chunks are sent  2. both are applied, one is durable  3. one is kept, from its first row
    on the source must be read again  4. both are durable: nothing is kept."""
    books = fed()
    books.offer((0, 5))
    books.offer((0, 7))
    books.ack(0, 2, 1)
    outbox = books.machines["f"].outbox
    assert (outbox.retained, outbox.safe_offset(7)) == (1, 6)
    books.ack(0, 2, 2)
    assert (outbox.retained, outbox.safe_offset(7)) == (0, 7)


def test_who_waits_for_durability_asks_now_and_then():
    """1. a chunk is applied, its record is lost  2. after a long time the feeder sends it again, just
    to be told."""
    books = fed()
    books.offer((0, 0))
    books.ack(0, 1, 0)
    sent(books)
    books.tick(1.0, "f")
    assert sent(books) == []
    books.tick(1.0, "f")
    assert sent(books) == [(0, 1)]


def test_a_feeder_rewinds_when_a_task_is_restored():
    """1. chunks 1 and 2 are applied, 1 is durable  2. the task is restored  3. chunk 2 is resent."""
    books = fed()
    books.offer((0, 0))
    books.offer((0, 1))
    books.ack(0, 2, 1)
    sent(books)
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()
    letters = books.lose(Chunks)
    assert [(e.to, c.number) for e in letters for c in e.body.chunks] == [("b", 2)]


def test_an_acknowledgement_of_a_past_term_is_ignored():
    """1. a task is restored  2. its old owner's acknowledgement comes late  3. it never happened."""
    books = fed()
    books.offer((0, 0))
    old = books.table.term(0)
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()
    books.ack(0, 1, 1, term=old)
    assert books.machines["f"].outbox.retained == 1


def test_an_acknowledgement_of_a_newer_term_than_the_table_rewinds_first():
    """1. chunks 1 and 2 are applied  2. the new owner, whose table the feeder lacks, has only 1
    3. chunk 2 is sent again."""
    books = fed()
    books.offer((0, 0))
    books.offer((0, 1))
    books.ack(0, 2, 0)
    sent(books)
    books.ack(0, 1, 1, term=Epoch(1, 99))
    assert sent(books) == [(0, 2)]


def test_nothing_is_sent_without_a_lease():
    """1. the lease of a feeder runs out  2. rows are kept, not sent  3. with a lease they are."""
    books = fed(Settings())
    books.now += 3
    books.offer((0, 0))
    assert sent(books) == []
    books.tell("f")
    books.tick(0.1, "f")
    assert sent(books) == [(0, 1)]


def test_a_beat_tells_up_to_where_nothing_need_be_read_again():
    """1. rows 3 and 4 are offered  2. row 4 is durable, 3 is not  3. the beat says 2."""
    books = fed()
    books.offer((0, 3), (1, 4))
    books.ack(1, 1, 1)
    books.lose()
    books.tick(1.0, "f")
    assert [e.body.offset for e in books.pending(Beat)] == [2]


# ---------------------------------------------------------------------- new incarnations, the end


def test_a_new_incarnation_replays_by_offset_and_the_task_skips_what_it_has():
    """1. incarnation 1 sends rows 0 and 1 as chunks 1 and 2, and is lost  2. incarnation 2 sends rows
    0 to 2 as one chunk 1  3. the task takes row 2 alone."""
    books = Books("aab")
    books.send("a", chunk(1, offset=0), chunk(2, offset=1))
    again = chunk(1, incarnation=2)._replace(
        first=0, last=2, rows=((0, None), (1, None), (2, None))
    )
    books.say("f", "a", Chunks((again,)), incarnation=2)
    assert books.notes(0) == [0, 1, 2]


def test_chunks_of_a_lost_incarnation_that_wait_behind_a_gap_are_discarded():
    """1. chunk 2 of incarnation 1 waits for chunk 1, which is lost with its feeder  2. incarnation 2
    sends the same rows  3. chunk 2 of incarnation 1 is gone, and refused when it comes again."""
    books = Books("aab")
    books.send("a", chunk(2, offset=1))
    books.say("f", "a", Chunks((chunk(1, incarnation=2, offset=0),)), incarnation=2)
    assert (books.machines["a"].slots[0].pending_chunks, books.notes(0)) == (0, [0])
    books.send("a", chunk(2, offset=1), rerouted=True, sender="b")
    books.say("f", "a", Chunks((chunk(2, incarnation=2, offset=1),)), incarnation=2)
    assert books.notes(0) == [0, 1]


def test_a_feeder_leaves_when_all_is_durable():
    """1. the source is at its end  2. a chunk is not durable: it stays  3. it is: it says good-bye,
    until it is dismissed."""
    books = fed()
    books.offer((0, 4))
    books.give("f", Finish())
    assert books.pending(Bye) == []
    books.ack(0, 1, 1)
    assert [e.body.offset for e in books.lose(Bye)] == [4]
    books.tick(1.0, "f")
    assert len(books.pending(Bye)) == 1
    books.say(MASTER, "f", Dismiss())
    assert "at its end" in books.ended["f"]


def test_late_chunks_of_a_closed_feeder_are_refused_and_its_position_is_retired():
    """1. feeder f has left for good  2. its position is forgotten  3. a chunk of it that was under way
    for long is not applied again."""
    books = Books("aab")
    books.send("a", chunk(1))
    books.closed = (("f", 1),)
    books.publish()
    assert "f" not in books.machines["a"].slots[0].state.positions
    books.send("a", chunk(1))
    assert books.notes(0) == [1]


def test_another_feeder_may_come_at_once_under_the_name_of_one_that_has_left():
    """1. f has left for good  2. another f sends  3. a late chunk of the first one comes  4. and the
    table that closed the first comes again, to a task that knows the second."""
    books = Books("aab")
    books.send("a", chunk(1))
    books.closed = (("f", 1),)
    books.publish()
    books.send("a", chunk(1, incarnation=2, offset=5))
    books.send("a", chunk(2))
    books.publish()
    books.send("a", chunk(2, incarnation=2, offset=6))
    assert books.notes(0) == [1, 5, 6]
    assert books.machines["a"].slots[0].state.positions["f"].incarnation == 2


def test_chunks_of_the_second_that_wait_are_not_dropped_with_those_of_the_first():
    books = Books("aab")
    books.send("a", chunk(2, incarnation=2, offset=6))  # overtakes the first of its feeder
    books.closed = (("f", 1),)
    books.publish()
    books.send("a", chunk(1, incarnation=2, offset=5))
    assert books.notes(0) == [5, 6]


def test_a_record_that_was_under_way_does_not_bring_a_closed_feeder_back():
    """1. a record holds the position of f  2. f leaves for good  3. the record is accepted  4. f stays
    forgotten."""
    books = Books("aab", CHECKPOINTS)
    books.write()
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    books.closed = (("f", 1),)
    books.publish()
    accept_all(books)
    assert books.machines["a"].slots[0].state.durable == {}


# ---------------------------------------------------------------------- checkpoints


def accept_all(books, name="a"):
    """Write every record, and accept it as the master would."""
    books.write()
    for envelope in books.lose(Checkpointed, sender=name):
        items = tuple((i.tasks, i.tenure, i.number) for i in envelope.body.items)
        books.say(MASTER, name, Accepted(items))


def test_a_chunk_is_durable_when_its_record_is_accepted():
    """1. chunk 1 is applied: acknowledged as applied only  2. a record is written, reported  3. the
    master accepts it: acknowledged as durable."""
    books = Books("aab", CHECKPOINTS)
    accept_all(books)
    books.send("a", chunk(1))
    (ack,) = books.lose(Acks)[-1].body.acks
    assert (ack.applied, ack.durable) == (1, 0)
    books.tick(2.0, "a")
    accept_all(books)
    (ack,) = books.lose(Acks)[-1].body.acks
    assert (ack.applied, ack.durable) == (1, 1)


def test_a_record_that_was_stored_while_the_lease_was_out_still_counts():
    """1. a record is on its way to the store  2. the lease runs out  3. the store answers  4. with a
    new lease the record is reported."""
    books = Books("aab", Settings(checkpoint_s=1.0))
    books.send("a", chunk(1))
    books.tick(1.0, "a")
    assert books.stores
    books.now += 2.5
    books.write()
    books.lose()
    books.tell("a")
    books.tick(0.5, "a")
    assert len(books.pending(Checkpointed)) == 1


def test_a_write_that_fails_is_made_again():
    """1. the store cannot take a record  2. the next one is written at the next turn."""
    books = Books("aab", CHECKPOINTS)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    books.write(done=False)
    books.tick(2.0, "a")
    assert [len(action.data) for _, action in books.stores] == [2]
    books.write()
    assert {task: len(names) for task, names in books.records.items()} == {0: 1, 1: 1}


# ---------------------------------------------------------------------- loops


def test_a_loop_chunk_is_applied_at_its_task_and_acknowledged_to_the_emitting_task():
    """1. a row makes task 0 feed task 2 at b  2. b applies it and tells task 0 at a  3. nothing is
    kept."""
    books = Books("aab")
    books.send("a", chunk(1, to=2))
    books.run_quietly()
    assert books.notes(2) == [1]
    assert books.machines["a"].slots[0].state.outbox.idle


def test_an_outbox_moves_with_its_task():
    """1. task 0 has fed task 2, but the chunk is lost  2. task 0 moves to b  3. there it sends the
    chunk again  4. when it comes twice it is applied once."""
    books = Books("aab")
    books.send("a", chunk(1, to=2))
    lost = books.lose(Chunks)
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    books.tick(1.0)
    books.run_quietly()
    assert books.notes(2) == [1]
    books.give("b", lost[0])
    assert books.notes(2) == [1]


def test_with_checkpoints_nothing_emitted_leaves_before_it_is_durable():
    """1. task 0 feeds task 2: nothing is sent  2. the record that holds it is accepted  3. it is."""
    books = Books("aab", CHECKPOINTS)
    accept_all(books)
    books.send("a", chunk(1, to=2))
    assert books.pending(Chunks) == []
    books.tick(2.0, "a")
    accept_all(books)
    assert [c.feeder for e in books.pending(Chunks) for c in e.body.chunks] == [loop_feeder(0)]


def test_what_is_emitted_between_two_records_leaves_as_one_chunk():
    """1. task 0 feeds task 2 three times  2. the record that holds it is accepted: one chunk leaves
    3. what is fed meanwhile, and behind it, is another  4. all rows come, in their order."""
    books = Books("aab", CHECKPOINTS)
    accept_all(books)
    for number in (1, 2, 3):
        books.send("a", chunk(number, to=2))
    books.tick(2.0, "a")
    books.send("a", chunk(4, to=2))
    accept_all(books)
    (found,) = [c for e in books.pending(Chunks) for c in e.body.chunks]
    assert (found.number, found.first, found.last, found.size) == (1, 1, 3, 24)
    books.send("a", chunk(5, to=2))
    books.tick(4.0, "a")
    accept_all(books)
    chunks = [c for e in books.pending(Chunks) for c in e.body.chunks]
    assert {c.number: len(c.rows) for c in chunks} == {1: 3, 2: 2}  # the first is asked after, too
    books.deliver(Chunks)
    assert books.notes(2) == [1, 2, 3, 4, 5]
    assert books.machines["a"].slots[0].state.outbox.retained == 2


def test_chunks_that_become_one_are_not_too_large_and_packing_them_again_changes_none():
    outbox = Outbox("loop/0", 1, gated=True)
    for number in range(1, 8):
        outbox.offer(2, (number,), number, number, PACKED_BYTES_MAX // 3)

    def pack():
        outbox.pack(lambda parts: tuple(row for rows in parts for row in rows))
        return [(c.number, c.rows) for c in outbox.lanes[2].chunks]

    assert pack() == [(1, (1, 2, 3)), (2, (4, 5, 6)), (3, (7,))] == pack()
    outbox.offer(2, (8,), 8, 8, 1)
    assert pack() == [(1, (1, 2, 3)), (2, (4, 5, 6)), (3, (7, 8))]
    assert (outbox.retained, outbox.lanes[2].last) == (3, 3)
    outbox.release()
    outbox.offer(2, (9,), 9, 9, 1)
    assert pack()[2:] == [(3, (7, 8)), (4, (9,))]
    outbox.lanes[2].released = 3
    outbox.offer(2, (10,), 10, 10, 1)
    outbox.pack(lambda parts: None)
    assert [c.number for c in outbox.lanes[2].chunks] == [1, 2, 3, 4, 5]


def test_what_a_lost_task_had_emitted_is_sent_again_verbatim():
    """1. task 0 feeds task 2; the record is accepted, the chunk lost  2. a is lost, b restores task 0
    from the record  3. the very same chunk is sent."""
    books = Books("aab", CHECKPOINTS)
    accept_all(books)
    books.send("a", chunk(1, to=2))
    books.tick(2.0, "a")
    accept_all(books)
    chain = tuple(books.records[0])
    assert len(chain) == 2
    first = books.lose(Chunks)[0].body.chunks
    books.ledger.durable[0] = Kept(Epoch(1, 1), 2, chain)
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()
    books.read()
    books.read()  # the last record has told of the one before it
    slot = books.machines["b"].slots[0]
    assert tuple(slot.state.outbox.lanes[2].chunks) == first
    assert books.notes(2) == [1]


def test_external_feeders_are_throttled_while_a_loop_is_full():
    """1. task 0 has as many unacknowledged loop chunks as it may  2. an external chunk waits  3. a loop
    chunk does not  4. the loop drains, the external chunk is applied."""
    books = Books("aab", Settings(lease_s=1e6, loop_chunks_max=1))
    books.send("a", chunk(1, to=2))
    books.send("a", chunk(2))
    assert books.notes(0) == [1]
    books.send("a", chunk(1, feeder="loop/2", offset=7), sender="b")
    assert books.notes(0) == [1, 7]
    books.run_quietly()
    assert books.notes(0) == [1, 7, 2]


class Rings(Notes):
    """An operator whose first task feeds the last, once, when it looks at the clock."""

    timed = True

    def elapse(self, task, app, now):
        if task or not app or ["clock", 0] in app:
            return None
        app.append(["clock", 0])
        return [Emission(2, ((9, None),), 8)]


def test_what_a_timer_feeds_leaves_at_once_though_nothing_else_happens():
    """Nobody else would send it: no rows come any more, no record is written, nothing is owed."""
    books = Books("aab", operator=Rings)
    books.say("f", "a", Chunks((chunk(1),)))
    books.mail.clear()
    books.tick(1.0, "a")
    assert [e.to for e in books.pending(Chunks)] == ["b"]


def test_an_acknowledgement_for_a_task_that_has_moved_on_is_repeated_by_the_receiver():
    """1. task 0 feeds task 2 and moves to b before the acknowledgement  2. it goes to a, in vain
    3. task 0 sends again from b and is told."""
    books = Books("aac")
    books.node("b")
    books.publish()
    books.send("a", chunk(1, to=2))
    books.deliver(Chunks)
    late = books.lose(LoopAcks, to="a")
    books.move(0, "b")
    books.publish()
    for envelope in late:
        books.give("a", envelope)
    books.run_quietly()
    books.tick(1.0)
    books.run_quietly()
    assert books.machines["b"].slots[0].state.outbox.idle
    assert books.notes(2) == [1]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "offer",
    [
        Offer(((9, (), 1, 1, 8),), 1),
        Offer(((-1, (), 1, 1, 8),), 1),
        Offer(((0, (), 1, 1, 8), (0, (), 2, 2, 8)), 2),
        Offer(((0, (), 5, 4, 8),), 5),
        Offer(((0, (), 1, 9, 8),), 5),
        Offer((), -1),
    ],
    ids=["no such task", "negative", "twice", "descending", "beyond the last", "nothing new"],
)
def test_an_impossible_offer_is_refused(offer):
    books = fed()
    with pytest.raises(MalformedMessage):
        books.give("f", offer)
    assert books.machines["f"].outbox.retained == 0


def test_acknowledgements_for_another_feeder_are_refused():
    books = fed()
    with pytest.raises(MalformedMessage, match="came to f"):
        books.say("a", "f", Acks("g", (Ack(0, Epoch(1, 1), 1, 1, 1),)))


def test_nothing_is_offered_after_the_end():
    """It may have said goodbye: nobody would take what comes then, nor acknowledge it."""
    books = fed()
    books.give("f", Finish())
    with pytest.raises(MalformedMessage, match="at its end"):
        books.offer((0, 1))
