"""Rows that wait for the operator, and how they are put together: as few calls as possible.

Chunks of one message lie side by side in one batch, so they cost one call and no copy. A watermark
stands behind the rows that came before it: the task's rows behind it are of a later layer.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from meander.model import Ints, TaskId
from meander.protocol.messages import FeederId
from meander.runtime.process.app_state import AppState, Watermarks
from meander.runtime.wire.rows import RowBlock, Rows

SMALL_ROWS = 1000
"""Calls with fewer rows than this are worth a copy that makes one call of them."""


class Noted(NamedTuple):
    """A chunk that waits for `settle`."""

    app: AppState
    feeder: FeederId
    rows: Rows
    waited: bool


class NotedBlock(NamedTuple):
    """A block that waits for `settle`: its chunks are in order, and none has waited."""

    tasks: Ints
    """They ascend."""
    apps: list[AppState]
    """Of each task."""
    feeder: FeederId
    rows: RowBlock

    def chunks(self) -> list[Noted]:
        """Give each chunk by itself."""
        parts = enumerate(self.apps)
        return [Noted(app, self.feeder, self.rows.at(i), waited=False) for i, app in parts]


class Layer:
    """Chunks of any tasks, and watermarks behind them. A task's rows behind these are in the next."""

    __slots__ = ("noted", "watermarks")

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.watermarks: Watermarks = {}


class NotedRows:
    """All that waits, layer by layer."""

    def __init__(self) -> None:
        self._layers: list[Layer] = [Layer()]
        self._layer: dict[TaskId, int] = {}
        """The last layer that a task is in, if not the first."""

    def __bool__(self) -> bool:
        first = self._layers[0]
        return bool(first.noted or first.watermarks)

    def note(self, noted: Noted) -> None:
        """Put rows behind the task's last watermark."""
        task = noted.app.task
        at = self._layer.get(task, 0)
        if task in self._layers[at].watermarks:
            at = self._layer[task] = at + 1
            if at == len(self._layers):
                self._layers.append(Layer())
        self._layers[at].noted.append(noted)

    def hear(self, app: AppState, feeder: FeederId, watermark: int) -> None:
        """Put a watermark behind the task's last rows."""
        layer = self._layers[self._layer.get(app.task, 0)]
        layer.watermarks.setdefault(app.task, (app, []))[1].append((feeder, watermark))

    def take(self) -> list[Layer]:
        """Give all layers, in their order; nothing waits any more."""
        layers, self._layers, self._layer = self._layers, [Layer()], {}
        return layers


def grouped(noted: list[Noted]) -> list[list[Noted]]:
    """Cut chunks into groups for one call each: neighbours in a batch, by ascending task.

    Where that gives many small groups (chunks that waited came in many messages), all become one
    group, sorted by task: a copy costs less than the calls. Rows as they are and combined ones stay
    apart, in their order.
    """
    groups: list[list[Noted]] = []
    last: Noted | None = None
    for item in batch_by_batch(noted):
        follows = (
            last is not None
            and item.rows.batch is last.rows.batch
            and item.rows.start == last.rows.start + last.rows.count
            and (item.app.task > last.app.task or item.app is last.app)
        )
        if follows:
            groups[-1].append(item)
        else:
            groups.append([item])
        last = item
    rows = sum(item.rows.count for item in noted)
    if len(groups) > 1 and rows < SMALL_ROWS * len(groups):
        return [sorted(run, key=lambda item: item.app.task) for run in _alike(noted)]
    return groups


def _alike(noted: list[Noted]) -> list[list[Noted]]:
    """Cut chunks where rows of another kind follow."""
    schemas = {id(item.rows.batch): item.rows.batch.schema for item in noted}
    runs: list[list[Noted]] = []
    last: pa.Schema | None = None
    for item in noted:
        schema = schemas[id(item.rows.batch)]
        if last is None or (schema is not last and not schema.equals(last)):
            runs.append([])
        runs[-1].append(item)
        last = schema
    return runs


def batch_by_batch(noted: list[Noted]) -> list[Noted]:
    """Bring chunks of the same batch together, if every task still meets its chunks in their order.

    A micro-batch is committed task by task, but the parts of one partition lie in one batch.
    """
    batches: dict[int, int] = {}
    latest: dict[TaskId, int] = {}
    ranks = []
    for item in noted:
        rank = batches.setdefault(id(item.rows.batch), len(batches))
        if rank < latest.get(item.app.task, 0):
            return noted
        latest[item.app.task] = rank
        ranks.append(rank)
    if len(batches) == 1:
        return noted
    return [noted[i] for i in sorted(range(len(noted)), key=ranks.__getitem__)]
