"""The tree of errors: all in one file, drawn as they are, and fit to cross between processes."""

from __future__ import annotations

import ast
import builtins
import pickle
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import meander
import meander_lab
from meander import errors
from meander_lab import errors as lab_errors

SAMPLES: list[BaseException] = [
    errors.MeanderError("wrong"),
    errors.InputError("line 3 has no key: give one"),
    errors.ModuleMissingError("mine"),
    errors.UnreadableError(3, "there is no column 'n'"),
    errors.InfeasibleError("the cap is too small", Fraction(3, 2)),
    errors.DeadlockError(("n1", "n2"), (3, 4)),
    errors.TooLargeError("use another method"),
    errors.OperatorError("WordCount", 7, (0, 10), "no such word"),
    errors.OperatorFailedError("n1", "no such word", "Traceback"),
    errors.OperatorRuleError("WordCount", "dumps", "a dump is whole", 2, 7, "3", "4"),
    errors.StateError("of another version"),
    errors.CheckpointError("broken", 3, "0003.json"),
    errors.SumOverflowError("the count", 5),
    errors.DeployError("no slots: free some"),
    errors.LaunchError("no fork"),
    errors.EndedError("crashed", "KeyError: 3", "Traceback"),
    errors.LostStateError(("n1",), (3, 4)),
    errors.MigrationError("rolled back"),
    errors.NotQuietError(3.0, "4 chunks"),
    errors.FeederError("feed again"),
    errors.QueryError("not written"),
    errors.RowsLostError(5, 7),
    errors.RolledBackError("q", 1, 7, 2),
    errors.ReplayError("q", 1, 7, 10, 11),
    errors.SinkError("not applied"),
    errors.OperatorGoneError("grpc://there:1"),
    errors.OperatorRefusedError("a wrong token"),
    errors.UnanswerableError("the operator at there:1", "n is text, and was a number"),
    errors.UnreadError("the state", (3, 4)),
    errors.OutputsLostError("gone"),
    errors.OutputsBrokenError("no such file"),
    errors.ProtocolError("too late", lambda: ("1.0 this", "2.0 that")),
    errors.MalformedMessage("it is cut short"),
    errors.StaleMessage("it is of epoch 3", lambda: ("1.0 this",)),
    errors.BrokenRuleError("not in the table"),
    errors.CertificateError("ssm: the cost is 3"),
    lab_errors.BareSideError("it has ended"),
    lab_errors.StaticNodeError("it did not come up"),
    lab_errors.NoJarsError("there is no mvn on the path"),
    lab_errors.NoServerError("there is no go on the path"),
    lab_errors.NoHostsError("hosts are network namespaces: run it as root"),
]


def kinds(module: Any) -> list[type[BaseException]]:
    """Give the errors that a module defines, in the order of its text."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type)]
    return [k for k in found if issubclass(k, BaseException) and k.__module__ == module.__name__]


def drawn(text: str) -> Iterator[tuple[str, str]]:
    """Read (parent, child) off the trees that are drawn in a text."""
    path: list[str] = []
    for line in text.splitlines():
        if (root := re.fullmatch(r"    (\w+)", line)) is not None:
            path = [root[1]]
        elif (branch := re.match(r"    ([│ ]*)[├└]── (\w+)\s+\S", line)) is not None:
            depth = len(branch[1]) // 4 + 1
            path[depth:] = [branch[2]]
            yield path[depth - 1], branch[2]


def defined_elsewhere(root: Path, home: Path) -> Iterator[str]:
    """Name the errors that other files than `home` define; a base tells one by its name.

    What is a `BaseException` alone ends whatever runs (a simulated death, a time-out): no error.
    """
    known = {kind.__name__ for module in (builtins, errors, lab_errors) for kind in kinds(module)}
    known.discard("BaseException")
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and file != home:
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                if bases & known or node.name.endswith(("Error", "Exception")):
                    yield f"{file.relative_to(root)}: {node.name}"


@pytest.mark.parametrize("package", [meander, meander_lab], ids=lambda p: p.__name__)
def test_all_errors_of_a_package_are_in_its_errors_file(package: Any) -> None:
    root = Path(package.__path__[0])
    assert list(defined_elsewhere(root, root / "errors.py")) == []


@pytest.mark.parametrize("module", [errors, lab_errors], ids=lambda m: m.__name__)
def test_the_drawn_tree_is_the_real_one(module: Any) -> None:
    real = {(kind.__bases__[0].__name__, kind.__name__) for kind in kinds(module)}
    above = {("Exception", "MeanderError"), ("MeanderError", "InputError")}
    assert set(drawn(Path(module.__file__).read_text())) - above == real - above


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_crosses_processes_with_its_facts(error: BaseException) -> None:
    twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert type(twice) is type(error)
    assert str(twice) == str(error)
    told = {name: fact for name, fact in vars(error).items() if name != "_story"}
    assert {name: fact for name, fact in vars(twice).items() if name != "_story"} == told


def test_every_error_is_tried() -> None:
    assert {type(error) for error in SAMPLES} == {*kinds(errors), *kinds(lab_errors)}
