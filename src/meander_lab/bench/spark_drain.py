"""A sink in Python that takes the rows and drops them: what no Python sink can be faster than.

Spark hands its rows to Python as Arrow batches, over a socket. `noop` never leaves the JVM; the
distance between the two is the price of the Python Data Source API, whoever uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


class Drain(DataSource):
    """The source `meander-drain`."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return "meander-drain"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DrainWriter:  # noqa: N802
        """Make a writer."""
        return DrainWriter()


class DrainWriter(DataSourceStreamArrowWriter):
    """Looks at the length of every batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take a partition."""
        for batch in iterator:
            len(batch)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""
