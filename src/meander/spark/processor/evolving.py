"""State of an older schema: fields that came, went, or became wider, as Spark has it.

    a field that is new          null
    a field that is gone         left out
    another order of fields      by name
    int to long, float to double and the like     the same number

Anything else is another state: `migrate` makes this one of it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

WIDER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
"""What a number may become without losing anything."""


def grows(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether what was written with one type can be read with another.

    >>> one, two = pa.struct({"n": pa.int32()}), pa.struct({"n": pa.int64(), "at": pa.date32()})
    >>> grows(one, two), grows(two, pa.struct({"at": pa.date32()})), grows(two, one)
    (True, True, False)
    """
    if old == new or new in WIDER.get(old, ()):
        return True
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        before = {field.name: field.type for field in old}
        return all(grows(before[f.name], f.type) for f in new if f.name in before)
    if types.is_map(old) and types.is_map(new):
        return grows(old.key_type, new.key_type) and grows(old.item_type, new.item_type)
    both = types.is_list(old) and types.is_list(new)
    return both and grows(old.value_type, new.value_type)


def grown(column: pa.Array, new: pa.DataType) -> pa.Array:
    """Read a column with a type that its own grows to.

    >>> old = pa.array([{"n": 1}, None], pa.struct({"n": pa.int32()}))
    >>> grown(old, pa.struct({"n": pa.int64(), "by": pa.string()})).to_pylist()
    [{'n': 1, 'by': None}, None]
    """
    if column.type == new:
        return column
    types, gone = pa.types, column.is_null()
    if types.is_struct(new):
        fields = {field.name: i for i, field in enumerate(column.type)}
        parts = [
            grown(pc.struct_field(column, [fields[f.name]]), f.type)
            if f.name in fields
            else pa.nulls(len(column), f.type)
            for f in new
        ]
        return pa.StructArray.from_arrays(parts, fields=list(new), mask=gone)
    if types.is_map(new):
        keys, values = grown(column.keys, new.key_type), grown(column.items, new.item_type)
        offsets = _offsets(column)
        return pa.MapArray.from_arrays(offsets, keys, values, type=new)
    if types.is_list(new):
        return pa.ListArray.from_arrays(_offsets(column), grown(column.values, new.value_type), new)
    return column.cast(new)


def _offsets(column: pa.Array) -> pa.Array:
    """Give the offsets of lists or maps; a null where there is none."""
    ends = column.offsets
    gone = pa.concat_arrays([column.is_null(), pa.array([False])])
    return pc.if_else(gone, pa.scalar(None, ends.type), ends) if column.null_count else ends
