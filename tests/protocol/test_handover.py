"""A task goes from one node to another: two ends over a fake wire, each test with its script."""

from __future__ import annotations

import pytest
from wire import Books, Settings, chunk

from meander.errors import StaleMessage
from meander.model import Epoch
from meander.protocol.blocks import Acks, Chunks, LoopAcks
from meander.protocol.messages import MASTER, Drop, Envelope, Fetch, Grant, Part, Put, PutDone
from meander.protocol.state import checksum, encode


@pytest.fixture
def books():
    """Nodes a (tasks 0 and 1) and b (task 2), a state server s; everything is installed."""
    return Books("aab")


def test_tuples_that_overtake_the_state_wait_for_it(books):
    """1. task 0 moves from a to b  2. chunk 2 comes to b before the state  3. the state comes
    4. chunk 2 is applied after what a had applied."""
    books.send("a", chunk(1))
    books.move(0, "b")
    books.publish()
    books.send("b", chunk(2))
    assert books.phase("b", 0) == "awaiting"
    books.run_quietly()
    assert books.phase("b", 0) == "serving"
    assert books.notes(0) == [1, 2]


def test_the_frozen_copy_is_kept_until_the_table_shows_that_it_is_installed(books):
    """1. task 0 moves to b, which installs it  2. a keeps its copy  3. a table without the chain
    4. a has departed."""
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    assert (books.phase("a", 0), len(books.machines["a"].handover.frozen)) == ("departing", 1)
    books.settle_installs()
    assert (books.phase("a", 0), books.machines["a"].handover.frozen) == ("departed", {})
    assert books.machines["s"].held == {}


def test_the_old_owner_re_routes_in_order_and_does_not_acknowledge(books):
    """1. task 0 moves to b  2. a feeder that is behind sends 1, 2, 3 to a  3. a passes them on, as
    they came  4. b applies them in order and it alone acknowledges."""
    books.move(0, "b")
    books.publish()
    books.send("a", chunk(1), chunk(2), chunk(3), epoch=Epoch(1, 2))
    (letter,) = books.pending(Chunks)
    assert (letter.sender, letter.to, letter.body.rerouted) == ("a", "b", True)
    assert [c.number for c in letter.body.chunks] == [1, 2, 3]
    assert books.pending(Acks) == []
    books.run_quietly()
    assert books.notes(0) == [1, 2, 3]


def test_a_re_routed_chunk_that_is_overtaken_still_comes_first(books):
    """1. chunk 1 is on its way by a's rerouter  2. chunk 2 comes straight to b, which serves
    3. it waits  4. chunk 1 comes, both are applied in order."""
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    books.send("a", chunk(1), epoch=Epoch(1, 2))
    books.send("b", chunk(2))
    assert books.notes(0) == []
    books.run_quietly()
    assert books.notes(0) == [1, 2]


def test_a_chunk_that_comes_twice_is_applied_once(books):
    """1. chunk 1 is applied  2. it comes again, in the old way and re-routed  3. only the
    acknowledgement is repeated."""
    books.send("a", chunk(1))
    books.lose(Acks)
    books.send("a", chunk(1))
    books.send("a", chunk(1), rerouted=True, sender="b")
    assert books.notes(0) == [1]
    assert len(books.pending(Acks, to="f")) == 2


def test_the_retriever_asks_before_the_sender_has_heard(books):
    """1. b hears that task 0 is its own, a does not  2. b asks; the server has nothing yet  3. a
    hears and puts the state  4. the server remembers b's wish and answers it."""
    books.send("a", chunk(1))
    books.move(0, "b")
    books.next_table()
    books.tell("b")
    books.deliver(Fetch)
    assert [e.body.total for e in books.pending(Part)] == [-2]
    books.deliver(Part)
    assert books.phase("a", 0) == "serving"
    books.tell("a")
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_a_chunk_of_an_epoch_not_yet_known_is_parked_and_not_bounced(books):
    """1. task 0 moves to b, which has not heard  2. a feeder that has sends chunk 1 to b  3. b keeps
    it and asks for the table  4. it hears, and the chunk takes its turn."""
    books.move(0, "b")
    books.next_table()
    books.send("b", chunk(1), epoch=books.epoch)
    assert (books.pending(Chunks), len(books.machines["b"].rerouter.parked)) == ([], 1)
    assert books.machines["b"].behind
    books.publish("b", "a")
    books.run_quietly()
    assert (books.notes(0), books.machines["b"].rerouter.parked) == ([1], [])


def test_word_of_an_epoch_that_never_was_does_not_cost_the_lease(books):
    """1. a chunk of an impossible epoch comes to b  2. b asks the master  3. the master knows no
    newer epoch  4. b believes it, and drops the chunk."""
    books.send("b", chunk(1), epoch=Epoch(1, 10**9))
    assert books.machines["b"].behind
    books.now += 1
    books.tell("b")
    assert (books.machines["b"].behind, books.machines["b"].rerouter.parked) == (False, [])


def test_epochs_may_be_skipped(books):
    """1. task 0 moves to b, and on to c in the next epoch  2. a and c hear only of the last one
    3. c gets the state that a froze, and b never had it."""
    books.send("a", chunk(1))
    books.node("c")
    books.publish()
    books.move(0, "b")
    books.next_table()
    books.move(0, "c")
    books.publish()
    books.run_quietly()
    assert books.notes(0, "c") == [1]
    assert books.phase("b", 0) == "absent"


def test_a_task_that_went_away_and_came_back_unseen_is_not_served_from_memory(books):
    """1. task 0 moves to b, which installs it and applies chunk 2; a hears nothing of it  2. it moves
    back to a  3. a hears only now: what it has is stale, and it fetches what b has."""
    books.send("a", chunk(1))
    books.move(0, "b")
    books.next_table()
    books.tell("b")
    # The state server is given a's state by hand: a does not know that it has to.
    blob = encode(books.machines["a"].slots[0].state, books.machines["a"].operator)
    books.say("a", "s", Put(0, Epoch(1, 1), books.epoch, blob, checksum(blob)))
    books.run_quietly()
    books.send("b", chunk(2))
    assert books.notes(0, "b") == [1, 2]
    books.move(0, "a")
    books.publish()
    assert books.phase("a", 0) == "awaiting"
    books.run_quietly()
    books.tick(1)
    books.run_quietly()
    assert books.notes(0, "a") == [1, 2]


def test_a_second_move_under_way_asks_the_chain_back(books):
    """1. task 0 moves to b, whose fetch gets lost  2. it moves on to c  3. b re-routes what waited and
    says that it never had the state  4. c asks a, and applies what waited at b."""
    books.send("a", chunk(1))
    books.node("c")
    books.publish()
    books.move(0, "b")
    books.publish()
    books.send("b", chunk(2))
    books.lose(Fetch)
    books.move(0, "c")
    books.publish()
    nevers = [e for e in books.pending(Put, sender="b") if e.body.blob is None]
    assert len(nevers) == 1
    books.run_quietly()
    books.tick(1)
    books.run_quietly()
    assert books.notes(0, "c") == [1, 2]
    assert books.phase("b", 0) == "departed"


def test_a_state_that_was_installed_on_the_way_is_taken_from_there(books):
    """1. task 0 moves to b, which installs it and applies chunk 2, but the master does not know
    2. it moves on to c  3. c takes the state from b, not from a."""
    books.send("a", chunk(1))
    books.node("c")
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    books.send("b", chunk(2))
    books.move(0, "c")
    books.publish()
    assert [link.node for link in books.table.incoming[0].chain] == ["a", "b"]
    books.run_quietly()
    assert books.notes(0, "c") == [1, 2]


def test_a_state_server_that_is_lost_between_put_and_fetch_is_given_the_state_again(books):
    """1. a puts the state of task 0  2. the server dies with it  3. a new one registers  4. a hears of
    it and puts the state again  5. b installs it."""
    books.send("a", chunk(1))
    books.move(0, "b")
    books.next_table()
    books.tell("a")
    books.deliver(Put)
    books.deliver(PutDone)
    books.server("s", incarnation=2)
    books.publish()
    assert len(books.pending(Put)) == 1
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_what_a_past_life_of_the_server_has_confirmed_does_not_count(books):
    """1. a puts the state  2. the server confirms and dies  3. the confirmation comes after a has
    heard of the new one  4. a still puts the state again."""
    books.move(0, "b")
    books.next_table()
    books.tell("a")
    books.deliver(Put)
    late = books.lose(PutDone)
    books.server("s", incarnation=2)
    books.publish()
    books.lose(Put)
    for envelope in late:
        books.give("a", envelope)
    books.tick(1, "a")
    assert len(books.pending(Put)) == 1


def test_a_full_state_server_refuses_and_is_asked_again():
    """1. the server has room for one state  2. a puts two  3. the second is refused, and put again
    4. when the first is installed there is room."""
    books = Books("aab", Settings(lease_s=1e6, server_bytes_max=220))
    books.move(0, "b")
    books.move(1, "b")
    books.publish()
    books.deliver(Put)
    assert sorted(e.body.held for e in books.pending(PutDone)) == [False, True]
    for _ in range(4):
        books.run_quietly()
        books.tick(1)
    assert (books.phase("b", 0), books.phase("b", 1)) == ("serving", "serving")


def test_a_state_larger_than_the_server_is_taken_when_it_is_empty():
    """1. the limit is one byte  2. a state comes  3. it is held, and a note that there is none too."""
    books = Books("aab", Settings(lease_s=1e6, server_bytes_max=1))
    books.move(0, "b")
    books.publish()
    books.run_quietly()
    assert books.phase("b", 0) == "serving"


def test_a_drop_for_an_earlier_destination_does_not_free_a_newer_put(books):
    """1. a puts the state for tenure 3  2. puts it again for tenure 5  3. a late drop of tenure 3
    comes  4. the state is still there; a drop of tenure 5 frees it."""
    server = books.machines["s"]
    books.say("a", "s", Put(0, Epoch(1, 1), Epoch(1, 3), b"", 0))
    books.say("a", "s", Put(0, Epoch(1, 1), Epoch(1, 5), b"", 0))
    books.say("b", "s", Drop(((0, Epoch(1, 1), Epoch(1, 3)),)))
    assert len(server.held) == 1
    books.say("b", "s", Drop(((0, Epoch(1, 1), Epoch(1, 5)),)))
    assert len(server.held) == 0


def test_a_state_that_is_damaged_on_the_way_is_fetched_again_and_never_installed(books):
    """1. the state of task 0 comes to b with a flipped byte  2. it is not installed  3. b asks again
    4. the whole one is."""
    books.send("a", chunk(1))
    books.move(0, "b")
    books.publish()
    books.deliver(Put)
    books.deliver(Fetch)
    (letter,) = [e for e in books.lose(Part) if e.body.total >= 0]
    data = letter.body.data
    broken = letter.body._replace(data=data[:-1] + bytes([data[-1] ^ 1]))
    books.give("b", letter._replace(body=broken))
    assert (books.phase("b", 0), books.machines["b"].retriever.bad_blobs) == ("awaiting", 1)
    books.tick(1)
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_a_transfer_that_stopped_is_resumed_at_its_offset():
    """1. states travel in parts of 50 bytes  2. the second part is lost  3. after a while b asks on
    from byte 50, not from the beginning."""
    books = Books("aab", Settings(lease_s=1e6, part_bytes=50, parts_max=1))
    books.send("a", chunk(1))
    books.move(0, "b")
    books.publish()
    books.deliver(Put)
    books.deliver(Fetch)
    books.deliver(Part)
    books.deliver(Fetch)
    assert [e.body.offset for e in books.lose(Part)] == [50]
    books.tick(1, "b")
    assert [e.body.offset for e in books.pending(Fetch)] == [50]
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_several_parts_are_under_way_at_a_time_and_what_is_lost_is_asked_for_again():
    """1. the first part tells how long the state is  2. three more are asked for  3. one is lost, the
    others wait for it."""
    books = Books("aab", Settings(lease_s=1e6, part_bytes=30, parts_max=3))
    books.send("a", chunk(1))
    books.move(0, "b")
    books.publish()
    books.deliver(Put)
    books.deliver(Fetch)
    books.deliver(Part)
    assert [e.body.offset for e in books.pending(Fetch)] == [30, 60, 90]
    books.deliver(Fetch)
    _, *others = books.lose(Part)
    for letter in reversed(others):
        books.give("b", letter)
    books.run_quietly()
    assert books.phase("b", 0) == "awaiting"
    books.tick(1, "b")
    assert [e.body.offset for e in books.pending(Fetch)] == [30]
    books.run_quietly()
    assert books.notes(0, "b") == [1]


def test_what_tuples_wait_for_is_fetched_first():
    """1. tasks 0 and 1 move to b; 0 is being fetched  2. the fetch must be repeated later  3. a chunk
    comes for task 1  4. it is asked for next."""
    books = Books("aab", Settings(lease_s=1e6, parts_max=1))
    books.move(0, "b")
    books.move(1, "b")
    books.next_table()
    books.tell("b")
    books.deliver(Fetch)
    books.send("b", chunk(1, task=1))
    books.deliver(Part)
    assert [e.body.task for e in books.pending(Fetch)][-1] == 1


def test_a_full_wait_buffer_delays_no_other_task():
    """1. task 0 is awaited and its buffer is full  2. a message brings chunks for tasks 0 and 2
    3. that of task 2, which is served, is applied; that of task 0 comes again later."""
    books = Books("aab", Settings(lease_s=1e6, waiting_chunks_max=1))
    books.move(0, "b")
    books.next_table()
    books.tell("b")
    books.send("b", chunk(1), chunk(2), chunk(1, task=2))
    assert books.notes(2, "b") == [1]
    assert books.machines["b"].slots[0].pending_chunks == 1


def test_tasks_that_do_not_move_are_not_touched(books):
    """1. task 0 moves  2. a chunk for task 1, which stays, is applied by the event that brings it."""
    books.move(0, "b")
    books.publish()
    books.send("a", chunk(1, task=1))
    assert books.notes(1, "a") == [1]


def test_a_node_whose_lease_ran_out_takes_nothing():
    """1. a's lease runs out  2. a chunk comes  3. nothing is applied or acknowledged  4. with a new
    lease it goes on."""
    books = Books("aab", Settings())
    books.now += 3
    books.send("a", chunk(1))
    assert (books.notes(0, "a"), books.pending(Acks)) == ([], [])
    books.tell("a")
    books.send("a", chunk(1))
    assert books.notes(0, "a") == [1]


def test_a_node_that_reads_of_its_successor_ends():
    """1. a table names incarnation 2 of node a  2. incarnation 1 ends."""
    books = Books("aab")
    books.members["a"] = books.members["a"]._replace(incarnation=2)
    books.publish()
    assert "newer incarnation" in books.ended["a"]


def test_a_process_that_has_just_joined_is_not_ended_by_the_silence_before():
    """1. a server registers long after its clock began  2. a tick comes before its first lease
    3. it lives; without any word it ends later."""
    books = Books("aab", Settings())
    books.now = 1000.0
    server = books.machines["s"] = type(books.machines["s"])("s", books.settings, 1, "s9")
    books.say_welcome(server, 2)
    books.tick(0.2, "s")
    assert not server.ended
    books.tick(2 * books.settings.lease_s, "s")
    assert books.ended["s"] == "the driver is silent"


def test_a_late_welcome_for_a_predecessor_is_not_taken():
    """1. the master welcomed an instance that has died since  2. its successor under the same id gets
    the letter  3. it stays unregistered, and takes its own."""
    books = Books("aab")
    first = books.feeder("f", 1)
    second = type(first)("f", books.settings, 1, "f-second")
    books.machines["f"] = second
    books.say_welcome(first, 1)
    assert (second.table, second.incarnation) == (None, 0)
    books.say_welcome(second, 2)
    assert second.incarnation == 2


def test_a_table_that_overtakes_the_welcome_is_no_silence():
    """1. a node registers long after its clock began  2. the next table reaches it before the answer
    3. a tick comes before its first lease: it goes on."""
    books = Books("aab", Settings())
    books.now = 1000.0
    node = books.node("c")
    books.next_table()
    books.say(MASTER, "c", Grant(-1.0, 0.0, books.table), epoch=books.epoch)
    books.tick(0.1, "c")
    assert not node.ended


def test_without_a_lease_nothing_is_passed_on():
    """1. chunk 2 waits at b for task 0  2. b's lease runs out  3. a table is pushed that gives the task
    to a  4. b passes nothing on: the feeder sends it again."""
    books = Books("bba", Settings())
    books.feeder()
    books.send("b", chunk(2))
    books.now += 3
    books.move(0, "a")
    books.next_table()
    books.say(MASTER, "b", Grant(-1.0, 0.0, books.table), epoch=books.epoch)
    assert books.phase("b", 0) == "departing"
    assert books.pending(Chunks) == []


def test_pushed_news_are_not_acted_upon_without_a_lease():
    """1. chunk 2 waits at b for task 0  2. b's lease runs out  3. a table is pushed in which b could
    start the task from nothing at once  4. it applies nothing before it has a lease."""
    books = Books("aab", Settings())
    books.move(0, "b")
    books.next_table()
    books.tell("b")
    books.send("b", chunk(1))
    books.now += 2.1
    books.ledger.restore(0, "b", books.epoch.next())
    books.next_table()
    books.say(MASTER, "b", Grant(-1.0, 0.0, books.table), epoch=books.epoch)
    assert (books.phase("b", 0), books.pending(Acks)) == ("awaiting", [])
    books.tell("b")
    books.tick(0.1, "b")
    assert books.notes(0, "b") == [1]


def test_a_stale_message_tells_what_led_there(books):
    """1. a chunk is applied  2. a message for another incarnation is refused  3. the error tells of the
    chunk before, and still does when more has happened."""
    books.send("a", chunk(1))
    node = books.machines["a"]
    late = Envelope("f", 1, "a", node.incarnation + 7, node.epoch, LoopAcks(()))
    with pytest.raises(StaleMessage, match="addressed to a incarnation") as error:
        node.handle(late, books.now)
    story = error.value.story
    assert any("Chunks(" in line for line in story)
    books.send("a", chunk(2))
    assert error.value.story == story
    assert "Chunks(" in str(error.value)


def test_states_that_leave_are_written_a_few_at_a_time():
    """1. two large tasks leave a at once  2. a gives the server one  3. the next follows when the
    server has it, and a put that was lost follows with a later tick."""
    books = Books("aab", Settings(lease_s=1e6, record_bytes_turn=1))
    books.send("a", chunk(1), chunk(1, task=1))
    books.move(0, "b")
    books.move(1, "b")
    books.next_table()
    books.tell("a")
    assert [put.body.task for put in books.pending(Put)] == [0]
    books.deliver(kind=Put)
    books.deliver(kind=PutDone)
    assert [put.body.task for put in books.pending(Put)] == [1]
    books.lose(kind=Put)
    books.tick(1.0, "a")
    assert [put.body.task for put in books.pending(Put)] == [1]
    books.publish(*books.machines)
    books.settle_installs()
    assert (books.notes(0), books.notes(1)) == ([1], [1])
