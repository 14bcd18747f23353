"""What the driver answers: scripts that nobody needs a socket for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyarrow import flight

from meander.errors import DeployError, MeanderError, QueryError, RowsLostError
from meander.operators import WordCount
from meander.runtime.clients.driver_client import DeploymentInfo, Part, pack
from meander.runtime.clock import Clock
from meander.runtime.driver.core import DriverCore
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.service import DriverService
from meander.runtime.process.script import Call, Script, Sleep, run
from meander.runtime.wire.credentials import Credentials

PARTS: tuple[Part, ...] = ((0, 7, ((3, 100),)),)
ORDER = {"query": "q", "batch": 4, "parts": pack(PARTS)}


class Scribe:
    """A committer that does what the test says."""

    def __init__(self) -> None:
        self.alive, self.trouble, self.closed = True, "n1 is slow", False
        self.done: bool | MeanderError = True
        self.asked: list[tuple[str, int, Sequence[Part]]] = []

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        self.asked.append((query, batch, parts))
        yield Sleep(wait_s)
        if isinstance(self.done, MeanderError):
            raise self.done
        return self.done

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        yield Sleep(0.0)
        self.asked.append((query, batch, parts))

    def close(self) -> None:
        self.closed = True


class Desk:
    def __init__(self) -> None:
        self.scribes: list[Scribe] = []
        self.core = DriverCore(
            Deployment(WordCount(), tasks=8, nodes=2),
            run="r1",
            generation=3,
            store=None,  # type: ignore[arg-type] # nothing is stored: no turn is taken
            issue=lambda kind, name: Credentials("token"),
            launch=lambda spec: None,
            clock=Clock(lambda: 5.0, lambda: 5),
        )
        self.service = DriverService(self.core, self._commits)

    def _commits(self, about: DeploymentInfo) -> Scribe:
        assert (about.run, about.generation) == ("r1", 3)
        self.scribes.append(Scribe())
        return self.scribes[-1]

    def ask(self, what: str, **fields: Any) -> Any:
        def step(step: Any) -> Any:
            return step.function(self.core.master) if isinstance(step, Call) else None

        return run(self.service.requests[what](fields), step)


def test_it_tells_who_it_is_when_it_knows_and_where_the_tasks_are() -> None:
    desk = Desk()
    with pytest.raises(flight.FlightUnavailableError, match="ask again"):
        desk.ask("about")
    desk.core.master.books.started = True
    assert DeploymentInfo.parse(desk.ask("about")).lineage == "r1"
    desk.service.troubles.append(lambda: "the query has failed")
    told = desk.ask("owners")
    assert (told["tasks"], told["runs"]) == (8, [[0, "n1"], [4, "n2"]])
    assert told["trouble"] == "the query has failed"
    assert desk.ask("failure") is None
    desk.core.fail(DeployError("no slots"))
    assert desk.ask("failure") == "no slots"
    with pytest.raises(flight.FlightServerError, match="has failed: no slots"):
        desk.ask("owners")


def test_a_commit_is_done_or_not_yet_or_its_rows_are_lost() -> None:
    desk = Desk()
    assert desk.ask("commit", **ORDER) == {"done": True, "why": ""}
    (scribe,) = desk.scribes
    assert scribe.asked == [("q", 4, PARTS)]
    scribe.done = False
    assert desk.ask("commit", **ORDER) == {"done": False, "why": "n1 is slow"}
    desk.core.lost_tasks.add(3)
    assert "tasks [3] was lost" in desk.ask("commit", **ORDER)["why"]
    scribe.done = RowsLostError(4, 3)
    assert "rows of batch 4" in desk.ask("commit", **ORDER)["lost"]
    scribe.done = QueryError("no connection")
    with pytest.raises(flight.FlightServerError, match="was not committed: no connection"):
        desk.ask("commit", **ORDER)
    assert desk.ask("abandon", **ORDER) == {}


def test_what_cannot_be_read_is_refused_and_a_committer_that_has_ended_is_replaced() -> None:
    desk = Desk()
    for broken in ({}, {**ORDER, "parts": "?"}, {**ORDER, "batch": "x"}):
        for what in ("commit", "abandon"):
            with pytest.raises(flight.FlightServerError, match="was not"):
                desk.ask(what, **broken)
    desk.ask("commit", **ORDER)
    desk.scribes[0].alive = False
    desk.ask("commit", **ORDER)
    assert [scribe.closed for scribe in desk.scribes] == [True, False]
    desk.service.close()
    assert desk.scribes[1].closed


def test_a_deployment_that_failed_says_so_rather_than_that_rows_are_lost() -> None:
    desk = Desk()
    desk.ask("commit", **ORDER)
    scribe = desk.scribes[0]
    scribe.done = RowsLostError(4, 3)
    script = desk.service.requests["commit"](ORDER)
    next(script)
    desk.core.fail(DeployError("the operator raised"))
    with pytest.raises(flight.FlightServerError, match="the operator raised"):
        script.send(None)
