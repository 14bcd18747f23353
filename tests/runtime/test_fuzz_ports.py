"""Every port of a live deployment under a time-boxed fuzzer: no process dies, no count is wrong.

Three kinds of visitors, in turn, at master, nodes, state server and feeder:

    strangers   random bytes on TCP, broken HTTP/2, every Flight call without the token
    guests      the token is right: random questions, broken greetings, broken Arrow, mutated messages
    senders     a feeder whose chunks are damaged, beside one that does well

A seed is printed with every failure; MEANDER_FUZZ_SEED repeats it, MEANDER_FUZZ_S prolongs it.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyarrow import flight
from runtime_kit import WORDS, Stream, counted

from meander.model import Epoch
from meander.operators import WordCount
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.master.membership import Status
from meander.protocol.messages import Bye, Drop, Envelope, Fetch, Message, Part, Put
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.wire.codec import encode
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.rows import Mark, Rows
from meander.runtime.wire.transport import Identity

SECONDS = float(os.environ.get("MEANDER_FUZZ_S", "4"))
SEED = int(os.environ.get("MEANDER_FUZZ_SEED", random.randrange(10**6)))
CALL_S = 3.0
FORBIDDEN = ("stop",)
"""What a guest may do: not garbage, but orders."""
KINDS = ("state", "outputs", "trace", "metrics", "source", "", "nothing", "__class__")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(2**63), 2**200, 1e308, float("nan"), "", "x" * 600, "../../etc/passwd",
    "\x00", "\ud800", [], [[]], {}, {"a": 1}, [1] * 50, "Infinity",
)  # fmt: skip


@pytest.fixture(scope="module")
def op(launcher: WarmLauncher) -> Iterator[ElasticOperator]:
    with deploy_local(WordCount(), tasks=8, nodes=2, launcher=launcher) as running:
        yield running


def ports(op: ElasticOperator) -> list[str]:
    def find(master: Any) -> list[str]:
        peers = master.membership.peers.values()
        return [p.address for p in peers if p.status is not Status.GONE and p.address]

    return [op.address, *op.driver.process.call(find).result(10)]


class Fuzzer:
    """Makes mischief under a seed, and remembers what it did last."""

    def __init__(self, op: ElasticOperator, seed: int) -> None:
        self.op, self.seed = op, seed
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.last = ""

    def run(self, seconds: float, *visits: Callable[[str], None]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for address in ports(self.op):
                visit = self.random.choice(visits)
                self.last = f"seed {self.seed}, {visit.__name__} at {address}"
                self.done[visit.__name__] += 1
                with suppress(pa.ArrowException, OSError, StopIteration):
                    visit(address)

    # ------------------------------------------------------------------ strangers

    def bytes_on_tcp(self, address: str) -> None:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=CALL_S) as connection:
            if self.random.random() < 0.7:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                for _ in range(self.random.randint(0, 5)):
                    connection.sendall(self._frame())
            else:
                connection.sendall(self.random.randbytes(self.random.randint(0, 3000)))
            if self.random.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(1000)

    def _frame(self) -> bytes:
        """Make an HTTP/2 frame, with a length that may lie."""
        body = self.random.randbytes(self.random.randint(0, 200))
        length = self.random.choice((len(body), len(body), 0, 2**14, 2**24 - 1))
        head = struct.pack(">I", length)[1:] + bytes(
            (self.random.randrange(12), self.random.randrange(256))
        )
        return head + struct.pack(">I", self.random.choice((0, 1, 3, 2**31 - 1))) + body

    def call_without_token(self, address: str) -> None:
        wrong = Credentials(self.random.choice(("", "wrong", "\x7f", "x" * 5000)))
        self._call(address, wrong, self.random.randbytes(self.random.randint(0, 300)))

    # ------------------------------------------------------------------ guests

    def question(self, address: str) -> None:
        fields = {"kind": self.random.choice(KINDS)}
        for name in ("tasks", "release", "after", "key", "name"):
            if self.random.random() < 0.5:
                fields[name] = self.random.choice(ODD)
        body = json.dumps(fields).encode()
        if self.random.random() < 0.3:
            body = self._spoilt(body)
        self._call(address, self.op.driver.credentials, body)

    def _call(self, address: str, credentials: Credentials, body: bytes) -> None:
        options = credentials.call(CALL_S)
        name = self.random.choice((*KINDS, "x" * 1000))
        assert name not in FORBIDDEN
        path = flight.FlightDescriptor.for_command(body)
        with credentials.connect(address) as client:
            kind = self.random.randrange(7)
            if kind == 0:
                list(client.do_action(flight.Action(name, body), options))
            elif kind == 1:
                client.do_get(flight.Ticket(body), options).read_all()
            elif kind == 2:
                client.get_flight_info(path, options)
            elif kind == 3:
                list(client.list_flights(body, options))
            elif kind == 4:
                client.get_schema(path, options)
            else:
                opened = (
                    client.do_exchange(path, options)
                    if kind == 5
                    else client.do_put(path, WORDS, options)
                )
                opened[0].close()

    def greeting(self, address: str) -> None:
        """Begin a stream with a greeting that is not quite right."""
        hello = Identity(self.op.driver.run, "fuzz", 0, "127.0.0.1:1").hello()
        facts = json.loads(hello)
        facts[self.random.choice(list(facts))] = self.random.choice(ODD)
        changed = json.dumps(facts).encode() if self.random.random() < 0.7 else self._spoilt(hello)
        credentials = self.op.driver.credentials
        with credentials.connect(address) as client:
            descriptor = flight.FlightDescriptor.for_command(changed)
            writer, reader = client.do_put(descriptor, WORDS, credentials.call(CALL_S))
            reader.read()
            writer.close()

    def arrow(self, address: str) -> None:
        """Send rows of other types, compressed ones, none, many, and some that lie."""
        batch = self.random.choice(
            (
                pa.record_batch({"n": [1, 2]}),
                pa.record_batch({"word": pa.array(["a", "b"]).dictionary_encode()}),
                pa.record_batch({"word": [[["deep"]]]}),
                pa.record_batch({"word": pa.array([], pa.string())}),
                pa.record_batch({"word": ["a" * 100_000] * 50}),
                pa.record_batch({"word": pa.array([b"\xff\xfe"], pa.binary())}),
            )
        )
        squeeze = self.random.choice((None, "lz4", "zstd"))
        options = flight.FlightCallOptions(
            timeout=CALL_S,
            headers=[(b"x-meander-token", self.op.driver.credentials.token.encode())],
            write_options=pa.ipc.IpcWriteOptions(compression=squeeze),
        )
        headers = [encode(self._envelope()).header for _ in range(3)]
        self._stream(address, batch.schema, options, [(batch, h) for h in headers])

    def messages(self, address: str) -> None:
        """Send well formed messages that mean nothing, and mutated ones."""
        found = []
        for _ in range(20):
            wire = encode(self._envelope())
            header = wire.header
            if self.random.random() < 0.7:
                header = self._mutated(header)
            found.append((wire.batch, header))
        for schema in {None if b is None else b.schema for b, _ in found}:
            mine = [(b, h) for b, h in found if (None if b is None else b.schema) == schema]
            options = self.op.driver.credentials.call(CALL_S)
            self._stream(address, schema or WORDS, options, mine)

    def _stream(self, address: str, schema: Any, options: Any, items: list[Any]) -> None:
        hello = Identity(self.op.driver.run, "fuzz", 0, "127.0.0.1:1").hello()
        with self.op.driver.credentials.connect(address) as client:
            descriptor = flight.FlightDescriptor.for_command(hello)
            writer, reader = client.do_put(descriptor, schema, options)
            reader.read()
            for batch, header in items:
                if batch is None:
                    writer.write_metadata(header)
                else:
                    writer.write_with_metadata(batch, header)
            writer.close()

    def _envelope(self) -> Envelope:
        chance = self.random
        task, at = chance.randrange(-2, 10), Epoch(1, chance.randrange(20))
        rows = Rows(pa.record_batch({"word": ["fuzz"] * 3}, schema=WORDS), 0, 3, (Mark(0, 3, 0),))
        body: Any = chance.choice(
            (
                Bye(chance.randrange(100)),
                Fetch(task, at, chance.randrange(100)),
                Put(task, at, Epoch(1, at.number + 1), b"no state", chance.randrange(2**32)),
                Part(task, at, 0, 3, b"abc", 7),
                Drop(((task, at, Epoch(1, 99)),)),
                Chunks((Chunk("ghost", 1, task, chance.randrange(9), 0, 0, rows, 9),)),
            )
        )
        to = chance.choice((*self.op.driver.nodes(), "master", "f", "server@127.0.0.1"))
        return Envelope("fuzz", chance.randrange(3), to, 0, at, body)

    def _mutated(self, header: bytes) -> bytes:
        """Change the name of the message, or something within it."""
        fields = json.loads(header)
        if self.random.random() < 0.3:
            fields[0] = self.random.choice([kind.__name__ for kind in get_args(Message)])
        at = fields
        while isinstance(at, list) and at:
            index = self.random.randrange(len(at))
            if not isinstance(at[index], list) or self.random.random() < 0.4:
                at[index] = self.random.choice(ODD)
                break
            at = at[index]
        return json.dumps(fields).encode() if self.random.random() < 0.8 else self._spoilt(header)

    def _spoilt(self, data: bytes) -> bytes:
        raw = bytearray(data)
        for _ in range(self.random.randint(1, 8)):
            raw[self.random.randrange(len(raw))] = self.random.randrange(256)
        return bytes(raw[: self.random.randint(1, len(raw))])


def fuzz(op: ElasticOperator, *visits: str) -> Counter[str]:
    """Fuzz while a feeder feeds; then see that nobody died and every count is right."""
    fuzzer, stream, stop = Fuzzer(op, SEED), Stream(SEED), threading.Event()
    counts_before = +Counter({w: c for w, c in counted(op).items() if w != "fuzz"})
    errors: list[Exception] = []

    def feed() -> None:
        try:
            with op.feeder("f") as feeder:
                while not stop.is_set():
                    feeder.feed(stream.batch())
                    time.sleep(0.01)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        fuzzer.run(SECONDS, *(getattr(fuzzer, name) for name in visits))
    finally:
        stop.set()
        thread.join(60.0)
    assert not errors, fuzzer.last
    assert not thread.is_alive(), fuzzer.last
    assert [e for e in op.driver.exits if not e.clean] == [], fuzzer.last
    assert op.driver.failure is None, fuzzer.last
    found = counted(op)
    found.pop("fuzz", None)
    assert found == counts_before + stream.counts, fuzzer.last
    return fuzzer.done


def test_strangers_do_no_harm(op: ElasticOperator) -> None:
    done = fuzz(op, "bytes_on_tcp", "call_without_token")
    assert min(done.values()) > 0


def test_guests_do_no_harm(op: ElasticOperator) -> None:
    refused = op.metrics()["malformed"]
    done = fuzz(op, "question", "greeting", "arrow", "messages")
    assert min(done.values()) > 0
    assert op.metrics()["malformed"] > refused, "something of it was read, and refused"
