"""Bugs that the product had: put back one at a time, a checker of the full world finds each."""

import subprocess
import sys
from pathlib import Path

import pytest
from bugs import BUGS

from meander_lab.mutants.hunt import CAUGHT

HUNT = """
from bugs import BUGS
from meander_lab.mutants.hunt import HuntScope, hunt
(catch,) = hunt([BUGS[{}]], HuntScope(seeds=300, world="full"))
print(catch.status, catch.text)
"""
"""In a process of its own: a hunt forks, and other tests have left threads in this one."""


def test_every_bug_fits_the_source():
    for bug in BUGS:
        assert bug.codes()


@pytest.mark.slow
@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in BUGS])
def test_the_simulator_finds(bug):
    command = [sys.executable, "-c", HUNT.format(BUGS.index(bug))]
    here = Path(__file__).parent
    found = subprocess.run(command, capture_output=True, text=True, cwd=here, check=False)
    assert found.stdout.startswith(CAUGHT), found.stdout + found.stderr
