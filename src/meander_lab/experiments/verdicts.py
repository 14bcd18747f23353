"""What a claim is, and the few shapes that claims have: above, growing, falling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from meander_lab.experiments.tables import TableRows

HOLDS: Final = "holds"
IN_PART: Final = "holds in part"
FAILS: Final = "does not hold"
UNKNOWN: Final = "not measured"

Tables = Mapping[str, TableRows]


class ClaimVerdict(NamedTuple):
    """How a claim fares, and the number that says so."""

    status: str
    number: str


Judge = Callable[[Tables], ClaimVerdict]


@dataclass(frozen=True)
class Claim:
    """A comparing sentence, as a predicate over tables."""

    id: str
    """Figure and number, as in `12.3`."""
    figure: str
    """The experiment whose table it is about."""
    says: str
    """What is claimed, in our words."""
    judge: Judge

    def verdict(self, tables: Tables) -> ClaimVerdict:
        """Judge it; a table that lacks what is asked for leaves it open."""
        try:
            return self.judge(tables)
        except (LookupError, ValueError, ZeroDivisionError) as error:
            return ClaimVerdict(UNKNOWN, f"the tables lack it: {error}")


def entering(claims: list[Claim]) -> Callable[[str, str, str], Callable[[Judge], Judge]]:
    """Make a decorator that enters predicates into a list."""

    def claim(number: str, figure: str, says: str) -> Callable[[Judge], Judge]:
        def enter(judge: Judge) -> Judge:
            claims.append(Claim(number, figure, says, judge))
            return judge

        return enter

    return claim


def measured(tables: Tables, name: str) -> TableRows:
    """Give a table that must be there.

    Raises:
        LookupError: if it is not, or is empty.
    """
    rows = tables.get(name, TableRows([]))
    if not len(rows):
        raise LookupError(f"{name} was not measured")
    return rows


def looking_ahead(rows: TableRows) -> str:
    """Name the method that looks ahead in a table."""
    return next((str(m) for m in rows.names("method") if m.startswith("mtm:")), "mtm:n")


def of_parts(parts: Sequence[bool], number: str) -> ClaimVerdict:
    """Holds if all parts do, in part if some do.

    >>> of_parts([True, False], "2 of 3").status
    'holds in part'
    >>> of_parts([], "")
    Traceback (most recent call last):
      ...
    LookupError: nothing to compare
    """
    if not parts:
        raise LookupError("nothing to compare")
    status = HOLDS if all(parts) else IN_PART if any(parts) else FAILS
    return ClaimVerdict(status, number)


def falls(values: Sequence[float], slack: float = 0.0) -> bool:
    """Whether no value exceeds the one before it by more than a share.

    >>> falls([3.0, 2.0, 2.01], slack=0.02), falls([3.0, 2.0, 2.5])
    (True, False)
    """
    _several(values)
    return all(b <= a * (1 + slack) for a, b in pairwise(values))


def grows(values: Sequence[float], slack: float = 0.0) -> bool:
    """Whether no value is below the one before it by more than a share."""
    _several(values)
    return all(b >= a * (1 - slack) for a, b in pairwise(values))


def trend(values: Sequence[float], *, up: bool, slack: float = 0.0) -> ClaimVerdict:
    """Judge one series: monotone holds, the right way from end to end holds in part."""
    monotone = grows(values, slack) if up else falls(values, slack)
    ends = values[-1] > values[0] if up else values[-1] < values[0]
    status = HOLDS if monotone and ends else IN_PART if ends else FAILS
    return ClaimVerdict(status, " → ".join(f"{value:.3g}" for value in values))


def together(verdicts: Mapping[str, ClaimVerdict]) -> ClaimVerdict:
    """Join the verdicts of several series under their names."""
    if not verdicts:
        raise LookupError("nothing to compare")
    found = {verdict.status for verdict in verdicts.values()}
    status = found.pop() if len(found) == 1 else IN_PART
    return ClaimVerdict(status, "; ".join(f"{name}: {v.number}" for name, v in verdicts.items()))


def _several(values: Sequence[float]) -> None:
    if len(values) < 2:
        raise LookupError("a trend needs two points")
