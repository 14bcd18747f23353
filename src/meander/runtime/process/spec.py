"""What a launched process receives, and what it reports when it ends: small values, no behaviour.

A spec travels on a channel that the launcher trusts (a pipe to a child, Spark's closure), never on
the wire between processes: it holds the credentials, and the operator in pickled form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from meander.protocol.settings import Settings
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.wire.credentials import Credentials


def live_settings(tasks: int, **changes: Any) -> Settings:
    """Give the protocol's settings for real ground.

    Leases are long, since a busy machine may stop a process for seconds, and a death is seen by its
    sockets. A feeder may keep so many chunks per task, and so many bytes, until they are durable: what
    it sends between two checkpoints.
    """
    numbers: dict[str, Any] = {
        "beat_s": 0.5, "lease_s": 10.0, "retry_s": 0.5, "launch_s_max": 60.0, "round_s_max": 30.0,
        "migration_s_max": 600.0, "window_chunks": 16,
        "retained_chunks_max": 256 * tasks, "retained_bytes_max": 512 * 2**20,
        "waiting_chunks_max": 4096,
    }  # fmt: skip
    return Settings(**{**numbers, **changes})


@dataclass(frozen=True)
class ProcessSpec:
    """All that a process needs to take its place."""

    kind: str
    """`node`, `server`, `feeder` or `sink`."""
    run: str
    """Names the deployment: processes of another are refused."""
    name: str
    incarnation: int
    """A node's, issued by the master. For others: counts the launches under this name."""
    generation: int
    master: str
    """Where the master listens, `host:port`."""
    credentials: Credentials = field(repr=False)
    tasks: int
    settings: Settings
    server: str = ""
    """A node's state server; empty: that of the host it finds itself on, `server@<host>`."""
    host: str = ""
    """The address to listen on; empty: the local one of the connection to the master."""
    store: str = ""
    """The directory of the durable store; empty: there is none."""
    zookeeper: str = ""
    """Where tables are put up, `host:port[,…]`; empty: they are pushed."""
    output_rows_max: int = ROWS_MAX
    """Rows of outputs that each task of a node keeps."""
    operator: bytes = field(default=b"", repr=False)
    """Pickled, by whatever pickler the launcher trusts."""
    source: bytes = field(default=b"", repr=False)
    """What a feeder reads (`SourceShare`) and its options, or what a sink's process writes
    (`SinkShare`), pickled likewise."""

    def json(self) -> str:
        """Write it on one line."""
        pickled = {name: base64.b64encode(getattr(self, name)).decode() for name in _PICKLED}
        return json.dumps({**asdict(self), **pickled})

    @classmethod
    def parse(cls, text: str) -> ProcessSpec:
        """Read what `json` wrote."""
        fields = json.loads(text)
        fields["settings"] = Settings(**fields["settings"])
        fields["credentials"] = Credentials(**fields["credentials"])
        fields.update({name: base64.b64decode(fields[name]) for name in _PICKLED})
        return cls(**fields)


_PICKLED = ("operator", "source")


class Reason(Enum):
    """Why a process ended."""

    DRAINED = "drained"
    """Dismissed: it owned nothing any more."""
    STOPPED = "stopped"
    """The driver asked for it."""
    FINISHED = "finished"
    """A feeder's source is at its end, and everything is durable."""
    IDLE = "idle"
    """A state server without nodes, holding nothing."""
    REPLACED = "replaced"
    """Another process has its place, or belongs to a later driver."""
    REFUSED = "refused"
    """The driver will never let it in: other versions, another run, a wrong token."""
    DRIVER_LOST = "driver lost"
    OPERATOR_FAILED = "operator failed"
    MODULE_MISSING = "module missing"
    """It cannot import what the operator is made of; the detail is the module's name."""
    CHECKPOINT_FAILED = "checkpoint failed"
    """A record that it needed is missing or broken."""
    CRASHED = "crashed"
    KILLED = "killed"
    """It ended without a word."""


@dataclass(frozen=True)
class ProcessExit:
    """A process has ended. Operational failures are told in here and never raised."""

    kind: str
    name: str
    incarnation: int
    reason: Reason
    detail: str = ""
    """One sentence."""
    trace: str = ""
    """The tail of a traceback, where there is one."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether it ended as it should."""
        return self.reason in _CLEAN

    def json(self) -> str:
        """Write it on one line."""
        return json.dumps({**asdict(self), "reason": self.reason.value})

    @classmethod
    def parse(cls, text: str) -> ProcessExit:
        """Read what `json` wrote."""
        fields = json.loads(text)
        fields["reason"] = Reason(fields["reason"])
        return cls(**fields)


_CLEAN = frozenset({Reason.DRAINED, Reason.STOPPED, Reason.FINISHED, Reason.IDLE})
