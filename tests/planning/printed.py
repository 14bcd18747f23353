"""Figure 7 of the paper, line by line, with each repair as a switch. To show what each one is for.

Tasks and nodes are counted from 1 as in the paper; intervals are half-open, so everything ends at
m+1. With all repairs this is `ssm_paper` in slow motion.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from meander.model import Problem


@dataclass(frozen=True)
class Repairs:
    """True: repaired. False: as printed."""

    empty_p2: bool = True
    """Line 8 lets x reach m+1, and n_min may use up n_P (Lemma 4.1 forbids both)."""
    from_alpha: bool = True
    """Lines 7 and 8 start lb at α and x at α+1, not at 1 and 2."""
    subtract_first: bool = True
    """Lines 11 and 12 the other way round."""
    keep_redundant: bool = True
    """Line 15 is dropped: a redundant P₂ is read as the equal one that is not."""


@dataclass(frozen=True)
class Outcome:
    """What the figure has computed."""

    kept: float
    """The most bytes that can stay, or so it says."""
    table: dict[tuple[int, int, int], float]
    """`g[n_P, α, γ]`."""
    steps: int
    """How often line 9 was reached."""


def figure7(problem: Problem, repairs: Repairs) -> Outcome:
    """Run the figure."""
    m, target, cap = problem.workload.tasks, problem.nodes, problem.cap
    w = [0, *problem.workload.work.tolist()]
    s = [0, *problem.workload.size.tolist()]
    old = [(0, 0), *((run.lb + 1, run.ub + 1) for run in problem.current.runs)]
    n = len(old) - 1
    g: dict[tuple[int, int, int], float] = {}
    steps = 0

    def node_of(task: int) -> int:
        return next((y for y in range(1, n + 1) if old[y][0] <= task < old[y][1]), n + 1)

    def gain(lb: int, ub: int, y: int) -> int:
        return sum(s[max(lb, old[y][0]) : min(ub, old[y][1])])

    def needs(a: int, b: int) -> int:
        """Fewest intervals for tasks a … b-1."""
        count, load = 0, cap + 1
        for task in range(a, b):
            load += w[task]
            if load > cap:
                count, load = count + 1, w[task]
        return count

    def rest(x: int, gamma: int, n_p: int) -> float:
        """g[P₂]."""
        if x == m + 1:
            return 0 if repairs.empty_p2 else -inf
        if n_p < 1:
            return -inf
        return g[n_p, x, max(gamma, node_of(x))]

    for n_p in range(1, target + 1):  # line 1
        for alpha in range(m, 0, -1):  # line 2; the order within one n_P does not matter
            for gamma in (node_of(alpha), node_of(alpha) + 1):  # line 3
                best = -inf
                if n_p == 1:  # line 5
                    if sum(w[alpha:]) <= cap:
                        best = max((gain(alpha, m + 1, y) for y in range(gamma, n + 1)), default=0)
                    g[n_p, alpha, gamma] = best
                    continue
                n_min, load = 1, 0  # line 7
                lb = alpha if repairs.from_alpha else 1
                if repairs.empty_p2 and needs(alpha, m + 1) <= n_p:
                    best = 0  # P₁ is everything, and keeps nothing
                for x in range(alpha + 1 if repairs.from_alpha else 2, m + 1 + repairs.empty_p2):
                    steps += 1
                    load += w[x - 1]  # line 9
                    while load > cap and lb < x:  # line 10
                        if repairs.subtract_first:
                            load -= w[lb]
                            lb += 1
                        else:
                            lb += 1  # line 11
                            load -= w[lb] if lb <= m else 0  # line 12
                    if needs(alpha, x) > n_min:  # line 13
                        n_min += 1
                    others = [
                        y for y in range(gamma, n + 1) if old[y][1] <= x and y != node_of(x - 1)
                    ]
                    ys = [y for y in (node_of(x - 1),) if gamma <= y <= n]  # Lemma 4.5 (i)
                    ys += [max(others, key=lambda y: gain(lb, x, y))] if others else []  # (ii)
                    for y in ys:  # line 16
                        redundant = y + 1 <= n and old[y + 1][1] <= x  # line 15
                        if redundant and not repairs.keep_redundant:
                            continue
                        found = gain(lb, x, y) + rest(x, y + 1, n_p - n_min)  # lines 14, 17
                        best = max(best, found)  # lines 18, 19
                g[n_p, alpha, gamma] = best
    return Outcome(g[target, 1, 1], g, steps)
