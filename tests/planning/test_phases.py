"""Phase schedules: every promise is checked by `check_phases`, which is itself checked here."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import InputError
from meander.model import Assignment, Move, Phase, Round, Transfer
from meander.planning.exact.phases import check_phases, makespan, order_of_moves, phases

NODES = "abcdefg"
SIZES = st.one_of(st.integers(0, 9), st.integers(2**50, 2**57))


@st.composite
def some_moves(draw: st.DrawFn) -> list[Move]:
    pairs = st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda p: p[0] != p[1])
    drawn = draw(st.lists(st.tuples(pairs, SIZES), max_size=25))
    return [Move(task, a, b, size) for task, ((a, b), size) in enumerate(drawn)]


HOSTS = st.fixed_dictionaries({node: st.sampled_from(["h1", "h2", "h3"]) for node in NODES})


def as_round(moves: list[Move]) -> Round:
    return Round(tuple(moves), Assignment.from_intervals({"a": (0, max(1, len(moves)))}))


@given(some_moves())
def test_the_schedule_is_as_short_as_the_busiest_link(moves: list[Move]) -> None:
    schedule = phases(moves)
    check_phases(schedule, moves)
    assert sum(phase.size for phase in schedule) == makespan(moves)


@given(some_moves(), HOSTS)
def test_nodes_of_one_host_share_its_link(moves: list[Move], hosts: dict[str, str]) -> None:
    check_phases(phases(moves, hosts), moves, hosts)


@given(some_moves())
def test_every_byte_of_every_task_is_sent_once_and_in_order(moves: list[Move]) -> None:
    schedule = phases(moves)
    pieces = order_of_moves(as_round(moves), schedule)
    sent: dict[int, int] = defaultdict(int)
    for piece in pieces:
        assert piece.offset == sent[piece.task]
        sent[piece.task] += piece.size
    assert sent == {move.task: move.size for move in moves}
    in_phase: dict[tuple[int | None, str], int] = defaultdict(int)
    for piece in pieces:
        in_phase[piece.phase, piece.source] += piece.size
    for k, phase in enumerate(schedule):
        assert all(in_phase[k, t.source] == t.size == phase.size for t in phase.transfers)
    assert all(p.size == 0 for p in pieces if p.phase is None)


def test_no_moves_need_no_phases() -> None:
    assert phases([]) == ()
    assert makespan([]) == 0
    assert phases([Move(3, "a", "b", 0)]) == ()


def test_a_move_within_a_host_uses_no_link() -> None:
    moves = [Move(0, "a", "b", 5), Move(1, "a", "c", 2)]
    hosts = {"a": "h1", "b": "h1", "c": "h2"}
    assert phases(moves, hosts) == (Phase(2, (Transfer("a", "c", 2),)),)
    pieces = order_of_moves(as_round(moves), phases(moves, hosts))
    assert [(p.phase, p.task) for p in pieces] == [(None, 0), (0, 1)]


def test_a_node_without_a_host_is_named() -> None:
    with pytest.raises(InputError, match="where node b is"):
        phases([Move(0, "a", "b", 1)], {"a": "h1"})


def test_sending_to_everyone_in_a_ring_needs_no_waiting() -> None:
    """All of 8 nodes send 10 to every other: 7 phases in which every link is busy."""
    nodes = [f"n{i}" for i in range(8)]
    moves = [
        Move(i, a, b, 10) for i, (a, b) in enumerate((a, b) for a in nodes for b in nodes if a != b)
    ]
    schedule = phases(moves)
    check_phases(schedule, moves)
    assert makespan(moves) == 70
    assert all(len(phase.transfers) == 8 for phase in schedule)


GOOD = [Move(0, "a", "c", 4), Move(1, "b", "c", 3)]


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ([Phase(4, (Transfer("a", "c", 4), Transfer("b", "c", 4)))], "receives from two"),
        ([Phase(4, (Transfer("a", "c", 4),))], "add up"),
        ([Phase(4, (Transfer("a", "c", 3),))], "lasts 3"),
        ([Phase(7, ())], "idle"),
        ([Phase(0, (Transfer("a", "c", 0),))], "no time"),
        ([Phase(4, (Transfer("a", "c", 4), Transfer("a", "d", 4)))], "sends to two"),
    ],
)
def test_the_check_finds_what_is_wrong(schedule: list[Phase], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_phases(schedule, GOOD)


def test_the_check_finds_a_schedule_that_is_too_long() -> None:
    moves = [Move(0, "a", "c", 4), Move(1, "b", "d", 4)]
    one_by_one = [Phase(4, (Transfer("a", "c", 4),)), Phase(4, (Transfer("b", "d", 4),))]
    with pytest.raises(AssertionError, match="takes 8, the busiest link only 4"):
        check_phases(one_by_one, moves)


def test_phases_of_another_round_are_refused() -> None:
    short, long = [Move(0, "a", "b", 4)], [Move(0, "a", "b", 9)]
    with pytest.raises(InputError, match="leave bytes"):
        order_of_moves(as_round(long), phases(short))
    with pytest.raises(InputError, match="send more"):
        order_of_moves(as_round(short), phases(long))
