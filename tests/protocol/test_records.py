"""Records: changes of records before, chains, what the master takes in, and what it lets go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import Books, Notes, Town, chunk

from meander.errors import MalformedMessage
from meander.model import Epoch
from meander.protocol import reading, records
from meander.protocol.master.ledger import Kept
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Checkpointed,
    Loaded,
    PeerLost,
    RecordNote,
    Seal,
    Store,
    Stored,
    Tick,
    Write,
)
from meander.protocol.reading import Blob
from meander.protocol.records import Base, Ref, assemble, cut
from meander.protocol.settings import Settings
from meander.protocol.state import Emission, TaskState

CHECKPOINTS = Settings(lease_s=1e6, checkpoint_s=1.0, chain_records_max=3)


def accept(books, name="a"):
    """Let the store write, and the master accept, what a node has handed over."""
    books.write()
    for envelope in books.lose(Checkpointed, sender=name):
        items = tuple((i.tasks, i.tenure, i.number) for i in envelope.body.items)
        books.say(MASTER, name, Accepted(items))


def blob(books, name):
    ref = Ref.parse(name)
    return Blob(cut(ref, books.store[ref.file][ref.offset : ref.offset + ref.length]))


# ---------------------------------------------------------------------- what a node writes


def test_the_second_record_is_a_change_of_the_first():
    """1. task 0 is written whole, accepted  2. one row comes  3. only that row is written, with the
    name of the record that it builds on."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", *(chunk(n) for n in range(1, 50)))
    books.tick(2.0, "a")
    accept(books)
    books.send("a", chunk(50))
    books.tick(2.0, "a")
    accept(books)
    empty, many, one = books.records[0]
    assert (blob(books, empty).chain(0), blob(books, many).chain(0)) == ((), (empty,))
    assert blob(books, one).chain(0) == (empty, many)
    assert blob(books, one).head(0)["app"] < 20 < blob(books, many).head(0)["app"]


def test_a_task_that_did_not_change_is_not_written_again():
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.tick(2.0)
    assert [action for _, action in books.stores if action.key.startswith("log/1/a")] == []


def test_all_tasks_of_a_node_are_in_one_file():
    books = Books("aab", CHECKPOINTS)
    assert sorted((action.key, len(action.data)) for _, action in books.stores) == [
        ("log/1/a.1/1", 2),
        ("log/1/b.1/1", 1),
    ]


def written_by_a(books):
    return [len(action.data) for _, action in books.stores if action.key.startswith("log/1/a")]


def test_a_round_waits_for_the_records_under_way_and_follows_them_at_once():
    """1. a record is under way when the next round is due  2. a task that has none waits for it, too
    3. it is accepted: both tasks are in the next file, and nobody waits for another second."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    assert written_by_a(books) == [1]
    books.send("a", chunk(2), chunk(1, task=1))
    books.tick(1.5, "a")
    assert written_by_a(books) == [1]
    accept(books)
    books.tick(0.02, "a")
    assert written_by_a(books) == [2]


def test_a_record_that_is_never_accepted_holds_up_no_other_for_long():
    """1. the record of task 0 is not accepted  2. task 1 changes: its record waits once more for the
    time between two rounds, and is written then."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    books.write()
    books.send("a", chunk(1, task=1))
    books.tick(1.5, "a")
    assert written_by_a(books) == []
    books.tick(0.5, "a")
    assert written_by_a(books) == [1]


def test_a_change_that_could_not_be_written_is_in_the_next_one():
    """1. a record is accepted  2. a row comes, the store fails  3. another comes  4. the next record
    builds on the accepted one and has both."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    books.write(done=False)
    books.send("a", chunk(2))
    books.tick(2.0, "a")
    accept(books)
    first, second = books.records[0]
    assert blob(books, second).chain(0) == (first,)
    blobs = [blob(books, name) for name in (first, second)]
    assert reading.restore(0, blobs, Notes()).app == [["f", 1], ["f", 2]]


def test_a_long_chain_is_cut_short():
    """A chain has at most `chain_records_max` records, or twice as many where too many are cut."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    lengths = []
    for number in range(1, 12):
        books.send("a", chunk(number))
        books.tick(2.0, "a")
        accept(books)
        lengths.append(len(blob(books, books.records[0][-1]).chain(0)) + 1)
    assert max(lengths) <= 6
    assert 1 in lengths


def test_changes_that_weigh_more_than_the_state_are_not_built_upon():
    books = Books("aab", Settings(lease_s=1e6, checkpoint_s=1.0, chain_records_max=100))
    accept(books)
    for number in range(8):  # the first record is of an empty task
        books.send("a", *(chunk(100 * number + i) for i in range(1, 101)))
        books.tick(2.0, "a")
        accept(books)
    whole = [not blob(books, name).chain(0) for name in books.records[0]]
    assert whole.count(True) > 1


def moved_to_b(books):
    books.move(0, "b")
    books.publish()
    books.settle_installs()


def test_a_moved_task_takes_along_the_records_that_hold_it_just_as_it_is():
    """1. all that task 0 has is durable  2. it moves to b  3. nothing is written there before a row
    comes  4. then that row alone, as a change of what a wrote."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    accept(books)
    chain = tuple(books.records[0])
    moved_to_b(books)
    assert books.machines["b"].retriever.chains == 1
    books.tick(2.0, "b")
    accept(books, "b")
    assert tuple(books.records[0]) == chain
    books.send("b", chunk(2))
    books.tick(2.0, "b")
    accept(books, "b")
    assert blob(books, books.records[0][-1]).chain(0) == chain
    assert books.notes(0) == [1, 2]


@pytest.mark.parametrize("under_way", [False, True])
def test_a_moved_task_with_rows_that_no_record_holds_starts_a_chain_of_its_own(under_way):
    """What has changed since its last record, be one under way, cannot be told apart at b."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    if under_way:
        books.tick(2.0, "a")
    moved_to_b(books)
    books.tick(2.0, "b")
    accept(books, "b")
    assert blob(books, books.records[0][-1]).chain(0) == ()


def test_what_a_batch_has_changed_is_written_when_it_commits():
    """1. a batch is staged: nothing is written  2. it commits: one file with all its tasks is written
    at once, without waiting for the time."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.query()
    books.give("q", Write(0, 0, 0, ((0, ((1, None),), 1, 8), (1, ((2, None),), 1, 8))))
    books.run_quietly()
    assert books.stores == [s for s in books.stores if s[0] == "b"]
    books.give("q", Seal(0, ((0, 0, ((0, 1), (1, 1))),)))
    books.run_quietly()
    (written,) = [action for name, action in books.stores if name == "a"]
    assert len(written.data) == 2
    accept(books)
    books.run_quietly()
    assert books.words() == ["written", "committed"]


def test_a_batch_that_commits_while_a_record_is_under_way_is_written_right_after_it():
    """1. a record of task 0 is with the store  2. a batch commits  3. the record is accepted  4. the
    next one is written in the same event."""
    books = Books("aab", CHECKPOINTS)
    books.query()
    books.give("q", Write(0, 0, 0, ((0, ((1, None),), 1, 8),)))
    books.run_quietly()
    books.give("q", Seal(0, ((0, 0, ((0, 1),)),)))
    books.run_quietly()
    assert len([s for s in books.stores if s[0] == "a"]) == 1
    accept(books)
    assert len([s for s in books.stores if s[0] == "a"]) == 1
    accept(books)
    books.run_quietly()
    assert books.words() == ["written", "committed"]


def test_a_task_that_is_waited_for_twice_while_the_store_fails_is_written_once():
    """1. a batch commits while a record of its task is under way  2. the store fails that  3. the query
    asks again  4. the store is well: the next file has the task once, and the batch is durable."""
    books = Books("abb", CHECKPOINTS)
    books.query()
    books.give("q", Write(0, 0, 0, ((0, ((1, None),), 1, 8),)))
    books.run_quietly()
    books.tick(2.0, "a")
    books.give("q", Seal(0, ((0, 0, ((0, 1),)),)))
    books.run_quietly()
    books.write(done=False)
    books.tick(2.0, "q")  # it asks again
    books.run_quietly()
    books.tick(2.0, "a")
    (written,) = [action for name, action in books.stores if name == "a"]
    assert len(written.data) == 1
    accept(books)
    books.run_quietly()
    assert books.words() == ["written", "committed"]


def test_an_answer_that_does_not_say_where_the_records_are_is_refused():
    books = Books("aab", CHECKPOINTS)
    with pytest.raises(MalformedMessage, match="where all records"):
        books.give("a", Stored("log/1/a.1/1", done=True))


# ---------------------------------------------------------------------- restoring


def restored(books, chain):
    books.ledger.durable[0] = Kept(Epoch(1, 1), 2, tuple(chain))
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()


def test_a_restored_task_goes_on_with_its_chain():
    """1. task 0 has a snapshot and a change  2. b restores it: it reads the last record, which tells
    of the other  3. a row comes  4. what b writes builds on both."""
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    accept(books)
    chain = list(books.records[0])
    restored(books, chain)
    books.read()
    books.read()
    assert books.notes(0) == [1]
    assert books.machines["b"].retriever.deltas == 1
    books.tick(2.0, "b")
    assert [a for n, a in books.stores if n == "b" and "/b.1/2" in a.key] == []  # nothing is new
    books.send("b", chunk(2))
    books.tick(2.0, "b")
    books.tick(
        2.0, "b"
    )  # its first record is not accepted: a round waits for that, but not for ever
    books.write()
    assert blob(books, books.records[0][-1]).chain(0) == tuple(chain)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_record_that_is_missing_ends_the_node_with_its_name(broken):
    books = Books("aab", CHECKPOINTS)
    accept(books)
    books.send("a", chunk(1))
    books.tick(2.0, "a")
    accept(books)
    chain = list(books.records[0])
    file = records.file_of(chain[broken])
    del books.store[file]
    restored(books, chain)
    books.read()
    if not books.ended:
        books.read()
    why = books.ended["b"]
    assert why.startswith("the checkpoint cannot be used: task 0: ")
    assert file in why


@given(st.binary(max_size=60))
def test_what_is_no_record_ends_the_node_with_a_word(noise):
    books = Books("aab", CHECKPOINTS)
    name = "log/1/a.1/9#8-3-00000000"
    restored(books, [name])
    books.give("b", Loaded(name, noise))
    assert books.ended["b"].startswith("the checkpoint cannot be used: task 0: ")


steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(st.integers(0, 2), max_size=3),
        st.integers(0, 4),
        st.booleans(),
    ),
    max_size=8,
)


@given(steps)
def test_a_chain_gives_what_a_task_was(steps):
    """Rows come, are fed to other tasks, those are acknowledged, records are written or fail: in the
    end the chain gives the notes, positions and unacknowledged chunks of the task."""
    operator, state, base, blobs = Notes(), TaskState(3, [], gated=True), None, []
    mark = None
    for rows, fed, acknowledged, done in steps:
        for _ in range(rows):
            state.app.append(["f", len(state.app)])
        for target in fed:
            state.emit(Emission(target, ((len(state.app), None),), 8))
        for lane in state.outbox.lanes.values():
            for _ in range(min(acknowledged, len(lane.chunks))):
                lane.chunks.popleft()
                lane.durable += 1
                state.outbox.retained -= 1
        part = records.write(3, state, operator, base, mark)
        (sealed,), lanes = records.seal(operator, [state.app]), records.lanes_of(state)
        if done:
            chain = base.chain if base else ()
            base = Base((*chain, f"log/1/a.1/{len(chain)}#8-1-00000000"), lanes)
            mark = sealed
            blobs.append(Blob(assemble([part])[0][8:]))
            kept = list(state.app), {t: list(x.chunks) for t, x in state.outbox.lanes.items()}
    if blobs:
        again = reading.restore(3, blobs, operator)
        assert again.app == kept[0]
        assert {t: list(x.chunks) for t, x in again.outbox.lanes.items()} == kept[1]
        assert all(lane.released == lane.last for lane in again.outbox.lanes.values())
        with pytest.raises(MalformedMessage):
            reading.restore(4, blobs, operator)
        with pytest.raises(MalformedMessage):
            reading.restore(3, [*blobs, blobs[0]], operator)
        if len(blobs) > 1:
            with pytest.raises(MalformedMessage):
                reading.restore(3, blobs[1:], operator)


@pytest.mark.parametrize(
    "text", ["", "x", "x#1-2", "#1-2-3", "x#1-2-3", "x#-1-2-00000003", "x#1-2-00000003-", "x#1-b-c"]
)
def test_only_names_of_records_are_names_of_records(text):
    with pytest.raises(ValueError, match=r"."):
        Ref.parse(text)


# ---------------------------------------------------------------------- what the master does


def report(town, *items):
    incarnation = town.master.membership.peers["n1"].incarnation
    town.say("n1", MASTER, Checkpointed(items), incarnation=incarnation)


def test_a_change_whose_parent_is_not_the_newest_record_does_not_count():
    town = Town(settings=Settings(checkpoint_s=1.0))
    kept, tenure = town.master.ledger.record[0], town.master.ledger.tenure[0]
    report(
        town, RecordNote(((0, 1),), tenure, 90, "log/1/x/1#8-1-00000000", "log/1/x/0#8-1-00000000")
    )
    assert town.master.ledger.record[0] == kept
    report(town, RecordNote(((0, 1),), tenure, 91, "log/1/x/2#8-1-00000000", kept.key))
    assert town.master.ledger.record[0].chain == (*kept.chain, "log/1/x/2#8-1-00000000")


def test_a_file_is_let_go_when_no_manifest_names_it():
    """1. a snapshot takes the place of a chain  2. the file of the chain is kept as long as one of the
    last two manifests names it  3. then it is discarded."""
    town = Town(settings=CHECKPOINTS)
    town.settle(3.0)
    old, tenure = town.master.ledger.record[0], town.master.ledger.tenure[0]
    files = set(map(records.file_of, old.chain))
    for number in range(90, 94):
        town.tick(2.0, MASTER)
        for task in range(4):
            if town.master.ledger.owner[task] == "n1":
                name = f"log/1/x/{number}#8-1-0000000{task}"
                report(town, RecordNote(((task, task + 1),), tenure, number, name))
        gone = files & set(town.discarded)
        town.write()
        assert not gone or number > 91
    assert files <= set(town.discarded)
    assert "log/1/x/93" not in town.discarded


def test_what_a_lost_node_left_is_swept():
    town = Town(settings=Settings(checkpoint_s=1.0))
    town.settle(2.0)
    incarnation = town.kill("n1").incarnation
    town.give(MASTER, PeerLost("n1", incarnation))
    town.settle(4.0)
    swept = {sweep.prefix: sweep for sweep in town.swept}
    mine = swept[f"log/1/n1.{incarnation}/"]
    named = {records.file_of(n) for k in town.master.ledger.durable.values() for n in k.chain}
    assert {file for file in named if file.startswith(mine.prefix)} <= set(mine.keep)
    assert swept["log/"].below == 1


def test_earlier_generations_are_swept_only_after_a_manifest_of_this_one():
    town = Town(settings=Settings(checkpoint_s=1.0), start=False)
    order = []
    for _ in range(20):
        town.now += 0.1
        order += [type(action).__name__ for action in town.give(MASTER, Tick())]
        stores, town.stores = town.stores, []
        for name, action in stores:
            assert isinstance(action, Store)
            order += [type(a).__name__ for a in town.give(name, Stored(action.key, done=True))]
        loads, town.loads = town.loads, []
        for name, action in loads:
            order += [type(a).__name__ for a in town.give(name, town.loaded(action.key))]
        if town.swept:
            break
    assert order.index("Sweep") > [i for i, kind in enumerate(order) if kind == "Store"][1]


def test_what_comes_late_from_earlier_generations_is_swept_though_nothing_else_is_written():
    """1. the first manifest is written, and the first sweep follows it  2. no row comes, so nothing
    else would be written  3. two leases later whoever wrote late has stopped: they sweep again."""
    town = Town(settings=Settings(checkpoint_s=1.0, lease_s=10.0))
    town.settle(3.0)
    assert [sweep.below for sweep in town.swept if sweep.prefix == "log/"] == [1]
    town.settle(2 * town.settings.lease_s + 3.0)
    assert [sweep.below for sweep in town.swept if sweep.prefix == "log/"] == [1, 1]
    written = town.master.archive.saved_at
    town.settle(10.0)
    assert town.master.archive.saved_at == written
