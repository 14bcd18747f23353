"""One look ahead: value partitions over the horizon, choose one, improve it. See `horizon`.

What a partition *leads to* is the expected cost of all migrations after it up to the horizon, by the
dynamic programme of `kernels.horizon` over the chain of n and the pools. Its *score* is what it costs
to go there now plus what it leads to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from meander.model import Ints, Plan, Problem
from meander.planning.ahead.analogs import Futures, Likeness
from meander.planning.ahead.chain import Chain
from meander.planning.ahead.drift import Drift
from meander.planning.ahead.mdp import shares_of
from meander.planning.ahead.pools import Ground, Pools
from meander.planning.exact.even import renamed
from meander.planning.exact.match import assign, run_bounds
from meander.planning.exact.partitions import Ends
from meander.planning.kernels import horizon as kernel
from meander.planning.kernels import pools as pool_kernel
from meander.planning.kernels.prices import pair_costs
from meander.planning.kernels.types import Floats

POLICY = "ahead"
TIMES = np.array([1, 3, 6, 12, 24, 48])
"""Slots ahead at which the risk of drift is computed; between them it is interpolated."""
GOALS = 3
"""Partitions per n to come whose boundaries are tried there."""


@dataclass(frozen=True)
class Settings:
    """How far and how hard to look: first guesses, tried on a span before 2020 (docs/forecast.md)."""

    horizon: int = 48
    gamma: float = 0.98
    """Discount per slot: the farther, the less sure."""
    pool: int = 100
    walks: int = 16
    """Futures that a plan grows its pools along."""
    noise: float = 0.01
    """Of the prices of walks, as a share of all state."""
    first_walks: int = 120
    """Of the first plan, whose pools are empty."""
    columns: int = 4
    """Next steps for which a plan looks for better partitions than the pools have."""
    risk: float = 2.0
    """Price of drift over the cap; see drift.py."""
    likeness: Likeness = field(default_factory=Likeness)


class Look:
    """One look ahead."""

    def __init__(
        self, problem: Problem, base: Plan, seen: Futures, pools: Pools, drift: Drift | None,
        piece_slots: float, settings: Settings, ground: Ground, chain: Chain,
    ) -> None:  # fmt: skip
        """Prepare to plan.

        Args:
            problem: today's weights, caps and assignment; one run per node.
            base: the plan of `ssm`.
            seen: futures of n.
            pools: partitions to choose from; they grow.
            drift: of weights, if they do.
            piece_slots: slots of a piece of time that `drift` counts.
            settings: how hard to look.
            ground: today's weights and caps for every n of the chain.
            chain: the futures, merged.
        """
        self.problem, self.base, self.pools = problem, base, pools
        self.drift, self.piece_slots, self.wish = drift, piece_slots, settings
        self.ground, self.chain = ground, chain
        self.here = self.chain.place(problem.nodes)
        self.shares = shares_of(problem.workload)
        self._drift: tuple[Floats, Floats] | None = None
        """Prefix sums of predicted shares of work, and of their variances, at `TIMES`."""
        self.old = self._row(run_bounds(problem.current))
        self._grow(seen)
        self.rows = np.concatenate([pools.rows[n] for n in self.chain.nodes.tolist()])
        sizes = [len(pools.rows[n]) for n in self.chain.nodes.tolist()]
        self.first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._value()

    def _row(self, cuts: Ints) -> Ends:
        row = np.empty(self.pools.wide, dtype=np.int32)
        pool_kernel.put(cuts, row)
        return row

    def _grow(self, seen: Futures) -> None:
        fresh = not self.pools.rows
        self.pools.fit(self.ground)
        count = self.wish.first_walks if fresh else self.wish.walks
        picks = self.pools.rng.choice(len(seen.weight), size=count, p=seen.weight)
        paths = [self._path(seen.nodes[k]) for k in picks]
        start = self._row(run_bounds(self.base.target))
        self.pools.add(self.problem.nodes, start[None, :])
        self.pools.grow(self.ground, self.chain, paths, self.old, self.wish.noise)
        for n in self.chain.nodes.tolist():
            if n not in self.pools.rows:
                path = np.array([self.chain.place(n)])
                self.pools.grow(self.ground, self.chain, [path], start, 0.0)

    def _path(self, nodes: Ints) -> Ints:
        """This n, then each n that the future changes to, as places in the chain."""
        whole = np.concatenate([[self.problem.nodes], nodes])
        changed = np.concatenate([[True], whole[1:] != whole[:-1]])
        return np.asarray(np.searchsorted(self.chain.nodes, whole[changed]))

    def _value(self) -> None:
        chain, count = self.chain, len(self.rows)
        costs = np.zeros((count, count))
        kernel.pool_costs(self.rows, self.first, chain.changes(), self.shares, costs)
        caps = np.repeat(self.ground.caps, np.diff(self.first))
        self.value = np.empty((chain.horizon + 1, count))
        self.arrive = np.empty((chain.horizon + 1, count))
        kernel.backward(
            costs, self.first, chain.begin, chain.source, chain.target, chain.chance,
            self.wish.gamma, self._risk(self.rows, caps), self.value, self.arrive,
        )  # fmt: skip

    def _risk(self, rows: Ends, caps: Ints) -> Floats:
        """`[slot, row]`: the price of drift, if it is arrived at in that slot."""
        drift, slots = self.drift, np.arange(self.chain.horizon + 1)
        if drift is None or not drift.known or self.wish.risk == 0:
            return np.zeros((len(slots), len(rows)))
        if self._drift is None:
            pieces = np.ceil(TIMES / self.piece_slots).astype(np.int64)
            work = drift.predicted(pieces)
            load = _prefixes(work / np.maximum(work.sum(axis=1, keepdims=True), 1))
            self._drift = load, _prefixes(drift.errors(pieces))
        share, at = (
            caps / max(self.problem.workload.total_work, 1),
            np.empty((len(TIMES), len(rows))),
        )
        kernel.risks(rows, share, *self._drift, self.wish.risk, at)
        place = np.interp(slots, TIMES, np.arange(len(TIMES)))
        low = np.minimum(place.astype(np.int64), len(TIMES) - 2)
        part = (place - low)[:, None]
        return np.asarray(at[low] * (1 - part) + at[low + 1] * part)

    def plan(self) -> Plan:
        """Choose, improve, and say what was expected."""
        part = self._part(self.here)
        scores = self._costs(self.old, self.rows[part]) + self.value[0, part]
        best = int(np.argmin(scores))
        row = self._improved(self.rows[part][best], float(scores[best]))
        found = Plan(self.problem, assign(self.problem, pool_kernel.cuts_of(row)), POLICY)
        found = replace(renamed(found), bound=self.base.bound)
        score, by_ssm = self._score(found), self._score(self.base)
        columns = self._columns(row)
        for i, n in enumerate(self.chain.nodes.tolist()):
            self.pools.learn(n, self.arrive[self._times(i), self._part(i)].mean(axis=0))
        for n, rows in [(self.problem.nodes, row[None, :]), *columns]:
            self.pools.add(n, rows)
        if score >= by_ssm - 1e-9:
            return replace(self.base, policy=POLICY, note="ssm is best over the horizon too")
        note = (
            f"moves {found.cost_share:.2%} now where ssm moves {self.base.cost_share:.2%}, and is "
            f"expected to save {by_ssm - score:.2%} of all state in {self.chain.horizon} slots; "
            f"{self._expected()}"
        )
        return replace(found, optimal=found.cost == self.base.bound, note=note)

    def _score(self, plan: Plan) -> float:
        """What a plan costs, with nodes that leave and hosts that stay even, and what it leads to."""
        row = self._row(run_bounds(plan.target))
        return plan.cost_share + float(self._leads(row[None, :], self.here, 0)[0])

    def _part(self, place: int) -> slice:
        return slice(int(self.first[place]), int(self.first[place + 1]))

    def _times(self, place: int) -> Ints:
        """The first slots in which the n at this place may be arrived at."""
        chain = self.chain
        slots = np.repeat(np.arange(chain.horizon), np.diff(chain.begin))
        came = np.unique(slots[(chain.target == place) & (chain.source != place)]) + 1
        return came[:8] if len(came) else np.array([0])

    def _costs(self, old: Ends, rows: Ends) -> Floats:
        """What it costs to go from one partition to each of some."""
        out = np.empty(len(rows))
        pair_costs(np.broadcast_to(old, rows.shape), rows, self.shares, out)
        return out

    def _leads(self, rows: Ends, place: int, slot: int) -> Floats:
        """What partitions lead to that need not be in a pool."""
        chain, out = self.chain, np.empty(len(rows))
        kernel.best_values(
            rows, place, slot, self.rows, self.first, chain.begin, chain.source, chain.target,
            chain.chance, self.wish.gamma, self.shares, self.arrive, out,
        )  # fmt: skip
        return out

    def _scores(self, rows: Ends) -> Floats:
        return self._costs(self.old, rows) + self._leads(rows, self.here, 0)

    def _near(self, row: Ends, place: int, places: Ints) -> Ends:
        """Move one boundary: by a task or two, by more where tasks are many, or to a place."""
        tasks = self.problem.workload.tasks
        reach = np.searchsorted(self.ground.wins[place], np.arange(tasks), side="right") - 1
        far = np.unique([1, 2, max(tasks // 128, 1), max(tasks // 64, 1), max(tasks // 32, 1)])
        return kernel.moved_boundaries(row, reach, np.concatenate([-far, far]), places)

    def _improved(self, row: Ends, score: float) -> Ends:
        """Move boundaries one at a time while that helps."""
        places = self._places()
        while len(near := self._near(row, self.here, places)):
            scores = self._scores(near)
            best = int(np.argmin(scores))
            if scores[best] >= score - 1e-9:
                break
            row, score = near[best], float(scores[best])
        return row

    def _places(self) -> Ints:
        """Boundaries of today's partition, and of those that are best to arrive at soon."""
        chain, wanted = self.chain, [self.old]
        for b in np.unique(chain.target[chain.source == self.here]).tolist():
            part = self._part(b)
            soon = self.arrive[self._times(b)[0], part]
            wanted += [*self.rows[part][np.argsort(soon)[:GOALS]]]
        return np.unique(np.concatenate(wanted)).astype(np.int64)

    def _leaving(self) -> list[tuple[float, int, int]]:
        """Chance, slot and place of each next n, the likeliest slot for each, likeliest first."""
        chain, stay, found = self.chain, 1.0, dict[int, tuple[float, int, int]]()
        for s in range(chain.horizon):
            keep = 0.0
            for i in range(chain.begin[s], chain.begin[s + 1]):
                if chain.source[i] == self.here:
                    b, chance = int(chain.target[i]), stay * float(chain.chance[i])
                    if b == self.here:
                        keep = float(chain.chance[i])
                    elif chance > found.get(b, (0.0,))[0]:
                        found[b] = (chance, s + 1, b)
            stay *= keep
        return sorted(found.values(), reverse=True)

    def _columns(self, row: Ends) -> list[tuple[int, Ends]]:
        """For the likeliest next steps, better partitions than the pool has: for the next plan."""
        found, places = [], np.unique(row).astype(np.int64)
        for _, slot, b in self._leaving()[: self.wish.columns]:
            part = self._part(b)
            now = self._costs(row, self.rows[part]) + self.arrive[slot, part]
            best = int(np.argmin(now))
            near = self._near(self.rows[part][best], b, places)
            if len(near) == 0:
                continue
            risk = self._risk(near, np.full(len(near), self.ground.caps[b]))[slot]
            scores = self._costs(row, near) + self._leads(near, b, slot) + risk
            better = np.flatnonzero(scores < now[best] - 1e-9)
            if len(better):
                top = better[np.argsort(scores[better])[:GOALS]]
                found.append((int(self.chain.nodes[b]), near[top]))
        return found

    def _expected(self) -> str:
        """Say which n are likely next."""
        likely = [
            f"{self.chain.nodes[b]} nodes in {slot} slots ({chance:.0%})"
            for chance, slot, b in self._leaving()[:2]
        ]
        return f"expects {' or '.join(likely)}" if likely else "expects n to stay"


def _prefixes(values: Floats) -> Floats:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
