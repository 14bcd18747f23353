"""Look into a checkpoint from outside: list it, check every byte that it names, show a task.

It needs neither the operator nor a deployment, and changes nothing. A deployment that runs on may let
files go while they are looked at; those of the newest manifest are kept for one manifest more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from meander.errors import CheckpointError, MalformedMessage
from meander.model import TaskId
from meander.operators.layout import ENTRY
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import Manifest
from meander.protocol.reading import Blob
from meander.protocol.records import MAGIC, Ref, file_of, length_of
from meander.runtime.process.recording import open_joint, parts_of
from meander.runtime.process.streams import read_streams
from meander.runtime.store.durable import FileStore
from meander.runtime.store.resume import newest


class Fault(NamedTuple):
    """Something wrong with a checkpoint."""

    task: TaskId
    file: str
    why: str


class CheckpointReader:
    """A checkpoint in a store."""

    def __init__(self, where: str) -> None:
        """Open what is under a path or a URI.

        Raises:
            CheckpointError: if there is none.
        """
        self.store = FileStore(where)
        manifest = newest(self.store)
        if manifest is None:
            raise CheckpointError(f"there is no checkpoint under {self.store.files.uri}")
        self.manifest: Manifest = manifest

    # ------------------------------------------------------------------ ls

    def listing(self, now_s: float | None = None) -> dict[str, Any]:
        """Tell what there is: manifests, tasks with their chains, files and bytes."""
        now_s = time.time() if now_s is None else now_s
        manifests, files = self.store.manifests(), self.store.files.list("log")
        records = self.manifest.records
        named = {file_of(name) for kept in records.values() for name in kept.chain}
        return {
            "where": self.store.files.uri,
            "manifests": [
                {"file": m.path, "bytes": m.size, "age_s": round(now_s - m.written_s, 1)}
                for m in manifests
            ],
            "lineage": self.manifest.lineage,
            "generation": self.manifest.generation,
            "operator": dict(self.manifest.about),
            "tasks": self.manifest.tasks,
            "nodes": list(self.manifest.nodes),
            "offsets": dict(self.manifest.offsets),
            "records": {task: self._of_task(kept) for task, kept in sorted(records.items())},
            "bytes": sum(
                map(length_of, {name for kept in records.values() for name in kept.chain})
            ),
            "files": len(files),
            "files_bytes": sum(file.size for file in files),
            "files_named": sum(1 for file in files if file.path in named),
        }

    @staticmethod
    def _of_task(kept: Kept) -> dict[str, Any]:
        sizes = [length_of(name) for name in kept.chain]
        return {
            "tenure": str(kept.tenure), "records": len(sizes), "snapshot_bytes": sizes[0],
            "changes_bytes": sum(sizes[1:]), "file": file_of(kept.key),
        }  # fmt: skip

    # ------------------------------------------------------------------ verify

    def verify(self) -> list[Fault]:
        """Check every record that the manifest names: there, whole, readable, in its place."""
        named: dict[str, dict[TaskId, tuple[str, ...]]] = {}
        for task, kept in sorted(self.manifest.records.items()):
            for i, name in enumerate(kept.chain):
                named.setdefault(name, {})[task] = kept.chain[:i]
        found = [fault for name, tasks in named.items() for fault in self._verify(name, tasks)]
        return sorted(found, key=lambda fault: fault.task)

    def _verify(self, name: str, tasks: dict[TaskId, tuple[str, ...]]) -> Iterator[Fault]:
        """Check a record, of tasks that have these before it."""
        blob, file = None, file_of(name)
        for task, before in tasks.items():
            try:
                if blob is None:
                    blob = Blob(self._read(name))
                    if self.store.files.read(file, 0, len(MAGIC)) != MAGIC:
                        raise ValueError(f"{file} is no file of records")
                if blob.chain(task) != before:
                    raise ValueError(f"{name} is not the record that it is said to be")
                if not blob.joint or task == next(iter(tasks)):  # a joint one is read for all
                    _state(blob, task)
            except (ValueError, KeyError, TypeError, MalformedMessage, OSError) as error:
                yield Fault(task, file, str(error))

    def _read(self, name: str) -> bytes:
        blob = self.store.read(name)
        assert blob is not None
        assert crc32(blob) == Ref.parse(name).checksum
        return blob

    # ------------------------------------------------------------------ show

    def show(self, task: TaskId) -> tuple[dict[str, Any], pa.Table | None]:
        """Give a task: what it has taken in, and its rows as a table (None: no rows).

        A row that a change has replaced is not shown where that can be told. Where it cannot, because
        only the operator knows, the column `record` says which record a row is of: later ones win.

        Raises:
            CheckpointError: if there is no such task, or a record cannot be used.
        """
        kept = self.manifest.records.get(task)
        if kept is None:
            raise CheckpointError(
                f"task {task} has no record; there are {len(self.manifest.records)} with one, "
                f"of {self.manifest.tasks}",
                task,
            )
        try:
            blobs = [Blob(self._read(name)) for name in kept.chain]
            parts = [_state(blob, task) for blob in blobs]
        except (ValueError, OSError) as error:
            raise CheckpointError(f"task {task}: {error}", task, file_of(kept.key)) from error
        head = blobs[-1].head(task)
        facts = {
            "task": task, "positions": head["positions"], "batches": head["batches"],
            "records": list(kept.chain),
        }  # fmt: skip
        return facts, _rows(parts)


def _state(blob: Blob, task: TaskId) -> list[pa.RecordBatch]:
    """Read the batches of a task's state in a record, without their operator."""
    at, head = blob.after_head, blob.head(task)
    app = blob.data[at : at + head["app"]]
    if blob.joint:
        found = parts_of(open_joint(app), [blob.place(task)])
        return [batch for batch, _ in found]
    start = 4 + int.from_bytes(app[:4], "little")
    length = json.loads(app[4:start])["state"]
    return read_streams(pa.py_buffer(app[start : start + length]))


def _rows(parts: list[list[pa.RecordBatch]]) -> pa.Table | None:
    """Put snapshot and changes together."""
    table: pa.Table | None = None
    for number, batches in enumerate(parts):
        for batch in batches:
            found = pa.Table.from_batches([batch]).replace_schema_metadata(None)
            if found.column_names[0] == ENTRY and table is not None:
                table = _changed(table, found, number)
            else:
                found = found.append_column("record", pa.array([number] * found.num_rows))
                table = found if table is None else pa.concat_tables([table, found])
    return table


def _changed(table: pa.Table, changes: pa.Table, number: int) -> pa.Table:
    """Put changed cells in the place of the old ones, by the number of their entry."""
    rows = changes[ENTRY].to_numpy()
    for name in (*changes.column_names[1:], "record"):
        column = table[name].to_numpy().copy()
        column[rows] = number if name == "record" else changes[name].to_numpy()
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(column, table[name].type))
    return table


def lines_of(listing: dict[str, Any]) -> Iterator[str]:
    """Say a listing in words."""
    newest_, files = listing["manifests"][-1], listing["files"]
    about = listing["operator"]
    yield f"{listing['where']}: generation {listing['generation']}, {newest_['age_s']:.0f} s old"
    yield (
        f"{about.get('name', '?')} (state version {about.get('state_version', '?')}), "
        f"{len(listing['records'])} of {listing['tasks']} tasks with records, "
        f"{listing['bytes'] / 2**20:.1f} MiB; {files} files, "
        f"{listing['files_bytes'] / 2**20:.1f} MiB, {files - listing['files_named']} not named"
    )
    for feeder, offset in listing["offsets"].items():
        yield f"feeder {feeder}: all up to offset {offset} is durable"
    yield f"{'task':>6} {'records':>8} {'snapshot':>12} {'changes':>12}  newest in"
    for task, r in listing["records"].items():
        yield (
            f"{task:>6} {r['records']:>8} {r['snapshot_bytes']:>12} {r['changes_bytes']:>12}"
            f"  {r['file']}"
        )
