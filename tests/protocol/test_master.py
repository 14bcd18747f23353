"""The master with real processes around it: members, leases, migrations, losses, the manifest."""

from __future__ import annotations

import pytest
from wire import Settings, Town

from meander.errors import InputError, MalformedMessage, ProtocolError
from meander.model import Epoch
from meander.protocol.blocks import Offer
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY, Manifest
from meander.protocol.master.membership import Status
from meander.protocol.messages import (
    MASTER,
    Abort,
    Accepted,
    Beat,
    Bye,
    Checkpointed,
    Dismiss,
    Envelope,
    Fence,
    Fetch,
    Finish,
    Grant,
    Hello,
    Install,
    Installed,
    PeerLost,
    Put,
    RecordNote,
    Rescale,
    Resume,
    RollBack,
    Seal,
    Stored,
    Tick,
    Welcome,
    Write,
)
from meander.protocol.node.node import Node
from meander.wiring import carrier

CHECKPOINTS = Settings(checkpoint_s=0.3)


def offer(town, *pairs, name="f"):
    """Offer (task, offset) rows."""
    groups = tuple((task, ((offset, None),), offset, offset, 8) for task, offset in pairs)
    town.give(name, Offer(groups, max(offset for _, offset in pairs)))


def peer(town, name):
    return town.master.membership.peers[name]


def fetchless(town, seconds):
    """Let time pass while no state reaches a server."""
    for _ in range(round(seconds / 0.1)):
        town.tick(0.1)
        while town.mail:
            town.lose(Put)
            town.deliver()
        town.answer_store()
        town.start_launched()


# ---------------------------------------------------------------------- members and leases


def test_a_node_is_a_member_when_it_says_hello():
    """1. the master launches n1 and n2  2. they register  3. tables, leases, everything is served."""
    town = Town()
    assert (peer(town, "n1").status, town.owners()) == (Status.UP, "1122")
    assert town.master.ledger.chain == {}
    assert town.machines["n1"].leased


def test_the_master_alone_issues_incarnations():
    """1. a feeder registers: incarnation 1 of generation 1  2. another instance registers under its
    id: the next one  3. the first, which may live, is told  4. what it says is refused."""
    town = Town()
    first = town.feeder(instance="f-1")
    town.settle(1.0)
    town.give(MASTER, Envelope("f", 0, MASTER, 0, Epoch(1, 0), Hello("feeder", "f-2")))
    fences = [(e.to_incarnation, e.body.instance) for e in town.pending(Fence)]
    assert fences == [(first.incarnation, "f-1")]
    town.feeder(instance="f-2")
    town.settle(1.0)
    second = town.machines["f"]
    assert second.incarnation == first.incarnation + 1
    beat = Envelope("f", first.incarnation, MASTER, 0, town.master.epoch, Beat(town.now))
    with pytest.raises(ProtocolError, match="has been replaced"):
        town.give(MASTER, beat)


def test_a_late_hello_of_a_past_instance_fences_that_instance_alone():
    """1. f-1 is replaced by f-2  2. a Hello of f-1 that was under way comes  3. the answer is a fence
    for f-1; f-2, which gets it, lives on."""
    town = Town()
    town.feeder(instance="f-1")
    town.settle(1.0)
    town.feeder(instance="f-2")
    town.settle(1.0)
    hello = Envelope("f", 0, MASTER, 0, Epoch(1, 0), Hello("feeder", "f-1"))
    town.give(MASTER, hello)
    assert [e.body.instance for e in town.pending(Fence)] == ["f-1"]
    town.run()
    assert not town.machines["f"].ended


def test_a_hello_that_comes_twice_gives_the_same_incarnation():
    """1. a feeder says Hello twice before it is welcomed  2. it is welcomed twice, as the same."""
    town = Town()
    hello = Envelope("f", 0, MASTER, 0, Epoch(1, 0), Hello("feeder", "f-1"))
    town.give(MASTER, hello)
    town.give(MASTER, hello)
    assert len({e.body.incarnation for e in town.pending(Welcome)}) == 1


def test_a_node_that_is_gone_is_fenced():
    """1. n2 is lost and replaced  2. the old one beats  3. it is told to stop."""
    town = Town(settings=CHECKPOINTS)
    old = town.kill("n2")
    town.give(MASTER, PeerLost("n2", old.incarnation))
    beat = Envelope("n2", old.incarnation, MASTER, 0, old.epoch, Beat(town.now))
    town.give(MASTER, beat)
    assert [e.to_incarnation for e in town.pending(Fence)] == [old.incarnation]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_client_of_a_query_that_says_goodbye_is_not_waited_for(leaves):
    """1. a worker of a query ends, with a word or without  2. a node leaves: it goes at once if nobody
    can send to it any more, else when the worker's lease is over."""
    town = Town(2, 4)
    town.query()
    town.settle(1.0)
    if leaves:
        town.give("q", Finish())
        town.settle(0.2)
        assert town.ended["q"] == "closed"
        assert peer(town, "q").status is Status.GONE
    else:
        town.kill("q")
    town.give(MASTER, Rescale(1))
    town.settle(1.0)
    gone = [p for p in town.master.membership.peers.values() if p.id == "n2"]
    assert all((p.status is Status.GONE) == leaves for p in gone)


def test_processes_of_queries_that_are_gone_are_forgotten():
    """1. a worker of a query registers and is killed  2. its lease runs out, and long after that it is
    forgotten  3. whoever bears its name again has a higher incarnation  4. a late word of the dead one
    is answered with a fence."""
    town = Town()
    town.query()
    town.settle(1.0)
    first = peer(town, "q").incarnation
    town.kill("q")
    town.settle(5.0)
    assert peer(town, "q").status is Status.GONE
    town.settle(12.0)
    assert "q" not in town.master.membership.peers
    late = Envelope("q", first, MASTER, 0, town.master.epoch, Beat(town.now))
    town.give(MASTER, late)
    assert len(town.pending(Fence)) == 1
    town.lose(Fence)
    town.query(instance="q-2")
    town.settle(1.0)
    assert peer(town, "q").incarnation > first
    assert town.machines["q"].leased


def test_nodes_and_feeders_that_are_gone_are_forgotten():
    """1. a node joins and leaves again, and a feeder closes  2. long after that they are forgotten
    3. a late word of the node is answered with a fence, and the name of the feeder can be used."""
    town = Town()
    town.feeder()
    town.settle(1.0)
    offer(town, (0, 0))
    town.give(MASTER, Rescale(3))
    town.settle(4.0)
    (name,) = [n for n in town.master.membership.peers if n.startswith("x")]
    first, incarnation = peer(town, "f").incarnation, peer(town, name).incarnation
    town.give("f", Finish())
    town.give(MASTER, Rescale(2))
    town.settle(20.0)
    assert set(town.master.membership.peers) == {"s", "n1", "n2"}
    town.give(MASTER, Envelope(name, incarnation, MASTER, 0, town.master.epoch, Beat(town.now)))
    assert len(town.pending(Fence)) == 1
    town.lose(Fence)
    town.feeder(instance="f-2")
    town.settle(1.0)
    assert peer(town, "f").incarnation > first
    assert town.machines["f"].offset == 0


def test_a_feeder_that_has_said_goodbye_is_dismissed_and_not_fenced():
    """1. a feeder is done and says so  2. the answer is lost, and it asks for its lease  3. it is told
    that it may leave, not that it was replaced."""
    town = Town()
    town.feeder()
    town.settle(1.0)
    town.give("f", Finish())
    town.deliver(Bye)
    town.lose(Dismiss)
    incarnation = peer(town, "f").incarnation
    town.give(MASTER, Envelope("f", incarnation, MASTER, 0, town.master.epoch, Beat(town.now)))
    assert (len(town.pending(Dismiss)), town.pending(Fence)) == (1, [])


def test_the_master_waits_a_margin_longer_than_the_lease():
    """1. n2 falls silent  2. its own lease runs out after 2 s  3. the master counts it as lost after
    2.5 s, not before."""
    town = Town(settings=CHECKPOINTS)
    lease_until = peer(town, "n2").lease_until
    mine = town.machines["n2"].lease_until
    assert mine + 0.5 <= lease_until + 1e-9
    town.kill("n2")
    while town.now < lease_until - 0.1:
        town.tick(0.1)
        town.run()
    assert "lost" not in town.words()
    town.settle(0.5)
    assert "lost" in town.words()


def test_a_node_that_never_came_is_planned_around():
    """1. three nodes are wanted  2. the third is launched and does not register  3. the master goes on
    with two, and says so."""
    town = Town()
    town.give(MASTER, Rescale(3))
    town.launched.clear()
    for _ in range(100):
        town.tick(0.1)
        town.run()
        town.launched.clear()
    assert "never came" in town.words()
    assert (town.stage(), set(town.owners())) == ("completed", {"1", "2"})


def test_what_was_rolled_back_stays_so_though_a_node_never_came():
    """1. one of two nodes is lost  2. three are wanted, and then not  3. the successor of the lost one
    does not come: the one that is left has everything, rolled back and not completed."""
    town = lossy()
    old = town.kill("n2")
    town.give(MASTER, PeerLost("n2", old.incarnation))
    town.give(MASTER, Rescale(3))
    town.give(MASTER, RollBack())
    for _ in range(150):
        town.tick(0.1)
        town.run()
        town.answer_store()
        town.launched.clear()
    assert "never came" in town.words()
    assert (town.stage(), set(town.owners())) == ("rolled back", {"1"})


def test_a_process_that_misses_the_push_gets_the_table_with_its_lease():
    """1. an epoch is published; the push to n1 is lost  2. n1 beats  3. the grant brings the table."""
    town = Town()
    town.give(MASTER, Rescale(1))
    town.lose(Grant, to="n1")
    town.settle(1.0)
    assert town.machines["n1"].epoch == town.master.epoch


# ---------------------------------------------------------------------- migrations


def test_no_task_moves_to_a_node_before_it_knows_a_table():
    """1. a third node registers  2. what it is told is lost: no task moves, for it would drop the rows
    that come to it  3. it is told: tasks move."""
    town = Town()
    town.give(MASTER, Rescale(3))
    (joins,) = {order.node for order in town.launched}
    for _ in range(3):
        town.start_launched()
        town.tick(0.1)
        while town.pending():
            town.lose(to=joins)
            if town.mail:
                town.deliver()
    assert (peer(town, joins).status, town.owners()) == (Status.UP, "1122")
    town.settle()
    assert (town.stage(), set(town.master.ledger.owner)) == ("completed", {"n1", "n2", joins})


def test_a_rescale_moves_the_tasks_round_by_round_and_dismisses_who_leaves():
    """1. from 2 nodes to 1, one task per round  2. task 2, then task 3  3. n2 is dismissed."""
    town = Town()
    town.give(MASTER, Rescale(1, tasks_max=1))
    town.settle(4.0)
    assert (town.owners(), town.stage()) == ("1111", "completed")
    assert [r.tasks for r in town.master.conductor.migration.reports] == [1, 1]
    assert town.ended["n2"] == "dismissed"
    assert peer(town, "n2").status is Status.GONE


def test_a_rescale_within_a_time_has_as_many_rounds_as_that_allows():
    for within_s, rounds in ((0.1, [2]), (10.0, [1, 1])):
        town = Town()
        town.master.conductor.carrier = carrier
        town.give(MASTER, Rescale(1, within_s=within_s))
        town.settle(4.0)
        assert (town.owners(), town.stage()) == ("1111", "completed")
        assert [r.tasks for r in town.master.conductor.migration.reports] == rounds


@pytest.mark.parametrize(
    ("wish", "looks"), [({"within_s": 10.0}, True), ({"pause_ms": 100}, False)]
)
def test_copies_of_the_next_round_wait_where_a_pause_was_promised(wish, looks):
    """1. from 2 nodes to 1, a task at a time, and the links are known  2. no state gets through, so the
    first round stays under way  3. the next one is cut and copied meanwhile, or not yet."""
    town = Town()
    conductor = town.master.conductor
    conductor.carrier = carrier
    conductor.pacer.observe_share(1, 1)
    town.give(MASTER, Rescale(1, tasks_max=1, **wish))
    fetchless(town, 0.5)
    assert len(conductor.migration.round_tasks) == 1
    assert (conductor.migration.ahead is not None) is looks


def test_a_node_is_dismissed_only_when_no_feeder_can_still_send_to_it():
    """1. a feeder is cut off, with its lease running  2. n2 has nothing any more, and stays  3. the
    feeder's lease has run out: n2 goes."""
    town = Town()
    town.feeder()
    town.settle(1.0)
    feeder = town.kill("f")
    town.give(MASTER, Rescale(1))
    town.settle(1.5)
    assert (town.owners(), town.stage()) == ("1111", "draining")
    assert town.now < peer(town, "f").lease_until
    town.settle(2.5)
    assert (town.stage(), town.ended["n2"]) == ("completed", "dismissed")
    feeder.turn.now = town.now
    assert not feeder.leased


def test_an_abort_returns_the_tasks_under_way():
    """1. tasks 2 and 3 move to n1; no state gets through  2. abort  3. they go back to n2, which has
    their state, and n2 stays."""
    town = Town()
    town.give(MASTER, Rescale(1))
    fetchless(town, 0.5)
    town.give(MASTER, Abort())
    town.settle(2.0)
    assert (town.owners(), town.stage()) == ("1122", "aborted")
    assert peer(town, "n2").status is Status.UP
    assert town.master.ledger.chain == {}


def test_an_aborted_migration_can_be_resumed():
    """1. abort  2. resume  3. it is carried out."""
    town = Town()
    town.give(MASTER, Rescale(1))
    town.give(MASTER, Abort())
    town.settle(1.0)
    town.give(MASTER, Resume())
    town.settle(4.0)
    assert (town.owners(), town.stage()) == ("1111", "completed")


def test_a_migration_is_rolled_back():
    """1. the first round is under way  2. roll back  3. everything is where it was, nobody left."""
    town = Town()
    town.give(MASTER, Rescale(1, tasks_max=1))
    fetchless(town, 0.2)
    assert town.owners() == "1112"
    town.give(MASTER, RollBack())
    town.settle(4.0)
    assert (town.owners(), town.stage()) == ("1122", "rolled back")
    assert peer(town, "n2").status is Status.UP


def test_a_new_rescale_while_one_is_running_plans_from_where_things_stand():
    """1. from 2 nodes to 1, a round is under way  2. three nodes are wanted instead  3. the old
    migration is superseded, the new one completes."""
    town = Town(tasks=6)
    town.give(MASTER, Rescale(1, tasks_max=1))
    fetchless(town, 0.2)
    town.give(MASTER, Rescale(3))
    town.settle(5.0)
    assert "superseded" in town.words()
    assert (len(set(town.master.ledger.owner)), town.stage()) == (3, "completed")


def test_tuples_flow_in_order_through_a_whole_migration():
    """1. a feeder sends rows to all tasks  2. the operator shrinks to one node and grows to three
    3. every task has every row once, in order."""
    town = Town()
    town.feeder()
    town.settle(1.0)
    for step in range(12):
        offer(town, *((task, 4 * step + task) for task in range(4)))
        if step in (2, 6):
            town.give(MASTER, Rescale(1 if step == 2 else 3))
        town.settle(0.4)
    town.settle(3.0)
    for task in range(4):
        assert town.notes(task) == [4 * step + task for step in range(12)]


def test_a_round_that_is_stuck_is_turned_around():
    """1. no state gets through  2. after `round_s_max` the tasks return to their old owner  3. when the
    server is back, the migration completes."""
    town = Town(settings=Settings(round_s_max=1.0))
    town.give(MASTER, Rescale(1))
    fetchless(town, 1.2)
    assert town.master.conductor.counts["second_moves"] > 0
    town.settle(6.0)
    assert (town.owners(), town.stage()) == ("1111", "completed")


def test_a_state_that_takes_longer_than_a_round_may_comes_through_in_the_end():
    """1. the way of a state takes 2.5 s  2. after 1 s it is turned around, after 2 s once more  3. then
    it has 4 s."""
    town, asked = Town(settings=Settings(round_s_max=1.0)), {}
    town.give(MASTER, Rescale(1))
    for _ in range(150):
        town.tick(0.1)
        while town.mail:
            for e in town.pending(Fetch):
                key = e.body.task, e.body.tenure
                if town.now - asked.setdefault(key, town.now) < 2.5:
                    town.mail.remove(e)
            town.deliver()
        town.answer_store()
        town.start_launched()
    assert (town.owners(), town.stage()) == ("1111", "completed")
    assert town.master.conductor.migration.turned == 2


def test_a_migration_that_takes_far_too_long_is_rolled_back():
    """1. no state gets through for longer than `migration_s_max`  2. the master heads back  3. nothing
    is lost."""
    town = Town(settings=Settings(round_s_max=0.5, migration_s_max=1.5))
    town.give(MASTER, Rescale(1))
    fetchless(town, 2.5)
    town.settle(5.0)
    assert (town.owners(), town.stage()) == ("1122", "rolled back")


@pytest.mark.parametrize("command", [Abort(), Resume(), RollBack()])
def test_a_command_without_a_migration_is_refused_with_its_story(command):
    town = Town()
    before = town.master.epoch
    with pytest.raises(ProtocolError, match="there is no migration") as refused:
        town.give(MASTER, command)
    assert refused.value.story
    assert town.master.epoch == before


@pytest.mark.parametrize("rescale", [Rescale(0), Rescale(5), Rescale(2, tasks_max=0)])
def test_an_impossible_rescale_is_refused(rescale):
    town = Town()
    with pytest.raises(MalformedMessage):
        town.give(MASTER, rescale)
    assert town.master.conductor.migration is None


# ---------------------------------------------------------------------- losses


def lossy(tasks=4, nodes=2):
    """A town with checkpoints and a feeder whose first rows are durable."""
    town = Town(nodes, tasks, CHECKPOINTS)
    town.feeder()
    town.settle(1.0)
    offer(town, *((task, task) for task in range(tasks)))
    town.settle(2.0)
    return town


def test_the_owner_of_a_task_is_lost_and_its_successor_restores_the_record():
    """1. rows are durable  2. more rows are applied, not durable  3. the owner dies  4. its successor
    loads the record, the feeder sends the rest again."""
    town = lossy()
    offer(town, (0, 10))
    town.run()
    assert town.notes(0) == [0, 10]
    old = town.kill("n1")
    town.give(MASTER, PeerLost("n1", old.incarnation))
    town.settle(3.0)
    assert town.machines["n1"].incarnation == old.incarnation + 1
    assert town.notes(0) == [0, 10]


def test_the_source_of_a_move_is_lost_before_it_has_put_the_state():
    """1. tasks 2 and 3 move to n1, no state gets through  2. n2 dies  3. n1 restores them from the
    store  4. the migration completes."""
    town = lossy()
    offer(town, (2, 10))
    town.run()
    town.give(MASTER, Rescale(1))
    fetchless(town, 0.2)
    old = town.kill("n2")
    town.give(MASTER, PeerLost("n2", old.incarnation))
    town.settle(5.0)
    assert (town.owners(), town.stage(), town.notes(2)) == ("1111", "completed", [2, 10])


def test_the_destination_of_a_move_is_lost_before_it_has_installed_the_state():
    """1. a third node joins and is to get tasks; no state gets through  2. it dies  3. its successor
    takes the state from the frozen copies."""
    town = lossy(tasks=6)
    town.give(MASTER, Rescale(3))
    town.start_launched()
    fetchless(town, 0.8)
    name = next(n for n in town.machines if n.startswith("x"))
    moved = [t for t, owner in enumerate(town.master.ledger.owner) if owner == name]
    assert moved
    restores = town.master.conductor.counts["restores"]
    old = town.kill(name)
    town.give(MASTER, PeerLost(name, old.incarnation))
    town.settle(5.0)
    assert town.stage() == "completed"
    assert town.master.conductor.counts["restores"] == restores
    assert [town.notes(task) for task in moved] == [[task] for task in moved]


def test_a_middle_link_is_lost():
    """1. tasks are on their way from n2 to n1, no state gets through  2. a new rescale sends them on to
    n3  3. n1 dies  4. n3 gets what n2 froze, under a new term."""
    town = lossy(tasks=6, nodes=3)
    ledger = town.master.ledger
    epoch = town.master.books.upcoming
    ledger.move(2, "n1", peer(town, "n2").incarnation, epoch)
    town.master.books.changed = True
    town.give(MASTER, Tick())
    fetchless(town, 0.3)
    ledger.move(2, "n3", peer(town, "n1").incarnation, town.master.books.upcoming)
    town.master.books.changed = True
    town.give(MASTER, Tick())
    assert [link.node for link in ledger.chain[2]] == ["n2", "n1"]
    old = town.kill("n1")
    town.give(MASTER, PeerLost("n1", old.incarnation))
    assert [link.node for link in ledger.chain[2]] == ["n2"]
    assert ledger.term[2] == ledger.tenure[2]
    town.settle(3.0)
    assert (ledger.owner[2], town.notes(2)) == ("n3", [2])


def late(town, seconds):
    """Let time pass while nobody starts what is launched; give those orders."""
    orders = []
    for _ in range(round(seconds / 0.1)):
        town.tick(0.1)
        town.run()
        town.answer_store()
        orders, town.launched = orders + town.launched, []
    return orders


def lose(town, name):
    town.give(MASTER, PeerLost(name, town.kill(name).incarnation))


def test_others_stand_in_for_a_lost_node_whose_successor_is_late():
    """1. n1 dies, and there is no slot for its successor  2. after a second the others restore what it
    had  3. it comes, and gets its tasks back."""
    town = lossy(tasks=6, nodes=3)
    offer(town, (0, 10))
    town.run()
    lose(town, "n1")
    orders = late(town, 0.8)
    assert town.owners() == "112233"
    orders += late(town, 1.0)
    assert (town.owners(), len(town.master.ledger.chain)) == ("232233", 0)
    assert town.notes(0) == [0, 10]
    assert "stood in" in town.words()
    town.launched = orders
    town.settle(4.0)
    assert (town.owners(), town.stage(), town.notes(0)) == ("112233", "completed", [0, 10])


def test_a_rescale_that_was_aborted_is_not_completed_by_those_who_stand_in():
    """1. a rescale is aborted  2. n1 dies, and its successor is late  3. others stand in for it: the
    rescale cannot be resumed any more, and its caller is told that, not that it was completed."""
    town = lossy(tasks=6, nodes=3)
    town.give(MASTER, Rescale(2, tasks_max=1))
    town.give(MASTER, Abort())
    first = town.master.conductor.migrations
    lose(town, "n1")
    late(town, 2.0)
    told = [(tell.what.value, tell.facts.get("migration")) for tell in town.told]
    assert ("superseded", first) in told
    assert town.master.conductor.migrations == first + 1


def test_nor_is_one_that_was_aborted_while_a_node_is_still_to_leave():
    """1. n1 shall leave, and that is replaced by a rescale  2. this one is aborted  3. n2 dies, others
    stand in: they head for all who are there, which nobody asked for."""
    town = lossy(tasks=6, nodes=3)
    town.give(MASTER, Rescale(3, leaving=("n1",)))
    town.give(MASTER, Rescale(2, tasks_max=1))
    town.give(MASTER, Abort())
    aborted = town.master.conductor.migrations
    lose(town, "n2")
    late(town, 2.0)
    told = [(tell.what.value, tell.facts.get("migration")) for tell in town.told]
    assert ("superseded", aborted) in told
    assert ("rescaling", aborted + 1) in told


def test_who_stands_in_is_there():
    """1. all nodes die  2. nobody can stand in  3. the first successor that comes takes all tasks."""
    town = lossy()
    lose(town, "n1")
    lose(town, "n2")
    orders = late(town, 2.0)
    assert (town.owners(), len(town.master.ledger.chain)) == ("1122", 4)
    town.launched = [order for order in orders if order.node == "n2"]
    town.settle(1.0)
    assert (town.owners(), len(town.master.ledger.chain)) == ("2222", 0)


def test_nobody_stands_in_who_may_not_be_able_to_read_the_state():
    """1. an upgrade that changes the state is aborted half way  2. the new node dies, and its successor
    is late  3. nodes of the old version stay what they are  4. it comes, and restores its tasks."""
    town = lossy()
    town.give(MASTER, Rescale(1, tasks_max=1, version=2, one_way=True))
    ledger = town.master.ledger
    while "x1-1" not in [
        owner for task, owner in enumerate(ledger.owner) if task not in ledger.chain
    ]:
        if town.mail:
            town.deliver()
        else:
            town.tick(0.1)
            town.start_launched()
    town.give(MASTER, Abort())
    town.settle(1.0)
    before = list(ledger.owner)
    assert set(before) == {"n1", "n2", "x1-1"}
    lose(town, "x1-1")
    orders = late(town, 3.0)
    assert (ledger.owner, "stood in" in town.words()) == (before, False)
    town.launched = orders
    town.settle(1.0)
    assert (ledger.owner, ledger.chain) == (before, {})


def test_a_successor_that_dies_gives_others_no_more_time():
    """1. n1 dies  2. its successor dies before it registers, again and again  3. n2 stands in within a
    second of the first death."""
    town = lossy()
    lose(town, "n1")
    for _ in range(6):
        late(town, 0.2)
        town.give(MASTER, PeerLost("n1", peer(town, "n1").incarnation))
    assert town.owners() == "2222"


def test_a_task_that_is_restored_moves_after_that():
    """1. n2 dies; the store is slow  2. a rescale leaves n1 alone  3. tasks of n2's are restored by its
    successor, and then they move."""
    town = lossy()
    lose(town, "n2")
    town.start_launched()
    for _ in range(3):
        town.tick(0.1)
        town.run()
    assert set(town.master.ledger.chain) == {2, 3}
    town.give(MASTER, Rescale(1))
    town.tick(0.1)
    town.run()
    assert town.owners() == "1122"
    town.settle(4.0)
    assert (town.owners(), town.stage()) == ("1111", "completed")


def test_without_checkpoints_a_lost_state_is_lost_and_that_is_said():
    """1. no checkpoints  2. n1 dies  3. people are told which tasks' state is gone."""
    town = Town()
    old = town.kill("n1")
    town.give(MASTER, PeerLost("n1", old.incarnation))
    (tell,) = [t for t in town.told if t.what == "state lost"]
    assert tell.facts["tasks"] == [0, 1]


def test_one_event_gives_a_task_one_new_owner():
    """1. a task is restored and, in the same event, moved on  2. the first owner was never published:
    the chain does not name it."""
    town = lossy()
    ledger, epoch = town.master.ledger, town.master.books.upcoming
    ledger.restore(0, "n2", epoch)
    ledger.move(0, "n1", peer(town, "n2").incarnation, epoch)
    town.master.books.changed = True
    town.give(MASTER, Tick())
    assert [link.node for link in ledger.chain[0]] == ["@store"]
    town.settle(2.0)
    assert (ledger.owner[0], town.notes(0)) == ("n1", [0])


# ---------------------------------------------------------------------- the manifest


def test_a_new_master_claims_its_generation_before_it_reads_the_manifest():
    """1. the master starts: a claim, nothing else  2. granted: it reads  3. a tick in between does not
    make it claim twice  4. what it has read it writes, as the first of its own: one of the driver
    before it may come late, and say less  5. only then it starts, and launches anybody."""
    town = Town(settings=CHECKPOINTS, start=False)
    town.give(MASTER, Tick())
    assert [action.key for _, action in town.stores] == [CLAIM_KEY]
    town.write()
    town.give(MASTER, Tick())
    assert (town.stores, [load.key for _, load in town.loads]) == ([], [MANIFEST_KEY])
    town.read()
    town.tick(5.0)
    assert [action.key for _, action in town.stores] == [MANIFEST_KEY]
    assert not town.master.started
    assert not town.launched
    town.write()
    assert town.master.started
    assert town.launched


def test_a_first_manifest_that_cannot_be_written_is_tried_again_and_nothing_begins_before():
    town = Town(settings=CHECKPOINTS, start=False)
    town.give(MASTER, Tick())
    town.write()
    town.read()
    tries = 0
    for _ in range(40):
        tries += len(town.stores)
        town.write(done=False)
        town.tick(0.1)
        assert not town.master.started
    assert 2 <= tries <= 8
    assert "store" in town.master.status()["store"]
    town.tick(5.0)
    town.write()
    assert town.master.started


def test_a_master_whose_generation_was_claimed_by_another_ends():
    """1. generation 1 has been claimed  2. a second master of generation 1 asks for it  3. it ends."""
    town = Town(settings=CHECKPOINTS, start=False)
    town.store[CLAIM_KEY] = b"1"
    town.give(MASTER, Tick())
    town.write()
    assert town.ended[MASTER] == "a later generation has taken over"
    assert town.master.handle(Tick(), town.now) == []


def test_a_new_generation_goes_on_from_the_manifest():
    """1. rows are durable, the driver dies  2. the next one, of another number of nodes, restores all
    tasks and tells the feeder where to read on."""
    first = lossy()
    first.settle(2.0)
    second = Town(3, 4, CHECKPOINTS, generation=2, start=False)
    second.store = first.store
    second.feeder()
    second.up()
    assert [second.notes(task) for task in range(4)] == [[0], [1], [2], [3]]
    assert second.machines["f"].offset == 3


@pytest.mark.parametrize("blob", [b"{}", b"\xff", Manifest(1, 9, (), {}, {}).dump()])
def test_a_manifest_that_cannot_be_used_ends_the_master_with_a_word(blob):
    town = Town(settings=CHECKPOINTS, start=False)
    town.store[MANIFEST_KEY] = blob
    town.tick()
    town.answer_store()
    assert town.words() == ["refused"]
    assert town.ended[MASTER].startswith("the checkpoint cannot be used: ")


def test_a_record_counts_when_the_manifest_that_holds_it_is_written():
    """1. n1 reports a record  2. the manifest is under way: not accepted  3. written: accepted."""
    town = lossy()
    tenure = town.master.ledger.tenure[0]
    item = RecordNote(((0, 1),), tenure, 99, "key")
    incarnation = peer(town, "n1").incarnation
    town.say("n1", MASTER, Checkpointed((item,)), incarnation=incarnation)
    assert town.pending(Accepted) == []
    town.write()
    assert [e.body.items for e in town.pending(Accepted)] == [((((0, 1),), tenure, 99),)]


def test_a_record_of_a_fenced_incarnation_or_of_a_past_tenure_does_not_count():
    """1. n1 is lost and replaced  2. a record of the old one comes  3. it is not accepted; nor is one
    of a tenure that is over."""
    town = lossy()
    tenure, old = town.master.ledger.tenure[0], peer(town, "n1").incarnation
    town.kill("n1")
    town.give(MASTER, PeerLost("n1", old))
    town.say("n1", MASTER, Checkpointed((RecordNote(((0, 1),), tenure, 99, "k"),)), incarnation=old)
    town.settle(2.0)
    body = Checkpointed((RecordNote(((0, 1),), tenure, 98, "k"),))
    town.say("n1", MASTER, body, incarnation=old + 1)
    assert town.master.ledger.record[0].key != "k"


def test_a_manifest_that_could_not_be_written_is_written_again():
    """1. the store cannot take the manifest  2. nothing is accepted  3. it is written again  4. the
    record is accepted."""
    town = lossy()
    item = RecordNote(((0, 1),), town.master.ledger.tenure[0], 99, "key")
    incarnation = peer(town, "n1").incarnation
    town.say("n1", MASTER, Checkpointed((item,)), incarnation=incarnation)
    town.write(done=False)
    assert town.pending(Accepted) == []
    town.tick(1.0, MASTER)
    town.write()
    assert town.pending(Accepted)


def test_an_answer_of_the_store_about_something_else_is_not_taken_for_the_manifest():
    """1. a manifest is on its way  2. an answer about another key comes  3. nothing is accepted."""
    town = lossy()
    item = RecordNote(((0, 1),), town.master.ledger.tenure[0], 99, "key")
    incarnation = peer(town, "n1").incarnation
    town.say("n1", MASTER, Checkpointed((item,)), incarnation=incarnation)
    town.give(MASTER, Stored("something", done=True))
    assert town.pending(Accepted) == []


def test_a_replaced_master_that_moves_tasks_hears_of_it_though_no_row_comes():
    """1. all that was fed is durable  2. another driver claims  3. this one rescales: it ends."""
    town = lossy()
    town.settle(2.0)
    town.store[CLAIM_KEY] = b"2"
    town.settle(2.0)
    assert MASTER not in town.ended, "it had nothing to write"
    town.give(MASTER, Rescale(1))
    town.settle(3.0)
    assert town.ended[MASTER] == "a later generation has taken over"


def test_after_a_rescale_the_manifest_names_the_nodes_though_no_row_comes():
    town = lossy()
    town.settle(2.0)
    town.give(MASTER, Rescale(3))
    town.settle(4.0)
    assert len(Manifest.load(town.store[MANIFEST_KEY]).nodes) == 3


def test_a_master_that_is_fenced_by_the_store_ends():
    """1. a later generation has claimed the store  2. the old master's next manifest is refused  3. it
    ends."""
    town = lossy()
    offer(town, (0, 50))
    town.store[CLAIM_KEY] = b"2"
    town.settle(1.0)
    assert town.ended[MASTER] == "a later generation has taken over"


def test_a_feeder_that_leaves_is_closed_for_a_while_and_its_name_is_free_at_once():
    """1. the feeder's rows are durable, it leaves  2. its positions are retired  3. another comes under
    its name and reads on where it ended  4. after `closed_s` the first is forgotten."""
    town = lossy()
    town.give("f", Finish())
    town.settle(1.0)
    assert ("f" in town.ended, town.master.table.closed) == (True, (("f", 1_000_001),))
    assert "f" not in town.machines["n1"].slots[0].state.positions
    town.feeder(instance="f-again")
    town.settle(1.0)
    assert (town.machines["f"].incarnation, town.machines["f"].offset) == (1_000_002, 3)
    assert town.master.table.closed == (("f", 1_000_001),)
    town.settle(20.0, step=0.5)
    assert town.master.table.closed == ()


# ---------------------------------------------------------------------- impossible messages


@pytest.mark.parametrize(
    ("sender", "incarnation", "epoch", "body"),
    [
        ("n1", 1_000_001, Epoch(1, 10**6), Beat(0.0)),
        ("n1", 2_000_000, None, Beat(0.0)),
        ("nobody", 7, None, Beat(0.0)),
        ("n1", 1_000_001, None, Hello("server", "x")),
        ("master", 0, None, Hello("feeder", "x")),
        ("x", 0, None, Hello("ghost", "x")),
        ("n1", 1_000_001, None, Beat(0.0, (0,), (2**62,), (0,))),
        ("n1", 1_000_001, None, Installed((Install(0, Epoch(1, 99), 0, 0.0, 0.0, False),))),
        ("n1", 1_000_001, None, Installed((Install(0, Epoch(1, 1), 0, float("nan"), 0.0, True),))),
        ("n1", 1_000_001, None, Dismiss()),
    ],
    ids=[
        "epoch that never was", "incarnation never given", "unknown sender", "another kind",
        "the master's name", "unknown kind", "overflow", "tenure that never was", "no number",
        "not for a master",
    ],
)  # fmt: skip
def test_what_no_correct_process_says_is_refused_and_changes_nothing(
    sender, incarnation, epoch, body
):
    town = Town()
    status, leases = town.master.status(), peer(town, "n1").lease_until
    with pytest.raises(MalformedMessage):
        town.say(sender, MASTER, body, incarnation=incarnation, epoch=epoch)
    assert (town.master.status(), peer(town, "n1").lease_until) == (status, leases)
    town.settle(1.0)
    assert isinstance(town.machines["n1"], Node)
    assert not town.machines["n1"].ended


def test_a_manifest_survives_the_round_trip_and_nothing_else_is_one():
    kept = Kept(Epoch(2, 9), 7, ("log/2/n1.1/3#8-99-0a1b2c3d", "log/2/n1.1/4#8-9-0a1b2c3e"))
    manifest = Manifest(3, 8, ("n1", "n2"), {4: kept}, {"clicks": 41}, {"name": "WordCount"})
    assert Manifest.load(manifest.dump()) == manifest
    for blob in (
        b"",
        b"[]",
        b"7",
        b"[" * 100_000,
        manifest.dump().replace(b'"tasks": 8', b'"tasks": 9'),  # the checksum tells
        manifest._replace(tasks=3).dump(),
        manifest.dump().replace(b"2.9", b"2.9.9"),
        manifest.dump().replace(b'manifest": 2', b'manifest": 1'),
        manifest._replace(records={4: kept._replace(chain=())}).dump(),
        manifest._replace(records={4: kept._replace(chain=("log/2/n1.1/3",))}).dump(),
        manifest.dump()[:-2],
    ):
        with pytest.raises(InputError, match="no manifest"):
            Manifest.load(blob)


def test_a_record_whose_manifest_is_not_written_is_not_restored():
    """1. a batch is applied, its record stored and reported, but the manifest cannot be written  2. the
    owner dies  3. its successor restores what the written manifest has, and the query is not told
    that the batch is durable: after a loss of the driver it would not be there."""
    town = Town(settings=CHECKPOINTS)
    town.query()
    town.settle(2.0)
    town.give("q", Write(0, 0, 0, ((0, ((7, None),), 1, 8),)))
    town.run()
    town.give("q", Seal(0, ((0, 0, ((0, 1),)),)))
    without_manifests(town, 0.6)
    assert town.master.ledger.record[0] != town.master.ledger.durable[0]
    old = town.kill("n1")
    town.give(MASTER, PeerLost("n1", old.incarnation))
    without_manifests(town, 3.0)
    assert town.notes(0) == []
    assert town.words() == ["written", "lost", "failed"]


def without_manifests(town, seconds):
    """Let time pass; the store takes everything but the manifest."""
    for _ in range(round(seconds / 0.1)):
        town.tick(0.1)
        town.run()
        manifests = [item for item in town.stores if item[1].key == MANIFEST_KEY]
        town.stores = [item for item in town.stores if item[1].key != MANIFEST_KEY]
        town.answer_store()
        town.stores = manifests
        town.start_launched()


def test_a_record_is_not_accepted_to_a_node_that_was_replaced_meanwhile():
    """1. n1 reports a record, the manifest is under way  2. n1 is replaced; its tasks go on from the
    record before  3. the manifest is written  4. the old n1, which may still live, is not told: what
    it emitted must not leave."""
    town = lossy()
    item = RecordNote(((0, 1),), town.master.ledger.tenure[0], 99, "key")
    incarnation = peer(town, "n1").incarnation
    town.say("n1", MASTER, Checkpointed((item,)), incarnation=incarnation)
    town.give(MASTER, PeerLost("n1", incarnation))
    town.write()
    assert town.pending(Accepted) == []
    assert b'"key"' in town.store[MANIFEST_KEY]
    assert town.master.ledger.durable[0].key != "key", "the next manifest will not have it"


@pytest.mark.parametrize("command", [Abort(), Resume()])
def test_a_command_that_does_not_fit_the_stage_is_refused_and_changes_nothing(command):
    town = Town()
    town.give(MASTER, Rescale(1))
    town.settle(5.0)
    assert town.stage() == "completed"
    with pytest.raises(ProtocolError, match=r"migration 1 is completed: it cannot") as refused:
        town.give(MASTER, command)
    assert refused.value.story
    assert town.stage() == "completed"


def test_a_node_whose_operator_failed_says_so_before_it_is_missed():
    """1. a node says why it cannot go on  2. people are told  3. it counts as lost, at once."""
    town = Town()
    peer = town.master.membership.peers["n2"]
    before = peer.incarnation
    town.say("n2", MASTER, Bye(failure="Sums failed: boom"), incarnation=before)
    assert town.words()[-3:] == ["operator failed", "lost", "state lost"]
    assert (peer.status, peer.incarnation) != (Status.UP, before)


def test_without_checkpoints_the_new_owner_dies_before_the_master_knows_of_it():
    """1. a third node joins, gets tasks, installs them and takes rows; no word of it reaches the
    master  2. it dies  3. its successor goes on from the frozen copies: the rows come again."""
    town = Town(tasks=6)
    town.feeder()
    town.settle(1.0)
    offer(town, *((task, task) for task in range(6)))
    town.settle(1.0)
    town.give(MASTER, Rescale(3))
    town.start_launched()
    deaf(town, 1.0)
    name = next(n for n in town.machines if n.startswith("x"))
    moved = [t for t, owner in enumerate(town.master.ledger.owner) if owner == name]
    assert moved
    offer(town, *((task, 10 + task) for task in range(6)))
    deaf(town, 1.0)
    assert [town.notes(task) for task in moved] == [[task, 10 + task] for task in moved]
    old = town.kill(name)
    town.give(MASTER, PeerLost(name, old.incarnation))
    town.settle(5.0)
    assert town.stage() == "completed"
    assert [town.notes(task) for task in range(6)] == [[task, 10 + task] for task in range(6)]
    assert town.machines["f"].outbox.idle, "and then they count"
    assert "state lost" not in town.words()


def deaf(town, seconds):
    """Let time pass while the master does not hear of installs."""
    for _ in range(round(seconds / 0.1)):
        town.tick(0.1)
        while town.mail:
            town.lose(Installed)
            town.mail = [e for e in town.mail if e.to in town.machines]
            town.deliver()
        town.start_launched()


def test_a_new_table_is_acknowledged_without_an_answer():
    """1. a table is published  2. whoever has a lease says that it knows it  3. the master notes that,
    and sends nothing back: leases are asked for when it is time."""
    town = Town(2, 4)
    town.settle(1.0)
    town.give(MASTER, Rescale(1))
    town.deliver(Grant)
    told = town.pending(Beat)
    assert {e.sender for e in told} >= {"n1", "n2"}
    assert {e.body.sent for e in told} == {-1.0}
    town.deliver(Beat)
    assert {peer(town, e.sender).acked for e in told} == {town.master.epoch}
    assert town.pending(Grant) == []


def test_who_has_no_lease_asks_for_one_when_a_table_comes():
    town = Town(2, 4)
    town.settle(1.0)
    for name in ("n1", "n2"):
        town.machines[name].turn.lease_until = 0.0
    town.give(MASTER, Rescale(1))
    town.deliver(Grant)
    asked = {e.sender: e.body.sent for e in town.pending(Beat)}
    assert asked == {"n1": town.now, "n2": town.now, "s": -1.0}
