"""Tables of measurements: rows that know where they come from, as Parquet and CSV.

One experiment has one table per scale. A row has what was measured, and beside it

    cell        the parameters that were set, as JSON: what `resume` compares
    scale, seed, data, commit, code, machine, load (of the minute before), measured_at, cell_s

The CSV is for eyes and diffs, and is kept in `docs/tables`; the Parquet is what is read back, if it is
there. Both are replaced whole.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from meander.errors import InputError

Row = dict[str, Any]
Cell = Mapping[str, Any]
"""What is varied, by name."""


def cell_key(cell: Cell) -> str:
    """Write a cell's parameters so that equal ones are equal texts.

    >>> cell_key({"tau": 0.2, "method": "ssm"})
    '{"method": "ssm", "tau": 0.2}'
    """
    return json.dumps(dict(cell), sort_keys=True)


class TableRows(Sequence[Row]):
    """Rows with the few questions that claims and plots ask of them.

    >>> rows = TableRows([{"tau": 0.2, "cost": 3.0}, {"tau": 0.1, "cost": 5.0}])
    >>> rows.where(tau=0.1).mean("cost"), rows.values("tau"), rows.line("tau", "cost")
    (5.0, [0.1, 0.2], ([0.1, 0.2], [5.0, 3.0]))
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def where(self, keep: Callable[[Row], bool] | None = None, **equal: Any) -> TableRows:
        """Keep rows that have these values, and for which `keep` is true."""
        return TableRows(
            row for row in self._rows
            if all(row.get(k) == v for k, v in equal.items()) and (keep is None or keep(row))
        )  # fmt: skip

    def column(self, name: str) -> list[Any]:
        """Give one column, without rows that lack it."""
        return [row[name] for row in self._rows if row.get(name) is not None]

    def values(self, name: str) -> list[Any]:
        """Give the distinct values of a column, sorted."""
        return sorted(set(self.column(name)))

    def names(self, name: str) -> list[Any]:
        """Give the distinct values of a column in the order of the table."""
        return list(dict.fromkeys(self.column(name)))

    def mean(self, name: str) -> float:
        """Give the mean of a column.

        Raises:
            LookupError: if no row has it.
        """
        found = self.column(name)
        if not found:
            raise LookupError(f"no row has {name}")
        return float(sum(found) / len(found))

    def line(self, x: str, y: str) -> tuple[list[Any], list[float]]:
        """Give the mean of y for every x, x ascending."""
        some = self.where(lambda row: row.get(y) is not None)
        xs = some.values(x)
        return xs, [some.where(**{x: value}).mean(y) for value in xs]


class ResultTable:
    """The table of one experiment at one scale, on disk."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.parquet"

    def read(self) -> TableRows:
        """Give all rows; none if there is no table yet.

        Raises:
            InputError: for a file that is no table.
        """
        if not self.path.exists():
            return TableRows([])
        try:
            return TableRows(pq.read_table(self.path).to_pylist())
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{self.path} is no table of measurements: {error}") from None

    def put(self, rows: Sequence[Row]) -> None:
        """Add the rows of a cell; rows of the same cell that were there are replaced."""
        fresh = {row["cell"] for row in rows}
        kept = [row for row in self.read() if row["cell"] not in fresh]
        self._write([*kept, *rows])

    def keep(self, cells: set[str]) -> None:
        """Drop rows of cells that are no longer part of the experiment."""
        rows = self.read()
        kept = [row for row in rows if row["cell"] in cells]
        if len(kept) < len(rows):
            self._write(kept)

    def _write(self, rows: Sequence[Row]) -> None:
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(".part")
            pq.write_table(pa.table(columns), part)
            part.replace(self.path)
            self.path.with_suffix(".csv").write_text(as_csv(rows), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error}") from None


def as_csv(rows: Iterable[Row]) -> str:
    r"""Write rows for eyes and diffs.

    >>> as_csv([{"tau": 0.2, "costs": [1.0]}, {"tau": 1 / 3}])
    'tau,costs\n0.2,[1.0]\n0.333333,\n'
    """
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


TEXTS = ("cell", "identity", "scale", "data", "commit", "code", "machine", "measured_at", "note")
"""Columns that are texts, whatever they look like."""


def from_csv(text: str) -> TableRows:
    r"""Read what `as_csv` wrote.

    >>> list(from_csv("tau,costs,commit\n0.2,[1.0],27e10\n1,,27e10\n"))
    [{'tau': 0.2, 'costs': [1.0], 'commit': '27e10'}, {'tau': 1, 'costs': None, 'commit': '27e10'}]
    """
    return TableRows(
        {name: value if name in TEXTS else _parsed(value) for name, value in row.items()}
        for row in csv.DictReader(StringIO(text))
    )


def _parsed(value: str) -> Any:
    if value in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[value]
    for read in (int, float, json.loads):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value) if isinstance(value, list | dict) else value
