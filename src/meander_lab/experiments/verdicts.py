"""What a claim is, and the few shapes that claims have: above, growing, falling.

A part of a claim is True, False, or None where the noise is larger than the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from meander.planning.ahead.brackets import BLOCK
from meander_lab.experiments.noise import Series, above, compare
from meander_lab.experiments.tables import TableRows

HOLDS: Final = "holds"
IN_PART: Final = "holds in part"
FAILS: Final = "does not hold"
UNDECIDED: Final = "undecided"
UNKNOWN: Final = "not measured"
VERDICTS: Final = (HOLDS, IN_PART, FAILS, UNDECIDED, UNKNOWN)

Tables = Mapping[str, TableRows]
Part = bool | None


class ClaimVerdict(NamedTuple):
    """How a claim fares, and the number that says so."""

    status: str
    number: str


Judge = Callable[[Tables], ClaimVerdict]


@dataclass(frozen=True)
class Claim:
    """A comparing sentence, as a predicate over tables."""

    id: str
    """Figure and number, as in `12.3`; of one that is judged once more elsewhere, with where."""
    figure: str
    """The experiment whose table it is about."""
    says: str
    """What is claimed, in our words."""
    judge: Judge

    @property
    def ours(self) -> bool:
        """Whether we say it, and not the paper."""
        return self.id.startswith("O.")

    @property
    def again(self) -> bool:
        """Whether it is a claim of the paper that is judged once more, on other ground."""
        return " " in self.id

    def verdict(self, tables: Tables) -> ClaimVerdict:
        """Judge it; a table that lacks what is asked for leaves it open."""
        try:
            return self.judge(tables)
        except (LookupError, ValueError, ZeroDivisionError) as error:
            return ClaimVerdict(UNKNOWN, f"the tables lack it: {str(error).strip(chr(39))}")


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
        raise LookupError(f"{name} was not measured, which `meander experiment run {name}` does")
    return rows


def unforced(rows: TableRows, by: str) -> tuple[TableRows, str]:
    """Leave out every point at which τ was eased for single-step; say which.

    A point is an application, a span of test and a value of `by`.
    """

    def point(row: dict[str, Any]) -> tuple[Any, ...]:
        return row.get("application"), row.get("span") or 0, row.get(by)

    eased = {point(row) for row in rows if row["method"] == "ssm" and row.get("relaxed")}
    if not eased:
        return rows, ""
    told = []
    for application in rows.names("application"):
        values: dict[Any, int] = {}
        for name, _, value in sorted(eased, key=repr):
            if name == application:
                values[value] = values.get(value, 0) + 1
        if values:
            spans = len(rows.where(application=application).values("span")) or 1
            told.append(f"{application} " + ", ".join(
                f"{value:g}" + (f" in {n} of {spans} spans" if n < spans else "")
                for value, n in values.items()
            ))  # fmt: skip
    name = "τ" if by == "tau" else "m"
    return (
        rows.where(lambda row: point(row) not in eased),
        f" (left out, τ was eased there: {name} of {'; '.join(told)})",
    )


def of_parts(parts: Sequence[Part], number: str) -> ClaimVerdict:
    """Holds if all parts do, in part if some do; undecided if the noise leaves all open.

    >>> of_parts([True, False], "2 of 3").status, of_parts([True, None], "").status
    ('holds in part', 'holds in part')
    >>> of_parts([None, False], "").status, of_parts([None, None], "").status
    ('does not hold', 'undecided')
    >>> of_parts([], "")
    Traceback (most recent call last):
      ...
    LookupError: nothing to compare
    """
    if not parts:
        raise LookupError("nothing to compare")
    if all(parts):
        return ClaimVerdict(HOLDS, number)
    if any(parts):
        return ClaimVerdict(IN_PART, number)
    return ClaimVerdict(FAILS if False in parts else UNDECIDED, number)


def trend(
    points: Sequence[Sequence[Series]],
    *,
    up: bool,
    stat: Callable[..., Any] = lambda value: value,
    block: int = BLOCK,
    digits: int = 3,
) -> ClaimVerdict:
    """Judge a row of points: each some series, and `stat` a function of their means.

    It holds if the last is surely beyond the first and no step surely goes the other way, in part if
    one does; if first and last cannot be told apart it is undecided.

    Raises:
        LookupError: for fewer than two points.
    """
    if len(points) < 2:
        raise LookupError("a trend needs two points")
    sign = 1 if up else -1

    def step(a: Sequence[Series], b: Sequence[Series]) -> Part:
        def difference(*means: Any) -> Any:
            return sign * (stat(*means[len(a) :]) - stat(*means[: len(a)]))

        return above(compare(difference, *a, *b, block=block))

    number = " → ".join(f"{compare(stat, *p, block=block).mean:.{digits}g}" for p in points)
    against = any(_against(step(a, b), a, b) for a, b in pairwise(points))
    return _by_ends(step(points[0], points[-1]), number, against)


def counted(values: Sequence[float], *, up: bool, digits: int = 3) -> ClaimVerdict:
    """Judge a row of numbers without noise, such as counts, as `trend` does.

    >>> counted([1, 3, 2], up=True)
    ClaimVerdict(status='holds in part', number='1 → 3 → 2')

    Raises:
        LookupError: for fewer than two numbers.
    """
    if len(values) < 2:
        raise LookupError("a trend needs two points")
    sign = 1 if up else -1
    against = any(sign * (b - a) < 0 for a, b in pairwise(values))
    number = " → ".join(f"{value:.{digits}g}" for value in values)
    return _by_ends(sign * (values[-1] - values[0]) > 0, number, against)


def _by_ends(ends: Part, number: str, against: bool) -> ClaimVerdict:
    """Judge by whether the last point is beyond the first, and whether a step goes against it."""
    if ends is None:
        return ClaimVerdict(UNDECIDED, number)
    if ends is False:
        return ClaimVerdict(FAILS, number)
    return ClaimVerdict(IN_PART if against else HOLDS, number)


def _against(step: Part, a: Sequence[Series], b: Sequence[Series]) -> bool:
    """Whether a step surely goes the wrong way; standing still is not that."""
    return step is False and list(a) != list(b)


def together(verdicts: Mapping[str, ClaimVerdict]) -> ClaimVerdict:
    """Join the verdicts of several series under their names."""
    if not verdicts:
        raise LookupError("nothing to compare")
    found = {verdict.status for verdict in verdicts.values()}
    if len(found) == 1:
        status = found.pop()
    elif found & {HOLDS, IN_PART}:
        status = IN_PART
    else:
        status = FAILS if FAILS in found else UNDECIDED
    return ClaimVerdict(status, "; ".join(f"{name}: {v.number}" for name, v in verdicts.items()))
