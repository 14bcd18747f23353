"""The Avro records of a topic: which schema wrote each, and all that one wrote at once.

0, number of the schema (4 bytes, the highest first), body       as a schema registry's clients write it
body                                                             where one schema is given for all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from meander.errors import InputError, UnreadableError
from meander.model import Ints
from meander.sources.avro.columns import Bytes, rows_of
from meander.sources.avro.program import Program, compile_schema
from meander.sources.avro.registry import Registry
from meander.sources.avro.schema import Node, parse
from meander.sources.formats import Decoded, one_by_one

HEADER: Final = 5
SCHEMAS_MAX = 10_000
"""Numbers that are remembered, of schemas and of none. Who has more makes one for each record."""


class AvroReader:
    """Reads messages of one topic. Schemas are asked for, and compiled, once each."""

    def __init__(self, schemas: Mapping[int, str] | str, registry: Registry | None = None) -> None:
        self._plain = parse(schemas) if isinstance(schemas, str) else None
        given = {} if isinstance(schemas, str) else schemas
        self._nodes: dict[int, Node | None] = {n: parse(text) for n, text in given.items()}
        """None: the registry has none of that number."""
        self._registry = registry
        self._programs: dict[tuple[int, pa.Schema], Program] = {}

    def decode(self, values: Sequence[bytes], wanted: pa.Schema) -> Decoded:
        """Read messages, none of which is null.

        Raises:
            UnreadableError: naming one that cannot be read.
            InputError: if a schema does not have what is wanted.
            ConnectionError: if the registry is away.
        """
        return one_by_one(self.read, values, wanted)

    def read(self, values: Sequence[bytes], wanted: pa.Schema) -> Decoded:
        """Read all of them or none; errors as `decode` has them, or Arrow's own."""
        joined = pa.array(values, pa.large_binary())
        _, places, held = joined.buffers()
        offsets = np.frombuffer(places, np.int64, len(values) + 1)
        data = np.frombuffer(held or b"", np.uint8)
        starts, ends = offsets[:-1].copy(), offsets[1:].copy()
        if self._plain is not None:
            groups = [(-1, np.arange(len(values)))]
        else:
            groups = self._groups(data, starts, ends)
            starts += HEADER
        structs, broken = [], list[UnreadableError]()
        for number, rows in groups:
            try:
                program = self._program(number, wanted)
                structs.append(rows_of(program, data, starts[rows], ends[rows]))
            except UnreadableError as error:
                broken.append(UnreadableError(int(rows[error.message]), error.why))
        if broken:
            raise min(broken, key=lambda error: error.message)
        found = structs[0]
        if len(groups) > 1:
            order = np.argsort(np.concatenate([rows for _, rows in groups]))
            found = pa.concat_arrays(structs).take(pa.array(order))
        batch = pa.RecordBatch.from_struct_array(found).replace_schema_metadata(wanted.metadata)
        return Decoded(batch, np.arange(len(values)))

    def _groups(self, data: Bytes, starts: Ints, ends: Ints) -> list[tuple[int, Ints]]:
        """Tell which messages each schema wrote."""
        headed = ends - starts >= HEADER
        if not headed.all():
            raise UnreadableError(int(np.argmin(headed)), "it is too short to name its schema")
        heads = data[starts[:, None] + np.arange(HEADER)]
        if (wrong := heads[:, 0] != 0).any():
            first = int(np.argmax(wrong))
            raise UnreadableError(
                first,
                f"it begins with {heads[first, 0]}, not with 0 and the number of a schema. Where "
                "messages are Avro and nothing else, give their schema: schemas='{…}'",
            )
        numbers = heads[:, 1:].astype(np.int64) @ (256 ** np.arange(3, -1, -1))
        if len(numbers) and (numbers == numbers[0]).all():
            return [(int(numbers[0]), np.arange(len(starts)))]
        return [(int(number), np.flatnonzero(numbers == number)) for number in np.unique(numbers)]

    def _program(self, number: int, wanted: pa.Schema) -> Program:
        found = self._programs.get((number, wanted))
        if found is None:
            node = self._plain or self._node(number)
            if node is None:
                raise UnreadableError(0, f"there is no schema {number}")
            try:
                found = self._programs[number, wanted] = compile_schema(node, wanted)
            except InputError as error:
                name = node.name if self._plain else f"{node.name} ({number})"
                raise InputError(f"the Avro schema {name}: {error}") from None
        return found

    def _node(self, number: int) -> Node | None:
        if number not in self._nodes and self._registry is not None:
            if len(self._nodes) >= SCHEMAS_MAX:
                raise InputError(f"the messages of a topic have {SCHEMAS_MAX} schemas at most")
            text = self._registry.schema(number)
            self._nodes[number] = None if text is None else parse(text)
        return self._nodes.get(number)
