"""Claims about Figures 11 and 16; see `claims`.

Few runs are few: means are over all runs of a cell, intervals by Student's distribution over runs.
Migrations of one run are no runs: what slows a run down slows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from meander.planning.ahead.brackets import Interval95
from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.noise import Series, above, compare, runs, text
from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    UNDECIDED,
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    entering,
    measured,
    of_parts,
    together,
    trend,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
PAPER: Final = "mtm-paper"
PROPOSED: Final = ("ssm", PAPER)


# ------------------------------------------------------------------ Figure 11


def minute_means(rows: TableRows) -> Series:
    """Give, run by run, the mean response time of the minute that begins with the migration.

    A mean depends on the length it is taken over. What a migration adds to the mean of the intervals
    before it, in all intervals from then on, is spread over a minute: as in the paper's figure.
    """
    found = []
    for repeat in rows.values("repeat"):
        some = rows.where(repeat=repeat)
        at = some.where(migrating=True)[0]["interval"]
        seen = [row for row in some if row.get("mean_ms") is not None]
        before = float(np.mean([r["mean_ms"] for r in seen if 1 < r["interval"] < at]))
        after = [row for row in seen if row["interval"] >= at]
        added = sum((row["mean_ms"] - before) * row["interval_s"] for row in after)
        found.append(before + max(0.0, added) / limit.MINUTE_S.value)
    return {0: found}


Groups = Mapping[str, TableRows]
"""Rows that are judged apart, by name."""


def by_application(tables: Tables) -> Groups:
    """Give the rows of each application."""
    rows = measured(tables, "fig11")
    return {name: rows.where(application=name) for name in rows.names("application")}


def savings(groups: Groups, *, holds: float, part: float) -> ClaimVerdict:
    """Judge how many times longer the response is with a restart than live."""
    found = {}
    for name, some in groups.items():
        means = [minute_means(some.where(mode=mode)) for mode in ("live", "restart")]
        ratio = compare(lambda live, restart: restart / live, *means, block=1)
        in_interval = [
            some.where(mode=m, migrating=True).mean("mean_ms") for m in ("live", "restart")
        ]
        seconds = some[0]["interval_s"]
        number = (
            f"{text(ratio)} times over a minute; {in_interval[1] / in_interval[0]:.1f} times in the "
            f"interval of {seconds:g} s ({in_interval[1]:.0f} and {in_interval[0]:.0f} ms)"
        )
        found[name] = ClaimVerdict(at_least(ratio, holds, part), number)
    return together(found)


def at_least(ratio: Interval95, holds: float, part: float) -> str:
    """Holds surely above one number, in part surely above another; fails surely below that."""
    if ratio.low is None or ratio.high is None:
        return UNDECIDED
    if ratio.low >= holds:
        return HOLDS
    if ratio.low >= part:
        return IN_PART
    return FAILS if ratio.high < part else UNDECIDED


@claim("11.1", "fig11", "In the minute of the migration, live migration has a mean response time "
       "several orders of magnitude below that of a restart.")  # fmt: skip
def live_beats_restart(tables: Tables) -> ClaimVerdict:
    """Two orders of magnitude are several; one is a part."""
    groups = by_application(tables)
    return savings(groups, holds=limit.SEVERAL_ORDERS.value, part=limit.ONE_ORDER.value)


@claim("11.2", "fig11", "Some time after the migration all ways have a comparable, steady response "
       "time (said of two minutes, with Figure 16).")  # fmt: skip
def steady_afterwards(tables: Tables) -> ClaimVerdict:
    """The last interval."""
    return steady(by_application(tables))


def steady(groups: Groups) -> ClaimVerdict:
    """Judge the last interval."""
    parts, told = list[Part](), []
    for name, rows in groups.items():
        some = rows.where(interval=max(rows.values("interval")))
        means = [some.where(mode=mode).mean("mean_ms") for mode in some.names("mode")]
        parts.append(max(means) <= limit.COMPARABLE.value * min(means))
        told.append(f"{name}: {min(means):.3g} to {max(means):.3g} ms in the last interval")
    return of_parts(parts, "; ".join(told))


# ------------------------------------------------------------------ Figure 16


def _response(rows: TableRows, method: str, window: float, what: str = "mean_ms") -> Series:
    return runs(rows.where(method=method, window_s=window), what)


@claim("16.1", "fig16", "The response time of all methods grows with the window.")
def response_grows(tables: Tables) -> ClaimVerdict:
    """Every method that migrates live."""
    return grows(measured(tables, "fig16"))


def grows(rows: TableRows) -> ClaimVerdict:
    """Judge the response time of every method that migrates live against the window."""
    methods = [m for m in rows.names("method") if m != "restart"]
    return together({
        m: trend([(_response(rows, m, w),) for w in rows.where(method=m).values("window_s")],
                 up=True, block=1)
        for m in methods
    })  # fmt: skip


@claim("16.2", "fig16", "The proposed methods outperform consistent hashing by large margins.")
def proposed_beat_hashing(tables: Tables) -> ClaimVerdict:
    """Every window: surely faster by the margin; surely faster at all is a part of the claim."""
    return beats_hashing(measured(tables, "fig16"))


def beats_hashing(rows: TableRows) -> ClaimVerdict:
    """Judge how many times longer the response is with consistent hashing."""
    ratios = list[Interval95]()
    for method in PROPOSED:
        for window in rows.where(method=method).values("window_s"):
            pair = _response(rows, method, window), _response(rows, "consistent-hash", window)
            ratios.append(compare(lambda ours, ring: ring / ours, *pair, block=1))
    if not ratios:
        raise LookupError("a proposed method")
    statuses = {at_least(ratio, limit.LARGE.value, 1.0) for ratio in ratios}
    number = "consistent hashing takes " + ", ".join(text(r, 2) for r in ratios) + " times"
    return together({str(k): ClaimVerdict(s, s) for k, s in enumerate(statuses)})._replace(
        number=number
    )


@claim("16.3", "fig16-gap", "Between single-step and MTM-aware migration the gap is larger in response "
       "time than in cost.")  # fmt: skip
def gap_is_larger_in_time(tables: Tables) -> ClaimVerdict:
    """All windows, against the state that the plans of the same migrations move."""
    rows = measured(tables, "fig16-gap")
    ahead = rows.where(method=PAPER)
    other = ahead.column("differs_share")
    if not any(other):
        raise LookupError("no run of MTM-aware migration whose plans are not those of single-step")

    def all_of(method: str, what: str) -> Series:
        return {
            k: runs(rows.where(method=method, window_s=window), what)[0]
            for k, window in enumerate(ahead.values("window_s"))
        }

    both = [all_of(method, what) for what in ("mean_ms", "plan_pct") for method in PROPOSED]
    gaps = [compare(lambda a, b: 1 - b / a, *both[k : k + 2], block=1) for k in (0, 2)]
    more = compare(
        lambda a, b, c, d: np.minimum(1 - b / a, (1 - b / a) - (1 - d / c)), *both, block=1
    )
    number = (
        f"{text(gaps[0], 1, 100)} % in response time, {text(gaps[1], 1, 100)} % in state that plans "
        f"move; {sum(other):g} of {len(other)} plans are not those of single-step"
    )
    return of_parts([above(more)], number)


@claim("16.4", "fig16", "Storm (with a restart) has a response time of at least 5,000 ms even with the "
       "smallest window.")  # fmt: skip
def restart_takes_seconds(tables: Tables) -> ClaimVerdict:
    """The mean over the time after a restart begins."""
    rows = measured(tables, "fig16").where(method="restart")
    window = rows.values("window_s")[0]
    mean = compare(lambda x: x, _response(rows, "restart", window), block=1)
    least = limit.STORM_MS.value
    beyond = mean.less(least)
    return of_parts([above(beyond)], f"{text(mean, 0)} ms with a window of {window:g} s")


@claim("16.5", "fig16", "A larger window leads to a higher workload.")
def window_makes_work(tables: Tables) -> ClaimVerdict:
    """How busy nodes are between migrations, method by method: the same ones at every window."""
    rows = measured(tables, "fig16")
    some = rows.where(lambda row: row["method"] != "restart" and row.get("busy_share") is not None)
    if not len(some):
        raise LookupError(
            "how busy nodes are by window was not recorded then; `meander experiment run fig16` does"
        )
    return together({
        m: trend([(_response(some, m, w, "busy_share"),)
                  for w in some.where(method=m).values("window_s")], up=True, block=1)
        for m in some.names("method")
    })  # fmt: skip
