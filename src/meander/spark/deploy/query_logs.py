"""The logs in the checkpoint of a Structured Streaming query: which offsets of its sources it has done.

    metadata      {"id": …}           the query
    offsets/N     v1, facts, a line per source: where batch N ends
    commits/N     batch N is done
    sources/i/…   what a source keeps for itself (files: their names)

A query that starts with a copy of them goes on behind the last batch that is done, exactly: it takes
the same offsets for a batch that was begun, and the sources know what was read. That holds for any
source. Files are read and written as those of checkpoints are.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from meander.errors import CheckpointError, InputError
from meander.runtime.store.filesystem import Files, open_files

VERSION = "v1"


@dataclass(frozen=True)
class QueryLogs:
    """Where a query is."""

    query: str
    """Its id, which stays the same across restarts."""
    batch: int
    """The last batch that is done."""
    offsets: tuple[Any, ...]
    """Where that ends: of each source what it wrote, Kafka for example {"topic": {"0": 17}}."""
    watermark: datetime | None
    """The event time up to which it has seen everything; None: it has none."""

    def json(self) -> dict[str, Any]:
        """Give it in what JSON has."""
        mark = None if self.watermark is None else self.watermark.isoformat()
        return {
            "query": self.query,
            "batch": self.batch,
            "offsets": list(self.offsets),
            "watermark": mark,
        }


def read_logs(location: str) -> QueryLogs:
    """Read the logs of a checkpoint location.

    Raises:
        CheckpointError: if there are none, or they cannot be read.
    """
    files = open_files(location)
    done = _numbers(files, "commits")
    if not done:
        raise CheckpointError(f"{location} is no checkpoint of a query that has done a batch")
    batch = max(done)
    _, commit, *_ = _lines(files, f"commits/{batch}")
    _, facts, *sources = _lines(files, f"offsets/{batch}")
    told = (
        json.loads(commit).get("nextBatchWatermarkMs"),
        json.loads(facts).get("batchWatermarkMs"),
    )
    mark_ms = max(int(mark or 0) for mark in told)
    watermark = datetime.fromtimestamp(mark_ms / 1000, UTC) if mark_ms else None
    query = json.loads(files.read("metadata") or b"{}").get("id", "")
    offsets = tuple(None if source == "-" else json.loads(source) for source in sources)
    return QueryLogs(query, batch, offsets, watermark)


def has_logs(place: str) -> bool:
    """Whether a query has started at a place, or can start there as another."""
    return open_files(place).read("metadata") is not None


def copy_logs(location: str, place: str, batch: int) -> None:
    """Have a query that starts at a place go on where the one at a location has ended, behind a batch.

    Logs that are there already are left as they are: it has started before.

    Raises:
        InputError: if the two are one.
        CheckpointError: if the query at the location has gone on behind that batch.
    """
    if location.rstrip("/") == place.rstrip("/"):
        raise InputError(f"{place} is the checkpoint of the old query: the new one needs its own")
    if has_logs(place):
        return
    theirs, ours = open_files(location), open_files(place)
    _check_stands(theirs, location, batch)
    ours.prepare()
    copied = list(_all(theirs))
    for path in copied:
        found = theirs.read(path)
        if found is not None:
            ours.publish(path, found)
    try:
        _check_stands(theirs, location, batch)  # nor has it gone on meanwhile
    except CheckpointError:
        ours.delete(copied)
        raise
    ours.publish("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())  # last: all is there


def _check_stands(files: Files, location: str, batch: int) -> None:
    """See that a query has not gone on behind a batch.

    Raises:
        CheckpointError: if it has.
    """
    if max(_numbers(files, "commits"), default=batch) > batch:
        raise gone_on(location, batch)


def gone_on(location: str, batch: int) -> CheckpointError:
    """Say that what a query has counted since its state was taken is in no state that we have."""
    return CheckpointError(
        f"the query at {location} has gone on since its state was taken, behind batch {batch}: what it "
        "has counted since would be left out. Stop the query, and adopt it anew: into another folder, "
        "if there is a checkpoint="
    )


def _all(files: Files) -> Iterator[str]:
    for folder in ("offsets", "commits", "sources"):
        paths = (entry.path for entry in files.list(folder))
        yield from (path for path in paths if not path.rsplit("/", 1)[-1].startswith("."))


def _numbers(files: Files, folder: str) -> list[int]:
    names = [entry.path.rsplit("/", 1)[-1] for entry in files.list(folder)]
    return sorted(int(name) for name in names if name.isdecimal())


def _lines(files: Files, path: str) -> list[str]:
    found = files.read(path)
    lines = [] if found is None else found.decode().splitlines()
    if len(lines) < 2 or lines[0] != VERSION:
        raise CheckpointError(f"{path} of the query is not as Spark 4 writes it: {lines[:1]}")
    return lines
