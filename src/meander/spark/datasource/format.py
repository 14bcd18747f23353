"""`format("meander")`: the data source that Spark's readers and writers find under this name.

    df.writeStream.format("meander").option("operator", op.address)    micro-batches in   (sink)
    df.write.format("meander").option("operator", op.address)          a backfill         (sink)
    spark.readStream.format("meander").option("operator", op.address)  what it emits      (source)
    spark.read.format("meander").option("operator", op.address)        its state          (state)

Spark makes an instance of this class in Python processes of its own, over and over, and knows nothing
but its options. Two things have to get there by other ways:

  * **The token.** It must not be an option that everybody types, prints and logs. `register` makes a
    subclass that holds the credentials of the session's operators; Spark pickles it like any closure.
    From another application, `.option("token", …)` works, and Spark redacts an option of that name.
  * **Whether a stream or a table is read.** Spark asks for the columns before it says so, and outputs
    have other columns than a state. `register` therefore has `spark.readStream.format("meander")` add
    `.option("read", "outputs")`, which can as well be written out. It changes `DataStreamReader.format`
    for the whole process, since nothing smaller does: Spark's planner makes the source and asks it for
    its columns in the same step for `read` and `readStream`, hands over nothing but options, and takes
    the answer for the table's columns whoever reads; and a name registered with `spark.dataSource` has
    one class for both. Other names of sources, and other options, are left as they are.

This module is imported in those processes, which start cold: nothing heavy is imported at its top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.readwriter import DataStreamReader

from meander.errors import InputError
from meander.runtime.clients.driver_client import DriverClient, desk_of
from meander.runtime.wire.credentials import Credentials
from meander.spark.datasource import options
from meander.spark.datasource.options import check_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from meander.spark.datasource.output_source import OutputSource
    from meander.spark.datasource.sink import BatchWriter, StreamWriter
    from meander.spark.datasource.state_source import StateSource

NAME = "meander"
OUTPUTS, STATE = "outputs", "state"


class MeanderSource(DataSource):
    """One use of an operator by Spark."""

    known: ClassVar[Mapping[str, str]] = {}
    """Address → credentials, as text; filled in by `register`."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return NAME

    @property
    def credentials(self) -> Credentials:
        """What to show at the operator's port.

        Raises:
            InputError: if nothing is known of the operator.
        """
        given = self.options.get("token")
        if given is not None:
            return Credentials.parse(given) if given.startswith("{") else Credentials(given)
        found = self.known.get(self.address)
        if found is None:
            raise InputError(
                f"this session knows no operator at {self.address}: take the address from op.address, "
                'or give the token of an operator of another application with .option("token", …)'
            )
        return Credentials.parse(found)

    @property
    def address(self) -> str:
        """Where the operator's driver listens.

        Raises:
            InputError: if the option is missing.
        """
        address = self.options.get("operator")
        if not address:
            raise InputError('say which operator: .option("operator", op.address)')
        return str(address)

    def desk(self) -> DriverClient:
        """Give the connection to the operator's driver."""
        return desk_of(self.address, self.credentials)

    # ------------------------------------------------------------------ reading

    def schema(self) -> StructType:
        """Give the columns of outputs or of the state."""
        what = str(self.options.get("read", STATE)).lower()
        if what not in (OUTPUTS, STATE):
            raise InputError(f"the option read is {OUTPUTS} or {STATE}, not {what!r}")
        if what == OUTPUTS:
            from meander.spark.datasource.output_source import output_columns

            check_options(self.options, options.OUTPUTS, "a stream of outputs")
            return output_columns(self.desk().about(output=self.options.get("output")))
        from meander.spark.datasource.state_source import state_columns

        check_options(self.options, options.STATE, "a read of the state")
        desk = self.desk()
        whole = options.is_true(self.options.get("whole"))
        return state_columns(desk.about(operator=self.options.get("of")), desk, whole=whole)

    def streamReader(self, schema: StructType) -> OutputSource:  # noqa: N802
        """Read what the operator emits."""
        from meander.spark.datasource.output_source import OutputSource

        return OutputSource(self, schema)

    def reader(self, schema: StructType) -> StateSource:
        """Read the operator's state."""
        from meander.spark.datasource.state_source import StateSource

        return StateSource(self, schema)

    # ------------------------------------------------------------------ writing

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Take micro-batches."""
        from meander.spark.datasource.sink import StreamWriter

        return StreamWriter(self, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Take a backfill."""
        from meander.spark.datasource.sink import BatchWriter

        return BatchWriter(self, schema, overwrite)


_INTRODUCED: dict[str, dict[str, Credentials]] = {}
"""By application: the operators that were deployed in it."""
OPERATORS_MAX = 64
"""So many of an application are remembered, the newest."""


def introduce(spark: SparkSession, address: str, credentials: Credentials) -> None:
    """Make an operator known to a session; those before it stay known."""
    known = _INTRODUCED.setdefault(spark.sparkContext.applicationId, {})
    known[address] = credentials
    while len(known) > OPERATORS_MAX:
        del known[next(iter(known))]
    register(spark, known)


def register(spark: SparkSession, known: Mapping[str, Credentials] | None = None) -> None:
    """Make `format("meander")` known to a session, with the operators that it may use.

    Only needed where nothing was deployed: `deploy` does it. Operators are then used with
    `.option("token", …)`.
    """
    texts = {address: credentials.json() for address, credentials in (known or {}).items()}
    _say_what_is_read()
    spark.dataSource.register(type("MeanderSource", (MeanderSource,), {"known": texts}))


def _say_what_is_read() -> None:
    """Have `readStream.format("meander")` say that it wants outputs. Done once per process."""
    plain: Any = DataStreamReader.format
    if hasattr(plain, "meander"):
        return

    def format(self: DataStreamReader, source: str) -> DataStreamReader:  # noqa: A001
        """Specify the source; one that is called `meander` is told that a stream is read."""
        reader: DataStreamReader = plain(self, source)
        return reader.option("read", OUTPUTS) if source.lower() == NAME else reader

    format.__doc__, format.meander = plain.__doc__, True  # type: ignore[attr-defined]
    DataStreamReader.format = format  # type: ignore[method-assign]
