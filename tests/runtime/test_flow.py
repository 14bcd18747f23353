"""The frame of a stream with a script, without a deployment: what is fed, done and raised."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

import pytest

from meander.run.flow import Feeding, Step, flow
from meander.sources.pacing import PacedPiece


def pieces(seconds: float, many: int = 10) -> list[PacedPiece]:
    return [PacedPiece(k, f"batch {k}", k * seconds / many) for k in range(many)]


def test_everything_is_fed_and_every_step_done_at_its_moment() -> None:
    start, fed = time.time(), list[tuple[int, Any, float | None]]()
    script = [Step(0.1, 3), Step(0.2, 2)]

    def act(step: Step) -> tuple[int, bool]:
        return step.nodes, time.time() >= start + step.at_s

    done = flow(pieces(0.3), lambda *piece: fed.append(piece), script, act, start)
    assert done == [(3, True), (2, True)]
    assert [(k, batch) for k, batch, _ in fed] == [(k, f"batch {k}") for k in range(10)]
    assert [due for *_, due in fed] == pytest.approx([start + 0.03 * k for k in range(10)])


def test_trouble_of_the_stream_ends_the_script() -> None:
    def fail(k: int, *_: Any) -> None:
        if k == 1:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        flow(pieces(0.1), fail, [Step(3600.0, 2)], pytest.fail, time.time())


def test_trouble_of_a_step_ends_the_stream() -> None:
    fed = list[int]()

    def fail(_: Step) -> None:
        raise ValueError("no such thing")

    endless = (PacedPiece(k, None, 0.01 * k) for k in count())
    with pytest.raises(ValueError, match="no such thing"):
        flow(endless, lambda k, *_: fed.append(k), [Step(0.05, 2)], fail, time.time())
    assert fed


def test_a_stream_can_be_ended_where_it_is() -> None:
    begun = threading.Event()
    endless = (PacedPiece(k, None, None) for k in count())
    with Feeding(endless, lambda *_: begun.set(), time.time()) as feeding:
        assert begun.wait(60)
        feeding.stop()
    feeding.check()
