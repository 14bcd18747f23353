"""Is it alive? Asked at the address that it listens at."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from meander.runtime.wire import pulse
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.presence import Caller, Pulse
from meander.runtime.wire.transport import Transport

KEYS = Credentials("t")


@pytest.fixture
def there() -> Iterator[str]:
    transport = Transport(lambda _: None, run="r", peer="n1", credentials=KEYS, incarnation=2)
    yield transport.address
    transport.close()


def look(address: str, peer: str = "n1", incarnation: int = 2) -> Pulse:
    return pulse.look(KEYS, Caller(peer, incarnation, address))


def test_who_answers_in_its_name_lives(there: str) -> None:
    assert look(there) is Pulse.ALIVE


@pytest.mark.parametrize(("peer", "incarnation"), [("n2", 2), ("n1", 1)])
def test_somebody_else_at_its_address_means_that_it_is_dead(
    there: str, peer: str, incarnation: int
) -> None:
    assert look(there, peer, incarnation) is Pulse.DEAD


def test_where_nobody_listens_it_is_dead() -> None:
    with socket.socket() as held:  # bound, and not listening: nobody else gets the port meanwhile
        held.bind(("127.0.0.1", 0))
        assert look(f"127.0.0.1:{held.getsockname()[1]}") is Pulse.DEAD


def test_who_does_not_answer_is_not_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "LOOK_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert look(f"127.0.0.1:{silent.getsockname()[1]}") is Pulse.UNKNOWN
