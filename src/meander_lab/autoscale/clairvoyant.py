"""The least that is possible for whoever knows the whole trace: exact, by dynamic programming.

In every second n(t) nodes must be enough: the best plan's busiest node is within the utilisation for
the mean of the minute around that second, and can take all that comes in the second itself, so that
nothing ever waits. A node that comes is paid for the time of its start and of the moves, and one that
goes while its state leaves. Of all n(1), …, n(T) that are enough the cheapest is

    C[t, n] = n + min over n' of ( C[t-1, n'] + s · |n - n'| )        where n ≥ need[t], else infinite

with s the seconds of a rescale. Nothing else is charged: no pause, no limit to how often, every plan
the best one. So no policy that keeps the utilisation by the minute is cheaper; one that is above it now
and then may be.
"""

from __future__ import annotations

import numpy as np

from meander.autoscale.signals import Floats
from meander.autoscale.split import Split
from meander.model import Ints
from meander_lab.autoscale.queueing import Ground
from meander_lab.autoscale.traces import Trace

MEAN_S = 60
"""The utilisation is kept by the minute."""


def needs(ground: Ground, trace: Trace, utilisation: float) -> Ints:
    """Tell how many nodes every second needs."""
    split = Split(ground.workload().work)
    low, high = ground.nodes
    most = np.array([ground.rate / split.share(n) for n in range(low, high + 1)])
    width = min(MEAN_S, trace.seconds)
    sums = np.convolve(trace.rows_s, np.ones(width), "same")
    mean = sums / np.convolve(np.ones(trace.seconds), np.ones(width), "same")
    both = np.maximum(
        np.searchsorted(utilisation * most, mean), np.searchsorted(most, trace.rows_s)
    )
    found: Ints = np.minimum(low + both, high)
    return found


def cheapest(need: Ints, low: int, high: int, switch_s: float) -> tuple[float, Ints]:
    """Find the cheapest numbers of nodes that are enough; give their cost and them.

    >>> need = np.array([1, 3, 1, 3, 1, 1, 1, 1])
    >>> cost, nodes = cheapest(need, 1, 3, switch_s=1.0)
    >>> cost, nodes.tolist()
    (18.0, [1, 3, 3, 3, 1, 1, 1, 1])
    """
    sizes = np.arange(low, high + 1)
    moves = switch_s * np.abs(sizes[:, None] - sizes[None, :])
    """[to, from]"""
    cost: Floats = np.where(sizes >= need[0], sizes.astype(np.float64), np.inf)
    came = np.zeros((len(need), len(sizes)), np.int16)
    for t in range(1, len(need)):
        ways = cost[None, :] + moves
        came[t] = ways.argmin(axis=1)
        cost = np.where(sizes >= need[t], sizes + ways.min(axis=1), np.inf)
    at = int(cost.argmin())
    least = float(cost[at])
    path = np.zeros(len(need), np.int64)
    for t in range(len(need) - 1, -1, -1):
        path[t] = sizes[at]
        at = int(came[t, at])
    return least, path


def optimum(ground: Ground, trace: Trace, utilisation: float | None = None) -> tuple[float, int]:
    """Give the least node-seconds of a trace, and how often n changes; at a utilisation, if told."""
    need = needs(ground, trace, ground.utilisation if utilisation is None else utilisation)
    moved_s = ground.move_s + ground.state_bytes / ground.nodes[1] / ground.bytes_s / 2
    cost, path = cheapest(need, *ground.nodes, (ground.launch_s + 2 * moved_s) / 2)
    return cost, int((np.diff(path) != 0).sum())
