"""What a process shows at every door: the deployment's token, and a certificate where there is TLS.

Without certificates connections are plain TCP: for one machine, where only its own users could listen.
With them every connection is TLS, both sides show a certificate that the deployment's own authority
has signed (`authority`), and a process can speak in no other name than its certificate's.

Certificates are not bound to addresses: Spark decides where a process runs. All of a deployment bear
one server name, which clients insist on, and no other authority is trusted.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from pyarrow import flight

from meander.errors import InputError

# A failed handshake is refused inside gRPC, which by default writes a line for each, without end and
# without saying whose it was. Whoever wants to see them says GRPC_VERBOSITY=INFO.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

TOKEN_HEADER: Final = "x-meander-token"
LOOPBACK: Final = "127.0.0.1"
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

    def location(self, address: str) -> str:
        """Say how Flight is to reach, or to listen on, `host:port`.

        >>> Credentials("t").location("127.0.0.1:0")
        'grpc://127.0.0.1:0'
        """
        return f"{'grpc+tls' if self.secure else 'grpc'}://{address}"

    def connect(self, address: str, **options: Any) -> Any:
        """Make a Flight client; nothing is dialled yet."""
        if self.secure:
            options |= {
                "tls_root_certs": self.authority.encode(),
                "cert_chain": self.certificate.encode(),
                "private_key": self.key.encode(),
                "override_hostname": self.server_name,
            }
        return flight.connect(self.location(address), **options)

    def call(self, timeout_s: float | None = None) -> Any:
        """Give the options of a call: the token, and how long it may take."""
        headers = [(TOKEN_HEADER.encode(), self.token.encode())]
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)

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


def identity_of(run: str, kind: str, name: str) -> str:
    """Write what a certificate says of its holder.

    >>> identity_of("r1", "server", "server@10.0.0.7")
    'meander://r1/server/server@10.0.0.7'
    """
    return f"{SCHEME}{run}/{kind}/{quote(name, safe='/@')}"


def may_speak_as(identity: str, run: str, peer: str) -> bool:
    """Tell whether a certificate's holder may call itself a peer: by its name, or one below it.

    >>> may_speak_as("meander://r1/node/n3", "r1", "n3")
    True
    >>> may_speak_as("meander://r1/node/n3", "r1", "master")
    False
    >>> may_speak_as("meander://r1/feeder/query", "r1", "query/4")
    True
    """
    head = f"{SCHEME}{run}/"
    if not identity.startswith(head):
        return False
    name = unquote(identity.removeprefix(head).partition("/")[2])
    return bool(name) and (peer == name or peer.startswith(name + "/"))


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host == "localhost" or host.startswith("127.")
