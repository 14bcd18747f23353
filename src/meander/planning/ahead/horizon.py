"""The policy `ahead`: plan the next migration over a horizon of likely ones.

It is told of every slot that is over (`observe`), learns volumes and drift from that, and plans
(`plan`). A plan is made inside a slot: of that it knows the n it plans for, and what was needed so
far where that was seen, and it looks from there.

  1. Analogs of this moment give futures of n for the next slots (analogs.py), merged into a chain
     of chances (chain.py).
  2. For every n of the chain there is a pool of partitions that are feasible at today's weights
     (pools.py).
  3. A dynamic programme over slots, n and pools gives what each partition leads to: expected cost
     of all migrations up to the horizon, with a price on the chance that drift breaks the cap.
  4. The cheapest partition by cost now plus what it leads to is improved by moving its boundaries
     one at a time, as long as that helps. `ssm`'s own plan is among the candidates, so by this
     measure no plan is worse than that.

Beside it walks a shadow of `ssm` (trust.py): where looking ahead has cost more than it saved, plans
are those of `ssm` for a while.

Every plan meets the caps of today's weights, whatever the forecast says, and its note says what was
expected. Nothing is made beforehand: what it knows is what it has observed. Pure: no clock, no
file; randomness is the seed's.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from meander.errors import InputError
from meander.model import Ints, Plan, Problem
from meander.planning.ahead.analogs import Futures, futures, rounding_to
from meander.planning.ahead.chain import Chain
from meander.planning.ahead.drift import Drift
from meander.planning.ahead.look import POLICY, Look, Settings
from meander.planning.ahead.pools import Ground, Pools
from meander.planning.ahead.trust import Trust
from meander.planning.exact.ssm import ssm


class Ahead:
    """A planner that remembers what it has seen."""

    def __init__(
        self,
        *,
        day_slots: int = 24,
        days_before: int = 0,
        window: int = 168,
        piece_slots: float = 1.0,
        settings: Settings | None = None,
        seed: int = 0,
    ) -> None:
        """Begin knowing nothing.

        Args:
            day_slots: slots of a day.
            days_before: slots from the begin of a Monday to the first slot that is observed.
            window: weights are sums over so many pieces of time; 0 if they are not.
            piece_slots: slots of such a piece (`weigh`).
            settings: how hard to look.
            seed: of the noise on prices.
        """
        self.day_slots, self.days_before = day_slots, days_before
        self.piece_slots = piece_slots
        self.settings = settings or Settings()
        self.rng = np.random.default_rng(seed)
        self.drift = Drift(window) if window else None
        self.least, self.most = 2**31, 1
        self._need = np.empty(1024)
        self._seen = 0
        self.pools: Pools | None = None
        self.trust = Trust()

    def observe(self, nodes: int, need: float | None = None) -> None:
        """Learn of a slot that is over: its n, and n before it was rounded, where that is known."""
        if self._seen == len(self._need):
            self._need = np.concatenate([self._need, np.empty(self._seen)])
        self._need[self._seen] = rounding_to(nodes, need)
        self._seen += 1
        self.least, self.most = min(self.least, nodes), max(self.most, nodes)

    def weigh(self, work: Ints) -> None:
        """Learn what work the tasks had in the piece of time that has just ended."""
        if self.drift is not None:
            self.drift.observe(work)

    def futures(self, nodes: int | None = None, need: float | None = None) -> Futures:
        """Give what may follow the last slot observed, or the one after it, which goes on.

        Args:
            nodes: n in the slot that goes on; None: none does.
            need: what was needed in it so far, where that was seen.
        """
        known, least, most = self._need[: self._seen], self.least, self.most
        if nodes is not None:
            known = np.append(known, rounding_to(nodes, need))
            least, most = min(least, nodes), max(most, nodes)
        return futures(
            known, self.days_before, horizon=self.settings.horizon, day_slots=self.day_slots,
            least=least, most=most, likeness=self.settings.likeness,
        )  # fmt: skip

    def plan(
        self, problem: Problem, need: float | None = None, tau: Fraction | None = None
    ) -> Plan:
        """Plan one migration, in the slot after the last one that was observed.

        Args:
            problem: what is to be planned.
            need: nodes that this slot needed so far, before rounding, where that was seen.
            tau: of migrations to come, where this one has another: an eased one, or a tighter one.

        Raises:
            InfeasibleError: if no assignment meets today's caps.
            InputError: if other tasks were weighed.
        """
        base = ssm(problem)
        if not problem.current.contiguous or self._seen == 0:
            why = "a node holds several runs" if self._seen else "no slot was observed yet"
            return replace(base, policy=POLICY, note=f"{why}: planned by ssm")
        load, seen = problem.workload, self.futures(problem.nodes, need)
        if self.drift is not None and self.drift.tasks not in (0, load.tasks):
            raise InputError(
                f"{self.drift.tasks} tasks were weighed, but the problem has {load.tasks}"
            )
        chain = Chain.of(seen, problem.nodes)
        ground = Ground.of(problem, chain.nodes, problem.tau if tau is None else tau)
        if (ground.caps < 0).any():
            why = f"the memory cap is too small for {chain.nodes[np.argmin(ground.caps)]} nodes"
            return replace(base, policy=POLICY, note=f"{why}, which may come: planned by ssm")
        if self.trust.begin(problem):
            found = self._look(problem, base, seen, ground, chain)
        else:
            note = (
                f"looking ahead did not pay: planned by ssm, for {self.trust.pause} migrations more"
            )
            found = replace(base, policy=POLICY, note=note)
        self.trust.end(found)
        return found

    def _look(
        self, problem: Problem, base: Plan, seen: Futures, ground: Ground, chain: Chain
    ) -> Plan:
        tasks = problem.workload.tasks
        wide = max(int(chain.nodes.max()), len(problem.current.nodes), self.most)
        if self.pools is None or self.pools.wide < wide or self.pools.tasks != tasks:
            self.pools = Pools(tasks, wide, self.settings.pool, self.rng)
        return Look(problem, base, seen, self.pools, self.drift, self.piece_slots, self.settings,
                    ground, chain).plan()  # fmt: skip
