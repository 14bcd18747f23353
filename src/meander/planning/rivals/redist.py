"""Redist: consistent hashing for most tasks, an explicit table for the heavy ones.

Reference
    B. Gedik: Partitioning functions for stateful data parallelism in stream processing. The VLDB
    Journal 23(4), 2014. A partitioning function is a pair: an explicit table for the *tracked*
    (heavy) items, and a ring for the rest. Three ways to rebuild the table are given there: Scan
    places items in descending order of weight, Redist places in each step the pair of item and
    channel that is best per unit of weight, Readj moves and swaps what is there.

Formulas (d a tracked task, N = n′ nodes; smaller is better)
    loads         memory L_s = Σ bytes, processing L_c = Σ work, network L_n = Σ work
    balance       a_r = (max L_r - min L_r) / (θ_r · mean L_r),   a = (a_s · a_c · a_n)^(1/3)
    migration     γ = bytes moved / (Σ bytes / N)
    utility       U = a + γ
    Redist        while tasks are unplaced: place the (d, node) of least U / work(d)

How sure
    These are the formulas, and the choice by U / work, of two public implementations of the
    article in Scala: `GedikPartitioner` of the repository zzvara/dynamic-repartitioning, and
    package `hu.elte.inf.sampling.decisioncore.gedik`, which looks like its successor. They agree;
    so they are one witness rather than two. θ = 0.2 and U = a + γ are the defaults of the first.
    The article itself could not be consulted, and which U and θ the migration paper's experiments
    used is unknown.

Where this differs
  * The article derives an item's state and work from its frequency (β_s, β_c). Here both are
    known: bytes for memory and migration, work for processing and network, so a_n = a_c.
  * θ is the problem's τ (at least 0.01) for all three. A kind of load that is zero throughout
    has no balance and is left out of the mean.
  * Tracked are the tasks of at least average work, at most `TRACKED_MAX` of the heaviest: the
    article tracks what a sketch finds frequent.
  * As there, untracked tasks count in no balance: the ring is trusted to spread them. Those that
    move, though, are in γ from the start, and so are all tasks in its denominator: there, both
    count only what is or was tracked.

τ is a wish here, not a bound: the plan says whether it was met. Ties go to the earlier task and
the earlier node. Nodes that leave are the last members. O(k²·n′) for k tracked tasks.
"""

from __future__ import annotations

import numpy as np

from meander.model import Assignment, Ints, Plan, Problem
from meander.planning.kernels.redist import place
from meander.planning.rivals.hashing import VIRTUAL_NODES, members, ring_owners

TRACKED_MAX = 1000
"""The table's size. It is part of every router, and its making is quadratic in it."""

THETA_MIN = 0.01
"""θ divides, so τ = 0 needs a floor."""


def redist(
    problem: Problem,
    *,
    tracked_max: int = TRACKED_MAX,
    virtual_nodes: int = VIRTUAL_NODES,
    seed: int = 0,
) -> Plan:
    """Place heavy tasks by utility of balance and migration, all others by the ring.

    Args:
        problem: what is to be planned; its current assignment may be of any kind.
        tracked_max: most tasks in the explicit table.
        virtual_nodes: points per node on the ring.
        seed: chooses one of the rings.

    >>> from meander.model import Workload
    >>> now = Assignment.from_intervals([(0, 6), (6, 12)])
    >>> load = Workload([2] + [1] * 10 + [2], [1] * 12)
    >>> redist(Problem(load, now, nodes=3, tau=0.2)).target.nodes
    ('n1', 'n2', 'n3')
    """
    nodes, load = members(problem), problem.workload
    owners = ring_owners(load.tasks, nodes, virtual_nodes, seed)
    index = {node: i for i, node in enumerate(nodes)}
    home = np.array([index.get(node, -1) for node in problem.current.nodes], dtype=np.int64)
    home = home[problem.current.owners()]
    heavy = _tracked(problem, tracked_max)
    moves_anyway = owners != home
    moves_anyway[heavy] = False
    owners[heavy] = place(
        load.work[heavy].astype(np.float64),
        load.size[heavy].astype(np.float64),
        home[heavy],
        len(nodes),
        max(float(problem.tau), THETA_MIN),
        float(load.size[moves_anyway].sum()),
        max(float(load.total_size) / len(nodes), 1.0),
    )
    return Plan(
        problem,
        Assignment.from_owners(owners, nodes, problem.current.epoch.next()),
        "redist",
        note=f"{len(heavy)} tasks in the explicit table",
    )


def _tracked(problem: Problem, tracked_max: int) -> Ints:
    """Choose the tasks of at least average work (and of some), the heaviest if they are many."""
    load = problem.workload
    heaviest = np.argsort(-load.work, kind="stable")[:tracked_max]
    average = -(-load.total_work // load.tasks)  # rounded up: work is in whole numbers
    return np.sort(heaviest[load.work[heaviest] >= max(average, 1)])
