"""How uneven a workload is, in a few numbers. NumPy only.

    top_share   share of all work that the k heaviest keys have
    zipf_slope  slope of log(count) over log(rank), least squares with every rank weighted 1/rank,
                so that each decade of ranks counts alike (an unweighted fit sees the tail alone)
    gini        0 when all tasks weigh the same, near 1 when one has everything
    max_over_mean   the heaviest task over the mean: a lower bound of 1+τ times m/n at n = m nodes

Keys come as *counts of counts* (how many keys occur c times), which is short however many keys
there are: N events have at most sqrt(2N) different counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOPS = (1, 10, 100, 1000)


def gini(values: npt.ArrayLike) -> float:
    """Give the Gini coefficient.

    >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 4])
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    total = float(ordered.sum())
    if total == 0:
        return 0.0
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * (ranks * ordered).sum() / total - len(ordered) - 1) / len(ordered))


def max_over_mean(values: npt.ArrayLike) -> float:
    """Give the largest value over the mean; 1 when all are zero.

    >>> max_over_mean([1, 3])
    1.5
    """
    array = np.asarray(values, dtype=np.float64)
    return float(array.max() / array.mean()) if array.sum() else 1.0


def top_share(counts: Ints, keys: Ints, top: int) -> float:
    """Give the share of all events that the `top` most frequent keys have.

    >>> top_share(np.array([1, 5]), np.array([5, 1]), 1)
    0.5
    """
    order = np.argsort(counts)[::-1]
    counts, keys = counts[order], keys[order]
    before = np.concatenate([[0], np.cumsum(keys)[:-1]])
    taken = np.clip(top - before, 0, keys)
    return float((taken * counts).sum() / max(1, (counts * keys).sum()))


def zipf_slope(counts: Ints, keys: Ints) -> float:
    """Fit the slope of the rank-frequency line.

    >>> ranks = np.arange(1, 2000)
    >>> counts, keys = np.unique(1_000_000_000 // ranks, return_counts=True)
    >>> round(zipf_slope(counts, keys), 2)
    -1.0
    """
    order = np.argsort(counts)[::-1]
    counts, keys = counts[order], keys[order]
    last = np.cumsum(keys).astype(np.float64)
    if len(counts) < 2:
        return 0.0
    # All keys with one count are a step of the line: its middle in log rank, its width as weight.
    first = last - keys + 1
    x = (np.log(first) + np.log(last)) / 2
    weight = np.log((last + 0.5) / (first - 0.5))
    y = np.log(counts.astype(np.float64))
    x_mean, y_mean = np.average(x, weights=weight), np.average(y, weights=weight)
    spread = np.average((x - x_mean) ** 2, weights=weight)
    return float(np.average((x - x_mean) * (y - y_mean), weights=weight) / spread)


def summarise_keys(counts: Ints, keys: Ints) -> dict[str, Any]:
    """Describe the distribution of events over keys."""
    distinct = int(keys.sum())
    return {
        "keys": distinct,
        "once": int(keys[counts == 1].sum()),
        "top_share": {str(k): top_share(counts, keys, k) for k in TOPS if k <= distinct},
        "top_percent_share": top_share(counts, keys, max(1, distinct // 100)),
        "zipf_slope": zipf_slope(counts, keys),
    }


def summarise_tasks(work: npt.ArrayLike, size: npt.ArrayLike) -> dict[str, Any]:
    """Describe how evenly the hash spreads work and state over tasks."""
    return {
        "work_max_over_mean": max_over_mean(work), "work_gini": gini(work),
        "bytes_max_over_mean": max_over_mean(size), "bytes_gini": gini(size),
    }  # fmt: skip
