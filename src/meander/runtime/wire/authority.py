"""A certificate authority for one deployment, in the memory of its driver.

Its key is made when the deployment starts and is never written anywhere. When the driver ends, nobody
can sign for the deployment any more, and its certificates are worthless: its nodes have ended too.

It signs two kinds of certificates. What is handed out once and for all lasts as long as the authority:
the one in a process's spec, which goes through Spark's own channel and must let in a successor that
starts there in a year, and those that users pass on. What a process of the deployment works with is
short-lived: it asks for one before it listens, and again when half of that one's life is over
(`renewal`).
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.wire.credentials import (
    Credentials,
    holder_of,
    identity_of,
    is_loopback,
    may_feed_as,
)

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder

log = logging.getLogger(__name__)

AUTHORITY_DAYS = 3650.0
"""The life of an authority: longer than any deployment's."""
LIFE_S = 7 * 86_400.0
"""The life of what a process works with."""
CLOCKS_S_MAX = 3600
"""How much the clocks of hosts may differ: certificates are valid from so long before now."""

INSECURE = (
    "listening on %s without TLS: whoever can read the network reads all rows and states, and the "
    "passes (not the token) with which anybody can send rows, read states and stop nodes; anybody "
    "in between can change them"
)


class Authority:
    """Signs for one deployment."""

    def __init__(self, run: str, token: str) -> None:
        """Make a key and a certificate that is trusted by this deployment alone."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import BasicConstraints

        self.run, self._token = run, token
        self.server_name = f"{run}.meander"
        self.ends = dt.datetime.now(dt.UTC) + dt.timedelta(days=AUTHORITY_DAYS)
        self._name = f"Meander {run}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key.public_key(), self.ends)
        builder = builder.add_extension(BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = self._sign(builder)

    def issue(self, kind: str, name: str, *, ends: dt.datetime | None = None) -> Credentials:
        """Make the credentials of a process.

        Args:
            kind: `master`, `node`, `server`, `feeder`.
            name: what it may call itself; names below a feeder's, after a slash, are its own too.
            ends: when its certificate ends; None: with the authority.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        # The URI comes first: it is what Flight tells a server of its client.
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(identity_of(self.run, kind, name)),
            x509.DNSName(self.server_name),
        ]
        builder = (
            self._builder(f"Meander {kind}", key.public_key(), ends or self.ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Credentials(
            self._token, self.server_name, self._certificate, self._sign(builder), pem.decode()
        )

    def _builder(self, subject: str, key: Any, ends: dt.datetime) -> CertificateBuilder:
        from cryptography import x509

        begins = min(dt.datetime.now(dt.UTC), ends) - dt.timedelta(seconds=CLOCKS_S_MAX)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(subject))
            .issuer_name(_named(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )

    def _sign(self, builder: CertificateBuilder) -> str:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()


class Guard:
    """Decides whether a deployment has TLS, and issues its credentials."""

    def __init__(
        self, run: str, host: str, *, tls: bool | None = None, insecure: bool = False
    ) -> None:
        """Make the token, and the authority if there is to be TLS.

        Args:
            run: names the deployment.
            host: the address that its master listens on.
            tls: whether connections are encrypted; None: beyond loopback.
            insecure: no TLS, also beyond loopback.

        Raises:
            InputError: if both are asked for, or neither beyond loopback.
        """
        if insecure and tls:
            raise InputError("tls and insecure contradict each other: leave one out")
        if tls is False and not insecure and not is_loopback(host):
            raise InputError(f"{host} is no loopback address: say insecure=True if you mean it")
        self.host, self._token = host, secrets.token_urlsafe(32)
        wanted = not insecure and (tls or not is_loopback(host))
        self.authority = Authority(run, self._token) if wanted else None

    def issue(self, kind: str, name: str, *, lasting: bool = False) -> Credentials:
        """Make the credentials of a process, to work with or to keep.

        Raises:
            InputError: for a feeder with a name that the deployment uses itself.
        """
        if kind == "feeder" and not (isinstance(name, str) and may_feed_as(name)):
            raise InputError(
                f"a feeder cannot be called {name!r}: the deployment's own processes bear such names "
                "(master, n1, loop/3, server@host). Choose another"
            )
        if self.authority is None:
            return Credentials(self._token)
        ends = None if lasting else dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LIFE_S)
        return self.authority.issue(kind, name, ends=ends)

    def renew(self, identity: str) -> Credentials:
        """Make new credentials for the holder of a certificate.

        Raises:
            InputError: if that is nobody of this deployment.
        """
        if self.authority is None:
            return Credentials(self._token)
        return self.issue(*holder_of(identity, self.authority.run))

    def watch(self) -> None:
        """Say what is given up, if anything is."""
        if self.authority is None and not is_loopback(self.host):
            log.warning(INSECURE, self.host)


def _named(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
