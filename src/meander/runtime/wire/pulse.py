"""Whether a process lives whose last stream to us has ended: one look at its address (`presence`).

Where nobody listens, or somebody else, it is dead; that is known within milliseconds. A port that
refuses says so by itself: when a node ends all its peers look at once, and again, and to set up Flight
for that would take the processor from their rows.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Final

import pyarrow as pa
from pyarrow import flight

from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.presence import Caller, Pulse

WHO: Final = "who"
"""The action that tells who listens."""
LOOK_S_MAX: Final = 5.0
"""How long one may take."""


def look(credentials: Credentials, whom: Caller) -> Pulse:
    """Tell whether a process listens at its address."""
    peer, incarnation, address = whom
    told = _knock(address)
    if told is not None:
        return told
    began = time.monotonic()
    try:
        with credentials.connect(address, greet_s=LOOK_S_MAX) as client:
            action = flight.Action(WHO, b"{}")
            (answer,) = client.do_action(action, credentials.call(LOOK_S_MAX))
            facts = json.loads(answer.body.to_pybytes())
    except flight.FlightTimedOutError:
        return Pulse.UNKNOWN
    except (pa.ArrowException, ValueError):  # refused, reset, a stranger, or no way there
        late = time.monotonic() - began > LOOK_S_MAX
        return Pulse.UNKNOWN if late or _knock(address) is Pulse.UNKNOWN else Pulse.DEAD
    name = {"peer": peer, "incarnation": incarnation}
    if facts == {**name, "ending": True}:
        return Pulse.ENDING
    return Pulse.ALIVE if facts == {**name, "ending": False} else Pulse.DEAD


def _knock(address: str) -> Pulse | None:
    """Tell what the host says of a port: nobody is there, nobody can know; None: somebody may be."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_S_MAX).close()
    except ConnectionRefusedError:  # the host is there, the process is not
        return Pulse.DEAD
    except ConnectionError:
        return None
    except OSError:  # no route, a cut network, no descriptors left on this side
        return Pulse.UNKNOWN
    return None
