"""Check a plan without trusting the planner. Every policy's plans pass here, in every test.

What is checked, from the target assignment and the problem alone:

  1. the runs cover every task once, in order, and neighbours have different owners;
  2. there are exactly n′ members, each once, and every owner is a member;
  3. who must leave does, nobody else unless nodes must, and no more join than are missing;
  4. the moves are exactly the tasks that change their owner, with source, target and size;
  5. the cost is the sum of the moves;
  6. the bound is no more than the cost, and equal to it if the plan claims to be optimal;
  7. a policy that promises the caps keeps them, with one interval per node; bounded hashing without
     the latter, unless its note says that tasks fitted nowhere.

Rule 3 binds every policy: a node that may stay is not replaced by a stranger.
"""

from __future__ import annotations

from typing import Final

from meander.errors import CertificateError
from meander.model import NodeId, Plan

KEEPS_CAPS: Final = frozenset(
    {"ssm", "ssm-paper", "simple-ssm", "oms", "ahead", "mtm", "foresight"}
)
"""Policies whose plans are intervals within the caps, or an InfeasibleError."""
BOUNDED: Final = "bounded-hash"
FITTED_NOWHERE: Final = "fitted nowhere"
"""In the note of a plan of `BOUNDED` whose caps could not be kept."""


def check_plan(plan: Plan) -> None:
    """Return if the plan is legal and tells the truth about itself.

    Raises:
        CertificateError: naming the first thing that is wrong.

    >>> from meander.model import Assignment, Problem, Workload
    >>> now = Assignment.from_intervals({"n1": (0, 3), "n2": (3, 4)})
    >>> problem = Problem(Workload([1] * 4, [1] * 4), now, nodes=2, tau=0)
    >>> check_plan(Plan(problem, now, "ssm"))
    Traceback (most recent call last):
    ...
    meander.errors.CertificateError: ssm: node n1 has 3 work, the cap is 2
    """
    _check_cover(plan)
    _check_members(plan)
    _check_moves(plan)
    _check_claims(plan)
    if plan.policy in KEEPS_CAPS:
        if not plan.target.contiguous:
            _fail(plan, "a node owns several runs")
        _check_caps(plan)
    if plan.policy == BOUNDED and FITTED_NOWHERE not in plan.note:
        _check_caps(plan)


def _fail(plan: Plan, text: str) -> None:
    raise CertificateError(f"{plan.policy}: {text}")


def _check_cover(plan: Plan) -> None:
    tasks, reached, last = plan.problem.workload.tasks, 0, None
    if plan.target.tasks != tasks:
        _fail(plan, f"the target has {plan.target.tasks} tasks, the problem {tasks}")
    for lb, ub, node in plan.target.runs:
        if lb != reached or ub <= lb:
            _fail(plan, f"run [{lb}, {ub}) of {node} should begin at {reached} and not be empty")
        if node == last:
            _fail(plan, f"two neighbouring runs of {node} meet at {lb}")
        reached, last = ub, node
    if reached != tasks:
        _fail(plan, f"tasks {reached} to {tasks - 1} have no owner")


def _check_members(plan: Plan) -> None:
    members, problem = plan.target.nodes, plan.problem
    if len(set(members)) != len(members):
        _fail(plan, "a node is a member twice")
    if len(members) != problem.nodes:
        _fail(plan, f"{len(members)} members, but {problem.nodes} nodes are wanted")
    if strangers := {run.node for run in plan.target.runs} - set(members):
        _fail(plan, f"{sorted(strangers)} own tasks, but are no members")
    if stayed := problem.leaving & set(members):
        _fail(plan, f"{sorted(stayed)} must leave, and are members")
    must_leave = len(problem.leaving) + max(0, len(problem.staying) - problem.nodes)
    if len(plan.leaving) != must_leave:
        _fail(plan, f"{len(plan.leaving)} nodes leave, but {must_leave} must")
    expected = problem.joining(len(plan.joining))
    if set(plan.joining) != set(expected):
        _fail(plan, f"{sorted(plan.joining)} join, but the problem names {sorted(expected)}")


def _owner_of_each(runs: tuple[tuple[int, int, NodeId], ...]) -> list[NodeId]:
    return [node for lb, ub, node in runs for _ in range(lb, ub)]


def _check_moves(plan: Plan) -> None:
    before, after = _owner_of_each(plan.problem.current.runs), _owner_of_each(plan.target.runs)
    size = plan.problem.workload.size.tolist()
    expected = [
        (task, source, target, size[task])
        for task, (source, target) in enumerate(zip(before, after, strict=True))
        if source != target
    ]
    for found, right in zip(plan.moves, expected, strict=False):
        if found != right:
            _fail(plan, f"move {tuple(found)} should be {right}")
    if len(plan.moves) != len(expected):
        _fail(plan, f"{len(plan.moves)} moves, but {len(expected)} tasks change their owner")
    if plan.cost != sum(move[3] for move in expected):
        _fail(plan, f"the cost is {plan.cost}, its moves add up to {sum(m[3] for m in expected)}")


def _check_claims(plan: Plan) -> None:
    if plan.bound is not None and plan.bound > plan.cost:
        _fail(plan, f"the lower bound {plan.bound} is more than the cost {plan.cost}")
    if plan.optimal and plan.bound != plan.cost:
        _fail(plan, f"said to be optimal, but costs {plan.cost} with bound {plan.bound}")


def _check_caps(plan: Plan) -> None:
    problem = plan.problem
    for node, load in plan.loads.items():
        if load > problem.cap:
            _fail(plan, f"node {node} has {load} work, the cap is {problem.cap}")
    if problem.memory_cap is not None:
        for node, size in plan.sizes.items():
            if size > problem.memory_cap:
                _fail(plan, f"node {node} holds {size} bytes, the cap is {problem.memory_cap}")
