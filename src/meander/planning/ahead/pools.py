"""Pools: a few hundred partitions per n, feasible at today's weights, that good plans go through.

They live on from plan to plan. When weights change, a partition that breaks its cap becomes the
nearest one that does not. Each plan adds some, by walks along the likeliest futures: every step is
the exact single step under *boundary prices*. The prices are fitted to the values that the last
look-ahead gave to the pool (what a partition leads to, as a sum over its boundaries), with noise
for variety, the same for all n, so that a walk stays with its boundaries. Where a pool is full,
those with the highest value go.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from meander.model import Ints, Problem, Workload
from meander.planning.ahead.chain import Chain
from meander.planning.exact.feasible import NO_CAP, memory_of
from meander.planning.exact.partitions import Ends
from meander.planning.kernels import pools as kernel
from meander.planning.kernels.types import Floats
from meander.planning.kernels.windows import cover_size, smallest_load, windows

RIDGE = 1.0
"""The pull of fitted prices towards 0, in units of one partition."""
SWEEPS = 20
"""Of coordinate descent; a fit begins with the prices of the last one."""


@dataclass(frozen=True, eq=False)
class Ground:
    """Today's weights and caps for the n of a chain."""

    workload: Workload
    nodes: Ints
    caps: Ints
    wins: Ints
    """`[n, boundary]`: how far back an interval may begin."""

    @classmethod
    def of(cls, problem: Problem, nodes: Ints, tau: Fraction) -> Ground:
        """Take `(1 + τ)·W/n` for the cap, or the smallest feasible one where that is larger.

        The problem's own n has the problem's cap, whatever τ is for those to come. Where the memory
        cap alone makes an n infeasible, its cap is -1.
        """
        load, memory = problem.workload, memory_of(problem)
        work, size = load.work_prefix.copy(), load.size_prefix.copy()
        every = [problem.cap if n == problem.nodes else int((1 + tau) * load.total_work / n)
                 for n in nodes.tolist()]  # fmt: skip
        caps = np.array([min(cap, NO_CAP) for cap in every])
        for i, n in enumerate(nodes.tolist()):
            if cover_size(work, size, caps[i], memory, n) > n:
                caps[i] = smallest_load(work, size, memory, n)
        none = np.arange(
            load.tasks + 1
        )  # an interval of no task: where there is no cap, no more is legal
        wins = np.stack([windows(work, size, cap, memory) if cap >= 0 else none for cap in caps])
        return cls(load, nodes, caps, wins)


class Pools:
    """Partitions by n, with the prices that were last fitted to them."""

    def __init__(self, tasks: int, wide: int, size: int, rng: np.random.Generator) -> None:
        """Keep at most `size` partitions of at most `wide` intervals for each n."""
        self.tasks, self.wide, self.size, self.rng = tasks, wide, size, rng
        self.rows: dict[int, Ends] = {}
        self.prices: dict[int, Floats] = {}

    def fit(self, ground: Ground) -> None:
        """Make all partitions feasible at today's weights."""
        sizes = ground.workload.size_prefix.copy()
        for n, win in zip(ground.nodes.tolist(), ground.wins, strict=True):
            if n in self.rows:
                rows = self.rows[n].copy()
                kernel.refit(rows, sizes, win, n, np.empty(len(rows), dtype=np.bool_))
                self.rows[n] = np.unique(rows, axis=0)

    def grow(
        self, ground: Ground, chain: Chain, paths: list[Ints], start: Ends, noise: float
    ) -> None:
        """Walk along the paths (places in the chain) and add what is found."""
        load = ground.workload
        sizes, found = load.size_prefix.copy(), dict[int, list[Ends]]()
        fitted = np.stack([
            self.prices.get(n, np.zeros(load.tasks + 1)) for n in chain.nodes.tolist()
        ])  # fmt: skip
        for number, path in enumerate(paths):
            if len(path) == 0:
                continue
            strength = noise * (number % 3) / 2
            shaken = fitted + strength * self.rng.standard_normal(load.tasks + 1)
            prices = np.rint(shaken * load.total_size).astype(np.int64)
            out = np.empty((len(path), self.wide), dtype=np.int32)
            kernel.walk(start, path, sizes, ground.wins, ground.nodes, prices, out)
            for place, row in zip(path.tolist(), out, strict=True):
                found.setdefault(int(chain.nodes[place]), []).append(row)
        for n, rows in found.items():
            self.add(n, np.array(rows, dtype=np.int32))

    def add(self, n: int, rows: Ends) -> None:
        """Add partitions for n."""
        old = [self.rows[n]] if n in self.rows else []
        self.rows[n] = np.unique(np.concatenate([*old, rows]), axis=0)

    def learn(self, n: int, value: Floats) -> None:
        """Fit the prices of n to the values of its partitions, and drop the worst of them."""
        rows = self.rows[n]
        prices = self.prices.setdefault(n, np.zeros(int(rows[0, -1]) + 1))
        kernel.fit_prices(rows, value, RIDGE, SWEEPS, prices)
        if len(rows) > self.size:
            best = np.argsort(value, kind="stable")[: self.size]
            self.rows[n] = rows[np.sort(best)]
