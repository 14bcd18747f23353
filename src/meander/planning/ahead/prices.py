"""Boundary prices: the projected cost of a partition, written as a sum over its boundaries.

    V[l, P]  ≈  base_l + Σ_{inner boundaries b of P} θ_l(b)

With V in this form the choice `min_P′ c(P, P′) + γ·V[l, P′]` over *all* feasible partitions is one
exact dynamic program instead of a search over a list. The fit is a weighted ridge: pulled towards
the mean price, so that a boundary no partition used costs what a boundary costs on average.

>>> ends = np.array([[2, 4, 6], [3, 4, 6], [2, 5, 6]], dtype=np.int32)
>>> fit = fit_prices(ends, np.array([1.0, 2.0, 3.0]), np.ones(3), ridge=1e-9)
>>> (fit.theta[3] - fit.theta[2]).round(3), (fit.theta[5] - fit.theta[4]).round(3)
(np.float64(1.0), np.float64(2.0))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meander.planning.exact.partitions import Ends
from meander.planning.kernels.types import Floats


class Fit(NamedTuple):
    """Prices of one label."""

    theta: Floats
    """One price per boundary 0 … m; 0 at both ends."""
    base: float
    r2: float
    """The share of V's weighted variance that the prices explain."""


def fit_prices(ends: Ends, value: Floats, weight: Floats, ridge: float) -> Fit:
    """Fit the prices of one label.

    Args:
        ends: partitions, padded with m.
        value: V of each.
        weight: how much each counts, e.g. how often it is visited; not negative, not all 0.
        ridge: the pull towards the mean price, in units of one average weight.
    """
    m = int(ends[0, -1])
    rows = np.zeros((len(ends), m + 1))
    for column in ends.T:
        rows[np.arange(len(ends)), column] = 1.0
    rows[:, m] = 0.0
    w = weight / weight.mean()
    mean = float((w * value).sum() / w.sum())
    count = rows.sum(axis=1)
    spread = ((w * (count - (w * count).sum() / w.sum()) ** 2).sum()) > 0
    slope = _slope(count, value - mean, w) if spread else 0.0
    rest = value - mean - slope * (count - (w * count).sum() / w.sum())
    centre = (w[:, None] * rows).sum(axis=0) / w.sum()
    x = rows - centre
    gram = (x * w[:, None]).T @ x + ridge * np.eye(m + 1)
    theta = np.linalg.solve(gram, x.T @ (w * rest))
    left = rest - x @ theta
    var = float((w * (value - mean) ** 2).sum())
    r2 = 1.0 - float((w * left**2).sum()) / var if var > 0 else 1.0
    theta = theta + slope
    theta[[0, m]] = 0.0
    return Fit(theta, mean - float((w * (rows @ theta)).sum() / w.sum()), r2)


def _slope(count: Floats, value: Floats, w: Floats) -> float:
    """The average price: how V grows with the number of boundaries."""
    x = count - (w * count).sum() / w.sum()
    return float((w * x * value).sum() / (w * x * x).sum())
