"""Consistent hashing, plain and with bounded loads: what most systems use today.

Ring
    Every node has `virtual_nodes` points on a ring of 2⁶⁴ places, every task has one. A task
    belongs to the node whose point comes first, going up from the task's own. A point depends
    only on (seed, node, replica), so a node that joins takes tasks from others and moves no
    other task, and a node that leaves gives up its own and no others.

Bounded loads
    Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, SODA 2018. No node may
    have more than c = 1+τ times the mean load. A task that finds its node full goes on to the next
    point of a node that has room. There the balls are alike; here they weigh, so "has room" means
    that work and bytes with the task stay within the problem's caps, and the fixed order in which
    tasks choose (by their number, which says nothing about their place on the ring) matters. A
    task that fits nowhere goes to the node with the least work, and the plan says so.

Neither knows what a task's state costs to move, and the plain ring does not know work either: its
plans mostly miss τ. They are reported, not refused. Nodes that leave are the last members.

Complexity: O((n·v + m)·log(n·v)) for v virtual nodes; bounded loads add the steps past full ones.

>>> from meander.model import Problem, Workload
>>> ring = ring_assignment(64, [f"n{i}" for i in range(1, 9)], seed=7)
>>> plan = consistent_hash(Problem(Workload([1] * 64, [1] * 64), ring, nodes=9, tau=0.2), seed=7)
>>> {move.target for move in plan.moves}
{'n9'}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from meander.errors import InputError
from meander.model import Assignment, Ints, NodeId, Plan, Problem, Workload, exact_tau
from meander.planning.exact.certificate import FITTED_NOWHERE
from meander.planning.exact.scatter import Places, key_of, mix

VIRTUAL_NODES = 100
"""Points per node on the ring. With fewer the arcs differ more; with more nothing much changes,
since the tasks themselves fall unevenly."""


def consistent_hash(problem: Problem, *, virtual_nodes: int = VIRTUAL_NODES, seed: int = 0) -> Plan:
    """Put every task where the ring of the wanted nodes says. Ignores all caps.

    Args:
        problem: what is to be planned; its current assignment need not come from a ring.
        virtual_nodes: points per node on the ring.
        seed: chooses one of the rings.
    """
    nodes = members(problem)
    ring = ring_assignment(problem.workload.tasks, nodes, virtual_nodes=virtual_nodes, seed=seed)
    return Plan(problem, ring.at(problem.current.epoch.next()), "consistent-hash")


def bounded_hash(problem: Problem, *, virtual_nodes: int = VIRTUAL_NODES, seed: int = 0) -> Plan:
    """Put every task at the first node up the ring that has room for it under the caps.

    Args:
        problem: what is to be planned; the bound is its `cap`, and its `memory_cap` if it has one.
        virtual_nodes: points per node on the ring.
        seed: chooses one of the rings.
    """
    nodes, load = members(problem), problem.workload
    places, owners = _ring(nodes, virtual_nodes, seed)
    start = _first_up(places, _task_places(load.tasks, seed)).tolist()
    work, size, ring = load.work.tolist(), load.size.tolist(), owners.tolist()
    memory = load.total_size if problem.memory_cap is None else problem.memory_cap
    spare_work, spare_size = [problem.cap] * len(nodes), [memory] * len(nodes)
    chosen, homeless = np.empty(load.tasks, dtype=np.int64), 0
    for task in range(load.tasks):
        for step in range(len(ring)):
            node = ring[(start[task] + step) % len(ring)]
            if work[task] <= spare_work[node] and size[task] <= spare_size[node]:
                break
        else:
            node = max(range(len(nodes)), key=spare_work.__getitem__)
            homeless += 1
        spare_work[node] -= work[task]
        spare_size[node] -= size[task]
        chosen[task] = node
    target = Assignment.from_owners(chosen, nodes, problem.current.epoch.next())
    note = (
        f"{homeless} tasks {FITTED_NOWHERE} and went to the least loaded node" if homeless else ""
    )
    return Plan(problem, target, "bounded-hash", note=note)


def members(problem: Problem) -> tuple[NodeId, ...]:
    """Name the nodes after the change: the last ones leave, new ones come at the end."""
    old = problem.current.nodes
    return old[: problem.nodes] + problem.joining(max(problem.nodes - len(old), 0))


def ring_assignment(
    tasks: int, nodes: Sequence[NodeId], *, virtual_nodes: int = VIRTUAL_NODES, seed: int = 0
) -> Assignment:
    """Give the assignment that a ring of these nodes makes."""
    return Assignment.from_owners(ring_owners(tasks, nodes, virtual_nodes, seed), nodes)


def ring_owners(tasks: int, nodes: Sequence[NodeId], virtual_nodes: int, seed: int) -> Ints:
    """Give, for every task, the index of the node that the ring names."""
    places, owners = _ring(nodes, virtual_nodes, seed)
    return owners[_first_up(places, _task_places(tasks, seed))]


def ring_history(
    workload: Workload,
    nodes: tuple[int, int],
    tau: float | str,
    *,
    seeds: Iterable[int] = range(100),
    virtual_nodes: int = VIRTUAL_NODES,
) -> list[Plan]:
    """Go from a ring of n to the same ring of n′ nodes, once per seed.

    A ring's cost is a matter of luck, and from intervals to a ring nearly everything moves. So
    reports use the mean over these plans.

    >>> plans = ring_history(Workload([1] * 60, [1] * 60), (4, 5), 0.2)
    >>> round(sum(p.cost_share for p in plans) / len(plans), 1)
    0.2
    """
    before, after = nodes
    names, plans = [f"n{i}" for i in range(1, before + 1)], []
    for seed in seeds:
        now = ring_assignment(workload.tasks, names, virtual_nodes=virtual_nodes, seed=seed)
        problem = Problem(workload, now, after, exact_tau(tau))
        plans.append(consistent_hash(problem, virtual_nodes=virtual_nodes, seed=seed))
    return plans


def _ring(nodes: Sequence[NodeId], virtual_nodes: int, seed: int) -> tuple[Places, Ints]:
    """Give the ring's places in ascending order, each with the index of its node."""
    if virtual_nodes < 1:
        raise InputError(f"virtual_nodes must be at least 1, not {virtual_nodes}")
    replicas = np.arange(virtual_nodes, dtype=np.uint64)
    places = np.concatenate([mix(mix(replicas) ^ _node_key(node, seed)) for node in nodes])
    owners = np.repeat(np.arange(len(nodes), dtype=np.int64), virtual_nodes)
    order = np.argsort(places, kind="stable")
    return places[order], owners[order]


def _first_up(places: Places, tasks: Places) -> Ints:
    """Find the first place of the ring at or above each task's, going round at the top."""
    return np.searchsorted(places, tasks).astype(np.int64) % len(places)


def _task_places(tasks: int, seed: int) -> Places:
    return mix(mix(np.arange(tasks, dtype=np.uint64)) ^ key_of(b"task", seed))


def _node_key(node: NodeId, seed: int) -> np.uint64:
    return key_of(b"node " + node.encode(), seed)
