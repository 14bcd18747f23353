"""Where new tables are published: pushed to everybody, or put up in ZooKeeper for all to read.

By default the master sends every new table to every process over its own streams. With a *board* it is
put up once, and processes learn of it from a watch: the paper's way, and one write instead of n.

Either way a table is whole and may come late, twice or never (`protocol.table`): whoever hears of an
epoch that it lacks asks the master with its next beat. So a board is never an authority. Leases and
registration stay with the master, and when ZooKeeper is away tables are pushed.

What is put up is signed with the token of the run: whoever can write to ZooKeeper cannot make tables.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from meander.errors import InputError, MalformedMessage
from meander.model import Epoch
from meander.protocol.messages import MASTER, Envelope, Grant, PeerId
from meander.runtime.wire import codec

log = logging.getLogger(__name__)

ROOT = "/meander"
START_S_MAX = 15.0
"""How long the driver waits for ZooKeeper before it gives up."""
BYTES_MAX = 1_000_000
"""ZooKeeper's own limit is 1 MiB; a larger table is pushed."""
DIGEST_BYTES = 32


class TablePublisher(Protocol):
    """How tables reach everybody; None where they are simply sent."""

    def publish(self, envelope: Envelope) -> bool:
        """Take an envelope if it is news for all; False: send it."""

    def subscribe(self, peer: PeerId, deliver: Callable[[Envelope], None]) -> None:
        """Hear of tables, as envelopes from the master. Returns at once."""

    def close(self) -> None:
        """Hang up."""


class ZooKeeperBoard:
    """Tables of one run under `/meander/<run>` in ZooKeeper."""

    def __init__(self, hosts: str, run: str, token: str) -> None:
        """Prepare; nothing is dialled before `open` or `subscribe`.

        Args:
            hosts: `host:port`, or several with commas between.
            run: names the deployment.
            token: signs what is put up.

        Raises:
            InputError: if kazoo is not installed.
        """
        try:
            from kazoo.client import KazooClient
        except ImportError:
            raise InputError(
                "tables in ZooKeeper need kazoo: install it with `pip install meander[zookeeper]`"
            ) from None
        self._hosts, self._token = hosts, token.encode()
        self._path = f"{ROOT}/{run}/table"
        self._client: Any = KazooClient(hosts=hosts)
        self._epoch: Epoch | None = None
        """The newest that was put up."""
        self._mine = False
        """Whether the path was made here, and is removed at the end."""
        self.published = 0
        self.heard = 0

    def open(self) -> None:
        """Dial, and make the place for tables; for the master.

        Raises:
            InputError: if ZooKeeper does not answer.
        """
        from kazoo.exceptions import KazooException

        try:
            self._client.start(timeout=START_S_MAX)
            self._client.ensure_path(self._path)
        except (KazooException, self._client.handler.timeout_exception) as error:
            self.close()
            raise InputError(
                f"ZooKeeper at {self._hosts} does not answer within {START_S_MAX:.0f} s: {error}"
            ) from None
        self._mine = True

    def publish(self, envelope: Envelope) -> bool:
        """Put a new table up, once for all; whatever else there is to send is not for the board."""
        body = envelope.body
        if type(body) is not Grant or body.sent >= 0 or body.table is None:
            return False
        if not self._client.connected:
            return False
        if body.table.epoch == self._epoch:
            return True
        header = codec.encode(envelope._replace(to="everybody", to_incarnation=0)).header
        if len(header) + DIGEST_BYTES > BYTES_MAX:
            return False
        # Sets of one session are carried out in order. One that fails is made good by beats.
        self._client.set_async(self._path, self._sign(header) + header)
        self._epoch = body.table.epoch
        self.published += 1
        return True

    def subscribe(self, peer: PeerId, deliver: Callable[[Envelope], None]) -> None:
        """Watch for tables from a thread of its own: a process does not wait for ZooKeeper."""

        def seen(data: bytes | None, _: object) -> None:
            envelope = self._read(data)
            if envelope is not None:
                self.heard += 1
                deliver(envelope._replace(to=peer))

        def watch() -> None:
            try:
                self._client.start(timeout=START_S_MAX)
                self._client.DataWatch(self._path, seen)
            except Exception as error:  # kazoo raises from many trees; beats bring tables as well
                log.warning("no tables from ZooKeeper at %s: %s", self._hosts, error)

        threading.Thread(target=watch, name="zookeeper", daemon=True).start()

    def close(self) -> None:
        """Hang up; the master also takes its tables down."""
        try:
            if self._mine and self._client.connected:
                self._client.delete(self._path.rpartition("/")[0], recursive=True)
            self._client.stop()
            self._client.close()
        except Exception as error:  # it is going away in any case
            log.debug("hanging up on ZooKeeper: %s", error)

    def _sign(self, header: bytes) -> bytes:
        return hmac.digest(self._token, header, "sha256")

    def _read(self, data: bytes | None) -> Envelope | None:
        """Check and read what was put up; None if there is nothing to be had from it."""
        if not data:
            return None
        digest, header = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        if not hmac.compare_digest(digest, self._sign(header)):
            log.warning("a table in ZooKeeper was not signed by the master of this run")
            return None
        try:
            envelope = codec.decode(header, None)
        except MalformedMessage as error:
            log.warning("a table in ZooKeeper cannot be read: %s", error)
            return None
        return envelope if envelope.sender == MASTER and type(envelope.body) is Grant else None


def board(hosts: str, run: str, token: str) -> ZooKeeperBoard | None:
    """Give the board of a run; None where tables are pushed."""
    return ZooKeeperBoard(hosts, run, token) if hosts else None
