"""Who is let in, and how refusals are counted and logged.

Every call shows a pass, which only who knows the token can have made for this server (`credentials`).
It is compared before anything of the call is looked at; the handler then refuses, because only there
Flight tells who called. What is refused is counted, and logged once per
peer: again only after a while, with how often it came meanwhile. Somebody who knocks all day cannot
fill a disk.

A TLS handshake that fails is refused by gRPC, below all of this: there is no call and no caller.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from pyarrow import flight

from meander.protocol.messages import MASTER
from meander.runtime.wire.credentials import (
    CHALLENGE,
    NONCE_BYTES,
    PASS_HEADER,
    Credentials,
    may_speak_as,
)

log = logging.getLogger(__name__)

ORDERS: Final = {"stop": MASTER, "finish": MASTER, "room": "query"}
"""Requests that change something, and who alone may make them."""
QUIET_S: Final = 60.0
"""Between two lines about one peer."""
PEERS_MAX: Final = 256
"""So many are told apart; all others share a line."""
OTHERS: Final = "others"
WORDS_MAX: Final = 500
"""Characters of a refusal that are logged."""


class Refusals:
    """Counts refusals and logs them with a limit. For any thread.

    >>> refusals = Refusals("n1", quiet_s=60.0)
    >>> [refusals.due("10.0.0.9", now) for now in (0.0, 1.0, 2.0, 61.0)]
    [0, None, None, 2]
    """

    def __init__(self, me: str, quiet_s: float = QUIET_S) -> None:
        self.me, self.count = me, 0
        self._quiet_s = quiet_s
        self._lines: dict[str, tuple[float, int]] = {}
        """By peer: when the last line was written, and how many refusals since."""
        self._lock = threading.Lock()

    def note(self, peer: str, why: str, level: int = logging.WARNING) -> None:
        """Take note of a refusal."""
        silent = self.due(peer, time.monotonic())
        if silent is not None:
            more = f" ({silent} more since the last line)" if silent else ""
            log.log(level, "%s refused %s: %s%s", self.me, printable(peer), printable(why), more)

    def due(self, peer: str, now: float) -> int | None:
        """Tell how many refusals a line would stand for besides this one; None: no line is due."""
        with self._lock:
            self.count += 1
            if peer not in self._lines and len(self._lines) >= PEERS_MAX:
                peer = OTHERS
            at, silent = self._lines.get(peer, (now - self._quiet_s, 0))
            if now - at < self._quiet_s:
                self._lines[peer] = at, silent + 1
                return None
            self._lines[peer] = now, 0
            return silent


def printable(text: str) -> str:
    r"""Give what a stranger said as it may stand in a line of a log: short, and on that line.

    >>> print(printable("a run\nERROR all is lost \ud800"))
    a run\nERROR all is lost \ud800
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:WORDS_MAX]
    )


class Shown(flight.ServerMiddleware):  # type: ignore[misc]
    """Whether a call has shown the pass."""

    def __init__(self, right: bool) -> None:
        self.right = right


class Passes(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Looks at the pass of every call; in constant time, whatever was shown."""

    def __init__(self) -> None:
        self.wanted = b""
        """Empty before the port is known: then nobody is let in."""

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> Shown:
        """Compare; a call that no handler of ours will see is refused here."""
        given = headers.get(PASS_HEADER) or [""]
        shown = given[0].encode("utf-8", "surrogateescape")
        same = hmac.compare_digest(shown, self.wanted)
        right = bool(self.wanted) and len(given) == 1 and same
        if not right and info.method not in _HANDLED:
            raise flight.FlightUnauthenticatedError(WRONG_TOKEN)
        return Shown(right)


_HANDLED: Final = frozenset(
    {flight.FlightMethod.DO_PUT, flight.FlightMethod.DO_GET, flight.FlightMethod.DO_ACTION}
)
WRONG_TOKEN: Final = "the token is wrong or missing"
FINAL: Final = b"final"
"""Goes with a refusal: asking again does not help."""


class Door:
    """Stands at one port."""

    def __init__(self, credentials: Credentials, run: str, me: str) -> None:
        self.refusals = Refusals(me)
        self._credentials, self._run = credentials, run
        self._nonce, self._port = secrets.token_bytes(NONCE_BYTES), 0
        self._passes = Passes()
        self.middleware: dict[str, Any] = {"pass": self._passes}

    def open(self, port: int) -> None:
        """Let in who has a pass to this port."""
        self._port = port
        self._passes.wanted = self._credentials.pass_to(self._nonce, port).encode()

    def challenged(self, context: flight.ServerCallContext, action: flight.Action) -> bytes | None:
        """Prove who we are to whoever asks that; None: it is another action, for who is let in.

        Raises:
            FlightUnauthenticatedError: for what is no nonce.
        """
        if action.type != CHALLENGE:
            return None
        theirs = action.body.to_pybytes() if action.body is not None else b""
        if len(theirs) != NONCE_BYTES:
            self.refusals.note(host_of(context.peer()), "it sent no nonce")
            raise flight.FlightUnauthenticatedError(f"a nonce has {NONCE_BYTES} bytes")
        return self._nonce + self._credentials.prove(theirs, self._nonce, self._port)

    def admit(self, context: flight.ServerCallContext) -> str:
        """Let a call in, and give the host it comes from.

        Raises:
            FlightUnauthenticatedError: if it has not shown the pass.
        """
        caller = host_of(context.peer())
        if not context.get_middleware("pass").right:
            self.refusals.note(caller, WRONG_TOKEN)
            raise flight.FlightUnauthenticatedError(WRONG_TOKEN)
        return caller

    def check_order(self, context: flight.ServerCallContext, kind: str) -> None:
        """Take an order from whoever may give it; questions from everybody.

        Raises:
            FlightUnauthorizedError: if somebody else gives one.
        """
        if kind in ORDERS:
            try:
                self.check_name(context, ORDERS[kind])
            except flight.FlightUnauthorizedError as error:
                self.refusals.note(host_of(context.peer()), str(error))
                raise

    def check_name(self, context: flight.ServerCallContext, peer: str) -> None:
        """Let a peer bear no name but its certificate's.

        Raises:
            FlightUnauthorizedError: if it is another's.
        """
        if not self._credentials.secure:
            return
        identity = identity_in(context)
        if not may_speak_as(identity, self._run, peer):
            raise flight.FlightUnauthorizedError(
                f"refused: a certificate for {identity} does not stand for {peer!r}", FINAL
            )


def identity_in(context: flight.ServerCallContext) -> str:
    """Read whose certificate a call comes with; empty without TLS."""
    found: str = context.peer_identity().decode("utf-8", "replace")
    return found


def host_of(peer: str) -> str:
    """Take the port off an address as gRPC writes it: each connection has another.

    >>> host_of("ipv4:10.0.0.7:40112"), host_of("ipv6:%5B::1%5D:40112")
    ('10.0.0.7', '%5B::1%5D')
    """
    return peer.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0] or peer
