"""Rows for an operator of one's own: the columns of a source that its schema names, paced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from meander.errors import InputError
from meander.runtime.process.source import SourceBatch
from meander.sources.files import FileReplay, TextSource
from meander.sources.generated import SCHEMA
from meander.sources.pacing import paced
from meander.sources.words import SourcePart, SourceProgress


@dataclass(frozen=True)
class RowSource:
    """One part of a source, as rows of a schema. A value: it is sent to where it is read."""

    source: TextSource
    of: SourcePart
    schema: pa.Schema

    def __call__(self, offset: int) -> Iterator[SourceBatch]:
        """Give the batches after an offset, each when it is due."""
        pieces = self.source.read(offset, self.of.part, self.of.parts)
        with SourceProgress(self.of) as progress:
            for number, batch, due_s in paced(pieces, self.of.start_s, progress.stop.is_set):
                progress.count(number, due_s, rows=batch.num_rows)
                yield SourceBatch(number, batch.select(self.schema.names).cast(self.schema), due_s)


def check_rows(source: TextSource, schema: pa.Schema) -> None:
    """Refuse a source that has no rows of a schema, before anything is started.

    Raises:
        InputError: if it cannot be read, or lacks a column, or has it of another type.
    """
    source.check()
    if isinstance(source, FileReplay):
        return  # it reads what it was told to
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in SCHEMA.names:
            raise InputError(f"{source.describe()}: they have ts and text, and no column {name!r}")
        try:
            SCHEMA.empty_table()[name].cast(kind)
        except pa.ArrowException:
            there = SCHEMA.field(name).type
            raise InputError(
                f"{source.describe()}: column {name!r} is {there}, not {kind}"
            ) from None
