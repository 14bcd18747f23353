"""Who leaves when nodes must: so that hosts keep as many nodes as each other.

Least bytes alone may empty one host and leave another full. Where it is known on which host each
node is, and fewer nodes are wanted, the plan of least bytes counts only if it leaves the hosts *even*:
the nodes that stay differ by at most one between two hosts, except where a host had fewer before.

Else sets of nodes to leave are tried that do, each planned exactly with these nodes leaving. Up to
`CHOICES_MAX` sets are all tried, and the plan is then the best that is even; beyond that the nodes
with the fewest bytes of each host leave, and the plan says that it may not be the best.

Nodes that join have no host yet: whoever starts them spreads them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from math import comb, prod
from typing import Final

from meander.model import NodeId, Plan, Problem
from meander.planning.exact.match import assign, run_bounds

CHOICES_MAX: Final = 128
"""Sets of nodes to leave that are all tried; a plan takes about a millisecond."""


def uneven(plan: Plan) -> bool:
    """Whether a plan with fewer nodes leaves hosts with more of them than others, and need not."""
    problem = plan.problem
    if problem.nodes >= len(problem.staying) or len(_hosts(problem)) < 2:
        return False
    left = Counter(problem.hosts.get(node, "") for node in plan.target.nodes)
    return sorted(left.values()) != sorted(n for n in _shares(problem).values() if n)


def evened(plan: Plan, solve: Callable[[Problem], Plan]) -> Plan:
    """Plan anew so that the hosts are even; `plan` is what would move the fewest bytes."""
    problem = plan.problem
    every = list(_choices(problem))
    found = [solve(replace(problem, leaving=problem.leaving | gone)) for gone in every]
    best = min(found, key=lambda other: other.cost)
    told = (
        "of all that leave the hosts even the best" if _countable(problem) else "not all were tried"
    )
    note = f"hosts stay even: {best.cost} bytes move, {plan.cost} would at least ({told})"
    same = best.cost == plan.bound
    return Plan(problem, best.target, plan.policy, same, plan.bound, note)


def renamed(plan: Plan) -> Plan:
    """Give the intervals of a plan to nodes such that the hosts are even, if they are not.

    For planners that choose intervals by other things than bytes alone.
    """
    if not uneven(plan):
        return plan
    bounds = run_bounds(plan.target)
    return evened(plan, lambda others: Plan(others, assign(others, bounds), plan.policy))


def _hosts(problem: Problem) -> dict[str, list[NodeId]]:
    """List the nodes that may stay, by host, those with the fewest bytes first."""
    prefix, held = problem.workload.size_prefix, Counter[NodeId]()
    for lb, ub, node in problem.current.runs:
        held[node] += int(prefix[ub]) - int(prefix[lb])
    found = defaultdict[str, list[NodeId]](list)
    for node in sorted(problem.staying, key=lambda node: held[node]):
        found[problem.hosts.get(node, "")].append(node)
    return found


def _shares(problem: Problem) -> dict[str, int]:
    """Tell how many nodes each host keeps: as even as can be; hosts with more bytes have one more."""
    hosts = _hosts(problem)
    shares, left = dict.fromkeys(hosts, 0), problem.nodes
    while left:
        open_ = [host for host, nodes in hosts.items() if shares[host] < len(nodes)]
        least = min(shares[host] for host in open_)
        for host in [host for host in open_ if shares[host] == least][:left]:
            shares[host] += 1
            left -= 1
    return shares


def _splits(problem: Problem) -> list[dict[str, int]]:
    """List the even ways to share the nodes that stay: who has one more is free."""
    hosts, first = _hosts(problem), _shares(problem)
    top = max(first.values())
    full = [host for host in hosts if first[host] == top]
    able = [h for h in hosts if first[h] == top or (first[h] == top - 1 and len(hosts[h]) >= top)]
    if comb(len(able), len(full)) > CHOICES_MAX:
        return [first]
    base = {host: top - 1 if host in able else first[host] for host in hosts}
    return [
        {host: base[host] + (host in more) for host in hosts}
        for more in combinations(able, len(full))
    ]


def _count(problem: Problem) -> int:
    hosts = _hosts(problem)
    return sum(prod(comb(len(hosts[h]), n) for h, n in s.items()) for s in _splits(problem))


def _countable(problem: Problem) -> bool:
    return _count(problem) <= CHOICES_MAX


def _choices(problem: Problem) -> Iterator[frozenset[NodeId]]:
    """Give sets of nodes to leave, each of which leaves the hosts even."""
    hosts, all_ = _hosts(problem), _countable(problem)
    for shares in _splits(problem) if all_ else [_shares(problem)]:
        ways = [combinations(nodes, len(nodes) - shares[host]) for host, nodes in hosts.items()]
        for way in product(*ways) if all_ else [tuple(map(next, ways))]:
            yield frozenset(node for gone in way for node in gone)
