"""Two ends of real sockets."""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from runtime_kit import LOOPBACK, WORDS, cut, listening, until

from meander.errors import DeployError
from meander.model import Epoch
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import Bye, Envelope, Fetch, Part, PeerLost
from meander.runtime.wire.credentials import PASS_HEADER
from meander.runtime.wire.outgoing import OutgoingQueue
from meander.runtime.wire.rows import Mark, Rows
from meander.runtime.wire.sockets import shut_accepted
from meander.runtime.wire.transport import Transport


class End:
    """A transport with an inbox."""

    def __init__(self, peer: str, token: str = "t", run: str = "r") -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.transport = Transport(
            self.inbox.put, run=run, peer=peer, credentials=token, incarnation=1, schemas=[WORDS]
        )

    @property
    def address(self) -> str:
        return self.transport.address

    def send(self, to: End, body: Any) -> None:
        envelope = Envelope(self.transport.identity.peer, 1, "b", 0, Epoch(1, 1), body)
        self.transport.post(to.address, envelope)

    def next(self) -> Any:
        return self.inbox.get(timeout=10)


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    a, b = End("a"), End("b")
    yield a, b
    a.transport.close()
    b.transport.close()


def test_control_rows_and_states_arrive_in_order_per_kind(ends: tuple[End, End]) -> None:
    a, b = ends
    batch = pa.record_batch({"word": ["x", "y"]}, schema=WORDS)
    for number in range(1, 30):
        chunk = Chunk("f", 1, 0, number, number, number, Rows(batch, 0, 2, (Mark(number, 2, 0),)))
        a.send(b, Chunks((chunk,)))
        a.send(b, Bye(number))
        a.send(b, Part(1, Epoch(1, 1), number, 10**6, bytes(number), 0))
    found = [b.next().body for _ in range(29 * 3)]
    assert [m.offset for m in found if isinstance(m, Bye)] == list(range(1, 30))
    assert [m.chunks[0].number for m in found if isinstance(m, Chunks)] == list(range(1, 30))
    assert [len(m.data) for m in found if isinstance(m, Part)] == list(range(1, 30))


def test_an_address_of_another_machine_is_refused_in_one_line() -> None:
    with pytest.raises(DeployError, match=r"192\.0\.2\.1 cannot be listened on: `host` is"):
        Transport(lambda _: None, run="run", peer="n1", credentials="token", host="192.0.2.1")


def test_the_end_of_a_peer_is_an_event(ends: tuple[End, End]) -> None:
    a, b = ends
    a.send(b, Bye())
    assert b.next().sender == "a"
    a.transport.close()
    assert b.next() == PeerLost("a", 1)


def test_a_wrong_token_is_refused_before_anything_is_read(
    ends: tuple[End, End], caplog: pytest.LogCaptureFixture
) -> None:
    _, b = ends
    stranger = End("stranger", token="wrong")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            stranger.send(b, Bye())
        until(lambda: b.address in stranger.transport.refusals)
        client = flight.connect(f"grpc://{b.address}")
        for call in (
            lambda: list(client.do_action(flight.Action("stop", b""))),
            lambda: client.do_get(flight.Ticket(b'{"kind": "state"}')).read_all(),
            lambda: list(client.list_flights()),
        ):
            with pytest.raises(flight.FlightUnauthenticatedError):
                call()
        client.close()
    stranger.transport.close()
    assert b.inbox.empty()
    assert "token" in stranger.transport.refusals[b.address]
    assert sum("token" in r.getMessage() for r in caplog.records) == 1


def test_another_run_and_other_versions_are_refused_with_the_reason(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = ends
    other = End("other", run="elsewhere")
    other.send(b, Bye())
    until(lambda: other.transport.refusals)
    assert "this is run r" in other.transport.refusals[b.address]
    other.transport.close()
    from meander.runtime.wire import transport
    from meander.runtime.wire.version import versions

    mine = versions()
    old = End("old")
    calls = iter([{**mine, "pyarrow": "1.0"}])
    monkeypatch.setattr(transport, "versions", lambda: next(calls, mine))
    old.send(b, Bye())
    until(lambda: old.transport.refusals)
    assert "pyarrow 1.0 there" in old.transport.refusals[b.address]
    assert "install the same" in old.transport.refusals[b.address]
    old.transport.close()


def greet(client: Any, command: bytes, options: Any) -> None:
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), WORDS, options)
    writer.done_writing()
    reader.read()
    writer.close()


def test_garbage_on_the_port_does_no_harm(ends: tuple[End, End]) -> None:
    a, b = ends
    host, port = b.address.split(":")
    for junk in (
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(5000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(500),
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(junk)
    options = a.transport.credentials.call()
    client = a.transport.credentials.connect(b.address)
    for command in (b"", b"{}", os.urandom(50), b'{"peer": 1}', b"[" * 50_000):
        with pytest.raises(pa.ArrowException):
            greet(client, command, options)
    greeting = flight.FlightDescriptor.for_command(a.transport.identity.hello())
    writer, _ = client.do_put(greeting, WORDS, options)
    for header in (b"", b"nonsense", os.urandom(100), json.dumps(["Chunks", 1]).encode()):
        writer.write_with_metadata(pa.record_batch({"word": ["x"]}, schema=WORDS), header)
    writer.close()
    for ticket in (b"", os.urandom(20), b'{"kind": "nothing"}'):
        with pytest.raises(pa.ArrowException):
            client.do_get(flight.Ticket(ticket), options).read_all()
    client.close()
    a.send(b, Fetch(1, Epoch(1, 1), 0))
    assert b.next().body == Fetch(1, Epoch(1, 1), 0)
    assert b.transport.malformed == 4


@pytest.mark.parametrize("field", ["run", "peer", "address", "versions"])
def test_what_a_stranger_says_cannot_forge_a_line_of_the_log(
    ends: tuple[End, End], field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor break whoever writes it: half a character is no UTF-8."""
    a, b = ends
    facts = json.loads(a.transport.identity.hello())
    forged = "x\nERROR all is lost \ud800"
    facts[field] = dict.fromkeys(facts["versions"], forged) if field == "versions" else forged
    with (
        a.transport.credentials.connect(b.address) as client,
        caplog.at_level(logging.DEBUG),
        pytest.raises(pa.ArrowException, match="refused"),
    ):
        greet(client, json.dumps(facts).encode(), a.transport.credentials.call())
    assert "refused" in caplog.text
    assert caplog.text.isascii()
    assert not any(line.startswith("ERROR") for line in caplog.messages[0].splitlines())


def test_a_peer_that_cannot_be_reached_costs_nothing_but_its_messages(
    ends: tuple[End, End],
) -> None:
    a, b = ends
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
    for _ in range(5):
        a.transport.post(nobody, Envelope("a", 1, "x", 0, Epoch(1, 1), Bye()))
    a.send(b, Bye(7))
    assert b.next().body == Bye(7)
    until(lambda: a.transport.dropped >= 1)


def test_a_full_queue_drops_and_does_not_wait(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    from meander.runtime.wire import link

    a, b = ends
    monkeypatch.setattr(link, "OutgoingQueue", partial(OutgoingQueue, bytes_max=1_000_000))
    blob = bytes(600_000)
    for _ in range(200):
        a.send(b, Part(1, Epoch(1, 1), 0, 10**6, blob, 0))
    assert a.transport.dropped > 0
    assert isinstance(b.next().body, Part)


def test_only_the_loopback_is_listened_on(ends: tuple[End, End]) -> None:
    assert listening(os.getpid()) <= LOOPBACK
    assert listening(os.getpid())


def test_a_stream_that_ends_is_no_death_of_a_peer_that_lives(ends: tuple[End, End]) -> None:
    """1. a stream of a breaks  2. a is asked, and lives  3. a ends: that is a death, and told once."""
    a, b = ends
    a.send(b, Bye(1))
    assert b.next().body == Bye(1)
    client = a.transport.credentials.connect(b.address)
    greet(client, a.transport.identity.hello(), a.transport.credentials.call())
    client.close()
    cut(b.address)
    until(lambda: not b.transport._presence.streams)
    again(a, b)
    a.transport.close()
    assert b.next() == PeerLost("a", 1)


def again(a: End, b: End) -> None:
    """Send until something comes; nothing else has come before."""
    for _ in range(100):
        a.send(b, Bye(2))
        with suppress(queue.Empty):
            assert b.inbox.get(timeout=0.2).body == Bye(2)
            break
    while not b.inbox.empty():
        assert b.next().body == Bye(2)


class Impostor(flight.FlightServerBase):  # type: ignore[misc]
    """Listens where a process of ours has died, and asks `answer` for a proof."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.shown: list[dict[str, list[str]]] = []
        self._answer = answer
        super().__init__("grpc://127.0.0.1:0", middleware={"all": Notes(self.shown)})

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        writer.write(b"welcome")
        reader.read_all()

    def do_action(self, context: Any, action: Any) -> Any:
        return [self._answer(action.body.to_pybytes())]


class Notes(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Notes what callers show."""

    def __init__(self, shown: list[dict[str, list[str]]]) -> None:
        self._shown = shown

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        self._shown.append(dict(headers))


@pytest.mark.parametrize("passes_on", [False, True])
def test_whoever_takes_the_port_of_the_dead_is_shown_nothing(
    ends: tuple[End, End], passes_on: bool
) -> None:
    """Neither if it makes its proof up, nor if it asks a process of ours for one."""
    a, b = ends

    def answer(nonce: bytes) -> bytes:
        if not passes_on:
            return bytes(64)
        with flight.connect(f"grpc://{b.address}") as client:
            (found,) = client.do_action(flight.Action("challenge", nonce))
            return bytes(found.body.to_pybytes())

    with Impostor(answer) as impostor:
        address = f"127.0.0.1:{impostor.port}"
        a.transport.post(address, Envelope("a", 1, "x", 0, Epoch(1, 1), Bye()))
        until(lambda: address in a.transport.refusals)
        assert "does not know the token" in a.transport.refusals[address]
        a.transport.idle_s = 0.0
        a.transport.keep(set())
        until(lambda: address not in a.transport._links)
    assert impostor.shown
    for headers in impostor.shown:
        assert not [name for name in headers if "meander" in name]
        assert all(values != ["t"] for values in headers.values())


def test_a_pass_is_good_at_one_server_only(ends: tuple[End, End]) -> None:
    _, b = ends
    c = End("c")
    passes = [end.transport.door._passes.wanted for end in (b, c)]
    assert passes[0] != passes[1]
    options = flight.FlightCallOptions(headers=[(PASS_HEADER.encode(), passes[1])])
    with flight.connect(f"grpc://{b.address}") as client:
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.do_action(flight.Action("who", b"{}"), options))
        for nonsense in (b"", b"short", bytes(65)):
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.do_action(flight.Action("challenge", nonsense)))
    c.transport.close()


def test_links_come_and_go_while_others_are_hung_up(ends: tuple[End, End]) -> None:
    """1. somebody looks who is to be hung up on  2. another thread dials meanwhile."""
    a, b = ends

    class Busy(dict[str, Any]):
        """Is dialled from in the middle of being gone through."""

        def _dial(self, found: Iterator[Any]) -> Iterator[Any]:
            yield next(found)
            thread = threading.Thread(target=a.transport.link, args=("127.0.0.1:1",))
            thread.start()
            thread.join(0.3)
            yield from found

        def __iter__(self) -> Iterator[Any]:
            return self._dial(super().__iter__())

        def items(self) -> Any:
            return self._dial(iter(super().items()))

    a.transport.link(b.address)
    a.transport._links = Busy(a.transport._links)
    a.transport.keep({b.address})
    until(lambda: "127.0.0.1:1" in list(dict.keys(a.transport._links)))


def test_a_message_that_cannot_be_written_stops_no_other(
    ends: tuple[End, End], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = ends
    a.send(b, Part(1, Epoch(1, 1), 0, 10**6, "no bytes", 0))  # type: ignore[arg-type]
    a.send(b, Bye(7))
    assert b.next().body == Bye(7)
    assert a.transport.dropped == 1
    assert "cannot be written" in caplog.text


def test_a_peer_that_does_not_read_holds_up_no_other(ends: tuple[End, End]) -> None:
    """Flight's flow control holds whoever writes to it; the others have another thread."""
    a, b = ends
    deaf = Transport(
        lambda _: None, run="r", peer="deaf", credentials="t", incarnation=1, full=lambda: True
    )
    blob = bytes(2**20)
    for number in range(64):
        part = Part(1, Epoch(1, 1), 0, 2**21, blob, 0)
        a.transport.post(deaf.address, Envelope("a", 1, "deaf", 0, Epoch(1, 1), part))
        a.send(b, Bye(number))
    assert [b.next().body.offset for _ in range(64)] == list(range(64))
    number, end = 64, time.monotonic() + 10.0
    while a.transport.writers.started < 2 and time.monotonic() < end:
        a.send(b, Bye(number))  # whoever is held up is replaced when somebody else has a message
        assert b.next().body == Bye(number)
        number += 1
    assert a.transport.writers.started >= 2
    before = threading.active_count()
    for later in range(number, number + 64):
        a.send(b, Bye(later))
        assert b.next().body == Bye(later)
    assert threading.active_count() <= before, "one thread for those who read"
    deaf.close()


def test_a_transport_that_is_closed_leaves_no_thread_that_writes(ends: tuple[End, End]) -> None:
    """1. two are held up by one who does not read, so that somebody looks after the leader  2. all are
    closed: whoever wrote, or looked, ends."""
    a, b = ends
    deaf = Transport(
        lambda _: None, run="r", peer="deaf", credentials="t", incarnation=1, full=lambda: True
    )
    for number in range(64):
        part = Part(1, Epoch(1, 1), 0, 2**21, bytes(2**20), 0)
        a.transport.post(deaf.address, Envelope("a", 1, "deaf", 0, Epoch(1, 1), part))
        a.send(b, Bye(number))
    assert [b.next().body.offset for _ in range(64)] == list(range(64))
    deaf.close()
    a.transport.close()
    b.transport.close()
    end = time.monotonic() + 20.0
    while writing() and time.monotonic() < end:
        time.sleep(0.05)
    assert writing() == []


def test_a_transport_that_is_closed_waits_for_no_stream_of_others(ends: tuple[End, End]) -> None:
    """Whoever has one open may be gone without a word: its end would never come."""
    a, b = ends
    a.send(b, Bye())
    b.next()
    assert shut_accepted(a.transport.server.port) == 0, "nobody has dialled it"
    b.transport.close()
    assert not b.transport._stopper.is_alive()


def writing() -> list[str]:
    """Name the threads that write, or look after those who do, of the ends of this test."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name in ("a writes", "b writes", "deaf writes")]


def test_looking_for_accepted_connections_leaves_no_descriptor_open():
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        assert shut_accepted(1) == 0
    assert len(os.listdir("/dev/fd")) == before
