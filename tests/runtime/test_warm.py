"""The garbage collector and a user's process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from meander.runtime.warm import Settled


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_the_heap_is_settled_from_the_first_deployment_to_the_last() -> None:
    heap, first, second = Settled(), object(), object()
    heap.hold(first)
    heap.hold(second)
    assert gc.get_freeze_count() > 0
    heap.release(first)
    heap.release(first)
    assert gc.get_freeze_count() > 0
    heap.release(second)
    assert gc.get_freeze_count() == 0
    heap.hold(first)
    assert gc.get_freeze_count() > 0
    heap.release(first)


def test_a_heap_that_its_user_has_frozen_stays_so() -> None:
    heap, deployment = Settled(), object()
    gc.freeze()
    heap.hold(deployment)
    heap.release(deployment)
    assert gc.get_freeze_count() > 0


def test_a_finaliser_may_end_a_deployment_while_another_begins() -> None:
    heap, first, second = Settled(), object(), object()

    class Old:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            heap.release(first)

    gc.collect()
    gc.disable()
    try:
        heap.hold(first)
        gc.unfreeze()
        Old()
        heap.hold(second)
    finally:
        gc.enable()
    heap.release(second)
    assert gc.get_freeze_count() == 0
