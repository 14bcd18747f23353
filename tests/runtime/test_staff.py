"""What the end of a process means for a deployment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from meander.errors import CheckpointError
from meander.protocol.master import Master
from meander.runtime.spec import ProcessExit, Reason
from meander.runtime.staff import FAILED_STARTS_MAX, Staff


def master(up: bool) -> Master:
    return cast(Master, SimpleNamespace(membership=SimpleNamespace(up=lambda *_: up)))


def test_a_checkpoint_is_broken_if_a_node_says_so_that_was_not_replaced() -> None:
    """A node that stood still wakes up replaced, and finds the records gone that it wanted."""
    ended = ProcessExit("node", "n1", 1, Reason.CHECKPOINT_FAILED, "the file is missing")
    staff = Staff(cast(Any, None))
    assert isinstance(staff.failure(ended, master(up=True)), CheckpointError)
    said = [staff.failure(ended, master(up=False)) for _ in range(FAILED_STARTS_MAX)]
    assert said[:-1] == [None] * (FAILED_STARTS_MAX - 1)
    assert isinstance(said[-1], CheckpointError), "it does not go on like this for ever"
