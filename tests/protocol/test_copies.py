"""Copies ahead: the state is there before the task moves; whatever fails, the task moves anyway."""

import json
from types import SimpleNamespace

import pytest
from wire import Books, Notes, chunk

from meander.model import Epoch
from meander.protocol.blocks import Chunks
from meander.protocol.master.copies_ahead import Ahead
from meander.protocol.master.round import CarriedRound
from meander.protocol.messages import (
    MASTER,
    REFUSED,
    Copied,
    Copy,
    Fetch,
    Prepare,
    Prepared,
    Put,
    Rest,
)
from meander.protocol.node.copy_window import CopyWindow
from meander.protocol.settings import Settings

FOREVER = Settings(lease_s=1e6, copy_bytes=1, copy_window_bytes=1)
"""One piece is under way at a time."""
MANY_MORE = Settings(copy_bytes=100, copy_bytes_max=100, copy_window_bytes=10_000)
MANY = Settings(lease_s=1e6, copy_bytes=30, copy_bytes_max=30, copy_window_bytes=60)
"""As many as fit into sixty bytes: four of the pieces below."""


class Versions(Notes):
    """Notes that can be copied ahead, one row in a piece; a mark is how many there were."""

    def ahead(self, app, since):
        rows = iter(app[since or 0 :])

        def take(size):
            row = next(rows, None)
            return None if row is None else json.dumps([row]).encode()

        return len(app), take

    def catch_up(self, task, app, piece):
        return (app or []) + json.loads(piece)

    def rest(self, app, since):
        return json.dumps(app[since:]).encode()

    def complete(self, task, app, blob):
        return (app or []) + json.loads(blob)


def served(settings=FOREVER, rows=2):
    """Give a wire on which `a` serves task 0 with some rows, and `b` could."""
    books = Books("aab", settings, Versions)
    for number in range(1, rows + 1):
        books.say("f", "a", Chunks((chunk(number),)))
    books.mail.clear()
    return books


def prepare(books, turn=1):
    tenure = books.machines["a"].slots[0].tenure
    books.say(MASTER, "a", Prepare(((0, tenure, "b", turn),), 0.01), epoch=books.epoch)


def copied(books, turn=1):
    """Copy task 0 to the end of a turn."""
    prepare(books, turn)
    for _ in range(9):
        books.deliver(Copy)
        books.deliver(Copied)
        books.tick(0.0, "a")
    return books.lose(Prepared)


def switch(books):
    books.move(0, "b")
    books.publish()


def test_a_task_that_was_copied_moves_with_the_rest_and_nothing_is_put_or_fetched():
    """1. two rows are copied  2. a third comes  3. the task moves: the third is all that moves."""
    books = served()
    (letter,) = copied(books)
    assert letter.body.items[0][::2] == (0, 1)
    books.say("f", "a", Chunks((chunk(3),)))
    books.mail.clear()
    switch(books)
    (rest,) = books.deliver(Rest)
    assert b'[["f", 3]]' in rest.body.data
    assert b'["f", 2]' not in rest.body.data
    assert (books.phase("b", 0), books.notes(0)) == ("serving", [1, 2, 3])
    assert (books.pending(Put), books.pending(Fetch)) == ([], [])
    assert books.machines["b"].arrivals.completed == 1
    books.say("f", "b", Chunks((chunk(3), chunk(4))))
    assert books.notes(0) == [1, 2, 3, 4]


def test_the_rest_may_come_before_the_table():
    books = served()
    copied(books)
    books.move(0, "b")
    books.next_table()
    books.tell("a")
    books.deliver(Rest)
    assert books.phase("b", 0) == "absent"
    books.tell("b")
    assert (books.phase("b", 0), books.notes(0)) == ("serving", [1, 2])


def test_a_second_turn_brings_what_has_changed_since():
    books = served()
    copied(books)
    books.say("f", "a", Chunks((chunk(3),)))
    books.mail.clear()
    prepare(books, 2)
    (piece,) = books.pending(Copy)
    assert (piece.body.number, json.loads(piece.body.data)) == (3, [["f", 3]])
    books.deliver(Copy)
    books.deliver(Copied)
    books.tick(0.0, "a")
    assert [e.body.items[0][2] for e in books.lose(Prepared)] == [2]


def numbers(books, kind=Copy):
    return [e.body.number for e in books.pending(kind)]


def to_the_end(books):
    """Deliver all pieces and answers for a while; say which turns are done."""
    for _ in range(40):
        books.deliver(Copy)
        books.deliver(Copied)
        books.tick(0.01, "a")
    return [e.body.items[0][2] for e in books.lose(Prepared)]


def test_several_pieces_are_under_way_and_the_next_leaves_when_one_is_answered():
    books = served(MANY, rows=9)
    prepare(books)
    assert numbers(books) == [1, 2, 3, 4]
    first, *_ = books.pending(Copy)
    books.mail.remove(first)
    books.give("b", first)
    assert numbers(books) == [2, 3, 4]
    books.deliver(Copied)
    assert numbers(books) == [2, 3, 4, 5]
    assert to_the_end(books) == [1]
    assert len(books.machines["b"].arrivals.arriving[0].app) == 9


def test_pieces_behind_one_that_is_lost_are_sent_again_from_there_on():
    """1. of four the second is lost: the others do not fit  2. all are sent again, later."""
    books = served(MANY, rows=9)
    prepare(books)
    first, _, *others = books.lose(Copy)
    for letter in (first, *others):
        books.give("b", letter)
    assert numbers(books, Copied) == [1, 1, 1]
    books.deliver(Copied)
    assert numbers(books) == [5]
    books.lose(Copy)
    books.tick(0.3, "a")
    assert numbers(books) == [2], "and few at a time, for now"
    assert to_the_end(books) == [1]
    assert books.machines["a"].copier.resent == 4
    assert len(books.machines["b"].arrivals.arriving[0].app) == 9


def test_the_master_hears_now_and_then_that_a_large_copy_grows():
    books = served(MANY, rows=40)
    prepare(books)
    told = []
    for _ in range(9):
        books.deliver(Copy)
        books.deliver(Copied)
        books.tick(0.3, "a")
        told += [e.body.items for e in books.lose(Prepared)]
    tenure = books.machines["a"].slots[0].tenure
    assert told == [((0, tenure, 0),)] * 2


def test_a_first_piece_that_comes_late_is_waited_for():
    books = served(MANY, rows=9)
    prepare(books)
    first, second, *_ = books.lose(Copy)
    books.give("b", second)
    assert numbers(books, Copied) == [0]
    books.deliver(Copied)
    assert books.machines["a"].copier.outgoing
    books.give("b", first)
    assert numbers(books, Copied) == [1]


def test_the_window_narrows_when_rows_wait_at_the_other_end_and_never_closes():
    """1. the next owner says that rows wait half a second  2. a piece leaves now and then."""
    books = served(MANY, rows=9)
    books.machines["b"].arrivals.wait.beyond_s = lambda: 0.5
    prepare(books)
    books.tick(0.05, "a")
    books.deliver(Copy)
    books.deliver(Copied)
    assert books.machines["a"].copier.slowed == 1
    assert not books.pending(Copy)
    books.tick(0.25, "a")
    assert numbers(books) == [5]
    assert to_the_end(books) == [1]


def test_where_rows_flow_a_window_does_not_double():
    """One that doubled would take in a moment what rows need, before anybody could see them wait."""
    calm, busy = CopyWindow(MANY_MORE, 0.0), CopyWindow(MANY_MORE, 0.0, flowing=True)
    for window in (calm, busy):
        for _ in range(8):
            window.sent(window.piece)
            window.heard(window.piece, 0.002, 0.0, 1.0)
    assert calm.bytes == 200 + 8 * 100
    assert 100 < busy.bytes <= 100 + 8 * 25


def test_a_piece_that_is_sent_too_often_is_given_up():
    books = served(MANY, rows=9)
    prepare(books)
    sent = []
    for _ in range(30):
        sent += [e.body.number for e in books.lose(Copy)]
        books.tick(0.3, "a")
    assert not books.machines["a"].copier.outgoing
    assert max(map(sent.count, sent)) == 9


def test_a_piece_that_is_lost_is_sent_again_and_one_that_comes_twice_counts_once():
    books = served()
    prepare(books)
    first = books.lose(Copy)
    books.tick(0.3, "a")
    assert [e.body for e in books.pending(Copy)] == [e.body for e in first]
    (again,) = books.deliver(Copy)
    books.give("b", again)
    assert [e.body.number for e in books.lose(Copied)] == [1, 1]
    assert books.machines["b"].arrivals.arriving[0].app == [["f", 1]]


def test_a_rest_that_does_not_fit_is_refused_and_the_task_moves_whole():
    """1. the new owner has forgotten the copy  2. the rest comes  3. the state is put and fetched."""
    books = served()
    copied(books)
    books.machines["b"].arrivals.arriving.clear()
    switch(books)
    assert not books.pending(Put)
    books.deliver(Rest)
    books.deliver(Copied)
    assert [e.body.task for e in books.pending(Put)] == [0]
    books.run_quietly()
    assert (books.phase("b", 0), books.notes(0)) == ("serving", [1, 2])


def test_a_rest_that_is_lost_costs_time_and_nothing_else():
    books = served()
    copied(books)
    switch(books)
    books.lose(Rest)
    assert not books.pending(Put)
    for _ in range(8):
        books.tick(0.3)
        books.run_quietly()
    assert (books.phase("b", 0), books.notes(0)) == ("serving", [1, 2])


def test_a_task_whose_copy_is_not_whole_moves_whole():
    books = served()
    prepare(books)
    books.deliver(Copy)  # one of two pieces
    switch(books)
    assert not books.pending(Rest)
    books.run_quietly()
    assert books.phase("b", 0) == "awaiting", "the rest may still come"
    books.tick(1.0)
    books.run_quietly()
    assert (books.phase("b", 0), books.notes(0)) == ("serving", [1, 2])


def test_a_task_that_goes_to_another_node_than_planned_moves_whole():
    books = served()
    books.node("c")
    books.publish()
    books.run_quietly()
    copied(books)
    books.move(0, "c")
    books.publish()
    assert not books.pending(Rest)
    books.run_quietly()
    assert books.notes(0, "c") == [1, 2]
    assert not books.machines["b"].arrivals.arriving, "nobody will complete it"


def test_a_piece_that_cannot_be_read_ends_the_copy():
    books = served()
    prepare(books)
    books.machines["b"].operator.catch_up = lambda *_: json.loads(b"no")
    books.deliver(Copy)
    assert (numbers(books, Copied), books.words()) == ([REFUSED], ["copy refused"])
    books.deliver(Copied)
    assert not books.machines["a"].copier.outgoing
    assert [e.body.items[0][::2] for e in books.pending(Prepared)] == [(0, 1)], "it moves whole"


def test_a_copy_that_nobody_goes_on_with_is_dropped_at_both_ends():
    books = served()
    copied(books)
    books.tick(2 * FOREVER.copy_s_max + 1)
    assert not books.machines["a"].copier.outgoing
    assert not books.machines["b"].arrivals.arriving


def test_an_operator_without_versions_is_ready_at_once():
    books = Books("aab")
    prepare(books)
    assert [e.body.items[0][::2] for e in books.pending(Prepared)] == [(0, 1)]
    assert not books.pending(Copy)


@pytest.mark.parametrize("number", [1, 2])
def test_pieces_for_a_task_that_is_served_here_are_late(number):
    books = served()
    tenure = books.machines["a"].slots[0].tenure
    books.say("a", "b", Copy(2, tenure, 1, number, b"[]", 223132457))
    assert not books.pending(Copied)


# ---------------------------------------------------------------------- the master's side


class _Books:
    """What `Ahead` needs of the books."""

    def __init__(self, sizes, settings):
        self.sent, self.rates = [], {}
        self.turn = SimpleNamespace(now=0.0, settings=settings, send=self._send)
        self.ledger = type("Ledger", (), {})()
        self.ledger.size, self.ledger.chain = sizes, {}
        self.ledger.tenure = [Epoch(1, 1)] * len(sizes)
        self.ledger.owner = ["a"] * len(sizes)
        hosts = {"a": "s1", "b": "s1", "c": "s2"}
        self.membership = SimpleNamespace(
            up=lambda node: node != "gone",
            peers={name: SimpleNamespace(server=server) for name, server in hosts.items()},
        )

    def _send(self, to, body):
        self.sent.append((to, [(task, turn) for task, _, _, turn in body.items]))
        self.rates[to] = body.rate_bytes_s


def round_of(*moves):
    return CarriedRound(tuple(moves), {}, 0)


def test_large_tasks_are_copied_and_then_all_catch_up():
    books = _Books([50, 5, 50], Settings(copy_bytes_min=10))
    ahead = Ahead(books, round_of((0, "b"), (1, "b"), (2, "b")), 0.01)
    assert not ahead.ready()
    assert not ahead.ready()
    assert books.sent == [("a", [(0, 1), (2, 1)])], "asked once"
    ahead.prepared(0, Epoch(1, 1), 1)
    assert not ahead.ready()
    ahead.prepared(2, Epoch(1, 1), 1)
    assert not ahead.ready()
    assert books.sent[1:] == [("a", [(0, 2), (2, 2)])]
    for task in (0, 2):
        ahead.prepared(task, Epoch(1, 1), 2)
    assert ahead.ready()


def test_where_time_is_short_every_pair_is_told_the_rate_that_it_needs():
    books = _Books([50, 100, 50], Settings(copy_bytes_min=10))
    books.ledger.owner = ["a", "a", "c"]
    ahead = Ahead(books, round_of((0, "b"), (1, "b"), (2, "b")), 0.01, copy_s=0.5)
    assert not ahead.ready()
    assert books.rates == {"a": 300.0, "c": 100.0}
    assert ahead.busiest_bytes == 150


def test_a_round_does_not_wait_for_ever_for_a_copy():
    books = _Books([50], Settings(copy_bytes_min=10, copy_s_max=3.0))
    ahead = Ahead(books, round_of((0, "b")), 0.01)
    assert not ahead.ready()
    books.turn.now = 2.0
    assert not ahead.ready()
    assert len(books.sent) == 2, "it is asked again"
    books.turn.now = 3.5
    assert ahead.ready()


def test_a_copy_that_grows_is_waited_for():
    books = _Books([50], Settings(copy_bytes_min=10, copy_s_max=3.0))
    ahead = Ahead(books, round_of((0, "b")), 0.01)
    for now in (0.0, 2.0, 4.0, 6.0):
        books.turn.now = now
        ahead.prepared(0, Epoch(1, 1), 0)
        assert not ahead.ready()
    assert ahead.done == {0: 0}
    books.turn.now = 9.5
    assert ahead.ready()


def test_the_next_round_is_copied_while_one_is_under_way_but_does_not_catch_up_yet():
    books = _Books([50], Settings(copy_bytes_min=10))
    ahead = Ahead(books, round_of((0, "b")), 0.01)
    ahead.begin()
    ahead.prepared(0, Epoch(1, 1), 1)
    ahead.begin()
    assert books.sent == [("a", [(0, 1)])]
    assert not ahead.ready()
    assert books.sent[1:] == [("a", [(0, 2)])]


def test_a_round_is_cut_anew_when_a_task_has_moved_or_its_next_owner_is_gone():
    books = _Books([50], Settings(copy_bytes_min=10))
    ahead = Ahead(books, round_of((0, "b")), 0.01)
    assert not ahead.stale
    assert Ahead(books, round_of((0, "gone")), 0.01).stale
    books.ledger.tenure = [Epoch(1, 2)]
    assert ahead.stale
    ahead.prepared(0, Epoch(1, 2), 1)
    assert ahead.done == {0: 0}, "that was another tenure's"


def test_only_the_master_asks_for_copies():
    books = served()
    with pytest.raises(Exception, match="no business"):
        books.say("b", "a", Prepare((), 0.01), epoch=books.epoch)
