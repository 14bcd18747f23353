"""Who has dialled us, and what the end of a stream means."""

from __future__ import annotations

import pytest

from meander.errors import StaleMessage
from meander.protocol.messages import PeerLost
from meander.runtime.wire.presence import LOOKS, PAUSE_S, Caller, Presence, Pulse, Question

N1 = Caller("n1", 1, "h1:1")
N1_NEXT = Caller("n1", 2, "h1:2")


def asked(presence: Presence, caller: Caller) -> Question:
    question = presence.ended(caller)
    assert question is not None
    return question


def test_only_the_last_stream_of_a_process_raises_a_question() -> None:
    presence = Presence()
    for caller in (N1, N1, N1_NEXT):
        presence.opened(caller)
    assert presence.streams == 3
    assert presence.ended(N1) is None
    assert asked(presence, N1) == Question(N1)
    assert asked(presence, N1_NEXT) == Question(N1_NEXT)
    assert presence.streams == 0


@pytest.mark.parametrize("found", [Pulse.ALIVE, Pulse.UNKNOWN])
def test_who_lives_or_cannot_be_reached_is_not_lost(found: Pulse) -> None:
    presence = Presence()
    presence.opened(N1)
    question = asked(presence, N1)
    again = presence.heard(question, Pulse.DEAD)
    assert isinstance(again, Question)
    assert presence.heard(again, found) is None
    assert presence.heard(question, found) is None


def test_who_is_dead_is_looked_for_a_few_times_and_then_lost() -> None:
    presence = Presence()
    presence.opened(N1)
    told: object = asked(presence, N1)
    waits = []
    while isinstance(told, Question):
        assert told.whom == N1
        waits.append(told.wait_s)
        told = presence.heard(told, Pulse.DEAD)
    assert told == PeerLost("n1", 1)
    assert waits == [0.0] + [PAUSE_S] * (LOOKS - 1)


def test_who_says_that_it_ends_is_lost_at_once() -> None:
    presence = Presence()
    presence.opened(N1)
    assert presence.heard(asked(presence, N1), Pulse.ENDING) == PeerLost("n1", 1)


def test_the_newest_of_a_name_is_found_and_the_one_before_does_not_come_back() -> None:
    presence = Presence()
    assert presence.address("n1") is None
    presence.opened(N1)
    presence.opened(N1_NEXT)
    assert presence.address("n1") == "h1:2"
    with pytest.raises(StaleMessage, match="n1 incarnation 1 was replaced by 2"):
        presence.opened(N1)
    assert presence.address("n1") == "h1:2"
    assert presence.streams == 2  # what was refused is not counted
    presence.ended(N1_NEXT)
    with pytest.raises(StaleMessage):
        presence.opened(N1)


def test_so_many_are_remembered_and_no_more() -> None:
    presence = Presence(peers_max=2)
    for number in range(4):
        presence.opened(Caller(f"sink{number}", 0, f"h:{number}"))
    assert [presence.address(f"sink{n}") for n in range(4)] == [None, None, "h:2", "h:3"]
    assert asked(presence, Caller("sink0", 0, "h:0")).whom.address == "h:0"
