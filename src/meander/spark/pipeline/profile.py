"""A profile: work and state per slot and task, as stored. Reading needs neither Spark nor Java.

The format is in `docs/pipeline.md`: Parquet files with (slot, task, work, bytes, keys) for every
slot and task, and `_profile.json`, written last. `meander.spark.pipeline.profiling` makes profiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from meander.errors import InputError
from meander.model import Workload
from meander.spark.pipeline.files import filesystem, read_json
from meander.spark.pipeline.slots import Moments, iso, parse_moment

FORMAT = "meander.profile/1"
METADATA = "_profile.json"
CELLS_MAX = 2**28
"""Most cells (slots times tasks) of a profile: 8 GiB of uncompressed columns."""
NAMED_SLOTS = ("mean", "total", "first", "last", "peak")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Profile:
    """A stored profile. Cells are read when they are asked for."""

    path: str
    facts: dict[str, Any]
    """The contents of `_profile.json`."""

    @property
    def tasks(self) -> int:
        """m, the number of tasks."""
        return int(self.facts["tasks"])

    @cached_property
    def slots(self) -> Moments:
        """Starts of all slots, ascending."""
        first = np.datetime64(self.facts["first_slot"].rstrip("Z"), "s")
        return np.asarray(first + np.arange(self.facts["slots"]) * self.facts["slot_s"])

    def workload(self, slot: str | datetime | np.datetime64 = "mean") -> Workload:
        """Give the work and the state bytes of every task.

        Args:
            slot: a moment within the wanted slot, or one of
                `mean` (both averaged over all slots and rounded),
                `total` (the sum of work, the bytes of the last slot),
                `first`, `last`, `peak` (the slot with the most work).

        Raises:
            InputError: for a slot that is not in the profile.
        """
        if isinstance(slot, str) and slot in ("mean", "total"):
            work, size = self._sum("work"), self._sum("bytes")
            if slot == "total":
                return Workload(work, self._cells(len(self.slots) - 1)[1])
            count = len(self.slots)
            return Workload((work + count // 2) // count, (size + count // 2) // count)
        return Workload(*self._cells(self._index(slot)))

    def workloads(self) -> Iterator[Workload]:
        """Give the workload of each slot, in order; one pass over the files, a day at a time."""
        step = max(1, 2**20 // self.tasks)
        for start in range(0, len(self.slots), step):
            stop = min(start + step, len(self.slots))
            work, size = self._block(start, stop)
            for k in range(stop - start):
                yield Workload(work[k], size[k])

    def _index(self, slot: str | datetime | np.datetime64) -> int:
        if isinstance(slot, str) and slot in NAMED_SLOTS:
            if slot == "peak":
                return int(np.argmax(self.work_per_slot()))
            return 0 if slot == "first" else len(self.slots) - 1
        if isinstance(slot, np.datetime64):
            moment = slot.astype("datetime64[s]")
        else:
            exact = parse_moment(slot) if isinstance(slot, str) else slot
            moment = np.datetime64(iso(exact).rstrip("Z"), "s")
        index = int(np.searchsorted(self.slots, moment, side="right")) - 1
        length = np.timedelta64(self.facts["slot_s"], "s")
        if index < 0 or moment >= self.slots[-1] + length:
            raise InputError(
                f"{self.path} has no slot at {iso(moment)}: it spans {iso(self.slots[0])} "
                f"to {iso(self.slots[-1])}; or say one of {', '.join(NAMED_SLOTS)}"
            )
        return index

    @cached_property
    def _dataset(self) -> ds.Dataset:
        system, inside = filesystem(self.path)
        return ds.dataset(inside, format="parquet", filesystem=system)

    def work_per_slot(self) -> Ints:
        """Give the work of all tasks together, per slot."""
        table = self._dataset.to_table(columns=["slot", "work"])
        grouped = table.group_by("slot").aggregate([("work", "sum")]).sort_by("slot")
        return np.asarray(grouped["work_sum"].to_numpy(), dtype=np.int64)

    def _sum(self, column: str) -> Ints:
        table = self._dataset.to_table(columns=["task", column])
        grouped = table.group_by("task").aggregate([(column, "sum")]).sort_by("task")
        return np.asarray(grouped[f"{column}_sum"].to_numpy(), dtype=np.int64)

    def _cells(self, index: int) -> tuple[Ints, Ints]:
        work, size = self._block(index, index + 1)
        return work[0], size[0]

    def _block(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Read work and bytes of slots `start … stop-1`, one row per slot."""
        kind = self._dataset.schema.field("slot").type
        low, high = (pa.scalar(self.slots[k].astype("datetime64[us]").item(), pa.timestamp("us"))
                     for k in (start, stop - 1))  # fmt: skip
        if kind.tz is not None:
            low, high = (pc.assume_timezone(x, "UTC") for x in (low, high))
        wanted = (ds.field("slot") >= low.cast(kind)) & (ds.field("slot") <= high.cast(kind))
        table = self._dataset.to_table(filter=wanted).sort_by(
            [("slot", "ascending"), ("task", "ascending")]
        )
        shape = (stop - start, self.tasks)
        if table.num_rows != shape[0] * shape[1]:
            raise InputError(
                f"{self.path} is damaged: {table.num_rows} cells where {shape[0] * shape[1]} belong"
            )
        work, size = (np.asarray(table[c].to_numpy(), dtype=np.int64) for c in ("work", "bytes"))
        return work.reshape(shape), size.reshape(shape)


def read_profile(path: str | Path) -> Profile:
    """Open a profile.

    Raises:
        InputError: when there is none, or it was never completed.
    """
    try:
        facts = read_json(f"{path}/{METADATA}", FORMAT)
    except InputError as error:
        raise InputError(
            f"{path} is no profile, or was never completed ({error}): make one by meander profile"
        ) from None
    return Profile(str(path), facts)


def read_workload(path: str | Path, slot: str | datetime | np.datetime64 = "mean") -> Workload:
    """Read a profile as the workload of one slot or of the mean slot; see `Profile.workload`."""
    return read_profile(path).workload(slot)
