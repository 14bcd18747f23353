"""The driver's answers on Flight: carries out their scripts, on the threads that ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from meander.runtime.clients.driver_client import DeploymentInfo, Part
from meander.runtime.clients.query import PEERS, QueryClient
from meander.runtime.driver.service import DriverService, Request
from meander.runtime.process.script import Script

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver


def open_desk(driver: Driver) -> DriverService:
    """Answer from now on: the driver has started its transport."""
    assert driver.transport is not None
    service = DriverService(driver.core, partial(QueryCommitter, driver))
    for name, request in service.requests.items():
        driver.transport.actions[name] = partial(_answer, driver, request)
    return service


def _answer(driver: Driver, request: Request, fields: Mapping[str, Any]) -> Any:
    return driver.carry_out(request(fields))


class QueryCommitter:
    """Commits with a query client of this process."""

    def __init__(self, driver: Driver, about: DeploymentInfo) -> None:
        self._client = QueryClient(about, driver.address, driver.issue(PEERS), host=driver.host)

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._client.alive

    @property
    def trouble(self) -> str:
        """What holds commits up."""
        return self._client.machine.trouble

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        """Start to commit, or go on; tell whether it is done after so long."""
        yield from ()
        return self._client.begin(query, batch, parts, wait_s)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        """Have what was written forgotten."""
        yield from ()
        self._client.abandon(query, batch, parts)

    def close(self) -> None:
        """Leave."""
        self._client.close()
