"""Who gets which action."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.messages import MASTER, Bye, Discard, Envelope, Launch, News, Send, Tell
from meander.protocol.settings import Settings
from meander.runtime.process.addresses import AddressBook
from meander.runtime.process.hands import Hands


def test_actions_go_to_the_network_the_store_processes_and_people() -> None:
    done: list[Any] = []
    store: Any = SimpleNamespace(give=lambda action: done.append(("store", type(action))))
    client = Client("n1", 1, Settings(), 1, "n1/1/1")
    hands = Hands(
        AddressBook(client, "master:1"),
        store,
        lambda action: done.append(("launch", action.node)),
        lambda action: done.append(("tell", action.what)),
    )
    wire: Any = SimpleNamespace(
        post=lambda address, envelope: done.append(("post", address)),
        keep=lambda addresses: done.append(("dial", sorted(addresses))),
    )
    hands.post = wire
    hands.carry_out(Send(Envelope("n1", 1, MASTER, 0, Epoch(1, 0), Bye(1))))
    client.turn.table = SimpleNamespace(  # type: ignore[assignment]
        addresses={"n2": "two:1"}, members={"n2": None}, servers={}
    )
    hands.carry_out(Send(Envelope("n1", 1, "n2", 0, Epoch(1, 0), Bye(1))))
    hands.carry_out(Send(Envelope("n1", 1, "n2", 0, Epoch(1, 0), Bye(1))))
    hands.carry_out(Discard(()))
    hands.carry_out(Launch("n3", 1))
    hands.carry_out(Tell(News.LOST, {}))
    assert done == [
        ("post", "master:1"),
        ("dial", ["master:1", "two:1"]),
        ("post", "two:1"),
        ("post", "two:1"),
        ("store", Discard),
        ("launch", "n3"),
        ("tell", "lost"),
    ]


def test_who_does_not_listen_need_not_be_told() -> None:
    book = AddressBook(Client("n1", 1, Settings(), 1, "n1/1/1"), "master:1")
    Hands(book, SimpleNamespace()).carry_out(Tell(News.LOST, {}))  # type: ignore[arg-type]
