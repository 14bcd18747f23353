"""Addresses of hosts: what was not known for a moment is asked again."""

from __future__ import annotations

import socket

import pytest

from meander.spark.cluster import executors


def test_a_lookup_that_failed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was not found once had its name for an address as long as the program lived."""
    asked: list[str] = []

    def flaky(host: str) -> str:
        asked.append(host)
        if len(asked) == 1:
            raise socket.gaierror("Temporary failure in name resolution")
        return "10.0.0.7"

    monkeypatch.setattr(socket, "gethostbyname", flaky)
    found = [executors.address_of("worker-of-this-test") for _ in range(3)]
    assert found == ["worker-of-this-test", "10.0.0.7", "10.0.0.7"]
    assert len(asked) == 2
