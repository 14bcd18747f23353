"""The best path in hindsight: what planning could save if it knew the future.

All migrations of a trace are known, with the weights of each. A path is one partition per step,
each within its step's caps; its cost is the sum of what the steps move, as shares of all state.
Layers of partitions, one per step, are searched by Viterbi for the cheapest path; then the layers
grow around it and the search repeats:

    seeds       the paths of all policies that were replayed, so the answer is no dearer than any
    growth      per step, for the few partitions that the cheapest paths go through: the exact
                single step from a good predecessor, and (costs are symmetric) from a good
                successor, both also under random boundary prices; either neighbour's own
                partition, where it is feasible here; one boundary shifted by one or two tasks;
                and of the partitions of a forecast those that lie best between the two

It is a heuristic: the true optimum may be lower still, so a "share of the gap" that is measured
against it is an upper bound of the share against the true one. No useful certified lower bound is
known: the cheapest single steps add up to nearly nothing when τ allows the same partition for
neighbouring n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meander.model import Ints, Workload
from meander.planning.ahead.mdp import shares_of
from meander.planning.exact.partitions import Ends
from meander.planning.exact.ssm import ssm_partition
from meander.planning.kernels import paths as kernel
from meander.planning.kernels.prices import pair_costs, shifted
from meander.planning.kernels.types import Floats

LAYER_MAX = 160
"""Partitions of a layer that survive a round: a search is quadratic in it."""

FROM_POOL = 12
"""Partitions of a pool that join a layer for each of its parents in a round."""

PARENTS = 3
"""Partitions of a layer that get offspring in a round."""


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
    pools: Mapping[int, Ends] | None = None,
    rounds: int = 6,
) -> tuple[list[float], list[Ends]]:
    """Find a cheap path.

    Args:
        start: ends of the partition before the first step.
        stages: the steps.
        seeds: paths to begin with, each with one feasible partition per stage.
        rng: for random prices.
        pools: partitions to try wherever they are feasible, by number of nodes.
        rounds: of growth.

    Returns:
        The cost of every step as a share, and the partitions.
    """
    wide = max(len(start), *(stage.nodes for stage in stages))
    wide = max([wide, *(rows.shape[1] for rows in (pools or {}).values())])
    more = {n: _widened(rows, wide) for n, rows in (pools or {}).items()}
    layers = [_unique([_wide(path[t], wide) for path in seeds]) for t in range(len(stages))]
    first = _wide(start, wide)[None, :]
    costs, path, through = _viterbi(first, stages, layers)
    for number in range(rounds):
        ranked = [x[np.argsort(t, kind="stable")] for x, t in zip(layers, through, strict=True)]
        for t, stage in enumerate(stages):
            fresh = list[Ends]()
            for rank in range(PARENTS):
                here = _at(ranked[t], rank)
                before = _at(ranked[t - 1], rank) if t else first[0]
                after = _at(ranked[t + 1], rank) if t + 1 < len(path) else None
                fresh += _offspring(stage, here, before, after, wide, 0.02 / (1 + number), rng)
                if stage.nodes in more:
                    fresh += [*_between(stage, more[stage.nodes], before, after)]
            layers[t] = _unique([*ranked[t][:LAYER_MAX], path[t], *fresh])
        costs, path, through = _viterbi(first, stages, layers)
    return costs, path


def _between(stage: PathStage, rows: Ends, before: Ends, after: Ends | None) -> Ends:
    """The feasible partitions of a pool that cost the least on the way between two others."""
    fits, shares = _fitting(stage, rows), shares_of(stage.workload)
    total = np.zeros(len(fits))
    for side in (before, after):
        if side is not None:
            costs = np.empty(len(fits))
            pair_costs(np.broadcast_to(side, fits.shape), fits, shares, costs)
            total += costs
    return fits[np.argsort(total, kind="stable")[:FROM_POOL]]


def _at(ranked: Ends, rank: int) -> Ends:
    row: Ends = ranked[min(rank, len(ranked) - 1)]
    return row


def _widened(rows: Ends, wide: int) -> Ends:
    out = np.full((len(rows), wide), rows[0, -1], dtype=np.int32)
    out[:, : rows.shape[1]] = rows
    return out


def _fitting(stage: PathStage, rows: Ends) -> Ends:
    fits = np.empty(len(rows), dtype=np.bool_)
    kernel.feasible(rows, stage.workload.work_prefix, stage.cap, fits)
    return rows[fits]


def _offspring(
    stage: PathStage, here: Ends, before: Ends, after: Ends | None, wide: int, noise: float,
    rng: np.random.Generator,
) -> list[Ends]:  # fmt: skip
    """Partitions around one step of the path."""
    load, found = stage.workload, list[Ends]()
    sides = [side for side in (before, after) if side is not None]
    for side in sides:
        old = np.concatenate([[0], np.unique(side)]).astype(np.int64)
        for strength in (0.0, noise):
            prices = np.rint(
                rng.standard_normal(load.tasks + 1) * strength * load.total_size
            ).astype(np.int64)
            cuts = ssm_partition(load, old, stage.nodes, stage.cap, prices=prices)
            if cuts is not None:
                found.append(_wide(cuts[1:].astype(np.int32), wide))
    near = np.empty((4 * wide, wide), dtype=np.int32)
    count = shifted(here, _reach(load, stage.cap), stage.nodes, 2, near)
    others = [side for side in sides if len(np.unique(side)) <= stage.nodes]
    rows = np.concatenate([near[:count], np.array(others, dtype=np.int32).reshape(-1, wide)])
    return [*found, *_fitting(stage, rows)]


def _reach(load: Workload, cap: int) -> Ints:
    prefix = load.work_prefix
    return np.searchsorted(prefix, prefix[:-1] + cap, side="right") - 1


def _viterbi(
    first: Ends, stages: Sequence[PathStage], layers: list[Ends]
) -> tuple[list[float], list[Ends], list[Floats]]:
    """Give the cheapest path, its steps' costs, and for every partition the best path through it."""
    shares = [shares_of(stage.workload) for stage in stages]
    ahead, sources = _pass([first, *layers], shares)
    back, _ = _pass([*layers[::-1], first], shares[::-1])
    back = back[::-1]
    at = int(np.argmin(ahead[-1]))
    total, path, costs = ahead[-1][at], list[Ends](), list[float]()
    for t in range(len(stages) - 1, -1, -1):
        path.append(layers[t][at])
        at = int(sources[t][at])
        costs.append(float(total - ahead[t][at]))
        total = ahead[t][at]
    # back[t + 1] starts in the last layer with 0 and ends in `first`: it is aligned with `ahead`.
    through = [a + b for a, b in zip(ahead[1:], back[1:], strict=True)]
    return costs[::-1], path[::-1], through


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
