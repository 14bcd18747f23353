"""What a deployment answers to whoever has its address and token: readers, writers of queries.

    desk = DriverClient("127.0.0.1:40112", credentials)
    desk.about()                      # operator, columns, tasks: all that a writer must know
    desk.ask("owners")                # which node has which task, now

Everything here is cheap to import: Spark plans every query in Python processes of its own, which
start cold. The driver's side is `runtime.driver.service`.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import flight

from meander.errors import (
    InputError,
    OperatorGoneError,
    OperatorRefusedError,
    UnanswerableError,
)
from meander.model import TaskId
from meander.protocol.settings import Settings
from meander.runtime.wire.credentials import RENEW, Credentials
from meander.runtime.wire.version import REQUEST_BYTES_MAX, versions

ASK_S = 20.0
"""How long a question may take that the driver answers by itself."""
FETCH_S = 60.0
"""How long rows may take."""
PARTS_BYTES_MAX = 64 * 2**20
"""What the parts of one micro-batch may unpack to."""


@dataclass(frozen=True)
class DeploymentInfo:
    """One deployment, as its driver describes it."""

    operator: str
    """The operator's name."""
    run: str
    lineage: str
    """The same for deployments that go on from one checkpoint directory; else the run."""
    generation: int
    tasks: int
    keys: tuple[str, ...]
    schema: pa.Schema
    """Of the rows that come in."""
    event_time: str | None
    """The column that says when a row happened; None: the operator has no event time."""
    output_schema: pa.Schema | None
    """Of what it emits; None: it does not say."""
    state_schema: pa.Schema | None
    """Of what `show` gives; None: it is known when there is a state."""
    adopted_schema: pa.Schema | None
    """Of rows of a state that it takes; None: it takes none."""
    aggregates: Mapping[str, tuple[str, str | None, str | None]] | None
    """What an operator that aggregates by key makes (function, column, by): so whoever writes rows can
    combine them, without the operator. None: nobody else knows how to combine its rows."""
    settings: Settings
    durable: bool
    """Whether there are checkpoints."""
    zookeeper: str
    versions: Mapping[str, str]
    first: int = 0
    """The number of the operator's first task."""

    def json(self) -> dict[str, Any]:
        """Write it for the wire."""
        schemas = ("schema", "output_schema", "state_schema", "adopted_schema")
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        packed = {name: pack_schema(plain[name]) for name in schemas}
        return {**plain, **packed, "settings": asdict(self.settings)}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> DeploymentInfo:
        """Read what `json` wrote.

        Raises:
            OperatorRefusedError: if the other side runs other versions.
        """
        theirs, mine = dict(fields.get("versions", {})), versions()
        wrong = [
            f"{k} {theirs.get(k)} there, {v} here" for k, v in mine.items() if theirs.get(k) != v
        ]
        if wrong:
            raise OperatorRefusedError(
                f"the operator runs other versions than this process ({'; '.join(wrong)}): "
                "install the same ones on all hosts"
            )
        schemas = {name: unpack_schema(fields[name]) for name in fields if name.endswith("schema")}
        settings = Settings(**fields["settings"])
        return cls(**{**fields, **schemas, "keys": tuple(fields["keys"]), "settings": settings})


def pack_schema(schema: pa.Schema | None) -> str | None:
    """Write a schema as text."""
    return None if schema is None else base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpack_schema(text: str | None) -> pa.Schema | None:
    """Read what `pack_schema` wrote.

    >>> unpack_schema(pack_schema(pa.schema({"word": pa.string()}))).names
    ['word']
    """
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def free(name: str, taken: Sequence[str]) -> str:
    """Give a name for a column that we add to a user's.

    >>> free("task", ["word", "count"]), free("task", ["task", "load"])
    ('task', 'task_')
    """
    return free(f"{name}_", taken) if name in taken else name


Part: TypeAlias = tuple[int, int, tuple[tuple[TaskId, int], ...]]
"""(piece, attempt, ((task, rows), …)): what a writer of a micro-batch hands to its committer."""


def pack(parts: Sequence[Part]) -> str:
    """Write what was staged, for a request: a few bytes per partition and task.

    Raises:
        InputError: if there is more than a request can hold.
    """
    head = json.dumps([[piece, attempt, len(counts)] for piece, attempt, counts in parts]).encode()
    pairs = np.array([pair for *_, counts in parts for pair in counts], np.int64).reshape(-1, 2)
    steps = np.diff(pairs[:, 0], prepend=0)  # tasks ascend: most steps are alike
    raw = b"".join([len(head).to_bytes(4, "little"), head, _bytes(steps), _bytes(pairs[:, 1])])
    text = base64.b64encode(zlib.compress(raw, 1)).decode()
    if len(text) > REQUEST_BYTES_MAX - 2**12:
        raise InputError(
            f"a batch of {len(parts)} partitions for {len(pairs)} places is too much for one commit: "
            "write fewer, larger partitions (coalesce)"
        )
    return text


def _bytes(numbers: npt.NDArray[np.int64]) -> bytes:
    """Lay numbers out byte by byte: the high ones are zeros, and vanish when compressed."""
    return bytes(numbers.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes())


def unpack(text: str) -> tuple[Part, ...]:
    """Read what `pack` wrote.

    Raises:
        ValueError: if it is something else.

    >>> unpack(pack([(0, 7, ((3, 100), (5, 1))), (1, 9, ())]))
    ((0, 7, ((3, 100), (5, 1))), (1, 9, ()))
    """
    try:
        return _unpack(zlib.decompressobj().decompress(base64.b64decode(text), PARTS_BYTES_MAX))
    except (zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"the parts of a batch cannot be read: {error}") from None


def _unpack(raw: bytes) -> tuple[Part, ...]:
    at = 4 + int.from_bytes(raw[:4], "little")
    head = [[int(number) for number in part] for part in json.loads(raw[4:at])]
    places = sum(count for _, _, count in head)
    if len(raw) != at + 16 * places or min((count for _, _, count in head), default=0) < 0:
        raise ValueError("they are cut short")
    numbers = np.frombuffer(raw, np.uint8, offset=at).reshape(2, 8, places)
    steps, rows = (np.ascontiguousarray(half.T).view("<i8").ravel() for half in numbers)
    pairs = list(zip(np.cumsum(steps).tolist(), rows.tolist(), strict=True))
    found, start = [], 0
    for piece, attempt, count in head:
        found.append((piece, attempt, tuple(pairs[start : start + count])))
        start += count
    return tuple(found)


class DriverClient:
    """Asks one driver, or one node, over a connection that is kept."""

    def __init__(self, address: str, credentials: Credentials | str) -> None:
        """Dial nothing yet.

        Raises:
            InputError: if that is no address.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError(
                f"{address!r} is no address of an operator: give op.address, host:port"
            )
        self.address, self.credentials = address, Credentials.of(credentials)
        self._client: flight.FlightClient | None = None
        self._about: dict[str, DeploymentInfo] = {}
        self._lock = threading.Lock()

    def ask(
        self, what: str, fields: Mapping[str, Any] | None = None, timeout_s: float = ASK_S
    ) -> Any:
        """Ask for facts.

        Raises:
            OperatorGoneError: if nobody answers.
            OperatorRefusedError: if the answer is a refusal; it says why.
            UnanswerableError: if there is an answer that cannot be sent.
        """
        action = flight.Action(what, json.dumps(fields or {}).encode())
        with self._explained():
            (answer,) = self._connection().do_action(action, self.credentials.call(timeout_s))
        return json.loads(answer.body.to_pybytes())

    def fetch(self, fields: Mapping[str, Any], timeout_s: float = FETCH_S) -> pa.Table:
        """Ask for rows, as a table; errors as for `ask`."""
        ticket = flight.Ticket(json.dumps(fields).encode())
        with self._explained():
            table = self._connection().do_get(ticket, self.credentials.call(timeout_s)).read_all()
        table.validate(full=True)
        return table

    def about(self, **which: str | None) -> DeploymentInfo:
        """Tell what is deployed there; asked for once per connection.

        Of a topology, `input`, `output` or `operator` names which operator; None: the only one.
        """
        key = json.dumps(which)
        if key not in self._about:
            self._about[key] = DeploymentInfo.parse(self.ask("about", which))
        return self._about[key]

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            client, self._client, self._about = self._client, None, {}
        if client is not None:
            client.close()

    def _connection(self) -> flight.FlightClient:
        with self._lock:
            if self._client is None:
                self._client = self.credentials.connect(self.address)
            return self._client

    def _explained(self) -> _Explained:
        return _Explained(self)


class _Explained:
    """Turns what Flight raises into what it means here."""

    def __init__(self, desk: DriverClient) -> None:
        self.desk = desk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not isinstance(error, pa.ArrowException):
            return
        self.desk.close()
        address, text = self.desk.address, str(error).split(". Detail:", maxsplit=1)[0]
        if isinstance(error, flight.FlightUnauthenticatedError):
            raise OperatorRefusedError(
                f"the operator at {address} refused the token: use the session that deployed it, or "
                'give op.credentials with .option("token", …)'
            ) from None
        if isinstance(error, flight.FlightServerError):
            raise OperatorRefusedError(f"the operator at {address}: {text}") from None
        if not isinstance(error, flight.FlightError):
            raise UnanswerableError(f"the operator at {address}", text) from None
        raise OperatorGoneError(address) from None


_DESKS: dict[tuple[int, str, str], DriverClient] = {}
"""By process, address and token: Spark uses its Python workers again."""


def desk_of(address: str, credentials: Credentials | str) -> DriverClient:
    """Give the client of an address, the same one in every call of this process."""
    newest = Credentials.of(credentials)
    key = os.getpid(), address, newest.token
    if key not in _DESKS:
        _DESKS[key] = DriverClient(address, newest)
    _DESKS[key].credentials = newest  # for the next time it dials
    return _DESKS[key]


def renewed(master: str, credentials: Credentials) -> Credentials:
    """Ask the driver for new credentials, with those that are still good.

    Raises:
        OperatorGoneError: if nobody answers.
        OperatorRefusedError: if the answer is a refusal.
    """
    desk = DriverClient(master, credentials)
    try:
        return Credentials(**desk.ask(RENEW))
    finally:
        desk.close()
