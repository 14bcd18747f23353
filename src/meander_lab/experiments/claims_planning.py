"""Claims about Figures 12, 13 and 15: costs and times of plans; see `claims`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from meander.planning.ahead.brackets import Interval95
from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.noise import Series, above, compare, series, text
from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    counted,
    entering,
    measured,
    of_parts,
    together,
    trend,
    unforced,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
PAPER: Final = "mtm-paper"
PROPOSED: Final = ("ssm", PAPER)
NAMES: Final = {"ssm": "single-step", PAPER: "MTM-aware", "ahead": "ahead", "mtm:n": "mtm"}


def costs(rows: TableRows, **where: Any) -> Series:
    """Give the costs of one point, migration by migration."""
    return series(rows.where(**where))


def _saved(ssm: Any, other: Any) -> Any:
    return (ssm - other) / np.maximum(ssm, 1e-12)


# ------------------------------------------------------------------ Figure 12


def against(tables: Tables, method: str, factor: float) -> ClaimVerdict:
    """Whether a method costs more than `factor` times the proposed ones, at every τ."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    parts, told = list[Part](), []
    for application in rows.names("application"):
        some, ratios = rows.where(application=application), []
        for ours in PROPOSED:
            for tau in some.where(method=ours).values("tau"):
                pair = costs(some, method=ours, tau=tau), costs(some, method=method, tau=tau)
                parts.append(above(compare(lambda a, b: b - factor * a, *pair)))
                ratios.append(compare(lambda a, b: b / a, *pair).mean)
        told.append(f"{application}: {min(ratios):.2f} to {max(ratios):.2f} times")
    return of_parts(parts, "; ".join(told) + remark)


@claim(
    "12.1",
    "fig12",
    "Storm's plan costs more than twice what the proposed methods cost, at every τ.",
)
def storm_costs_twice(tables: Tables) -> ClaimVerdict:
    """Storm over single-step and over MTM-aware."""
    return against(tables, "storm", limit.TWICE.value)


@claim("12.2", "fig12", "Consistent hashing costs more than the proposed methods, at every τ.")
def hashing_costs_more(tables: Tables) -> ClaimVerdict:
    """The mean of the rings over single-step and over MTM-aware."""
    return against(tables, "consistent-hash", 1.0)


def gains(
    rows: TableRows, application: str, method: str, base: str = "ssm"
) -> dict[float, Interval95]:
    """Give the share of `base`'s cost that a method saves, by τ."""
    some = rows.where(application=application)
    return {
        tau: compare(_saved, costs(some, method=base, tau=tau), costs(some, method=method, tau=tau))
        for tau in some.where(method=method).values("tau")
    }


def saves(tables: Tables, method: str, base: str = "ssm") -> ClaimVerdict:
    """Whether a method costs less than another at every τ."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    parts, told = list[Part](), []
    for application in rows.names("application"):
        found = gains(rows, application, method, base)
        parts += [above(gain) for gain in found.values()]
        listed = ", ".join(f"τ {tau:g}: {text(gain, scale=100)} %" for tau, gain in found.items())
        told.append(f"{application}: {listed}")
    return of_parts(parts, "; ".join(told) + remark)


@claim("12.3", "fig12", "MTM-aware migration costs less than single-step, at every τ.")
def mtm_beats_single_step(tables: Tables) -> ClaimVerdict:
    """The paper's own method, without our trial."""
    return saves(tables, PAPER)


@claim("12.4", "fig12", "The gap between single-step and MTM-aware migration grows with τ.")
def mtm_gap_grows(tables: Tables) -> ClaimVerdict:
    """In percent of single-step's cost."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    found = {}
    for application in rows.names("application"):
        some = rows.where(application=application)
        points = [
            (costs(some, method="ssm", tau=tau), costs(some, method=PAPER, tau=tau))
            for tau in some.where(method=PAPER).values("tau")
        ]
        found[application] = trend(points, up=True, stat=lambda a, b: 100 * _saved(a, b))
    verdict = together(found)
    return ClaimVerdict(verdict.status, verdict.number + " %" + remark)


@claim("12.5", "fig12", "The costs of the proposed methods fall as τ grows.")
def costs_fall(tables: Tables) -> ClaimVerdict:
    """Every proposed method, both applications."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    found = {}
    for application in rows.names("application"):
        for method in PROPOSED:
            some = rows.where(application=application, method=method)
            points = [(costs(some, tau=tau),) for tau in some.values("tau")]
            found[f"{application}, {NAMES[method]}"] = trend(points, up=False)
    verdict = together(found)
    return ClaimVerdict(verdict.status, verdict.number + remark)


@claim("12.6", "fig12", "The gap between the proposed methods and Storm and consistent hashing grows "
       "with τ.")  # fmt: skip
def gap_to_others_grows(tables: Tables) -> ClaimVerdict:
    """In percentage points; where the other is surely cheaper there is no gap that could grow."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    found = {}
    for application in rows.names("application"):
        some = rows.where(application=application)
        for other in ("storm", "consistent-hash"):
            for ours in PROPOSED:
                points = [
                    (costs(some, method=ours, tau=tau), costs(some, method=other, tau=tau))
                    for tau in some.where(method=ours).values("tau")
                ]
                there = of_parts([above(compare(lambda a, b: b - a, *p)) for p in points], "")
                grows = trend(points, up=True, stat=lambda a, b: b - a)
                both = together({"gap": there, "growth": grows})
                name = f"{application}, {NAMES[ours]} to {other}"
                found[name] = ClaimVerdict(both.status, grows.number)
    verdict = together(found)
    return ClaimVerdict(verdict.status, verdict.number + " points" + remark)


@claim("12.7", "fig12", "The cost falls faster with τ for word count than for frequent patterns.")
def words_fall_faster(tables: Tables) -> ClaimVerdict:
    """The share of the cost at the smallest τ that is left at the largest."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    words, patterns = (
        rows.where(application=a, method="ssm") for a in ("word-count", "frequent-patterns")
    )
    taus = sorted(set(words.values("tau")) & set(patterns.values("tau")))
    if len(taus) < 2:
        raise LookupError("two τ that are met by both applications")
    ends = [costs(some, tau=tau) for some in (words, patterns) for tau in (taus[0], taus[-1])]
    left = compare(lambda a, b, c, d: d / c - b / a, *ends)
    shares = [compare(lambda a, b: b / a, *ends[k : k + 2]) for k in (0, 2)]
    number = (
        f"left at τ {taus[-1]:g} of the cost at {taus[0]:g}: word-count {text(shares[0], 0, 100)} %, "
        f"frequent-patterns {text(shares[1], 0, 100)} %"
    )
    return of_parts([above(left)], number + remark)


# ------------------------------------------------------------------ Figure 13


@claim("13.1", "fig13", "The time of SSM grows with τ.")
def ssm_time_grows(tables: Tables) -> ClaimVerdict:
    """The paper's algorithm (ours does not have its search space)."""
    rows = measured(tables, "fig13").where(lambda row: not row.get("relaxed"))
    rows = rows.where(method="ssm-paper")
    return together({
        a: trend([(series(rows.where(application=a, tau=tau), "times"),)
                  for tau in rows.where(application=a).values("tau")], up=True)
        for a in rows.names("application")
    })  # fmt: skip


def _never(best: float, worst: float, number: str) -> ClaimVerdict:
    """Judge "never longer": a slow repeat of a fast plan is the machine, and decides nothing."""
    most = limit.NEGLIGIBLE_US.value
    status = FAILS if best > most else HOLDS if worst <= most else UNDECIDED
    return ClaimVerdict(status, number)


@claim("13.2", "fig13", "SSM never takes longer than 2 ms.")
def ssm_is_fast(tables: Tables) -> ClaimVerdict:
    """The slowest of all plans of the paper's algorithm, and of ours."""
    rows, found = measured(tables, "fig13"), {}
    for method, name in (("ssm-paper", "the paper's algorithm"), ("ssm", "ours")):
        some = rows.where(method=method)
        best, worst = max(some.column("plan_max")), max(some.column("plan_worst"))
        told = f"{worst / 1000:.3g} ms at most of {sum(some.column('plans')):,}"
        found[name] = _never(best, worst, told)
    return together(found)


@claim("13.3", "fig13", "Choosing an MTM-aware migration online takes a negligible time, too.")
def mtm_is_fast(tables: Tables) -> ClaimVerdict:
    """The median, among few partitions (Figure 13) and among all (Figure 14): "never" is not said."""
    few = measured(tables, "fig13").where(method=PAPER, fallbacks=0)
    if not len(few):
        raise LookupError("an online choice that never fell back")
    most = limit.NEGLIGIBLE_US.value
    median, worst = max(few.column("plan_us")), max(few.column("plan_worst"))
    told = f"{median / 1000:.3g} ms (median), {worst / 1000:.3g} at most"
    found = {"among candidates": of_parts([median <= most], told)}
    for row in tables.get("fig14", TableRows([])).where(method="exact", beyond=False, fallbacks=0):
        if row["partitions"] >= limit.PARTITIONS.value:
            median, worst = row["online_us"], row["online_worst"]
            told = f"{median / 1000:.3g} ms (median), {worst / 1000:.3g} at most"
            found[f"among {row['partitions']:,}"] = of_parts([median <= most], told)
    return together(found)


# ------------------------------------------------------------------ Figure 15


def _exponent(rows: TableRows) -> float:
    """Fit the exponent over the larger half, where fixed costs matter less."""
    xs, ys = rows.line("tasks", "plan_us")
    if len(xs) < 2:
        raise LookupError("a slope needs two sizes")
    half = slice(min(len(xs) // 2, len(xs) - 2), None)
    return float(np.polyfit(np.log(xs[half]), np.log(ys[half]), 1)[0])


def _square(slope: float) -> bool:
    return limit.SQUARE_LOW.value <= slope <= limit.SQUARE_HIGH.value


@claim("15.1", "fig15", "The time of SSM grows with the square of the number of tasks.")
def ssm_is_quadratic(tables: Tables) -> ClaimVerdict:
    """The exponent of the paper's algorithm, and of ours beside it."""
    rows = measured(tables, "fig15").where(application="word-count")
    slope = {m: _exponent(rows.where(method=m)) for m in ("ssm-paper", "ssm")}
    number = f"m^{slope['ssm-paper']:.2f}; ours m^{slope['ssm']:.2f}"
    return of_parts([_square(slope["ssm-paper"])], number)


def _falls_with_tasks(rows: TableRows, application: str, method: str) -> ClaimVerdict:
    some = rows.where(application=application, method=method)
    some = some.where(lambda row: row.get("costs") is not None)
    points = [(costs(some, tasks=m),) for m in some.values("tasks")]
    return trend(points, up=False)


@claim("15.2", "fig15", "The cost of single-step migration falls as the number of tasks grows.")
def cost_falls_with_tasks(tables: Tables) -> ClaimVerdict:
    """Word count, as in the figure."""
    rows, remark = unforced(measured(tables, "fig15"), "tasks")
    verdict = _falls_with_tasks(rows, "word-count", "ssm")
    return ClaimVerdict(verdict.status, verdict.number + remark)


@claim("15.3", "fig15", "Frequent patterns and MTM-aware migration: the cost falls as well.")
def others_fall_with_tasks(tables: Tables) -> ClaimVerdict:
    """The cost of each falls with the number of tasks."""
    rows, remark = unforced(measured(tables, "fig15"), "tasks")
    verdict = together({
        f"{application}, {NAMES[method]}": _falls_with_tasks(rows, application, method)
        for application, method in (("frequent-patterns", "ssm"), ("word-count", PAPER),
                                    ("frequent-patterns", PAPER))
    })  # fmt: skip
    return ClaimVerdict(verdict.status, verdict.number + remark)


@claim("15.4", "fig15", "The reason: more tasks make a larger search space.")
def space_grows_with_tasks(tables: Tables) -> ClaimVerdict:
    """The number of feasible partitions for the most nodes."""
    rows, remark = unforced(measured(tables, "fig15"), "tasks")
    found = {}
    for application in rows.names("application"):
        some = rows.where(application=application, method="ssm")
        values = [some.where(tasks=m).mean("states") for m in some.values("tasks")]
        found[application] = counted(values, up=True, digits=2)
    verdict = together(found)
    return ClaimVerdict(verdict.status, verdict.number + remark)


@claim("15.5", "fig15", "Frequent patterns and MTM-aware migration: the time grows as well.")
def others_take_longer(tables: Tables) -> ClaimVerdict:
    """Patterns: with the square of m. MTM-aware: the online choice, where none fell back."""
    rows = measured(tables, "fig15")
    slope = _exponent(rows.where(application="frequent-patterns", method="ssm-paper"))
    found = {"frequent-patterns, single-step": of_parts([_square(slope)], f"m^{slope:.2f}")}
    for application in rows.names("application"):
        some = rows.where(application=application, method=PAPER, fallbacks=0)
        xs, ys = some.line("tasks", "plan_us")
        if len(xs) > 1:
            found[f"{application}, MTM-aware"] = counted(ys, up=True)
    return together(found)
