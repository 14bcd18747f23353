"""The network of one simulated world: what processes send crosses it as bytes, on streams that may end.

    wires = Wires(timeline, network, random)
    post = wires.open("n1", 1, "h1", process.give, process.full, schemas)     # a `Post`
    process.open(post)
    wires.kill(post)                  # its peers see its streams end, look for it, and hear PeerLost
    wires.reset(post, other)          # a stream breaks though both live: that is no death

What a message is, who was met, what waits for a peer and what the end of a stream means are the rules
of production (`codec`, `presence`, `outgoing`). What is simulated is the way between two sockets
(`testing.network`, `links`), who listens where, and whether a question at an address is answered.
Requests outside the protocol go by the same ways (`requests`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import Final

import pyarrow as pa

from meander.errors import MalformedMessage
from meander.protocol.messages import Envelope, Event, PeerId, PeerLost
from meander.runtime.process.script import Ask, FetchRows
from meander.runtime.wire.codec import BLOB, decode_from
from meander.runtime.wire.outgoing import IDLE_S, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX, RETRY_S
from meander.runtime.wire.presence import Caller, Pulse, Question
from meander.testing.network import Network
from meander.testing.timeline import Timeline
from meander.testing.world.links import SimLink
from meander.testing.world.posts import SimPost
from meander.testing.world.requests import END_S, Requests
from meander.testing.world.scripts import Done
from meander.testing.world.streams import Parcel, SimStream, unpacked

WINDOW_BYTES: Final = 2**20
"""As much may be under way on one stream: written, and not yet read."""
NUMBER: Final = attrgetter("number")
"""Of a stream."""
PATIENCE_S: Final = 0.5
"""So long a process that ends writes what is queued."""


class Wires:
    """All connections of one world."""

    def __init__(self, timeline: Timeline, network: Network, random: Random) -> None:
        """Take over a network: what it carries is delivered here."""
        self.timeline, self.network, self.random = timeline, network, random
        network.deliver = self._arrive
        self.window_bytes = WINDOW_BYTES
        self.queue_bytes_max, self.queue_messages_max = QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX
        """Of links that are dialled from now on."""
        self.idle_s = IDLE_S
        """Whom a process need not keep, it hangs up on after so long."""
        self.posts: dict[str, SimPost] = {}
        """Who listens, by address."""
        self.dead: list[SimPost] = []
        """Who was there: nothing that they were at is cleaned up."""
        self.counts: Counter[str] = Counter()
        self.states_spoilt = 0
        """How many of the next states under way change."""
        self.sent: Callable[[SimPost, Envelope], object] = lambda *_: None
        """Sees every message that a process has queued."""
        self.delivered: Callable[[SimPost, Envelope], object] = lambda *_: None
        """Sees every message that comes to a process, before it does."""
        self._requests = Requests(self)
        self._lost_hosts: set[str] = set()
        self._ports = self._streams = 0

    def open(
        self,
        peer: PeerId,
        incarnation: int,
        host: str,
        deliver: Callable[[Event], None],
        full: Callable[[], bool] = lambda: False,
        schemas: Sequence[pa.Schema] = (),
    ) -> SimPost:
        """Listen, on a port that nobody had before."""
        self._ports += 1
        self._lost_hosts.discard(host)  # it has come back
        identity = Caller(peer, incarnation, f"{host}:{self._ports}")
        post = self.posts[identity.address] = SimPost(self, identity, deliver, full, schemas)
        return post

    # ------------------------------------------------------------------ messages

    def new_stream(self, link: SimLink, target: SimPost, schema: pa.Schema) -> SimStream:
        """Make a stream that its receiver has taken."""
        self._streams += 1
        self.counts["streams"] += 1
        stream = SimStream(link, target, schema, self._streams)
        target.incoming.add(stream)
        return stream

    def _arrive(self, parcel: Parcel) -> None:
        parcel.stream.arrive(parcel)

    def take(self, stream: SimStream, parcel: Parcel) -> None:
        """Read a message, and hand it to its process."""
        post = stream.target
        try:
            rows = unpacked(parcel.rows)
            envelope = decode_from(stream.caller.peer, parcel.header, rows, post.schemas)
        except (MalformedMessage, pa.ArrowException, OSError):
            post.malformed += 1
            self.counts["malformed"] += 1
            return
        self.delivered(post, envelope)
        post.deliver(envelope)

    def corrupted(self, parcel: Parcel) -> Parcel:
        """Change one byte of a state, now and then, or cut a message short: somebody must notice.

        Rows and headers have no checksum: a byte of theirs that changed would be another message.
        """
        chance, rows, header = self.network.corruption, parcel.rows, parcel.header
        state = b""
        if (
            rows is not None
            and (chance or self.states_spoilt)
            and parcel.stream.schema.equals(BLOB)
        ):
            state = unpacked(rows).column(0)[0].as_py()
        if state and self.states_spoilt:
            self.states_spoilt -= 1
            self.counts["states_spoilt"] += 1
        elif not chance or self.random.random() >= chance:
            return parcel
        self.network.corrupted += 1
        if rows is None or not state:
            cut = header[: self.random.randrange(len(header))]
            return Parcel.of(parcel.stream, cut, rows)
        at = rows.rfind(state) + self.random.randrange(len(state))
        changed = rows[at] ^ (1 + self.random.randrange(255))
        return parcel._replace(rows=rows[:at] + bytes((changed,)) + rows[at + 1 :])

    # ------------------------------------------------------------------ who is there

    def at(self, address: str) -> SimPost | None:
        """Give who listens at an address."""
        return self.posts.get(address)

    def hidden(self, address: str) -> bool:
        """Whether nothing at all answers for an address: its host is lost."""
        return address.partition(":")[0] in self._lost_hosts

    def meet(self, one: SimPost, other: SimPost) -> bool:
        """Whether two processes reach one another."""
        reaches = self.network.reaches
        return reaches(one.peer, other.peer) and reaches(other.peer, one.peer)

    def round_trip_s(self, one: PeerId, other: PeerId) -> float:
        """Draw how long a question and its answer take."""
        return self.network.trip_s(one, other) + self.network.trip_s(other, one)

    def stream_ended(self, stream: SimStream) -> None:
        """The reader of a stream has seen its end: perhaps its peer is dead."""
        post = stream.target
        post.incoming.discard(stream)
        question = post.presence.ended(stream.caller)
        if question is not None:
            self._ask_pulse(post, question)

    def _ask_pulse(self, post: SimPost, question: Question) -> None:
        trip_s = self.round_trip_s(post.peer, question.whom.peer)
        self.timeline.after(question.wait_s + trip_s, self._heard_pulse, (post, question))

    def _heard_pulse(self, pair: tuple[SimPost, Question]) -> None:
        post, question = pair
        if post.gone:
            return
        if post.paused:  # it looks when it goes on
            self.timeline.after(RETRY_S, self._heard_pulse, pair)
            return
        found = self._pulse(post, question)
        self.counts[f"pulse_{found.value}"] += 1
        told = post.presence.heard(question, found)
        if type(told) is Question:
            self._ask_pulse(post, told)
        elif type(told) is PeerLost:
            self.counts["peers_lost"] += 1
            post.deliver(told)

    def _pulse(self, post: SimPost, question: Question) -> Pulse:
        """Find what a look at an address finds."""
        whom, reaches = question.whom, self.network.reaches
        there = self.posts.get(whom.address)
        if self.hidden(whom.address) or (there is not None and there.paused):
            return Pulse.UNKNOWN
        if not (reaches(post.peer, whom.peer) and reaches(whom.peer, post.peer)):
            return Pulse.UNKNOWN
        if there is None or there.identity != whom:
            return Pulse.DEAD
        return Pulse.ENDING if there.leaving else Pulse.ALIVE

    # ------------------------------------------------------------------ what may befall them

    def kill(self, post: SimPost) -> None:
        """End a process without a word: its kernel closes its connections."""
        if post.gone:
            return
        post.die()
        del self.posts[post.address]
        self.dead.append(post)
        hidden = self.hidden(post.address)
        for link in post.links.values():
            link.queue.cut()
            if not hidden:
                link.hang_up(END_S * (0.5 + self.random.random()))
        if not hidden:
            for stream in sorted(post.incoming, key=NUMBER):
                stream.cut_off()
        self._requests.ended(post, told=not hidden)

    def lose_host(self, host: str) -> list[SimPost]:
        """Lose a host with all that is on it: nobody sees an end, and nobody answers for it."""
        self._lost_hosts.add(host)
        lost = [post for post in self.posts.values() if post.host == host]
        for post in lost:
            self.kill(post)
        return lost

    def find_hosts(self) -> None:
        """Let all hosts that were lost be there again, with nothing on them: they refuse."""
        self._lost_hosts.clear()
        self._requests.found()

    def close(self, post: SimPost) -> None:
        """End a process in order: it writes what is queued for a moment, then hangs up."""
        if post.gone or post.leaving:
            return
        post.leaving = True
        for link in list(post.links.values()):
            link.leave()
        self._closing((post, self.timeline.now + PATIENCE_S))

    def _closing(self, pair: tuple[SimPost, float]) -> None:
        post, end = pair
        if post.links and self.timeline.now < end and not post.gone:
            self.timeline.after(0.01, self._closing, pair)
        else:
            self.kill(post)

    def reset(self, sender: SimPost, receiver: SimPost) -> int:
        """Break the streams from one to another, who both live; what is under way is lost."""
        streams = self._between(sender, receiver)
        for stream in streams:
            stream.tear(self.network.trip_s(sender.peer, receiver.peer))
        return len(streams)

    def hold(self, sender: SimPost, receiver: SimPost, seconds: float) -> int:
        """Break the streams from one to another for their sender alone.

        What is under way arrives after some seconds, beside what the sender writes meanwhile into
        others: copies from an old connection.
        """
        streams = self._between(sender, receiver)
        for stream in streams:
            stream.held_until = self.timeline.now + seconds
            stream.close(seconds)
        return len(streams)

    def _between(self, sender: SimPost, receiver: SimPost) -> list[SimStream]:
        link = sender.links.get(receiver.address)
        streams = [] if link is None else list(link.streams.values())
        return [stream for stream in streams if not stream.broken]

    def pause(self, post: SimPost) -> None:
        """Stop a process: it neither reads nor writes, nor answers."""
        post.paused = True

    def go_on(self, post: SimPost) -> None:
        """Let a process go on that was paused."""
        post.paused = False
        for stream in sorted(post.incoming, key=NUMBER):
            stream.read()
        for link in list(post.links.values()):
            link.pump()

    # ------------------------------------------------------------------ requests, and what is open

    def ask(self, post: SimPost, step: Ask | FetchRows, done: Done) -> None:
        """Carry out a request of a process: `done(answer, None)` or `done(None, error)`, later."""
        self._requests.ask(post, step, done)

    def waiting(self) -> dict[tuple[PeerId, str], int]:
        """Tell how many messages wait, by sender and address, where any do."""
        found = {
            (post.peer, link.address): len(link.queue)
            for post in self.posts.values()
            for link in post.links.values()
        }
        return {way: count for way, count in found.items() if count}

    def open_streams(self) -> dict[PeerId, int]:
        """Tell how many streams each process takes for open."""
        return {post.peer: post.presence.streams for post in self.posts.values()}
