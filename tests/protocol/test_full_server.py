"""Two links of one chain never wait for each other at a full state server."""

from typing import Any

from meander.model import Epoch
from meander.protocol.edges.server import StateServer
from meander.protocol.messages import NOT_YET, Envelope, Fetch, Put, PutDone
from meander.protocol.settings import Settings
from meander.protocol.state import checksum

BLOB = b"x" * 20


def say(server: StateServer, sender: str, body: Any) -> dict[str, Any]:
    """Send something; give what everybody is told."""
    actions = server.handle(Envelope(sender, 1, "s", 0, Epoch(1, 10), body), 0.0)
    return {action.envelope.to: action.envelope.body for action in actions}


def put(server: StateServer, sender: str, tenure: int) -> dict[str, Any]:
    return say(server, sender, Put(3, Epoch(1, tenure), Epoch(1, 10), BLOB, checksum(BLOB)))


def fetch(server: StateServer, tenure: int) -> dict[str, Any]:
    return say(server, "n3", Fetch(3, Epoch(1, tenure), 0))


def test_a_later_state_of_a_task_takes_the_place_of_an_older_one():
    """1. n2's state fills the server  2. n1, which has installed it since, puts its own  3. n2 hears
    that its own is gone: n1 may be lost by now, and then it is n2's that is asked for."""
    server = StateServer("s", Settings(server_bytes_max=30), 1, "i")
    server.turn.incarnation = 1
    assert put(server, "n2", tenure=1)["n2"].held
    told = put(server, "n1", tenure=4)
    assert told["n1"].held
    assert told["n2"] == PutDone(3, Epoch(1, 1), Epoch(1, 10), held=False)
    assert [key[1] for key in server.held] == [Epoch(1, 4)]
    assert server.bytes == len(BLOB)


def test_who_must_put_a_state_again_is_told_so_until_it_has():
    """A word may be lost, or overtaken by one that says the contrary: every wish repeats it."""
    server = StateServer("s", Settings(server_bytes_max=50), 1, "i")
    server.turn.incarnation = 1
    put(server, "n2", tenure=1)
    put(server, "n1", tenure=4)
    for _ in range(2):
        told = fetch(server, tenure=1)
        assert told["n2"] == PutDone(3, Epoch(1, 1), Epoch(1, 10), held=False)
        assert told["n3"].total == NOT_YET
    assert put(server, "n2", tenure=1)["n3"].data == BLOB, "it is given to who waits for it"
    assert list(fetch(server, tenure=1)) == ["n3"]
