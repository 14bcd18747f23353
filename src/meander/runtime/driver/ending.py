"""How a deployment ends in good order: what is known is kept, and processes end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from meander.errors import MeanderError
from meander.runtime.driver import books
from meander.runtime.driver.core import DriverCore
from meander.runtime.process.script import Ask, Call, Script, Sleep, Until

STOP_S: Final = 2.0
"""How long a process may take to hear that it shall stop; whoever does not is killed."""


def stop(core: DriverCore, end_master: Callable[[], None], drain_s_max: float) -> Script[None]:
    """Have all processes end by themselves; whoever is left must be killed. `stopping` is set.

    Args:
        core: the driver.
        end_master: has the master's process end, and its store finish.
        drain_s_max: how long processes may take.
    """
    asked = dict[str, str]()
    with suppress(RuntimeError, TimeoutError):  # the master has ended, or hangs
        asked = yield Call(core.process, books.stoppable, books.ASK_S)
        yield from _save(core)
    end_master()  # before the nodes: what ends from here on is no loss
    for address in asked.values():
        with suppress(MeanderError):  # it has ended
            yield Ask(address, "stop", {}, STOP_S)
    if asked:  # whoever is still starting cannot hear
        yield Until(lambda: core.staff.running().isdisjoint(asked), drain_s_max)


def _save(core: DriverCore) -> Script[None]:
    """Have the manifest written once more: how far feeders are that have just closed is in it."""
    clock = core.process.clock.monotonic
    end = clock() + STOP_S
    while not (yield Call(core.process, books.saved, STOP_S)) and clock() < end:
        yield Sleep(0.01)
