"""Claims about Figures 12 to 15 and 17, Table 3 and Appendix A; see `claims`."""

from __future__ import annotations

from typing import Final

import numpy as np

from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    Claim,
    ClaimVerdict,
    Tables,
    entering,
    looking_ahead,
    measured,
    of_parts,
    together,
    trend,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
NOISE: Final = 0.02
"""A step against the trend by less than this share counts as none: costs of 100 migrations vary."""
PROPOSED: Final = ("ssm", "mtm:n")


def _costs(rows: TableRows, method: str) -> list[float]:
    return rows.where(method=method).line("tau", "cost_pct")[1]


# ------------------------------------------------------------------ Figure 12


def _against(tables: Tables, method: str, factor: float) -> ClaimVerdict:
    """Compare a method with the proposed ones at every τ."""
    rows, parts, told = measured(tables, "fig12"), [], []
    for application in rows.names("application"):
        some = rows.where(application=application)
        ratios = [
            other / proposed
            for ours in PROPOSED
            for proposed, other in zip(_costs(some, ours), _costs(some, method), strict=True)
        ]
        parts += [ratio > factor for ratio in ratios]
        told.append(f"{application}: {min(ratios):.2f} to {max(ratios):.2f} times")
    return of_parts(parts, "; ".join(told))


@claim(
    "12.1",
    "fig12",
    "Storm's plan costs more than twice what the proposed methods cost, at every τ.",
)
def storm_costs_twice(tables: Tables) -> ClaimVerdict:
    """Storm over single-step and over MTM-aware."""
    return _against(tables, "storm", 2.0)


@claim("12.2", "fig12", "Consistent hashing costs more than the proposed methods, at every τ.")
def hashing_costs_more(tables: Tables) -> ClaimVerdict:
    """The mean of the rings over single-step and over MTM-aware."""
    return _against(tables, "consistent-hash", 1.0)


def _mtm_gap(rows: TableRows, label: str) -> list[float]:
    return [
        (a - b) / a if a else 0.0
        for a, b in zip(_costs(rows, "ssm"), _costs(rows, label), strict=True)
    ]


@claim(
    "12.3", "fig12", "MTM-aware migration (matrix over n) costs less than single-step, at every τ."
)
def mtm_beats_single_step(tables: Tables) -> ClaimVerdict:
    """The paper's own label."""
    return _mtm_wins(tables, "mtm:n")


@claim("12.4", "fig12", "The same with our labels, direction and slot of the day.")
def our_labels_beat_single_step(tables: Tables) -> ClaimVerdict:
    """Each of our two labels."""
    verdicts = {label: _mtm_wins(tables, label) for label in ("mtm:direction", "mtm:slot")}
    return together(verdicts)


def _mtm_wins(tables: Tables, label: str) -> ClaimVerdict:
    rows, parts, told = measured(tables, "fig12"), [], []
    for application in rows.names("application"):
        gaps = _mtm_gap(rows.where(application=application), label)
        parts += [gap > 0 for gap in gaps]
        told.append(f"{application}: {100 * min(gaps):.1f} % to {100 * max(gaps):.1f} % less")
    return of_parts(parts, "; ".join(told))


@claim("12.5", "fig12", "The gap between single-step and MTM-aware migration grows with τ.")
def mtm_gap_grows(tables: Tables) -> ClaimVerdict:
    """In percent of single-step's cost."""
    rows = measured(tables, "fig12")
    return together({
        application: trend(
            [100 * gap for gap in _mtm_gap(rows.where(application=application), "mtm:n")], up=True
        )
        for application in rows.names("application")
    })  # fmt: skip


@claim("12.6", "fig12", "The costs of the proposed methods fall as τ grows.")
def costs_fall(tables: Tables) -> ClaimVerdict:
    """Every proposed method, both applications."""
    rows = measured(tables, "fig12")
    return together({
        f"{application}, {method}": trend(
            _costs(rows.where(application=application), method), up=False, slack=NOISE
        )
        for application in rows.names("application")
        for method in PROPOSED
    })  # fmt: skip


@claim("12.7", "fig12", "The gap between the proposed methods and Storm and consistent hashing grows "
       "with τ.")  # fmt: skip
def gap_to_others_grows(tables: Tables) -> ClaimVerdict:
    """Percentage points between single-step and each of the two."""
    rows, found = measured(tables, "fig12"), {}
    for application in rows.names("application"):
        some = rows.where(application=application)
        for other in ("storm", "consistent-hash"):
            pairs = zip(_costs(some, other), _costs(some, "ssm"), strict=True)
            found[f"{application}, {other}"] = trend([a - b for a, b in pairs], up=True)
    return together(found)


@claim("12.8", "fig12", "The cost falls faster with τ for word count than for frequent patterns.")
def words_fall_faster(tables: Tables) -> ClaimVerdict:
    """The share of the cost at the smallest τ that is left at the largest."""
    rows, left = measured(tables, "fig12"), {}
    for application in ("word-count", "frequent-patterns"):
        costs = _costs(rows.where(application=application), "ssm")
        if len(costs) < 2:
            raise LookupError(f"{application} was not measured")
        left[application] = costs[-1] / costs[0]
    number = "; ".join(f"{k}: {100 * v:.0f} % of the cost is left" for k, v in left.items())
    return of_parts([left["word-count"] < left["frequent-patterns"]], number)


@claim("12.9", "fig12", "Word count suffers more from an uneven distribution of the data.")
def words_are_uneven(tables: Tables) -> ClaimVerdict:
    """How busy the busiest node is when every node gets as many tasks (Storm)."""
    rows = measured(tables, "fig12").where(method="storm")
    worst = {a: rows.where(application=a).mean("imbalance_max") for a in rows.names("application")}
    number = "; ".join(f"{a}: {v:.2f} times the mean" for a, v in worst.items())
    return of_parts([worst["word-count"] > worst["frequent-patterns"]], number)


# ------------------------------------------------------------------ Figure 13


@claim("13.1", "fig13", "The time of SSM grows with τ.")
def ssm_time_grows(tables: Tables) -> ClaimVerdict:
    """The paper's algorithm (ours does not have its search space)."""
    rows = measured(tables, "fig13").where(method="ssm-paper")
    return together({
        a: trend(rows.where(application=a).line("tau", "plan_us")[1], up=True, slack=NOISE)
        for a in rows.names("application")
    })  # fmt: skip


@claim("13.2", "fig13", "SSM never takes longer than 2 ms.")
def ssm_is_fast(tables: Tables) -> ClaimVerdict:
    """The slowest migration of both implementations."""
    rows = measured(tables, "fig13")
    worst = {m: max(rows.where(method=m).column("plan_max")) for m in ("ssm-paper", "ssm")}
    number = "; ".join(f"{m}: {us / 1000:.3g} ms at most" for m, us in worst.items())
    return of_parts([us <= 2000 for us in worst.values()], number)


@claim("13.3", "fig13", "Choosing an MTM-aware migration online takes a negligible time, too.")
def mtm_is_fast(tables: Tables) -> ClaimVerdict:
    """At most the 2 ms that are negligible for SSM."""
    worst = max(measured(tables, "fig13").where(method="mtm:n").column("plan_high"))
    return of_parts([worst <= 2000], f"{worst / 1000:.3g} ms at the 95th percentile")


# ------------------------------------------------------------------ Figure 14


@claim("14.1", "fig14", "The pre-computation takes much longer than the online choice.")
def precompute_is_longer(tables: Tables) -> ClaimVerdict:
    """A thousand times is much."""
    rows = measured(tables, "fig14").where(lambda row: row.get("seconds") is not None)
    ratios = [1e6 * row["seconds"] / row["online_us"] for row in rows]
    return of_parts([r > 1000 for r in ratios], f"{min(ratios):.2g} to {max(ratios):.2g} times")


@claim("14.2", "fig14", "The pre-computation takes hundreds of minutes (there on 64 executors).")
def precompute_takes_hours(tables: Tables) -> ClaimVerdict:
    """The longest one that was run."""
    rows = measured(tables, "fig14").where(method="exact", beyond=False)
    most = max(rows, key=lambda row: float(row["seconds"]))
    number = (
        f"{most['seconds']:.3g} s for {most['states']:,.0f} partitions on {most['cores']} cores"
    )
    return of_parts([most["seconds"] >= 6000], number)


# ------------------------------------------------------------------ Figure 15


@claim("15.1", "fig15", "The time of SSM grows with the square of the number of tasks.")
def ssm_is_quadratic(tables: Tables) -> ClaimVerdict:
    """The exponent of the paper's algorithm, and of ours beside it."""
    rows = measured(tables, "fig15")
    slope = {m: _exponent(rows.where(method=m)) for m in ("ssm-paper", "ssm")}
    number = f"m^{slope['ssm-paper']:.2f}; ours m^{slope['ssm']:.2f}"
    return of_parts([1.6 <= slope["ssm-paper"] <= 2.4], number)


def _exponent(rows: TableRows) -> float:
    """Fit the exponent over the larger half, where fixed costs matter less."""
    xs, ys = rows.line("tasks", "plan_us")
    if len(xs) < 2:
        raise LookupError("a slope needs two sizes")
    half = slice(min(len(xs) // 2, len(xs) - 2), None)
    return float(np.polyfit(np.log(xs[half]), np.log(ys[half]), 1)[0])


@claim("15.2", "fig15", "The cost of single-step migration falls as the number of tasks grows.")
def cost_falls_with_tasks(tables: Tables) -> ClaimVerdict:
    """Word count, as in the figure."""
    rows = measured(tables, "fig15").where(method="ssm", application="word-count")
    return trend(rows.line("tasks", "cost_pct")[1], up=False, slack=NOISE)


@claim("15.3", "fig15", "Frequent patterns and MTM-aware migration lead to the same conclusions.")
def others_fall_with_tasks(tables: Tables) -> ClaimVerdict:
    """The cost of each falls with the number of tasks."""
    rows, found = measured(tables, "fig15"), {}
    for application, method in (("frequent-patterns", "ssm"), ("word-count", "mtm:n"),
                                ("frequent-patterns", "mtm:n")):  # fmt: skip
        costs = rows.where(application=application, method=method).line("tasks", "cost_pct")[1]
        found[f"{application}, {method}"] = trend(costs, up=False, slack=NOISE)
    return together(found)


# ------------------------------------------------------------------ Figure 17


def _by_gamma(rows: TableRows, method: str, what: str) -> list[float]:
    return rows.where(method=method).line("gamma", what)[1]


@claim("17.1", "fig17", "With γ = 0 MTM-aware migration is single-step migration.")
def gamma_zero_is_single_step(tables: Tables) -> ClaimVerdict:
    """Costs are equal."""
    rows, parts, told = measured(tables, "fig17"), [], []
    for application in rows.names("application"):
        some = rows.where(application=application, gamma=0.0)
        ssm = some.where(method="ssm").mean("cost_pct")
        ahead = some.where(method=looking_ahead(some)).mean("cost_pct")
        parts.append(abs(ssm - ahead) < 1e-9)
        told.append(f"{application}: {ahead:.3f} % and {ssm:.3f} %")
    return of_parts(parts, "; ".join(told))


@claim("17.2", "fig17", "The cost of MTM-aware migration falls as γ grows.")
def cost_falls_with_gamma(tables: Tables) -> ClaimVerdict:
    """Every label, both applications."""
    rows = measured(tables, "fig17")
    return together({
        f"{a}, {m}": trend(
            _by_gamma(rows.where(application=a), m, "cost_pct"), up=False, slack=NOISE
        )
        for a in rows.names("application")
        for m in rows.names("method") if m.startswith("mtm:")
    })  # fmt: skip


@claim("17.3", "fig17", "The pre-computation takes longer as γ grows.")
def precompute_grows_with_gamma(tables: Tables) -> ClaimVerdict:
    """PMC over all partitions."""
    rows = measured(tables, "fig17")
    return together({
        a: trend(_by_gamma(rows.where(application=a), "PMC", "precompute_s"), up=True, slack=0.1)
        for a in rows.names("application")
    })  # fmt: skip


@claim("17.4", "fig17", "So γ trades migration cost for pre-computation.")
def gamma_trades(tables: Tables) -> ClaimVerdict:
    """Both of the two before."""
    both = {"cost": cost_falls_with_gamma(tables), "time": precompute_grows_with_gamma(tables)}
    return together({k: ClaimVerdict(v.status, v.status) for k, v in both.items()})


# ------------------------------------------------------------------ the summary of Section 6


@claim("6.1", "fig12", "The proposed methods save a significant share of the transmissions of "
       "consistent hashing and of Storm's scheduler.")  # fmt: skip
def proposed_save(tables: Tables) -> ClaimVerdict:
    """At the paper's default, τ = 0.2; a tenth is significant."""
    rows, parts, told = measured(tables, "fig12"), [], []
    for application in rows.names("application"):
        some = rows.where(application=application, tau=0.2)
        ours = some.where(method="ssm").mean("cost_pct")
        for other in ("consistent-hash", "storm"):
            saved = 1 - ours / some.where(method=other).mean("cost_pct")
            parts.append(saved >= 0.1)
            told.append(f"{application}, {other}: {100 * saved:.1f} %")
    return of_parts(parts, "; ".join(told))


@claim("6.2", "fig13", "Both proposed methods compute their assignment with a small overhead.")
def overhead_is_small(tables: Tables) -> ClaimVerdict:
    """As 13.2 and 13.3."""
    return together({"single-step": ssm_is_fast(tables), "MTM-aware": mtm_is_fast(tables)})


# ------------------------------------------------------------------ Table 3, Appendix A


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
    rows, parts, told = measured(tables, "table3"), [], []
    for name in ("single-step", "alternative"):
        printed = rows.where(method=f"as printed: {name}")[0]
        real = rows.where(method=f"printed: {name}, from there optimal")[0]
        parts.append(real["second"] == printed["second"])
        told.append(f"{name}: {real['first']} + {real['second']}")
    return of_parts(parts, "; ".join(told))


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
    """Within a tenth."""
    moved = measured(tables, "appendix-a").where(method="consistent-hash").mean("tasks_moved")
    return of_parts([abs(moved - 4) <= 0.4], f"{moved:.2f} tasks")


@claim("A.3", "appendix-a", "The best is to move the two heavy tasks, which costs less.")
def two_heavy_tasks_are_best(tables: Tables) -> ClaimVerdict:
    """Least cost of all even assignments, and the mean of the rings, by size of the states."""
    rows, parts, told = measured(tables, "appendix-a"), [], []
    for size in rows.names("sizes"):
        some = rows.where(sizes=size)
        ring = some.where(method="consistent-hash").mean("cost")
        best = some.where(method="any assignment").mean("cost")
        parts.append(best < ring / 1.2)
        told.append(f"states {size}: {best:g} against {ring:.2f}")
    return of_parts(parts, "; ".join(told))
