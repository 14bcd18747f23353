from __future__ import annotations

import pytest

from meander.errors import CertificateError
from meander.model import Assignment, Plan, Problem, Run, Workload
from meander.planning.exact.certificate import check_plan
from meander.planning.rivals.hashing import bounded_hash

NOW = Assignment.from_intervals({"n1": (0, 3), "n2": (3, 4)})
LOAD = Workload([1] * 4, [5, 6, 7, 8])
PROBLEM = Problem(LOAD, NOW, nodes=2, tau=0)
GOOD = Assignment.from_intervals({"n1": (0, 2), "n2": (2, 4)})


def _target(*runs: tuple[int, int, str], nodes: tuple[str, ...] = ("n1", "n2"), tasks: int = 4):
    return Assignment(tasks, tuple(Run(*run) for run in runs), nodes)


def test_a_good_plan_passes():
    check_plan(Plan(PROBLEM, GOOD, "ssm", optimal=True, bound=7))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (_target((0, 2, "n1"), (2, 3, "n2"), tasks=3), "3 tasks, the problem 4"),
        (_target((0, 2, "n1"), (2, 3, "n2")), "tasks 3 to 3 have no owner"),
        (_target((0, 2, "n1"), (3, 4, "n2")), "should begin at 2"),
        (_target((0, 2, "n1"), (1, 4, "n2")), "should begin at 2"),
        (_target((0, 2, "n1"), (2, 2, "n2"), (2, 4, "n1")), "not be empty"),
        (_target((0, 2, "n1"), (2, 4, "n1")), "two neighbouring runs of n1 meet at 2"),
        (_target((0, 2, "n1"), (2, 4, "n2"), nodes=("n1", "n2", "n3")), "3 members, but 2"),
        (_target((0, 2, "n1"), (2, 4, "n2"), nodes=("n1", "n1")), "a member twice"),
        (_target((0, 2, "n1"), (2, 4, "n3")), r"\['n3'\] own tasks, but are no members"),
        (_target((0, 2, "n1"), (2, 4, "n3"), nodes=("n1", "n3")), "1 nodes leave, but 0 must"),
        (_target((0, 1, "n1"), (1, 2, "n2"), (2, 4, "n1")), "several runs"),
        (_target((0, 3, "n1"), (3, 4, "n2")), "node n1 has 3 work, the cap is 2"),
    ],
)  # fmt: skip
def test_a_bad_target_is_named(target, text):
    with pytest.raises(CertificateError, match=text):
        check_plan(Plan(PROBLEM, target, "ssm"))


def test_a_node_that_joins_must_have_the_name_the_problem_gives():
    problem = Problem(LOAD, NOW, nodes=3, tau=4, new_nodes=["spare"])
    target = _target((0, 2, "n1"), (2, 4, "n2"), nodes=("n1", "n2", "n9"))
    with pytest.raises(CertificateError, match=r"join, but the problem names \['spare'\]"):
        check_plan(Plan(problem, target, "ssm"))


def test_the_memory_cap_is_checked():
    problem = Problem(LOAD, NOW, nodes=2, tau=0, memory_cap=14)
    with pytest.raises(CertificateError, match="node n2 holds 15 bytes, the cap is 14"):
        check_plan(Plan(problem, GOOD, "ssm"))


def test_policies_that_promise_no_caps_may_break_them():
    check_plan(Plan(PROBLEM, _target((0, 1, "n2"), (1, 4, "n1")), "flink"))
    check_plan(Plan(PROBLEM, _target((0, 1, "n1"), (1, 2, "n2"), (2, 4, "n1")), "redist"))


@pytest.mark.parametrize("policy", ["mtm", "ahead", "foresight", "oms", "bounded-hash"])
def test_every_policy_that_promises_the_caps_is_held_to_them(policy):
    with pytest.raises(CertificateError, match=f"{policy}: node n1 has 3 work, the cap is 2"):
        check_plan(Plan(PROBLEM, NOW, policy))


def test_bounded_hashing_keeps_the_caps_in_several_runs_or_says_that_it_cannot():
    check_plan(Plan(PROBLEM, _target((0, 1, "n1"), (1, 3, "n2"), (3, 4, "n1")), "bounded-hash"))
    tight = Problem(Workload([3, 3, 2], [1] * 3), Assignment.from_intervals({"n1": (0, 3)}), 2, 0)
    for seed in range(20):
        found = bounded_hash(tight, seed=seed)
        assert "fitted nowhere" in found.note
        check_plan(found)


@pytest.mark.parametrize(
    ("optimal", "bound", "text"),
    [(False, 8, "bound 8 is more than the cost 7"), (True, 6, "optimal, but costs 7 with bound 6"),
     (True, None, "optimal, but costs 7 with bound None")],
)  # fmt: skip
def test_false_claims_are_named(optimal, bound, text):
    with pytest.raises(CertificateError, match=text):
        check_plan(Plan(PROBLEM, GOOD, "ssm", optimal=optimal, bound=bound))


def test_forged_moves_and_costs_are_named():
    forged = Plan(PROBLEM, GOOD, "ssm")
    forged.__dict__["cost"] = 3
    with pytest.raises(CertificateError, match="the cost is 3, its moves add up to 7"):
        check_plan(forged)
    forged = Plan(PROBLEM, GOOD, "ssm")
    forged.__dict__["moves"] = ()
    with pytest.raises(CertificateError, match="0 moves, but 1 tasks change their owner"):
        check_plan(forged)
    forged.__dict__["moves"] = (Plan(PROBLEM, GOOD, "ssm").moves[0]._replace(source="n2"),)
    with pytest.raises(CertificateError, match="should be"):
        check_plan(forged)
