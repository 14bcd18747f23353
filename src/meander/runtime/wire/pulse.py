"""Whether a process lives whose last stream to us has ended.

A stream ends when its process dies, when the process has nothing more to send, or because a connection
broke. Only the first is a loss, and without checkpoints a false alarm would cost the state of a healthy
node. So it is asked at the address that it listens at:

  * nobody listens there, or somebody else: it is dead. That is known within milliseconds;
  * it answers in its name: it lives;
  * no answer comes (the network is cut, the host is gone or busy): nobody can know. Its lease decides.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from enum import Enum
from typing import Final

import pyarrow as pa
from pyarrow import flight

from meander.protocol.messages import PeerId
from meander.runtime.wire.credentials import Credentials

WHO: Final = "who"
"""The action that tells who listens."""
LOOKS: Final = 3
"""Nobody is dead who was not found so often: a port may refuse in the moment of a reset."""
PAUSE_S: Final = 0.05
"""Between two of them."""
LOOK_S_MAX: Final = 5.0
"""How long one may take."""


class Pulse(Enum):
    """What was found."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def look(
    credentials: Credentials,
    address: str,
    peer: PeerId,
    incarnation: int,
    stopping: threading.Event,
) -> Pulse:
    """Tell whether a process listens at its address. Returns early when we are stopping ourselves."""
    found = Pulse.UNKNOWN
    for _ in range(LOOKS):
        if stopping.is_set():
            return Pulse.UNKNOWN
        found = _look(credentials, address, peer, incarnation)
        if found is not Pulse.DEAD:
            return found
        stopping.wait(PAUSE_S)
    return found


def _look(credentials: Credentials, address: str, peer: PeerId, incarnation: int) -> Pulse:
    began = time.monotonic()
    try:
        with credentials.connect(address, greet_s=LOOK_S_MAX) as client:
            action = flight.Action(WHO, b"{}")
            (answer,) = client.do_action(action, credentials.call(LOOK_S_MAX))
            told = json.loads(answer.body.to_pybytes())
    except flight.FlightTimedOutError:
        return Pulse.UNKNOWN
    except (pa.ArrowException, ValueError):  # refused, reset, a stranger, or no way there
        late = time.monotonic() - began > LOOK_S_MAX
        return Pulse.UNKNOWN if late or _out_of_reach(address) else Pulse.DEAD
    same = told == {"peer": peer, "incarnation": incarnation}
    return Pulse.ALIVE if same else Pulse.DEAD


def _out_of_reach(address: str) -> bool:
    """Whether nobody can know: neither does something listen there, nor does the host refuse."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_S_MAX):
            return False
    except ConnectionError:  # refused or reset: the host is there, the process is not
        return False
    except OSError:  # no route, a cut network, no descriptors left on this side
        return True
