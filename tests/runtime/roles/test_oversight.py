"""What ends a process, and how it is told: by rule, on a clock of the test's, without a socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import EndedError, OperatorError
from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.messages import MASTER, Bye, Ending, Envelope, PeerLost
from meander.protocol.settings import Settings
from meander.runtime.clock import Clock
from meander.runtime.process.process import Process
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles import oversight
from meander.runtime.roles.oversight import Oversight, ended
from meander.runtime.wire.credentials import Credentials


class Watched:
    """A process under oversight, with a wire that refuses nothing, at a time of the test's choice."""

    def __init__(self, operator: str = "") -> None:
        self.now, self.idle, self.posted = 0.0, False, list[Any]()
        settings = Settings()
        spec = ProcessSpec("node", "r", "n1", 1, 1, "there:1", Credentials("t"), 4, settings)
        self.machine = Client("n1", 1, settings, 1, "n1/1/1")
        clock = Clock(lambda: self.now, lambda: 0)
        self.process: Any = Process(self.machine, clock=clock, master_address="there:1")
        self.oversight = Oversight(
            spec, self.process, operator, lambda: self.idle, lambda: "line 7"
        )
        self.post: Any = SimpleNamespace(
            refusals={}, post=lambda _, envelope: self.posted.append(envelope.body)
        )

    def ending(self) -> Reason | None:
        found = self.oversight.look(self.post)
        return None if found is None else found[0]


def test_a_process_goes_on_while_there_is_no_reason_to_end() -> None:
    watched = Watched()
    assert watched.ending() is None
    watched.idle = True
    assert watched.ending() is Reason.IDLE
    watched.post.refusals["there:1"] = "another run"
    assert watched.ending() is Reason.REFUSED


def test_a_master_that_never_answers_is_given_up() -> None:
    watched = Watched()
    watched.now = watched.machine.settings.launch_s_max + 1.0
    assert watched.ending() is Reason.DRIVER_LOST
    watched.machine.turn.table = SimpleNamespace()  # type: ignore[assignment]
    assert watched.ending() is None


def test_a_master_that_is_lost_may_come_back() -> None:
    watched = Watched()
    watched.machine.turn.table = SimpleNamespace()  # type: ignore[assignment]
    watched.oversight.see(PeerLost("n2", 1))
    watched.now = 2 * oversight.MASTER_GONE_S
    assert watched.ending() is None
    watched.oversight.see(PeerLost(MASTER, 1))
    assert watched.ending() is None
    watched.now *= 2
    assert watched.ending() is Reason.DRIVER_LOST
    watched.oversight.see(Envelope(MASTER, 1, "n1", 1, Epoch(1, 0), Bye(1)))
    assert watched.ending() is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OperatorError("Sums", 1, (0, 1), "boom"), Reason.OPERATOR_FAILED),
        (KeyError("a bug"), Reason.CRASHED),
    ],
)
def test_an_end_by_an_error_is_raised_with_its_trace(error: Exception, reason: Reason) -> None:
    process: Any = SimpleNamespace(error=error, reason="why", trace="where", ending=None)
    with pytest.raises(EndedError) as raised:
        ended(process)
    assert (raised.value.reason, raised.value.trace) == (reason.value, "where")


@pytest.mark.parametrize("how", list(Ending))
def test_every_other_end_has_a_reason(how: Ending) -> None:
    process: Any = SimpleNamespace(error=None, reason="why", ending=how)
    assert ended(process) == (oversight.REASONS[how], "why")


def test_the_lease_is_kept_from_the_first_look_at_a_turn_on() -> None:
    """1. a connection breaks, with a beat under way  2. the next is lost, too: its write tells that it
    is broken  3. a turn takes long just before the third: who waits for a beat's time is found dead."""
    watched, leases = Watched("Sums"), list[int]()
    watched.process.keep_lease = lambda: leases.append(1)
    watched.process.busy_s = lambda: 0.0
    assert watched.ending() is None
    assert not leases
    watched.process.busy_s = lambda: 0.01
    assert watched.ending() is None
    assert len(leases) == 1


def test_an_operator_that_hangs_is_told_of_and_ends() -> None:
    watched, leases = Watched("Sums"), list[int]()
    watched.process.busy_s = lambda: oversight.HANGS_S / 2
    watched.process.keep_lease = lambda: leases.append(1)
    assert watched.ending() is None
    assert len(leases) == 1
    watched.process.busy_s = lambda: oversight.HANGS_S + 1
    with pytest.raises(EndedError, match="Sums hangs") as raised:
        watched.ending()
    assert raised.value.trace == "line 7"
    assert len(watched.posted) == 1
