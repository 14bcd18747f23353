"""Table 3: twenty equal tasks on 2, 3, then 4 nodes, τ = 0.4. All of it exact.

`single-step` takes every cheapest first step that there is, then the cheapest second one; `oms` is the
cheapest sequence. What the paper prints is measured too: the cost of its own partitions.
"""

from __future__ import annotations

from meander.model import Assignment, Plan, Problem, Workload
from meander.planning import plan
from meander.planning.exact.match import assign
from meander.planning.exact.partitions import enumerate_partitions
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row

TAU = "2/5"
LOAD = Workload([1] * 20, [1] * 20)
START = Assignment.from_intervals([(0, 13), (13, 20)])
PRINTED = {
    # column          (first step, second step) along the line; docs/errata.md says why 9, 2, 9
    "printed: single-step": ((9, 2, 9), (6, 6, 2, 6)),
    "printed: alternative": ((8, 5, 7), (6, 4, 6, 4)),
}


def cells(wanted: Parameters) -> list[Cell]:
    """One cell: it takes no time."""
    return [{"sequence": "2, 3, 4 nodes"}]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Try all partitions for 3 nodes, and the cheapest step to 4 nodes from each."""
    totals: list[tuple[int, int, str]] = []
    for ends in enumerate_partitions(LOAD, 3, TAU):
        here = Problem(LOAD, START, 3, TAU)
        first = Plan(here, assign(here, [0, *sorted(set(ends.tolist()))]), "given")
        second = plan(Problem(LOAD, first.target, 4, TAU))
        totals.append((first.cost, second.cost, _shape(first.target)))
    least = plan(Problem(LOAD, START, 3, TAU)).cost
    greedy = [t for t in totals if t[0] == least]
    rows = [
        _row("single-step, luckiest", min(greedy, key=lambda t: t[1])),
        _row("single-step, unluckiest", max(greedy, key=lambda t: t[1])),
        _row("best sequence", min(totals, key=lambda t: t[0] + t[1])),
    ]
    for name, (first_shape, _) in PRINTED.items():
        found = next(t for t in totals if t[2] == _text(first_shape))
        rows.append(_row(f"{name}, from there optimal", found))
    rows.append({"method": "as printed: single-step", "first": 4, "second": 6, "total": 10})
    rows.append({"method": "as printed: alternative", "first": 5, "second": 4, "total": 9})
    return rows


def _row(method: str, found: tuple[int, int, str]) -> Row:
    first, second, shape = found
    return {
        "method": method, "first": first, "second": second, "total": first + second, "shape": shape,
    }  # fmt: skip


def _shape(assignment: Assignment) -> str:
    return _text([run.ub - run.lb for run in assignment.runs])


def _text(shape: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, shape))
