"""Limits hold under load: nobody who is slow, stuck or mad holds up the others."""

from __future__ import annotations

import os
import signal
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import flight
from runtime_kit import WORDS, Stream, counted, pid_of, until
from runtime_operators import Shouts

from meander.operators import WordCount
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import Envelope
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import live_settings
from meander.runtime.wire import inbox
from meander.runtime.wire.codec import encode
from meander.runtime.wire.rows import Mark, Rows
from meander.runtime.wire.transport import Identity

MIB = 2**20


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nobody_who_reads_outputs_can_stop_the_operator(launcher: WarmLauncher) -> None:
    """1. outputs that nobody fetches  2. readers that ask for them and then read nothing."""
    stream = Stream(3, rows=2000)
    with (
        deploy_local(Shouts(), tasks=4, nodes=1, launcher=launcher) as op,
        op.feeder("f") as feeder,
    ):
        for batch in stream.batches(30):
            feeder.feed(batch)
        feeder.flush()
        (address,) = op.driver.nodes().values()
        stuck = []
        for _ in range(5):
            client = op.driver.credentials.connect(address)
            reader = client.do_get(
                flight.Ticket(b'{"kind": "outputs"}'), op.driver.credentials.call()
            )
            stuck.append((client, reader))
        for batch in stream.batches(30):
            feeder.feed(batch)
        feeder.flush()
        assert counted(op) == stream.counts
        fetched = op.outputs().num_rows
        assert fetched == sum(stream.counts.values())
        for client, reader in stuck:
            reader.cancel()
            client.close()


def test_a_feeder_that_sends_garbage_does_not_stop_the_others(launcher: WarmLauncher) -> None:
    stream = Stream(4)
    with (
        deploy_local(WordCount(), tasks=8, nodes=2, launcher=launcher) as op,
        op.feeder("good") as good,
    ):
        good.wait_ready()
        mad = []
        for address in op.driver.nodes().values():
            client = op.driver.credentials.connect(address)
            hello = Identity(op.driver.run, "mad", 0, "127.0.0.1:1").hello()
            command = flight.FlightDescriptor.for_command(hello)
            writer, _ = client.do_put(command, WORDS, op.driver.credentials.call())
            mad.append((client, writer))
        rows = Rows(pa.record_batch({"word": ["mad"] * 9}, schema=WORDS), 0, 9, (Mark(0, 9, 0),))
        for number in range(100):
            good.feed(stream.batch())
            # No task, no right number, no such feeder; then a message that is none.
            chunk = Chunk("mad", 7, 1000 + number, 5 + number, 0, 0, rows, 10**15)
            wire = encode(
                Envelope("mad", 7, "n1", 0, op.driver.process.machine.epoch, Chunks((chunk,)))
            )
            for _, writer in mad:
                writer.write_with_metadata(wire.batch, wire.header)
                writer.write_with_metadata(wire.batch, b"garbage %d" % number)
        good.flush()
        found = counted(op)
        assert found == stream.counts
        assert op.metrics()["malformed"] >= 200
        assert [e for e in op.driver.exits if not e.clean] == []
        for client, writer in mad:
            writer.close()
            client.close()


def stands_still(fed: list[int]) -> bool:
    before = fed[0]
    time.sleep(1.0)
    return fed[0] == before


@pytest.mark.slow
def test_a_node_that_stands_still_holds_a_bounded_amount(launcher: WarmLauncher) -> None:
    """1. the node is stopped  2. its feeder feeds on until it must wait  3. the node goes on."""
    words = [f"{'long' * 25}{i}" for i in range(20_000)]
    batch = pa.record_batch({"word": words}, schema=WORDS)
    stop, fed = threading.Event(), [0]
    patient = live_settings(4, retained_bytes_max=32 * MIB, lease_s=120.0)
    with (
        deploy_local(WordCount(), tasks=4, nodes=1, launcher=launcher, settings=patient) as op,
        op.feeder("f") as feeder,
    ):

        def feed() -> None:
            while not stop.is_set():
                feeder.feed(batch)
                fed[0] += 1

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        until(lambda: fed[0] > 10)
        pid = pid_of(op, "n1")
        before = resident_bytes(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: stands_still(fed), 60.0)
            held = fed[0]
            assert held * batch.nbytes < 3 * patient.retained_bytes_max
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: fed[0] > held)
        stop.set()
        thread.join(60.0)
        feeder.flush()
        assert set(counted(op).values()) == {fed[0]}
        assert resident_bytes(pid) - before < inbox.BYTES_MAX + 256 * MIB
