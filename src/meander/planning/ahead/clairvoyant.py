"""The best path in hindsight: what planning could save if it knew the future.

All migrations of a trace are known, with the weights of each. A path is one partition per step,
each within its step's caps; its cost is the sum of what the steps move, as shares of all state.
Layers of partitions, one per step, are searched by Viterbi for the cheapest path; then the layers
grow, and the search repeats until several rounds in a row gain next to nothing:

    seeds    the paths of all policies that were replayed, so the answer is no dearer than any
    walks    Viterbi gives every partition what it costs to go on from it. Prices on boundaries,
             fitted to that per layer, guide walks through all steps, each step an exact single one;
             the same backwards (costs are symmetric), and with noise on the prices, which is the
             same at every step, so that a walk as a whole tries something else
    near     one boundary moved in the partitions that the cheapest paths go through, and the
             neighbours' own partitions where they are feasible

It is a heuristic: the true optimum may be lower still, so a share of the distance to it is an upper
bound. `ahead.bound` has a certified bound from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meander.model import Ints, Workload
from meander.planning.ahead.mdp import shares_of
from meander.planning.exact.partitions import Ends
from meander.planning.kernels import paths as kernel
from meander.planning.kernels.horizon import moved_boundaries
from meander.planning.kernels.pools import fit_prices, fits
from meander.planning.kernels.types import Floats
from meander.planning.kernels.windows import windows

LAYER_MAX = 120
"""Partitions of a layer that survive a round: a search is quadratic in it."""
PARENTS = 3
"""Partitions of a layer whose boundaries are moved in a round."""
WALKS = 12
"""Forwards, and as many backwards, in a round."""
NOISES = (0.0, 0.002, 0.005, 0.01, 0.02)
"""Of the prices of walks, as shares of all state."""
ROUNDS_MAX = 80
PATIENCE = 4
"""Rounds that may gain less than `LEAST_GAIN` before the search is said to have converged."""
LEAST_GAIN = 2e-4
"""Of the cost, in one round."""


class PathStage(NamedTuple):
    """One migration of the path."""

    workload: Workload
    nodes: int
    cap: int
    """The most work of a node."""


def best_path(
    start: Ends,
    stages: Sequence[PathStage],
    seeds: Sequence[Sequence[Ends]],
    rng: np.random.Generator,
    *,
    rounds: int = ROUNDS_MAX,
) -> tuple[list[float], list[Ends]]:
    """Find a cheap path.

    Args:
        start: ends of the partition before the first step.
        stages: the steps.
        seeds: paths to begin with, each with one feasible partition per stage.
        rng: for noise on prices.
        rounds: of growth, at most.

    Returns:
        The cost of every step as a share, and the partitions.
    """
    search = _Search(start, stages, seeds, rng)
    cost, idle = search.viterbi(), 0
    for _ in range(rounds):
        search.grow()
        found = search.viterbi()
        idle = idle + 1 if cost - found < LEAST_GAIN * cost else 0
        cost = found
        if idle == PATIENCE:
            break
    return search.costs, search.path


class _Search:
    """The layers, and how they grow."""

    def __init__(
        self, start: Ends, stages: Sequence[PathStage], seeds: Sequence[Sequence[Ends]],
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.rng, self.stages = rng, stages
        self.wide = max(len(start), *(stage.nodes for stage in stages))
        loads = [stage.workload for stage in stages]
        self.sizes = np.stack([load.size_prefix for load in loads])
        self.shares = [shares_of(load) for load in loads]
        self.wins = np.stack([
            windows(load.work_prefix, load.size_prefix, stage.cap, load.total_size)
            for load, stage in zip(loads, stages, strict=True)
        ])  # fmt: skip
        self.nodes = np.array([stage.nodes for stage in stages])
        self.start = _wide(start, self.wide)
        self.layers = [
            _unique([_wide(path[t], self.wide) for path in seeds]) for t in range(len(stages))
        ]
        tasks = loads[0].tasks
        span = max(tasks // 64, 1)
        self.moves = np.unique([-2 * span, -span, -2, -1, 1, 2, span, 2 * span])
        self.to_go = np.zeros((len(stages), tasks + 1))
        self.so_far = np.zeros((len(stages), tasks + 1))
        """Boundary prices per stage."""
        self.costs, self.path = list[float](), list[Ends]()

    def viterbi(self) -> float:
        """Find the cheapest path; keep what cheap paths go through; learn the prices."""
        ahead, sources = _pass([self.start[None, :], *self.layers], self.shares)
        back, _ = _pass([*self.layers[::-1], self.start[None, :]], self.shares[::-1])
        back = back[::-1][1:]
        at = int(np.argmin(ahead[-1]))
        total, path, costs = ahead[-1][at], list[Ends](), list[float]()
        for t in range(len(self.stages) - 1, -1, -1):
            path.append(self.layers[t][at])
            at = int(sources[t][at])
            costs.append(float(total - ahead[t][at]))
            total = ahead[t][at]
        self.path, self.costs = path[::-1], costs[::-1]
        for t, layer in enumerate(self.layers):
            best = np.argsort(ahead[t + 1] + back[t], kind="stable")[:LAYER_MAX]
            self.layers[t] = layer[best]
            fit_prices(self.layers[t], back[t][best], 1.0, 10, self.to_go[t])
            fit_prices(self.layers[t], ahead[t + 1][best], 1.0, 10, self.so_far[t])
        return float(sum(costs))

    def grow(self) -> None:
        """Add what walks find, and what lies near the best."""
        found = [[layer, *self._near(t)] for t, layer in enumerate(self.layers)]
        for number in range(WALKS):
            noise = NOISES[number % len(NOISES)] * self.rng.standard_normal(self.sizes.shape[1])
            for t, row in enumerate(self._walk(self.to_go + noise, forwards=True)):
                found[t].append(row[None, :])
            for t, row in enumerate(self._walk(self.so_far + noise, forwards=False)):
                found[t].append(row[None, :])
        self.layers = [np.unique(np.concatenate(rows), axis=0) for rows in found]

    def _walk(self, prices: Floats, *, forwards: bool) -> Ends:
        whole = np.rint(prices * self.sizes[:, -1:]).astype(np.int64)
        out = np.empty((len(self.stages), self.wide), dtype=np.int32)
        if forwards:
            kernel.priced_walk(self.start, self.sizes, self.wins, self.nodes, whole, out)
            return out
        # The step into stage t+1, weighed there, is gone backwards from stage t+1 to stage t.
        sizes = np.concatenate([self.sizes[1:], self.sizes[-1:]])[::-1].copy()
        end = self.layers[-1][int(self.rng.integers(min(8, len(self.layers[-1]))))]
        kernel.priced_walk(
            end, sizes, self.wins[::-1].copy(), self.nodes[::-1].copy(), whole[::-1].copy(), out
        )
        return out[::-1]

    def _near(self, t: int) -> list[Ends]:
        """Move boundaries of the best of a layer; borrow the neighbours' best."""
        tasks = self.sizes.shape[1] - 1
        reach = np.searchsorted(self.wins[t], np.arange(tasks), side="right") - 1
        beside = [self.path[other] for other in (t - 1, t + 1) if 0 <= other < len(self.path)]
        places = np.unique(np.concatenate([self.path[t], *beside])).astype(np.int64)
        found = [
            moved_boundaries(parent, reach, self.moves, places)
            for parent in self.layers[t][:PARENTS]
        ]
        for other in (t - 2, t - 1, t + 1, t + 2):
            if 0 <= other < len(self.layers):
                found += [
                    row[None, :] for row in self.layers[other][:PARENTS]
                    if fits(row, self.wins[t], int(self.nodes[t]))
                ]  # fmt: skip
        return found


def _pass(layers: list[Ends], shares: list[Floats]) -> tuple[list[Floats], list[Ints]]:
    costs, sources = [np.zeros(len(layers[0]))], list[Ints]()
    for t, new in enumerate(layers[1:]):
        order = np.argsort(costs[-1], kind="stable")
        cost, source = np.empty(len(new)), np.empty(len(new), dtype=np.int64)
        kernel.forward(layers[t][order], costs[-1][order], new, shares[t], cost, source)
        costs.append(cost)
        sources.append(order[source])
    return costs, sources


def _wide(ends: npt.NDArray[np.int32], wide: int) -> Ends:
    row = np.full(wide, ends[-1], dtype=np.int32)
    inner = np.unique(ends)
    row[: len(inner)] = inner
    return row


def _unique(rows: Sequence[Ends]) -> Ends:
    return np.unique(np.array(rows, dtype=np.int32), axis=0)
