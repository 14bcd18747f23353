"""The manifest: which records are durable. Written by the master alone, readable by a person.

A new master first *claims* its generation, which the store grants once, and only then reads the
manifest: from the claim on no write of a lower generation counts, so a master that was replaced can
neither undo its successor's manifest nor change it after it was read. An acknowledgement goes out only
after the write that contains it has come back.

It is a log: a document that says everything, then documents that say what has changed since the one
before. So a write costs what has changed, however many tasks there are. Now and then, and whenever it
is not known what became of the last write, the log begins anew (`ManifestLog`).

A document is JSON with a line for each task, or for neighbours whose records are the same (`8-11`),
and ends with a checksum of all that stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from msgspec.json import Encoder

from meander.errors import InputError
from meander.model import Epoch, TaskId
from meander.protocol.master.ledger import Kept
from meander.protocol.messages import FeederId
from meander.protocol.records import chain_of

MANIFEST_KEY: Final = "manifest"
CLAIM_KEY: Final = "generation"
WHOLE: Final = 2
CHANGE: Final = 3
"""What a document is; a version before there were changes knows the first alone."""
CHANGES_MAX: Final = 32
"""So many changes may follow a whole: whoever reads the log reads as many files."""
_CHECKSUM: Final = b',\n"checksum": "'
_DIGITS: Final = len('01234567"}\n')
_ENCODE: Final = Encoder().encode


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
    learnt: Mapping[str, Any] = {}
    """What drivers have learnt of the load, for those after them; nothing depends on it."""

    def dump(self) -> bytes:
        """Write all of it."""
        facts = {
            "meander manifest": WHOLE,
            "lineage": self.lineage,
            "generation": self.generation,
            "tasks": self.tasks,
            "nodes": self.nodes,
            "operator": self.about,
            "offsets": self.offsets,
            "learnt": self.learnt,
        }
        return _document(facts, _lines(self.records, sorted(self.records), {}))

    def change(self, before: Mapping[TaskId, Kept]) -> bytes:
        """Write what has changed since the log had these records."""
        facts = {
            "meander manifest": CHANGE,
            "generation": self.generation,
            "nodes": self.nodes,
            "offsets": self.offsets,
        }
        fresh = sorted([t for t, kept in self.records.items() if before.get(t) is not kept])
        lines = _lines(self.records, fresh, before)
        lines += [b'"%d": null' % task for task in sorted(before.keys() - self.records.keys())]
        return _document(facts, lines)

    @classmethod
    def load(cls, blob: bytes) -> Manifest:
        """Read what `dump` wrote, and changes after it.

        Raises:
            InputError: if that is not what it is.
        """
        return ManifestReader().read(blob)


class ManifestReader:
    """Reads a manifest again and again: a log that has grown is read where it has grown."""

    def __init__(self) -> None:
        self._blob = b""
        """What was read …"""
        self._first: Mapping[str, Any] = {}
        """… its first document …"""
        self._records: dict[TaskId, Kept] = {}
        """… and what it came to."""

    def read(self, blob: bytes) -> Manifest:
        """Give what a manifest says.

        Raises:
            InputError: if it is none.
        """
        if not self._blob or not blob.startswith(self._blob) or len(blob) == len(self._blob):
            self._first, self._blob, self._records = {}, b"", {}
        known, self._blob = len(self._blob), b""  # whatever is wrong, all is read anew
        try:
            found = self._read(blob, known)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError,
                RecursionError) as error:  # fmt: skip
            raise InputError(f"this is no manifest of Meander: {error!r}") from None
        self._blob = blob
        return found

    def _read(self, blob: bytes, known: int) -> Manifest:
        last, records = self._first, self._records
        for document in _documents(blob, known):
            if document["meander manifest"] != (CHANGE if self._first else WHOLE):
                raise ValueError("written by another version")
            self._first, last = self._first or document, document
            _apply(records, document["records"])
        whole = self._first
        offsets = {str(f): int(o) for f, o in last["offsets"].items()}
        tasks, nodes = int(whole["tasks"]), tuple(last["nodes"])
        if not all(0 <= task < tasks for task in records) or tasks < 1:
            raise ValueError("a record of a task that there is not")
        return Manifest(
            int(whole["generation"]), tasks, nodes, dict(records), offsets, whole["operator"],
            str(whole.get("lineage", "")), dict(whole.get("learnt", {})),
        )  # fmt: skip


class ManifestLog:
    """What the manifest in the store says, and so how the next one is written."""

    def __init__(self) -> None:
        self._records: Mapping[TaskId, Kept] | None = None
        """What it says; None: that is not known."""
        self._whole_bytes = self._changed_bytes = self._changes = 0

    def next(self, manifest: Manifest) -> tuple[bytes, bool]:
        """Give what is to be written, and whether it is appended to what is there."""
        append = (
            self._records is not None
            and self._changes < CHANGES_MAX
            and self._changed_bytes <= self._whole_bytes
        )
        if append and self._records is not None:
            data = manifest.change(self._records)
            self._changes += 1
            self._changed_bytes += len(data)
        else:
            data = manifest.dump()
            self._changes, self._changed_bytes, self._whole_bytes = 0, 0, len(data)
        self._records = manifest.records
        return data, append

    def forget(self) -> None:
        """Hear that the last write failed: it may be there, or not."""
        self._records = None


def _document(facts: Mapping[str, Any], lines: list[bytes]) -> bytes:
    parts = [b"%b: %b" % (_ENCODE(key), json.dumps(value).encode()) for key, value in facts.items()]
    parts.append(b'"records": {\n ' + b",\n ".join(lines) + b"}" if lines else b'"records": {}')
    body = b"{" + b",\n".join(parts)
    return b'%b%b%08x"}\n' % (body, _CHECKSUM, crc32(body))


def _lines(
    records: Mapping[TaskId, Kept], tasks: Sequence[TaskId], before: Mapping[TaskId, Kept]
) -> list[bytes]:
    """Write the records of tasks, which ascend; neighbours with the same ones on one line."""
    found, first, end = list[bytes](), 0, -1
    kept, known = None, None
    for task in tasks:
        now, was = records[task], before.get(task)
        if task != end or now is not kept or was is not known:
            if kept is not None:
                found.append(_line(first, end, kept, known))
            first, kept, known = task, now, was
        end = task + 1
    if kept is not None:
        found.append(_line(first, end, kept, known))
    return found


def _line(lb: int, ub: int, kept: Kept, before: Kept | None) -> bytes:
    """Write the records of neighbours; of a chain that has only become longer, what has come."""
    (generation, number), told, chain = kept.tenure, b"chain", kept.chain
    if before is not None and chain[: len(before.chain)] == before.chain:
        told, chain = b"more", chain[len(before.chain) :]
    whose = b"%d" % lb if ub == lb + 1 else b"%d-%d" % (lb, ub - 1)
    return b'"%b": {"tenure": "%d.%d", "number": %d, "%b": %b}' % (
        whose, generation, number, kept.number, told, _ENCODE(chain),
    )  # fmt: skip


def _documents(blob: bytes, begin: int) -> Iterator[dict[str, Any]]:
    """Take a log apart, and see that each document is whole; no value has a line of its own."""
    while begin < len(blob) or not begin:
        end = blob.index(_CHECKSUM, begin)
        after = end + len(_CHECKSUM) + _DIGITS
        document: dict[str, Any] = json.loads(blob[begin:after])
        if int(document["checksum"], 16) != crc32(memoryview(blob)[begin:end]):
            raise ValueError("wrong checksum")
        yield document
        begin = after


def _apply(records: dict[TaskId, Kept], lines: Mapping[str, Any]) -> None:
    for name, line in lines.items():
        tasks = _named(name)
        if line is None:
            for task in tasks:
                del records[task]
            continue
        new = chain_of(line["chain"] if "chain" in line else line["more"])
        tenure, number = _epoch(line["tenure"]), int(line["number"])
        if not new:
            raise ValueError("a record without a name")
        before, kept = None, Kept(tenure, number, new)
        for task in tasks:
            if "more" in line and records[task] is not before:  # neighbours mostly share it
                before = records[task]
                kept = Kept(tenure, number, (*before.chain, *new))
            records[task] = kept


def _named(name: str) -> range:
    """Read which tasks a line is of.

    >>> _named("7"), _named("8-11")
    (range(7, 8), range(8, 12))
    """
    first, _, last = name.partition("-")
    return range(int(first), int(last or first) + 1)


def _epoch(text: str) -> Epoch:
    generation, number = text.split(".")
    return Epoch(int(generation), int(number))
