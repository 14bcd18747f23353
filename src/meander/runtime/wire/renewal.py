"""Renews the credentials of a process while it runs: when half of their life is over, then again.

It is asked for over a connection that shows the old ones, so they must still be good: if the driver
does not answer, half of what is left is waited, and so on. Should it not answer until they have ended,
the process can dial nobody any more, its lease ends, and it is replaced like one that was cut off.

To show new ones at the port takes another server there (`Transport.renew`). If the port cannot be had,
nobody listens: that is tried again within seconds, with what was obtained.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.transport import Transport

log = logging.getLogger(__name__)

WAIT_S_MIN: Final = 0.5
AGAIN_S_MAX: Final = 60.0
"""Between two attempts to have the port again, which take longer each time."""
WAIT_S_MAX: Final = 30 * 86_400.0
"""Longer than that no thread is told to wait at once."""


def keep_fresh(transport: Transport, obtain: Callable[[], Credentials]) -> None:
    """Begin, if there are certificates, on a thread that ends with the transport.

    Args:
        transport: whose credentials.
        obtain: gives new ones, or raises.
    """
    if transport.credentials.secure:
        work = threading.Thread(target=_run, args=(transport, obtain), name="renewal", daemon=True)
        work.start()


def _run(transport: Transport, obtain: Callable[[], Credentials]) -> None:
    wait_s, again_s = transport.credentials.left_s() / 2, 0.0
    while not transport.closing.wait(min(max(wait_s, WAIT_S_MIN), WAIT_S_MAX)):
        listens = not again_s
        if wait_s <= WAIT_S_MAX:
            listens = _renew(transport, obtain if listens else lambda: transport.credentials)
        again_s = 0.0 if listens else min(max(2 * again_s, WAIT_S_MIN), AGAIN_S_MAX)
        wait_s = again_s or transport.credentials.left_s() / 2


def _renew(transport: Transport, obtain: Callable[[], Credentials]) -> bool:
    """Try once; tell whether somebody listens."""
    me = transport.identity.peer
    try:
        fresh = obtain()
    except Exception as error:  # whatever it is: it is tried again
        left_s = transport.credentials.left_s()
        log.warning("%s has no new certificate, the old ends in %.0f s: %s", me, left_s, error)
        return True
    try:
        transport.renew(fresh)
    except Exception as error:  # the same
        log.warning("%s has a new certificate, but not its port: it is tried again: %s", me, error)
        return False
    log.info("%s has a new certificate for %.0f s", me, transport.credentials.left_s())
    return True
