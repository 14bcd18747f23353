"""How sure a comparison is: the same migrations under two methods, resampled in blocks.

A *series* is what a method did, migration by migration, by span of test. Two series are compared on the
spans that both have. The same migrations are drawn for all of them (paired), so what makes a migration
dear for everybody does not blur the difference. Any function of the means can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from meander.planning.ahead.brackets import BLOCK, Interval95, brackets
from meander_lab.experiments.tables import TableRows

Series = Mapping[int, Sequence[float]]
SEED: Final = 7
"""Of the resampling: the same tables give the same verdicts."""


def series(rows: TableRows, column: str = "costs") -> Series:
    """Give what rows have, by span; rows of one span follow one another.

    Raises:
        LookupError: if no row has it.
    """
    found: dict[int, list[float]] = {}
    for row in rows:
        value = row.get(column)
        if value is not None:
            found.setdefault(int(row.get("span") or 0), []).extend(
                value if isinstance(value, list) else [value]
            )
    if not found:
        raise LookupError(f"no row has {column}")
    return found


def runs(rows: TableRows, column: str) -> Series:
    """Give the mean of every run, in the order of `repeat`.

    What one run saw is seen by all of its migrations: they are no runs of their own.

    >>> rows = TableRows([{"repeat": r, "ms": float(ms)} for r, ms in ((1, 5), (0, 1), (0, 3))])
    >>> runs(rows, "ms")
    {0: [2.0, 5.0]}

    Raises:
        LookupError: if no row has it.
    """
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.get(column) is not None:
            found.setdefault(int(row.get("repeat") or 0), []).append(row[column])
    if not found:
        raise LookupError(f"no row has {column}")
    return {0: [float(np.mean(found[run])) for run in sorted(found)]}


def compare(stat: Callable[..., Any], *of: Series, block: int = BLOCK) -> Interval95:
    """Give a function of the means of some series, with its 95 % interval; see `brackets`.

    >>> compare(lambda a, b: b - a, {0: [1.0, 2.0]}, {0: [2.0, 3.0]})
    Interval95(mean=1.0, low=1.0, high=1.0)

    With `block=1` values are runs, which do not depend on each other. Fewer than two blocks have no
    interval: of one run, or of one migration, nobody knows how much it scatters.

    Raises:
        LookupError: if the series have no span in common, or other migrations in it.
    """
    spans = sorted(set.intersection(*(set(one) for one in of)))
    if not spans:
        raise LookupError("nothing to compare: no span in common")
    if len({tuple(len(one[span]) for span in spans) for one in of}) > 1:
        raise LookupError("nothing to compare: other migrations")
    values = [[np.asarray(one[span], dtype=np.float64) for span in spans] for one in of]
    return brackets(stat, values, np.random.default_rng(SEED), block)


def pooled(rows: TableRows, keys: Sequence[str]) -> TableRows:
    """Make one row of all that agree in some columns: means of numbers, sums of counts.

    The interval of the cost is that of all migrations together.
    """
    out = []
    for point in dict.fromkeys(tuple(row.get(key) for key in keys) for row in rows):
        row: dict[str, Any] = dict(zip(keys, point, strict=True))
        some = rows.where(**row)
        for name in dict.fromkeys(name for one in some for name in one):
            values = some.column(name)
            if name in row or not values:
                continue
            if all(isinstance(v, bool) for v in values):
                row[name] = all(values)
            elif all(isinstance(v, int | float) for v in values):
                total = float(sum(values))
                row[name] = int(total) if name in COUNTS else total / len(values)
            else:
                row[name] = values[0]
        if any(one.get("costs") is not None for one in some):
            mean = compare(lambda cost: cost, series(some))
            row |= {"cost_pct": mean.mean, "cost_low": mean.low, "cost_high": mean.high}
        out.append(row)
    return TableRows(out)


COUNTS: Final = ("relaxed", "fallbacks")


def above(found: Interval95) -> bool | None:
    """Whether it is above 0: True or False if the whole interval says so, else None.

    >>> above(Interval95(1, 0.5, 2)), above(Interval95(-1, -2, 0)), above(Interval95(1, -1, 3))
    (True, False, None)
    >>> above(Interval95(1, None, None)) is None
    True
    """
    if found.low is None or found.high is None:
        return None
    return True if found.low > 0 else False if found.high <= 0 else None


def text(found: Interval95, digits: int = 1, scale: float = 1.0) -> str:
    """Write a value with its interval.

    >>> text(Interval95(0.123, 0.1, 0.2), scale=100), text(Interval95(3.0, None, None))
    ('12.3 [10.0, 20.0]', '3.0 [–]')
    """
    if found.low is None or found.high is None:
        return f"{scale * found.mean:.{digits}f} [–]"
    a, b, c = (f"{scale * x:.{digits}f}" for x in (found.mean, found.low, found.high))
    return a if a == b == c else f"{a} [{b}, {c}]"
