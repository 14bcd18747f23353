"""The garbage collector and a user's process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from meander.operators import WordCount
from meander.runtime.driver import driver
from meander.runtime.driver.launch import LocalLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.memory import KEEP
from meander.runtime.process.warm import Settled


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


def test_a_deployment_settles_the_heap_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HEAP", Settled())
    with deploy_local(WordCount(), tasks=2, nodes=1):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_processes_keep_their_memory_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "77")
    launcher = LocalLauncher()
    launcher.start(lambda _: None)
    try:
        told = Path(f"/proc/{launcher.nursery_pid}/environ").read_bytes().split(b"\0")
    finally:
        launcher.close(5.0)
    wanted = {**KEEP, "MALLOC_TRIM_THRESHOLD_": "77"}
    assert {f"{name}={value}".encode() for name, value in wanted.items()} <= set(told)
