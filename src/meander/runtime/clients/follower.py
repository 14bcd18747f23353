"""Follows outputs in threads that may wait: one sees which nodes there are, one asks each of them.

What they ask, and what they make of answers, is in `following`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from meander.errors import OperatorGoneError, OperatorRefusedError
from meander.runtime.clients.carrier import StepRunner
from meander.runtime.clients.driver_client import DriverClient, renewed
from meander.runtime.clients.following import Following
from meander.runtime.process.script import Ask, FetchRows, Script, iterate, run
from meander.runtime.wire.authority import LIFE_S


class OutputFollower:
    """Has outputs followed. A context manager: leaving it ends its threads."""

    def __init__(self, desk: DriverClient, following: Following) -> None:
        """Begin with the driver that a desk knows; its credentials are kept fresh."""
        self.following = following
        self._desk = desk
        self._threads: dict[tuple[str, str], threading.Thread] = {}

    def __enter__(self) -> OutputFollower:
        threading.Thread(target=self._told, args=(self._watch,), name="nodes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.following.stop()

    def _told(self, work: Callable[..., None], *which: str) -> None:
        """Do the work of a thread; whoever takes rows hears what it raises, whatever that is."""
        try:
            work(*which)
        except Exception as error:
            self.following.fail(error)

    def _watch(self) -> None:
        ask = _asking(self._desk, self._desk)
        for _ in iterate(self.following.watch(self._desk.address), ask):
            with suppress(
                OperatorGoneError, OperatorRefusedError
            ):  # there is half of the time left
                keep_desk_fresh(self._desk)
            self._begin()

    def _begin(self) -> None:
        """Have every node followed by one thread."""
        self._threads = {at: thread for at, thread in self._threads.items() if thread.is_alive()}
        for name, address in self.following.nodes.items():
            if (name, address) not in self._threads:
                thread = threading.Thread(
                    target=self._told, args=(self._follow, name, address),
                    name=f"outputs of {name}", daemon=True,
                )  # fmt: skip
                self._threads[name, address] = thread
                thread.start()

    def _follow(self, node: str, address: str) -> None:
        desk = DriverClient(address, self._desk.credentials)
        try:
            script: Script[None] = self.following.follow(node, address)
            run(script, _asking(desk, self._desk))
        finally:
            desk.close()


def _asking(desk: DriverClient, fresh: DriverClient) -> StepRunner:
    """Ask one process, with the credentials that another desk has: they are renewed."""

    def ask(step: Ask) -> Any:
        return desk.ask(step.what, step.fields, step.timeout_s)

    def fetch(step: FetchRows) -> Any:
        desk.credentials = fresh.credentials
        return desk.fetch(step.fields, step.timeout_s)

    return StepRunner(ask, fetch)


def keep_desk_fresh(desk: DriverClient) -> None:
    """Renew the credentials that a desk shows, when half of the time that they had is over."""
    if desk.credentials.secure and desk.credentials.left_s() < LIFE_S / 2:
        desk.credentials = renewed(desk.address, desk.credentials)
