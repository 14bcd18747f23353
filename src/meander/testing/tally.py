"""The operator of the simulator: it notes what it is given so exactly that any fault shows.

A row is its source offset. A task's state holds, per feeder, how many rows it took, the last offset,
and a hash of their sequence; offsets must ascend, or a row came twice or out of order. Some rows
make the task feed a row to another task, which is a feedback loop. What comes through a loop or from
a micro-batch has no fixed order between feeders, so for those a sum stands in for the sequence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from meander.model import TaskId
from meander.protocol.state import Emission

MASK = (1 << 61) - 1
LOOP_SHARE = 6
"""One row in so many is fed on."""


def mix(value: int) -> int:
    """Scatter a number (the finaliser of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def fed_to(row: int, tasks: int) -> TaskId | None:
    """Name the task that a row is fed on to; None for most rows."""
    scattered = mix(row)
    return (scattered >> 8) % tasks if scattered % LOOP_SHARE == 0 else None


class Tally:
    """The operator. One instance per simulated node, so that it can tell who applied what."""

    def __init__(
        self,
        tasks: int,
        padding: tuple[int, ...],
        notice: Callable[[TaskId, str], None],
        watch: Callable[[TaskId], None],
    ) -> None:
        self.tasks = tasks
        self.padding = padding
        """How many bytes every task's state is longer than it need be."""
        self.notice = notice
        """Called with what must never happen."""
        self.watch = watch
        """Called whenever rows are applied to a task."""

    def empty(self, task: TaskId) -> Any:
        """Per feeder [count, last, hash or sum]; under "" [rows fed on, padding, 0]."""
        return {"": [0, self.padding[task], 0]}

    def apply(
        self, task: TaskId, app: Any, feeder: str, rows: Any, after: int
    ) -> Iterable[Emission]:
        """Note every row."""
        self.watch(task)
        entry = app.get(feeder)
        if entry is None:
            entry = app[feeder] = [0, -1, 0]
        if feeder.startswith("loop/"):
            for number, row in rows:
                if number <= entry[1]:
                    self.notice(task, f"{feeder} row {number} after {entry[1]}")
                entry[0] += 1
                entry[1] = number
                entry[2] = (entry[2] + mix(row)) & MASK
            return ()
        emissions = []
        ordered = feeder.startswith("feeder")
        for row in rows:
            offset = row >> 8
            if ordered:
                if offset <= after:
                    continue
                if offset <= entry[1]:
                    self.notice(task, f"{feeder} offset {offset} after {entry[1]}")
                entry[2] = (entry[2] * 1_000_003 + offset) & MASK
            else:
                entry[2] = (entry[2] + mix(row)) & MASK
            entry[0] += 1
            entry[1] = offset
            target = fed_to(row, self.tasks)
            if target is not None:
                count = app[""]
                count[0] += 1
                emissions.append(Emission(target, ((count[0], row),), 16))
        return emissions

    def dump(self, app: Any) -> bytes:
        """Write the notes, padded."""
        return json.dumps(app).encode().ljust(app[""][1])

    def load(self, task: TaskId, blob: bytes) -> Any:
        """Read the notes."""
        return json.loads(blob)

    def dump_rows(self, rows: Any) -> bytes:
        """Write rows."""
        return json.dumps(rows).encode()

    def load_rows(self, blob: bytes) -> Any:
        """Read rows."""
        return tuple(tuple(r) if isinstance(r, list) else r for r in json.loads(blob))

    def size(self, app: Any) -> int:
        """Say about how large the notes are."""
        return max(40 * len(app), app[""][1])
