"""What holds whom up: back-pressure along streams, and never around a loop."""

from __future__ import annotations

from meander.protocol.flow import ONE, Flow
from meander.protocol.messages import loop_feeder
from meander.protocol.outbox import Outbox

LIMIT = 4
FLOW = Flow((2, 4), (0, 0, 1))
"""Tasks 0, 1 and 2, 3 are on a common loop; those from 4 on are behind it."""


def full(*targets: int) -> Outbox:
    """Make an outbox with a chunk for each of some tasks."""
    outbox = Outbox(loop_feeder(2), 1)
    for target in targets:
        outbox.offer(target, None, 1, 1, 1)
    return outbox


def test_a_feeder_waits_for_whatever_is_under_way() -> None:
    assert FLOW.holds_up(full(0, 1, 2, 3), "clicks", LIMIT)
    assert ONE.holds_up(full(0, 1, 2, 3), "clicks", LIMIT)


def test_a_loop_never_waits_for_itself() -> None:
    assert not FLOW.holds_up(full(0, 1, 2, 3), loop_feeder(0), LIMIT)
    assert not ONE.holds_up(full(0, 1, 2, 3), loop_feeder(7), LIMIT)


def test_a_loop_waits_for_what_is_behind_it() -> None:
    assert FLOW.holds_up(full(4, 5, 6, 7), loop_feeder(0), LIMIT)
    assert not FLOW.holds_up(full(0, 4, 5, 6), loop_feeder(0), LIMIT)
    assert FLOW.holds_up(full(0, 4, 5, 6), "clicks", LIMIT)


def test_operators_are_told_apart_by_their_tasks() -> None:
    assert [FLOW.operator(task) for task in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [FLOW.component(task) for task in range(6)] == [0, 0, 0, 0, 1, 1]
    assert ONE.component(99) == 0
