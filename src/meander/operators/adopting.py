"""The state of a keyed table from elsewhere: rows of keys with results or cells, as cells.

    word, count                        results, as `state()` shows them
    shop, mean(amount), count(amount)  cells, as a dump has them; `mean(x)` is the sum of x

A result says what its cells were, but for two: a mean does not tell of how many values it is, and the
last value by an order not where in the order it stands. Their cells have to be given. How many values a
sum, a minimum or a maximum is made of does not matter to them: one stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.errors import InputError
from meander.operators.aggregates import Aggregate, Cell, numbers_of
from meander.operators.base import STATE_ROWS, state_rows
from meander.operators.combining import take_cells
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable


def adopted_schema(layout: Layout) -> pa.Schema:
    """Give the schema of rows that `adopt` takes: keys as they come in, cells as they are dumped.

    >>> words = pa.schema({"word": pa.string()})
    >>> adopted_schema(Layout(words, ["word"], {"n": Aggregate("count")})).names
    ['word', 'rows', '#state']
    """
    keys = [layout.schema.field(key) for key in layout.keys]
    return state_rows([*keys, *(pa.field(cell.name, cell.type) for cell in layout.cells)])


def adoptable(layout: Layout, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make cells of results, where cells are not given.

    >>> sales = pa.schema({"shop": pa.string(), "amount": pa.int64()})
    >>> made = {"total": Aggregate("sum", "amount"), "n": Aggregate("count")}
    >>> given = pa.record_batch({"shop": ["a", "b"], "total": [7, None], "n": [3, 1]})
    >>> adoptable(Layout(sales, ["shop"], made), given).drop_columns(["shop", "#state"]).to_pydict()
    {'sum(amount)': [7, 0], 'count(amount)': [1, 0], 'rows': [3, 1]}

    Raises:
        InputError: naming the columns that are missing, or a null that cannot be.
    """
    missing = [key for key in layout.keys if key not in rows.schema.names]
    if missing:
        raise InputError(f"the initial state has no key column {missing[0]!r}: {rows.schema.names}")
    schema = adopted_schema(layout)
    columns = [_cast(rows.column(key), schema.field(key)) for key in layout.keys]
    columns += [_cell(layout, cell, rows) for cell in layout.cells]
    return pa.record_batch([*columns, pa.nulls(rows.num_rows)], schema=schema)


def adopt(table: KeyedTable, batch: pa.RecordBatch) -> None:
    """Fold rows of a state into a table; those of one key add up."""
    layout = table.layout
    cells = {cell: batch.column(cell.name) for cell in layout.cells}
    keys = batch.drop_columns([STATE_ROWS, *(cell.name for cell in layout.cells)])
    take_cells([table], np.array([0, batch.num_rows]), keys, cells)


def _cell(layout: Layout, cell: Cell, rows: pa.RecordBatch) -> pa.Array:
    field = pa.field(cell.name, cell.type)
    if cell.name in rows.schema.names:
        found = _cast(rows.column(cell.name), field)
        if found.null_count:
            raise InputError(f"the initial state has a null in {cell.name!r}")
        return found
    makers = [
        (name, made) for name, made in layout.aggregates.items() if cell in layout.cells_of(made)
    ]
    for name in _shown(cell, makers):
        if name in rows.schema.names:
            column = _cast(rows.column(name), layout.result_schema.field(name))
            return _filled(column, cell, layout.identity(cell))
    told = [name for name, made in makers if made.function in ("sum", "min", "max", "last")]
    if cell.role == "count" and _tells_nulls(makers) and told[0] in rows.schema.names:
        return rows.column(told[0]).is_valid().cast(pa.int64())
    ways = " or ".join(repr(name) for name in (cell.name, *_shown(cell, makers)))
    raise InputError(f"the initial state has no column {ways}: it has {rows.schema.names}")


def _tells_nulls(makers: Sequence[tuple[str, Aggregate]]) -> bool:
    """Whether all that matters of a count is whether there was a value."""
    return all(made.function not in ("count", "mean") and made.by is None for _, made in makers)


def _shown(cell: Cell, makers: Sequence[tuple[str, Aggregate]]) -> list[str]:
    """Name the results that are just what a cell holds."""
    role = "count" if cell.role == "rows" else cell.role
    if role in ("mean", "order"):
        return []
    return [name for name, made in makers if made.function == role and made.by is None]


def _filled(column: pa.Array, cell: Cell, identity: int) -> pa.Array:
    """Write results as the words of a cell; a null is what a new cell begins with."""
    words = numbers_of(column, cell.floating)
    found = np.where(np.asarray(column.is_valid()), words.view(np.int64), identity)
    return pa.array(found.view(np.float64) if cell.floating else found, cell.type)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InputError(f"initial state: {field.name!r} is no {field.type}: {error}") from None
