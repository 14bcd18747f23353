"""Deployments with their checkpoint on a real S3 server: also while it is gone; credentials."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from files_kit import s3_server
from runtime_kit import Stream, counted, pid_of, until

from meander.cli.main import main
from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.store import bucket
from meander.runtime.store.bucket import open_bucket
from meander.runtime.store.filesystem import open_files
from meander_lab.servers.s3 import S3


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as running:
        running.bucket("checkpoints")
        yield running


@pytest.fixture(scope="module")
def launcher(server: S3) -> Iterator[WarmLauncher]:
    """Started when the environment has the credentials: its processes inherit them."""
    shared = WarmLauncher()
    yield shared
    shared.end()


def deployed(server: S3, launcher: WarmLauncher, folder: str, **settings: Any) -> Any:
    where = server.address(f"checkpoints/{folder}")
    return deploy_local(
        WordCount(), tasks=8, checkpoint=where, checkpoint_s=0.1, launcher=launcher, **settings
    )


def test_a_deployment_goes_on_from_s3_and_survives_a_lost_node(
    server: S3, launcher: WarmLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    import os
    import signal

    stream = Stream(3)
    with deployed(server, launcher, "words", nodes=2) as op:
        with op.feeder("words") as feeder:
            for batch in stream.batches(20):
                feeder.feed(batch)
            feeder.flush(durable=True)
            os.kill(pid_of(op, "n1"), signal.SIGKILL)
            for batch in stream.batches(20):
                feeder.feed(batch)
        assert counted(op) == stream.counts
    with deployed(server, launcher, "words", nodes=3) as again:
        assert counted(again) == stream.counts
    where = server.address("checkpoints/words")
    assert main(["checkpoint", "verify", where]) == 0
    assert server.secret not in "".join(capsys.readouterr())


def outage(
    server: S3, launcher: WarmLauncher, folder: str, seconds: float, log: pytest.LogCaptureFixture
) -> None:
    """1. rows flow  2. nobody answers at the store's address: `status` says so, and the log  3. rows
    flow on  4. it answers again: all becomes durable, and a new driver finds every count."""
    stream = Stream(4)
    with deployed(server, launcher, folder, nodes=2) as op:
        feeder = op.feeder("words")
        feeder.feed(stream.batch())
        feeder.flush(durable=True)
        log.clear()
        server.stop()
        try:
            end, told = time.monotonic() + seconds, ""
            while time.monotonic() < end or not told:
                feeder.feed(stream.batch())
                told = op.status()["store"] or told
                time.sleep(seconds / 100)  # feeders keep what they may, then they wait
            assert counted(op) == stream.counts, "rows are taken all the while"
        finally:
            server.start()
        assert "the durable store fails" in told
        assert "nothing is lost" in told
        feeder.feed(stream.batch())
        feeder.close()
        until(lambda: op.status()["store"] is None)
        assert counted(op) == stream.counts
        said = [r.getMessage() for r in log.records if r.levelno >= logging.WARNING]
        assert any("the durable store" in line for line in said), (
            "of the nodes, or of the driver itself"
        )
        own = [line for line in said if line.startswith("the durable store cannot write: ")]
        assert not own or "over after" in own[-1]
        assert server.secret not in log.text
        assert server.key not in log.text
    with deployed(server, launcher, folder, nodes=1) as again:
        assert counted(again) == stream.counts


def test_the_store_may_be_gone_for_a_while(
    server: S3, launcher: WarmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    outage(server, launcher, "gone", 2.0, caplog)


@pytest.mark.slow
def test_the_store_may_be_gone_for_a_minute(
    server: S3, launcher: WarmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    outage(server, launcher, "long-gone", 60.0, caplog)


def test_a_store_that_cannot_be_used_is_named_with_what_it_answers(
    server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="NoSuchBucket"):
        open_files(server.address("nowhere/x")).prepare()
    open_files(server.address("checkpoints/x")).prepare()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(InputError, match="403 Forbidden: SignatureDoesNotMatch") as refused:
        open_files(server.address("checkpoints/x")).prepare()
    assert server.key not in str(refused.value)


def test_a_store_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and says nothing."""
    import socket

    monkeypatch.setattr(bucket, "REQUEST_S_MAX", 0.3)
    monkeypatch.setattr(bucket, "RETRIES_MAX", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        files = open_files(f"s3://b/x?endpoint=http://127.0.0.1:{port}")
        began = time.monotonic()
        with pytest.raises(OSError, match=r"timed out|error sending request"):
            files.list("claim")
        with pytest.raises(OSError, match=r"timed out|error sending request"):
            files.publish("manifest/1.json", b"{}")
        assert time.monotonic() - began < 20.0


@pytest.mark.parametrize(
    "where",
    ["s3://key:secret@bucket/x", "s3a://key@bucket/x", "s3://bucket/x?access_key_id=key", "s3://"],
)
def test_an_address_has_no_credentials_and_names_a_bucket(where: str) -> None:
    with pytest.raises(InputError) as refused:
        open_bucket(where)
    assert "secret" not in str(refused.value)


def test_it_needs_a_package_and_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install \"meander\[s3\]\""):
        open_files("gs://bucket/x")
    open_files(str(tmp_path)).prepare()
