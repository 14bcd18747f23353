"""Claims about the paper's two examples, Table 3 and Appendix A; see `claims`."""

from __future__ import annotations

from typing import Final

from meander.planning.ahead.brackets import Interval95
from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.noise import above, text
from meander_lab.experiments.verdicts import (
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    entering,
    measured,
    of_parts,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)


# ------------------------------------------------------------------ Table 3


@claim("T3.1", "table3", "The cheapest next step does not always lead to the cheapest sequence.")
def greedy_can_lose(tables: Tables) -> ClaimVerdict:
    """The total after the unluckiest cheapest first step, and the least total."""
    rows = measured(tables, "table3")
    best, greedy = (rows.where(method=m).mean("total")
                    for m in ("best sequence", "single-step, unluckiest"))  # fmt: skip
    return of_parts([greedy > best], f"{greedy:g} tasks move, {best:g} would do")


@claim("T3.2", "table3", "Single-step costs 4 + 6 in this example, the alternative 5 + 4.")
def printed_costs_are_right(tables: Tables) -> ClaimVerdict:
    """From the printed first steps on, what the cheapest second steps cost."""
    rows, parts, told = measured(tables, "table3"), list[Part](), []
    for name in ("single-step", "alternative"):
        printed = rows.where(method=f"as printed: {name}")[0]
        real = rows.where(method=f"printed: {name}, from there optimal")[0]
        parts.append(real["second"] == printed["second"])
        told.append(f"{name}: {real['first']} + {real['second']}")
    return of_parts(parts, "; ".join(told))


# ------------------------------------------------------------------ Appendix A


@claim("A.1", "appendix-a", "Consistent hashing can put both heavy tasks on one node.")
def hashing_can_be_uneven(tables: Tables) -> ClaimVerdict:
    """Counted over many rings."""
    row = measured(tables, "appendix-a").where(method="consistent-hash")[0]
    number = f"in {100 * row['both_heavy_share']:.0f} % of {row['rings']} rings"
    return of_parts([row["both_heavy_share"] > 0], number)


@claim(
    "A.2", "appendix-a", "Consistent hashing moves four tasks in the mean when a third node joins."
)
def hashing_moves_four(tables: Tables) -> ClaimVerdict:
    """The mean of the rings."""
    row = measured(tables, "appendix-a").where(method="consistent-hash")[0]
    moved = Interval95(row["tasks_moved"], row.get("moved_low"), row.get("moved_high"))
    number = f"{text(moved, 2)} tasks"
    return of_parts([abs(row["tasks_moved"] - 4) <= limit.FOUR.value], number)


@claim("A.3", "appendix-a", "The best is to move the two heavy tasks, which costs less.")
def two_heavy_tasks_are_best(tables: Tables) -> ClaimVerdict:
    """Of all even assignments the one that costs least, and the mean of the rings, by size of states.

    It moves two tasks to the third node; they are heavy if no node has more than five of the work then.
    """
    rows, parts, told = measured(tables, "appendix-a"), list[Part](), []
    for size in rows.names("sizes"):
        some = rows.where(sizes=size)
        ring = some.where(method="consistent-hash")[0]
        even = some.where(method="any assignment")
        best, moved, busiest = (even.mean(name) for name in ("cost", "tasks_moved", "imbalance"))
        heavy = moved == 2 and abs(busiest - TWO_HEAVY) < 1e-3
        cost = Interval95(ring["cost"], ring.get("cost_low"), ring.get("cost_high"))
        parts.append(heavy and above(cost.less(best)))
        told.append(
            f"states {size}: {moved:g} {'heavy tasks' if heavy else 'tasks'}, {best:g} against "
            f"{text(cost, 2)}"
        )
    return of_parts(parts, "; ".join(told))


TWO_HEAVY: Final = 5 / (14 / 3)
"""The busiest node over the mean, once two tasks of twice the work are gone to a third node."""


@claim(
    "A.4",
    "appendix-a",
    "A good assignment gives each of two nodes five light tasks and a heavy one.",
)
def good_is_five_and_one(tables: Tables) -> ClaimVerdict:
    """It is as even as any of all assignments, and more so than six tasks each and than rings.

    What a third node then makes move is told and not judged: the sentence is about two.
    """
    rows = measured(tables, "appendix-a")
    some = rows.where(part="two nodes", sizes="equal")
    if not len(some):
        raise LookupError("no comparison of assignments to two nodes")
    good, uneven = some.where(light=5, heavy=1)[0], some.where(light=4, heavy=2)[0]
    ring = rows.where(method="consistent-hash", sizes="equal")[0]
    least = min(some.column("imbalance"))
    others = some.where(lambda row: row["light"] != 5, imbalance=least)
    also = "".join(f", as of {row['method']}" for row in others)
    then = "".join(f"; from {row['method']} it is {row['tasks_moved']:g}" for row in others)
    number = (
        f"busiest node over mean: {good['imbalance']:.3g}{also}; of {uneven['method']} (six tasks "
        f"each) {uneven['imbalance']:.3g}, of rings {ring['imbalance']:.3g}. A third node then makes "
        f"{good['tasks_moved']:g} tasks move{then}"
    )
    evener = [good["imbalance"] < one["imbalance"] for one in (uneven, ring)]
    return of_parts([good["imbalance"] <= least, *evener], number)
