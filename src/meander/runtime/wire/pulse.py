"""Whether a process lives whose last stream to us has ended: one look at its address (`presence`).

Where nobody listens, or somebody else, it is dead; that is known within milliseconds.
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
