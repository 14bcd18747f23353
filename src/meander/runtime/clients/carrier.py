"""Carries out the steps of scripts in a thread that may wait: with Flight, and real sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from meander.errors import OperatorGoneError, OperatorRefusedError
from meander.runtime.clients.driver_client import DriverClient, desk_of
from meander.runtime.process.script import (
    LOOK_S,
    LOOK_S_MAX,
    Ask,
    Call,
    Command,
    Do,
    FetchRows,
    Sleep,
    Together,
    Until,
)
from meander.runtime.wire.credentials import Credentials

ASKED_MAX: Final = 32
"""Processes that are asked at the same time."""


class StepRunner:
    """Carries out one step after the other; any thread may use it.

    >>> StepRunner(ask=lambda step: step.what, fetch=lambda step: None)(Ask("", "owners", {}, 1.0))
    'owners'
    """

    def __init__(
        self,
        ask: Callable[[Ask], Any],
        fetch: Callable[[FetchRows], Any],
        changed: threading.Condition | None = None,
    ) -> None:
        """Prepare.

        Args:
            ask: asks another process for facts, and raises what keeps it from an answer.
            fetch: the same for rows.
            changed: notified when it is worth to look again; None: nobody says when.
        """
        self._ask, self._fetch, self._changed = ask, fetch, changed

    def __call__(self, step: Any) -> Any:
        """Carry out a step."""
        kind = type(step)
        if kind is Ask:
            return self._ask(step)
        if kind is FetchRows:
            return self._fetch(step)
        if kind is Together:
            return self._together(step.steps)
        if kind is Sleep:
            return time.sleep(step.seconds)
        if kind is Until:
            return self._wait(step)
        if kind is Do:
            return step.work()
        if kind is Command:
            return step.process.command(step.event).result(step.timeout_s)
        assert kind is Call
        return step.process.call(step.function).result(step.timeout_s)

    def _together(self, steps: Sequence[Ask | FetchRows]) -> list[Any]:
        if len(steps) < 2:
            return [self._answer(step) for step in steps]
        with ThreadPoolExecutor(min(len(steps), ASKED_MAX), "asks") as pool:
            try:
                asked = [pool.submit(self._answer, step) for step in steps]
            except RuntimeError:  # the interpreter ends, and starts no threads: one after the other
                return [self._answer(step) for step in steps]
            return [answer.result() for answer in asked]

    def _answer(self, step: Ask | FetchRows) -> Any:
        try:
            return self(step)
        except (OperatorGoneError, OperatorRefusedError):
            return None

    def _wait(self, step: Until) -> bool:
        end, look_s = time.monotonic() + step.timeout_s, LOOK_S
        told = step.changed is not None or (step.told and self._changed is not None)
        changed = step.changed or self._changed or threading.Condition()
        with changed:
            while not step.true():
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return False
                changed.wait(left_s if told else min(look_s, left_s))
                look_s = min(1.5 * look_s, LOOK_S_MAX)
        return True


def _nobody(step: Ask | FetchRows) -> Any:
    raise AssertionError(f"{step} is asked by a script that asks nobody")


HERE: Final = StepRunner(_nobody, _nobody)
"""For scripts that wait, and ask nobody."""


def by_desk(
    credentials: Credentials | str | Callable[[], Credentials],
    changed: threading.Condition | None = None,
) -> StepRunner:
    """Ask over connections that are kept; errors are those of `DriverClient`.

    Args:
        credentials: what connections show, or what gives it where it is renewed.
        changed: notified when it is worth to look again; None: nobody says when.
    """

    def desk(address: str) -> DriverClient:
        return desk_of(address, credentials() if callable(credentials) else credentials)

    def ask(step: Ask) -> Any:
        return desk(step.address).ask(step.what, step.fields, step.timeout_s)

    def fetch(step: FetchRows) -> Any:
        return desk(step.address).fetch(step.fields, step.timeout_s)

    return StepRunner(ask, fetch, changed)
