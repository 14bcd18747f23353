"""Is it alive? Asked at the address that it listens at."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from meander.runtime.wire import pulse
from meander.runtime.wire.authority import Guard
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.presence import Caller, Pulse
from meander.runtime.wire.transport import Transport

KEYS = Credentials("t")


@pytest.fixture
def there() -> Iterator[Transport]:
    transport = Transport(lambda _: None, run="r", peer="n1", credentials=KEYS, incarnation=2)
    yield transport
    transport.close()


def look(address: str, peer: str = "n1", incarnation: int = 2) -> Pulse:
    return pulse.look(KEYS, Caller(peer, incarnation, address))


def test_who_answers_in_its_name_lives(there: Transport) -> None:
    assert look(there.address) is Pulse.ALIVE


@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_of_the_environment_is_not_for_peers(
    there: Transport, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """Through it nobody was reached: a peer that lives was told dead."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    if not tls:
        assert look(there.address) is Pulse.ALIVE
        return
    guard = Guard("r", "127.0.0.1", tls=True, insecure=False)
    keys = guard.issue("node", "n1")
    secured = Transport(lambda _: None, run="r", peer="n1", credentials=keys, incarnation=2)
    try:
        assert pulse.look(keys, Caller("n1", 2, secured.address)) is Pulse.ALIVE
    finally:
        secured.close()


def test_who_is_about_to_end_says_so(there: Transport) -> None:
    there._leaving = True  # as `close` begins; it takes a moment
    assert look(there.address) is Pulse.ENDING
    assert look(there.address, incarnation=1) is Pulse.DEAD


@pytest.mark.parametrize(("peer", "incarnation"), [("n2", 2), ("n1", 1)])
def test_somebody_else_at_its_address_means_that_it_is_dead(
    there: Transport, peer: str, incarnation: int
) -> None:
    assert look(there.address, peer, incarnation) is Pulse.DEAD


def test_where_nobody_listens_it_is_dead() -> None:
    with socket.socket() as held:  # bound, and not listening: nobody else gets the port meanwhile
        held.bind(("127.0.0.1", 0))
        assert look(f"127.0.0.1:{held.getsockname()[1]}") is Pulse.DEAD


def test_a_port_that_refuses_is_not_dialled_with_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """All peers of a node that ends look three times each; rows wait meanwhile."""
    monkeypatch.setattr(Credentials, "connect", lambda *_, **__: pytest.fail("it was dialled"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert look(f"127.0.0.1:{held.getsockname()[1]}") is Pulse.DEAD


def test_who_does_not_answer_is_not_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "LOOK_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert look(f"127.0.0.1:{silent.getsockname()[1]}") is Pulse.UNKNOWN
