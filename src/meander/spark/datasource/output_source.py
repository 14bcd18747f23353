"""What an operator emits, as a streaming DataFrame.

An offset is the last output of each task (`runtime.clients.output_scripts`). It means the same
wherever a task lives, so a rescale changes nothing, and a query that starts again from its
checkpoint goes on behind what it has committed. What a query has committed is released at the
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from meander.errors import InputError
from meander.runtime.clients.driver_client import DeploymentInfo, desk_of
from meander.runtime.clients.output_reader import OutputReader
from meander.runtime.clients.output_scripts import OutputSpan
from meander.spark.datasource.options import OUTPUTS, check_options
from meander.spark.datasource.rows import as_spark, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from meander.spark.datasource.format import MeanderSource

STARTS = ("earliest", "latest")


def output_columns(about: DeploymentInfo) -> StructType:
    """Give the columns of an operator's outputs.

    Raises:
        InputError: if it does not say them.
    """
    if about.output_schema is None:
        raise InputError(
            f"{about.operator} does not say what it emits: set its attribute output_schema to the "
            "Arrow schema of what it gives to context.emit (KeyedAggregate: emit_updates=True)"
        )
    return spark_schema(about.output_schema)


class OutputPartition(InputPartition):
    """Some tasks' outputs."""

    def __init__(self, spans: Sequence[OutputSpan]) -> None:
        self.spans = list(spans)


class OutputSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads outputs. Holds plain values only: `read` runs in executors."""

    def __init__(self, source: MeanderSource, schema: StructType) -> None:
        """Check the options.

        Raises:
            InputError: for an option that cannot be, or if columns of a state were asked for.
        """
        check_options(source.options, OUTPUTS, "a stream of outputs")
        self.address, self.credentials = source.address, source.credentials
        self.lossy = not flag(source.options.get("failOnDataLoss"), "failOnDataLoss", True)
        self.releases = flag(source.options.get("release"), "release", True)
        self.start = str(source.options.get("startingOffsets", "earliest")).lower()
        if self.start not in STARTS:
            raise InputError(f"startingOffsets is one of {', '.join(STARTS)}, not {self.start!r}")
        self.output = source.options.get("output")
        wanted = output_columns(source.desk().about(output=self.output))
        if schema.fieldNames() != wanted.fieldNames():
            raise InputError(
                "a stream has the columns of outputs: say .option('read', 'outputs') where the session "
                f"did not deploy the operator. They are {', '.join(wanted.fieldNames())}"
            )
        self.schema = schema
        self._target: dict[str, Any] | None = None

    def _reader(self) -> OutputReader:
        desk = desk_of(self.address, self.credentials)
        return OutputReader(desk, fail_on_data_loss=not self.lossy, output=self.output)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Say where a new query begins."""
        reader = self._reader()
        return reader.earliest() if self.start == "earliest" else reader.latest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Read what there is."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Say how far outputs go; with `availableNow`, no further than they went when it began."""
        reader = self._reader()
        latest = reader.latest(start)
        return latest if self._target is None else reader.upto(start, latest, self._target)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep to what is there now."""
        self._target = self._reader().latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a micro-batch into one partition per node."""
        return [OutputPartition(spans) for spans in self._reader().spans(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch a partition from whoever has its tasks now."""
        assert isinstance(partition, OutputPartition)
        for table in self._reader().read(partition.spans):
            yield from as_spark(table, self.schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Release what is done."""
        if self.releases:
            self._reader().release(end)

    def stop(self) -> None:
        """Nothing is open."""


def flag(text: str | None, name: str, default: bool) -> bool:
    """Read an option that is true or false.

    >>> flag("False", "release", True), flag(None, "release", True)
    (False, True)
    """
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InputError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"
