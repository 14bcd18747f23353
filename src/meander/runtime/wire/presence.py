"""Who has dialled us, and who of them is still there. No socket, no thread, no clock.

The death of a process that had opened streams to us is an event, `PeerLost`. Its kernel closes its
sockets, so its last stream ends within milliseconds; but streams of the living end, too: because they
have nothing more to send, or because a connection broke. Only a death is a loss, and without
checkpoints a false alarm would cost the state of a healthy node. So whoever was at the other end is
looked for at its address (`pulse`):

    streams: 2 ──ended──► 1 ──ended──► a Question ──heard──► alive, unknown: nothing
                                            ▲          ├───► ending, as it says itself: PeerLost
                                            │          └───► dead: look again, LOOKS times in all
                                            └──── PAUSE_S ◄──────┘ └► PeerLost

Whoever carries that out (`Transport`, or a simulator) asks one question after the other, and tells what
it has found.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, NamedTuple

from meander.errors import StaleMessage
from meander.protocol.messages import PeerId, PeerLost

LOOKS: Final = 3
"""Nobody is dead who was not found so often: a port may refuse in the moment of a reset."""
PAUSE_S: Final = 0.05
"""Between two of them."""
PEERS_MAX: Final = 20_000
"""Whose addresses are remembered; the simulator's largest cluster has half as many."""


class Pulse(Enum):
    """What was found at an address."""

    ALIVE = "alive"
    """It answers in its name."""
    ENDING = "ending"
    """The same, and says that it hangs up for good: it need not be looked for again."""
    DEAD = "dead"
    """Nobody listens there, or somebody else."""
    UNKNOWN = "unknown"
    """No answer (the network is cut, the host is gone or busy): nobody can know. Its lease decides."""


class Caller(NamedTuple):
    """Who opens a stream, as its beginning tells."""

    peer: PeerId
    incarnation: int
    """0 for whoever is given one by the master."""
    address: str
    """Where it listens."""


class Question(NamedTuple):
    """Whether a process lives: to be asked at its address."""

    whom: Caller
    wait_s: float = 0.0
    """How long to wait before."""
    number: int = 1
    """Of the look."""


class Presence:
    """What one process knows of those who dial it.

    >>> presence = Presence()
    >>> caller = Caller("n1", 1, "h1:7")
    >>> presence.opened(caller); question = presence.ended(caller)
    >>> presence.heard(question, Pulse.ALIVE) is None
    True
    """

    def __init__(self, peers_max: int = PEERS_MAX) -> None:
        self._peers_max = peers_max
        self._met: dict[PeerId, Caller] = {}
        """Whoever dialled us, the newest of each id."""
        self._streams: Counter[tuple[PeerId, int]] = Counter()
        """How many streams each peer, under each incarnation, has open to us."""

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._streams.total()

    def address(self, peer: PeerId) -> str | None:
        """Tell where whoever dialled us as a peer listens."""
        met = self._met.get(peer)
        return None if met is None else met.address

    def opened(self, caller: Caller) -> None:
        """Take a stream, and remember where its caller listens.

        Raises:
            StaleMessage: if the peer was replaced: one that was does not come back.
        """
        peer, incarnation, _ = caller
        met = self._met.get(peer)
        if met is not None and incarnation < met.incarnation:
            raise StaleMessage(
                f"stale: {peer} incarnation {incarnation} was replaced by {met.incarnation}"
            )
        self._met[peer] = caller
        while (
            len(self._met) > self._peers_max
        ):  # the oldest go: sinks come under new names for ever
            del self._met[next(iter(self._met))]
        self._streams[peer, incarnation] += 1

    def ended(self, caller: Caller) -> Question | None:
        """Let a stream go; if it was its caller's last, ask whether that still lives."""
        key = caller.peer, caller.incarnation
        self._streams[key] -= 1
        if self._streams[key] > 0:
            return None
        del self._streams[key]
        return Question(caller)

    def heard(self, question: Question, found: Pulse) -> PeerLost | Question | None:
        """Take what was found: its peer is lost, or must be looked for again, or nothing follows."""
        if found is Pulse.ENDING:
            return PeerLost(question.whom.peer, question.whom.incarnation)
        if found is not Pulse.DEAD:
            return None
        if question.number < LOOKS:
            return question._replace(wait_s=PAUSE_S, number=question.number + 1)
        return PeerLost(question.whom.peer, question.whom.incarnation)
