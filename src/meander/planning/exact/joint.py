"""Several operators on the same nodes, planned together: one decision who stays, an interval of each.

The tasks are cut into *ranges*, one for each operator, and every node gets at most one interval of each
range. Caps are those of each range by itself, `(1+τ)·W_i/n′`: what a node has of all ranges is then
within `(1+τ)·W/n′`.

Method. For a fixed set of nodes that stay, ranges do not interfere: what leaving nodes hold moves
anyway, so it weighs nothing, and the planner solves each range as if it were alone. So only the set is
to be chosen. With n′ ≥ n all stay. Else, if there are at most `SETS_MAX` sets, all are tried; if not,
those that one of the ranges would choose by itself, and the nodes that hold the most bytes; then single
exchanges, as long as they help.

What is proven. Under these caps and with an exact planner (`ssm`): for n′ ≥ n, and where all sets were
tried, the plan is optimal. Otherwise the sum of what each range would cost if it chose by itself is a
lower bound, and the plan is optimal where it attains that. A node that holds several runs of one range
(between two rounds) is outside the theory, as it is for one operator. On which hosts nodes are is not
asked: those that leave may be of one host.

Where operators have equally many tasks, and task i of all of them shall be on one node, `shared_cut`
adds them up: the optimum of the sum is that of all.

>>> from meander.model import Workload
>>> now = Assignment.from_owners(np.array([0, 0, 1, 1, 0, 0, 0, 1]), ["a", "b"])
>>> found = joint(Problem(Workload([1] * 8, [1] * 8), now, 2, "1/2"), [4, 8])
>>> found.cost, found.optimal, found.target.runs_of("b")
(0, True, (Interval(lb=2, ub=4), Interval(lb=7, ub=8)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from math import comb
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from meander.errors import InputError
from meander.model import Assignment, Ints, NodeId, Plan, Problem, Run, Workload
from meander.planning import plan

SETS_MAX: Final = 64
"""So many sets of nodes that stay are all tried."""
EXCHANGES_MAX: Final = 64
"""Most single exchanges that are tried otherwise."""


Solve: TypeAlias = Callable[[tuple[NodeId, ...]], Plan]
"""Plans for a set of nodes that stay."""


class _Part(NamedTuple):
    """One range by itself."""

    first: int
    problem: Problem
    """Its tasks count from 0, and nobody asks on which hosts nodes are."""


def joint(
    problem: Problem, ends: Sequence[int], policy: str = "ssm", *, relax: bool = False
) -> Plan:
    """Find a plan for several operators.

    Args:
        problem: of all tasks.
        ends: behind the last task of each range, ascending; the last is m.
        policy: who plans a range.
        relax: solve a range that cannot meet τ at the smallest that it can, and say so.

    Raises:
        InfeasibleError: if a range cannot meet its cap.
        InputError: for ends that are none, or with a memory cap: no range knows of the others' bytes.
    """
    if list(ends) != sorted(set(ends)) or not ends or ends[-1] != problem.workload.tasks:
        raise InputError(f"ends of ranges ascend to {problem.workload.tasks}, unlike {list(ends)}")
    if len(ends) == 1:
        return plan(problem, policy, relax=relax)
    if problem.memory_cap is not None:
        raise InputError("a memory cap over several operators is not known to this planner")
    parts = [_part(problem, lb, ub) for lb, ub in pairwise((0, *ends))]
    alone = [plan(part, policy, relax=relax) for _, part in parts]
    exact = all(found.optimal for found in alone)
    bound = sum(found.cost if found.bound is None else found.bound for found in alone)
    sets, all_tried = _sets(problem, alone)

    def solve(stay: tuple[NodeId, ...]) -> Plan:
        return _solve(problem, parts, stay, policy, relax=relax)

    best = min((solve(stay) for stay in sets), key=_cost)
    if not all_tried and best.cost > bound:
        best = _exchanged(problem, best, solve, bound)
    bound = best.cost if exact and all_tried else bound
    notes = [f"operator {i}: {found.note}" for i, found in enumerate(alone) if found.note]
    if best.cost > bound:
        notes.append(f"it moves {best.cost} bytes, and at least {bound} must move")
    done = best.cost == bound and exact
    return replace(best, policy=policy, optimal=done, bound=bound, note="; ".join(notes))


def shared_cut(
    problem: Problem, operators: int, policy: str = "ssm", *, relax: bool = False
) -> Plan:
    """Plan operators of equally many tasks whose i-th tasks are on one node.

    Where some are apart now (in the middle of a migration, or after a loss), all of them go where most
    of their bytes are, or further: what then moves is counted, and no optimum claimed.

    >>> from meander.model import Workload
    >>> now = Assignment.from_owners(np.array([0, 0, 1, 1, 0, 0, 1, 1]), ["a", "b"])
    >>> found = shared_cut(Problem(Workload([1] * 8, [1] * 8), now, 4, 0), 2)
    >>> found.cost, found.optimal, found.target.runs_of("a")
    (4, True, (Interval(lb=0, ub=1), Interval(lb=4, ub=5)))

    Raises:
        InfeasibleError: if the caps cannot be met.
        InputError: if operators cannot have equally many tasks.
    """
    load = problem.workload
    if load.tasks % operators:
        raise InputError(f"{operators} operators cannot have equally many of {load.tasks} tasks")
    owners, sizes = (a.reshape(operators, -1) for a in (problem.current.owners(), load.size))
    apart = bool((owners != owners[0]).any())
    work = load.work.reshape(operators, -1).sum(axis=0)
    places = _fullest(owners, sizes, len(problem.current.nodes)) if apart else owners[0]
    current = Assignment.from_owners(places, problem.current.nodes, problem.current.epoch)
    one = replace(problem, workload=Workload(work, sizes.sum(axis=0)), current=current)
    found = plan(one, policy, relax=relax)
    target = found.target
    all_owners = np.tile(target.owners(), operators)
    whole = Assignment.from_owners(all_owners, target.nodes, target.epoch)
    if not apart:
        return replace(found, problem=problem, target=whole)
    note = "; ".join(filter(None, (found.note, "tasks that belong together were apart")))
    return Plan(problem, whole, policy, note=note)


def _fullest(owners: Ints, sizes: Ints, nodes: int) -> Ints:
    """Tell for every place which node has most of its bytes."""
    held = np.zeros((nodes, owners.shape[1]), dtype=np.int64)
    for own, size in zip(owners, sizes, strict=True):
        held[own, np.arange(len(own))] += size + 1
    found: Ints = held.argmax(axis=0)
    return found


def _cost(found: Plan) -> int:
    return found.cost


def _part(problem: Problem, lb: int, ub: int) -> _Part:
    """Cut one range out."""
    load, current = problem.workload, problem.current
    here = Assignment.from_owners(current.owners()[lb:ub], current.nodes, current.epoch)
    part = Workload(load.work[lb:ub], load.size[lb:ub])
    return _Part(lb, replace(problem, workload=part, current=here, hosts={}))


def _sets(problem: Problem, alone: Iterable[Plan]) -> tuple[list[tuple[NodeId, ...]], bool]:
    """Give sets of nodes that may stay, and whether these are all."""
    nodes, left = problem.staying, problem.nodes
    if left >= len(nodes):
        return [nodes], True
    if comb(len(nodes), left) <= SETS_MAX:
        return list(combinations(nodes, left)), True
    held = dict.fromkeys(nodes, 0)
    prefix = problem.workload.size_prefix
    for lb, ub, node in problem.current.runs:
        if node in held:
            held[node] += int(prefix[ub]) - int(prefix[lb])
    fullest = sorted(nodes, key=lambda node: -held[node])[:left]
    wished = [set(found.target.nodes) for found in alone]
    some = {tuple(node for node in nodes if node in stay) for stay in [*wished, set(fullest)]}
    return sorted(stay for stay in some if len(stay) == left), False


def _exchanged(problem: Problem, best: Plan, solve: Solve, bound: int) -> Plan:
    """Let one node stay for another as long as that helps."""
    tried = 0
    nodes = problem.staying
    found: Plan | None = best
    while found is not None and tried < EXCHANGES_MAX and best.cost > bound:
        found = None
        for stay in _neighbours(nodes, best.target.nodes):
            tried += 1
            other = solve(stay)
            if other.cost < best.cost:
                best = found = other
                break
            if tried >= EXCHANGES_MAX:
                break
    return best


def _neighbours(nodes: Sequence[NodeId], stay: Sequence[NodeId]) -> Iterator[tuple[NodeId, ...]]:
    kept = set(stay)
    for out in stay:
        for in_ in nodes:
            if in_ not in kept:
                yield tuple(node for node in nodes if node == in_ or (node in kept and node != out))


def _solve(
    problem: Problem, parts: Sequence[_Part], stay: Sequence[NodeId], policy: str, *, relax: bool
) -> Plan:
    """Plan every range for a set of nodes that stay: whoever else is there must leave."""
    gone = frozenset(problem.current.nodes) - frozenset(stay)
    runs, members = list[Run](), list[NodeId]()
    for first, part in parts:
        found = plan(replace(part, leaving=gone), policy, relax=relax).target
        runs += [Run(first + lb, first + ub, node) for lb, ub, node in found.runs]
        members = list(found.nodes)
    epoch = problem.current.epoch.next()
    target = Assignment.from_runs(runs, members, problem.workload.tasks, epoch)
    return Plan(problem, target, policy)
