"""A full world is decided by its seed alone: in another process, too, and nothing of it is left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest

from meander.testing.faults import ALL_FAULTS, generate
from meander.testing.world import simulate
from meander.testing.world.world import World

SEEDS = range(40, 43)
DIGESTS = f"""
from meander.testing.faults import ALL_FAULTS, generate
from meander.testing.world.simulate import run_world
for seed in range({SEEDS.start}, {SEEDS.stop}):
    print(run_world(generate(seed, 3, 8, ALL_FAULTS, 2.0), digest=True).digest)
"""


def _digests(hash_seed: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=1800.0,
    )
    return found.stdout.split()


def test_two_runs_of_a_seed_are_the_same_in_any_process() -> None:
    here = [
        simulate.run_world(generate(seed, 3, 8, ALL_FAULTS, 2.0), digest=True).digest
        for seed in SEEDS
    ]
    assert all(here)
    assert here == _digests("1")


def test_nothing_is_left_of_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[World]] = []

    class Noted(World):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            made.append(weakref.ref(self))

    monkeypatch.setattr(simulate, "World", Noted)
    for seed in SEEDS:
        simulate.run_world(generate(seed, 3, 8, ALL_FAULTS, 2.0))
    gc.collect()
    assert [world() for world in made] == [None] * len(SEEDS)
