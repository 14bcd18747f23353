"""What a process shows at every port: that it knows the deployment's token, and a certificate with TLS.

The token itself crosses no connection. Whoever dials sends a nonce; whoever listens answers with one
of its own and a proof that it knows the token. Only then every call shows a pass, which is good at
that one server and worthless anywhere else:

    dials ──── nonce c ────────────────────────────────► listens
          ◄─── nonce s, HMAC(token, "server" c s port) ─           (checked, else hung up)
          ──── HMAC(token, "pass" s port), on every call ►         (compared, else refused)

The port is in both: a stranger who has taken the port of a process that died cannot pass the question
on to one that lives, and has no use for a pass to the dead. `s` is made once per server, so that a
call costs one comparison and no book of sessions is kept.

Without certificates connections are plain TCP: for one machine, where only its own users could listen.
With them every connection is TLS, both sides show a certificate that the deployment's own authority
has signed (`authority`), and a process can send under no other name than its certificate's.

Certificates are not bound to addresses: Spark decides where a process runs. All of a deployment bear
one server name, which clients insist on, and no other authority is trusted.
"""

from __future__ import annotations

import datetime as dt
import hmac
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Final
from urllib.parse import quote, unquote

from pyarrow import flight

from meander.errors import InputError

# A failed handshake is refused inside gRPC, which by default writes a line for each, without end and
# without saying whose it was. Whoever wants to see them says GRPC_VERBOSITY=INFO.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

TOKEN_HEADER: Final = "x-meander-token"
LOOPBACK: Final = "127.0.0.1"
PASS_HEADER: Final = "x-meander-pass"
CHALLENGE: Final = "challenge"
"""The one action that is answered to everybody."""
RENEW: Final = "renew"
"""The request for new credentials, to the driver: for whoever's certificate it comes with."""
NONCE_BYTES: Final = 32
GREET_S_MAX: Final = 10.0
"""How long a server may take to prove that it is ours."""
STRANGER: Final = (
    "whoever listens at {} does not know the token: it belongs to another deployment, or to none"
)
NO_PROXY: Final = ("grpc.enable_http_proxy", 0)
"""An environment's proxy is for the world, not for peers."""
SCHEME: Final = "meander://"
"""Of the URI in a certificate: `meander://<run>/<kind>/<name>`."""


@dataclass(frozen=True)
class Credentials:
    """What a process shows. Its secrets are in neither `repr` nor logs.

    >>> Credentials("secret")
    Credentials(server_name='')
    >>> Credentials("secret").secure
    False
    """

    token: str = field(repr=False)
    server_name: str = ""
    """What every certificate of the deployment bears; empty: there is no TLS."""
    authority: str = field(default="", repr=False)
    """The one certificate that is trusted, as PEM."""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, credentials: Credentials | str) -> Credentials:
        """Take a bare token for credentials without certificates."""
        return cls(credentials) if isinstance(credentials, str) else credentials

    @property
    def secure(self) -> bool:
        """Whether connections are TLS."""
        return bool(self.server_name)

    def left_s(self) -> float:
        """Tell for how many seconds the certificate is still good; without one, for ever."""
        from cryptography import x509

        if not self.secure:
            return inf
        ends = x509.load_pem_x509_certificate(self.certificate.encode()).not_valid_after_utc
        return (ends - dt.datetime.now(dt.UTC)).total_seconds()

    def location(self, address: str) -> str:
        """Say how Flight is to reach, or to listen on, `host:port`.

        >>> Credentials("t").location("127.0.0.1:0")
        'grpc://127.0.0.1:0'
        """
        return f"{'grpc+tls' if self.secure else 'grpc'}://{address}"

    def connect(
        self, address: str, *, greet_s: float = GREET_S_MAX, **options: Any
    ) -> flight.FlightClient:
        """Dial, have the other side prove that it is ours, and give a Flight client for its calls.

        Raises:
            FlightUnauthenticatedError: if it cannot; it has been shown nothing.
        """
        options.setdefault("generic_options", [NO_PROXY])
        if self.secure:
            options |= {
                "tls_root_certs": self.authority.encode(),
                "cert_chain": self.certificate.encode(),
                "private_key": self.key.encode(),
                "override_hostname": self.server_name,
            }
        shows = _Shows()
        client = flight.connect(self.location(address), middleware=[shows], **options)
        try:
            shows.headers = {PASS_HEADER: self._greet(client, address, greet_s)}
        except BaseException:
            client.close()
            raise
        return client

    def _greet(self, client: flight.FlightClient, address: str, greet_s: float) -> str:
        """Challenge whoever listens there; give the pass for its calls."""
        mine, port = secrets.token_bytes(NONCE_BYTES), int(address.rpartition(":")[2])
        action = flight.Action(CHALLENGE, mine)
        answers = list(client.do_action(action, self.call(greet_s)))
        found = answers[0].body.to_pybytes() if len(answers) == 1 else b""
        theirs, proof = found[:NONCE_BYTES], found[NONCE_BYTES:]
        if not hmac.compare_digest(proof, self.prove(mine, theirs, port)):
            raise flight.FlightUnauthenticatedError(STRANGER.format(address))
        return self.pass_to(theirs, port)

    def prove(self, theirs: bytes, mine: bytes, port: int) -> bytes:
        """Prove to whoever sent a nonce that the server at a port knows the token."""
        return self._sign(b"server", theirs, mine, port)

    def pass_to(self, nonce: bytes, port: int) -> str:
        """Make what every call to the server with that nonce, at that port, shows."""
        return self._sign(b"pass", b"", nonce, port).hex()

    def _sign(self, what: bytes, first: bytes, second: bytes, port: int) -> bytes:
        text = b"".join([what, first, second, port.to_bytes(4, "big")])
        return hmac.digest(self.token.encode(), text, "sha256")

    def call(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        """Give the options of a call: how long it may take."""
        return flight.FlightCallOptions(timeout=timeout_s)

    def server_options(self) -> dict[str, Any]:
        """Give what a Flight server needs to show its certificate and to insist on the client's."""
        if not self.secure:
            return {}
        return {
            "tls_certificates": [(self.certificate.encode(), self.key.encode())],
            "verify_client": True,
            "root_certificates": self.authority.encode(),
        }

    def json(self) -> str:
        """Write all of it, secrets included, on one line: for a channel that is trusted."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read what `json` wrote.

        Raises:
            InputError: if it is something else.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise InputError("these are no credentials of a deployment") from None


class _Pass(flight.ClientMiddleware):  # type: ignore[misc]
    """Shows the pass in one call."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self._headers = headers

    def sending_headers(self) -> dict[str, str]:
        """Give the headers."""
        return self._headers


class _Shows(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Shows the pass in every call of a client, once there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: dict[str, str] = {}

    def start_call(self, info: flight.CallInfo) -> _Pass:
        """A call begins."""
        return _Pass(self.headers)


def identity_of(run: str, kind: str, name: str) -> str:
    """Write what a certificate says of its holder.

    >>> identity_of("r1", "server", "server@10.0.0.7")
    'meander://r1/server/server@10.0.0.7'
    """
    return f"{SCHEME}{run}/{kind}/{quote(name, safe='/@')}"


def holder_of(identity: str, run: str) -> tuple[str, str]:
    """Read kind and name of a certificate's holder.

    Raises:
        InputError: if it is of another deployment, or of none.

    >>> holder_of("meander://r1/server/server@10.0.0.7", "r1")
    ('server', 'server@10.0.0.7')
    """
    head = f"{SCHEME}{run}/"
    if not identity.startswith(head):
        raise InputError(f"{identity[:200]!r} is nobody of this deployment")
    kind, _, quoted = identity.removeprefix(head).partition("/")
    return kind, unquote(quoted)


_OWN: Final = re.compile(r"(master|loop|@.*|server@.*|n[0-9]+|[xr][0-9]+-.*)(/.*)?", re.DOTALL)
"""What the deployment calls its own: the master, loops, the store, state servers, nodes."""


def may_feed_as(name: str) -> bool:
    """Tell whether a feeder may bear a name: any that the deployment does not use itself.

    >>> [name for name in ("words", "n1", "master", "loop/3", "x1-2", "news", "") if may_feed_as(name)]
    ['words', 'news']
    """
    return bool(name) and _OWN.fullmatch(name) is None


def may_speak_as(identity: str, run: str, peer: str) -> bool:
    """Tell whether a certificate's holder may call itself a peer.

    It may by its name; a feeder also by one below it, but by none that is the deployment's own.

    >>> may_speak_as("meander://r1/node/n3", "r1", "n3")
    True
    >>> may_speak_as("meander://r1/node/n3", "r1", "master")
    False
    >>> may_speak_as("meander://r1/feeder/query", "r1", "query/4")
    True
    >>> may_speak_as("meander://r1/feeder/master", "r1", "master")
    False
    """
    try:
        kind, name = holder_of(identity, run)
    except InputError:
        return False
    if kind != "feeder":
        return bool(name) and peer == name
    return may_feed_as(peer) and (peer == name or peer.startswith(name + "/"))


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host == "localhost" or host.startswith("127.")
