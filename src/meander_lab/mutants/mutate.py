"""Mutants as values: which module, where, what was changed; made from the source by a seed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, Final, NamedTuple

from meander.errors import InputError
from meander_lab.mutants.kinds import MutationSite, exchange, sites

PROTOCOL: Final = (
    "node.arrivals", "node.book", "node.checkpointer", "node.copier", "node.copy_window",
    "node.express", "node.fetching", "node.handover", "node.installs", "node.intake",
    "node.manager", "node.node", "node.rerouter", "node.retriever", "node.shares", "node.slot",
    "node.staging", "master.archive", "master.books", "master.conductor", "master.copies_ahead",
    "master.ledger", "master.manifest", "master.master", "master.membership", "master.migration",
    "master.rehoming", "master.round", "master.targets", "edges.feeder", "edges.offered",
    "edges.query", "edges.server", "backoff", "blocks", "client", "flow", "machine", "outbox",
    "reading", "records", "spans", "state", "table", "timed", "turn",
)  # fmt: skip
"""What is broken in the protocol's world if nothing is named, under `meander.protocol`."""
RUNTIME: Final = (
    "process.adapter", "process.addresses", "process.app_state", "process.copying",
    "process.dumping", "process.feeding", "process.grouping", "process.hands", "process.keeping",
    "process.loop_counts", "process.outputs", "process.process", "process.recording",
    "process.streams", "process.telling", "process.timing", "process.topology_adapter",
    "process.turns", "process.user_code", "process.watermarks", "process.work", "wire.codec",
    "wire.columns", "wire.inbox", "wire.outgoing", "wire.presence", "wire.rows",
    "store.answering", "store.durable", "store.filesystem", "store.spill", "store.staged",
    "store.steps", "clients.combining", "clients.committing", "clients.feeder_process",
    "clients.gathering", "clients.given", "clients.offers", "clients.output_scripts",
    "clients.owners", "clients.pieces", "clients.query_book", "clients.query_process",
    "clients.state_scripts", "roles.answers", "roles.assembly", "roles.output_answers",
    "roles.oversight", "driver.books", "driver.core", "driver.ending", "driver.preview",
    "driver.replacing", "driver.rescales", "driver.service", "driver.supervisor",
    "driver.versions",
)  # fmt: skip
"""The same in the full world, under `meander.runtime`."""
MODULES: Final = {
    "protocol": tuple(f"meander.protocol.{name}" for name in PROTOCOL),
    "full": (*(f"meander.runtime.{name}" for name in RUNTIME), "meander.spark.processor.state"),
}
"""By world."""


class Mutant(NamedTuple):
    """A module that is broken in one place."""

    module: str
    line: int
    kind: str
    before: str
    after: str
    number: int
    """Of its site in the module: with the module's name, it tells the mutant from all others."""

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.kind}: {self.before} → {self.after}"

    def codes(self) -> dict[str, CodeType]:
        """Give the broken module."""
        return {self.module: compile(broken(self), str(source_of(self.module)), "exec")}


def source_of(module: str) -> Path:
    """Find the file of a module, without importing it.

    Raises:
        InputError: if there is no such module.
    """
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise InputError(f"there is no module {module}")
    return Path(spec.origin)


@cache
def mutants_of(module: str) -> tuple[Mutant, ...]:
    """List every mutant of a module."""
    tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
    return tuple(
        Mutant(module, site.line, site.kind, *_texts(tree, site), number)
        for number, site in enumerate(sites(tree))
    )


def _place(tree: ast.Module, site: MutationSite) -> tuple[Any, str, int]:
    """Find a site: what it is in, under which field, and where in it (-1: the field itself)."""
    *way, (field, at) = site.path
    parent: Any = tree
    for name, place in way:
        parent = getattr(parent, name) if place < 0 else getattr(parent, name)[place]
    return parent, field, at


def _texts(tree: ast.Module, site: MutationSite) -> tuple[str, str]:
    """Tell what is at a site, and what would be."""
    parent, field, at = _place(tree, site)
    found = getattr(parent, field)
    if site.change is exchange:
        one, two = _text(found[at]), _text(found[at + 1])
        return f"{one}; {two}", f"{two}; {one}"
    node = found if at < 0 else found[at]
    return _text(node), _text(site.change(copy.deepcopy(node)))


def broken(mutant: Mutant) -> ast.Module:
    """Give the broken module, as a tree that can be compiled."""
    tree = ast.parse(source_of(mutant.module).read_text(encoding="utf-8"))
    for number, site in enumerate(sites(tree)):
        if number == mutant.number:
            _change(tree, site)
            return ast.fix_missing_locations(tree)
    raise InputError(f"{mutant.module} has changed: it has no site {mutant.number}")


def _change(tree: ast.Module, site: MutationSite) -> None:
    """Change one place of a tree."""
    parent, field, at = _place(tree, site)
    holder: Any = getattr(parent, field)
    if site.change is exchange:
        holder[at], holder[at + 1] = holder[at + 1], holder[at]
        return
    node = holder if at < 0 else holder[at]
    found = ast.copy_location(site.change(node), node)
    if at < 0:
        setattr(parent, field, found)
    else:
        holder[at] = found


def _text(node: ast.AST) -> str:
    """Write a node on one line."""
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())[:80]


def draw(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw so many mutants of these modules: of every kind about as many."""
    random = Random(seed)
    by_kind: dict[str, list[Mutant]] = {}
    for module in modules:
        for mutant in mutants_of(module):
            by_kind.setdefault(mutant.kind, []).append(mutant)
    for found in by_kind.values():
        random.shuffle(found)
    return [mutant for _, mutant in zip(range(count), _in_turn(by_kind), strict=False)]


def _in_turn(by_kind: dict[str, list[Mutant]]) -> Iterator[Mutant]:
    kinds = sorted(by_kind)
    while any(by_kind[kind] for kind in kinds):
        for kind in kinds:
            if by_kind[kind]:
                yield by_kind[kind].pop()
