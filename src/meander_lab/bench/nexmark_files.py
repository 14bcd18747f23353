"""Events in Parquet files: for each stream a folder, of each part of the events a file in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from meander_lab.nexmark.events import Nexmark

EPOCH = 1_000_000_000
"""Time of the first file; each is a second younger than the one before. Spark takes old ones first."""
ROWS_MAX = 65_536
"""Rows that are fed at once."""


@dataclass(frozen=True)
class EventFiles:
    """The first events of a stream."""

    stream: Nexmark
    folder: Path
    files: int
    events_per_file: int

    def write(self, kinds: Iterable[str]) -> None:
        """Write the files of some streams."""
        for kind in kinds:
            (self.folder / kind).mkdir(parents=True)
            for number in range(self.files):
                first = number * self.events_per_file
                batch = self.stream.batch(kind, first, first + self.events_per_file)
                path = self.path(kind, number)
                pq.write_table(pa.Table.from_batches([batch]), path)
                os.utime(path, (EPOCH + number, EPOCH + number))

    def path(self, kind: str, number: int) -> Path:
        """Tell where a part of a stream is."""
        return self.folder / kind / f"{number:05}.parquet"

    def read(self, kind: str, number: int) -> Iterator[pa.RecordBatch]:
        """Read a part of a stream."""
        table = pq.read_table(self.path(kind, number))
        yield from table.combine_chunks().to_batches(max_chunksize=ROWS_MAX)
