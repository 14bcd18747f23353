"""How long outputs are kept: until somebody has fetched them, or there are too many (`outputs`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import StateError
from meander.operators.base import Operator
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.outputs import ROWS_MAX

ADVICE: Final = "give `output_schema` in the class, and emit batches with it"


class Bell:
    """Tells whoever waits that there is more."""

    def __init__(self) -> None:
        self.count = 0
        """Rises with it."""
        self.changed = threading.Condition()
        """Notified then."""

    def ring(self) -> None:
        """Say so."""
        with self.changed:
            self.count += 1
            self.changed.notify_all()


class OutputNews(NamedTuple):
    """Tells of new outputs of a node. Nobody is woken for what he may not see."""

    kept: Bell
    """Of all."""
    shown: Bell
    """Of those that are shown: with checkpoints, when they are durable."""

    @classmethod
    def none(cls) -> OutputNews:
        """Make one that has nothing to tell yet."""
        return cls(Bell(), Bell())


class OutputKeeper:
    """Takes what tasks emit."""

    def __init__(
        self,
        operator: Operator[Any],
        *,
        gated: bool = False,
        rows_max: int = ROWS_MAX,
        keeps: bool = True,
        keeps_aside: bool = True,
        news: OutputNews | None = None,
    ) -> None:
        self.operator = operator
        self.gated = gated
        """Whether outputs are shown only when a record that holds them is durable."""
        self.rows_max = rows_max
        """Rows of outputs that a task keeps for whoever reads them."""
        self.keeps = keeps
        """Whether anybody may read them: else what is emitted is for other operators alone."""
        self.keeps_aside = keeps_aside
        """Whether anybody may read what is set aside."""
        self.news = news or OutputNews.none()
        """Hears of everything that is taken; None: nobody else's."""
        self._schema: pa.Schema | None = None
        """Of all that is kept; None: there was nothing yet."""

    def keep(self, app: AppState, emitted: Sequence[Any], aside: Sequence[Any] = ()) -> None:
        """Take what a task has emitted or set aside.

        The oldest go if they could be read and are too much.
        """
        for batch in emitted:
            if type(batch) is not pa.RecordBatch:
                why = f"it gave a {type(batch).__name__}, not a record batch"
                raise self.operator.failure_in("emit", app.task, StateError(why))
        shown = (*(emitted if self.keeps else ()), *(aside if self.keeps_aside else ()))
        for batch in shown:
            if batch.num_rows:
                app.outputs.add(self._alike(app, batch))
        if not self.gated:
            app.outputs.retain(self.rows_max, app.outputs.last - 1)
        if shown:
            self.news.kept.ring()
            if not self.gated:
                self.news.shown.ring()

    def _alike(self, app: AppState, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring a batch to the operator's `output_schema`, or to the columns of what came before.

        An answer has one schema: a batch with another would hold up all outputs of the node, for ever.
        """
        if self._schema is None:
            self._schema = self.operator.output_schema or batch.schema
        if batch.schema.equals(self._schema):
            return batch
        try:
            if self.operator.output_schema is None:
                self._schema = widened(self._schema, batch.schema)
            return cast_rows(batch, self._schema)
        except StateError as error:
            raise self.operator.failure_in("emit", app.task, error) from None

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Show outputs that are durable now; of those shown before, let go what is too much."""
        app.outputs.retain(self.rows_max, app.outputs.durable)
        if mark.outputs != app.outputs.durable:
            app.outputs.durable = mark.outputs
            self.news.shown.ring()


def widened(before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """Give the schema for rows of both: a column without a type gets one.

    >>> widened(pa.schema({"n": pa.null()}), pa.schema({"n": pa.int64()})).types
    [DataType(int64)]

    Raises:
        StateError: naming a column that is of two types, or only in one of them.
    """
    _check_names(before, now, "before")
    try:
        return pa.unify_schemas([before, now], promote_options="default")
    except pa.ArrowException:
        differ = [f for f in before if f.type != now.field(f.name).type]
        raise StateError(
            f"its column {differ[0].name!r} is {now.field(differ[0].name).type}, and was "
            f"{differ[0].type} before: {ADVICE}"
        ) from None


def cast_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give rows with the columns of a schema.

    Raises:
        StateError: naming a column that is missing, unknown, or of a type that cannot be cast.
    """
    _check_names(schema, batch.schema, "in its output_schema")
    columns = []
    for field in schema:
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            text = " ".join(str(error).split())
            raise StateError(f"its column {field.name!r} is no {field.type}: {text}") from None
    return pa.record_batch(columns, schema=schema)


def _check_names(wanted: pa.Schema, found: pa.Schema, where: str) -> None:
    names = found.names
    for name in wanted.names:
        if names.count(name) != 1:
            raise StateError(f"it has the columns {names}, and once {name!r} is {where}: {ADVICE}")
    if len(names) > len(wanted.names):
        odd = next(name for name in names if name not in wanted.names)
        raise StateError(f"its column {odd!r} is not {where}: {ADVICE}")
