"""The state of a processor: per key its variables, as Spark's API shows them, and as Arrow.

    variable    declared once in `init`: a value, a list or a map, perhaps with a time to live
    entry       one key's content per variable: (value, expires) pairs, alone, in a list, in a map
    ProcessorState   the entries of one task's keys; what was touched since when

A key whose variables are all empty is gone. What has outlived its time is not shown, and is removed
when its task is swept. A dump has one row per key: the key's columns, then a column per variable; and
of those with a time to live `<name>@expires` (milliseconds since 1970).

Versions. Of removed keys only so many are remembered. Changes of a version from before that give the
whole state and say so (WHOLE): whoever holds a mark, however old, misses nothing. These are no more
rows than the removed keys would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StructType

from meander.errors import StateError
from meander.operators.timers import Key, key_values
from meander.spark.processor.evolving import grown, grows
from meander.spark.processor.rows import row_maker
from meander.spark.processor.values import arrow_type, internal, row_fitter, row_reader

NEVER: Final = 2**63 - 1
EXPIRES: Final = "@expires"
SAMPLE_KEYS = 16
"""So many keys are looked at to tell the size of a state."""
GONE_MAX = 1000
"""So many removed keys are remembered, and as many as there are keys, for whoever asks for changes."""
WHOLE: Final = b"meander.processor.whole"
"""In the metadata of changes that are the whole state."""


class Variable:
    """A state variable as it was declared."""

    def __init__(
        self,
        name: str,
        kind: str,
        schema: StructType,
        key_schema: StructType | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        self.name, self.kind, self.schema, self.key_schema = name, kind, schema, key_schema
        self.ttl_ms, self.row = ttl_ms, row_maker(schema.names)
        self.fit, self.read = row_fitter(schema), row_reader(schema)
        self.nested = any(isinstance(f.dataType, ArrayType | MapType) for f in schema.fields)
        """Whether what is shown must be a copy: it could be changed."""
        value = arrow_type(schema)
        self.type = pa.list_(value) if kind == "list" else value
        if key_schema is not None:
            self.fit_key, self.read_key = row_fitter(key_schema), row_reader(key_schema)
            self.type = pa.map_(arrow_type(key_schema), value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Variable, (self.name, self.kind, self.schema, self.key_schema, self.ttl_ms)

    def expires(self, now_ms: int) -> int:
        """Tell when what is written now has outlived its time."""
        return NEVER if self.ttl_ms is None else now_ms + self.ttl_ms

    # ------------------------------------------------------------------ Arrow

    def fields(self) -> list[pa.Field]:
        """Give the columns of a dump."""
        found = [pa.field(self.name, self.type)]
        if self.ttl_ms is not None:
            times = pa.int64() if self.kind == "value" else pa.list_(pa.int64())
            found.append(pa.field(self.name + EXPIRES, times))
        return found

    def dump(self, contents: list[Any]) -> list[pa.Array]:
        """Write the contents of many keys as columns."""
        shown = [pa.array([self._plain(c) for c in contents], self.type)]
        if self.ttl_ms is not None:
            times = [None if c is None else self._times(c) for c in contents]
            shown.append(pa.array(times, self.fields()[1].type))
        return shown

    def _plain(self, content: Any) -> Any:
        if content is None:
            return None
        if self.kind == "value":
            return internal(self.schema, [content[0]])[0]
        if self.kind == "list":
            return internal(self.schema, [value for value, _ in content])
        assert self.key_schema is not None
        keys = internal(self.key_schema, list(content))
        return list(zip(keys, internal(self.schema, [v for v, _ in content.values()]), strict=True))

    def _times(self, content: Any) -> Any:
        if self.kind == "value":
            return content[1]
        return [at for _, at in (content if self.kind == "list" else content.values())]

    def load(self, batch: pa.RecordBatch) -> list[Any]:
        """Read what `dump` wrote, key by key."""
        shown = grown(batch.column(self.name), self.type).to_pylist()
        times: list[Any] = [None] * len(shown)
        if self.ttl_ms is not None and self.name + EXPIRES in batch.schema.names:
            times = batch.column(self.name + EXPIRES).to_pylist()
        return [self._content(v, at) for v, at in zip(shown, times, strict=True)]

    def _content(self, shown: Any, times: Any) -> Any:
        if shown is None:
            return None
        if self.kind == "value":
            return self.read(shown), NEVER if times is None else times
        times = [NEVER] * len(shown) if times is None else times
        if self.kind == "list":
            return [(self.read(v), at) for v, at in zip(shown, times, strict=True)]
        return {
            self.read_key(k): (self.read(v), at) for (k, v), at in zip(shown, times, strict=True)
        }


def alive(content: Any, now_ms: int) -> Any:
    """Give what of a content has not outlived its time; None if nothing has."""
    if content is None:
        return None
    if isinstance(content, tuple):
        return content if now_ms < content[1] else None
    found: Any
    if isinstance(content, list):
        found = [pair for pair in content if now_ms < pair[1]]
    else:
        found = {key: pair for key, pair in content.items() if now_ms < pair[1]}
    return (content if len(found) == len(content) else found) or None


class ProcessorLayout(NamedTuple):
    """What a dump looks like: the key's columns and the variables."""

    key: tuple[pa.Field, ...]
    """Arrow fields."""
    variables: tuple[Variable, ...]
    deleted: frozenset[str] = frozenset()
    """Variables that `init` deletes if they exist."""
    gone_max: int = GONE_MAX

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a dump."""
        return pa.schema([*self.key, *(f for v in self.variables for f in v.fields())])

    def check(self, schema: pa.Schema) -> None:
        """Refuse state of other keys, or of a variable that cannot have become what is declared.

        Raises:
            StateError: saying which, and what to do.
        """
        if schema.names[: len(self.key)] != [f.name for f in self.key]:
            raise StateError(f"state of the key columns {schema.names[: len(self.key)]}")
        known = {field.name: field.type for field in self.schema}
        for field in schema:
            name = field.name.removesuffix(EXPIRES)
            if field.name not in known and name not in {v.name for v in self.variables}:
                if name not in self.deleted:
                    why = "which init neither declares nor deletes (deleteIfExists)"
                    raise StateError(f"there is state of the variable {name!r}, {why}")
            elif field.name in known and not grows(field.type, known[field.name]):
                raise StateError(
                    f"the state of {name!r} is {field.type}, not {known[field.name]}: fields can come "
                    "and go and become wider; for all else raise state_version and write migrate"
                )


Entry = list[Any]


class ProcessorState:
    """The entries of one task."""

    __slots__ = (
        "_row_bytes",
        "_sampled",
        "entries",
        "forgotten",
        "layout",
        "stamps",
        "sweep_ms",
        "version",
    )

    def __init__(self, layout: ProcessorLayout) -> None:
        self.layout = layout
        self.entries: dict[Key, Entry] = {}
        self.version = 1
        self.stamps: dict[Key, int] = {}
        """By which version a key was touched last; also of keys that are gone."""
        self.forgotten = 0
        """Of keys that were removed in or before this version nothing is known any more."""
        self._row_bytes, self._sampled = 0.0, 0
        self.sweep_ms = 0
        """When to look for what has outlived its time; 0: nobody has looked yet."""

    def touch(self, key: Key) -> None:
        """Note that a key has changed."""
        self.stamps[key] = self.version

    def remove(self, key: Key) -> None:
        """Forget a key whose variables are all empty."""
        if self.entries.pop(key, None) is not None:
            self.stamps[key] = self.version
            if len(self.stamps) > self.layout.gone_max + 2 * len(self.entries):
                self.stamps = {k: v for k, v in self.stamps.items() if k in self.entries}
                self.forgotten = self.version

    def sweep(self, now_ms: int) -> None:
        """Remove what has outlived its time."""
        for key, entry in list(self.entries.items()):
            left = [alive(content, now_ms) for content in entry]
            if any(a is not b for a, b in zip(left, entry, strict=True)):
                self.touch(key)
                entry[:] = left
                if not any(content is not None for content in left):
                    self.remove(key)

    @property
    def size(self) -> int:
        """Tell about how many bytes a dump has."""
        count = len(self.entries)
        if abs(count - self._sampled) > self._sampled // 8:
            keys = [key for key, _ in zip(self.entries, range(SAMPLE_KEYS), strict=False)]
            self._row_bytes = self._batch(keys).nbytes / len(keys) if keys else 0.0
            self._sampled = count
        return int(count * self._row_bytes)

    # ------------------------------------------------------------------ dumps

    def dump(self) -> list[pa.RecordBatch]:
        """Write all entries."""
        return [self._batch(list(self.entries))] if self.entries else []

    def _batch(self, keys: Sequence[Key]) -> pa.RecordBatch:
        layout = self.layout
        columns = [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(layout.key)]
        for i, variable in enumerate(layout.variables):
            columns += variable.dump([self.entries[key][i] for key in keys])
        return pa.record_batch(columns, schema=layout.schema)

    def put(self, batch: pa.RecordBatch) -> list[Key]:
        """Take over entries that were dumped; give their keys.

        Raises:
            StateError: for anything else.
        """
        layout, names = self.layout, batch.schema.names
        layout.check(batch.schema)
        width = len(layout.key)
        keys = list(zip(*(key_values(batch.column(i)) for i in range(width)), strict=True))
        contents = [
            v.load(batch) if v.name in names else [None] * len(keys) for v in layout.variables
        ]
        for i, key in enumerate(keys):
            entry = [column[i] for column in contents]
            if any(content is not None for content in entry):
                self.entries[key] = entry
        return keys

    def seal(self) -> int:
        """End a version and give its number."""
        self.version += 1
        return self.version - 1

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Write entries touched after a version, then keys that are gone; or all, and say so."""
        if since < self.forgotten:
            return [self._batch(list(self.entries)).replace_schema_metadata({WHOLE: b"1"})]
        touched = [key for key, version in self.stamps.items() if version > since]
        live = [key for key in touched if key in self.entries]
        gone = [key for key in touched if key not in self.entries]
        batches = [self._batch(live)] if live else []
        if gone:
            columns = [
                pa.array([k[i] for k in gone], f.type) for i, f in enumerate(self.layout.key)
            ]
            batches.append(pa.record_batch(columns, schema=pa.schema(self.layout.key)))
        return batches

    def revise(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Take over what `changes` wrote."""
        width = len(self.layout.key)
        if batches and WHOLE in (batches[0].schema.metadata or {}):
            self.entries.clear()
        for batch in batches:
            if batch.num_columns > width:
                self.put(batch)
                continue
            for key in zip(*(key_values(column) for column in batch.columns), strict=True):
                self.entries.pop(key, None)
