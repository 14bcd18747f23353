"""Two links of one chain never wait for each other at a full state server."""

from meander.model import Epoch
from meander.protocol.messages import Envelope, Put, PutDone
from meander.protocol.server import StateServer
from meander.protocol.settings import Settings
from meander.protocol.state import checksum

BLOB = b"x" * 20


def put(server: StateServer, sender: str, tenure: int) -> dict[str, PutDone]:
    """Put a state; give what everybody is told."""
    body = Put(3, Epoch(1, tenure), Epoch(1, 10), BLOB, checksum(BLOB))
    actions = server.handle(Envelope(sender, 1, "s", 0, Epoch(1, 10), body), 0.0)
    return {action.envelope.to: action.envelope.body for action in actions}


def test_a_later_state_of_a_task_takes_the_place_of_an_older_one():
    """1. n2's state fills the server  2. n1, which has installed it since, puts its own  3. n2 hears
    that its own is gone: n1 may be lost by now, and then it is n2's that is asked for."""
    server = StateServer("s", Settings(server_bytes_max=30), 1, "i")
    server.incarnation = 1
    assert put(server, "n2", tenure=1)["n2"].held
    told = put(server, "n1", tenure=4)
    assert told["n1"].held
    assert told["n2"] == PutDone(3, Epoch(1, 1), Epoch(1, 10), held=False)
    assert [key[1] for key in server.held] == [Epoch(1, 4)]
    assert server.bytes == len(BLOB)
