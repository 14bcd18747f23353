"""Nodes that leave and others that take their place, of the same version of the operator or of another.

Both are rescales that name more than a number: who shall not be there in the end, or what all shall
run. How many there can be is known to the master's books and the launcher's slots, so the command is
made on the master's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from meander.errors import InputError, MigrationError
from meander.model import NodeId
from meander.protocol.master.master import Master
from meander.protocol.messages import Rescale
from meander.runtime.driver import books
from meander.runtime.driver.rescales import Rescaling
from meander.runtime.driver.versions import Version
from meander.runtime.store.resume import describe

if TYPE_CHECKING:
    from meander.runtime.driver.core import DriverCore

log = logging.getLogger(__name__)

NOTICE_S: Final = 60.0
"""In how long nodes are taken away, where nobody has said."""
NOTICE_S_MIN: Final = 1.0
"""In how short a time it is tried at all."""
NOTICE_PAUSE_MS: Final = 100.0
"""How long rows may wait for what moves because a node is taken away."""


def vacate(
    core: DriverCore, rescaling: Rescaling, gone: Sequence[NodeId], command: Rescale
) -> Future[None]:
    """Have nodes leave: as many others take their place as there is room for.

    The future has an InputError if nobody would be left.
    """
    room = core.room()

    def begin(master: Master) -> list[Any]:
        nodes = books.without(master, gone, room)
        if not nodes:
            raise InputError("nobody would be left, and there is no room for other nodes")
        wish = command._replace(nodes=nodes, leaving=tuple(gone))
        actions = core.rescales.begin(rescaling, wish, master)
        rescaling.nodes = nodes
        return actions

    return core.process.do(begin)


def taken_away(core: DriverCore, nodes: Sequence[NodeId], within_s: float = NOTICE_S) -> None:
    """Hear that nodes are taken away soon: others take their tasks before; from any thread."""
    if not core.stopping and core.failure is None:
        command = Rescale(1, NOTICE_PAUSE_MS, within_s=max(within_s, NOTICE_S_MIN))
        vacate(core, Rescaling(1), nodes, command).add_done_callback(_log_refusal)


def _log_refusal(answer: Future[None]) -> None:
    """Say why a node that is taken away stays until then."""
    error = answer.exception()
    if error is not None:
        log.warning("nobody takes the place of a node that is taken away: %s", error)


def upgrade(
    core: DriverCore,
    rescaling: Rescaling,
    version: Version,
    command: Rescale,
    *,
    one_way: bool,
    back: bool = False,
) -> Future[None]:
    """Have all nodes replaced by such with another version of the operator.

    Args:
        core: the driver.
        rescaling: hears what becomes of it.
        version: what the others run.
        command: how many nodes (0: as many as there are), and limits of the rounds.
        one_way: whether the nodes of now cannot read what the others write.
        back: whether it heads back from an upgrade under way, whose end is then that it was rolled
            back. The future has a MigrationError if that is over.
    """

    def begin(master: Master) -> list[Any]:
        if back and rescaling.over:
            text = f"migration {rescaling.number} was {rescaling.stage}: it cannot roll back"
            raise MigrationError(text)
        if books.upgrading(master) and not back:
            raise InputError("an upgrade is under way: wait for it, or roll it back")
        nodes, number = command.nodes or books.wanted(master), len(core.versions) + 1
        wish = command._replace(nodes=nodes, version=number, one_way=one_way)
        core.versions.append(version)  # other threads look it up as soon as the master names it
        try:
            actions = core.rescales.begin(rescaling, wish, master, back=back)
        except BaseException:
            if master.books.version != number:
                core.versions.pop()
            raise
        rescaling.nodes = nodes
        if one_way:
            master.archive.describe(describe(version.operator))
        return actions

    return core.process.do(begin)
