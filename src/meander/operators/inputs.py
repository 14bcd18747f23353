"""Several inputs of one operator: rows of all of them have one schema, and say where they came in.

An operator that joins takes rows of two kinds. It names them: `inputs` has a schema for each, its key
columns and its event time. What the tasks get are rows of one `schema`, the *joint* one:

    #input     int8, the number of the input in the order of `inputs`
    the keys   under the names that the first input gives them
    #time      the event time, if there is one
    the rest   of each input, in their order; of another input's rows they are null

So nothing between a feeder and a task knows of inputs: rows are brought to the joint schema where they
enter (`Operator.of_input`), and from there on they are rows like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.errors import InputError

INPUT = "#input"
"""The column that tells by which input a row came."""
TIME = "#time"
"""The column of event times of all inputs."""


@dataclass(frozen=True)
class Input:
    """One input of an operator that has several.

    >>> Input(pa.schema({"id": pa.int64(), "at": pa.timestamp("us")}), ("id",), "at").rest
    []
    """

    schema: pa.Schema
    """The columns that are wanted; rows may have more."""
    keys: tuple[str, ...]
    """The columns that decide a row's task, in the order of the other inputs' keys."""
    event_time: str | None = None
    """Its column of timestamps; all inputs have one, or none has."""

    @property
    def rest(self) -> list[pa.Field]:
        """The columns that are neither key nor event time."""
        return [f for f in self.schema if f.name not in self.keys and f.name != self.event_time]


def joint_schema(inputs: Mapping[str, Input]) -> pa.Schema:
    """Make the schema that rows of all inputs have.

    >>> orders = Input(pa.schema({"id": pa.int64(), "sum": pa.float64()}), ("id",))
    >>> payments = Input(pa.schema({"of": pa.int64(), "paid": pa.float64()}), ("of",))
    >>> joint_schema({"orders": orders, "payments": payments}).names
    ['#input', 'id', 'sum', 'paid']

    Raises:
        InputError: where keys or event times do not fit each other, or a name means two things.
    """
    first, *others = inputs.values()
    fields = [pa.field(INPUT, pa.int8())]
    fields += [first.schema.field(_known(first, key)) for key in first.keys]
    if first.event_time is not None:
        kind = first.schema.field(_known(first, first.event_time)).type
        fields.append(pa.field(TIME, kind))
    for name, other in zip(list(inputs)[1:], others, strict=True):
        if len(other.keys) != len(first.keys):
            raise InputError(
                f"input {name!r} has {len(other.keys)} key columns, not {len(first.keys)}"
            )
        for mine, theirs in zip(first.keys, other.keys, strict=True):
            kinds = first.schema.field(mine).type, other.schema.field(_known(other, theirs)).type
            if kinds[0] != kinds[1]:
                raise InputError(
                    f"key {mine!r} is {kinds[0]}, but {theirs!r} of {name!r} {kinds[1]}"
                )
        if (other.event_time is None) != (first.event_time is None):
            raise InputError("either all inputs have an event time, or none has")
    for name, one in inputs.items():
        for field in one.rest:
            known = [f for f in fields if f.name == field.name]
            if known and known[0].type != field.type:
                raise InputError(
                    f"column {field.name!r} of input {name!r} has two types: rename one"
                )
            if not known:
                fields.append(field.with_nullable(True))
    return pa.schema(fields)


def as_joint(
    inputs: Mapping[str, Input], schema: pa.Schema, name: str, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Bring rows of an input to the joint schema.

    Raises:
        InputError: if there is no such input, or the batch lacks a column of it.
    """
    if name not in inputs:
        raise InputError(f"no input {name!r}: there are {', '.join(inputs) or 'none with a name'}")
    number, one, rows = list(inputs).index(name), inputs[name], batch.num_rows
    own = {f.name: f.name for f in one.rest}
    own |= dict(zip(next(iter(inputs.values())).keys, one.keys, strict=True))
    if one.event_time is not None:
        own[TIME] = one.event_time
    columns = [pa.array(np.full(rows, number, dtype=np.int8))]
    for field in list(schema)[1:]:
        if field.name not in own:
            columns.append(pa.nulls(rows, field.type))
            continue
        if own[field.name] not in batch.schema.names:
            raise InputError(f"input {name!r} lacks the column {own[field.name]!r}")
        column = batch.column(own[field.name])
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _known(one: Input, column: str) -> str:
    if column not in one.schema.names:
        raise InputError(f"no column {column!r}: there are {', '.join(one.schema.names)}")
    return column
