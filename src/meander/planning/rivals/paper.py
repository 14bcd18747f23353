"""The paper's two algorithms for a single step, repaired. References, not the default: use `ssm`.

Reference
    Ding, Fu, Ma, Winslett, Yang, Zhang, Chao: Efficient Operator State Migration for
    Cloud-Based Data Stream Management Systems, Section 4. `docs/errata.md` lists what had to be
    repaired.

Problem
    Cut tasks `[0, m)` into at most n′ intervals, each within the caps, and give each to a node, so
    that as many bytes as possible stay where they are (the *gain*; cost = all bytes - gain).

Simple_SSM (Figure 5)
    A sub-problem `P = ⟨[α, β), [γ, δ), n_P⟩` gives tasks `[α, β)` in at most n_P intervals to old
    nodes γ … δ-1. It splits at a boundary x, a node y and a number n_l into two of the same kind.
    O(m³·n³·n′²): for tiny problems, to be read beside the figure.

SSM (Figure 7)
    Split so that x is as small as can be. Then only the last interval of P₁, `[lb, x)`, keeps
    anything (Lemma 4.2), it may as well be as long as the caps allow (Figure 6), P₁ takes the
    fewest intervals it can, n_min (Lemma 4.4), and its node y either holds task x-1 or is the one
    that gains most among those that end before x (Lemma 4.5). What is left, P₂, always reaches to
    m, and of γ only two values matter: the old node that holds task α, or the next. O(m²·n′) time,
    O(m·n′) space.

    The loops stand in the order of the figure. Whether P₁ needs more than n_P intervals is
    checked, so x stops there. The range maximum that Lemma 4.5 (ii) asks for and the paper leaves
    open is a monotone queue. A memory cap moves `lb` and n_min the same way as the work cap does.

Choices
    Where several x, y give the same gain, the smallest x is taken, then the node that holds x-1.
    What P₁ leaves open is cut from the right into intervals as long as the caps allow.

Example: 13 + 7 tasks on two nodes, three nodes wanted, at most 9 tasks each. Nine can stay on the
first node and seven on the second, so four move:

>>> from meander.model import Assignment, Workload
>>> now = Assignment.from_intervals([(0, 13), (13, 20)])
>>> table3 = Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5")
>>> simple_ssm(table3).cost, ssm_paper(table3).cost
(4, 4)
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meander.errors import InputError, TooLargeError
from meander.model import Ints, Plan, Problem
from meander.planning.exact.feasible import cap_of, check, memory_of, windows
from meander.planning.exact.match import name_nodes, run_bounds
from meander.planning.kernels.paper import figure7

FREE = -1
"""Instead of an old interval: nobody keeps anything of this new one."""

SIMPLE_STEPS_MAX = 10**8
"""Largest (m+1)³·(n+1)³·n′² for `simple_ssm`: some ten seconds of Python."""

PAPER_STEPS_MAX = 10**10
"""Largest m²·n′ for `ssm_paper`: about two minutes and a few hundred megabytes."""


def ssm_paper(problem: Problem) -> Plan:
    """Find a cheapest plan by Figure 7 of the paper, repaired and compiled.

    Raises:
        InfeasibleError: if no assignment meets the caps.
        InputError: if a node holds several runs; the paper knows one interval per node.
        TooLargeError: beyond `PAPER_STEPS_MAX`.
    """
    _check_contiguous(problem, "ssm-paper")
    m, target = problem.workload.tasks, min(problem.nodes, problem.workload.tasks)
    if m * m * target > PAPER_STEPS_MAX:
        raise TooLargeError(
            f"ssm-paper takes m²·n′ steps, here {m * m * target:.1e}, and stops at "
            f"{PAPER_STEPS_MAX:.0e}: use ssm, which takes m·n′"
        )
    check(problem)
    gain, best_x, best_y = solve_figure7(problem)
    cuts, keep = _trace_back(problem, best_x, best_y)
    return _plan(problem, "ssm-paper", gain, cuts, keep)


def solve_figure7(problem: Problem) -> tuple[int, Ints, Ints]:
    """Run the loops of Figure 7 alone: the most bytes that can stay, and the stored choices.

    Nothing is checked and nothing traced back: this is what a benchmark measures.
    """
    load = problem.workload
    gain, best_x, best_y = figure7(
        load.size_prefix, load.work_prefix, run_bounds(problem.current),
        cap_of(problem), memory_of(problem), min(problem.nodes, load.tasks),
    )  # fmt: skip
    return int(gain), best_x, best_y


def _trace_back(problem: Problem, best_x: Ints, best_y: Ints) -> tuple[list[int], list[int]]:
    """Follow the stored x and y from the left; cut what P₁ leaves open from the right."""
    load, runs = problem.workload, problem.current.runs
    win = windows(problem).tolist()
    cuts, keep = [0], list[int]()
    alpha, c, n_p = 0, 0, best_x.shape[0] - 1
    while alpha < load.tasks:
        x, y = int(best_x[n_p, alpha, c]), int(best_y[n_p, alpha, c])
        ends = [x]
        while (lb := max(win[ends[-1]], alpha)) > alpha:
            ends.append(lb)
        cuts += reversed(ends)
        keep += [FREE] * (len(ends) - 1) + [y]
        alpha, n_p = x, n_p - len(ends)
        c = int(y >= 0 and runs[y].lb < x < runs[y].ub)
    return cuts, keep


class Sub(NamedTuple):
    """A sub-problem of Definition 4.2: tasks `[α, β)` to old nodes `[γ, δ)` in ≤ n_P intervals."""

    alpha: int
    beta: int
    gamma: int
    delta: int
    n_p: int


class PaperSplit(NamedTuple):
    """How a sub-problem is solved: its gain, and x, y, n_l of Lemma 4.1 (None if n_P was 1)."""

    gain: int
    x: int | None
    y: int
    """One interval: the node that keeps it, or `FREE`. Otherwise: the first node of P₂."""
    n_l: int = 0


def simple_ssm(problem: Problem) -> Plan:
    """Find a cheapest plan by Figure 5 of the paper, repaired, in plain Python.

    Raises:
        InfeasibleError: if no assignment meets the caps.
        InputError: if a node holds several runs; the paper knows one interval per node.
        TooLargeError: beyond `SIMPLE_STEPS_MAX`.
    """
    _check_contiguous(problem, "simple-ssm")
    m, n = problem.workload.tasks, len(problem.current.runs)
    target = min(problem.nodes, m)
    steps = (m + 1) ** 3 * (n + 1) ** 3 * target**2
    if steps > SIMPLE_STEPS_MAX:
        raise TooLargeError(
            f"simple-ssm takes m³·n³·n′² steps, here about {steps:.0e}, and stops at "
            f"{SIMPLE_STEPS_MAX:.0e}: use ssm or ssm-paper"
        )
    check(problem)
    solved: dict[Sub, PaperSplit] = {}
    for n_p in range(1, target + 1):  # line 1
        for alpha in range(m + 1):  # line 2
            for beta in range(alpha, m + 1):
                for gamma in range(n + 1):
                    for delta in range(gamma, n + 1):
                        sub = Sub(alpha, beta, gamma, delta, n_p)
                        split = _one_interval(problem, sub) if n_p == 1 else _best(solved, sub)
                        if split is not None:  # no entry: the paper's -∞
                            solved[sub] = split
    whole = Sub(0, m, 0, n, target)
    pieces = sorted(_pieces(solved, whole))  # line 13
    cuts = [0, *(ub for _, ub, _ in pieces)]
    return _plan(problem, "simple-ssm", solved[whole].gain, cuts, [y for _, _, y in pieces])


def _one_interval(problem: Problem, sub: Sub) -> PaperSplit | None:
    """Lines 4 to 6: all tasks of P to the one node of P that keeps most of them."""
    work, size = problem.workload.work_prefix, problem.workload.size_prefix
    lb, ub, runs = sub.alpha, sub.beta, problem.current.runs
    if work[ub] - work[lb] > problem.cap or size[ub] - size[lb] > memory_of(problem):
        return None
    best = PaperSplit(0, None, FREE)
    for y in range(sub.gamma, sub.delta):
        a, b = max(lb, runs[y].lb), min(ub, runs[y].ub)
        if a < b and size[b] - size[a] > best.gain:
            best = PaperSplit(int(size[b] - size[a]), None, y)
    return best


def _best(solved: dict[Sub, PaperSplit], sub: Sub) -> PaperSplit | None:
    """Lines 8 to 12: try every x, y and n_l. P₂ may be empty, and so may be P₁'s nodes."""
    alpha, beta, gamma, delta, n_p = sub
    best: PaperSplit | None = None
    for x in range(alpha, beta + 1):
        for y in range(gamma, delta + 1):
            for n_l in range(1, n_p):
                left = solved.get(Sub(alpha, x, gamma, y, n_l))
                right = solved.get(Sub(x, beta, y, delta, n_p - n_l))
                if left and right and (best is None or left.gain + right.gain > best.gain):
                    best = PaperSplit(left.gain + right.gain, x, y, n_l)
    return best


def _pieces(solved: dict[Sub, PaperSplit], sub: Sub) -> list[tuple[int, int, int]]:
    """Follow the stored splits down to non-empty intervals `(lb, ub, y)`."""
    alpha, beta, gamma, delta, n_p = sub
    if alpha == beta:
        return []
    _, x, y, n_l = solved[sub]
    if x is None:
        return [(alpha, beta, y)]
    return _pieces(solved, Sub(alpha, x, gamma, y, n_l)) + _pieces(
        solved, Sub(x, beta, y, delta, n_p - n_l)
    )


def _check_contiguous(problem: Problem, policy: str) -> None:
    if not problem.current.contiguous:
        raise InputError(
            f"{policy} needs one interval per node, but one holds several runs: use ssm"
        )


def _plan(problem: Problem, policy: str, gain: int, cuts: list[int], keep: list[int]) -> Plan:
    cost = problem.workload.total_size - gain
    target = name_nodes(problem, np.array(cuts, dtype=np.int64), keep)
    plan = Plan(problem, target, policy, optimal=True, bound=cost)
    assert plan.cost == cost, f"{policy}: the plan costs {plan.cost}, the table says {cost}"
    assert all(a < b for a, b in pairwise(cuts)), f"{policy}: an empty interval in {cuts}"
    return plan
