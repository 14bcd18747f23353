"""Values of a processor's state: checked when they are written, and laid out as Arrow when they move.

Spark sends every value through its JVM, so a wrong one shows at once (or becomes null without a word).
Here it is checked against the declared schema when it is written: an error then names the state
variable and the field, and no value can turn out not to fit when its task moves. What is read back is
what Spark would give: a timestamp is a naive datetime of the process's own time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from meander.errors import InputError
from meander.operators.timers import NAN

BITS: Final[dict[type, int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
PLAIN: Final[dict[type, tuple[type, ...]]] = {
    BooleanType: (bool,),
    DateType: (date,),
    TimestampType: (datetime,),
    TimestampNTZType: (datetime,),
}
GOOD: Final[dict[type, type]] = {
    StringType: str,
    BooleanType: bool,
    DoubleType: float,
    LongType: int,
}
"""Values of just this type need no look at them; a whole number must have 64 bits, and a text UTF-8."""
LOW, HIGH = -(1 << 63), (1 << 63) - 1
NESTED: Final = (ArrayType, MapType, StructType)

Values: TypeAlias = tuple[Any, ...]
"""A row of a state variable: a value to each field of its schema."""
Fit = Callable[[Any], Any]


def fitter(kind: DataType) -> Fit:
    """Make the function that checks a value of a type and gives a copy of it.

    It raises TypeError or ValueError for what does not fit.
    """
    make = _fitter(kind)
    return lambda value: None if value is None else make(value)


def _fitter(kind: DataType) -> Fit:
    if type(kind) in BITS:
        return _whole(BITS[type(kind)])
    if isinstance(kind, FloatType | DoubleType):
        return _single if isinstance(kind, FloatType) else _number
    if isinstance(kind, BinaryType):
        return _bytes
    if isinstance(kind, ArrayType):
        item = fitter(kind.elementType)
        return lambda values: [item(_plain(v)) for v in _of(values, list, tuple)]
    if isinstance(kind, MapType):
        key, value = _key_fitter(kind.keyType), fitter(kind.valueType)
        return lambda pairs: {key(_plain(k)): value(_plain(v)) for k, v in _of(pairs, dict).items()}
    if isinstance(kind, StructType):
        return row_fitter(kind)
    if isinstance(kind, StringType):
        return _text
    if isinstance(kind, DecimalType):
        return _decimal(kind.precision, kind.scale)
    if isinstance(kind, DayTimeIntervalType):
        return _interval
    if type(kind) in PLAIN:
        types = PLAIN[type(kind)]
        return lambda value: _of(value, *types)
    raise InputError(f"a state cannot hold {kind.simpleString()}: use a type that Arrow has")


def converts(schema: StructType) -> bool:
    """Whether a schema has times or the like, which Spark keeps as numbers."""
    return any(field.needConversion() for field in schema.fields)


def row_fitter(schema: StructType) -> Callable[[Any], Values]:
    """Make the function that checks a tuple against a schema and gives a copy of it."""
    fits = [(field.name, fitter(field.dataType)) for field in schema.fields]
    good = [GOOD.get(type(field.dataType)) for field in schema.fields]
    plain_row = tuple(good) if None not in good else ()
    whole = [i for i, kind in enumerate(good) if kind is int]
    floats = [i for i, kind in enumerate(good) if kind is float]
    texts = [i for i, kind in enumerate(good) if kind is str]

    def fit(row: Any) -> Values:
        if isinstance(row, dict):  # as Spark takes a struct within a struct
            row = tuple(row.get(name) for name, _ in fits)
        elif isinstance(row, str) and len(fits) == 1:  # Spark takes a text of one letter so
            row = (row,)
        values = tuple(_of(row, tuple, list))
        if plain_row and tuple(map(type, values)) == plain_row:
            for i in whole:
                if not LOW <= values[i] <= HIGH:
                    break
            else:
                if all(values[i].isascii() for i in texts) and all(
                    values[i] == values[i] for i in floats
                ):
                    return values
        if len(values) != len(fits):
            raise ValueError(f"it has {len(values)} fields, and {len(fits)} are declared")
        found = []
        for (name, make), value in zip(fits, values, strict=True):
            try:
                found.append(make(_plain(value)))
            except (TypeError, ValueError) as error:
                raise type(error)(f"field {name!r}: {error}") from None
        return (
            tuple(schema.fromInternal(schema.toInternal(tuple(found)))) if turns else tuple(found)
        )

    turns = converts(schema)
    return fit


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "dtype") else value  # a NumPy scalar


def _of(value: Any, *types: type) -> Any:
    if not isinstance(value, types):
        raise TypeError(f"{value!r:.60} is no {' or '.join(t.__name__ for t in types)}")
    return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value  # a pandas Timestamp


def _whole(bits: int) -> Fit:
    low, high = -(1 << (bits - 1)), 1 << (bits - 1)

    def fit(value: Any) -> int:
        if type(value) is not int:
            raise TypeError(f"{value!r:.60} is no whole number")
        if not low <= value < high:
            raise ValueError(f"{value} has more than {bits} bits")
        return value

    return fit


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r:.60} is no number")
    return NAN if value != value else float(value)  # noqa: PLR0124 (it may be a key)


def _single(value: Any) -> float:
    return _number(pa.scalar(_number(value), pa.float32()).as_py())


def _bytes(value: Any) -> bytes:
    return bytes(_of(value, bytes, bytearray))


def _text(value: Any) -> str:
    text: str = _of(value, str)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text!r:.60} cannot be written as UTF-8") from None
    return text


def _decimal(precision: int, scale: int) -> Fit:
    """Round to the scale, as Spark does; too many digits then, or no number, do not fit."""
    step, room = Decimal(1).scaleb(-scale), Context(precision, ROUND_HALF_UP)

    def fit(value: Any) -> Decimal:
        found: Decimal = _of(value, Decimal)
        if not found.is_finite():
            raise ValueError(f"{found} is no finite number")
        try:
            return found.quantize(step, context=room)
        except InvalidOperation:
            text = f"{found} has more digits than decimal({precision},{scale})"
            raise ValueError(text) from None

    return fit


def _interval(value: Any) -> timedelta:
    found: timedelta = _of(value, timedelta)
    if not LOW <= found // timedelta(microseconds=1) <= HIGH:
        raise ValueError(f"{found!r:.60} has more than 64 bits of microseconds")
    return found


def _key_fitter(kind: DataType) -> Fit:
    make = _fitter(kind)

    def fit(key: Any) -> Any:
        if key is None:
            raise ValueError("a key of a map cannot be None")
        return make(key)

    return fit


# --------------------------------------------------------------------------- Arrow


def arrow_type(schema: StructType) -> pa.DataType:
    """Give the Arrow type of a schema's rows.

    Raises:
        InputError: for a type that Arrow has not, or two fields of one name.
    """
    names = [field.name for field in schema.fields]
    if len(set(names)) < len(names) or not names:
        raise InputError(f"a state needs fields with names of their own, not {names}")
    for field in schema.fields:
        fitter(field.dataType)
    try:
        return to_arrow_type(schema, timezone="UTC")
    except Exception as error:  # pyspark raises several kinds
        raise InputError(f"Arrow cannot hold {schema.simpleString()}: {error}") from None


def internal(schema: StructType, rows: list[Any]) -> list[Any]:
    """Write rows as Arrow takes them: times as numbers, whatever the process's time zone."""
    if not converts(schema):
        return rows
    return [None if row is None else schema.toInternal(row) for row in rows]


def plain_reader(kind: DataType) -> Fit:
    """Make the function that turns what Arrow gives for a type into what a processor had written."""
    if isinstance(kind, StructType):
        fields = [(f.name, plain_reader(f.dataType)) for f in kind.fields]
        return lambda row: None if row is None else tuple(read(row[n]) for n, read in fields)
    if isinstance(kind, ArrayType):
        item = plain_reader(kind.elementType)
        return lambda values: None if values is None else [item(v) for v in values]
    if isinstance(kind, MapType):
        key, value = plain_reader(kind.keyType), plain_reader(kind.valueType)
        return lambda pairs: None if pairs is None else {key(k): value(v) for k, v in pairs}
    if isinstance(kind, FloatType | DoubleType):
        return lambda value: NAN if value != value else value  # noqa: PLR0124
    return lambda value: value


def row_reader(schema: StructType) -> Callable[[Any], Values]:
    """Make the function that reads a row of Arrow's struct type."""
    read, turns = plain_reader(schema), converts(schema)

    def row(value: Any) -> Values:
        found: Values = read(value)
        return tuple(schema.fromInternal(schema.toInternal(found))) if turns else found

    return row
