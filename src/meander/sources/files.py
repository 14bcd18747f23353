"""Sources: batches of `ts` and `text`, or of an operator's own columns, with offsets and due times.

A source is a small value that can be sent anywhere and read there. `read(after, part, parts)` gives
the pieces of one part that follow an offset; **the same offset always names the same rows**, for a
given number of parts. Generated tweets are in `generated`.

    FileReplay    Parquet, CSV or JSON lines, in the file's order. A row is due at its time stamp,
                  `speedup` times faster; one that is older than its predecessor, or has no time
                  stamp, is due together with it. All rows count.
    SocketLines   lines of text from a TCP server, due when they arrive. They cannot be read again.
                  Bytes that are no UTF-8 are replaced; a line that does not end is cut.

Rows that are due within the same `SLICE_S` travel together.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import csv

from meander.errors import InputError
from meander.sources.pacing import PacedPiece

SLICE_S = 0.02
"""Rows due within this time make one piece."""
PIECE_ROWS_MAX = 2000
BLOCK_ROWS = 20_000
"""Read at once; pieces never span two blocks, so that offsets do not depend on the reader."""

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
COMPRESSIONS = (".gz", ".bz2", ".zst")
UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
LINE_BYTES_MAX = 2**20
"""A line from a socket that is longer becomes two: the other side shall not fill our memory."""


class TextSource(Protocol):
    """What `meander run` can read."""

    def check(self) -> None:
        """Refuse what cannot be read, before anything is started."""

    def describe(self) -> str:
        """Say what it is."""

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[PacedPiece]:
        """Give the pieces of one part that follow an offset."""


@dataclass(frozen=True)
class FileReplay:
    """Rows of files, as they came."""

    path: str
    speedup: float = 1.0
    """How much faster than they came; 0: as fast as there is room."""
    ts: str = "ts"
    text: str = "text"
    ts_unit: str = ""
    """`s`, `ms` or `us` since 1970, for time stamps that are numbers."""
    seconds: float = math.inf
    """Stop after so much (real) time of the stream."""
    rows: pa.Schema | None = None
    """The columns that are read, with their types; None: `ts` and `text`. Time stamps are then needed
    only where there is a speed."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speedup) and self.speedup >= 0):
            raise InputError(f"the speed-up must be 0 or more, not {self.speedup}")
        if self.ts_unit and self.ts_unit not in UNITS:
            raise InputError(f"ts-unit must be one of {', '.join(UNITS)}, not {self.ts_unit!r}")

    @property
    def format(self) -> str:
        """Tell the format by the extension, or by that of a file inside.

        >>> FileReplay("logs/day.jsonl.gz").format
        'json'
        """
        names = [Path(self.path)]
        if names[0].is_dir():
            names += sorted(p for p in names[0].iterdir() if p.name[0] not in "._")
        for name in names:
            bare = name.with_suffix("") if name.suffix in COMPRESSIONS else name
            if bare.suffix.lower() in FORMATS:
                return FORMATS[bare.suffix.lower()]
        raise InputError(f"{self.path}: its name ends in none of {', '.join(FORMATS)}")

    def describe(self) -> str:
        """Say what it is."""
        return f"{self.path} at {self.speedup:g} times its speed"

    def check(self) -> None:
        """Open it, and read the first rows.

        Raises:
            InputError: if it is not there, cannot be read, or lacks a column.
        """
        next(self._blocks(), None)

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[PacedPiece]:
        """Give the pieces of one part that follow an offset."""
        offset, last_s, first_us = 0, 0.0, None
        for block in self._blocks():
            after_s = np.zeros(block.num_rows)
            if self.speedup:
                us, known = micros(block.column(self.ts), self.ts_unit, self.path)
                if first_us is None and known.any():
                    first_us = int(us[known][0])
                after_s = self._after_s(us, known, first_us or 0, last_s)
            last_s = float(after_s[-1])
            for lb, ub in _cuts(after_s):
                due_s = math.ceil(after_s[ub - 1] / SLICE_S) * SLICE_S if self.speedup else None
                if due_s is not None and due_s > self.seconds:
                    return
                if offset > after and offset % parts == part:
                    yield PacedPiece(offset, self._named(block.slice(lb, ub - lb)), due_s)
                offset += 1

    def _after_s(
        self, us: npt.NDArray[np.int64], known: npt.NDArray[np.bool_], first_us: int, last_s: float
    ) -> npt.NDArray[np.float64]:
        after_s = np.where(known, (us - first_us) / (self.speedup * 1e6), 0.0)
        return np.asarray(np.maximum.accumulate(np.maximum(after_s, last_s)))

    def _named(self, block: pa.RecordBatch) -> pa.RecordBatch:
        if self.rows is not None:
            return block.select(self.rows.names)
        return pa.record_batch({"ts": block.column(self.ts), "text": block.column(self.text)})

    @property
    def _columns(self) -> dict[str, pa.DataType | None]:
        """What is read of the file, and as which types; None: as it is there."""
        if self.rows is None:
            return {self.ts: None, self.text: pa.large_string()}
        stamps = {self.ts: None} if self.speedup else {}
        return {**stamps, **dict(zip(self.rows.names, self.rows.types, strict=True))}

    def _blocks(self) -> Iterator[pa.RecordBatch]:
        """Give blocks of exactly BLOCK_ROWS rows, the last one of fewer."""
        try:
            data = self._open()
            waiting, rows = list[pa.RecordBatch](), 0
            for batch in data.to_batches(columns=list(self._columns), batch_size=BLOCK_ROWS):
                at = 0
                while at < batch.num_rows:
                    take = min(BLOCK_ROWS - rows, batch.num_rows - at)
                    waiting.append(self._cast(batch.slice(at, take)))
                    at, rows = at + take, rows + take
                    if rows == BLOCK_ROWS:
                        yield pa.concat_batches(waiting)
                        waiting, rows = [], 0
            if rows:
                yield pa.concat_batches(waiting)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{self.path} cannot be read: {told}") from error

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = dict[str, pa.Array]()
        for name, wanted in self._columns.items():
            column = batch.column(name)
            try:
                found[name] = column if wanted is None else column.cast(wanted)
            except pa.ArrowException:
                kind = "text" if self.rows is None else wanted
                raise InputError(
                    f"{self.path}: column {name!r} is {column.type}, not {kind}"
                ) from None
        return pa.record_batch(found)

    def _open(self) -> ds.Dataset:
        if not Path(self.path).exists():
            raise InputError(f"{self.path} does not exist")
        form: str | ds.FileFormat = self.format
        if form == "csv":
            types = {name: kind or pa.string() for name, kind in self._columns.items()}
            form = ds.CsvFileFormat(
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(column_types=types),
            )
        found = ds.dataset(self.path, format=form)
        for name in self._columns:
            if name not in found.schema.names:
                there = ", ".join(found.schema.names) or "none"
                raise InputError(f"{self.path} has no column {name!r} (it has {there})")
        return found


def _cuts(after_s: npt.NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces: where another slice of time begins, and when there are enough.

    >>> list(_cuts(np.array([0.0, 0.001, 0.03, 0.031])))
    [(0, 2), (2, 4)]
    """
    slices = np.floor(after_s / SLICE_S)
    edges = [0, *(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(after_s)]
    for lb, ub in pairwise(edges):
        for begin in range(lb, ub, PIECE_ROWS_MAX):
            yield begin, min(ub, begin + PIECE_ROWS_MAX)


def micros(
    column: pa.Array | pa.ChunkedArray, unit: str, path: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Read time stamps as microseconds since 1970; the second array says which are there."""
    kind = column.type
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = _parsed(pc.if_else(pc.equal(column, ""), None, column), unit)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            if not unit:
                raise InputError(f"{path}: its time stamps are numbers: say --ts-unit s, ms or us")
            column = pc.multiply(column.cast(pa.float64()), float(UNITS[unit])).cast(
                pa.int64(), safe=False
            )
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        else:
            raise InputError(f"{path}: a column of {kind} holds no time stamps")
        numbers = column.cast(pa.int64())
    except pa.ArrowException as error:
        advice = "" if unit else "; numbers since 1970 need --ts-unit s, ms or us"
        raise InputError(f"{path}: a time stamp cannot be read: {error}{advice}") from None
    known = np.asarray(pc.is_valid(numbers).to_numpy(zero_copy_only=False), dtype=bool)
    return np.asarray(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)), known


def _parsed(column: pa.Array, unit: str) -> pa.Array:
    """Read time stamps that are text: with a zone, without one, or numbers with a unit."""
    if unit:
        scaled = pc.multiply(column.cast(pa.float64()), float(UNITS[unit]))
        return scaled.cast(pa.int64(), safe=False)
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowException:
        return column.cast(pa.timestamp("us", "UTC"))


@dataclass(frozen=True)
class SocketLines:
    """Lines of text (UTF-8) from a TCP server."""

    host: str
    port: int
    seconds: float = math.inf
    """How long to listen; else until the other side hangs up."""

    def check(self) -> None:
        """See that somebody answers.

        Raises:
            InputError: if nobody does.
        """
        self._connect().close()

    def describe(self) -> str:
        """Say what it is."""
        return f"lines from {self.host}:{self.port}"

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[PacedPiece]:
        """Give what arrives; each part has a connection of its own.

        Raises:
            InputError: when asked to begin anywhere but at the beginning.
        """
        if after >= 0:
            raise InputError(f"{self.describe()} were read before and cannot be read again")
        end, offset, rest = time.monotonic() + self.seconds, part, b""
        with self._connect() as connection:
            connection.settimeout(SLICE_S)
            while time.monotonic() < end:
                try:
                    data = connection.recv(1 << 16)
                except TimeoutError:
                    yield PacedPiece(offset, _lines([]), None)
                    offset += parts
                    continue
                *lines, rest = (rest + data).split(b"\n")
                if rest and (not data or len(rest) > LINE_BYTES_MAX):
                    lines.append(rest)
                    rest = b""
                yield PacedPiece(offset, _lines(lines), None)
                offset += parts
                if not data:
                    return

    def _connect(self) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), timeout=5.0)
        except OSError as error:
            raise InputError(f"{self.host}:{self.port} cannot be reached: {error}") from None


def _lines(lines: list[bytes]) -> pa.RecordBatch:
    texts = [line.decode(errors="replace").rstrip("\r") for line in lines]
    now = [time.time_ns() // 1000] * len(texts)
    kind = pa.timestamp("us", "UTC")
    return pa.record_batch(
        {"ts": pa.array(now, pa.int64()).cast(kind), "text": pa.array(texts, pa.string())}
    )
