"""Committing a micro-batch through the driver, as scripts: asked again until it is done.

Spark commits in a process that may be a new one every time; the driver knows the routing table. One
request commits a batch, and is answered when it is durable, or after a while with "not yet".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meander.errors import MeanderError, SinkError
from meander.runtime.clients.driver_client import ASK_S, Part, pack
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import Ask, Script

COMMIT_ASK_S = 30.0
"""How long one request may take."""


def committed(
    address: str,
    query: str,
    batch: int,
    parts: Sequence[Part],
    timeout_s: float,
    clock: Clock = REAL,
) -> Script[None]:
    """Have the driver at an address apply what was staged; wait until it is durable.

    Raises:
        SinkError: if rows were lost, or it takes too long.
        OperatorGoneError: if nobody answers.
        OperatorRefusedError: if the driver cannot commit.
    """
    request = {"query": query, "batch": batch, "parts": pack(parts)}
    end, answer = clock.monotonic() + timeout_s, dict[str, Any]()
    while clock.monotonic() < end:
        answer = yield Ask(address, "commit", request, COMMIT_ASK_S)
        if answer.get("done"):
            return
        if "lost" in answer:
            raise SinkError(answer["lost"])
    raise SinkError(
        f"batch {batch} was not applied within {timeout_s:.0f} s (option commitTimeout): "
        f"{answer.get('why') or 'nodes are busy or being restored, see op.status()'}. It may still "
        "be; started again, the query writes it again, and it counts once"
    )


def forgotten(address: str, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
    """Have what was staged forgotten; where that fails it is forgotten in time."""
    request = {"query": query, "batch": batch, "parts": pack(parts)}
    try:
        yield Ask(address, "abandon", request, ASK_S)
    except MeanderError:
        return
