"""Carries out the steps of a script in a thread that may wait: with real answers and real sleeps."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeVar

from meander.runtime.clients.driver_client import desk_of
from meander.runtime.process.script import (
    CALL_S_MAX,
    Ask,
    Call,
    Command,
    Fetch,
    Script,
    Sleep,
    Step,
    Until,
    run,
)
from meander.runtime.wire.credentials import Credentials

T = TypeVar("T")

LOOK_S, LOOK_S_MAX = 0.002, 0.02
"""What is waited for is looked at after so long, then less often; and whenever something changes."""


class Waiter:
    """For the scripts of one process; any thread may use it."""

    def __init__(self, credentials: Credentials, changed: threading.Condition) -> None:
        """Use these credentials to ask; `changed` is notified when it is worth to look again."""
        self._credentials, self._changed = credentials, changed

    def run(self, script: Script[T]) -> T:
        """Carry a script out to its end, and give its result."""
        return run(script, self._carry_out)

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Call):
            return step.process.call(step.function).result(CALL_S_MAX)
        if isinstance(step, Command):
            return step.process.command(step.event).result(CALL_S_MAX)
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Until):
            return self._until(step)
        if isinstance(step, Ask):
            desk = desk_of(step.address, self._credentials)
            return desk.ask(step.what, step.fields, step.timeout_s)
        assert isinstance(step, Fetch)
        return desk_of(step.address, self._credentials).fetch(step.fields, step.timeout_s)

    def _until(self, step: Until) -> bool:
        end, look_s = time.monotonic() + step.timeout_s, LOOK_S
        with self._changed:
            while not step.true():
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(look_s, left_s))
                look_s = min(1.5 * look_s, LOOK_S_MAX)
        return True
