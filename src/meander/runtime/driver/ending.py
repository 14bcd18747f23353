"""How a deployment ends in good order: what is known is kept, and processes end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from meander.errors import DeployError
from meander.runtime.driver import books
from meander.runtime.driver.core import STOPPED, DriverCore
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.service import DriverService
from meander.runtime.process.script import Ask, Call, Script, Sleep, Together, Until

STOP_S: Final = 2.0
"""How long a process may take to hear that it shall stop; whoever does not is killed."""
END_S: Final = 5.0
"""How long the master may take to end, and its store to finish."""


def stop(
    core: DriverCore,
    service: DriverService,
    launcher: Launcher,
    hang_up: Callable[[], None],
    drain_s_max: float,
) -> Script[None]:
    """Have all processes end by themselves, and kill whoever is left. `stopping` is set.

    Args:
        core: the driver.
        service: what it answers to readers and queries.
        launcher: what has started the processes.
        hang_up: closes the master's post.
        drain_s_max: how long processes may take.
    """
    core.rescales.fail(DeployError(STOPPED))
    service.close()
    asked, patience_s = dict[str, str](), 0.0
    with suppress(RuntimeError, TimeoutError):  # the master has ended, or hangs
        asked = yield Call(core.process, books.stoppable, books.ASK_S)
        patience_s = END_S
        yield from _save(core)
    yield from _end_master(core, patience_s)  # before the nodes: what ends from here on is no loss
    yield Together([Ask(address, "stop", {}, STOP_S) for address in asked.values()])
    if asked:  # whoever is still starting cannot hear
        yield Until(lambda: core.staff.running().isdisjoint(asked), drain_s_max)
    launcher.close(drain_s_max)
    hang_up()


def _end_master(core: DriverCore, patience_s: float) -> Script[None]:
    """Have the master's process end, and its store finish: a driver that comes next looks at it."""
    process, clock = core.process, core.process.clock.monotonic
    process.stop("stopped")
    yield Until(lambda: process.ended, patience_s)
    end = clock() + END_S
    process.close_store()
    yield Until(process.stored, max(0.0, end - clock()))


def _save(core: DriverCore) -> Script[None]:
    """Have the manifest written once more: how far feeders are that have just closed is in it."""
    clock = core.process.clock.monotonic
    end = clock() + STOP_S
    while not (yield Call(core.process, books.saved, STOP_S)) and clock() < end:
        yield Sleep(0.01)
