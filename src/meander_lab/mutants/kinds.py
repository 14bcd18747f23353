"""Ways to break a module in one place: each finds its sites in the source and changes one of them.

A site is a node of the syntax tree. What is only for people (texts, news, counters, documentation) is
left alone, and so are checks of malformed messages, which no simulated process sends: `test_fuzz` does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from copy import copy
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

Change: TypeAlias = Callable[[ast.AST], ast.AST]
"""Gives what stands in the place of a copy of a node."""


class MutationSite(NamedTuple):
    """A place, and what is to be done there."""

    kind: str
    line: int
    path: tuple[tuple[str, int], ...]
    """How to get there from the module: fields, and places in them (-1: the field itself)."""
    change: Change


SPARED: Final = re.compile(
    r"^(_?check_.*|__repr__|__str__|story|status|told|report|_tell|_brief|farewell)$"
)
"""Functions that are left alone."""
FOR_PEOPLE: Final = frozenset({"tell", "debug", "info", "warning", "error", "append_note"})
LIMIT: Final = re.compile(r".*(_max|_MAX)$")
NEAR: Final = (
    ("applied", "durable"), ("sent", "applied"), ("released", "last"), ("first", "last"),
    ("sender", "to"), ("tenure", "term"), ("tenure", "target"), ("positions", "durable"),
    ("batches", "durable_batches"), ("owner", "sender"), ("record", "durable"), ("since", "now"),
    ("origin", "target"), ("incarnation", "to_incarnation"), ("task", "partition"),
    ("number", "offset"), ("lb", "ub"), ("me", "server"),
)  # fmt: skip
"""Names that are easily taken for one another."""
ONE_OFF: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
UNSEEN: Final = ("annotation", "returns", "decorator_list", "type_params", "bases")
LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def sites(tree: ast.Module) -> Iterator[MutationSite]:
    """List all places of a module that can be broken, in the order of the source."""
    pairs = _near_pairs(tree)
    for site, node in _walk(tree, ()):
        if site.kind != "near name" or _new_name(site, node) in pairs:
            yield site


def _new_name(site: MutationSite, node: ast.AST) -> frozenset[str]:
    return frozenset({_last_name(node), _last_name(site.change(copy(node)))})


def _near_pairs(tree: ast.Module) -> set[frozenset[str]]:
    """List the pairs of near names that something in the module has both of."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.setdefault(ast.unparse(node.value), set()).add(node.attr)
    return {frozenset(pair) for pair in NEAR for names in found.values() if names.issuperset(pair)}


def _walk(
    node: ast.AST, path: tuple[tuple[str, int], ...]
) -> Iterator[tuple[MutationSite, ast.AST]]:
    """Give all sites under a node, each with what is there."""
    for field, value in ast.iter_fields(node):
        if field in UNSEEN or (field == "keywords" and not isinstance(node, ast.Call)):
            continue
        if isinstance(value, list):
            yield from _pairs(value, field, path)
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _spared(child):
                continue
            here = (*path, (field, at if isinstance(value, list) else -1))
            for kind, change in _changes(child):
                yield MutationSite(kind, getattr(child, "lineno", 0), here, change), child
            yield from _walk(child, here)


def _spared(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        if node.name == "__init__":
            return True  # what is put together wrongly falls over at once
        return bool(SPARED.match(node.name))
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) or _called(node.value) in FOR_PEOPLE
    )


def _called(node: ast.AST) -> str:
    """Name the function or method that is called; empty: none is."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


# --------------------------------------------------------------------------- one node


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """List what can be done to a node."""
    if isinstance(node, ast.FunctionDef):
        if node.name.startswith("_on_"):
            yield "message ignored", _emptied
    elif isinstance(node, ast.If):
        yield "condition negated", _negated
        if isinstance(node.body[-1], LEAVES) and len(node.body) <= 2 and not node.orelse:
            yield "check left out", _dropped
    elif isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            yield "check left out", _without(at)
    elif isinstance(node, ast.Compare):
        yield from _comparison(node)
    elif isinstance(node, ast.BinOp):
        one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if one and isinstance(node.op, ast.Add | ast.Sub):
            yield "off by one", _left
    elif isinstance(node, ast.Call):
        yield from _call(node)
    elif isinstance(node, ast.Attribute):
        yield from _near(node)
    elif isinstance(node, ast.stmt) and _droppable(node):
        yield "statement dropped", _dropped


def _droppable(node: ast.stmt) -> bool:
    """Whether a statement can be left out without a name going missing."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        kept = ast.Attribute | ast.Subscript
        return all(isinstance(target, kept) for target in node.targets)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Attribute | ast.Subscript)
    return isinstance(node, ast.Delete)


def _comparison(node: ast.Compare) -> Iterator[tuple[str, Change]]:
    for at, op in enumerate(node.ops):
        if type(op) in ONE_OFF:
            yield "off by one", _one_off(at)
    if len(node.ops) == 1 and type(node.ops[0]) in ONE_OFF:
        names = [_last_name(side) for side in (node.left, node.comparators[0])]
        if any(LIMIT.match(name) for name in names):
            less = isinstance(node.ops[0], ast.Lt | ast.LtE)
            below = less == bool(LIMIT.match(names[1]))
            yield "limit not kept", lambda _: ast.Constant(below)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _call(node: ast.Call) -> Iterator[tuple[str, Change]]:
    name = _called(node)
    if name in ("min", "max") and isinstance(node.func, ast.Name):
        yield "min for max", _renamed("max" if name == "min" else "min")
        return
    for at in range(len(node.args) - 1):
        if all(isinstance(arg, ast.Name | ast.Attribute) for arg in node.args[at : at + 2]):
            yield "arguments exchanged", _exchanged(at)


def _near(node: ast.Attribute) -> Iterator[tuple[str, Change]]:
    if isinstance(node.ctx, ast.Load):
        for pair in NEAR:
            if node.attr in pair:
                yield "near name", _attribute(pair[1 - pair.index(node.attr)])


def _pairs(
    body: list[ast.AST], field: str, path: tuple[tuple[str, int], ...]
) -> Iterator[tuple[MutationSite, ast.AST]]:
    """List neighbouring steps that can be exchanged."""
    if field not in ("body", "orelse", "finalbody"):
        return
    for at, (one, two) in enumerate(pairwise(body)):
        steps = isinstance(one, ast.stmt) and isinstance(two, ast.stmt)
        if steps and _step(one) and _step(two) and (_does(one) or _does(two)):
            yield MutationSite("step too early", one.lineno, (*path, (field, at)), exchange), one  # type: ignore[attr-defined]


def _step(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt) and _droppable(node) and not _spared(node)


def _does(node: ast.AST) -> bool:
    """Whether a statement does more than to write down a value."""
    return any(isinstance(found, ast.Call) for found in ast.walk(node))


# --------------------------------------------------------------------------- changes


def exchange(node: ast.AST) -> ast.AST:
    """Stand for: this statement and the next one change places (`mutate` knows)."""
    return node


def _left(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BinOp)
    return node.left


def _emptied(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.FunctionDef)
    node.body = [ast.Return(None)]
    return node


def _negated(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.If)
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _dropped(_: ast.AST) -> ast.AST:
    return ast.Pass()


def _without(at: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.BoolOp)
        del node.values[at]
        return node if len(node.values) > 1 else node.values[0]

    return change


def _one_off(at: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.ops[at] = ONE_OFF[type(node.ops[at])]()
        return node

    return change


def _renamed(name: str) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        node.func = ast.Name(name, ast.Load())
        return node

    return change


def _exchanged(at: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        node.args[at], node.args[at + 1] = node.args[at + 1], node.args[at]
        return node

    return change


def _attribute(name: str) -> Change:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Attribute)
        node.attr = name
        return node

    return change
