"""Appendix A: ten light tasks and two heavy ones, on two nodes and then three.

The paper says what consistent hashing *aims* at. Here is what rings do, many of them: how often one
node gets both heavy tasks, how uneven the load is, and what a third node makes them move. Beside them
the least that any assignment must move (all are tried), and single steps for two orders of tasks.

And what is a good assignment to begin with: of all assignments to two nodes, those that keep to τ are
told apart by how many light and heavy tasks a node has, with what a third node makes move from there.

The appendix speaks of workload and not of state, so it is measured twice: all states of one size, and
states as large as the work.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb
from typing import Final

import numpy as np

from meander.model import Assignment, Problem, Workload
from meander.planning import plan
from meander.planning.ahead.evaluate import bootstrap
from meander.planning.rivals.hashing import consistent_hash, ring_assignment
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row
from meander_lab.experiments.texts import Longs

HEAVY: Final = (0, 6)
"""One in each half, as in the paper's good assignment."""
ORDERS: Final = {"heavy tasks are neighbours": (5, 6), "heavy tasks at the ends": (0, 11)}
TAU: Final = "1/5"
PARTS: Final = ("rings", "plans", "two nodes")
LIGHT: Final = 10


def cells(wanted: Parameters) -> list[Cell]:
    """Rings, plans, and assignments to two nodes, for both sizes of states."""
    return [{"part": p, "sizes": s} for s in ("equal", "as work") for p in PARTS]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Count over rings, or try everything."""
    like_work = cell["sizes"] == "as work"
    if cell["part"] == "rings":
        return _rings(wanted.rings, like_work)
    return _plans(like_work) if cell["part"] == "plans" else _two_nodes(like_work)


def load_of(heavy: tuple[int, int], like_work: bool) -> Workload:
    """Give the twelve tasks."""
    work = [2 if task in heavy else 1 for task in range(12)]
    return Workload(work, work if like_work else [1] * 12)


def _rings(rings: int, like_work: bool) -> list[Row]:
    load, moved, cost, both, uneven = load_of(HEAVY, like_work), [], [], [], []
    for seed in range(rings):
        now = ring_assignment(12, ["n1", "n2"], seed=seed)
        owners = now.owners()
        both.append(owners[HEAVY[0]] == owners[HEAVY[1]])
        loads = np.bincount(owners, load.work, minlength=2)
        uneven.append(float(loads.max() / loads.mean()))
        found = consistent_hash(Problem(load, now, 3, TAU), seed=seed)
        moved.append(len(found.moves))
        cost.append(found.cost)
    draw = np.random.default_rng(0)
    tasks, bytes_ = (bootstrap(np.array(x, dtype=np.float64), draw, block=1) for x in (moved, cost))
    return [{
        "method": "consistent-hash", "rings": rings, "tasks_moved": tasks.mean,
        "moved_low": tasks.low, "moved_high": tasks.high, "cost": bytes_.mean,
        "cost_low": bytes_.low, "cost_high": bytes_.high, "both_heavy_share": float(np.mean(both)),
        "imbalance": float(np.mean(uneven)),
    }]  # fmt: skip


def _plans(like_work: bool) -> list[Row]:
    now = Assignment.from_intervals([(0, 6), (6, 12)])
    rows = [{"method": "any assignment", **_best(now.owners(), load_of(HEAVY, like_work))}]
    for order, heavy in ORDERS.items():
        found = plan(Problem(load_of(heavy, like_work), now, 3, TAU), relax=True)
        rows.append({
            "method": f"single-step, {order}", "tasks_moved": float(len(found.moves)),
            "cost": float(found.cost), "imbalance": float(found.imbalance),
        })  # fmt: skip
    return rows


def _two_nodes(like_work: bool) -> list[Row]:
    """Tell apart, by the tasks of the first node, the assignments to two nodes that keep to τ.

    Which light tasks they are makes no difference, nor does it which node comes first.
    """
    load, rows = load_of(HEAVY, like_work), []
    cap = (1 + Fraction(TAU)) * load.total_work / 2
    for heavy, light in product((2, 1), range(LIGHT + 1)):
        work = 2 * heavy + light
        if max(work, load.total_work - work) > cap or (heavy == 1 and 2 * light < LIGHT):
            continue
        names = sorted(range(12), key=lambda task: task in HEAVY)  # light ones first
        first = [*names[:light], *names[LIGHT : LIGHT + heavy]]
        owners = np.array([task not in first for task in range(12)], dtype=np.int64)
        third = _best(owners, load)
        twins = 1 if (light, heavy) == (LIGHT // 2, 1) else 2
        rows.append({
            "method": f"{light} + {heavy} and {LIGHT - light} + {2 - heavy}", "light": light,
            "heavy": heavy, "assignments": twins * comb(LIGHT, light) * comb(2, heavy),
            "tasks_moved": third["tasks_moved"], "cost": third["cost"],
            "imbalance": max(work, load.total_work - work) / (load.total_work / 2),
        })  # fmt: skip
    return rows


def _best(owners: Longs, load: Workload) -> Row:
    """Try every set of tasks for the third node: the most even loads, then the least bytes."""
    found = []
    for chosen in product((False, True), repeat=12):
        moved = np.array(chosen)
        loads = np.bincount(np.where(moved, 2, owners), load.work, minlength=3)
        found.append((float(loads.max()), int(load.size[moved].sum()), int(moved.sum())))
    highest, cost, tasks = min(found)
    return {
        "tasks_moved": float(tasks), "cost": float(cost),
        "imbalance": highest / (load.total_work / 3),
    }  # fmt: skip
