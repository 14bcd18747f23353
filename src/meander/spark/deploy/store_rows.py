"""The state of a Structured Streaming query as rows that an operator begins with.

It is read through Spark's own data source (`statestore`), by Spark's tasks:

    an aggregation        key, value: the buffers of its functions, one after another in the order of
                          the query's `agg`, without names that tell them apart: only what kind of
                          buffer each is, and of what sort of values
    transformWithState    state variables and timers, each read by itself, joined by key
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from meander.errors import InputError
from meander.operators.aggregates import Aggregate
from meander.operators.base import Operator
from meander.operators.keyed import KeyedAggregate
from meander.spark.processor.adopting import TIMERS
from meander.spark.processor.operator import ProcessorOperator
from meander.spark.processor.state import EXPIRES, Variable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUFFERS: Final = {
    "count": ("count",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("sum", "count"),
    "last": ("last", "valueSet"),
}
"""What Spark keeps for each function, by the names that its state has."""
WHOLE: Final = "whole numbers"
FLOATING: Final = "floating numbers"
DECIMAL: Final = "decimals"
SORTS: Final[dict[str, tuple[tuple[type[DataType], ...], Callable[[pa.DataType], bool]]]] = {
    WHOLE: ((IntegralType,), pa.types.is_integer),
    FLOATING: ((FloatType, DoubleType), pa.types.is_floating),
    DECIMAL: ((DecimalType,), pa.types.is_decimal),
    "times": ((TimestampType, TimestampNTZType), pa.types.is_timestamp),
    "dates": ((DateType,), pa.types.is_date),
    "booleans": ((BooleanType,), pa.types.is_boolean),
}
"""Sorts of values that are not taken for each other: Spark's types and Arrow's."""
AGGREGATION: Final = "stateStoreSave"
"""What Spark calls the operator of an aggregation."""
ENDS: Final = "ttlExpirationMs"


class StateStore:
    """The state of one operator of a query, behind a batch."""

    def __init__(self, spark: SparkSession, location: str, batch: int, operator_id: int) -> None:
        self._spark, self._location = spark, location
        self._options = {"batchId": str(batch), "operatorId": str(operator_id)}
        self._id = operator_id

    def read(self, **options: str) -> DataFrame:
        """Read it; options as Spark's data source has them."""
        reader = self._spark.read.format("statestore").options(**self._options, **options)
        return reader.load(self._location)

    def facts(self) -> dict[str, Any]:
        """Tell what Spark knows of the operator: its name and, of a processor, its properties."""
        told = self._spark.read.format("state-metadata").load(self._location).collect()
        mine = [row for row in told if row.operatorId == self._id]
        if not mine:
            raise InputError(f"the query has no state of an operator {self._id}: {told}")
        return {"name": mine[0].operatorName, **json.loads(mine[0].operatorProperties or "{}")}


def rows_for(store: StateStore, operator: Operator[Any]) -> DataFrame:
    """Read a state in columns that an operator begins with.

    Raises:
        InputError: if the operator is of another kind than what the query did, naming both.
    """
    facts = store.facts()
    if isinstance(operator, ProcessorOperator) and "stateVariables" in facts:
        return _variables(store, facts, operator)
    if isinstance(operator, KeyedAggregate) and facts["name"] == AGGREGATION:
        return _aggregates(store.read(), operator)
    raise InputError(
        f"{operator.name} cannot go on from {facts['name']}: aggregates by key (KeyedAggregate) go on "
        "from groupBy().agg(), processors (meander.processor) from transformWithState"
    )


# --------------------------------------------------------------------------- aggregations


def _aggregates(state: DataFrame, operator: KeyedAggregate) -> DataFrame:
    layout = operator.layout
    fields = state.schema["value"].dataType.fields  # type: ignore[attr-defined]
    check_buffers(fields, operator)
    kinds = [field.dataType for field in fields]
    plain = StructType([StructField(f"b{i}", kind) for i, kind in enumerate(kinds)])
    columns, at = _keys(state, operator.keys), 0
    rows = state.select("key", F.col("value").cast(plain).alias("value"))
    given = set[str]()
    for name, made in layout.aggregates.items():
        buffers = [F.col(f"value.b{at + i}") for i in range(len(BUFFERS[made.function]))]
        at += len(buffers)
        if made.function == "mean":
            for cell, buffer in zip(layout.cells_of(made), buffers, strict=True):
                if cell.name not in given:
                    columns.append(F.coalesce(buffer, F.lit(0)).alias(cell.name))
                    given.add(cell.name)
        else:
            columns.append(buffers[0].alias(name))
    return rows.select(*columns)


def check_buffers(fields: Sequence[StructField], operator: KeyedAggregate) -> None:
    """Refuse aggregates whose buffers are not those of the query, as far as its state tells.

    Buffers of the same names and sorts of values are taken for the declared ones: the state does not
    say which columns they are of.

    Raises:
        InputError: with what the query keeps, and what the operator needs.
    """
    found = [(field.name, _sort_of(field.dataType)) for field in fields]
    made = operator.layout.aggregates
    wanted = [told for a in made.values() for told in _buffers_of(a, operator.schema)]
    same = len(found) == len(wanted) and all(map(_fits, found, wanted))
    if same and all(a.by is None for a in made.values()):
        return
    raise InputError(
        f"the query keeps {_told(found)}, and {operator.name} needs {_told(wanted)}: "
        "declare the aggregates as the query's agg does, in its order, over columns of its types"
    )


def _buffers_of(made: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """Name what Spark keeps for an aggregate, and the sort of values in it; "": any."""
    sorts = {"count": WHOLE, "valueSet": "", "sum": FLOATING}  # of a mean
    if made.function != "mean" and made.column is not None:
        sorts[BUFFERS[made.function][0]] = (
            WHOLE if made.function == "count" else _sort_of_arrow(schema.field(made.column).type)
        )
    return [(name, sorts[name]) for name in BUFFERS[made.function]]


def _sort_of(kind: DataType) -> str:
    """Say what sort of values a column of Spark's has; "": it is not compared.

    >>> [_sort_of(kind) for kind in (DecimalType(), FloatType(), TimestampType())]
    ['decimals', 'floating numbers', 'times']
    """
    return next((sort for sort, (theirs, _) in SORTS.items() if isinstance(kind, theirs)), "")


def _sort_of_arrow(kind: pa.DataType) -> str:
    """Say the same of a column of the operator's."""
    return next((sort for sort, (_, ours) in SORTS.items() if ours(kind)), "")


def _fits(found: tuple[str, str], wanted: tuple[str, str]) -> bool:
    """Whether a buffer may be what is needed; decimals are taken as whole or floating numbers."""
    (name, sort), (needed, of) = found, wanted
    numbers = sort == DECIMAL and of in (WHOLE, FLOATING)
    return name == needed and (sort == of or not sort or not of or numbers)


def _told(buffers: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({sort})" if sort else name for name, sort in buffers)


def _keys(state: DataFrame, keys: tuple[str, ...]) -> list[Column]:
    """Name the key's columns as the operator does: by name, else by place."""
    fields = [field.name for field in state.schema["key"].dataType.fields]  # type: ignore[attr-defined]
    if len(fields) != len(keys):
        raise InputError(f"the query groups by {', '.join(fields)}, not by {', '.join(keys)}")
    same = set(fields) == set(keys)
    pairs = [(key, key) for key in keys] if same else list(zip(fields, keys, strict=True))
    return [F.col(f"key.`{field}`").alias(key) for field, key in pairs]


# --------------------------------------------------------------------------- processors


def _variables(store: StateStore, facts: dict[str, Any], operator: ProcessorOperator) -> DataFrame:
    """Read each variable and the timers, and put what belongs to one key together."""
    there = {one["stateName"] for one in facts["stateVariables"]}
    parts, layout = [], operator.layout
    declared = {variable.name for variable in layout.variables}
    unknown = {name for name in there if not name.startswith("$")} - declared - layout.deleted
    if unknown or facts["timeMode"].lower() != operator.mode.lower():
        raise InputError(
            f"the query's processor has the time mode {facts['timeMode']} and the variables "
            f"{', '.join(sorted(there))}; {operator.name} has {operator.mode} and "
            f"{', '.join(sorted(declared))}: declare them, or delete them (deleteIfExists)"
        )
    for variable in layout.variables:
        if variable.name in there:
            one = store.read(stateVarName=variable.name, flattenCollectionTypes="false")
            parts.append(one.select(*_keys(one, operator.keys), *_contents(variable)))
    if any(name.startswith("$") and "imers" in name for name in there):
        timers = store.read(readRegisteredTimers="true")
        columns = [*_keys(timers, operator.keys), F.col("expiration_timestamp_ms")]
        by_key = timers.select(*columns).groupBy(*operator.keys)
        parts.append(by_key.agg(F.collect_list("expiration_timestamp_ms").alias(TIMERS)))
    if not parts:
        raise InputError(f"{operator.name} has no state to go on from")
    return parts[0] if len(parts) == 1 else _joined(parts, operator.keys)


def _joined(parts: list[DataFrame], keys: tuple[str, ...]) -> DataFrame:
    """Put rows of one key together; a null is a key like any other."""
    whole = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
    rest = [name for name in whole.columns if name not in keys]
    chosen = [F.first(f"`{name}`", ignorenulls=True).alias(name) for name in rest]
    return whole.groupBy(*keys).agg(*chosen)


def _contents(variable: Variable) -> list[Column]:
    """Give the column of a variable and, with a time to live, until when it lives."""
    shown = F.col({"value": "value", "list": "list_value", "map": "map_value"}[variable.kind])
    if variable.ttl_ms is None:
        return [shown.alias(variable.name)]
    if variable.kind == "value":
        content, ends = shown["value"], shown[ENDS]
    elif variable.kind == "list":
        content, ends = F.transform(shown, _value), F.transform(shown, _end)
    else:
        content = F.transform_values(shown, lambda _, pair: pair["value"])
        ends = F.transform(F.map_values(shown), _end)
    return [content.alias(variable.name), ends.alias(variable.name + EXPIRES)]


def _value(pair: Column) -> Column:
    return pair["value"]


def _end(pair: Column) -> Column:
    return pair[ENDS]
