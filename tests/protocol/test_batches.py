"""Micro-batches: rows are laid by, then the winners are applied, once, whatever is written again."""

from __future__ import annotations

import pytest
from wire import Books, Settings

from meander.errors import MalformedMessage
from meander.protocol.messages import (
    MASTER,
    ONCE,
    Abandon,
    Accepted,
    Checkpointed,
    Commit,
    Committed,
    Seal,
    Stage,
    StageHeld,
    Unstage,
    Write,
)
from meander.protocol.node.staging import ONCE_MAX
from meander.protocol.state import decode, encode


@pytest.fixture
def books():
    """Nodes a (tasks 0 and 1) and b (task 2), a query q."""
    books = Books("aab")
    books.query()
    return books


def write(books, batch, partition, attempt, *groups):
    """Stage one attempt: groups of (task, offsets…)."""
    items = tuple(
        (task, tuple((offset, None) for offset in offsets), len(offsets), 8)
        for task, *offsets in groups
    )
    books.give("q", Write(batch, partition, attempt, items))


def commit(books, batch, *parts):
    """Commit: parts of (partition, attempt, (task, count)…)."""
    found = tuple((partition, attempt, tuple(counts)) for partition, attempt, *counts in parts)
    books.give("q", Seal(batch, found))


def test_rows_are_laid_by_and_applied_when_they_are_committed(books):
    """1. two partitions are written, for tasks 0 and 2  2. nothing is applied  3. the commit applies
    them everywhere  4. the query is told, once."""
    write(books, 0, 0, 0, (0, 1), (2, 2))
    write(books, 0, 1, 0, (0, 3))
    books.run_quietly()
    assert (books.notes(0), books.words()) == ([], ["written", "written"])
    commit(books, 0, (0, 0, (0, 1), (2, 1)), (1, 0, (0, 1)))
    books.run_quietly()
    assert (books.notes(0), books.notes(2)) == ([1, 3], [2])
    assert books.words()[2:] == ["committed"]
    assert books.machines["a"].slots[0].state.staged == {}


def test_a_losing_attempt_is_never_applied(books):
    """1. partition 0 is written by attempts 0 and 1  2. attempt 1 wins  3. the rows of attempt 0 are
    thrown away, also when they come once more."""
    write(books, 0, 0, 0, (0, 1))
    (late,) = books.pending(Stage)
    books.run_quietly()
    write(books, 0, 0, 1, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 1, (0, 1)))
    books.run_quietly()
    books.give("a", late)
    assert (books.notes(0), books.machines["a"].slots[0].state.staged) == ([1], {})


def test_a_commit_that_comes_twice_is_applied_once(books):
    """1. a batch is committed  2. the order comes again  3. it is answered, not applied."""
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)))
    (order,) = books.pending(Commit)
    books.run_quietly()
    books.give("a", order)
    assert books.notes(0) == [1]
    (outcome,) = books.pending(Committed)[0].body.outcomes
    assert (outcome.applied, outcome.durable, outcome.missing) == (True, True, False)


def test_a_committed_batch_may_be_replayed_in_another_partitioning(books):
    """1. batch 0 is applied at task 0; the query dies before it knows about task 2  2. its successor
    writes the rows again, in one partition and another order  3. task 0 skips them, task 2 does not."""
    write(books, 0, 0, 0, (0, 1))
    write(books, 0, 1, 0, (0, 2), (2, 3))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)), (1, 0, (0, 1), (2, 1)))
    books.lose(Commit, to="b")
    books.run_quietly()
    books.query("q", incarnation=2)
    write(books, 0, 0, 5, (0, 2, 1), (2, 3))
    books.run_quietly()
    commit(books, 0, (0, 5, (0, 2), (2, 1)))
    books.run_quietly()
    assert (books.notes(0), books.notes(2)) == ([1, 2], [3])
    assert books.words()[-1] == "committed"


def test_missing_rows_fail_the_batch_and_change_nothing(books):
    """1. a commit names rows that were never staged at task 0  2. nothing is applied there  3. the
    query is told to write the batch again  4. it does, and the batch is applied."""
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    assert (books.notes(0), books.words()) == ([], ["failed"])
    write(books, 0, 0, 1, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 1, (0, 1)))
    books.run_quietly()
    assert books.notes(0) == [1]


def test_an_answer_to_an_earlier_order_does_not_fail_the_batch_again(books):
    """1. the rows of a batch are missing  2. it is written again, and sealed  3. the answer to the
    first order comes once more  4. nobody minds."""
    commit(books, 0, (0, 0, (0, 1)))
    books.deliver(Commit)
    (late,) = books.pending(Committed)
    books.run_quietly()
    write(books, 0, 0, 1, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 1, (0, 1)))
    books.give("q", late)
    books.run_quietly()
    assert (books.notes(0), books.words()) == ([1], ["failed", "written", "committed"])


def test_a_wrong_count_counts_as_missing(books):
    """1. one row is staged  2. the commit speaks of two  3. nothing is applied."""
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 2)))
    books.run_quietly()
    assert (books.notes(0), books.words()[-1]) == ([], "failed")


def test_staged_rows_move_with_their_task(books):
    """1. rows are staged at task 0  2. it moves to b  3. the commit finds them there."""
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_orders_that_overtake_the_state_wait_for_it(books):
    """1. task 0 moves to b  2. stage and commit come to b first  3. the state comes  4. both are
    carried out, in their order."""
    books.move(0, "b")
    books.next_table()
    books.tell("b")
    books.tell("q")
    write(books, 0, 0, 0, (0, 1))
    books.deliver(Stage)
    commit(books, 0, (0, 0, (0, 1)))
    books.deliver(Commit)
    assert books.pending(StageHeld) == []
    books.tell("a")
    books.run_quietly()
    books.tick(1.0)
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_orders_are_re_routed_and_the_owner_answers_the_query(books):
    """1. task 0 moves to b; the query has not heard  2. its rows go to a, which passes them on  3. b
    answers."""
    books.move(0, "b")
    books.next_table()
    books.tell("a")
    books.tell("b")
    write(books, 0, 0, 0, (0, 1))
    books.deliver(Stage, to="a")
    assert [(e.sender, e.to) for e in books.pending(Stage)] == [("a", "b")]
    books.run_quietly()
    books.tick(1.0)
    books.run_quietly()
    assert books.words() == ["written"]


def test_what_is_not_answered_is_sent_again(books):
    """1. a stage order is lost  2. time passes  3. it is sent again; so is a commit order."""
    write(books, 0, 0, 0, (0, 1))
    books.lose(Stage)
    books.tick(1.0, "q")
    assert len(books.pending(Stage)) == 1
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)))
    books.lose(Commit)
    books.tick(1.0, "q")
    assert len(books.pending(Commit)) == 1


def test_a_batch_is_done_when_it_is_durable_everywhere():
    """1. a batch is applied: the query is not told  2. the record is accepted: it is."""
    books = Books("aab", Settings(lease_s=1e6, checkpoint_s=1.0))
    books.query()
    books.write()
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    assert (books.notes(0), books.words()) == ([1], ["written"])
    for _ in range(2):
        books.tick(2.0, "a")
        books.write()
        for letter in books.lose(Checkpointed):
            items = tuple((i.tasks, i.tenure, i.number) for i in letter.body.items)
            books.say(MASTER, letter.sender, Accepted(items), to_incarnation=1)
    books.run_quietly()
    assert books.words() == ["written", "committed"]


def test_a_query_commits_one_batch_at_a_time(books):
    commit(books, 0, (0, 0, (0, 1)))
    with pytest.raises(MalformedMessage, match="one at a time"):
        commit(books, 1, (0, 0, (0, 1)))


def test_an_empty_batch_is_committed_at_once(books):
    commit(books, 0)
    assert books.words() == ["committed"]


def test_an_attempt_that_was_given_up_is_not_sent_again(books):
    """1. an attempt is written, not confirmed  2. its writer is killed  3. it is not sent again."""
    write(books, 0, 0, 0, (0, 1))
    books.lose(Stage)
    books.machines["q"].drop_attempt(0, 0, 0)
    books.tick(1.0, "q")
    assert books.pending(Stage) == []


def test_an_attempt_that_was_given_up_leaves_nothing_behind(books):
    """1. two attempts at partition 0 are written  2. one is given up  3. its rows are gone, those of
    the other are not."""
    write(books, 0, 0, 0, (0, 1), (2, 2))
    write(books, 0, 0, 1, (0, 1))
    books.run_quietly()
    books.give("q", Abandon(0, ((0, 0, (0, 2)),)))
    books.run_quietly()
    assert list(books.machines["a"].slots[0].state.staged) == [("q", 0, 0, 1)]
    assert books.machines["b"].slots[2].state.staged == {}


def test_rows_that_come_behind_the_word_that_they_are_given_up_are_not_laid_by():
    """1. rows are on their way  2. the word that nobody wants them overtakes them  3. they come,
    perhaps once more after a while: nothing is laid by  4. much later nobody remembers any of it."""
    books = Books("aab", Settings(lease_s=1e6, staged_s_max=100.0))
    books.query()
    write(books, 0, 0, 0, (0, 1))
    [again] = books.pending(Stage)
    books.give("q", Abandon(0, ((0, 0, (0,)),)))
    books.deliver(Unstage)
    books.run_quietly()
    books.tick(101.0, "a")
    books.say("q", "a", again.body)
    books.run_quietly()
    assert books.machines["a"].slots[0].state.staged == {}
    books.tick(101.0, "a")
    books.tick(101.0, "a")
    staging = books.machines["a"].staging
    assert not staging._given_up | staging._given_up_before


def test_rows_of_an_older_batch_go_when_a_later_one_is_written(books):
    """1. a losing attempt at batch 0 has rows for task 1, which the winners have not  2. batch 0 is
    committed  3. batch 1 has rows for task 1: those of batch 0 are gone."""
    write(books, 0, 0, 0, (1, 1))
    write(books, 0, 0, 1, (0, 1))
    commit(books, 0, (0, 1, (0, 1)))
    books.run_quietly()
    assert list(books.machines["a"].slots[1].state.staged) == [("q", 0, 0, 0)]
    write(books, 1, 0, 0, (1, 2))
    books.run_quietly()
    assert list(books.machines["a"].slots[1].state.staged) == [("q", 1, 0, 0)]


def test_rows_of_a_query_that_never_comes_back_are_dropped_in_time():
    """1. rows are written, their query is silent  2. after a while they are gone  3. a commit that
    still comes finds them missing."""
    books = Books("aab", Settings(lease_s=1e6, staged_s_max=100.0))
    books.query()
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    books.tick(90.0, "a")
    assert books.machines["a"].slots[0].state.staged
    books.tick(101.0, "a")
    books.tick(101.0, "a")
    assert books.machines["a"].slots[0].state.staged == {}
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    assert books.words()[-1] == "failed"


def test_rows_of_a_query_that_goes_on_stay(books):
    """1. rows of a long batch are written  2. sweeps pass, and other rows of it come in between  3. all
    are there."""
    books = Books("aab", Settings(lease_s=1e6, staged_s_max=100.0))
    books.query()
    for partition in range(4):
        write(books, 0, partition, 0, (0, partition))
        books.run_quietly()
        books.tick(101.0, "a")
    assert len(books.machines["a"].slots[0].state.staged) == 4


def test_one_machine_serves_many_queries(books):
    """1. the same batch and partition of two queries  2. both are committed, at the same time."""
    row = ((0, ((1, None),), 1, 8),)
    books.give("q", Write(0, 0, 0, row, "one"))
    books.give("q", Write(0, 0, 0, row, "two"))
    books.run_quietly()
    for query in ("one", "two"):
        books.give("q", Seal(0, ((0, 0, ((0, 1),)),), query))
    books.run_quietly()
    assert books.words() == ["written", "written", "committed", "committed"]
    assert books.machines["a"].slots[0].state.batches == {"one": 0, "two": 0}


class Room:
    """Where rows are laid by: has room for so many, and may lose them all."""

    def __init__(self, operator, most):
        self.most, self.laid, self.lost = most, 0, False
        operator.lay_by, operator.take_up = self.lay_by, self.take_up

    def lay_by(self, rows):
        if self.laid == self.most:
            return None
        self.laid += 1
        return ["laid", rows]

    def take_up(self, laid):
        return None if self.lost else laid[1]


def test_rows_without_room_are_not_held_until_there_is_some(books):
    """1. there is room for one of two partitions  2. the other is sent again until it is held."""
    room = Room(books.machines["a"].operator, 1)
    write(books, 0, 0, 0, (0, 1))
    write(books, 0, 1, 0, (0, 2))
    books.run_quietly()
    assert (books.words(), books.machines["a"].staging.refused) == (["written"], 1)
    room.most = 2
    books.tick(5.0, "q")
    books.run_quietly()
    assert (books.words(), room.laid) == (["written", "written"], 2)
    commit(books, 0, (0, 0, (0, 1)), (1, 0, (0, 1)))
    books.run_quietly()
    assert books.notes(0) == [1, 2]


def test_rows_that_cannot_be_taken_up_fail_the_batch(books):
    room = Room(books.machines["a"].operator, 9)
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    room.lost = True
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    assert (books.notes(0), books.words()) == ([], ["written", "failed"])


def test_rows_that_were_laid_by_move_with_their_task(books):
    Room(books.machines["a"].operator, 9)
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    a, b = books.machines["a"], books.machines["b"]
    moved = decode(0, encode(a.slots[0].state, a.operator), b.operator, gated=False)
    assert list(moved.staged) == [("q", 0, 0, 0)]
    assert [tuple(row) for row in moved.staged["q", 0, 0, 0].rows] == [(1, None)]


def write_once(books, name):
    """Write a batch that has no query: it is the only one of its name."""
    books.give("q", Write(0, 0, 0, ((0, ((1, None),), 1, 8),), name))
    books.run_quietly()
    books.give("q", Seal(0, ((0, 0, ((0, 1),)),), name))


def test_of_writes_without_a_query_only_the_newest_are_remembered(books):
    """1. more of them than are kept  2. the last is committed once more, and is not applied again."""
    write(books, 0, 0, 0, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 1)))
    books.run_quietly()
    for number in range(ONCE_MAX + 3):
        write_once(books, f"{ONCE}{number}")
        (order,) = books.pending(Commit)
        books.run_quietly()
    state = books.machines["a"].slots[0].state
    assert len(state.batches) == 1 + ONCE_MAX
    assert list(state.batches)[:2] == ["q", f"{ONCE}3"]
    books.give("a", order)
    assert len(books.notes(0)) == 1 + ONCE_MAX + 3
    (outcome,) = books.pending(Committed)[0].body.outcomes
    assert (outcome.applied, outcome.missing) == (True, False)


def test_what_is_not_durable_is_remembered_however_much_it_is():
    """1. more writes than are kept, none durable  2. the first may still be asked for: it is known
    3. a record is accepted: with the next write the oldest go, also from what is durable."""
    books = Books("aab", Settings(lease_s=1e6, checkpoint_s=1.0))
    books.query()
    books.write()
    for number in range(ONCE_MAX + 3):
        write_once(books, f"{ONCE}{number}")
        books.run_quietly()
    state = books.machines["a"].slots[0].state
    assert len(state.batches) == ONCE_MAX + 3
    for _ in range(3):
        books.tick(2.0, "a")
        books.write()
        for letter in books.lose(Checkpointed):
            items = tuple((i.tasks, i.tenure, i.number) for i in letter.body.items)
            books.say(MASTER, letter.sender, Accepted(items), to_incarnation=1)
    books.run_quietly()
    assert len(state.durable_batches) == ONCE_MAX + 3
    write_once(books, f"{ONCE}last")
    books.run_quietly()
    assert len(state.batches) == ONCE_MAX
    assert set(state.durable_batches) < set(state.batches)


@pytest.mark.parametrize(
    "event",
    [
        Abandon(-1, ()),
        Abandon(0, ((0, 0, (9,)),)),
        Abandon(0, ((-1, 0, (0,)),)),
        Write(-1, 0, 0, ()),
        Write(0, 0, 0, ((7, (), 0, 0),)),
        Write(0, 0, 0, ((0, (), 1, 8), (0, (), 1, 8))),
        Write(0, 0, 0, ((0, (), -1, 8),)),
        Seal(-1, ()),
        Seal(0, ((0, 0, ()), (0, 1, ()))),
        Seal(0, ((0, 0, ((9, 1),)),)),
        Seal(0, ((0, 0, ((0, -1),)),)),
        Seal(0, ((0, -1, ()),)),
    ],
)
def test_an_impossible_write_or_commit_is_refused(books, event):
    with pytest.raises(MalformedMessage):
        books.give("q", event)
    assert (books.machines["q"].unheld, books.machines["q"].sealed) == ({}, {})


def test_a_query_that_went_back_in_time_is_told_and_nothing_of_its_batch_is_applied(books):
    """1. batch 3 is committed  2. batch 1 is written, also for a task that has none  3. the query is
    told which task has what, and nothing is laid by."""
    write(books, 3, 0, 0, (0, 1))
    books.run_quietly()
    commit(books, 3, (0, 0, (0, 1)))
    books.run_quietly()
    write(books, 1, 0, 1, (0, 2))
    books.run_quietly()
    assert books.words() == ["written", "committed", "outdated"]
    assert books.machines["q"].unheld == books.machines["a"].slots[0].state.staged == {}
    assert books.notes(0) == [1]


def test_a_replay_with_other_rows_is_told(books):
    """1. a batch is applied  2. it is replayed, cut otherwise, with as many rows: all is well  3. it is
    replayed with fewer: the query is told."""
    write(books, 0, 0, 0, (0, 1, 2))
    books.run_quietly()
    commit(books, 0, (0, 0, (0, 2)))
    books.run_quietly()
    write(books, 0, 0, 1, (0, 1))
    write(books, 0, 1, 1, (0, 2))
    commit(books, 0, (0, 1, (0, 1)), (1, 1, (0, 1)))
    books.run_quietly()
    assert books.words()[-1] == "committed"
    write(books, 0, 0, 2, (0, 1))
    books.run_quietly()
    commit(books, 0, (0, 2, (0, 1)))
    books.run_quietly()
    assert books.words()[-1] == "differs"
    assert books.notes(0) == [1, 2]
