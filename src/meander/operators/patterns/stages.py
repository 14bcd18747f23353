"""The paper's Figure 10 as a topology: Pattern Generator, Detector and Reporter on the nodes.

    texts (±1) ──► generate ──► detect ──► report ──► changes of the report
                                 ▲   │
                                 └───┘

The generator is keyed by text, so a text comes and leaves at the same task. What it makes goes to the
Detector's tasks by pattern. The reporter knows what is reported now, and tells what differs behind
each batch: what is taken back in the batch that brought it is not told at all.

A feeder may make the patterns itself instead (`generate`, `meander run frequent-patterns`): a text is
smaller than its patterns, but an edge costs more than a second stage in the feeder. `docs` has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError, StateError
from meander.model import Ints
from meander.operators.base import Context, Operator
from meander.operators.columns import plain
from meander.operators.hashing import Hashes
from meander.operators.patterns.detector import CHANGES, FrequentPatterns
from meander.operators.patterns.rules import PatternRules
from meander.operators.patterns.texts import SCHEMA, generate
from meander.operators.projection import Project
from meander.operators.topology import TASKS, Topology

TEXTS = pa.schema({"text": pa.string(), "count": pa.int32()})
"""What the generator takes: a text that comes (1) or leaves (-1)."""
REPORT = pa.schema({"pattern": pa.string(), "count": pa.int64()})
"""What the reporter knows: what is reported, and how often it was in the window when that began."""


class PatternGenerator(Project):
    """Makes all patterns of texts that come and leave.

    >>> here = Context(0, 1)
    >>> texts = pa.record_batch({"text": ["Apache Storm", "x"], "count": [1, -1]}, schema=TEXTS)
    >>> PatternGenerator(PatternRules()).process(None, texts, here)
    >>> [(row["pattern"], row["count"]) for row in here.emitted[0].to_pylist()]
    [('apache', 1), ('storm', 1), ('apache storm', 1), ('x', -1)]
    """

    def __init__(self, rules: PatternRules) -> None:
        """Say which patterns a text has."""
        super().__init__(TEXTS, ["text"], output_schema=SCHEMA)
        self.rules = rules

    def process_groups(
        self,
        states: Sequence[None],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Emit the patterns of the texts of many tasks."""
        counts = plain(batch.column("count"))
        if counts.null_count:
            raise InputError("a text neither comes nor leaves: its count is null")
        found = generate(batch.column("text"), self.rules)
        rows = np.asarray(found.rows)
        ends = np.searchsorted(rows, bounds).tolist()
        by = counts.to_numpy(zero_copy_only=False).astype(np.int32)[rows]
        nothing = pa.array(np.zeros(len(rows), dtype=np.int32))
        made = pa.record_batch([found.patterns, pa.array(by), nothing], schema=SCHEMA)
        for i, context in enumerate(contexts):
            if ends[i + 1] > ends[i]:
                context.emit(made.slice(ends[i], ends[i + 1] - ends[i]))


class PatternReporter(Operator[dict[str, int]]):
    """Knows the maximal frequent patterns of now, and tells what changes among them.

    >>> here, reporter = Context(0, 1), PatternReporter()
    >>> state = reporter.create(here)
    >>> rows = {"pattern": ["a", "b", "b"], "reported": [True, True, False], "count": [2, 2, 1]}
    >>> reporter.process(state, pa.record_batch(rows, schema=CHANGES), here)
    >>> here.emitted[0].to_pylist(), state
    ([{'pattern': 'a', 'reported': True, 'count': 2}], {'a': 2})
    """

    schema = CHANGES
    keys = ("pattern",)
    output_schema = CHANGES
    state_schema = REPORT

    def create(self, context: Context) -> dict[str, int]:
        """Begin with nothing reported."""
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        """Take what has changed; tell what differs from before."""
        columns = (batch.column(name).to_pylist() for name in CHANGES.names)
        last = {name: (shown, count) for name, shown, count in zip(*columns, strict=True)}
        told = [(name, *now) for name, now in last.items() if now[0] is not (name in state)]
        for name, (shown, count) in last.items():
            if shown:
                state[name] = count
            else:
                state.pop(name, None)
        if told:
            parts = [list(part) for part in zip(*told, strict=True)]
            context.emit(pa.record_batch(parts, schema=CHANGES))

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        """Write what is reported."""
        return [pa.record_batch([list(state), list(state.values())], schema=REPORT)]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, int]:
        """Read what was reported."""
        state = dict[str, int]()
        for batch in batches:
            if batch.schema.names != REPORT.names or any(c.null_count for c in batch.columns):
                raise StateError(f"a report has {REPORT.names} and no null, not {batch.schema}")
            names, counts = (pc.cast(batch[n], REPORT.field(n).type) for n in REPORT.names)
            state.update(zip(names.to_pylist(), counts.to_pylist(), strict=True))
        return state

    def size(self, state: dict[str, int]) -> int:
        """Count the patterns' letters, and 12 bytes for each."""
        return sum(map(len, state)) + 12 * len(state)


def frequent_patterns(
    threshold: int = 15,
    rules: PatternRules | None = None,
    tasks: int | Mapping[str, int] = TASKS,
) -> Topology:
    """Give the three operators and their edges: texts in (`generate`), changes out (`report`).

    Args:
        threshold: a pattern is frequent if it comes more often than this.
        rules: which patterns a text has.
        tasks: of each operator, or by name: `generate`, `detect`, `report`.

    >>> frequent_patterns(threshold=2, tasks=8).tasks_in_all
    24
    """
    return Topology(
        {
            "generate": PatternGenerator(rules or PatternRules()),
            "detect": FrequentPatterns(threshold),
            "report": PatternReporter(),
        },
        edges=[("generate", "detect"), ("detect", "report")],
        tasks=tasks,
    )
