"""Bugs that the product had: put back one at a time, a checker of the full world finds each."""

import pytest
from bugs import BUGS

from meander_lab.mutants.hunt import CAUGHT, Scope, hunt

QUICK = ("8 one", "9 the store stops silently: an error")


def test_every_bug_fits_the_source():
    for bug in BUGS:
        assert bug.codes()


@pytest.mark.parametrize(
    "bug",
    [pytest.param(b, marks=() if b.name.startswith(QUICK) else pytest.mark.slow) for b in BUGS],
    ids=lambda bug: bug.name,
)
def test_the_simulator_finds(bug):
    (catch,) = hunt([bug], Scope(seeds=300, world="full"))
    assert catch.status == CAUGHT, catch.text
