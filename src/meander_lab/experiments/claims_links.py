"""The claims of Figures 11 and 16 once more, on hosts with links: there bytes take their time.

And our own: what the plan is worth, apart from the mechanism. Storm's plan and ours are carried out by
the same mechanism, from the same state, on the same links.
"""

from __future__ import annotations

from typing import Final

from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.claims_live import (
    Groups,
    beats_hashing,
    grows,
    savings,
    steady,
)
from meander_lab.experiments.noise import Series, above, compare, runs, text
from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    entering,
    measured,
    of_parts,
    together,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
MODES: Final = (("live", "storm-live"), ("live-budget", "storm-budget"))
"""Ways with our plan, each with the same way for Storm's."""


def rate(mbit: float) -> str:
    """Write the rate of a link.

    >>> rate(100.0), rate(1000.0)
    ('100 Mbit/s', '1 Gbit/s')
    """
    return f"{mbit:g} Mbit/s" if mbit < 1000 else f"{mbit / 1000:g} Gbit/s"


def by_link(rows: TableRows) -> Groups:
    """Give the rows of each rate."""
    return {rate(mbit): rows.where(link_mbit=mbit) for mbit in rows.values("link_mbit")}


@claim("11.1 on links", "fig11-links", "The same on 4 hosts with links.")
def live_beats_restart(tables: Tables) -> ClaimVerdict:
    """By the same thresholds."""
    groups = by_link(measured(tables, "fig11-links"))
    return savings(groups, holds=limit.SEVERAL_ORDERS.value, part=limit.ONE_ORDER.value)


@claim("11.2 on links", "fig11-links", "The same on 4 hosts with links.")
def steady_afterwards(tables: Tables) -> ClaimVerdict:
    """The last interval."""
    return steady(by_link(measured(tables, "fig11-links")))


@claim("16.1 on links", "fig16-links", "The same on 4 hosts with links.")
def response_grows(tables: Tables) -> ClaimVerdict:
    """Every method, at every rate."""
    found = by_link(measured(tables, "fig16-links"))
    return together({name: grows(rows) for name, rows in found.items()})


@claim("16.2 on links", "fig16-links", "The same on 4 hosts with links (single-step alone).")
def proposed_beat_hashing(tables: Tables) -> ClaimVerdict:
    """Every window, at every rate."""
    found = by_link(measured(tables, "fig16-links"))
    return together({name: beats_hashing(rows) for name, rows in found.items()})


def _plans(tables: Tables, column: str) -> ClaimVerdict:
    """Judge how many times more Storm's plan takes than ours, both live."""
    parts, told = list[Part](), []
    for name, rows in by_link(measured(tables, "fig11-links")).items():
        moves = rows.where(migrating=True)
        for ours, storms in MODES:
            pair = [_runs(moves, mode, column) for mode in (ours, storms)]
            ratio = compare(lambda a, b: b / a, *pair, block=1)
            parts.append(above(ratio.less(1)))
            a, b = (compare(lambda x: x, one, block=1).mean for one in pair)
            told.append(f"{name}, {WAYS[ours]}: {text(ratio)} times ({b:.3g} and {a:.3g})")
    return of_parts(parts, "; ".join(told))


WAYS: Final = {"live": "all at once", "live-budget": "in rounds"}


def _runs(moves: TableRows, mode: str, column: str) -> Series:
    return runs(moves.where(mode=mode), column)


@claim("O.5", "fig11-links", "On links a migration by Storm's plan takes longer than one by ours, both "
       "carried out live, all at once and in rounds.")  # fmt: skip
def storm_takes_longer(tables: Tables) -> ClaimVerdict:
    """Seconds, run by run."""
    return _plans(tables, "seconds")


@claim("O.6", "fig11-links", "And its worst response time is higher.")
def storm_is_worse(tables: Tables) -> ClaimVerdict:
    """Milliseconds of the worst row that was due after the migration began, run by run."""
    return _plans(tables, "worst_ms")


@claim("O.7", "fig16-links", "On links single-step takes less time than consistent hashing and Storm's "
       "plan, at every window, all carried out live.")  # fmt: skip
def single_step_is_shorter(tables: Tables) -> ClaimVerdict:
    """Seconds of a migration, run by run."""
    parts, told = list[Part](), []
    for name, rows in by_link(measured(tables, "fig16-links")).items():
        for window in rows.values("window_s"):
            some = rows.where(window_s=window)
            for other in ("consistent-hash", "storm"):
                pair = [_seconds(some, method) for method in ("ssm", other)]
                ratio = compare(lambda a, b: b / a, *pair, block=1)
                parts.append(above(ratio.less(1)))
                told.append(f"{name}, {window:g} s, {other}: {text(ratio)} times")
    return of_parts(parts, "; ".join(told))


def _seconds(rows: TableRows, method: str) -> Series:
    return runs(rows.where(method=method), "seconds")
