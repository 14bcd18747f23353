"""A process finds the address that its master is reached from, also while there is no way to it."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from meander.protocol.settings import Settings
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles import entry
from meander.runtime.wire.credentials import Credentials

SPEC = ProcessSpec("server", "r", "server@h", 1, 1, "10.0.0.9:7", Credentials("t"), 4, Settings())


class Network:
    """Fails as it is told, and then connects."""

    def __init__(self, *failures: OSError) -> None:
        self.failures = list(failures)

    def connect(self, *_: Any, timeout: float) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return nullcontext(SimpleNamespace(getsockname=lambda: ("10.0.0.7", 5)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "REACH_AGAIN_S", 0.001)


@pytest.mark.usefixtures("quick")
def test_a_cable_that_is_put_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(OSError(113, "No route to host"), TimeoutError("timed out"))
    monkeypatch.setattr(socket, "create_connection", network.connect)
    assert entry.local_host(SPEC) == "10.0.0.7"


@pytest.mark.usefixtures("quick")
def test_without_a_way_or_a_master_the_driver_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not crashed: after five such nodes in a row the deployment would be given up."""
    network = Network(*[OSError(113, "No route to host")] * 99)
    monkeypatch.setattr(socket, "create_connection", network.connect)
    lost = replace(SPEC, settings=replace(SPEC.settings, launch_s_max=0.01))
    ended = entry.run_server(lost)
    assert ended.reason is Reason.DRIVER_LOST
    assert "no way to the master at 10.0.0.9:7" in ended.detail
    network.failures = [ConnectionRefusedError(111, "refused")]
    assert entry.run_server(SPEC).reason is Reason.DRIVER_LOST
