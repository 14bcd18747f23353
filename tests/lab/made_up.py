"""Made-up tables in which every claim holds, and for each claim a change that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from meander_lab.experiments.tables import TableRows

Raw = dict[str, list[dict[str, Any]]]
APPLICATIONS = ("word-count", "frequent-patterns")


def tables() -> Raw:
    """Make tables up."""
    words = {
        "ssm": (8.0, 4.0, 1.0), "mtm:n": (7.8, 3.6, 0.8), "mtm:direction": (7.7, 3.5, 0.7),
        "mtm:slot": (7.6, 3.4, 0.6), "storm": (50.0,) * 3, "consistent-hash": (10.5,) * 3,
    }  # fmt: skip
    patterns = {**words, "ssm": (8.0, 5.0, 4.0), "mtm:n": (7.8, 4.7, 3.5)}
    taus = (0.1, 0.2, 0.4)
    found: Raw = {
        "fig11": [
            {"application": a, "mode": mode, "interval": k, "migrating": k == 7,
             "mean_ms": 5000.0 if mode == "restart" and k == 7 else 5.0}
            for a in APPLICATIONS for mode in ("live", "restart") for k in range(1, 9)
        ],
        "fig12": [
            {"application": a, "method": m, "tau": tau, "cost_pct": cost,
             "imbalance_max": 1.8 if a == "word-count" else 1.2}
            for a, costs in zip(APPLICATIONS, (words, patterns), strict=True)
            for m, series in costs.items() for tau, cost in zip(taus, series, strict=True)
        ],
        "fig13": [
            {"application": "word-count", "method": m, "tau": tau, "plan_us": us * (1 + tau),
             "plan_max": us * 2, "plan_high": us * 1.5}
            for m, us in (("ssm", 10.0), ("ssm-paper", 300.0), ("mtm:n", 800.0)) for tau in taus
        ],
        "fig14": [
            {"method": "exact", "tau": tau, "seconds": 7000.0, "online_us": 800.0, "beyond": False,
             "states": 1e5, "cores": 64}
            for tau in taus
        ],
        "fig15": [
            {"application": a, "method": m, "tasks": n, "cost_pct": 600.0 / n,
             "plan_us": n**2 / 10 if m == "ssm-paper" else float(n)}
            for a in APPLICATIONS for m in ("ssm", "ssm-paper", "mtm:n") for n in (64, 128, 256)
        ],
        "fig16": [
            {"method": m, "window_s": w, "mean_ms": ms * w, "bytes_moved": moved}
            for m, ms, moved in (("ssm", 10.0, 100), ("mtm:direction", 5.0, 90),
                                 ("consistent-hash", 40.0, 300), ("restart", 9000.0, 1000))
            for w in (30.0, 60.0)
        ],
        "fig17": [
            {"application": a, "method": m, "gamma": g, "cost_pct": 5 - g if m != "PMC" else None,
             "precompute_s": 1 + g}
            for a in APPLICATIONS for m in ("mtm:n", "PMC") for g in (0.0, 0.4, 0.8)
        ] + [{"application": a, "method": "ssm", "gamma": 0.0, "cost_pct": 5.0} for a in APPLICATIONS],
        "table3": [
            {"method": m, "first": a, "second": b, "total": a + b}
            for m, a, b in (
                ("single-step, unluckiest", 4, 6), ("best sequence", 5, 4),
                ("as printed: single-step", 4, 6), ("as printed: alternative", 5, 4),
                ("printed: single-step, from there optimal", 4, 6),
                ("printed: alternative, from there optimal", 5, 4),
            )
        ],
        "appendix-a": [
            {"sizes": s, "method": m, "cost": cost, "tasks_moved": moved, "rings": 10,
             "both_heavy_share": 0.5}
            for s in ("equal", "as work")
            for m, cost, moved in (("consistent-hash", 4.0, 4.0), ("any assignment", 2.0, 2.0))
        ],
    }  # fmt: skip
    return deepcopy(found)


def rows(raw: Raw) -> dict[str, TableRows]:
    """Wrap them as the report does."""
    return {name: TableRows(some) for name, some in raw.items()}


def setting(name: str, column: str, value: float, **where: Any) -> Callable[[Raw], None]:
    """Make a change: set a column of some rows of a table."""

    def change(raw: Raw) -> None:
        touched = [r for r in raw[name] if all(r.get(k) == v for k, v in where.items())]
        assert touched, "the change must change something"
        for row in touched:
            row[column] = value

    return change


BREAKS: dict[str, Callable[[Raw], None]] = {
    "11.1": setting("fig11", "mean_ms", 6.0, mode="restart"),
    "11.2": setting("fig11", "mean_ms", 900.0, mode="restart", interval=8),
    "12.1": setting("fig12", "cost_pct", 10.0, method="storm"),
    "12.2": setting("fig12", "cost_pct", 1.0, method="consistent-hash", tau=0.1),
    "12.3": setting("fig12", "cost_pct", 9.0, method="mtm:n", tau=0.1),
    "12.4": setting("fig12", "cost_pct", 9.0, method="mtm:slot", tau=0.1),
    "12.5": setting("fig12", "cost_pct", 1.0, method="mtm:n", tau=0.1),
    "12.6": setting("fig12", "cost_pct", 20.0, method="ssm", tau=0.4),
    "12.7": setting("fig12", "cost_pct", 9.0, method="storm", tau=0.4),
    "12.8": setting("fig12", "cost_pct", 7.9, method="ssm", tau=0.4, application="word-count"),
    "12.9": setting("fig12", "imbalance_max", 3.0, application="frequent-patterns"),
    "13.1": setting("fig13", "plan_us", 1.0, method="ssm-paper", tau=0.4),
    "13.2": setting("fig13", "plan_max", 2500.0, method="ssm-paper", tau=0.4),
    "13.3": setting("fig13", "plan_high", 2500.0, method="mtm:n", tau=0.4),
    "14.1": setting("fig14", "seconds", 1e-3, tau=0.1),
    "14.2": setting("fig14", "seconds", 30.0),
    "15.1": setting("fig15", "plan_us", 5.0, method="ssm-paper", tasks=256),
    "15.2": setting("fig15", "cost_pct", 50.0, method="ssm", tasks=256),
    "15.3": setting("fig15", "cost_pct", 50.0, method="mtm:n", tasks=256),
    "16.1": setting("fig16", "mean_ms", 1.0, method="ssm", window_s=60.0),
    "16.2": setting("fig16", "mean_ms", 11.0, method="consistent-hash"),
    "16.3": setting("fig16", "mean_ms", 1e6, method="mtm:direction"),
    "16.4": setting("fig16", "mean_ms", 900.0, method="restart"),
    "17.1": setting("fig17", "cost_pct", 6.0, method="ssm"),
    "17.2": setting("fig17", "cost_pct", 9.0, method="mtm:n", gamma=0.8),
    "17.3": setting("fig17", "precompute_s", 0.1, method="PMC", gamma=0.8),
    "17.4": setting("fig17", "precompute_s", 0.1, method="PMC", gamma=0.8),
    "6.1": setting("fig12", "cost_pct", 3.9, method="consistent-hash", tau=0.2),
    "6.2": setting("fig13", "plan_high", 2500.0, method="mtm:n", tau=0.4),
    "T3.1": setting("table3", "total", 9, method="single-step, unluckiest"),
    "T3.2": setting("table3", "second", 1, method="printed: alternative, from there optimal"),
    "A.1": setting("appendix-a", "both_heavy_share", 0.0),
    "A.2": setting("appendix-a", "tasks_moved", 6.0, method="consistent-hash"),
    "A.3": setting("appendix-a", "cost", 4.0, method="any assignment", sizes="as work"),
}
