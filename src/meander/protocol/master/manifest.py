"""The manifest: which records are durable. Written by the master alone, readable by a person.

A new master first *claims* its generation, which the store grants once, and only then reads the
manifest: from the claim on no write of a lower generation counts, so a master that was replaced can
neither undo its successor's manifest nor change it after it was read. A write replaces the whole. An
acknowledgement goes out only after the write that contains it has come back.

It is JSON with one line per task, and ends with a checksum of all that stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from meander.errors import InputError
from meander.model import Epoch, TaskId
from meander.protocol.master.ledger import Kept
from meander.protocol.messages import FeederId
from meander.protocol.records import Ref

MANIFEST_KEY: Final = "manifest"
CLAIM_KEY: Final = "generation"
FORMAT: Final = 2
_CHECKSUM: Final = b',\n"checksum": "'


class Manifest(NamedTuple):
    """What a new driver needs to go on."""

    generation: int
    tasks: int
    nodes: tuple[str, ...]
    records: dict[TaskId, Kept]
    offsets: dict[FeederId, int]
    about: Mapping[str, Any] = {}
    """The operator: name, version and schema of its state."""
    lineage: str = ""
    """Of all deployments that go on from this checkpoint, from its beginning; another checkpoint, even
    in the same place, has another. Empty: written before there were lineages."""

    def dump(self) -> bytes:
        """Write it as JSON."""
        facts = {
            "meander manifest": FORMAT,
            "lineage": self.lineage,
            "generation": self.generation,
            "tasks": self.tasks,
            "nodes": list(self.nodes),
            "operator": self.about,
            "offsets": self.offsets,
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
        records = [
            f'"{task}": '
            + json.dumps({"tenure": str(k.tenure), "number": k.number, "chain": k.chain})
            for task, k in sorted(self.records.items())
        ]
        lines.append('"records": {' + ",".join(f"\n {line}" for line in records) + "}")
        body = ("{" + ",\n".join(lines)).encode()
        return body + _CHECKSUM + b'%08x"}\n' % crc32(body)

    @classmethod
    def load(cls, blob: bytes) -> Manifest:
        """Read what `dump` wrote.

        Raises:
            InputError: if that is not what it is.
        """
        try:
            return cls._load(blob)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"this is no manifest of Meander: {error!r}") from None

    @classmethod
    def _load(cls, blob: bytes) -> Manifest:
        data: dict[str, Any] = json.loads(blob)
        if data["meander manifest"] != FORMAT:
            raise ValueError("written by another version")
        if int(data["checksum"], 16) != crc32(blob[: blob.rindex(_CHECKSUM)]):
            raise ValueError("wrong checksum")
        records = {
            int(task): Kept(_epoch(r["tenure"]), int(r["number"]), _chain(r["chain"]))
            for task, r in data["records"].items()
        }
        offsets = {str(f): int(o) for f, o in data["offsets"].items()}
        tasks, nodes = int(data["tasks"]), tuple(data["nodes"])
        if not all(0 <= task < tasks for task in records) or tasks < 1:
            raise ValueError("a record of a task that there is not")
        return cls(
            int(data["generation"]), tasks, nodes, records, offsets, data["operator"],
            str(data.get("lineage", "")),
        )  # fmt: skip


def _epoch(text: str) -> Epoch:
    generation, number = text.split(".")
    return Epoch(int(generation), int(number))


def _chain(names: list[str]) -> tuple[str, ...]:
    if not names:
        raise ValueError("a record without a name")
    return tuple(str(Ref.parse(name)) for name in names)
