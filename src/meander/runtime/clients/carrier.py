"""Carries out the steps of scripts in a thread that may wait: with Flight, and real sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from meander.runtime.clients.driver_client import desk_of
from meander.runtime.process.script import CALL_S_MAX, Ask, Call, Command, Fetch, Sleep, Until
from meander.runtime.wire.credentials import Credentials

POLL_S = 0.01
"""How often something is looked at that a script waits for, where nobody says when to look again."""


class Carrier:
    """Carries out one step after the other.

    >>> Carrier(ask=lambda step: step.what, fetch=lambda step: None)(Ask("", "owners", {}, 1.0))
    'owners'
    """

    def __init__(self, ask: Callable[[Ask], Any], fetch: Callable[[Fetch], Any]) -> None:
        """Prepare; `ask` and `fetch` ask other processes, and raise what keeps them from an answer."""
        self._ask, self._fetch = ask, fetch

    def __call__(self, step: Any) -> Any:
        """Carry out a step."""
        kind = type(step)
        if kind is Ask:
            return self._ask(step)
        if kind is Fetch:
            return self._fetch(step)
        if kind is Sleep:
            return time.sleep(step.seconds)
        if kind is Until:
            return _wait(step)
        if kind is Command:
            return step.process.command(step.event).result(CALL_S_MAX)
        assert kind is Call
        return step.process.call(step.function).result(CALL_S_MAX)


def _wait(step: Until) -> bool:
    end = time.monotonic() + step.timeout_s
    while not (holds := step.true()) and time.monotonic() < end:
        time.sleep(POLL_S)
    return holds


def by_desk(credentials: Credentials | str) -> Carrier:
    """Ask over connections that are kept; errors are those of `DriverClient`."""

    def ask(step: Ask) -> Any:
        return desk_of(step.address, credentials).ask(step.what, step.fields, step.timeout_s)

    def fetch(step: Fetch) -> Any:
        return desk_of(step.address, credentials).fetch(step.fields, step.timeout_s)

    return Carrier(ask, fetch)
