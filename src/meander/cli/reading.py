"""Problems from a file or standard input: one JSON object, or JSON lines with one each.

Lines are read one at a time and answered before the next is asked for, so another process can
hold a conversation with `meander plan -`. The input is JSON lines when its first line is an object
of its own (or begins like one and is broken before its end); otherwise all of it is one object,
which may stretch over many lines.

JSON is read strictly: no NaN, no Infinity, no key twice, no key that means nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from meander.errors import InputError
from meander.model import Assignment, Problem, Workload

REQUIRED = ("work", "size", "current", "nodes", "tau")
OPTIONAL = ("memory_cap", "new_nodes")

NODES_MAX = 10**6
"""Most nodes asked for: names are made for all that join."""


class ProblemEntry(NamedTuple):
    """One problem of the input, or what is wrong with it."""

    line: int
    problem: Problem | None
    error: str = ""


def read_one(path: str) -> Problem:
    """Read an input that must hold exactly one problem.

    Raises:
        InputError: if it holds none, several, or a wrong one.
    """
    entries = list(read(path))
    if len(entries) != 1:
        raise InputError(f"{_name(path)} holds {len(entries)} problems: give exactly one here")
    if entries[0].problem is None:
        raise InputError(f"{_name(path)}: {entries[0].error}")
    return entries[0].problem


def read(path: str) -> Iterator[ProblemEntry]:
    """Read problems one by one; `-` is standard input.

    Raises:
        InputError: if the input as a whole cannot be read.
    """
    if path == "-":
        yield from _entries(sys.stdin.buffer, _name(path))
        return
    try:
        with Path(path).open("rb") as file:
            yield from _entries(file, path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _entries(file: BinaryIO, name: str) -> Iterator[ProblemEntry]:
    numbered = ((k, line) for k, line in enumerate(file, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise InputError(f"{name} is empty: expected a JSON object with {', '.join(REQUIRED)}")
    if _stands_alone(first[1]):
        yield from (_entry(*row) for row in chain([first], numbered))
        return
    rest = list(numbered)
    try:
        data = _parse(b"\n" * (first[0] - 1) + first[1] + b"".join(line for _, line in rest))
    except InputError as error:
        if any(_is_object(line) for _, line in rest):
            yield from (_entry(*row) for row in [first, *rest])
            return
        raise InputError(f"{name}: {error}") from None
    try:
        yield ProblemEntry(first[0], to_problem(data))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _entry(number: int, line: bytes) -> ProblemEntry:
    try:
        return ProblemEntry(number, to_problem(_parse(line)))
    except InputError as error:
        return ProblemEntry(number, None, str(error))


def _stands_alone(line: bytes) -> bool:
    """Whether a line is an object, or begins like one and breaks before its end."""
    text = line.decode("utf-8", errors="replace").strip().removeprefix("\ufeff")
    if not text.startswith("{"):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos < len(text)
    except (ValueError, RecursionError):
        return True
    return True


def _is_object(line: bytes) -> bool:
    try:
        return line.startswith(b"{") and isinstance(_parse(line), dict)
    except InputError:
        return False


def _parse(raw: bytes) -> Any:
    """Read JSON strictly."""
    try:
        return json.loads(
            raw.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_refuse
        )
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        at = (
            f"line {error.lineno}, column {error.colno}"
            if error.lineno > 1
            else f"column {error.colno}"
        )
        raise InputError(f"not JSON: {error.msg} ({at})") from None
    except InputError:
        raise
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise InputError("a number has too many digits") from None
    except RecursionError:
        raise InputError("not a problem: nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise InputError(f"key {twice!r} stands twice")
    return result


def _refuse(literal: str) -> NoReturn:
    raise InputError(f"{literal} is not a number that can be planned with")


def to_problem(data: Any) -> Problem:
    """Make a problem of a JSON object.

    >>> to_problem({"work": [1, 1], "size": [3, 4], "current": [[0, 2]], "nodes": 2, "tau": 0}).cap
    1
    """
    if not isinstance(data, dict):
        raise InputError(
            f"a problem is a JSON object with {', '.join(REQUIRED)}, not {_kind(data)}"
        )
    for key in data:
        if key not in (*REQUIRED, *OPTIONAL):
            near = get_close_matches(key, (*REQUIRED, *OPTIONAL), 1)
            hint = (
                f"did you mean {near[0]!r}?"
                if near
                else f"known are {', '.join((*REQUIRED, *OPTIONAL))}"
            )
            raise InputError(f"unknown key {key!r}: {hint}")
    missing = [key for key in REQUIRED if key not in data]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}")
    load = Workload(_numbers("work", data["work"]), _numbers("size", data["size"]))
    nodes, memory = data["nodes"], data.get("memory_cap")
    if isinstance(nodes, int) and nodes > NODES_MAX:
        raise InputError(f"nodes is {nodes}: more than {NODES_MAX} are not planned for")
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    current = _current(data["current"], load.tasks)
    return Problem(load, current, nodes, data["tau"], memory, _names(data.get("new_nodes")))


def _numbers(key: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise InputError(f"{key} must be a list with one number per task, not {_kind(values)}")
    if not set(map(type, values)) <= {int, float}:
        task = next(i for i, v in enumerate(values) if type(v) not in (int, float))
        raise InputError(f"{key} of task {task} is {_kind(values[task])}, not a number")
    return values


def _names(values: Any) -> Sequence[str]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
        raise InputError("new_nodes must be a list of node names")
    return values


def _current(value: Any, tasks: int) -> Assignment:
    """Read who owns what: a pair per node, or several pairs per node, or a bare list of pairs."""
    if isinstance(value, list):
        return Assignment.from_intervals(value, tasks)
    if not isinstance(value, dict):
        raise InputError(
            "current must be an object such as {'n1': [0, 13]} or a list of pairs, "
            f"not {_kind(value)}"
        )
    if "" in value:
        raise InputError("current: a node needs a name")
    if any(_is_runs(pairs) for pairs in value.values()):
        return _from_runs(value, tasks)
    return Assignment.from_intervals(value, tasks)


def _is_runs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) for pair in value)


def _from_runs(value: Mapping[str, Any], tasks: int) -> Assignment:
    runs = []
    for node, pairs in value.items():
        for pair in pairs if _is_runs(pairs) else [pairs]:
            if not (isinstance(pair, list) and [type(x) for x in pair] == [int, int]):
                raise InputError(f"node {node}: a run is a pair of whole numbers, not {pair!r}")
            if pair[0] != pair[1]:
                runs.append((pair[0], pair[1], node))
    return Assignment.from_runs(sorted(runs), tuple(value), tasks)


def _kind(value: Any) -> str:
    """Say what something is in JSON's words, without repeating all of it."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value is None:
        return "null"
    return names.get(type(value), f"the number {str(value)[:30]}")


def _name(path: str) -> str:
    return "standard input" if path == "-" else path
