"""The reasons that the paper gives for what it sees in Figure 12; see `claims`."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.claims_planning import saves
from meander_lab.experiments.noise import above, compare, series
from meander_lab.experiments.tables import TableRows
from meander_lab.experiments.verdicts import (
    Claim,
    ClaimVerdict,
    Part,
    Tables,
    counted,
    entering,
    measured,
    of_parts,
    together,
    unforced,
)

CLAIMS: Final[list[Claim]] = []
claim = entering(CLAIMS)
WORDS: Final = "word-count"
PATTERNS: Final = "frequent-patterns"


@claim("12.8", "fig12", "Word count suffers more from an uneven distribution of the data.")
def words_are_uneven(tables: Tables) -> ClaimVerdict:
    """How busy the busiest node is when every node gets as many tasks (Storm), span by span."""
    rows = measured(tables, "fig12").where(method="storm")
    worst = {
        application: series(
            rows.where(application=application, tau=rows.values("tau")[0]), "imbalance_max"
        )
        for application in ("word-count", "frequent-patterns")
    }
    parts = [
        worst["word-count"][span][0] > worst["frequent-patterns"][span][0]
        for span in worst["word-count"]
    ]
    number = "; ".join(
        f"{a}: {np.mean([v[0] for v in some.values()]):.2f} times the mean"
        for a, some in worst.items()
    )
    return of_parts(parts, number)


@claim("12.9", "bursts", "The reason: bursts of a word make the load of its task spike, more than "
       "that of patterns.")  # fmt: skip
def words_spike(tables: Tables) -> ClaimVerdict:
    """The largest spike of a piece of time, over what chance alone makes of as many rows."""
    rows, parts, told = measured(tables, "bursts"), list[Part](), []
    for hours in rows.values("piece_h"):
        some = [
            rows.where(application=a, piece_h=hours) for a in ("word-count", "frequent-patterns")
        ]
        luck = [one.mean("chance") for one in some]
        found = compare(
            lambda a, b, luck=luck: a / luck[0] - b / luck[1], *(series(s, "spikes") for s in some)
        )
        parts.append(above(found))
        told.append(f"{hours} h: " + ", ".join(
            f"{a} {one.mean('spike'):.2f} (chance: {lucky:.2f})"
            for a, one, lucky in zip(("word-count", "frequent-patterns"), some, luck, strict=True)
        ))  # fmt: skip
    return of_parts(parts, "; ".join(told))


class Growth(NamedTuple):
    """How many times as large the search space is at the largest τ as at the smallest."""

    low: float
    """The smallest τ that every number of nodes meets, for both applications."""
    high: float
    by_nodes: dict[str, dict[int, float]]
    """`{application: {n: times}}`."""
    overall: dict[str, float]
    """Over all n together."""


def growth(rows: TableRows) -> Growth:
    """Compare the ends of the τ that are met.

    Raises:
        LookupError: if fewer than two are.
    """
    eased = {row["tau"] for row in rows if row["tau_met"] > row["tau"] + 1e-9}
    taus = [tau for tau in rows.values("tau") if tau not in eased]
    if len(taus) < 2:
        raise LookupError("two τ that are met with every number of nodes")
    low, high = taus[0], taus[-1]

    def times(some: TableRows) -> float:
        return some.where(tau=high).mean("states") / some.where(tau=low).mean("states")

    found = {a: rows.where(application=a) for a in (WORDS, PATTERNS)}
    by_nodes = {
        a: {n: times(s.where(nodes=n)) for n in s.values("nodes")} for a, s in found.items()
    }
    return Growth(low, high, by_nodes, {a: times(some) for a, some in found.items()})


@claim("12.10", "search-space", "The reason for 12.7: the search space of word count expands faster "
       "with τ than that of patterns.")  # fmt: skip
def space_of_words_expands_faster(tables: Tables) -> ClaimVerdict:
    """Feasible partitions at the largest τ over those at the smallest, n by n."""
    found = growth(measured(tables, "search-space"))
    words, patterns = found.by_nodes[WORDS], found.by_nodes[PATTERNS]
    faster = [n for n, times in words.items() if times > patterns[n]]
    told = ", ".join(
        f"{a} {min(some.values()):.2g} to {max(some.values()):.2g} times (all n together "
        f"{found.overall[a]:.2g})"
        for a, some in found.by_nodes.items()
    )
    number = (
        f"from τ {found.low:g} to {found.high:g}: {told}; faster for word count with "
        f"{', '.join(map(str, faster)) or 'none'} of {min(words)} to {max(words)} nodes"
    )
    return of_parts([n in faster for n in words], number)


@claim("12.11", "frequencies", "Most patterns have a low frequency and are filtered early.")
def patterns_are_filtered(tables: Tables) -> ClaimVerdict:
    """Patterns that are never frequent, and rows that end at their counter: whatever is frequent."""
    rows = measured(tables, "frequencies")
    some, words = rows.where(application=PATTERNS), rows.where(application=WORDS)
    most = 100 * limit.MOST.value
    shares = [some.column(name) for name in ("rare_pct", "filtered_pct")]
    thresholds = ", ".join(f"{value:g}" for value in some.values("threshold"))
    told = [f"{min(share):.1f} to {max(share):.1f} %" for share in shares]
    beside = words.column("filtered_pct")
    number = (
        f"frequent is what comes more than {thresholds} times in a window: {told[0]} of patterns "
        f"never are, {told[1]} of their rows end at a counter (of those of words "
        f"{min(beside):.1f} to {max(beside):.1f} %)"
    )
    return of_parts([value > most for share in shares for value in share], number)


@claim("12.12", "fig12", "The reason for 12.4: single-step does not consider future migrations, so "
       "its result is sub-optimal.")  # fmt: skip
def single_step_is_not_optimal(tables: Tables) -> ClaimVerdict:
    """What the cheapest sequence that was found in hindsight saves, at every τ.

    That search goes on from single-step's own sequence, so it cannot cost more: it may save nothing.
    """
    return saves(tables, "hindsight")


@claim("12.13", "fig12", "As τ grows, more skewed assignments become feasible.")
def skewed_become_feasible(tables: Tables) -> ClaimVerdict:
    """How busy the busiest node is in the assignments that single-step takes."""
    rows, remark = unforced(measured(tables, "fig12"), "tau")
    found = {
        a: counted(rows.where(application=a, method="ssm").line("tau", "imbalance_max")[1], up=True)
        for a in rows.names("application")
    }
    verdict = together(found)
    return ClaimVerdict(verdict.status, f"{verdict.number} times the mean{remark}")
