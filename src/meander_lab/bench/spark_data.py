"""Streams for `bench spark`: a directory of Parquet files, `FILES` of them to a micro-batch, in order.

The first batches of a stream warm up or fill the state and are not measured. Every side reads all of
it, with `availableNow`, so that all have the same batches. The truth is counted by Arrow, which counts
on none of the sides. (Ours from texts has Arrow cut them, too; that this is right, Spark's side shows.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from meander.errors import InputError
from meander.spark.pipeline.generate import Stream, generate

FILES = 2
"""Files, and so partitions, of a micro-batch: one for each core of a small machine."""
WARM_UP = 2
"""Batches before the first that counts."""
FILL_PER_FILE = 125_000
KEY_BYTES = 100
DIGITS = 12
EPOCH = 1_000_000_000
"""Time of the first file; each is a second younger than the one before. Spark takes old ones first."""


@dataclass(frozen=True)
class StreamRows:
    """A stream of rows that become words."""

    name: str
    path: Path
    column: str
    """The only column: `text`, to be split into words, or `word`."""
    skipped: int
    """Batches that are not measured."""

    def read(self, spark: SparkSession) -> DataFrame:
        """Read it as a stream."""
        reader = spark.readStream.schema(f"{self.column} string")
        return reader.option("maxFilesPerTrigger", FILES).parquet(str(self.path))

    def stream(self, spark: SparkSession) -> DataFrame:
        """Read it as a stream of words."""
        rows = self.read(spark)
        if self.column == "word":
            return rows
        return rows.select(F.explode(F.split("text", " ")).alias("word")).where("word != ''")

    @cached_property
    def batches(self) -> list[int]:
        """Words of every batch."""
        words = [len(self._words(file)) for file in files_of(self.path)]
        return [sum(words[i : i + FILES]) for i in range(0, len(words), FILES)]

    @cached_property
    def counts(self) -> pa.Table:
        """How often each word occurs: a table of `word` and `count`, by word."""
        parts = [
            pa.table({"word": self._words(file)}).group_by("word").aggregate([([], "count_all")])
            for file in files_of(self.path)
        ]
        whole = pa.concat_tables(parts).group_by("word").aggregate([("count_all", "sum")])
        return whole.rename_columns(["word", "count"]).sort_by("word")

    def _words(self, file: Path) -> pa.Array:
        column = pq.read_table(file, columns=[self.column])[self.column].combine_chunks()
        if self.column == "word":
            return column
        words = pc.list_flatten(pc.split_pattern(column, " "))
        return words.filter(pc.not_equal(words, ""))

    @contextmanager
    def ending_after(self, batches: int) -> Iterator[None]:
        """Let the stream seem to end after so many batches, inside the block."""
        held = [(file, file.with_name(f".{file.name}")) for file in files_of(self.path)]
        for file, hidden in held[batches * FILES :]:
            file.rename(hidden)
        try:
            yield
        finally:
            for file, hidden in held[batches * FILES :]:
                hidden.rename(file)


def tweets(
    source: Path | None, batches: int, per_file: int, folder: Path, spark: SparkSession
) -> StreamRows:
    """Lay out tweets, recorded or generated ones.

    Raises:
        InputError: for a source without texts, or with too few.
    """
    files = (WARM_UP + batches) * FILES
    if source is None:
        source = folder / "generated"
        generate(spark, Stream(rows=files * per_file)).select("text").write.parquet(str(source))
    made = _write(_texts(source, per_file), files, folder / "tweets", "text")
    if made < files:
        raise InputError(f"{source} has too few rows: {files * per_file} are needed")
    return StreamRows("tweets", folder / "tweets", "text", WARM_UP)


def _texts(source: Path, per_file: int) -> Iterator[pa.ChunkedArray]:
    """Give the texts of Parquet files, so many at once."""
    import pyarrow.dataset as ds

    try:
        found = ds.dataset(source, format="parquet")
        if "text" not in found.schema.names:
            raise InputError(f"{source} has no column text")
        rest = pa.table({"text": pa.array([], pa.string())})
        for batch in found.to_batches(columns=["text"]):
            rest = pa.concat_tables([rest, pa.Table.from_batches([batch]).cast(rest.schema)])
            while rest.num_rows >= per_file:
                yield rest["text"].slice(0, per_file)
                rest = rest.slice(per_file)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {source} as Parquet: {error}") from None


def wide(keys: int, batches: int, per_file: int, folder: Path) -> StreamRows:
    """Lay out keys of 100 bytes: first every one, then batches of random ones."""
    fills = max(1, keys // (FILL_PER_FILE * FILES))
    draw = np.random.Generator(np.random.PCG64(7))
    parts = [
        *np.array_split(draw.permutation(keys), fills * FILES),
        *(draw.integers(0, keys, per_file) for _ in range(batches * FILES)),
    ]
    _write(map(wide_keys, parts), len(parts), folder, "word")
    return StreamRows("wide", folder, "word", fills)


def wide_keys(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Make keys of numbers: padded to 100 bytes.

    >>> len(wide_keys(np.array([7]))[0].as_py())
    100
    """
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), DIGITS, "0")
    return pc.binary_join_element_wise(pa.scalar("k" * (KEY_BYTES - DIGITS)), digits, "")


def _write(
    parts: Iterable[pa.Array | pa.ChunkedArray], files: int, folder: Path, column: str
) -> int:
    """Write files whose times give their order; tells how many there were to write."""
    folder.mkdir(parents=True)
    made = 0
    for made, part in enumerate(islice(parts, files), start=1):
        file = folder / f"{made:05}.parquet"
        pq.write_table(pa.table({column: part}), file)
        os.utime(file, (EPOCH + made, EPOCH + made))
    return made


def files_of(folder: Path) -> list[Path]:
    """List the files of a stream in their order."""
    return sorted(file for file in folder.glob("*.parquet") if not file.name.startswith("."))
