"""Bugs that the product had: put back one at a time, a checker of the full world finds each."""

import pytest
from bugs import BUGS

from meander_lab.mutants.hunt import CAUGHT, HuntScope, hunt

QUICK = ("8 one",)


def marks(bug):
    return () if bug.name.startswith(QUICK) else (pytest.mark.slow,)


def test_every_bug_fits_the_source():
    for bug in BUGS:
        assert bug.codes()


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=marks(bug), id=bug.name) for bug in BUGS])
def test_the_simulator_finds(bug):
    (catch,) = hunt([bug], HuntScope(seeds=300, world="full"))
    assert catch.status == CAUGHT, catch.text
