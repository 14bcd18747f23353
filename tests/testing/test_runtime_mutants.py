"""The runtime, broken on purpose: the checkers of the full world see it."""

import subprocess
import sys

import pytest
import runtime_mutants
from runtime_mutants import MUTANTS, QUICK

from meander_lab.mutants.hunt import CAUGHT


def test_every_mutant_fits_the_source():
    for broken in MUTANTS:
        assert broken.bug.codes()
    assert len({broken.name for broken in MUTANTS}) == len(MUTANTS)


def test_checkers_catch_those_that_are_caught_soon():
    """In a process of its own: a hunt forks, and other tests have left threads in this one."""
    command = [sys.executable, runtime_mutants.__file__, "--quick"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True).stdout
    caught = {line.split(" | ")[0].lstrip("| ") for line in told.splitlines() if "**" not in line}
    assert caught >= QUICK, told


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [pytest.param(found, id=found.name.replace(" ", "-")) for found in MUTANTS],
)
def test_a_checker_catches_it(broken):
    catch = broken.caught()
    assert catch.status == CAUGHT, catch.text
