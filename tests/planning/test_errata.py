"""Every erratum of docs/errata.md, as a counter-example that runs. The numbers are the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import brute
import numpy as np
import pytest
from printed import Repairs, figure7

from meander.errors import InfeasibleError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.exact.match import assign, pair_cost
from meander.planning.exact.oms import oms
from meander.planning.exact.partitions import enumerate_partitions
from meander.planning.exact.ssm import ssm
from meander.planning.rivals.paper import ssm_paper

REPAIRED = Repairs()


def problem(work, size, current, nodes, cap):
    """A problem whose cap is the given one: τ follows."""
    found = Problem(
        Workload(work, size), Assignment.from_intervals(current), nodes,
        f"{cap * nodes - sum(work)}/{sum(work)}",
    )  # fmt: skip
    assert found.cap == cap
    return found


def test_figure_7_with_all_repairs_is_exact():
    rng = np.random.default_rng(1)
    for _ in range(300):
        case = brute.random_problem(rng, 8, 5, memory=False)
        best = brute.best_value(case)
        if best is not None:
            assert figure7(case, REPAIRED).kept == best


def test_erratum_1_p2_must_be_allowed_to_be_empty():
    case = problem([1, 1, 1, 1], [1, 1, 1, 10], [(0, 4)], nodes=2, cap=2)
    assert brute.best_value(case) == 11
    assert ssm_paper(case).cost == ssm(case).cost == 13 - 11
    assert figure7(case, REPAIRED).kept == 11
    assert figure7(case, replace(REPAIRED, empty_p2=False)).kept == 2


def test_erratum_1_spoils_about_a_third_of_random_instances():
    rng, wrong, feasible = np.random.default_rng(1), 0, 0
    while feasible < 400:
        case = brute.random_problem(rng, 9, 5, memory=False)
        best = brute.best_value(case)
        if best is not None:
            feasible += 1
            wrong += figure7(case, replace(REPAIRED, empty_p2=False)).kept != best
    assert 0.25 < wrong / feasible < 0.45


def test_erratum_2_starting_at_task_1_counts_tasks_outside_of_the_sub_problem():
    case = problem([1, 1], [5, 1], [(0, 2)], nodes=2, cap=2)
    only_the_last_task = (2, 2, 1)  # n_P = 2, α = 2, γ = 1: nothing but task 2, which has 1 byte
    assert figure7(case, REPAIRED).table[only_the_last_task] == 1
    assert figure7(case, replace(REPAIRED, from_alpha=False)).table[only_the_last_task] == 6


def test_erratum_2_lines_11_and_12_are_swapped():
    case = problem([2, 1, 1], [1, 1, 1], [(0, 3)], nodes=2, cap=2)
    assert brute.best_value(case) == figure7(case, REPAIRED).kept == 2
    assert figure7(case, replace(REPAIRED, subtract_first=False)).kept == 1


def test_erratum_3_half_open_intervals_up_to_m_never_hold_task_m():
    m = 4
    legal = [(lb, ub) for lb in range(1, m + 1) for ub in range(lb, m + 1)]
    assert not any(lb <= m < ub for lb, ub in legal)
    assert all(any(lb <= task < ub for lb, ub in legal) for task in range(1, m))


def test_erratum_4_the_best_other_node_is_a_sliding_maximum_not_a_running_one():
    # Old intervals of one task each, sizes 9, 1, 1, 1; the window [lb, x) spans two tasks.
    sizes, width = [9, 1, 1, 1], 2
    sliding = [max(sizes[max(0, x - width) : x]) for x in range(1, 5)]
    running = [max(sizes[:x]) for x in range(1, 5)]
    assert (sliding, running) == ([9, 9, 1, 1], [9, 9, 9, 9])
    case = problem([1] * 4, sizes, [(i, i + 1) for i in range(4)], nodes=2, cap=2)
    assert ssm_paper(case).cost == 12 - (9 + 1)


def test_erratum_5_the_steps_do_not_depend_on_n():
    steps = {
        figure7(problem([1] * 12, [1] * 12, even(12, n), nodes=3, cap=6), REPAIRED).steps
        for n in (1, 2, 4, 6)
    }
    assert len(steps) == 1


def even(tasks, nodes):
    return list(pairwise(tasks * i // nodes for i in range(nodes + 1)))


def test_erratum_6_a_task_above_the_cap_makes_the_problem_infeasible():
    heavy = Problem(Workload([1, 7, 1, 1], [1] * 4), Assignment.from_intervals([(0, 4)]), 2, "1/5")
    with pytest.raises(InfeasibleError, match="task 1 alone") as caught:
        ssm_paper(heavy)
    assert (
        caught.value.tau_min == Fraction(brute.smallest_load(heavy) * 2, 10) - 1 == Fraction(3, 5)
    )


def test_erratum_6_lowering_its_weight_to_the_cap_only_hides_it():
    heavy = Problem(Workload([1, 7, 1, 1], [1] * 4), Assignment.from_intervals([(0, 4)]), 3, "1/5")
    lowered = problem([1, heavy.cap, 1, 1], [1] * 4, [(0, 4)], nodes=3, cap=heavy.cap)
    hidden = ssm_paper(lowered)
    busiest = max(sum([1, 7, 1, 1][run.lb : run.ub]) for run in hidden.target.runs)
    assert hidden.within_caps
    assert (busiest, heavy.cap) == (7, 4)


def markov_case():
    """Three tasks alike, 1 or 2 nodes, τ = 1/2; both numbers of nodes equally likely next."""
    load, now = Workload([1] * 3, [1] * 3), Assignment.from_intervals([(0, 3)])
    states = [
        (n, (0, *(ub for _, ub in part)))
        for n in (1, 2)
        for part in brute.feasible_partitions(Problem(load, now, n, "1/2"))
    ]
    cost = np.array([[pair_cost(load, p, q) for _, q in states] for _, p in states])
    chance = np.full((len(states), len(states)), 0.5)
    counts = np.array([n for n, _ in states])
    return cost, chance, counts


def test_erratum_7_figure_9_as_printed_diverges():
    cost, chance, counts = markov_case()
    gamma, values, history = 0.9, np.zeros(len(cost)), []
    for _ in range(40):
        values = (chance * (cost + gamma * values)).sum(axis=1)
        history.append(values.max())
    assert counts.tolist() == [1, 2, 2]
    growth = history[-1] / history[-2]
    assert growth == pytest.approx(gamma * 0.5 * len(counts), rel=1e-3)
    assert growth > 1.3


def test_erratum_7_with_a_minimum_per_number_of_nodes_it_converges():
    cost, _, counts = markov_case()
    gamma, values = 0.9, np.zeros(len(cost))
    for _ in range(400):
        before, ahead = values, cost + gamma * values
        values = sum(0.5 * ahead[:, counts == n].min(axis=1) for n in (1, 2))
    assert np.abs(values - before).max() < 1e-12
    random_policy = np.zeros(len(cost))
    for _ in range(400):
        ahead = cost + gamma * random_policy
        random_policy = sum(0.5 * ahead[:, counts == n].mean(axis=1) for n in (1, 2))
    assert (values <= random_policy).all()
    assert (values < random_policy).any()


TABLE3 = Workload([1] * 20, [1] * 20)
T1 = [0, 13, 20]


def partitions_of_20(most, cap):
    for count in range(most):
        for inner in combinations(range(1, 20), count):
            cuts = [0, *inner, 20]
            if max(b - a for a, b in pairwise(cuts)) <= cap:
                yield cuts


def second_step(cuts):
    return min(pair_cost(TABLE3, cuts, new) for new in partitions_of_20(4, 7))


def cuts_of(*counts):
    return [0, *np.cumsum(counts).tolist()]


def test_erratum_7_the_factor_is_68_for_the_examples_of_the_paper():
    """A sweep multiplies C by γ·M[n, n′] for each of the K(n′) partitions: its growth is λ_max."""
    table4 = np.array([[0.3, 0.6, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]])
    caps = {
        n: Problem(TABLE3, Assignment.from_intervals([(0, 20)]), n, "2/5").cap for n in (2, 3, 4)
    }
    partitions = [sum(1 for _ in partitions_of_20(n, cap)) for n, cap in caps.items()]
    assert partitions == [9, 36, 152]
    growth = np.abs(np.linalg.eigvals(0.9 * table4 * partitions)).max()
    assert growth == pytest.approx(67.57, abs=0.01)


def test_erratum_8_table_3_counts_by_node_and_not_along_the_line():
    assert pair_cost(TABLE3, T1, cuts_of(9, 9, 2)) == 6  # printed: 4
    assert pair_cost(TABLE3, T1, cuts_of(8, 7, 5)) == 7  # printed: 5
    assert pair_cost(TABLE3, T1, cuts_of(9, 2, 9)) == 4  # N1, N3, N2
    assert pair_cost(TABLE3, T1, cuts_of(8, 5, 7)) == 5  # N1, N3, N2


def test_erratum_8_the_second_steps_of_table_3_are_cheaper_than_printed():
    assert second_step(cuts_of(9, 2, 9)) == 4  # printed: 6
    assert second_step(cuts_of(8, 5, 7)) == 1  # printed: 4


def test_erratum_8_the_true_costs_of_table_3():
    firsts = {tuple(cuts): pair_cost(TABLE3, T1, cuts) for cuts in partitions_of_20(3, 9)}
    assert min(firsts.values()) == 4
    greedy = {second_step(list(cuts)) for cuts, cost in firsts.items() if cost == 4}
    assert greedy == {2, 3, 4}
    totals = {cuts: cost + second_step(list(cuts)) for cuts, cost in firsts.items()}
    assert min(totals.values()) == 6
    assert totals[0, 4, 13, 20] == 4 + 2
    assert totals[0, 8, 13, 20] == 5 + 1
    now = Assignment.from_intervals([(0, 13), (13, 20)])
    assert oms(TABLE3, now, [(3, "2/5"), (4, "2/5")]).cost == 6


def test_erratum_10_tau_in_the_experiments_is_the_multiplier():
    """With τ = 1.2 read as Section 4.1 defines it, nothing is left to decide: 10 → 8 is free."""
    rng = np.random.default_rng(3)
    load = Workload(rng.integers(50, 150, 64), rng.integers(1, 1000, 64))
    now = Assignment.from_intervals(even(64, 8))
    assert ssm(Problem(load, now, 10, "6/5")).cost == 0
    assert ssm(Problem(load, now, 10, "1/5")).cost > 0


def test_erratum_11_line_15_drops_the_case_that_lemma_4_5_adds():
    case = problem([1] * 4, [2, 1, 2, 1], [(i, i + 1) for i in range(4)], nodes=2, cap=2)
    assert brute.best_value(case) == figure7(case, REPAIRED).kept == 4
    assert figure7(case, replace(REPAIRED, keep_redundant=False)).kept == 3


def test_erratum_12_without_intervals_appendix_a_is_right():
    """Two nodes with one heavy and five light tasks each: two moves suffice for loads 5, 5, 4."""
    one, two = [2, *[1] * 5], [2, *[1] * 5]

    def enough(moved):
        """Whether giving these tasks (0-5: of the first node) to the third node meets the cap."""
        given = [sum(one[t] for t in moved if t < 6), sum(two[t - 6] for t in moved if t >= 6)]
        return max(7 - given[0], 7 - given[1], sum(given)) <= 5

    fewest = next(k for k in range(13) if any(map(enough, combinations(range(12), k))))
    assert fewest == 2
    assert enough((0, 6))


def test_erratum_12_the_best_answer_of_appendix_a_is_no_interval_assignment():
    apart = problem([2, *[1] * 10, 2], [1] * 12, [(0, 6), (6, 12)], nodes=3, cap=5)
    adjacent = problem([*[1] * 5, 2, 2, *[1] * 5], [1] * 12, [(0, 6), (6, 12)], nodes=3, cap=5)
    assert ssm(apart).cost == 4  # as many as consistent hashing expects to move
    assert ssm(adjacent).cost == 2


def test_erratum_13_nodes_are_removed_when_they_become_fewer_not_more():
    now = Assignment.from_intervals(even(12, 3))
    load = Workload([1] * 12, [1] * 12)
    assert len(ssm(Problem(load, now, 2, 1)).leaving) == 1
    assert ssm(Problem(load, now, 4, 1)).leaving == ()


def test_erratum_15_with_gamma_0_the_definitions_still_see_the_next_migration():
    """Table 3, the step to 4 nodes being certain: cheapest first steps are not all alike."""
    load, start = Workload([1] * 20, [1] * 20), Assignment.from_intervals([(0, 13), (13, 20)])
    first = Problem(load, start, 3, "2/5")
    totals = []
    for ends in enumerate_partitions(load, 3, "2/5"):
        plan = Plan(first, assign(first, [0, *np.unique(ends).tolist()]), "given")
        totals.append((plan.cost, ssm(Problem(load, plan.target, 4, "2/5")).cost))
    cheapest = min(now for now, _ in totals)
    assert cheapest == 4
    assert {later for now, later in totals if now == cheapest} == {2, 3, 4}
    assert min(now + later for now, later in totals) == 6
