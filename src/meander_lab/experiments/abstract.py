"""The top of the report: how many claims hold, which of the large ones do not, and what is better here.

Every sentence is made of verdicts and tables. What was not measured is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from meander_lab.experiments import thresholds as limit
from meander_lab.experiments.claims import CLAIMS
from meander_lab.experiments.claims_planning import gains
from meander_lab.experiments.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    UNDECIDED,
    UNKNOWN,
    VERDICTS,
    ClaimVerdict,
    Tables,
    measured,
    unforced,
)

Verdicts = Mapping[str, ClaimVerdict]
MARKS: Final = {HOLDS: "🟢", IN_PART: "🟡", FAILS: "🔴", UNDECIDED: "⚪", UNKNOWN: "▫️"}
"""A colour for each verdict, where there is no style sheet."""
COLORS: Final = {HOLDS: "#2da44e", IN_PART: "#d4a72c", FAILS: "#cf222e", UNDECIDED: "#8c959f",
                 UNKNOWN: "transparent"}  # fmt: skip
"""The same, where there is one."""
LARGE: Final = (
    "11.1",
    "12.1",
    "12.2",
    "12.3",
    "12.5",
    "13.2",
    "14.2",
    "15.1",
    "15.2",
    "16.2",
    "17.3",
)
"""The claims that the paper is known for: one of every figure and of both methods."""


def judged(tables: Tables) -> Verdicts:
    """Judge every claim once."""
    return {claim.id: claim.verdict(tables) for claim in CLAIMS}


def counts(verdicts: Verdicts) -> str:
    """Count the verdicts on the paper's claims."""
    theirs = [claim.id for claim in CLAIMS if not claim.ours and not claim.again]
    found = Counter(verdicts[number].status for number in theirs)
    listed = ", ".join(
        f"{MARKS[status]} {found[status]} {status}" for status in VERDICTS if found[status]
    )
    return f"**{len(theirs)} claims of the paper:** {listed}."


def abstract(tables: Tables, verdicts: Verdicts) -> Iterator[str]:
    """Give the lines."""
    for title, wanted in (
        ("What holds", (HOLDS,)),
        ("What does not, or only in part", (FAILS, IN_PART)),
        ("What the noise leaves open", (UNDECIDED,)),
    ):
        some = [c for c in CLAIMS if c.id in LARGE and verdicts[c.id].status in wanted]
        if some:
            listed = " ".join(
                f"{MARKS[verdicts[c.id].status]} {c.says} *({c.id}; {_short(verdicts[c.id].number)})*"
                for c in some
            )
            yield f"- **{title}.** {listed}"
    lacking = [c.id for c in CLAIMS if verdicts[c.id].status == UNKNOWN]
    if lacking:
        yield f"- **What was not measured.** {', '.join(lacking)}."
    better = [line for line in map(_told(tables), BETTER) if line]
    if better:
        yield f"- **What is better here.** {' '.join(better)}"


def _short(number: str) -> str:
    """Give the ends of long lists, and leave out what was left out: the table of claims has it all.

    >>> _short("a: τ 0.2: 5.1 [0.9, 9.2] %, τ 0.4: -6.6 [-0.9, 15.6] %; b: 3 (left out: …)")
    'a: -6.6 to 5.1 %; b: 3'
    >>> _short("a: 7.74 → 5.35 → 4.3 → 2.12; b: 9 → 4")
    'a: 7.74 → … → 2.12; b: 9 → 4'
    >>> _short("1 → 15 → 63 → 139 sweeps (ours 2 → 3 → 3 → 4)")
    '1 → … → 139 sweeps (ours 2 → … → 4)'
    """
    told = []
    for part in number.partition(" (left out")[0].split("; "):
        gains = [float(x) for x in re.findall(r"τ [\d.]+: (-?[\d.]+)", part)]
        if gains:
            told.append(f"{part.partition(': ')[0]}: {min(gains):g} to {max(gains):g} %")
        else:
            told.append(re.sub(r"( → [^→;(]+){2,} → ", " → … → ", part))
    return "; ".join(told)


def _told(tables: Tables) -> Callable[[Callable[[Tables], str]], str]:
    def told(line: Callable[[Tables], str]) -> str:
        try:
            return line(tables)
        except (LookupError, ValueError):
            return ""

    return told


def _plan_time(tables: Tables) -> str:
    rows = measured(tables, "fig13").where(application="word-count")
    ours, theirs = (rows.where(method=m).mean("plan_us") for m in ("ssm", "ssm-paper"))
    return (
        f"A single step is planned in {ours:.0f} µs where the paper's algorithm takes {theirs:.0f} "
        f"({theirs / ours:.0f} times; both compiled, m = 64, word count)."
    )


def _pre_computation(tables: Tables) -> str:
    rows = measured(tables, "fig14").where(method="exact", beyond=False)
    rows = rows.where(lambda row: row["partitions"] >= limit.PARTITIONS.value)
    best = min(rows, key=lambda row: float(row["seconds"]))
    return (
        f"Projected costs of {best['partitions']:,} partitions take {best['seconds']:.0f} s in one "
        f"process ({best['sweeps']} sweeps) where the paper needs hundreds of minutes on 64 executors."
    )


def _ahead(tables: Tables) -> str:
    rows, _ = unforced(measured(tables, "fig12"), "tau")
    told = []
    for application in rows.names("application"):
        found = gains(rows, application, "ahead")
        theirs = gains(rows, application, "mtm-paper")
        ends = [
            f"{100 * min(g.mean for g in some.values()):.1f} to "
            f"{100 * max(g.mean for g in some.values()):.1f} %"
            for some in (found, theirs)
        ]
        told.append(f"{application} {ends[0]} (the paper's method: {ends[1]})")
    if not told:
        raise LookupError("no τ that was met")
    return f"Below single-step, over τ, with the policy `ahead`: {'; '.join(told)}."


def _exact_counts(tables: Tables) -> str:
    seen = [
        row["exact"] for rows in tables.values() for row in rows if row.get("exact") is not None
    ]
    if not seen:
        raise LookupError("no live run")
    return f"Counts were exact after {'every' if all(seen) else 'not every'} live run."


BETTER: Final = (_plan_time, _pre_computation, _ahead, _exact_counts)
