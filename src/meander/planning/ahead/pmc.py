"""Projected migration costs (PMC): what a partition will cost from here on, by policy iteration.

For a label l (see mtm.py) and a partition P for its number of nodes, Section 5.2 of the paper with
the minimum that Figure 9 lacks (as printed it diverges; docs/errata.md, 7):

    V[l, P] = Σ_l′  M[l, l′] · Q[P, l′]          Q[P, l′] = min_P′  c(P, P′) + γ·V[l′, P′]

c is the share of all state that moves; γ < 1, since with γ = 1 the sum has no limit.

Deviations from Figure 9
  * The minimum; and it does not depend on l, so all labels with the same n share it.
  * Policy iteration instead of plain value iteration: a *sweep* finds every minimum, which is the
    dear part; in between the policy that it found is evaluated by cheap sparse iterations. Plain
    iteration at γ = 0.8 needs some 60 sweeps for six digits, this needs 3 to 8.
  * A sweep is a branch and bound, not a look at all pairs (kernels/pmc.py), and gives the same.

Certificate. After a sweep with V, let T be the operator above and r = max |TV - V|. Then V is
within r/(1-γ) of the fixed point everywhere. `solve` stops when that is at most `tol`.

The partitions may be all feasible ones (`Family.exact`), which makes V exact, or candidates
(cvi.py), which makes V an upper bound: the cost of a policy that uses these partitions only.

>>> from meander.model import Workload
>>> from meander.planning.ahead.mtm import Mtm
>>> from meander.planning.exact.partitions import Family
>>> table4 = Mtm.from_matrix([2, 3, 4], [[.3, .6, .1], [.3, .4, .3], [.1, .5, .4]])
>>> load = Workload([1] * 8, [1] * 8)
>>> model = Model.of(load, table4, 0.8, Family.exact(load, table4.nodes, "1/2"))
>>> answer = solve(model)
>>> len(model.family), answer.error < 1e-9
(40, True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meander.planning.ahead.mdp import Model
from meander.planning.exact.partitions import Ends
from meander.planning.kernels import pmc as kernel
from meander.planning.kernels.types import Bools, Floats, Ints, Rows


@dataclass(eq=False)
class Choices:
    """For old partitions (rows) and next labels: the best successor so far. Sweeps improve it."""

    cost: Floats
    """`[row, label]`: c(P, P′) of the choice."""
    choice: Rows
    """`[row, label]`: the number of P′ in its set; -1 before the first sweep."""
    floor: Floats
    """`[row, set]`: a lower bound of c; kept by the search by scan."""
    first: bool = True

    @classmethod
    def empty(cls, rows: int, model: Model) -> Choices:
        """Nothing chosen yet."""
        labels = len(model.mtm.labels)
        floor = (0, 0) if model.by_trie else (rows, len(model.family.sets))
        return cls(
            np.zeros((rows, labels)),
            np.full((rows, labels), -1, dtype=np.int32),
            np.zeros(floor),
        )

    def rows(self, start: int, stop: int) -> Choices:
        """Give a view of some rows."""
        return Choices(
            self.cost[start:stop], self.choice[start:stop], self.floor[start:stop], self.first
        )


@dataclass(frozen=True, eq=False)
class Frontier:
    """What a sweep reads of V: made once, then shared by all rows (and by all Spark tasks)."""

    value: Floats
    low: Floats
    """Trie minima, for the search by trie; else empty."""
    order: Ints
    """Each label's partitions by ascending value, for the search by scan; else empty."""

    @classmethod
    def of(cls, model: Model, value: Floats) -> Frontier:
        """Prepare a sweep."""
        if model.by_trie:
            return cls(value, model.lows(value), np.empty(0, dtype=np.int64))
        return cls(value, np.empty(0), model.order(value))


def improve(model: Model, frontier: Frontier, rows: Ends, wanted: Bools, choices: Choices) -> int:
    """Find the best successor for every row and wanted label, in place.

    Args:
        model: with the sets of partitions.
        frontier: their values.
        rows: old partitions, padded with m, of any number of intervals.
        wanted: `[row, label]`.
        choices: of these rows.

    Returns:
        How many trie vertices or pairs were looked at.
    """
    family = model.family
    if model.by_trie:
        return int(kernel.best_by_trie(
            rows, wanted, model.shares, model.set_of, family.vertices, *family.trie,
            family.members, family.ends, family.nodes, family.reach,
            frontier.low, model.low_from, frontier.value, model.value_from, model.gamma,
            family.width, choices.cost, choices.choice,
        ))  # fmt: skip
    return int(kernel.best_by_scan(
        rows, wanted, model.shares, model.set_of, family.members, family.ends,
        frontier.value, model.value_from, frontier.order, model.gamma,
        choices.floor, choices.first, choices.cost, choices.choice,
    ))  # fmt: skip


Improve = Callable[[Model, Frontier, Ends, Bools, Choices], int]
"""The signature of `improve`; `meander.spark` has one that spreads the rows over a cluster."""


@dataclass(frozen=True)
class SweepProgress:
    """Where an iteration stands, for whoever watches or wants to resume."""

    sweeps: int
    error: float
    """Certified distance to the fixed point, as a share of all state."""
    looked_at: int
    """Trie vertices or pairs in the last sweep."""


@dataclass(frozen=True, eq=False)
class ProjectedCosts:
    """The answer: V, label after label, with the choices that attain it."""

    value: Floats
    choices: Choices
    sweeps: int
    error: float
    """V is within this of the fixed point, as a share of all state."""


Watcher = Callable[[SweepProgress, Floats, Choices], None]


def solve(
    model: Model,
    *,
    tol: float = 1e-9,
    sweep: Improve = improve,
    start: tuple[Floats, Choices | None] | None = None,
    watch: Watcher | None = None,
    sweeps_max: int = 200,
) -> ProjectedCosts:
    """Find the projected migration costs of every label and partition of the model.

    Args:
        model: what is to be solved.
        tol: the certified error to stop at, as a share of all state.
        sweep: who improves all rows once.
        start: values and choices to go on from: a checkpoint, or a good guess.
        watch: called after every sweep, with what is needed to resume.
        sweeps_max: a limit that only rounding could reach; the error says how far it got.
    """
    value, choices = start or (np.zeros(int(model.value_from[-1])), None)
    choices = choices or Choices.empty(len(model.family), model)
    rows, wanted = model.family.ends, model.next_labels[model.family.set_of_row]
    error, sweeps = np.inf, 0
    while sweeps < sweeps_max:
        looked_at = sweep(model, Frontier.of(model, value), rows, wanted, choices)
        choices.first = False
        sweeps += 1
        fresh = np.empty_like(value)
        error = _apply(model, choices, value, fresh) / (1 - model.gamma)
        value = fresh
        if error > tol:
            _evaluate(model, choices, value, tol * (1 - model.gamma) / 10)
        if watch is not None:
            watch(SweepProgress(sweeps, error, looked_at), value, choices)
        if error <= tol:
            break
    return ProjectedCosts(value, choices, sweeps, float(error))


def look_ahead(
    model: Model, frontier: Frontier, rows: Ends, sets: Ints, sweep: Improve = improve
) -> tuple[Floats, Choices]:
    """Value partitions that need not belong to the model: one step, then the model's values.

    Args:
        model: the candidates.
        frontier: their values.
        rows: partitions, padded with m to the model's largest n.
        sets: for each row, the set (the n) that it stands in for.
        sweep: who improves the rows.

    Returns:
        `[row, label]`: V as seen from here, for the labels of the row's n and infinite for
        others; and the choices behind it.
    """
    choices = Choices.empty(len(rows), model)
    sweep(model, frontier, rows, model.next_labels[sets], choices)
    ahead = np.concatenate([frontier.value, [0.0]])  # what -1 names is replaced below
    chosen = np.where(choices.choice < 0, -1, model.value_from[:-1] + choices.choice)
    best = np.where(choices.choice < 0, 0.0, choices.cost + model.gamma * ahead[chosen])
    seen = best @ model.mtm.matrix.T
    return np.where(model.set_of[None, :] == sets[:, None], seen, np.inf), choices


def _apply(model: Model, choices: Choices, value: Floats, out: Floats) -> float:
    return float(kernel.bellman(
        model.mtm.matrix, model.set_of, model.family.members, model.value_from, model.gamma,
        choices.cost, choices.choice, value, out,
    ))  # fmt: skip


def _evaluate(model: Model, choices: Choices, value: Floats, tol: float) -> None:
    """Bring V in place to the value of the policy that the choices are."""
    most = 10 + int(np.ceil(np.log(tol / 10) / np.log(model.gamma))) if model.gamma > 0 else 1
    kernel.evaluate_policy(
        model.mtm.matrix, model.set_of, model.family.members, model.value_from, model.gamma,
        choices.cost, choices.choice, value, tol, most,
    )  # fmt: skip
