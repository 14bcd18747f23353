"""Rows of the same key, folded into one before they leave; and tables that take what came of it.

A *combined row* stands for all rows of one key in one source batch: the key, how many rows they were
(`#rows`), and the cells that those rows alone would have made in an empty table. Folding such a row
into a table gives, cell by cell, what the rows give one after the other:

    rows, count        they add up
    sum of integers    adds up
    min, max           the same rule as for values; of 0.0 and -0.0 the first stays
    last               the later one, if it has one: a source batch is folded in its order
    last by            the greater order; among equals the later

A sum of floats is not among them: it depends on the order in which it is added up. So a layout that has
one (`mean` is one, too) combines nothing.

Overflow. A sum over some of the rows may leave 64 bits where the sum over all does not. Then every row
of the batch stands for itself: a cell of one value cannot overflow. A table that takes combined rows
raises when the sum over all rows so far leaves 64 bits. Row by row it would have raised as well, there
or before: it may have raised at a sum that later rows would have brought back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError, SumOverflowError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.aggregates import CODES, ROWS, Cell, numbers_of
from meander.operators.base import COMBINED_ROWS, Combined
from meander.operators.columns import Validity
from meander.operators.hashing import Hashes
from meander.operators.kernels import distinct, fold
from meander.operators.kernels import table as kernel
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, Where, fold_inputs, located


def combine(layout: Layout, batch: pa.RecordBatch, bounds: Ints, hashes: Hashes) -> Combined:
    """Fold the rows of each group, for itself, into one row per key.

    Args:
        layout: one that has a combined schema.
        batch: rows of the layout's schema.
        bounds: rows `bounds[g] … bounds[g+1]-1` are group g.
        hashes: what `hash_columns` gives for the key columns: it has checked them, too.

    Raises:
        InputError: for a batch that does not fit the layout.
    """
    assert layout.combined_schema is not None
    view = codec.encode(layout.key_columns(batch))
    bounds = np.ascontiguousarray(bounds, dtype=np.int64)
    rows, most = batch.num_rows, int(np.diff(bounds).max(initial=0))
    slots = np.empty(max(distinct.SLOTS_MIN, 2 << (2 * most).bit_length()), np.uint64)
    where, first = np.empty(rows, np.int32), np.empty(rows, np.int64)
    faces, ends = np.empty(rows, np.uint64), np.empty(len(bounds), np.int64)
    count = distinct.distinct(
        bounds, hashes, view.offsets, view.wide, view.data, view.size, *view.validity,
        slots, faces, where, first, ends,
    )  # fmt: skip
    first = first[:count]
    try:
        cells = _cells(layout, batch, where, count)
    except SumOverflowError:
        where, first = np.arange(rows, dtype=np.int32), np.arange(rows)
        cells, ends = _cells(layout, batch, where, rows), bounds
    taken = pa.array(first)
    columns = [
        _as(field.type, batch.column(key).take(taken))
        for key, field in zip(layout.keys, layout.combined_schema, strict=False)
    ]
    if ROWS not in layout.cells:
        columns.append(pa.array(np.bincount(where, minlength=len(first))))
    columns += [pa.array(words) for words in cells]
    return Combined(pa.record_batch(columns, schema=layout.combined_schema), ends, hashes[first])


def _as(kind: pa.DataType, column: pa.Array) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _cells(
    layout: Layout, batch: pa.RecordBatch, where: Where, count: int
) -> list[npt.NDArray[Any]]:
    """Fold the rows into cells of their own, in the order of the combined schema."""
    words = np.repeat(layout.identities, count).reshape(len(layout.cells), count)
    meta = np.zeros(kernel.META_WORDS, dtype=np.int64)  # of a table that has nothing but values
    meta[kernel.ROOM], meta[kernel.VALUES] = count, words.ctypes.data
    bounds = np.array([0, batch.num_rows])
    fold_inputs(layout, layout.inputs(batch), np.array([meta.ctypes.data]), bounds, where)
    found = [words[layout.cells.index(cell)] for cell in layout.combined_cells]
    return [
        column.view(np.float64) if cell.floating else column
        for cell, column in zip(layout.combined_cells, found, strict=True)
    ]


def take_combined(
    tables: Sequence[KeyedTable], bounds: Ints, batch: pa.RecordBatch, hashes: Hashes | None = None
) -> Where:
    """Fold combined rows, grouped by table, as `update_tables` folds rows.

    Raises:
        InputError: for a batch that is not of the combined schema; no table has changed.
        SumOverflowError, TooLargeError: the tables hold a part of the batch.
    """
    layout = tables[0].layout
    if layout.combined_schema is None or not batch.schema.equals(layout.combined_schema):
        raise InputError(f"these are no combined rows: they have {batch.schema.names}")
    found = batch.columns[-len(layout.combined_cells) :]
    cells = dict(zip(layout.combined_cells, found, strict=True))
    try:
        return take_cells(tables, bounds, batch, cells, hashes)
    except SumOverflowError as error:
        row = error.row or 0
        rows = int(batch.column(COMBINED_ROWS)[row].as_py())
        raise SumOverflowError(f"{error.what}, combined of {rows} rows,", row) from None


def take_cells(
    tables: Sequence[KeyedTable],
    bounds: Ints,
    batch: pa.RecordBatch,
    cells: Mapping[Cell, pa.Array],
    hashes: Hashes | None = None,
) -> Where:
    """Fold cells that were folded elsewhere, by the keys of a batch, grouped by table.

    Raises:
        InputError: for a cell that cannot be; no table has changed.
        SumOverflowError, TooLargeError: the tables hold a part of the batch.
    """
    layout = tables[0].layout
    numbers = {cell: _numbers(cell, column) for cell, column in cells.items()}
    metas, bounds, where = located(tables, bounds, batch, hashes)
    for i, cell in enumerate(layout.cells):
        if cell.role == "order":
            continue  # it is folded with the value that it orders
        values, validity, owner = numbers[cell], Validity(0, 0), None
        if cell.role == "last":
            validity, owner = _validity(numbers[cell._replace(role="count", floating=False)])
        if cell.by is not None and cell.role == "last":
            order = cell._replace(role="order", floating=False)
            at, words = layout.cells.index(order), values.view(np.int64)
            fold.fold_last_by(metas, bounds, where, i, at, words, *validity, numbers[order])
        elif cell.floating:
            fold.fold_floats(metas, bounds, where, i, CODES[cell.role], values, *validity)
        else:
            code = CODES.get(cell.role, fold.SUM)
            bad = fold.fold_ints(metas, bounds, where, i, code, values, *validity)
            if bad >= 0:
                raise SumOverflowError(cell.name, bad)
        del owner  # it has kept the bits alive
    return where


def _numbers(cell: Cell, column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        raise InputError(f"{cell.name} has a null in combined rows")
    numbers = numbers_of(column, cell.floating)
    if cell.role in ("rows", "count") and len(numbers) and numbers.min() < 0:
        raise InputError(f"{cell.name} is negative in combined rows")
    return numbers


def _validity(counts: npt.NDArray[Any]) -> tuple[Validity, pa.Array]:
    """Make validity bits: a cell holds a value where values were counted."""
    valid = pa.array(counts > 0)
    return Validity(valid.buffers()[1].address if len(valid) else 0, 0), valid
