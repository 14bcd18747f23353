"""The state of a processor from elsewhere: a row per key, with a column per variable.

A variable's column is as `state()` shows it: a struct, a list of structs, a map. A value may also stand
in columns of its fields. `<name>@expires` tells until when what has a time to live lives (milliseconds
since 1970; without it, from now on), `@timers` the timers of the key (the same).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.operators.base import STATE_ROWS, Context, state_rows
from meander.operators.timers import Key, Timers
from meander.spark.processor.state import NEVER, ProcessorLayout, ProcessorState, Variable

TIMERS: Final = "@timers"
SHOWN: Final = frozenset({"task", "node", "as_of"})
"""Columns that `state()` adds: where a row was read."""


def adopted_schema(layout: ProcessorLayout) -> pa.Schema:
    """Give the schema of rows that `adopt` takes."""
    return state_rows([*layout.schema, pa.field(TIMERS, pa.list_(pa.int64()))])


def adoptable(layout: ProcessorLayout, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Bring rows to the schema; a variable without a column is empty.

    Raises:
        InputError: for a key column that is missing, a column that is no variable, or another type.
    """
    names, schema = rows.schema.names, adopted_schema(layout)
    used = set(names) & SHOWN
    columns = []
    values = {v.name: v for v in layout.variables if v.kind == "value"}
    for field in schema:
        column = _column(rows, field, values.get(field.name), used)
        if column is None and field.name in {key.name for key in layout.key}:
            raise InputError(f"the initial state has no key column {field.name!r}: {names}")
        columns.append(pa.nulls(rows.num_rows, field.type) if column is None else column)
    unknown = [name for name in names if name not in used]
    if unknown:
        known = ", ".join(schema.names[:-1])
        raise InputError(f"the initial state has a column {unknown[0]!r}: there are {known}")
    return pa.record_batch(columns, schema=schema)


def _column(
    rows: pa.RecordBatch, field: pa.Field, value: Variable | None, used: set[str]
) -> pa.Array | None:
    """Take a column, or make a value of the columns of its fields; None: there is nothing."""
    names = rows.schema.names
    if field.name in names and not _is_only_field(rows, field, value):
        used.add(field.name)
        return _cast(rows.column(field.name), field)
    if value is None or not all(name in names for name in value.schema.names):
        return None
    used.update(value.schema.names)
    parts = [_cast(rows.column(part.name), part) for part in field.type]
    nothing = reduce(pc.and_, [part.is_null() for part in parts])
    return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=nothing)


def _is_only_field(rows: pa.RecordBatch, field: pa.Field, value: Variable | None) -> bool:
    """Whether a column that is named as a variable is its field of the same name."""
    plain = not pa.types.is_struct(rows.schema.field(field.name).type)
    return value is not None and field.name in value.schema.names and plain


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InputError(f"initial state: {field.name!r} is no {field.type}: {error}") from None


def adopt(
    state: ProcessorState, batch: pa.RecordBatch, context: Context, timers: Timers | None
) -> None:
    """Take rows over: what a key had is replaced, and its timers are set."""
    keys = state.put(batch.drop_columns([STATE_ROWS, TIMERS]))
    _renew(state, keys, context.now_us // 1000)
    set_for = batch.column(TIMERS)
    if set_for.null_count == len(set_for):
        return
    if timers is None:
        raise InputError('timers need time_mode="ProcessingTime" or time_mode="EventTime"')
    for key, moments in zip(keys, set_for.to_pylist(), strict=True):
        for at_ms in moments or ():
            timers.set(key, at_ms * 1000)


def exported(state: ProcessorState, timers: Timers | None) -> list[pa.RecordBatch]:
    """Write entries and timers as rows; a key may have nothing but timers."""
    layout = state.layout
    schema = pa.schema([*layout.schema, pa.field(TIMERS, pa.list_(pa.int64()))])
    found: dict[Key, list[int]] = {}
    for key, at_us in timers or ():
        found.setdefault(key, []).append(at_us // 1000)
    held = pa.array([found.pop(key, None) for key in state.entries], schema.field(TIMERS).type)
    whole = [batch.append_column(TIMERS, held) for batch in state.dump()]
    if found:
        columns = {
            f.name: pa.array([k[i] for k in found], f.type) for i, f in enumerate(layout.key)
        }
        columns[TIMERS] = pa.array(list(found.values()), schema.field(TIMERS).type)
        rest = [columns.get(f.name, pa.nulls(len(found), f.type)) for f in schema]
        whole.append(pa.record_batch(rest, schema=schema))
    return whole


def _renew(state: ProcessorState, keys: Iterable[Key], now_ms: int) -> None:
    """Note that keys have changed, and from when on what was given no end lives."""
    brief = [(i, v) for i, v in enumerate(state.layout.variables) if v.ttl_ms is not None]
    for key in keys:
        entry = state.entries.get(key)
        if entry is None:
            continue
        state.touch(key)
        for i, variable in brief:
            entry[i] = _from(entry[i], variable.expires(now_ms))


def _from(content: Any, expires: int) -> Any:
    def ended(pair: tuple[Any, int]) -> tuple[Any, int]:
        return (pair[0], expires) if pair[1] == NEVER else pair

    if isinstance(content, tuple):
        return ended(content)
    if isinstance(content, list):
        return [ended(pair) for pair in content]
    return None if content is None else {key: ended(pair) for key, pair in content.items()}
