"""The simulator finds bugs: every machine that is broken on purpose is caught."""

from pathlib import Path

import pytest
from mutants import DEFAULT, HUNTS, MUTANTS, hunt

from meander.testing.simulate import run

DOCS = Path(__file__).parents[2] / "docs" / "mutants.md"


LONG = (
    "install a state without looking at its checksum",
    "install a state whose epoch is stale",
    "plan with nodes that shall leave",
)
"""It takes as long to catch these three as ten others."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in MUTANTS]
)
def test_the_simulator_catches(name):
    seeds, checker = hunt(name)
    assert seeds, f"nobody noticed: {name}"
    assert checker
    sound = run(HUNTS.get(name, DEFAULT).schedule(seeds - 1))
    assert sound.violations == []  # so it was the mutation, not the schedule


def test_every_hunt_is_for_a_mutant_and_every_mutant_stands_in_the_docs():
    text = DOCS.read_text(encoding="utf-8")
    assert set(HUNTS) | set(LONG) <= set(MUTANTS)
    assert [name for name in MUTANTS if f"| {name} |" not in text] == []
