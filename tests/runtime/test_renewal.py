"""Certificates are renewed while a deployment runs: here they live for seconds."""

from __future__ import annotations

import logging
import os
import signal
import ssl
import time

import pytest
from cryptography import x509
from pyarrow import flight
from runtime_kit import Stream, counted, pid_of, until

from meander.errors import InputError, OperatorRefusedError
from meander.operators import WordCount
from meander.runtime.clients.driver_client import DriverClient, renewed
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.wire import authority, renewal, transport
from meander.runtime.wire.authority import Guard
from meander.runtime.wire.credentials import RENEW, Credentials
from meander.runtime.wire.presence import Caller, Pulse
from meander.runtime.wire.pulse import look

LIFE_S = 3.0


def serial_at(address: str) -> int:
    """Look which certificate is shown at a port."""
    host, _, port = address.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port)), timeout=5.0)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def serial_of(credentials: Credentials) -> int:
    return x509.load_pem_x509_certificate(credentials.certificate.encode()).serial_number


def shown(op: ElasticOperator) -> dict[str, int]:
    """By process: which certificate it shows."""
    places = {**op.driver.nodes(), "master": op.address}
    return {name: serial_at(address) for name, address in places.items()}


def others_than(before: dict[str, int], after: dict[str, int]) -> bool:
    return all(after[name] != before[name] for name in before.keys() & after.keys())


def test_a_deployment_outlives_its_certificates(
    launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1. certificates of three seconds  2. rows flow for three lives of them, nodes come and go
    3. every port shows others than before, no row is lost or counted twice, nobody was taken for
    lost, and who still has a first one is not let in."""
    monkeypatch.setattr(authority, "LIFE_S", LIFE_S)
    stream, beats = Stream(5, rows=200), 0
    with (
        caplog.at_level(logging.INFO, "meander"),
        deploy_local(WordCount(), tasks=16, nodes=2, launcher=launcher, tls=True) as op,
    ):
        before, began = shown(op), time.monotonic()
        first = renewed(op.address, op.driver.issue("old"))
        feeder = op.feeder("words")
        while time.monotonic() - began < 3 * LIFE_S:
            feeder.feed(stream.batch())
            beats += 1
            if beats % 60 == 0:
                op.rescale(3 if beats % 120 else 2).wait(20.0)
            time.sleep(0.02)
        assert first.left_s() < 0
        feeder.close()
        assert counted(op) == stream.counts
        until(lambda: others_than(before, shown(op)))
        assert not [r for r in caplog.records if "has no new certificate" in r.getMessage()]
        assert not [r for r in caplog.records if "lost" in r.getMessage()]
        with pytest.raises(Exception, match=r"refused|handshake|unavailable|gone|no operator"):
            DriverClient(op.address, first).ask("about", timeout_s=2.0)


def test_a_port_that_could_not_be_had_again_is_had_within_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listened until half of the new certificate's life was over: three and a half days."""
    guard = Guard("r", "127.0.0.1", tls=True)
    monkeypatch.setattr(authority, "LIFE_S", 2.0)
    first = guard.issue("node", "n1")
    monkeypatch.setattr(authority, "LIFE_S", 1000.0)
    monkeypatch.setattr(transport, "LISTEN_S_MAX", 0.0)
    node = transport.Transport(lambda _: None, run="r", peer="n1", credentials=first, incarnation=1)
    real, refused = transport.Server, list[str]()

    def taken(of: transport.Transport, address: str) -> transport.Server:
        if len(refused) < 2:
            refused.append(address)
            raise OSError("the port is taken")
        return real(of, address)

    monkeypatch.setattr(transport, "Server", taken)
    asked: list[Credentials] = []

    def obtain() -> Credentials:
        asked.append(guard.issue("node", "n1"))
        return asked[-1]

    try:
        renewal.keep_fresh(node, obtain)
        until(lambda: len(refused) == 2)
        until(lambda: look(node.credentials, Caller("n1", 1, node.address)) is Pulse.ALIVE)
        assert serial_at(node.address) == serial_of(asked[0])
        assert len(asked) == 1
        assert caplog.text.count("n1 has a new certificate, but not its port") == 2
    finally:
        node.close()


def test_a_successor_comes_with_a_certificate_of_its_own(
    launcher: WarmLauncher,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setattr(authority, "LIFE_S", LIFE_S)
    stream, where = Stream(6), str(tmp_path_factory.mktemp("checkpoint"))
    with deploy_local(
        WordCount(), tasks=8, nodes=2, launcher=launcher, tls=True, checkpoint=where,
        checkpoint_s=0.1,
    ) as op:  # fmt: skip
        with op.feeder("words") as feeder:
            feeder.feed(stream.batch())
            feeder.flush(durable=True)
            time.sleep(LIFE_S)
            os.kill(pid_of(op, "n1"), signal.SIGKILL)
            feeder.feed(stream.batch())
        assert counted(op) == stream.counts


def test_only_the_holder_of_a_certificate_is_given_another(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), tasks=4, nodes=1, launcher=launcher, tls=True) as op:
        mine = op.driver.issue("words")
        fresh = renewed(op.address, mine)
        assert fresh.left_s() <= authority.LIFE_S < mine.left_s()
        assert serial_of(fresh) != serial_of(mine)
        uri = x509.load_pem_x509_certificate(fresh.certificate.encode()).extensions
        names = uri.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
            f"meander://{op.driver.run}/feeder/words"
        ]
        node = next(iter(op.driver.nodes().values()))
        with pytest.raises(OperatorRefusedError, match="makes no credentials"):
            DriverClient(node, mine).ask(RENEW)
        strange = Guard("other", "127.0.0.1", tls=True).issue("feeder", "words")
        with pytest.raises(flight.FlightError):
            strange.connect(op.address, greet_s=2.0)
        with pytest.raises(InputError, match="nobody of this deployment"):
            op.driver.guard.renew("meander://other/node/n1")
