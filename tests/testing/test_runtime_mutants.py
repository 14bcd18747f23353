"""The runtime, broken on purpose: the checkers of the full world see it."""

import pytest
from runtime_mutants import MUTANTS, QUICK

from meander_lab.mutants.hunt import CAUGHT


def test_every_mutant_fits_the_source():
    for broken in MUTANTS:
        assert broken.bug.codes()
    assert len({broken.name for broken in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(found, id=found.name.replace(" ", "-"), marks=marks)
        for found in MUTANTS
        for marks in [() if found.name in QUICK else (pytest.mark.slow,)]
    ],
)
def test_a_checker_catches_it(broken):
    catch = broken.caught()
    assert catch.status == CAUGHT, catch.text
