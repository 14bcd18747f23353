"""Mutants from the source: found, drawn by a seed, laid over the product, and caught by a checker."""

import ast
import json
import subprocess
import sys
from itertools import pairwise

import pytest

from meander.cli.main import main
from meander.errors import InputError
from meander_lab.mutants.hunt import ACCIDENT, CAUGHT, SURVIVED
from meander_lab.mutants.kinds import exchange, sites
from meander_lab.mutants.mutate import PROTOCOL, broken, draw, mutants_of

INTAKE = "meander.protocol.node.intake"
SOURCE = """
def f(self, x):
    if x is None:
        return
    if self.a < self.b_max and x:
        self.first(x.sent, x.applied)
        self.second(min(x, 1))
    self.count = x.sent + 1
def _on_beat(self, env):
    self.turn.tell(1)
def _check_beat(self, env):
    self.nothing()
"""


def found(kind):
    return [site for site in sites(ast.parse(SOURCE)) if site.kind == kind]


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("condition negated", [3, 5]),
        ("check left out", [3, 5, 5]),
        ("statement dropped", [6, 7, 8]),
        ("off by one", [5, 8]),
        ("message ignored", [9]),
        ("arguments exchanged", [6]),
        ("min for max", [7]),
        ("limit not kept", [5]),
        ("near name", [6, 6, 8]),
        ("step too early", [6]),
    ],
)
def test_every_kind_finds_its_places_and_spares_what_is_for_people(kind, lines):
    assert [site.line for site in found(kind)] == lines


def test_a_mutant_differs_from_the_source_in_one_place():
    sound = ast.unparse(broken(mutants_of(INTAKE)[0]._replace(number=0)))
    others = {ast.unparse(broken(m)) for m in mutants_of(INTAKE)[:40]}
    assert sound in others
    assert len(others) > 35
    for site in found("step too early"):
        assert site.change is exchange


def test_a_seed_draws_the_same_mutants_and_of_every_kind():
    modules = [f"meander.protocol.{name}" for name in PROTOCOL]
    drawn = draw(modules, 30, seed=5)
    assert drawn == draw(modules, 30, seed=5)
    assert drawn != draw(modules, 30, seed=6)
    assert len({mutant.kind for mutant in drawn}) == 10
    assert all(one != two for one, two in pairwise(drawn))


def test_there_is_no_mutant_of_nothing():
    with pytest.raises(InputError, match="no module"):
        mutants_of("meander.protocol.nowhere")


HUNTING = """
import json
from meander_lab.mutants.hunt import HuntScope, hunt
from meander_lab.mutants.mutate import mutants_of
for module, kind, before in {!r}:
    found = [m for m in mutants_of(module) if m.kind == kind and m.before.startswith(before)]
    (catch,) = hunt(found[:1], HuntScope(seeds=4))
    print(json.dumps([catch.mutant.module, catch.status, catch.by, catch.seeds]))
"""


def alone(*command):
    """In a process of its own: a hunt forks, and other tests have left threads in this one."""
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in told.stdout.splitlines()], told.stderr


def test_who_is_caught_by_whom_who_falls_over_and_who_survives():
    late = (INTAKE, "min for max", "max(after, chunk.last)")
    falls = ("meander.protocol.node.arrivals", "check left out", "if found is None: return")
    harmless = ("meander.protocol.master.master", "min for max", "max(peer.since")
    wanted = [late, falls, harmless]
    catches, trouble = alone(sys.executable, "-c", HUNTING.format(wanted))
    assert [catch[0] for catch in catches] == [module for module, *_ in wanted], trouble
    assert (catches[0][1], bool(catches[0][2])) == (CAUGHT, True)
    assert catches[1][1] in (ACCIDENT, SURVIVED)
    assert catches[2][1:] == [SURVIVED, "", 4]


LAID_OVER = """
import json
from importlib import import_module
from meander_lab.mutants.hunt import lay_over
from meander_lab.mutants.mutate import mutants_of
for module in {!r}:
    lay_over(mutants_of(module)[0])
    print(json.dumps(type(import_module(module).__loader__).__name__))
"""


def test_what_is_broken_is_what_runs_also_where_a_package_imports_its_modules():
    modules = ["meander.operators.tasks", "meander.spark.processor.state", INTAKE]
    loaders, trouble = alone(sys.executable, "-c", LAID_OVER.format(modules))
    assert loaders == ["_Overlay"] * 3, trouble


def test_the_command_lists_and_hunts(capsys):
    arguments = ["mutants", "--modules", INTAKE, "--count", "2", "--seed", "3"]
    assert main([*arguments, "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    command = [sys.executable, "-m", "meander.cli.main", *arguments, "--seeds", "1", "--json"]
    lines, trouble = alone(*command)
    assert [line["module"] for line in lines] == [INTAKE] * 2, trouble
    assert {line["status"] for line in lines} <= {CAUGHT, ACCIDENT, SURVIVED}
