"""Faults as data: schedules are drawn, written, read back; each incident hits what it names."""

import json

import pytest

from meander.errors import InputError
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.server import StateServer
from meander.protocol.messages import MASTER
from meander.protocol.node.node import Node
from meander.testing.cluster import Cluster
from meander.testing.faults import COMMANDS, FAULTS, Incident, Schedule, generate, parse_faults
from meander.testing.injector import Injector


def cluster_with(*incidents, nodes=3, tasks=6, seconds=6.0, until=None):
    cluster = Cluster(Schedule(5, nodes, tasks, seconds, incidents))
    if until is not None:
        cluster.timeline.run(until)
    return cluster


def named(cluster, kind):
    return [p for p in cluster.everyone if isinstance(p.machine, kind)]


def test_a_schedule_is_the_same_every_time_and_survives_being_written():
    schedule = generate(7, 8, 64, FAULTS)
    assert schedule == generate(7, 8, 64, reversed(FAULTS))
    assert schedule != generate(8, 8, 64, FAULTS)
    assert Schedule.load(schedule.dump()) == schedule


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"incidents": 3}', json.dumps({"incidents": [{"at": 1}]}),
     generate(1, 2, 4, ()).dump().replace('"tasks": 4', '"tasks": 1'),
     generate(1, 2, 4, ["loss"]).dump().replace('"loss"', '"flood"')],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(InputError, match="no schedule"):
        Schedule.load(text)


def test_faults_are_named_on_the_command_line():
    assert parse_faults("all") == set(FAULTS)
    assert parse_faults("none") == set()
    assert parse_faults("crash, loss") == {"crash", "loss"}
    with pytest.raises(InputError, match="unknown faults fire"):
        parse_faults("crash,fire")


def test_every_fault_and_command_has_a_method_that_carries_it_out():
    for kind in FAULTS + COMMANDS:
        assert callable(getattr(Injector, "_do_" + kind.replace(" ", "_")))


def test_a_crashed_node_comes_back_without_its_memory():
    cluster = cluster_with(Incident(2.0, "crash", 0, 1), until=4.0)
    killed = [p for p in named(cluster, Node) if p.killed]
    assert len(killed) == 1
    heir = cluster.processes[killed[0].name]
    assert heir is not killed[0]
    assert heir.machine.incarnation == killed[0].machine.incarnation + 1


@pytest.mark.parametrize(
    ("kind", "machine"), [("server", StateServer), ("feeder", Feeder)], ids=["server", "feeder"]
)
def test_a_killed_server_or_feeder_is_started_again_as_another(kind, machine):
    cluster = cluster_with(Incident(1.0, kind), until=2.5)
    killed = [p for p in named(cluster, machine) if p.killed]
    assert len(killed) == 1
    assert cluster.processes[killed[0].name].machine.instance != killed[0].machine.instance


def test_a_paused_process_keeps_its_memory_and_its_mail():
    cluster = cluster_with(Incident(2.0, "pause", 0, 0, 0.5), until=2.4)
    (paused,) = [p for p in cluster.everyone if p.paused]
    assert isinstance(paused.machine, Node)
    assert paused.mailbox
    slots = dict(paused.machine.slots)
    cluster.timeline.run(2.6)
    assert not paused.paused
    assert paused.mailbox == []
    assert slots.items() <= paused.machine.slots.items()


def test_a_slow_node_takes_its_time_but_keeps_the_order():
    cluster = cluster_with(until=1.0)
    process = named(cluster, Node)[0]
    process.slow_s, seen = 0.5, []
    cluster.give = lambda p, event: seen.append((cluster.timeline.now, event))
    for number in range(20):
        cluster.arrive((process, number))
    process.slow_s = 0.0
    cluster.arrive((process, 20))  # what comes later does not overtake
    cluster.timeline.run(3.0)
    turns = [(time, event) for time, event in seen if isinstance(event, int)]
    assert [event for _, event in turns] == list(range(21))
    assert 1.0 < turns[-1][0] <= 1.5


def test_a_full_state_server_refuses_and_has_room_again_later():
    cluster = cluster_with(Incident(1.0, "full", 0, 0, 1.0), until=1.5)
    server = named(cluster, StateServer)[0].machine
    assert server.settings.server_bytes_max == 100
    cluster.timeline.run(2.5)
    assert server.settings.server_bytes_max > 100


def test_skewed_clocks_differ_and_run_at_different_speeds():
    cluster = cluster_with(Incident(1.0, "skew"))
    clocks = {(p.offset, p.rate) for p in cluster.everyone}
    assert len(clocks) == len(cluster.everyone)
    assert all(0.95 < rate < 1.05 for _, rate in clocks)
    assert {(p.offset, p.rate) for p in cluster_with().everyone} == {(0.0, 1.0)}


def test_a_new_master_is_of_the_next_generation_and_one_that_lives_on_finds_out():
    cluster = cluster_with(Incident(2.0, "master", 0, 3), until=6.0)
    old, new = cluster.masters[1], cluster.masters[2]
    assert cluster.processes[MASTER] is new
    assert new.machine.started
    assert not old.killed
    assert old.machine.ended  # the durable store refused it


def test_faults_end_when_the_schedule_does():
    kinds = (
        "loss",
        "duplicate",
        "reorder",
        "corrupt",
        "partition",
        "clog",
        "lag",
        "narrow",
        "store",
    )
    incidents = [Incident(5.9, kind, 3, 1, 4.0, 0.1) for kind in kinds]
    cluster = cluster_with(*incidents, until=5.95)
    network = cluster.network
    wrong = ("loss", "duplication", "reorder", "corruption", "cut", "clogged", "lag", "speeds")
    assert all(getattr(network, what) for what in wrong)
    cluster.timeline.run(6.05)
    assert not any(getattr(network, what) for what in wrong)
    assert not cluster.store_refuses("manifest")
