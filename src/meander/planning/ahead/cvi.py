"""Candidate value iteration: a forecast where the feasible partitions cannot be listed.

The states of `pmc.solve` may be any set of partitions. This file grows a good one.

    begin    walks: label sequences drawn from the MTM, every step planned exactly (`ssm` with
             prices) under random boundary prices of several strengths
    round    1. solve the candidates                                   -> V, the best successors
             2. fit boundary prices to V, where the policy goes        (prices.py)
             3. generate columns: (a) walks under the fitted prices plus noise, which may leave the
                set; (b) for the steps that the policy takes most, its choice with one boundary
                moved by one or two tasks. A column of kind (b) joins if, by one-step look-ahead,
                it makes a step of the policy cheaper; the most useful first
             4. prune: what the policy never visits goes first
    end      solve once more

V over candidates is an upper bound of the exact V, since it is the cost of a policy that is
restricted to them; every column can only lower it.

All randomness comes from the seed. Nothing here is optimal by proof: tests compare with the exact
values where these exist, and `forecast.py` guards every use.

Cost: a round is a few sweeps over K·|n| rows, and a sweep looks at a few hundred trie vertices a
row and label; with K = 800, m = 64 and n = 8 … 16 a round takes a few seconds on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from meander.model import Workload
from meander.planning.ahead.mdp import Model, check_gamma
from meander.planning.ahead.mtm import Mtm
from meander.planning.ahead.pmc import Frontier, Improve, ProjectedCosts, improve, look_ahead, solve
from meander.planning.ahead.prices import Fit, fit_prices
from meander.planning.ahead.space import Space
from meander.planning.exact.partitions import Ends, Family
from meander.planning.kernels import prices as kernel
from meander.planning.kernels.types import Floats, Ints


@dataclass(frozen=True)
class Effort:
    """How much to spend. The defaults suit m = 64 and n = 8 … 16."""

    candidates: int = 800
    """Most partitions per n that survive a round."""
    rounds: int = 5
    chains: int = 48
    """Walks side by side."""
    steps: int = 80
    """Length of a walk."""
    columns: int = 250
    """Most columns of kind (b) per n and round."""
    pairs: int = 1500
    """How many of the policy's most frequent steps are refined in a round."""
    ridge: float = 3.0
    noise: tuple[float, ...] = (0.0, 0.002, 0.008, 0.03)
    """Strengths of random prices, as shares of all state; chains take them in turn."""
    tol: float = 1e-5


CARRY = Effort(chains=12, steps=40)
"""Walks when candidates are carried over to new weights."""


@dataclass(frozen=True)
class CandidateRound:
    """What one round achieved, for whoever watches."""

    number: int
    of: int
    """The number of the last round."""
    candidates: int
    step_cost: float
    """Mean cost of a migration under the policy and the MTM, as a share of all state."""
    r2: float
    """How well prices explain the values, in the mean over labels."""


@dataclass(frozen=True, eq=False)
class Grown:
    """The candidates with their values, and the prices fitted to them."""

    model: Model
    values: ProjectedCosts
    theta: Floats
    """`[label, boundary]`."""
    rounds: tuple[CandidateRound, ...]


Pool = dict[int, Ends]
"""The candidates by number of nodes."""


def grow(
    workload: Workload,
    mtm: Mtm,
    gamma: float,
    tau: Fraction,
    seed: int,
    *,
    effort: Effort | None = None,
    sweep: Improve = improve,
    watch: Callable[[CandidateRound, Mapping[int, Ends]], None] | None = None,
    start: tuple[int, Mapping[int, Ends]] | None = None,
) -> Grown:
    """Grow candidates and give their projected migration costs.

    Args:
        workload: weights of the tasks.
        mtm: where n goes.
        gamma: the discount factor.
        tau: the imbalance to allow.
        seed: the same seed gives the same candidates.
        effort: how much to spend.
        sweep: who improves rows.
        watch: told of every round, with the candidates it began with.
        start: a round and its candidates, as `watch` got them: go on from there.
    """
    effort = effort or Effort()
    space = Space(workload, mtm, check_gamma(gamma), tau)
    number, pool, rounds = 0, Pool(), list[CandidateRound]()
    if start is not None:
        number, pool = start[0], dict(start[1])
    else:
        prices = np.zeros((len(mtm.labels), workload.tasks + 1))
        _add(space, pool, *_walk(space, prices, effort, _source(seed, 0)))
        _cover(space, pool)
    while True:
        rng = _source(seed, number + 1)
        model = Model.of(workload, mtm, gamma, Family.of(workload, tau, pool))
        values = solve(model, tol=effort.tol, sweep=sweep)
        visits, step_cost = _visits(model, values, effort, rng)
        fits = _fit(model, values, visits, effort.ridge)
        theta = np.stack([fit.theta for fit in fits])
        r2 = float(np.mean([fit.r2 for fit in fits]))
        rounds.append(CandidateRound(number, effort.rounds, len(model.family), step_cost, r2))
        if watch is not None:
            watch(rounds[-1], pool)
        if number >= effort.rounds:
            return Grown(model, values, theta, tuple(rounds))
        pool = _pruned(model, visits, effort.candidates)
        _add(space, pool, *_walk(space, gamma * theta, effort, rng))
        for rows, sets in _columns(space, model, values, visits, effort, sweep):
            _add(space, pool, rows, sets)
        number += 1


def adapt(space: Space, pool: Mapping[int, Ends]) -> Pool:
    """Replace every partition by the nearest that is feasible in this space.

    The nearest is exact: `ssm` from the partition to its own n moves the least. So yesterday's
    candidates serve today's weights; what was feasible stays as it is.
    """
    result = Pool()
    for s, n in enumerate(space.mtm.nodes):
        rows = np.stack([space.propose(ends, s, space.no_prices) for ends in pool[n]])
        result[n] = np.unique(rows[:, :n], axis=0)
    return result


def carry(space: Space, pool: Mapping[int, Ends], theta: Floats, seed: int) -> Pool:
    """Adapt candidates to new weights, and add what short walks under their prices meet there."""
    result = adapt(space, pool)
    _add(space, result, *_walk(space, space.gamma * theta, CARRY, _source(seed, 0)))
    return result


def _source(seed: int, number: int) -> np.random.Generator:
    """Every round has its own random numbers, so that a resumed run goes the same way."""
    return np.random.default_rng([seed, number])


def _add(space: Space, pool: Pool, rows: Ends, sets: Ints) -> None:
    """Take in partitions of mixed sets, without duplicates."""
    for s in np.unique(sets):
        n = int(space.nodes[s])
        fresh = rows[sets == s][:, :n]
        known = pool.get(n, fresh[:0])
        pool[n] = np.unique(np.concatenate([known, fresh]), axis=0)


def _cover(space: Space, pool: Pool) -> None:
    """Give every n a partition: walks may not have come to one that is seldom reached."""
    whole = np.array([space.workload.tasks], dtype=np.int32)
    for s, n in enumerate(space.mtm.nodes):
        if n not in pool:
            pool[n] = space.propose(whole, s, space.no_prices)[None, :n]


def _pruned(model: Model, visits: Floats, most: int) -> Pool:
    """Keep the most visited; among the never visited, a spread-out sample."""
    kept = Pool()
    for s, part in enumerate(model.family.sets):
        start = model.family.members[s]
        score = visits[start : start + len(part)].sum(axis=1)
        order = np.argsort(-score, kind="stable")
        used = order[score[order] > 0][:most]
        idle = order[len(used) :]
        room = min(max(most - len(used), 0), len(idle))
        sample = idle[np.linspace(0, len(idle) - 1, room).astype(np.int64)] if room else idle[:0]
        kept[part.nodes] = part.ends[np.concatenate([used, sample])]
    return kept


def _walk(
    space: Space, prices: Floats, effort: Effort, rng: np.random.Generator
) -> tuple[Ends, Ints]:
    """Follow label sequences with the priced dynamic program; give all that was visited."""
    chains, m = effort.chains, space.workload.tasks
    strength = np.resize(np.array(effort.noise), chains)[:, None]
    label = rng.integers(len(space.mtm.labels), size=chains)
    here = np.full((chains, int(space.nodes.max())), m, dtype=np.int32)
    rows, sets = [], []
    for _ in range(effort.steps):
        asked = prices[label] + strength * rng.standard_normal((chains, m + 1))
        to = space.set_of[label]
        here = np.stack([space.propose(*step) for step in zip(here, to, asked, strict=True)])
        rows.append(here)
        sets.append(to)
        label = _next(space.mtm, label, rng)
    return np.concatenate(rows), np.concatenate(sets)


def _next(mtm: Mtm, label: Ints, rng: np.random.Generator) -> Ints:
    """Draw a successor for every label."""
    reached = np.cumsum(mtm.matrix, axis=1)[label] > rng.random(len(label))[:, None]
    return np.asarray(reached.argmax(axis=1))


def _visits(
    model: Model, values: ProjectedCosts, effort: Effort, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Simulate the policy on its candidates: how often a row meets a next label, and mean cost."""
    mtm, family, chains = model.mtm, model.family, 4 * effort.chains
    label = rng.integers(len(mtm.labels), size=chains)
    sets = model.set_of[label]
    row = family.members[sets] + rng.integers(np.diff(family.members)[sets])
    visits, spent, burn = np.zeros((len(family), len(mtm.labels))), 0.0, 20
    for step in range(burn + 2 * effort.steps):
        label = _next(mtm, label, rng)
        if step >= burn:
            np.add.at(visits, (row, label), 1.0)
            spent += float(values.choices.cost[row, label].mean())
        row = family.members[model.set_of[label]] + values.choices.choice[row, label]
    return visits, spent / (2 * effort.steps)


def _fit(model: Model, values: ProjectedCosts, visits: Floats, ridge: float) -> list[Fit]:
    """Fit prices per label, weighted by visits; every candidate counts a little."""
    seen, fits = visits.sum(axis=1), []
    for label, s in enumerate(model.set_of):
        part, start = model.family.sets[s], model.family.members[s]
        weight = seen[start : start + len(part)]
        weight = weight + max(weight.mean(), 1.0) * 0.3
        value = values.value[model.value_from[label] : model.value_from[label + 1]]
        fits.append(fit_prices(part.ends, value, weight, ridge))
    return fits


def _columns(
    space: Space,
    model: Model,
    values: ProjectedCosts,
    visits: Floats,
    effort: Effort,
    sweep: Improve,
) -> list[tuple[Ends, Ints]]:
    """Shift one boundary of the choices that the policy makes most; keep what pays."""
    busy = np.argsort(-visits, axis=None, kind="stable")[: effort.pairs]
    row, label = np.unravel_index(busy[visits.flat[busy] > 0], visits.shape)
    chosen = model.family.members[model.set_of[label]] + values.choices.choice[row, label]
    near, origin = _neighbours(space, model, np.unique(chosen))
    if len(near) == 0:
        return []
    sets = model.family.set_of_row[origin]
    ahead, _ = look_ahead(model, Frontier.of(model, values.value), near, sets, sweep)
    best_gain = np.zeros(len(near))
    for r, to, c in zip(row, label, chosen, strict=True):
        mine = slice(*np.searchsorted(origin, [c, c + 1]))
        costs = np.empty(mine.stop - mine.start)
        old = np.broadcast_to(model.family.ends[r], (len(costs), model.family.ends.shape[1]))
        kernel.pair_costs(old, near[mine], model.shares, costs)
        there = model.value_from[to] + values.choices.choice[r, to]
        now = values.choices.cost[r, to] + model.gamma * values.value[there]
        gain = now - (costs + model.gamma * ahead[mine, to])
        best_gain[mine] += np.maximum(gain, 0.0) * visits[r, to]
    result = []
    for s in range(len(space.nodes)):
        mine_ = np.flatnonzero((sets == s) & (best_gain > 1e-9))
        top = mine_[np.argsort(-best_gain[mine_], kind="stable")][: effort.columns]
        if len(top):
            result.append((near[top], sets[top]))
    return result


def _neighbours(space: Space, model: Model, rows: Ints) -> tuple[Ends, Ints]:
    """All one-boundary shifts of these rows of the family, with the row each came from."""
    wide, found, origin = model.family.ends.shape[1], [], []
    buffer = np.empty((4 * wide, wide), dtype=np.int32)
    for r in rows:
        s = model.family.set_of_row[r]
        n = kernel.shifted(model.family.ends[r], space.reach[s], int(space.nodes[s]), 2, buffer)
        found.append(buffer[:n].copy())
        origin.append(np.full(n, r))
    return np.concatenate(found), np.concatenate(origin)
