"""Messages of a log as columns: many at a time, without a look at each.

    json    an object a message: all are joined and parsed by Arrow at once, as the schema has them;
            `null` is a message without a row; dates and times are as in ISO 8601, bytes in base 64
    arrow   an Arrow stream a message, of any number of rows
    raw     the bytes themselves, in one column
    avro    see `meander.sources.avro`, whose reader knows the writers' schemas

A message that cannot be read spoils its batch; only then is each looked at alone, to name it or to
leave it out.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from meander.errors import InputError, UnreadableError
from meander.model import Ints
from meander.operators.validation import believe

FORMATS = ("json", "avro", "arrow", "raw")
V = TypeVar("V")
"""What a message is to whoever reads it."""
WHITE = b" \t\r\n"
"""What JSON has between its tokens."""


class Decoded(NamedTuple):
    """Messages as rows."""

    rows: pa.RecordBatch
    message: Ints
    """Of each row, which message it came in."""


def decode(form: str, values: Sequence[bytes], schema: pa.Schema, column: str = "value") -> Decoded:
    """Read messages, none of which is null.

    Args:
        form: `json`, `arrow` or `raw`.
        values: their bytes.
        schema: the columns that are wanted, with their types; others are left out.
        column: of `raw`, the name of its only one.

    Raises:
        UnreadableError: naming the first that is not in this form.

    >>> wanted = pa.schema({"user": pa.string(), "n": pa.int64()})
    >>> found = decode("json", [b'{"n": 1, "user": "ann", "x": []}', b'{"user": "bob"}'], wanted)
    >>> found.rows.to_pylist(), found.message.tolist()
    ([{'user': 'ann', 'n': 1}, {'user': 'bob', 'n': None}], [0, 1])
    """
    return one_by_one(partial(READERS[form], column=column), values, schema)


def one_by_one(
    read: Callable[[Sequence[V], pa.Schema], Decoded], values: Sequence[V], schema: pa.Schema
) -> Decoded:
    """Read messages at once; if that fails, find out by which: half of them is read, half of a half ….

    Raises:
        UnreadableError: naming the first that `read` refuses.
    """
    found = _tried(read, values, schema)
    if not isinstance(found, str):
        return found
    lb, ub = 0, len(values)
    while ub - lb > 1:
        mid = (lb + ub) // 2
        wrong = isinstance(_tried(read, values[lb:mid], schema), str)
        lb, ub = (lb, mid) if wrong else (mid, ub)
    found = _tried(read, values[lb:ub], schema)
    assert isinstance(found, str), "each message can be read, and all together cannot"
    raise UnreadableError(lb, found)


def sift(
    read: Callable[[Sequence[V], pa.Schema], Decoded], values: Sequence[V], schema: pa.Schema
) -> tuple[Decoded | None, dict[int, str]]:
    """Read those messages that can be read; of each other tell why it cannot.

    Halves are read by themselves, and halves of those that fail: a bad message costs a few reads, and
    many do not cost more than a look at each.

    >>> wanted = pa.schema({"n": pa.int64()})
    >>> found, why = sift(READERS["json"], [b'{"n": 1}', b"n", b'{"n": 3}'], wanted)
    >>> found.rows.to_pylist(), found.message.tolist(), list(why)
    ([{'n': 1}, {'n': 3}], [0, 2], [1])
    """
    good, bad, todo = list[tuple[int, Decoded]](), dict[int, str](), [(0, len(values))]
    while todo:
        lb, ub = todo.pop()
        found = _tried(read, values[lb:ub], schema)
        if not isinstance(found, str):
            good.append((lb, found))
        elif ub - lb == 1:
            bad[lb] = found
        else:
            mid = (lb + ub) // 2
            todo += [(mid, ub), (lb, mid)]
    if len(good) < 2:
        (lb, one) = good[0] if good else (0, None)
        return one and Decoded(one.rows, one.message + lb), bad
    rows = _one(pa.Table.from_batches([part.rows for _, part in good]))
    return Decoded(rows, np.concatenate([part.message + lb for lb, part in good])), bad


def _tried(
    read: Callable[[Sequence[V], pa.Schema], Decoded], values: Sequence[V], schema: pa.Schema
) -> Decoded | str:
    """Read messages at once, or tell why they cannot be read."""
    try:
        return read(values, schema)
    except ConnectionError:
        raise  # nobody's fault
    except UnreadableError as error:
        return error.why
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]


def _json(values: Sequence[bytes], schema: pa.Schema, column: str = "") -> Decoded:
    data, message = b"\n".join(values), np.arange(len(values))
    if b"null" in data:  # Arrow's reader cannot have it in place of an object: it crashes
        whole = [at for at, value in enumerate(values) if value.strip(WHITE) != b"null"]
        if len(whole) < len(values):
            values, message = [values[at] for at in whole], np.array(whole, np.int64)
            data = b"\n".join(values)
    if not values:
        spelled(schema)
        return Decoded(pa.RecordBatch.from_pylist([], schema=schema), message)
    if not _is_an_object_a_line(data, len(values)):  # between its tokens, JSON has any white space
        data = b"\n".join([value.replace(b"\n", b" ").strip(WHITE) for value in values])
        if not _is_an_object_a_line(data, len(values)):
            raise pa.ArrowInvalid("it is no object")
    found = json.read_json(
        pa.BufferReader(data),
        json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        json.ParseOptions(explicit_schema=spelled(schema), unexpected_field_behavior="ignore"),
    )
    if found.num_rows != len(values):
        raise pa.ArrowInvalid(f"{len(values)} messages have {found.num_rows} objects")
    rows = _one(found)
    believe(rows)  # Arrow's reader takes any bytes for text
    return Decoded(_unspelled(rows, schema), message)


def spelled(schema: pa.Schema) -> pa.Schema:
    """Give the types that values of a schema have in JSON: what it has no word for is text.

    >>> spelled(pa.schema({"n": pa.int64(), "day": pa.date32()})).types
    [DataType(int64), DataType(string)]

    Raises:
        InputError: naming a column that cannot be read from JSON.
    """
    kinds = [_in_json(column.type) for column in schema]
    if None in kinds:
        column = schema.field(kinds.index(None))
        raise InputError(
            f"the column {column.name!r} cannot be read from JSON: it is of {column.type}"
        )
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def _in_json(kind: pa.DataType, *, within: bool = False) -> pa.DataType | None:
    """Give the type of a value in JSON; None: none that could be read, there or within another."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)  # which has digits to spare: they may be zeros
    if types.is_date(kind):
        return pa.string()
    if types.is_time(kind) or is_bytes(kind):
        return None if within else pa.string()
    if types.is_dictionary(kind):
        return _in_json(kind.value_type, within=True)
    if types.is_struct(kind):
        inner = [(field.name, _in_json(field.type, within=True)) for field in kind]
        return None if any(found is None for _, found in inner) else pa.struct(inner)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        found = _in_json(kind.value_type, within=True)
        return found and pa.list_(found)
    return kind if _plain(kind) else None


def _plain(kind: pa.DataType) -> bool:
    """Tell whether Arrow reads a type from JSON as it is."""
    types = pa.types
    numbers = types.is_integer(kind) or (types.is_floating(kind) and kind != pa.float16())
    others = types.is_decimal(kind) or types.is_timestamp(kind) or types.is_boolean(kind)
    return numbers or others or is_text(kind) or types.is_null(kind)


def _unspelled(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Make of text in JSON what it spells."""
    if rows.schema.types == schema.types:
        return rows
    columns = []
    for name, column, kind in zip(schema.names, rows.columns, schema.types, strict=True):
        try:
            columns.append(_as(column, kind))
        except (pa.ArrowInvalid, ValueError) as error:
            raise pa.ArrowInvalid(f"column {name!r} is no {kind}: {error}") from None
    return pa.record_batch(columns, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Make of a column of text what it spells: as `sinks.Kafka` writes it, and many others do."""
    if column.type == kind:
        return column
    if is_bytes(kind):
        found = [
            None if text is None else b64decode(text, validate=True) for text in column.to_pylist()
        ]
        return pa.array(found, kind)
    if pa.types.is_time(kind):
        moments = pc.binary_join_element_wise("1970-01-01T", column, "")
        finer = "ns" if kind.unit == "ns" else "us"
        return moments.cast(pa.timestamp(finer)).cast(pa.time64(finer)).cast(kind)
    return column.cast(kind)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column has text."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether a column has bytes."""
    fixed = pa.types.is_fixed_size_binary(kind)
    return fixed or kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_an_object_a_line(data: bytes, lines: int) -> bool:
    """Tell whether there are so many lines, each from `{` to `}`.

    Then each begins an object: whatever is not at its end where a line is cannot go on with a `{`. So
    as many objects as lines are one in each.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if len(ends) != lines - 1 or not data or b"\0" in data:  # a zero would end what Arrow reads
        return False
    edges = np.concatenate([[-1], ends, [len(data)]])
    if np.diff(edges).min() < 2:
        return False
    return bool(
        (text[edges[:-1] + 1] == ord("{")).all() and (text[edges[1:] - 1] == ord("}")).all()
    )


def _arrow(values: Sequence[bytes], schema: pa.Schema, column: str = "") -> Decoded:
    tables = [pa.ipc.open_stream(value).read_all() for value in values]
    for table in tables:
        table.validate(full=True)
    if missing := [name for name in schema.names for t in tables if name not in t.schema.names]:
        raise pa.ArrowInvalid(f"there is no column {missing[0]!r}")
    found = pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])
    counts = [table.num_rows for table in tables]
    return Decoded(_one(found), np.repeat(np.arange(len(values)), counts))


def _raw(values: Sequence[bytes], schema: pa.Schema, column: str = "value") -> Decoded:
    kind = schema.field(column).type if column in schema.names else pa.binary()
    found = pa.array(values, pa.binary()).cast(kind)
    return Decoded(pa.record_batch({column: found}), np.arange(len(values)))


def _one(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


READERS: Final = {"json": _json, "arrow": _arrow, "raw": _raw}
"""Of each form what reads messages, all or none: the columns of a schema, `raw` those of one column."""
