"""`op.transform(df)`: the queries that feed an operator on behalf of whoever reads its outputs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.clients.given import NULL_KEYS
from meander.spark.datasource.output_source import output_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from meander.runtime.driver.driver import Driver


class Transforms:
    """Starts such queries, watches them, and ends them with their operator."""

    def __init__(self, spark: SparkSession, driver: Driver) -> None:
        self._spark, self._driver = spark, driver
        self._queries: dict[str, Any] = {}
        self._scratch: str | None = None
        self._last: str | None = None

    def start(
        self,
        rows: DataFrame,
        name: str,
        checkpoint: str | None,
        trigger: Mapping[str, Any],
        null_keys: str,
    ) -> DataFrame:
        """Start a query, and give the operator's outputs as a stream."""
        if not rows.isStreaming:
            raise InputError("transform takes a streaming DataFrame: use df.write for a batch")
        if not name or "/" in name:
            raise InputError(f"the name of a transform is a word, not {name!r}")
        if name in self._queries and self._queries[name].isActive:
            raise InputError(f"a transform {name!r} is running: give this one another name")
        if null_keys not in NULL_KEYS:
            raise InputError(f"null_keys is one of {', '.join(NULL_KEYS)}, not {null_keys!r}")
        reception = self._driver.reception
        output_columns(reception.about({"output": None}))
        writer = rows.writeStream.format("meander").option("operator", self._driver.address)
        self._last = checkpoint or self._place(name)
        writer = writer.option("checkpointLocation", self._last).option("nullKeys", null_keys)
        self._queries[name] = (writer.trigger(**trigger) if trigger else writer).start()
        if self._trouble not in reception.troubles:
            reception.troubles.append(self._trouble)
        reader = self._spark.readStream.format("meander")
        return reader.option("operator", self._driver.address).load()

    def _place(self, name: str) -> str:
        """Say where a query's checkpoint is: with the operator's own, or in a scratch directory."""
        folder = self._driver.deployment.folder
        if folder is not None:
            return f"{folder.rstrip('/')}/queries/{name}"
        if not str(self._spark.sparkContext.master).startswith("local"):
            raise InputError("say where the query keeps its checkpoint: transform(…, checkpoint=…)")
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="meander-queries-")
        return str(Path(self._scratch) / name)

    def settled(self) -> str | None:
        """End the queries, and give the checkpoint of the last one; None: there was none."""
        for query in self._queries.values():
            query.stop()
        return self._last

    def _trouble(self) -> str | None:
        """Tell why no more rows come in, if a query has failed."""
        for name, query in list(self._queries.items()):
            error = None if query.isActive else query.exception()
            if error is not None:
                return f"the query of transform {name!r} has failed: {str(error)[:2000]}"
        return None

    def stop(self) -> None:
        """End the queries; a scratch directory goes too."""
        for query in self._queries.values():
            query.stop()
        self._queries.clear()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
