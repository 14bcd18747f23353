"""Where a message goes: by the master's books, or by the table that all others have from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Bye, Envelope
from meander.protocol.settings import Settings
from meander.runtime.process.addresses import AddressBook


def to(peer: str, incarnation: int = 0) -> Envelope:
    return Envelope("me", 1, peer, incarnation, Epoch(1, 0), Bye(1))


def test_the_master_reaches_the_newest_process_and_its_former_one() -> None:
    master: Any = Master.__new__(Master)
    n1 = SimpleNamespace(incarnation=3, address="new:1", former="old:1")
    master.membership = SimpleNamespace(peers={"n1": n1})
    book = AddressBook(master, None)
    assert [book.of(to("n1", i)) for i in (0, 3, 2, 1, 4)] == [
        "new:1",
        "new:1",
        "old:1",
        None,
        None,
    ]
    assert book.of(to("stranger")) is None
    assert book.news() is None


def test_others_go_by_the_newest_table_and_hear_of_it_once() -> None:
    client = Client("n1", 1, Settings(), 1, "n1/1/1")
    book = AddressBook(client, "master:1")
    assert (book.news(), book.of(to("n2")), book.of(to(MASTER))) == (None, None, "master:1")
    addresses = {"n1": "me:1", "n2": "two:1", "f": "feeder:1", "s": "server:1"}
    members, servers = {"n1": None, "n2": None, "n3": None}, {"s": 1}
    table = SimpleNamespace(addresses=addresses, members=members, servers=servers)
    client.turn.table = table  # type: ignore[assignment]
    assert book.news() == {"two:1", "master:1"}  # not ourselves
    assert book.news() is None
    assert book.of(to("n2")) == "two:1"
