"""Carries out scripts that wait for a machine of this process: it says when to look again."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeVar

from meander.runtime.clients.carrier import by_desk
from meander.runtime.process.script import Script, Step, Until, run
from meander.runtime.wire.credentials import Credentials

T = TypeVar("T")

LOOK_S, LOOK_S_MAX = 0.002, 0.02
"""What is waited for is looked at after so long, then less often; and whenever something changes."""


class Waiter:
    """For the scripts of one process; any thread may use it."""

    def __init__(self, credentials: Credentials, changed: threading.Condition) -> None:
        """Use these credentials to ask; `changed` is notified when it is worth to look again."""
        self._carrier, self._changed = by_desk(credentials), changed

    def run(self, script: Script[T]) -> T:
        """Carry a script out to its end, and give its result."""
        return run(script, self._carry_out)

    def _carry_out(self, step: Step) -> Any:
        return self._until(step) if isinstance(step, Until) else self._carrier(step)

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
