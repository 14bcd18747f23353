"""How sure a comparison is: the same migrations under two methods, resampled in blocks.

A *series* is what a method did, migration by migration, by span of test. Two series are compared on the
spans that both have. The same migrations are drawn for all of them (paired), so what makes a migration
dear for everybody does not blur the difference. Any function of the means can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from meander.planning.ahead.evaluate import BLOCK, RESAMPLES, Interval95
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


def compare(stat: Callable[..., Any], *of: Series, block: int = BLOCK) -> Interval95:
    """Give a function of the means of some series, with its 95 % interval.

    >>> compare(lambda a, b: b - a, {0: [1.0, 2.0]}, {0: [2.0, 3.0]})
    Interval95(mean=1.0, low=1.0, high=1.0)

    With `block=1` values are runs, and few: the interval is by Student's distribution. A single run
    has none.

    Raises:
        LookupError: if the series have no span in common, or other migrations in it.
    """
    spans = sorted(set.intersection(*(set(one) for one in of)))
    if not spans:
        raise LookupError("nothing to compare: no span in common")
    if len({tuple(len(one[span]) for span in spans) for one in of}) > 1:
        raise LookupError("nothing to compare: other migrations")
    flat = [
        np.concatenate([np.asarray(one[span], dtype=np.float64) for span in spans]) for one in of
    ]
    drawn = _drawn([len(of[0][span]) for span in spans], block)
    value = float(stat(*(values.mean() for values in flat)))
    found = stat(*(values[drawn].mean(axis=1) for values in flat))
    if block == 1:
        return _of_runs(value, float(np.std(found)), len(flat[0]))
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval95(value, float(low), float(high))


STUDENT: Final = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""By number of runs: the 97.5 % quantile of Student's distribution."""
NORMAL: Final = 1.96


def _of_runs(value: float, spread: float, runs: int) -> Interval95:
    """Give the interval of a few runs by the standard deviation of their resampled means."""
    if runs < 2:
        return Interval95(value, -np.inf, np.inf)
    half = STUDENT.get(runs, NORMAL) * spread * float(np.sqrt(runs / (runs - 1)))
    return Interval95(value, value - half, value + half)


def _drawn(lengths: Sequence[int], block: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """`[resample, migration]`: blocks of every span, drawn anew, as many as it has.

    A block may go round the end of its span: else migrations there would be drawn more seldom, and
    intervals would not lie around the mean.
    """
    rng, parts, begin = np.random.default_rng(SEED), [], 0
    for n in lengths:
        size = max(1, min(block, n // 2))
        starts = rng.integers(n, size=(RESAMPLES, -(-n // size)))
        found = (starts[:, :, None] + np.arange(size)).reshape(RESAMPLES, -1)[:, :n]
        parts.append(begin + found % n)
        begin += n
    return np.concatenate(parts, axis=1)


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
    """
    return True if found.low > 0 else False if found.high <= 0 else None


def text(found: Interval95, digits: int = 1, scale: float = 1.0) -> str:
    """Write a value with its interval.

    >>> text(Interval95(0.123, 0.1, 0.2), scale=100)
    '12.3 [10.0, 20.0]'
    """
    a, b, c = (f"{scale * x:.{digits}f}" for x in found)
    if np.isinf(found.low):
        return f"{a} (one run)"
    return a if a == b == c else f"{a} [{b}, {c}]"
