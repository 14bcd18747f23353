"""States by key: which task a key belongs to, who has it, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.topology import Topology

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

ROWS_MAX = 50
"""Shown of one key."""
CHARACTERS_MAX = 300
"""Shown of one value."""
READ_S_MAX = 10.0


def key_columns(
    schema: pa.Schema, keys: tuple[str, ...], told: Mapping[str, str]
) -> list[pa.Array]:
    """Read what was typed as the columns of a key.

    >>> key_columns(pa.schema({"id": pa.int64()}), ("id",), {"id": "7"})[0].to_pylist()
    [7]

    Raises:
        InputError: if a column is missing, or is of another type.
    """
    found = []
    for name in keys:
        if name not in told:
            raise InputError(f"the key needs a value for {name}")
        kind = schema.field(name).type
        try:
            found.append(pa.array([told[name]], pa.string()).cast(kind))
        except pa.ArrowException:
            raise InputError(f"{told[name]!r:.100} is no {kind} ({name})") from None
    return found


def state_of(op: ElasticOperator, told: Mapping[str, str]) -> dict[str, Any]:
    """Find the state of a key.

    Raises:
        InputError: for what is no key.
        MeanderError: if its task cannot be read.
    """
    operator, driver = op.driver.operator, op.driver
    if isinstance(operator, Topology):
        raise InputError(
            "states of several operators are not found by key here: read op.state(name)"
        )
    columns = key_columns(operator.schema, operator.keys, told)
    task = int(tasks_of(hash_columns(columns), driver.tasks)[0])
    table = driver.reader().state(driver.places, READ_S_MAX, [task])
    of_task = table.num_rows
    has_key = all(name in table.schema.names for name in operator.keys)
    if has_key:
        for name, column in zip(operator.keys, columns, strict=True):
            same = pc.equal(table[name], column[0].cast(table.schema.field(name).type))
            table = table.filter(same)
    names = [name for name in table.schema.names if name not in ("task", "node", "as_of")]
    return {
        "task": task,
        "node": driver.owners()[task],
        "rows_of_task": of_task,
        "by_key": has_key,
        "count": table.num_rows,
        "columns": names,
        "rows": [
            [_text(value) for value in row.values()]
            for row in table.select(names).slice(0, ROWS_MAX).to_pylist()
        ],
    }


def _text(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}…"
