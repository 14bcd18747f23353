"""Rows that an operator cannot take, set aside instead of ending everything: `on_error="collect"`.

They come out with the others, each as a row without values but for two columns more, so they are there
exactly once, as any output is:

    error       what was raised
    error_row   the row, as JSON; of a timer its key and time

In a topology they do not go where the output goes. An edge from the output `errors` leads them
elsewhere; without one, readers of the operator's output have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from meander.errors import InputError
from meander.operators.base import Context

ERRORS: Final = "errors"
"""The output of what was set aside, where an edge of a topology names it."""
ERROR, ERROR_ROW = "error", "error_row"
MODES: Final = ("raise", "collect")
COLUMNS: Final = (pa.field(ERROR, pa.string()), pa.field(ERROR_ROW, pa.string()))
TEXT_MAX: Final = 4096
"""Characters of an error that are kept."""


def with_errors(output: pa.Schema) -> pa.Schema:
    """Add the columns to the schema of what an operator emits.

    Raises:
        InputError: if it has one of that name.

    >>> with_errors(pa.schema({"user": pa.string()})).names
    ['user', 'error', 'error_row']
    """
    taken = [field.name for field in COLUMNS if field.name in output.names]
    if taken:
        raise InputError(f'the output has a column {taken[0]!r}: on_error="collect" adds one')
    return pa.schema([*output, *COLUMNS])


class Letters:
    """What was set aside in one call of the operator."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = with_errors(output)
        self._rows: list[dict[str, str]] = []

    def add(self, error: Exception, rows: Iterable[Any]) -> None:
        """Set rows aside, each as a mapping or whatever else JSON can be made of."""
        text = f"{type(error).__name__}: {error}"[:TEXT_MAX]
        self._rows += [{ERROR: _clean(text), ERROR_ROW: _json(row)} for row in rows]

    def widened(self, emitted: pa.RecordBatch) -> pa.RecordBatch:
        """Give what was emitted in the columns of both."""
        nothing = [pa.nulls(emitted.num_rows, field.type) for field in COLUMNS]
        return pa.record_batch([*emitted.columns, *nothing], schema=self._output)

    def send(self, context: Context) -> None:
        """Let what was set aside go."""
        if self._rows:
            context.aside.append(pa.RecordBatch.from_pylist(self._rows, schema=self._output))


def _json(row: Any) -> str:
    return _clean(json.dumps(row, default=str))


def _clean(text: str) -> str:
    """Leave out what no column of texts holds: half of a character."""
    return text.encode("utf-8", "backslashreplace").decode()
