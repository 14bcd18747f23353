"""Who is let in. Everything here happens to a live deployment, which counts on, unimpressed."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from runtime_kit import WORDS, Stream, children, counted, until

from meander.errors import InputError
from meander.model import Epoch
from meander.operators import WordCount
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.master.membership import Status
from meander.protocol.messages import Envelope
from meander.runtime.clients.query import PEERS
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.wire.auth import Refusals
from meander.runtime.wire.authority import Authority, Guard
from meander.runtime.wire.codec import encode
from meander.runtime.wire.credentials import PASS_HEADER, Credentials
from meander.runtime.wire.rows import Mark, Rows
from meander.runtime.wire.transport import Identity


class Live:
    """A deployment under TLS, with rows in it."""

    def __init__(self, op: ElasticOperator) -> None:
        self.op, self.stream = op, Stream(7)
        self.feeder = op.feeder("f")
        self.feed()

    def feed(self) -> None:
        for batch in self.stream.batches(10):
            self.feeder.feed(batch)
        self.feeder.flush()

    def ports(self) -> dict[str, str]:
        """Give every address of the deployment: master, nodes, state server, feeder."""

        def find(master: Any) -> dict[str, str]:
            peers = master.membership.peers.values()
            return {p.id: p.address for p in peers if p.status is not Status.GONE}

        return {"master": self.op.address, **self.op.driver.process.call(find).result(10)}

    @property
    def node(self) -> str:
        """Name the node that owns the first task."""
        return str(self.op.driver.process.call(lambda m: m.ledger.owner[0]).result(10))

    def check(self) -> None:
        """No process has died, and every count is right."""
        self.feed()
        assert counted(self.op) == self.stream.counts
        assert [e for e in self.op.driver.exits if not e.clean] == []
        assert self.op.driver.failure is None

    def metrics(self, node: str) -> dict[str, Any]:
        told = self.op.driver.reader().ask(self.ports()[node], "metrics")
        assert told is not None
        return dict(told)


@pytest.fixture(scope="module")
def live(launcher: WarmLauncher) -> Iterator[Live]:
    with deploy_local(WordCount(), tasks=8, nodes=2, launcher=launcher, tls=True) as op:
        yield Live(op)


def dial(address: str, credentials: Credentials, identity: Identity) -> Any:
    """Open a stream as a peer would, and wait for the welcome."""
    client = credentials.connect(address)
    descriptor = flight.FlightDescriptor.for_command(identity.hello())
    writer, reader = client.do_put(descriptor, WORDS, credentials.call(10.0))
    if reader.read() is None:
        writer.close()
    return client, writer


def rows_of(sender: str, incarnation: int, to: str, to_inc: int, number: int, epoch: Epoch) -> Any:
    """Make a message of five words for task 0."""
    rows = Rows(pa.record_batch({"word": ["word1"] * 5}, schema=WORDS), 0, 5, (Mark(0, 5, 0),))
    chunk = Chunk(sender, incarnation, 0, number, 0, 0, rows, 100)
    return Envelope(sender, incarnation, to, to_inc, epoch, Chunks((chunk,)))


def bare(address: str, mine: Credentials) -> Any:
    """Make a client with a certificate of ours that shows nothing else."""
    return flight.connect(
        f"grpc+tls://{address}",
        tls_root_certs=mine.authority.encode(),
        cert_chain=mine.certificate.encode(),
        private_key=mine.key.encode(),
        override_hostname=mine.server_name,
    )


def asked(address: str, credentials: Credentials) -> Any:
    with credentials.connect(address) as client:
        return list(client.do_action(flight.Action("metrics", b"{}"), credentials.call(5.0)))


def test_tls_is_on_at_every_port_and_rescaling_works(live: Live) -> None:
    live.op.rescale(3).wait()
    live.op.rescale(2).wait()
    ports = live.ports()
    assert {"master", "server@127.0.0.1", "f", live.node} <= set(ports)
    for address in ports.values():
        host, port = address.split(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port))) as raw,
            context.wrap_socket(raw) as connection,
        ):
            assert connection.version() in ("TLSv1.2", "TLSv1.3")
    live.check()


def test_a_plain_client_and_one_without_a_certificate_are_cut_off(live: Live) -> None:
    token = live.op.driver.credentials.token
    for address in live.ports().values():
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=5.0) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(100) in (b"", b"\x15\x03\x01\x00\x02\x02\x16")
        with pytest.raises(flight.FlightUnavailableError):
            asked(address, Credentials(token))
        mine = live.op.driver.credentials
        nobody = flight.connect(
            f"grpc+tls://{address}",
            tls_root_certs=mine.authority.encode(),
            override_hostname=mine.server_name,
        )
        with pytest.raises(flight.FlightUnavailableError):
            list(nobody.do_action(flight.Action("metrics", b""), mine.call(5.0)))
        nobody.close()
    live.check()


def test_an_expired_certificate_and_another_authoritys_are_refused(live: Live) -> None:
    op = live.op
    authority = op.driver.guard.authority
    assert authority is not None
    past = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    expired = authority.issue("master", "master", ends=past)
    stranger = Authority(op.driver.run, op.driver.credentials.token).issue("master", "master")
    for address in live.ports().values():
        for credentials in (expired, stranger):
            with pytest.raises(flight.FlightUnavailableError):
                asked(address, credentials)
    live.check()


def test_a_wrong_token_is_refused_and_logged_once(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    """By the caller, who finds that the other side has another; or by the door, if it calls anyway."""
    mine = live.op.driver.credentials
    wrong = Credentials("wrong", mine.server_name, mine.authority, mine.certificate, mine.key)
    made_up = flight.FlightCallOptions(headers=[(PASS_HEADER.encode(), b"wrong")])
    with caplog.at_level(logging.WARNING):
        for address in live.ports().values():
            with pytest.raises(flight.FlightUnauthenticatedError, match="does not know the token"):
                asked(address, wrong)
            for _ in range(3):
                with (
                    bare(address, mine) as client,
                    pytest.raises(flight.FlightUnauthenticatedError),
                ):
                    list(client.do_action(flight.Action("metrics", b"{}"), made_up))
    lines = [r.getMessage() for r in caplog.records if "token" in r.getMessage()]
    assert len(lines) == 2, "once by the master and once by the feeder, who live in this process"
    assert all("127.0.0.1" in line and "wrong" in line for line in lines)
    assert not any(mine.token in line for line in lines)
    live.check()


def test_a_certificate_stands_for_no_other_name(live: Live) -> None:
    """A feeder that calls itself the master is not heard, though its token and run are right."""
    op = live.op
    credentials = op.driver.issue("f2")
    identity = Identity(op.driver.run, "master", 1, "127.0.0.1:1")
    with pytest.raises(flight.FlightUnauthorizedError, match="does not stand for 'master'"):
        dial(live.ports()[live.node], credentials, identity)
    client, writer = dial(
        live.ports()[live.node], credentials, Identity(op.driver.run, "f2/1", 0, "127.0.0.1:1")
    )
    writer.close()
    client.close()
    live.check()


@pytest.mark.parametrize(
    "name", ["master", "loop/3", "n1", "x1-2", "server@127.0.0.1", "@store", ""]
)
def test_a_feeder_cannot_be_called_like_a_process_of_the_deployment(live: Live, name: str) -> None:
    """Neither asked for politely, nor with a certificate that somebody has signed all the same."""
    with pytest.raises(InputError, match="cannot be called"):
        live.op.feeder(name)
    assert live.op.driver.guard.authority is not None
    identity = Identity(live.op.driver.run, name, 1, "127.0.0.1:1")
    with pytest.raises(flight.FlightUnauthorizedError, match="does not stand for"):
        dial(
            live.ports()[live.node], live.op.driver.guard.authority.issue("feeder", name), identity
        )


def test_orders_are_taken_from_the_master_alone(live: Live) -> None:
    node = live.ports()[live.node]
    feeder = live.op.driver.issue("f2")
    with feeder.connect(node) as client, pytest.raises(flight.FlightUnauthorizedError):
        list(client.do_action(flight.Action("stop", b"{}"), feeder.call(5.0)))
    assert asked(node, feeder), "a question is answered"
    live.check()


def test_who_does_not_write_cannot_use_up_the_room_that_is_made(live: Live) -> None:
    """Every such question is an order to the one that asks: to fail, so that a node gets its slot."""
    driver = live.op.driver
    made: list[object] = []
    assert driver.transport is not None
    driver.transport.actions["room"] = made.append
    writer, stranger = driver.issue(PEERS), driver.issue("f2")
    with stranger.connect(driver.address) as client, pytest.raises(flight.FlightUnauthorizedError):
        list(client.do_action(flight.Action("room", b"{}"), stranger.call(5.0)))
    with writer.connect(driver.address) as client:
        list(client.do_action(flight.Action("room", b"{}"), writer.call(5.0)))
    assert len(made) == 1


def test_a_replayed_message_counts_once(live: Live) -> None:
    """Rows that were sent before, bit by bit, by whoever has all the right papers."""
    op, node = live.op, live.node
    incarnation = live.feeder.machine.incarnation
    number = int(live.feeder.machine.outbox.applied[0])
    assert number > 0
    wire = encode(rows_of("f", incarnation, node, 0, number, op.driver.process.machine.epoch))
    before = live.metrics(node)
    client, writer = dial(
        live.ports()[node],
        op.driver.issue("f"),
        Identity(op.driver.run, "f", incarnation, "127.0.0.1:1"),
    )
    for _ in range(20):
        writer.write_with_metadata(wire.batch, wire.header)
    writer.close()  # returns when the node has taken the stream to its end
    client.close()
    after = live.metrics(node)
    assert after["rows"] == before["rows"]
    assert after["malformed"] == before["malformed"], "it was read, and known"
    live.check()


def test_a_stale_incarnation_is_refused(live: Live) -> None:
    """A predecessor that comes back is turned away at the stream, and at the machine."""
    op, node, ports = live.op, live.node, live.ports()
    credentials = op.driver.guard.issue("node", "n9")
    newest, late = (Identity(op.driver.run, "n9", i, "127.0.0.1:1") for i in (7, 6))
    client, writer = dial(ports[node], credentials, newest)
    with pytest.raises(flight.FlightServerError, match="incarnation 6 was replaced by 7"):
        dial(ports[node], credentials, late)
    before = live.metrics(node)["stale"]
    wire = encode(rows_of("n9", 6, node, 99, 1, Epoch(op.driver.generation, 1)))
    writer.write_with_metadata(wire.batch, wire.header)
    until(lambda: live.metrics(node)["stale"] > before)
    writer.close()
    client.close()
    live.check()


def test_no_secret_shows_in_processes_files_or_texts(live: Live) -> None:
    op = live.op
    spec = op.driver.spec("node", "n5", 1)
    secrets = [
        op.driver.credentials.token,
        *(c.key for c in (op.driver.credentials, spec.credentials)),
    ]
    shown = repr(spec) + repr(op.driver.credentials) + repr(op.status())
    for pid in children(os.getpid()):
        shown += Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        shown += Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    for secret in secrets:
        assert secret
        assert secret not in shown
    assert len({c.key for c in (op.driver.credentials, spec.credentials)}) == 2


def test_what_is_plain_beyond_loopback_must_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert Guard("r", "10.0.0.7").issue("node", "n1").secure
    assert not Guard("r", "127.0.0.1").issue("node", "n1").secure
    assert Guard("r", "127.0.0.1", tls=True).issue("node", "n1").secure
    with pytest.raises(InputError, match="insecure"):
        Guard("r", "10.0.0.7", tls=False)
    with pytest.raises(InputError, match="contradict"):
        Guard("r", "10.0.0.7", tls=True, insecure=True)
    guard = Guard("r", "10.0.0.7", insecure=True)
    assert not guard.issue("node", "n1").secure
    with caplog.at_level(logging.WARNING):
        guard.watch()
    assert "without TLS" in caplog.text
    assert "token" in caplog.text


def test_refusals_tell_peers_apart_up_to_a_limit() -> None:
    refusals = Refusals("n1")
    said = sum(refusals.due(f"10.0.{i // 256}.{i % 256}", 0.0) is not None for i in range(5000))
    assert said == 257
    assert refusals.count == 5000


def test_credentials_travel_whole() -> None:
    guard = Guard("r", "127.0.0.1", tls=True)
    credentials = guard.issue("feeder", "a name/with ümlauts")
    assert Credentials.parse(credentials.json()) == credentials
    with pytest.raises(InputError, match="credentials"):
        Credentials.parse(json.dumps({"what": 1}))
