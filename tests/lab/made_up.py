"""Made-up tables in which every claim holds, and for each claim a change that breaks it.

Costs are given migration by migration. They differ by what all methods share, so that paired
differences are sharp although the migrations are not alike.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from meander_lab.experiments.tables import TableRows

Raw = dict[str, list[dict[str, Any]]]
Change = Callable[[Raw], None]
APPLICATIONS = ("word-count", "frequent-patterns")
TAUS = (0.2, 0.4, 0.6)
SPANS = (0, 1)
MIGRATIONS = 48


def about(mean: float) -> list[float]:
    """Costs of some migrations around a mean, the same dear ones for everybody."""
    return [mean * (1 + 0.2 * ((k * 7) % 5 - 2) / 2) for k in range(MIGRATIONS)]


def noisy(mean: float) -> list[float]:
    """Costs that scatter in a way of their own: dear ones first."""
    return [mean * (1.5 if 2 * k < MIGRATIONS else 0.5) for k in range(MIGRATIONS)]


def tables() -> Raw:
    """Make tables up."""
    words = {
        "ssm": (8.0, 4.0, 1.0), "mtm-paper": (7.8, 3.6, 0.8), "mtm:n": (7.8, 3.7, 0.9),
        "ahead": (7.0, 3.0, 0.6), "hindsight": (6.0, 2.0, 0.4), "storm": (50.0,) * 3,
        "consistent-hash": (10.5,) * 3,
    }  # fmt: skip
    patterns = {
        **words, "ssm": (8.0, 5.0, 4.0), "mtm-paper": (7.8, 4.7, 3.5), "mtm:n": (7.8, 4.8, 3.6),
        "ahead": (7.0, 4.0, 3.0), "hindsight": (6.0, 3.0, 2.0),
    }  # fmt: skip
    sizes = (64, 128, 256)
    found: Raw = {
        "routing": [{"tasks": m, "nodes": 10, "ratio": 1.5} for m in (64, 1024)],
        "bursts": [
            {"application": a, "span": s, "piece_h": h, "chance": 1.2, "spike": spike,
             "spikes": about(spike)}
            for a, spike in zip(APPLICATIONS, (3.0, 1.5), strict=True) for s in SPANS for h in (1, 24)
        ],
        "search-space": [
            {"application": a, "span": 0, "nodes": n, "tau": tau, "tau_met": tau,
             "states": n * 10 ** (speed * tau)}
            for a, speed in zip(APPLICATIONS, (20, 10), strict=True) for n in (8, 9, 10)
            for tau in TAUS
        ],
        "frequencies": [
            {"application": a, "span": 0, "window_s": w, "threshold": k, "keys": 100, "key_rows": 999,
             "rare_pct": rare, "filtered_pct": filtered}
            for a, rare, filtered in zip(APPLICATIONS, (60.0, 90.0), (10.0, 70.0), strict=True)
            for w in (30.0, 90.0) for k in (1, 20)
        ],
        "fig11": [
            {"application": a, "mode": mode, "interval": k, "migrating": k == 7, "repeat": r,
             "interval_s": 60.0, "mean_ms": 5000.0 if mode == "restart" and k == 7 else 5.0}
            for a in APPLICATIONS for mode in ("live", "restart") for k in range(1, 9)
            for r in range(3)
        ],
        "fig11-links": [
            {"application": "word-count", "mode": mode, "interval": k, "migrating": k == 7, "repeat": r,
             "interval_s": 60.0, "link_mbit": mbit, "seconds": seconds + r / 10,
             "worst_ms": 100 * seconds + r,
             "mean_ms": 5000.0 if mode == "restart" and k == 7 else 5.0}
            for mode, seconds in (("live", 1.0), ("restart", 20.0), ("storm-live", 4.0),
                                  ("live-budget", 2.0), ("storm-budget", 8.0))
            for k in range(1, 9) for r in range(3) for mbit in (100.0, 1000.0)
        ],
        "fig16-links": [
            {"method": m, "window_s": w, "mean_ms": ms * w, "migration": k, "repeat": r,
             "link_mbit": mbit, "seconds": ms * w / 100 + (k + r) / 100}
            for m, ms in (("ssm", 10.0), ("consistent-hash", 40.0), ("storm", 80.0))
            for w in (30.0, 60.0) for r in range(3) for k in (1, 2) for mbit in (100.0, 1000.0)
        ],
        "fig12": [
            {"application": a, "method": m, "tau": tau, "span": s, "cost_pct": cost,
             "costs": about(cost), "relaxed": 0,
             "imbalance_max": 1 + tau if m == "ssm" else 1.8 if a == "word-count" else 1.2}
            for a, costs in zip(APPLICATIONS, (words, patterns), strict=True)
            for m, line in costs.items() for tau, cost in zip(TAUS, line, strict=True)
            for s in SPANS
        ],
        "fig13": [
            {"application": "word-count", "method": m, "tau": tau, "plan_us": us * (1 + tau),
             "times": about(us * (1 + tau)), "plan_max": us * 2, "plan_worst": us * 2, "plans": 100,
             "relaxed": 0, "fallbacks": 0}
            for m, us in (("ssm", 10.0), ("ssm-paper", 300.0), ("mtm-paper", 800.0)) for tau in TAUS
        ],
        "fig14": [
            {"method": m, "tau": tau, "tau_met": tau, "seconds": 7000.0, "online_us": 800.0,
             "online_max": 850.0, "online_worst": 900.0, "beyond": False, "states": 1e6 * tau,
             "partitions": 113_102,
             "cores": 2, "fallbacks": 0, "weights": "recorded", "application": "word-count"}
            for tau in TAUS for m in ("exact", "spark")
        ],
        "fig15": [
            {"application": a, "method": m, "tasks": n, "span": s, "cost_pct": 600.0 / n,
             "costs": about(600.0 / n), "relaxed": 0, "fallbacks": 0, "states": float(n) ** 3,
             "plan_us": n**2 / 10 if m == "ssm-paper" else float(n)}
            for a in APPLICATIONS for m in ("ssm", "ssm-paper", "mtm-paper") for n in sizes
            for s in SPANS
        ],
        "fig16": [
            {"method": m, "window_s": w, "mean_ms": ms * w, "bytes_moved": moved, "migration": k,
             "repeat": r, "busy_share": w / 100 + r / 1000}
            for m, ms, moved in (("ssm", 10.0, 100), ("mtm-paper", 5.0, 90),
                                 ("consistent-hash", 40.0, 300), ("restart", 9000.0, 1000))
            for w in (30.0, 60.0) for r in range(3) for k in (1, 2)
        ],
        "fig16-gap": [
            {"method": m, "window_s": 90.0, "mean_ms": ms, "plan_pct": pct, "migration": k,
             "repeat": r, "differs_share": None if m == "ssm" else float(k == 2)}
            for m, ms, pct in (("ssm", 10.0, 9.0), ("mtm-paper", 5.0, 8.0))
            for r in range(3) for k in (1, 2)
        ],
        "fig17": [
            {"application": a, "method": "mtm-paper", "gamma": g, "cost_pct": 5 - g, "span": s,
             "costs": about(5 - g)}
            for a in APPLICATIONS for g in (0.0, 0.4, 0.8) for s in SPANS
        ] + [
            {"application": a, "method": "ssm", "gamma": 0.0, "cost_pct": 5.0, "span": s,
             "costs": about(5.0)}
            for a in APPLICATIONS for s in SPANS
        ] + [
            {"application": a, "method": "PMC", "gamma": g, "sweeps": 4, "sweeps_plain": n}
            for a in APPLICATIONS for g, n in ((0.0, 1), (0.4, 16), (0.8, 70))
        ],
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
            {"sizes": s, "method": m, "cost": cost, "cost_low": cost - 0.1, "cost_high": cost + 0.1,
             "tasks_moved": moved, "moved_low": moved - 0.1, "moved_high": moved + 0.1, "rings": 10,
             "both_heavy_share": 0.5, "imbalance": 15 / 14}
            for s in ("equal", "as work")
            for m, cost, moved in (("consistent-hash", 4.0, 4.0), ("any assignment", 2.0, 2.0))
        ] + [
            {"sizes": s, "part": "two nodes", "method": m, "light": light, "heavy": heavy,
             "tasks_moved": moved, "imbalance": imbalance}
            for s in ("equal", "as work")
            for m, light, heavy, moved, imbalance in (
                ("3 + 2 and 7 + 0", 3, 2, 3.0, 1.0), ("4 + 2 and 6 + 0", 4, 2, 3.0, 8 / 7),
                ("5 + 1 and 5 + 1", 5, 1, 2.0, 1.0),
            )
        ],
    }  # fmt: skip
    return deepcopy(found)


def rows(raw: Raw) -> dict[str, TableRows]:
    """Wrap them as the report does."""
    return {name: TableRows(some) for name, some in raw.items()}


def setting(name: str, column: str, value: Any, **where: Any) -> Change:
    """Make a change: set a column of some rows of a table."""

    def change(raw: Raw) -> None:
        touched = [r for r in raw[name] if all(r.get(k) == v for k, v in where.items())]
        assert touched, "the change must change something"
        for row in touched:
            row[column] = value

    return change


def costing(name: str, cost: float, **where: Any) -> Change:
    """Make a change: another cost at some points."""
    return setting(name, "costs", about(cost), **where)


def scattering(name: str, **where: Any) -> Change:
    """Make a change: costs of the same mean that scatter, so that little can be told."""

    def change(raw: Raw) -> None:
        for row in raw[name]:
            if all(row.get(k) == v for k, v in where.items()):
                row["costs"] = noisy(row["cost_pct"])

    return change


BREAKS: dict[str, Change] = {
    "4.1": setting("routing", "ratio", 0.2),
    "11.1": setting("fig11", "mean_ms", 6.0, mode="restart"),
    "11.2": setting("fig11", "mean_ms", 900.0, mode="restart", interval=8),
    "11.1 on links": setting("fig11-links", "mean_ms", 6.0, mode="restart"),
    "11.2 on links": setting("fig11-links", "mean_ms", 900.0, mode="restart", interval=8),
    "12.1": costing("fig12", 10.0, method="storm"),
    "12.2": costing("fig12", 1.0, method="consistent-hash", tau=0.2),
    "12.3": costing("fig12", 9.0, method="mtm-paper", tau=0.2),
    "12.4": costing("fig12", 1.0, method="mtm-paper", tau=0.2),
    "12.5": costing("fig12", 20.0, method="ssm", tau=0.6),
    "12.6": costing("fig12", 2.0, method="consistent-hash", tau=0.2),
    "12.7": costing("fig12", 7.9, method="ssm", tau=0.6, application="word-count"),
    "12.8": setting("fig12", "imbalance_max", 3.0, application="frequent-patterns"),
    "12.9": setting("bursts", "spikes", about(9.0), application="frequent-patterns"),
    "12.10": setting("search-space", "states", 1e30, application="frequent-patterns", tau=0.6),
    "12.11": setting("frequencies", "filtered_pct", 40.0, application="frequent-patterns"),
    "12.12": costing("fig12", 9.0, method="hindsight", tau=0.2),
    "12.13": setting("fig12", "imbalance_max", 1.0, method="ssm", tau=0.6),
    "13.1": setting("fig13", "times", about(1.0), method="ssm-paper", tau=0.6),
    "13.2": setting("fig13", "plan_max", 2500.0, method="ssm-paper", tau=0.6),
    "13.3": setting("fig13", "plan_us", 2500.0, method="mtm-paper", tau=0.6),
    "14.1": setting("fig14", "seconds", 1e-3, tau=0.2),
    "14.2": setting("fig14", "seconds", 30.0),
    "14.3": setting("fig14", "states", 1.0, tau=0.6),
    "14.4": setting("fig14", "seconds", 1e-3),
    "15.1": setting("fig15", "plan_us", 5.0, method="ssm-paper", tasks=256),
    "15.2": costing("fig15", 50.0, method="ssm", tasks=256),
    "15.3": costing("fig15", 50.0, method="mtm-paper", tasks=256),
    "15.4": setting("fig15", "states", 1.0, tasks=256),
    "15.5": setting("fig15", "plan_us", 1.0, method="mtm-paper", tasks=256),
    "16.1": setting("fig16", "mean_ms", 1.0, method="ssm", window_s=60.0),
    "16.2": setting("fig16", "mean_ms", 1.0, method="consistent-hash"),
    "16.1 on links": setting("fig16-links", "mean_ms", 1.0, method="ssm", window_s=60.0),
    "16.2 on links": setting("fig16-links", "mean_ms", 1.0, method="consistent-hash"),
    "16.3": setting("fig16-gap", "mean_ms", 1e6, method="mtm-paper"),
    "16.4": setting("fig16", "mean_ms", 900.0, method="restart"),
    "16.5": setting("fig16", "busy_share", 0.1, method="ssm", window_s=60.0),
    "17.1": costing("fig17", 6.0, method="ssm"),
    "17.2": costing("fig17", 9.0, method="mtm-paper", gamma=0.8),
    "17.3": setting("fig17", "sweeps_plain", 0.5, method="PMC", gamma=0.8),
    "17.4": setting("fig17", "sweeps_plain", 0.5, method="PMC", gamma=0.8),
    "6.1": costing("fig12", 7.9, method="consistent-hash", tau=0.2),
    "6.2": setting("fig13", "plan_us", 2500.0, method="mtm-paper", tau=0.6),
    "6.3": setting("fig11", "mean_ms", 4.0, mode="restart"),
    "6.4": costing("fig12", 9.0, method="mtm-paper", tau=0.2),
    "6.5": costing("fig17", 9.0, method="mtm-paper", gamma=0.8),
    "T3.1": setting("table3", "total", 9, method="single-step, unluckiest"),
    "T3.2": setting("table3", "second", 1, method="printed: alternative, from there optimal"),
    "A.1": setting("appendix-a", "both_heavy_share", 0.0),
    "A.2": setting("appendix-a", "tasks_moved", 6.0, method="consistent-hash"),
    "A.3": setting("appendix-a", "cost", 4.5, method="any assignment", sizes="as work"),
    "A.4": setting("appendix-a", "imbalance", 1.1, method="5 + 1 and 5 + 1"),
    "O.1": costing("fig12", 9.0, method="ahead", tau=0.2),
    "O.2": costing("fig12", 9.0, method="ahead", tau=0.2),
    "O.3": costing("fig12", 9.0, method="mtm:n", tau=0.2),
    "O.4": setting("fig13", "plan_us", 1e6, method="ssm"),
    "O.5": setting("fig11-links", "seconds", 0.5, mode="storm-live", link_mbit=100.0),
    "O.6": setting("fig11-links", "worst_ms", 9.0, mode="storm-budget"),
    "O.7": setting("fig16-links", "seconds", 0.1, method="storm", window_s=30.0),
}
"""By claim, what makes it fail, or hold in part."""

BLURS: dict[str, Change] = {
    "12.2": scattering("fig12", method="consistent-hash"),
    "12.3": scattering("fig12", method="mtm-paper"),
    "12.12": scattering("fig12", method="hindsight"),
    "13.2": setting("fig13", "plan_worst", 2500.0),
    "16.2": setting("fig16", "mean_ms", 300.0),
    "17.2": scattering("fig17", method="mtm-paper", gamma=0.8),
    "O.1": scattering("fig12", method="ahead"),
}
"""By claim, what leaves nothing of it to be told."""
