"""What ends a process, and how it is told: by rule, without a socket."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import EndedError, OperatorError
from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.messages import MASTER, Bye, Ending, Envelope, PeerLost
from meander.protocol.settings import Settings
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles import host
from meander.runtime.roles.host import ProcessHost
from meander.runtime.wire.credentials import Credentials


def placed(adapter: Any = None) -> Any:
    """Give a host with a wire that refuses nothing."""
    settings = Settings()
    spec = ProcessSpec("node", "r", "n1", 1, 1, "there:1", Credentials("t"), 4, settings)
    machine = Client("n1", 1, settings, 1, "n1/1/1")
    place: Any = ProcessHost(spec, machine, "127.0.0.1", adapter=adapter)
    place.posted = []
    place.transport = SimpleNamespace(
        refusals={}, post=lambda address, envelope: place.posted.append(envelope.body)
    )
    return place


def ending(place: Any, *, gone: bool = False, idle: bool = False) -> Any:
    found = place._ending(lambda: gone, lambda: idle)
    return None if found is None else found[0]


def test_a_process_goes_on_while_there_is_no_reason_to_end() -> None:
    place = placed()
    assert ending(place) is None
    assert ending(place, idle=True) is Reason.IDLE
    assert ending(place, gone=True) is Reason.DRIVER_LOST
    place.transport.refusals["there:1"] = "another run"
    assert ending(place, gone=True) is Reason.REFUSED


def test_a_master_that_never_answers_is_given_up() -> None:
    place = placed()
    place._began = time.monotonic() - place.spec.settings.launch_s_max - 1.0
    assert ending(place) is Reason.DRIVER_LOST
    place.machine.turn.table = SimpleNamespace()
    assert ending(place) is None


def test_a_master_that_is_lost_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    place = placed()
    place.machine.turn.table = SimpleNamespace()
    monkeypatch.setattr(host, "MASTER_GONE_S", -1.0)
    place._see(PeerLost("n2", 1))
    assert ending(place) is None
    place._see(PeerLost(MASTER, 1))
    assert ending(place) is Reason.DRIVER_LOST
    place._see(Envelope(MASTER, 1, "n1", 1, Epoch(1, 0), Bye(1)))
    assert ending(place) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OperatorError("Sums", 1, (0, 1), "boom"), Reason.OPERATOR_FAILED),
        (KeyError("a bug"), Reason.CRASHED),
    ],
)
def test_an_end_by_an_error_is_raised_with_its_trace(error: Exception, reason: Reason) -> None:
    shell: Any = SimpleNamespace(error=error, reason="why", trace="where", ending=None)
    with pytest.raises(EndedError) as raised:
        ProcessHost._ended(shell)
    assert (raised.value.reason, raised.value.trace) == (reason.value, "where")


@pytest.mark.parametrize("how", list(Ending))
def test_every_other_end_has_a_reason(how: Ending) -> None:
    shell: Any = SimpleNamespace(error=None, reason="why", ending=how)
    assert ProcessHost._ended(shell) == (host.REASONS[how], "why")


def test_an_operator_that_hangs_is_told_of_and_ends() -> None:
    adapter = SimpleNamespace(operator=SimpleNamespace(name="Sums"))
    place, leases = placed(adapter), list[int]()
    shell: Any = SimpleNamespace(
        busy_s=lambda: host.HANGS_S / 2, keep_lease=lambda: leases.append(1), where=lambda: "line 7"
    )
    place._watch(shell)
    assert len(leases) == 1
    shell.busy_s = lambda: host.HANGS_S + 1
    with pytest.raises(EndedError, match="Sums hangs") as raised:
        place._watch(shell)
    assert raised.value.trace == "line 7"
    assert len(place.posted) == 1
