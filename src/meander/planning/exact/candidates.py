"""Generate partitions that a cheap sequence of migrations might use. See `oms`.

A layer is a set of partitions (`Cuts`, boundaries from 0 to m) for one step. `improve` walks
through the layers for the cheapest path, adds partitions around it, and repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from meander.model import Ints, Problem
from meander.planning.exact.feasible import cap_of, windows
from meander.planning.exact.scatter import scatter
from meander.planning.exact.ssm import ssm_partition
from meander.planning.kernels.bridge import bridge
from meander.planning.kernels.match import kept
from meander.planning.kernels.sequence import step

Cuts: TypeAlias = tuple[int, ...]
Path: TypeAlias = tuple[Cuts, ...]

ROUNDS_MAX = 20
"""Rounds of generation."""

PATIENCE = 3
"""Rounds without gain before giving up."""

POOL_MAX = 400
"""Partitions that a layer keeps: the walk is quadratic in it."""

PARENTS = 4
"""Best partitions of each layer that get offspring in a round."""

SHAKES = 32
"""Most paths that are shaken and mended in a round."""

SHAKE_CELLS = 250_000
"""Fewer are shaken (at least four) when m·n times their number exceeds this."""


def improve(problems: list[Problem], start: Cuts) -> tuple[int, Path]:
    """Find a cheap path from a partition through one of each step: its cost and its partitions."""
    search = _Search(problems, start)
    cost, path = search.walk()
    idle = 0
    for number in range(ROUNDS_MAX):
        search.grow(path, number)
        found, path = search.walk()
        idle = 0 if found < cost else idle + 1
        cost = found
        if idle == PATIENCE:
            break
    return cost, path


class _Search:
    """The layers, and how they grow."""

    def __init__(self, problems: list[Problem], start: Cuts) -> None:
        self.problems = problems
        self.start = start
        self.size_prefix = problems[0].workload.size_prefix
        self.no_prices = np.zeros(len(self.size_prefix), dtype=np.int64)
        self.wins = [windows(problem) for problem in problems]
        self.mosts = [min(problem.nodes, problem.workload.tasks) for problem in problems]
        cells = problems[0].workload.tasks * max(self.mosts)
        self.shakes = max(4, min(SHAKES, SHAKE_CELLS // cells))
        self.layers: list[list[Cuts]] = [[] for _ in problems]
        """Per step its partitions; after `walk` the one on the cheapest path first."""
        self.seen: list[set[Cuts]] = [set() for _ in problems]
        """Per step all partitions that ever were in its layer, so that none comes back."""
        forth, at = list[Cuts](), start
        for i in range(len(problems)):  # repeated ssm: the path that must not be missed
            at = self._ssm(at, i)
            forth.append(at)
        for i in reversed(range(len(problems) - 1)):
            at = self._ssm(at, i)
        self._mend(forth)

    def walk(self) -> tuple[int, Path]:
        """Find the cheapest path; sort each layer by the cheapest path through each, and prune."""
        layers = [[self.start], *self.layers]
        forward, sources = _walk(self.size_prefix, layers)
        backward = _walk(self.size_prefix, layers[::-1])[0][::-1]
        at = int(np.argmin(forward[-1]))
        cost, path = int(forward[-1][at]), list[Cuts]()
        for layer, source in zip(reversed(self.layers), reversed(sources), strict=True):
            path.append(layer[at])
            at = int(source[at])
        path.reverse()
        for i, layer in enumerate(self.layers):
            through = forward[i + 1] + backward[i + 1]
            best = [layer[j] for j in np.argsort(through, kind="stable") if layer[j] != path[i]]
            self.layers[i] = [path[i], *best[: POOL_MAX - 1]]
        return cost, tuple(path)

    def grow(self, path: Path, number: int) -> None:
        """Add offspring of the best partitions of every layer, and shaken paths."""
        parents = [[self.start], *(layer[:PARENTS] for layer in self.layers)]
        last = len(self.layers) - 1
        for i in range(len(self.layers)):
            for ahead in parents[i]:
                for behind in parents[i + 2] if i < last else [ahead]:
                    self._between(self.no_prices, ahead, behind, i)
            for parent in parents[i + 1]:
                for j in range(len(self.layers)):
                    self._add(j, parent)
                if i > 0:
                    self._ssm(parent, i - 1)
            near = set(path[i - 1] if i > 0 else self.start).union(*path[i + 1 : i + 2])
            for child in _neighbours(path[i], near):
                self._add(i, child)
        for shake in range(self.shakes):
            self._mend(self._shaken(path, number * self.shakes + shake))

    def _shaken(self, path: Path, seed: int) -> list[Cuts]:
        """Sweep along a path as if some boundaries were dearer than others, in every step.

        Prices go up to 1/2, 1, 2 or 4 times a task's mean bytes. Every other four sweeps look
        ahead to the path; those between only look back, and so end up farther from it.
        """
        tasks = len(self.size_prefix) - 1
        scale = float(self.size_prefix[-1]) / tasks * 2.0 ** (seed % 4 - 1)
        prices = (scale * scatter(tasks + 1, seed)).astype(np.int64)
        prices[-1] = 0
        shaken, at = list[Cuts](), self.start
        for i in range(len(path)):
            anchored = i + 1 < len(path) and seed % 8 < 4
            at = self._between(prices, at, path[i + 1] if anchored else at, i)
            shaken.append(at)
        return shaken

    def _mend(self, path: list[Cuts]) -> None:
        """Replace each partition by the best one between its neighbours, while that helps."""
        cost = self._cost(path)
        while True:
            for i in range(len(path)):
                ahead = path[i - 1] if i > 0 else self.start
                behind = path[i + 1] if i + 1 < len(path) else ahead
                path[i] = self._between(self.no_prices, ahead, behind, i)
            before, cost = cost, self._cost(path)
            if cost >= before:
                return

    def _cost(self, path: list[Cuts]) -> int:
        moved = int(self.size_prefix[-1]) * len(path)
        for old, new in pairwise([self.start, *path]):
            moved -= int(kept(self.size_prefix, np.array(old), np.array(new)))
        return moved

    def _between(self, prices: Ints, ahead: Cuts, behind: Cuts, i: int) -> Cuts:
        """Add the partition of step i that lies best between two others."""
        found = bridge(
            self.size_prefix,
            self.wins[i],
            np.array(ahead),
            np.array(behind),
            prices,
            self.mosts[i],
        )
        return self._add(i, tuple(found.tolist()))

    def _ssm(self, cuts: Cuts, i: int) -> Cuts:
        """Add the partition of step i that is reached most cheaply from another one."""
        at = self.problems[i]
        found = ssm_partition(at.workload, np.array(cuts), at.nodes, cap_of(at), at.memory_cap)
        assert found is not None, "every step was checked to be feasible"
        return self._add(i, tuple(found.tolist()))

    def _add(self, i: int, cuts: Cuts) -> Cuts:
        """Put a partition into a layer, if it is new there and within the caps."""
        if cuts not in self.seen[i] and len(cuts) - 1 <= self.mosts[i]:
            first_legal = self.wins[i][list(cuts[1:])]
            if (first_legal <= cuts[:-1]).all():
                self.seen[i].add(cuts)
                self.layers[i].append(cuts)
        return cuts


def _neighbours(cuts: Cuts, near: set[int]) -> Iterator[Cuts]:
    """Partitions that differ in one boundary: moved, dropped, or added."""
    for k in range(1, len(cuts) - 1):
        left, right = cuts[k - 1], cuts[k + 1]
        yield cuts[:k] + cuts[k + 1 :]
        places = {cuts[k] - 1, cuts[k] + 1, *near}
        for b in sorted(b for b in places if left < b < right and b != cuts[k]):
            yield (*cuts[:k], b, *cuts[k + 1 :])
    for b in sorted(near.difference(cuts)):
        yield tuple(sorted((*cuts, b)))


def _walk(size_prefix: Ints, layers: list[list[Cuts]]) -> tuple[list[Ints], list[Ints]]:
    """Give the cheapest cost from the first layer to each partition, and where it comes from."""
    costs, sources = [np.zeros(len(layers[0]), dtype=np.int64)], list[Ints]()
    enough = int(size_prefix[-1]) * len(layers)
    for old, new in pairwise(layers):
        order = np.argsort(costs[-1], kind="stable")
        cost, source = step(size_prefix, _rows(old)[order], costs[-1][order], _rows(new), enough)
        costs.append(cost)
        sources.append(order[source])
    return costs, sources


def _rows(layer: list[Cuts]) -> npt.NDArray[np.int32]:
    width, m = max(map(len, layer)), layer[0][-1]
    return np.array([(*cuts, *[m] * (width - len(cuts))) for cuts in layer], dtype=np.int32)
