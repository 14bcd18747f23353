"""The manifest: which records are durable. Written by the master alone, readable by a person.

A new master first *claims* its generation, which the store grants once, and only then reads the
manifest: from the claim on the store refuses writes of lower generations, so a master that was
replaced can neither undo its successor's manifest nor change it after it was read. A write replaces
the whole. An acknowledgement goes out only after the write that contains it has come back.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from meander.errors import InputError
from meander.model import Epoch, TaskId
from meander.protocol.messages import FeederId

MANIFEST_KEY = "manifest"
CLAIM_KEY = "generation"


class Manifest(NamedTuple):
    """What a new driver needs to go on."""

    generation: int
    tasks: int
    nodes: tuple[str, ...]
    records: dict[TaskId, tuple[Epoch, int, str]]
    offsets: dict[FeederId, int]

    def dump(self) -> bytes:
        """Write it as JSON."""
        data = {
            "meander manifest": 1,
            "generation": self.generation,
            "tasks": self.tasks,
            "nodes": list(self.nodes),
            "offsets": self.offsets,
            "records": {
                str(task): {"tenure": str(tenure), "number": number, "key": key}
                for task, (tenure, number, key) in sorted(self.records.items())
            },
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def load(cls, blob: bytes) -> Manifest:
        """Read what `dump` wrote.

        Raises:
            InputError: if that is not what it is.
        """
        try:
            data: dict[str, Any] = json.loads(blob)
            if data["meander manifest"] != 1:
                raise ValueError("written by another version")
            records = {
                int(task): (_epoch(r["tenure"]), int(r["number"]), str(r["key"]))
                for task, r in data["records"].items()
            }
            offsets = {str(f): int(o) for f, o in data["offsets"].items()}
            tasks, nodes = int(data["tasks"]), tuple(data["nodes"])
            if not all(0 <= task < tasks for task in records) or tasks < 1:
                raise ValueError("a record of a task that there is not")
            return cls(int(data["generation"]), tasks, nodes, records, offsets)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"this is no manifest of Meander: {error!r}") from None


def _epoch(text: str) -> Epoch:
    generation, number = text.split(".")
    return Epoch(int(generation), int(number))
