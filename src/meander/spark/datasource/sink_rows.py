"""What a sink does to rows before they are staged: rows without a key, texts that become words.

Texts may be cut into words here instead of in Spark. That is what `explode` does, but Spark then hands
over texts, not words, and handing rows to Python is what costs most (`docs/bench-spark.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from meander.errors import InputError
from meander.runtime.clients.given import valid_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from meander.runtime.clients.driver_client import DeploymentInfo

CUTS = ("spaces", "letters")
"""As `explode(split(text, ' '))` without the empty ones; as `meander.spark.pipeline.words` has it."""


def check_words(column: str, cut: str, schema: StructType, about: DeploymentInfo) -> None:
    """See that texts can be cut into what an operator takes.

    Raises:
        InputError: if not.
    """
    import pyarrow as pa
    from pyspark.sql.types import StringType

    if cut not in CUTS:
        raise InputError(f"cut is one of {', '.join(CUTS)}, not {cut!r}")
    if column not in schema.fieldNames() or not isinstance(schema[column].dataType, StringType):
        raise InputError(
            f"words is the name of a column of strings, not {column!r}: the rows have "
            f"{', '.join(schema.fieldNames()) or 'none'}"
        )
    if list(about.schema.types) not in ([pa.string()], [pa.large_string()]):
        raise InputError(
            f"the option words is for an operator with one column of strings; {about.operator} has "
            f"{', '.join(about.schema.names)}: explode the texts in Spark"
        )


def words_of(
    batches: Iterable[pa.RecordBatch], column: str, name: str, cut: str
) -> Iterator[pa.RecordBatch]:
    """Cut a column of texts into words, which are all that goes on.

    >>> import pyarrow as pa
    >>> rows = [pa.record_batch({"text": ["To be,  or not", None]})]
    >>> [batch["word"].to_pylist() for batch in words_of(rows, "text", "word", "spaces")]
    [['To', 'be,', 'or', 'not']]
    >>> [batch["word"].to_pylist() for batch in words_of(rows, "text", "word", "letters")]
    [['to', 'be', 'or', 'not']]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from meander.operators import tokenise

    for batch in batches:
        if cut == "letters":
            words = tokenise(batch.column(column)).words
        else:
            words = pc.list_flatten(pc.split_pattern(batch.column(column), " "))
            words = words.filter(pc.not_equal(words, ""))
        yield pa.record_batch([words], names=[name])


def check_zones(schema: StructType, about: DeploymentInfo) -> None:
    """Refuse times without a zone where the operator has moments: Spark reads them in the session's
    zone, and nobody here knows that one.

    Raises:
        InputError: naming the column, and what to do.
    """  # noqa: D205
    import pyarrow as pa
    from pyspark.sql.types import TimestampNTZType

    for field in about.schema:
        zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
        if zoned and isinstance(schema[field.name].dataType, TimestampNTZType):
            raise InputError(
                f"column {field.name!r} is timestamp_ntz, a time without a zone, and {about.operator} "
                "has moments: say whose time it is before writing, in the session's zone with "
                f"df.withColumn({field.name!r}, F.col({field.name!r}).cast('timestamp'))"
            )


def begun_with(about: DeploymentInfo) -> pa.Schema:
    """Give the columns of rows of a state that an operator takes, and writes.

    Raises:
        InputError: if it has none.
    """
    import pyarrow as pa

    from meander.operators.base import STATE_ROWS

    if about.adopted_schema is None:
        raise InputError(
            f"{about.operator} has no adopted_schema: nothing can begin with its state"
        )
    return pa.schema([field for field in about.adopted_schema if field.name != STATE_ROWS])


def marked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Mark rows as those of a state."""
    import pyarrow as pa

    from meander.operators.base import STATE_ROWS

    return batch.append_column(STATE_ROWS, pa.nulls(batch.num_rows))


def with_keys(
    batches: Iterable[pa.RecordBatch], keys: tuple[str, ...], mode: str
) -> Iterator[pa.RecordBatch]:
    """Treat rows whose key is null as the user wants.

    >>> import pyarrow as pa
    >>> rows = [pa.record_batch({"word": ["a", None]})]
    >>> [batch["word"].to_pylist() for batch in with_keys(rows, ("word",), "drop")]
    [['a']]

    Raises:
        InputError: with `refuse`, counting such rows in the whole partition.
    """
    nulls = rows = 0
    column = ""
    for batch in batches:
        found = next((key for key in keys if batch.column(key).null_count), None)
        rows += batch.num_rows
        if found is None or mode == "keep":
            if not nulls:
                yield batch
            continue
        whole = valid_keys(batch, keys)
        if mode == "drop":
            yield batch.filter(whole)
            continue
        nulls, column = nulls + batch.num_rows - whole.true_count, column or found
    if nulls:
        raise InputError(
            f"{nulls} of {rows} rows of this partition have no value in key column {column!r}: filter "
            "them out, or say .option('nullKeys', 'keep') for null as a key of its own (as GROUP BY "
            "has it) or 'drop' to leave them out. Nothing of the batch was applied"
        )
