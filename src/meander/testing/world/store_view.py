"""What the durable store of a world really holds, read from the bytes on its disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import pyarrow as pa

from meander.model import TaskId
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.topology import Topology
from meander.protocol.master.manifest import MANIFEST_KEY, Manifest
from meander.protocol.messages import FeederId
from meander.protocol.reading import Blob
from meander.protocol.records import Ref
from meander.runtime.store.durable import manifest_parts
from meander.testing.world.disk import SimDisk
from meander.testing.world.trials import WorldTrial


class StoreView:
    """A checkpoint on a simulated disk."""

    def __init__(self, disk: SimDisk, root: str) -> None:
        self._disk, self._root = disk, root
        self._seen = -1
        """How often the disk had changed when it was last looked at."""
        self._claimed = 0, -1
        """The highest generation that is claimed, and how often the disk had changed then."""
        self._newest = ""
        self._blob: bytes | None = None
        self._outputs: dict[str, int] = {}
        """By record: the last output that it knows of."""

    def changed(self) -> bool:
        """Look for a newer manifest; tell whether there is one."""
        if self._seen == self._disk.changes:
            return False
        self._seen = self._disk.changes
        found = max(
            (p for p in self._disk.paths(f"{self._root}/manifest") if _counts(p)), default=""
        )
        prefix = f"{self._root}/"
        parts = manifest_parts(found.removeprefix(prefix)) if found else []
        blobs = [self._disk.peek(prefix + part) for part in parts]
        blob = b"".join(part for part in blobs if part is not None)
        if not blob or None in blobs or (found == self._newest and blob == self._blob):
            return False
        self._newest, self._blob = found, blob
        return True

    def claimed(self) -> int:
        """Tell the highest generation that a driver has claimed; 0: none."""
        highest, seen = self._claimed
        if seen != self._disk.changes:
            names = (path.rpartition("/")[2] for path in self._disk.paths(f"{self._root}/claim"))
            highest = max((int(name[:8]) for name in names if name[:8].isdigit()), default=0)
            self._claimed = highest, self._disk.changes
        return highest

    def read(self, key: str) -> bytes | None:
        """Give what is under a key of the store."""
        return self._blob if key == MANIFEST_KEY else self._disk.peek(f"{self._root}/{key}")

    def files(self, folder: str) -> set[str]:
        """Name all files in a folder and below."""
        return {
            p.removeprefix(f"{self._root}/") for p in self._disk.paths(f"{self._root}/{folder}")
        }

    def written_s(self, path: str) -> float:
        """Tell when a file was written; never: -inf."""
        return self._disk.written_s(f"{self._root}/{path}")

    def record(self, key: str) -> bytes | None:
        """Give a record; None: it is not there, or not what it was."""
        ref = Ref.parse(key)
        file = self.read(ref.file)
        blob = None if file is None else file[ref.offset : ref.offset + ref.length]
        return blob if blob is not None and crc32(blob) == ref.checksum else None

    def outputs(self, manifest: Manifest | None, task: TaskId) -> int:
        """Tell the last output of a task that is durable."""
        kept = None if manifest is None else manifest.records.get(task)
        if kept is None:
            return 0
        if kept.key not in self._outputs:
            blob = self.record(kept.key)
            self._outputs[kept.key] = 0 if blob is None else _last_output(Blob(blob))
        return self._outputs[kept.key]


def _counts(path: str) -> bool:
    """Whether a file is a manifest that was published."""
    name = path.rpartition("/")[2]
    return name.endswith(".json") and not name.startswith(".")


def _last_output(blob: Blob) -> int:
    """Read it from the operator's part of a record; tasks of a joint one have none."""
    if blob.joint:
        return 0
    app = blob.data[blob.after_head :]
    facts: dict[str, Any] = json.loads(app[4 : 4 + int.from_bytes(app[:4], "little")])
    return int(facts["outputs"][0])


class TrialRows:
    """The rows of a trial by task and offset, as the oracle asks for them."""

    def __init__(self, trial: WorldTrial) -> None:
        self._trial, self._part = trial, Topology.of(trial.operator(), trial.tasks).input()

    @property
    def feeders(self) -> Mapping[FeederId, int]:
        """How many offsets each has."""
        return {name: len(batches) for name, batches in self._trial.feeders.items()}

    def rows(self, feeder: FeederId, first: int, last: int) -> Iterator[tuple[TaskId, int, None]]:
        """Give (task, offset) of the rows between two offsets."""
        for offset in range(first, last + 1):
            for task in self.tasks(self._trial.feeders[feeder][offset]):
                yield task, offset, None

    def tasks(self, batch: pa.RecordBatch) -> list[TaskId]:
        """Name the tasks that rows belong to."""
        if not batch.num_rows:
            return []
        part = self._part
        hashes = hash_columns([batch.column(key) for key in part.operator.keys])
        return [part.first + task for task in sorted(set(tasks_of(hashes, part.tasks).tolist()))]
