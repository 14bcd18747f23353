"""The small parts: ledger, pacer, outbox, the codec of states, the transition tables."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import Books, Notes, Settings, chunk

from meander.errors import BrokenRuleError, MalformedMessage, StateError
from meander.model import Assignment, Epoch
from meander.protocol.blocks import Ack
from meander.protocol.master.ledger import Kept, Ledger
from meander.protocol.master.membership import STATUS, Change, Peer, Status
from meander.protocol.master.migration import STAGES, Migration, MigrationStage, MigrationStep
from meander.protocol.master.pacer import BANDWIDTH_BYTES_S_MAX, PaceLimits, Pacer
from meander.protocol.messages import STORE, Staged, TenureLink
from meander.protocol.node.slot import TRANSITIONS, Cause, Slot, TaskPhase
from meander.protocol.outbox import Outbox
from meander.protocol.state import Position, TaskState, decode, encode

E = [Epoch(1, number) for number in range(12)]


# ---------------------------------------------------------------------- the ledger


def test_a_chain_grows_with_every_move_and_ends_when_the_owner_has_installed():
    ledger = Ledger(1, ["a"])
    ledger.move(0, "b", 1, E[2])
    ledger.move(0, "c", 1, E[3])
    assert [(link.node, link.tenure) for link in ledger.chain[0]] == [
        ("a", Epoch(0, 0)),
        ("b", E[2]),
    ]
    assert ledger.installed(0, E[3], "c")
    assert ledger.chain == {}


def test_an_install_on_the_way_frees_the_links_before_it():
    ledger = Ledger(1, ["a"])
    ledger.move(0, "b", 1, E[2])
    ledger.move(0, "c", 1, E[3])
    assert ledger.installed(0, E[2], "b")
    assert [link.node for link in ledger.chain[0]] == ["b"]
    assert not ledger.installed(0, E[2], "b")


@pytest.mark.parametrize(("tenure", "node"), [(E[1], "b"), (E[2], "x"), (E[9], "b")])
def test_an_install_of_another_tenure_or_node_is_no_news(tenure, node):
    ledger = Ledger(1, ["a"])
    ledger.move(0, "b", 1, E[2])
    assert not ledger.installed(0, tenure, node)
    assert ledger.chain[0]


def test_a_chain_without_its_oldest_link_is_worth_nothing():
    ledger = Ledger(1, ["a"])
    ledger.move(0, "b", 1, E[2])
    ledger.move(0, "c", 1, E[3])
    assert not ledger.rechain(0, "c", E[4], lambda link: link.node != "a")
    assert ledger.rechain(0, "c", E[4], lambda link: link.node != "b")
    assert ([link.node for link in ledger.chain[0]], ledger.term[0]) == (["a"], E[4])


def test_a_restored_task_takes_its_record_and_begins_a_term():
    ledger = Ledger(2, ["a", "a"])
    ledger.durable[0] = Kept(E[1], 3, ("key",))
    ledger.restore(0, "b", E[5])
    ledger.restore(1, "b", E[5])
    assert ledger.chain[0] == (TenureLink(STORE, 0, E[1], "key"),)
    assert ledger.chain[1] == (TenureLink(STORE, 0, Epoch(0, 0), ""),)
    assert ledger.terms() == ((0, 2, E[5]),)


def test_neighbours_under_way_alike_are_one_entry():
    ledger = Ledger(4, ["a", "a", "a", "b"])
    for task in (0, 1, 2):
        ledger.move(task, "c" if task < 2 else "d", 1, E[2])
    assert [(e.lb, e.ub) for e in ledger.incoming()] == [(0, 2), (2, 3)]


# ---------------------------------------------------------------------- the pause budget


def test_a_round_is_sized_by_budget_overhead_and_bandwidth():
    pacer = Pacer(bandwidth_bytes_s=1000.0, overhead_s=0.1)
    assert pacer.limits() == PaceLimits()
    pacer.start(0.5, PaceLimits(bytes_max=7))
    assert pacer.limits() == PaceLimits(tasks_max=1), "nothing was measured yet"
    pacer.observe_install(1000, 1.0)
    assert pacer.limits() == PaceLimits(bytes_max=7, link_bytes_max=250)
    assert pacer.predict(250) == pytest.approx(0.35), (
        "rounds differ by 0.05 s: three times that is spared"
    )


def test_the_more_rounds_differ_the_less_a_round_has() -> None:
    """1. they all take as long: nearly all of the budget  2. they do not: less, with the same mean
    3. far too much: a quarter of what is beyond the overhead is left."""
    pacer = Pacer(1000.0, 0.1)
    pacer.observe_install(1000, 1.0)
    pacer.start(1.0, PaceLimits())
    rooms = []
    for worse in (0.0, 0.05, 0.4):
        for k in range(40):
            pacer.observe_round(0.5 + (worse if k % 2 else -worse), weight=100)
        rooms.append(pacer.limits().link_bytes_max)
    even, uneven, wild = rooms
    assert even == pytest.approx(600, abs=2)
    assert 400 < uneven < 550
    assert wild == pytest.approx(1000 * (1.0 - pacer.overhead_s) / 4, abs=1)


def test_a_time_instead_of_a_pause_cuts_as_many_rounds_as_it_has_room_for():
    pacer = Pacer(bandwidth_bytes_s=1000.0, overhead_s=0.1)
    pacer.start(None, PaceLimits(tasks_max=7), until=20.0)
    assert pacer.copies
    assert pacer.limits(now=18.0, left=1000) == PaceLimits(7, None, 200), "five rounds of 0.2 s"
    assert pacer.copy_s(18.0, 200, 1000) == pytest.approx(0.2), "a fifth of the other second"
    assert pacer.limits(now=30.0, left=1000) == PaceLimits(7, None, 1000), "it is late"
    assert pacer.copy_s(30.0, 1000, 1000) == 0
    pacer.start(None, PaceLimits())
    assert (pacer.copies, pacer.copy_s(1.0, 10, 10)) == (False, None)


def test_a_round_over_the_budget_halves_the_next_and_two_shrink_it_to_one_task():
    pacer = Pacer(1000.0, 0.0)
    pacer.observe_install(1000, 1.0)
    pacer.start(0.4, PaceLimits())
    pacer.observe_round(0.5)
    assert pacer.limits().link_bytes_max == 200
    pacer.observe_round(0.5)
    assert pacer.limits() == PaceLimits(tasks_max=1)


def test_rounds_grow_again_when_they_fit():
    pacer = Pacer(1000.0, 0.0)
    pacer.observe_install(1000, 1.0)
    pacer.start(0.4, PaceLimits())
    for measured in (0.5, 0.5, 0.5, 0.1):
        pacer.observe_round(measured)
    assert pacer.limits().link_bytes_max == pytest.approx(400 / 8 * 1.25, abs=1)
    for _ in range(20):
        pacer.observe_round(0.0)
    assert pacer.limits().link_bytes_max == 400


def test_transfers_that_all_take_as_long_make_no_link_endless() -> None:
    pacer = Pacer(1000.0, 0.0)
    for size, seconds in [(1000, 0.1), (2000, 0.1 + 1e-15)] * 10:
        pacer.observe_install(size, seconds)
    assert pacer.bandwidth_bytes_s <= BANDWIDTH_BYTES_S_MAX
    assert max(pacer.weights([2**40])) < 2**63


@pytest.mark.parametrize(("bandwidth", "overhead"), [(5e6, 0.005), (50e6, 0.05)])
def test_bandwidth_and_the_cost_of_a_task_are_learned_from_installs(bandwidth, overhead):
    pacer = Pacer(200e6, 0.0)
    for i in range(100):
        size = (1 + i % 7) * 1_000_000
        pacer.observe_install(size, overhead + size / bandwidth)
    (weight,) = pacer.weights([4_000_000])
    assert pacer.predict(weight) == pytest.approx(overhead + 4e6 / bandwidth, rel=0.05)


def test_tasks_of_one_size_teach_their_cost_at_the_bandwidth_that_was_assumed():
    pacer = Pacer(100e6, 0.0)
    for _ in range(20):
        pacer.observe_install(1_000_000, 0.015)
    assert pacer.task_s == pytest.approx(0.005)
    pacer.observe_install(100_000_000, 0.5)  # faster than was thought possible
    assert pacer.bandwidth_bytes_s > 100e6


def test_what_a_round_takes_beyond_its_transfers_becomes_the_overhead():
    pacer = Pacer(1000.0, 0.0)
    for _ in range(30):
        pacer.observe_round(0.3, weight=100)
    assert pacer.overhead_s == pytest.approx(0.2, rel=0.01)
    before = pacer.overhead_s
    pacer.observe_round(0.0, weight=100)  # nobody waited: nothing was measured
    assert pacer.overhead_s == before


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (5, 0.0), (5, -1.0)])
def test_an_install_that_measures_nothing_teaches_nothing(size, seconds):
    pacer = Pacer(1000.0, 0.1)
    pacer.observe_install(size, seconds)
    assert (pacer.bandwidth_bytes_s, pacer.overhead_s) == (1000.0, 0.1)


# ---------------------------------------------------------------------- the outbox


def test_a_lane_that_hears_nothing_sends_one_chunk_again_and_all_only_after_that():
    """1. four chunks are sent  2. silence: the first again  3. silence: all  4. and then less often."""
    outbox = Outbox("f", 1)
    for offset in range(4):
        outbox.offer(0, None, offset, offset, 1)
    assert len(outbox.due(0, 8, 0.0)) == 4
    assert outbox.late(0.2, 0.25) == []
    assert [c.number for c in outbox.late(0.3, 0.25)] == [1]
    assert outbox.due(0, 8, 0.3) == []
    assert outbox.late(0.7, 0.25) == []
    assert outbox.late(0.9, 0.25) == []
    assert [c.number for c in outbox.due(0, 8, 0.9)] == [1, 2, 3, 4]
    assert outbox.late(1.8, 0.25) == []
    assert outbox.due(0, 8, 1.8) == []
    outbox.late(2.0, 0.25)
    assert len(outbox.due(0, 8, 2.0)) == 4


def test_a_lane_that_gets_on_after_the_first_chunk_was_sent_again_sends_the_others_next_time():
    outbox = Outbox("f", 1)
    for offset in range(3):
        outbox.offer(0, None, offset, offset, 1)
    outbox.due(0, 8, 0.0)
    outbox.late(0.3, 0.25)
    outbox.acknowledge(Ack(0, Epoch(1, 1), 1, 1, 1), 0.4, None)  # two were lost
    assert outbox.late(0.8, 0.25) == []
    assert outbox.due(0, 8, 0.8) == []
    outbox.late(1.0, 0.25)
    assert [c.number for c in outbox.due(0, 8, 1.0)] == [2, 3]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("offer"), st.integers(0, 2)),
            st.tuples(st.just("due"), st.integers(0, 2)),
            st.tuples(st.just("ack"), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9),
                      st.integers(0, 3)),
            st.tuples(st.just("late")),
        )
    )
)  # fmt: skip
def test_an_outbox_keeps_exactly_what_is_not_durable_whatever_happens(steps):
    outbox, offset, now, durable = Outbox("f", 1), 0, 0.0, {}
    for step in steps:
        now += 1.0
        if step[0] == "offer":
            offset += 1
            outbox.offer(step[1], None, offset, offset, 1)
        elif step[0] == "due" and step[1] in outbox.lanes:
            numbers = [c.number for c in outbox.due(step[1], 4, now)]
            assert len(numbers) <= 4
        elif step[0] == "ack":
            _, task, applied, part, term = step
            outbox.acknowledge(Ack(task, E[term], 1, applied, min(applied, part)), now, None)
        elif step[0] == "late":
            outbox.late(now, 0.5)
        kept = 0
        for task, lane in outbox.lanes.items():
            assert durable.get(task, 0) <= lane.durable <= lane.applied <= lane.sent <= lane.last
            durable[task] = lane.durable
            assert [c.number for c in lane.chunks] == list(range(lane.durable + 1, lane.last + 1))
            kept += len(lane.chunks)
        assert kept == outbox.retained


# ---------------------------------------------------------------------- the codec of states

offsets = st.integers(0, 2**63 - 1)
rows = st.lists(st.tuples(offsets, st.none() | st.integers(0, 9)), max_size=3).map(tuple)
names = st.text(max_size=8)
positions = st.dictionaries(names, st.builds(Position, offsets, offsets, offsets), max_size=3)


@st.composite
def states(draw):
    state = TaskState(3, draw(st.lists(st.tuples(names, offsets).map(list))), gated=True)
    state.positions, state.durable = draw(positions), draw(positions)
    state.batches = draw(st.dictionaries(names, offsets, max_size=2))
    state.durable_batches = draw(st.dictionaries(names, offsets, max_size=2))
    for query, batch, found in draw(st.lists(st.tuples(names, offsets, rows), max_size=3)):
        state.staged[query, batch, 0, 1] = Staged(query, batch, 0, 1, 3, found, len(found), 8)
    for task, found in draw(st.lists(st.tuples(st.integers(0, 4), rows), max_size=5)):
        state.emitted += 1
        state.outbox.offer(task, found, state.emitted, state.emitted, 8)
    for lane in state.outbox.lanes.values():
        lane.released = draw(st.integers(0, lane.last))
    return state


@given(states(), st.booleans())
def test_a_state_survives_the_round_trip(state, gated):
    blob = encode(state, Notes())
    again = decode(3, blob, Notes(), gated=gated)
    assert again.app == state.app
    assert (again.positions, again.durable) == (state.positions, state.durable)
    assert (again.batches, again.staged) == (state.batches, state.staged)
    for task, lane in state.outbox.lanes.items():
        assert again.outbox.lanes[task].chunks == lane.chunks
        assert again.outbox.lanes[task].released == (lane.released if gated else lane.last)
    if gated:
        assert encode(again, Notes()) == blob


@given(states(), st.data())
def test_a_blob_that_is_no_state_is_refused(state, data):
    blob = encode(state, Notes())
    cut = data.draw(st.integers(0, len(blob) - 1))
    with pytest.raises(MalformedMessage):
        decode(3, blob[:cut], Notes(), gated=True)
    with pytest.raises(MalformedMessage):
        decode(3, blob + b"x", Notes(), gated=True)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_noise_is_refused(noise, length):
    with pytest.raises(MalformedMessage):
        decode(3, length.to_bytes(4, "little") + noise, Notes(), gated=True)


JUNK = st.sampled_from([None, -1, "x", 2**70, 1.5, True, [], {}, [[]], {"f": [1]}, {"f": 3}])


@given(st.sampled_from(["app", "positions", "durable", "batches", "durable_batches", "emitted",
                        "staged", "lanes"]), JUNK)  # fmt: skip
def test_a_header_with_a_wrong_field_is_refused_or_reads_as_an_empty_one(field, junk):
    blob = encode(TaskState(3, [], gated=True), Notes())
    at = 4 + int.from_bytes(blob[:4], "little")
    head = json.dumps({**json.loads(blob[4:at]), field: junk}).encode()
    wrong = len(head).to_bytes(4, "little") + head + blob[at:]
    try:
        state = decode(3, wrong, Notes(), gated=True)
    except MalformedMessage:
        return
    assert (state.positions, state.durable, state.staged, state.outbox.lanes) == ({}, {}, {}, {})


def test_an_operator_that_cannot_read_its_state_refuses_it_by_the_same_error():
    class Picky(Notes):
        def load(self, task, blob):
            raise StateError("of another version")

    blob = encode(TaskState(3, [], gated=False), Notes())
    with pytest.raises(MalformedMessage, match="of another version"):
        decode(3, blob, Picky(), gated=False)


# ---------------------------------------------------------------------- the tables


@pytest.mark.parametrize(
    ("phase", "cause"), [p for p in product(TaskPhase, Cause) if p not in TRANSITIONS]
)
def test_a_phase_cannot_change_in_a_way_that_is_not_in_the_table(phase, cause):
    slot = Slot(7)
    slot.phase = phase
    with pytest.raises(BrokenRuleError, match=f"task 7 is {phase.value} and cannot {cause.value}"):
        slot.go(cause)
    assert slot.phase is phase


@pytest.mark.parametrize(
    ("status", "change"), [p for p in product(Status, Change) if p not in STATUS]
)
def test_a_status_cannot_change_in_a_way_that_is_not_in_the_table(status, change):
    peer = Peer("n7", "node", 1, 0.0)
    peer.status = status
    with pytest.raises(BrokenRuleError, match=f"n7 is {status.value}: no {change.value}"):
        peer.go(change)


@pytest.mark.parametrize(
    ("stage", "step"), [p for p in product(MigrationStage, MigrationStep) if p not in STAGES]
)
def test_a_stage_cannot_change_in_a_way_that_is_not_in_the_table(stage, step):
    somewhere = Assignment.from_intervals({"n1": (0, 1)})
    migration = Migration(7, somewhere, somewhere, 0.0)
    migration.stage = stage
    with pytest.raises(BrokenRuleError, match=f"migration 7 is {stage.value}"):
        migration.go(step)


def test_an_illegal_transition_tells_node_task_state_event_and_what_led_there():
    """1. the books of a node are falsified: task 0 is absent, its state is there  2. a table takes the
    task away  3. the error names all there is to know."""
    books = Books("aab", Settings(lease_s=1e6))
    books.send("a", chunk(1))
    slot = books.machines["a"].slots[0]
    books.machines["a"].manager._lose = lambda runs: slot.go(Cause.WHOLE)
    books.next_table()
    with pytest.raises(BrokenRuleError) as error:
        books.tell("a")
    text = str(error.value)
    for word in ("a at 1.", "on Grant", "task 0 is serving and cannot whole", "Chunks("):
        assert word in text


@pytest.mark.parametrize("before", [None, Kept(Epoch(1, 1), 1, ("old",))])
def test_what_a_manifest_holds_of_a_task_that_was_restored_meanwhile_never_was(before):
    """1. a manifest is begun that has a new record  2. its node is lost: the task is restored from what
    was durable before  3. the manifest is written  4. the next one lacks the record, so whoever
    restores the task again goes on from what was durable before, too."""
    ledger = Ledger(1, ["n1"])
    ledger.durable = {} if before is None else {0: before}
    ledger.record = held = {0: Kept(Epoch(1, 1), 2, ("new",))}
    ledger.put_back.clear()
    for successor, number in (("n1", 3), ("n2", 6)):
        ledger.record = dict(ledger.record)
        ledger.restore(0, successor, Epoch(1, number))
        assert ledger.record.get(0) == before
        ledger.written(held)
        assert ledger.durable.get(0) == before
