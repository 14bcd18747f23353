"""What a feeder keeps as columns does what an outbox does chunk by chunk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model import Assignment, Epoch, Run
from meander.protocol.blocks import Ack, Acks, Block, Offer, SeparateRows
from meander.protocol.edges.offered import SLOW_RETRIES, Offered
from meander.protocol.messages import Member
from meander.protocol.outbox import Outbox
from meander.protocol.table import Table

TASKS, WINDOW, RETRY_S = 4, 3, 0.5
TERMS = [Epoch(1, n) for n in range(4)]

task_sets = st.sets(st.integers(0, TASKS - 1), min_size=1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), task_sets),
        st.tuples(
            st.just("ack"), st.sets(st.integers(0, TASKS - 1), min_size=1),
            st.integers(0, 8), st.integers(0, 8), st.sampled_from(TERMS), st.integers(1, 2),
        ),
        st.tuples(st.just("late"), st.floats(0.0, 4.0)),
        st.tuples(st.just("table"), st.integers(0, TASKS - 1), st.sampled_from(TERMS)),
    ),
    max_size=40,
)  # fmt: skip


class Both:
    """The same steps for both; what leaves must be the same."""

    def __init__(self):
        self.blocks, self.lanes = Offered("f", 1, TASKS), Outbox("f", 1)
        self.now, self.offset, self.terms = 0.0, 0, dict.fromkeys(range(TASKS))

    def offer(self, tasks):
        groups = [(task, f"{self.offset}/{task}", self.offset, self.offset, 8) for task in tasks]
        self.offset += 1
        self.blocks.offer(Offer(groups, self.offset - 1))
        for task, *group in groups:
            self.lanes.offer(task, *group)

    def ack(self, tasks, applied, durable, term, incarnation):
        # An owner has applied no more than was offered, and calls durable no more than that.
        told = [
            Ack(task, term, incarnation, min(applied, top), min(durable, applied, top))
            for task in sorted(tasks)
            for top in [int(self.blocks.last[task])]
            if top  # an outbox knows nothing of lanes that do not exist
        ]
        self.blocks.acknowledge(Acks("f", told), self.now)
        for ack in told:
            self.lanes.acknowledge(ack, self.now, self.terms[ack.task])

    def late(self, after):
        self.now += after
        usual_s, theirs = self.blocks.patience_s(RETRY_S), []
        mine = self.blocks.late(self.now, RETRY_S)
        # An outbox always has the same patience, and no end of it.
        for task in sorted(self.lanes.active):
            lane, self.lanes.active = self.lanes.lanes[task], {task}
            tries = lane.tries if lane.sent > lane.applied else 0
            retry_s = min(usual_s * 2**tries, SLOW_RETRIES * RETRY_S) / 2**tries
            theirs += self.lanes.late(self.now, retry_s)
        self.lanes.active = set(self.lanes.lanes)
        found = {(c.task, c.number, c.rows) for block in mine for c in block.chunks()}
        assert found == {(c.task, c.number, c.rows) for c in theirs}

    def table(self, task, term):
        if self.terms[task] is not None and term < self.terms[task]:
            return
        if not self.blocks.last[task]:
            return
        self.terms[task] = term
        runs = (Run(0, TASKS, "a"),)
        assignment = Assignment(TASKS, runs, ("a",), Epoch(1, 9))
        terms = tuple((t, t + 1, e) for t, e in self.terms.items() if e is not None)
        table = Table(assignment, (), terms, {"a": Member(1, "s")}, {"s": 1})
        self.blocks.restored(None, table)
        self.lanes.restored(task, term)

    def leave(self):
        mine = [c for block in self.blocks.due(WINDOW, self.now) for c in block.chunks()]
        theirs = [c for t in sorted(self.lanes.lanes) for c in self.lanes.due(t, WINDOW, self.now)]
        order = lambda chunks: sorted((c.task, c.number, c.rows) for c in chunks)  # noqa: E731
        assert order(mine) == order(theirs)
        for task in range(TASKS):
            numbers = [c.number for c in mine if c.task == task]
            assert numbers == sorted(numbers)

    def compare(self):
        for task, lane in self.lanes.lanes.items():
            numbers = lane.durable, lane.applied, lane.sent, lane.last
            box = self.blocks
            columns = box.durable, box.applied, box.sent, box.last
            assert numbers == tuple(int(column[task]) for column in columns)
        assert self.blocks.idle == self.lanes.idle
        assert self.blocks.safe_offset(99) == self.lanes.safe_offset(99)
        kept = {(c.task, c.number) for b in self.blocks.blocks for c in b.chunks()}
        assert kept >= {(c.task, c.number) for x in self.lanes.lanes.values() for c in x.chunks}
        assert self.blocks.retained == self.lanes.retained
        assert self.blocks.settled == all(x.applied == x.last for x in self.lanes.lanes.values())


@given(steps)
def test_columns_do_what_lanes_do(steps):
    both = Both()
    for name, *arguments in steps:
        getattr(both, name)(*arguments)
        both.leave()
        both.compare()


def test_an_acknowledgement_for_a_task_that_is_not_there_is_no_news():
    box = Offered("f", 1, TASKS)
    box.acknowledge(Acks("f", [Ack(TASKS, TERMS[1], 1, 1, 1)]), 0.0)
    assert box.idle


@pytest.mark.parametrize("tasks", [(0, 1, 3), (2,), (0, 1, 2, 3)])
def test_a_block_is_cut_by_who_owns_its_tasks(tasks):
    runs = (Run(0, 1, "a"), Run(1, 3, "b"), Run(3, 4, "a"))
    assignment = Assignment(TASKS, runs, ("a", "b"), Epoch(1, 1))
    table = Table(assignment, (), (), {"a": Member(1, "s"), "b": Member(1, "s")}, {"s": 1})
    columns = np.zeros((5, len(tasks)), np.int64)
    columns[0], columns[1] = tasks, 1
    block = Block("f", 1, columns, SeparateRows([f"rows of {task}" for task in tasks]))
    found = {
        (node, chunk.task, chunk.rows)
        for node, which in table.owners(block.tasks)
        for chunk in block.pick(which).chunks()
    }
    assert found == {(table.owner(task), task, f"rows of {task}") for task in tasks}
    assert len(list(table.owners(block.tasks))) == len({table.owner(task) for task in tasks})


def test_who_is_behind_is_not_sent_everything_again():
    """1. acknowledgements take longer and longer  2. nothing is sent again, but what is asked  3. they
    take no longer than usual: what is lost is sent again soon."""
    box, now, again = Offered("f", 1, TASKS), 0.0, 0
    for number in range(1, 60):
        box.offer(Offer([(0, "rows", number, number, 8)], number))
        list(box.due(WINDOW, now))
        took_s = min(4.0, 0.1 * number)
        for _ in range(10):
            now += took_s / 10
            box.late(now, RETRY_S)
            again += sum(len(block) for block in box.due(WINDOW, now))
        box.acknowledge(Acks("f", [Ack(0, TERMS[0], 1, number, number)]), now)
    assert again <= 2
    for number in range(60, 90):
        box.offer(Offer([(0, "rows", number, number, 8)], number))
        list(box.due(WINDOW, now))
        box.acknowledge(Acks("f", [Ack(0, TERMS[0], 1, number, number)]), now + 0.01)
    assert box.patience_s(RETRY_S) == RETRY_S


def test_nobody_waits_longer_and_longer_without_end():
    """1. acknowledgements usually take long  2. one is not answered at all  3. it is sent again and
    again, and never later than what is lost at a node that is not behind."""
    box, now = Offered("f", 1, TASKS), 0.0
    for number in range(1, 30):
        box.offer(Offer([(0, "rows", number, number, 8)], number))
        list(box.due(WINDOW, now))
        box.acknowledge(Acks("f", [Ack(0, TERMS[0], 1, number, number)]), now := now + 10.0)
    longest_s = SLOW_RETRIES * RETRY_S
    assert box.patience_s(RETRY_S) == longest_s
    box.offer(Offer([(0, "rows", 30, 30, 8)], 30))
    list(box.due(WINDOW, now))
    for _ in range(8):
        now += longest_s + 0.01
        asked = [*box.late(now, RETRY_S), *box.due(WINDOW, now)]
        assert [list(block.numbers) for block in asked] == [[30]]


def test_whoever_waits_for_durable_asks_in_time_however_slow_nodes_were():
    """1. acknowledgements usually take long  2. all is applied, and the word that it is durable is lost
    3. somebody is asked, no later than where a chunk is lost."""
    box, now = Offered("f", 1, TASKS), 0.0
    for number in range(1, 30):
        box.offer(Offer([(0, "rows", number, number, 8)], number))
        list(box.due(WINDOW, now))
        box.acknowledge(Acks("f", [Ack(0, TERMS[0], 1, number, 0)]), now := now + 10.0)
    assert not box.late(now + 1.0, RETRY_S)
    asked = box.late(now + SLOW_RETRIES * RETRY_S + 0.01, RETRY_S)
    assert [list(block.numbers) for block in asked] == [[1]]


def test_most_lanes_with_chunks_that_wait_are_a_crowd_and_a_few_are_none():
    box = Offered("f", 1, TASKS)
    for number in range(WINDOW + 2):
        tasks = range(TASKS) if number < WINDOW else (0,)
        box.offer(Offer([(task, "rows", number, number, 8) for task in tasks], number))
    list(box.due(WINDOW, 0.0))
    assert not box.crowded
    for number in range(WINDOW + 2, WINDOW + 4):
        box.offer(Offer([(task, "rows", number, number, 8) for task in (1, 2)], number))
    assert box.crowded
    assert box.sendable(WINDOW) == (0, 6)
