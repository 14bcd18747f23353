"""Frequent patterns as the paper's topology, against patterns that the feeder makes.

    in the feeder   texts ─► Pattern Generator ─► feeder ─► Detector (nodes)
    topology        texts ─► feeder ─► Pattern Generator ─► Detector ─► Reporter (nodes)

The same window slides over the same texts, as fast as there is room, in turns; both sides compile and
fill before the clock starts. A run is over when all is applied and the loop is empty. Afterwards both
must report the same patterns, those of a plain program.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.operators import FrequentPatterns, PatternRules, frequent_patterns, generate
from meander.operators.patterns.stages import TEXTS
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander_lab.bench.table import zipf_words

WORDS: Final = 12
"""Of a text."""
STEP: Final = 200
"""Texts that come at once, and as many leave …"""
STEPS: Final = 10
"""… so many steps later."""
WARM_STEPS: Final = 20
THRESHOLD: Final = 15
OUTPUT_ROWS_MAX: Final = 1000
"""Of a task, where nobody reads them."""
WAIT_S_MAX: Final = 300.0
SIDES: Final = ("feeder", "topology")


@dataclass(frozen=True)
class StagesSetting:
    """What is compared."""

    nodes: int = 2
    tasks: int = 32
    """Of the Detector; generator and reporter have a quarter."""
    texts: int = 60_000
    """Of a run: so many come, and all leave again but for the window."""
    pairs: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        if self.nodes > self.tasks:
            raise InputError(f"{self.nodes} nodes need as many tasks, not {self.tasks}")

    @property
    def steps(self) -> list[pa.Array]:
        """Draw the texts, a step at a time."""
        count = -(-self.texts // STEP) * STEP
        ends = pa.array(range(0, count * WORDS + 1, WORDS), pa.int32())
        texts = pa.ListArray.from_arrays(ends, zipf_words(count * WORDS, self.seed))
        joined = pc.binary_join(texts, " ")
        return [joined.slice(at, STEP) for at in range(0, count, STEP)]


def compare(setting: StagesSetting, say: Callable[[str], None]) -> dict[str, Any]:
    """Run both sides in turn; compare their texts a second, and what they report."""
    steps, rates = setting.steps, {side: list[float]() for side in SIDES}
    expected, equal = _expected(steps[-STEPS:]), True
    for pair in range(setting.pairs):
        for side in sorted(SIDES, reverse=bool(pair % 2)):
            rate, reported = _run(side, setting, steps)
            rates[side].append(rate)
            equal = equal and reported == expected
        say(f"pair {pair + 1} of {setting.pairs}")
    shares = [b / a for a, b in zip(rates["feeder"], rates["topology"], strict=True)]
    return {
        "share": statistics.median(shares), "equal": equal, "shares": shares,
        **{f"{side}_texts_s": statistics.median(rates[side]) for side in SIDES},
        "reported": len(expected), "texts": sum(len(texts) for texts, _ in _sliding(steps)),
        "nodes": setting.nodes, "tasks": setting.tasks, "pairs": setting.pairs,
    }  # fmt: skip


def _run(side: str, setting: StagesSetting, steps: list[pa.Array]) -> tuple[float, set[str]]:
    """Slide the window; give texts a second, coming and leaving, and what is reported."""
    with ExitStack() as stack:
        op = stack.enter_context(_deployed(side, setting))
        feeder = stack.enter_context(op.feeder("window"))
        for texts in steps[:WARM_STEPS]:
            for sign in (1, -1):
                feeder.feed(_rows(side, texts, sign))
        feeder.flush(timeout_s=WAIT_S_MAX)
        op.drain(WAIT_S_MAX)
        began, fed = time.perf_counter(), 0
        for texts, sign in _sliding(steps):
            feeder.feed(_rows(side, texts, sign))
            fed += len(texts)
        feeder.flush(timeout_s=WAIT_S_MAX)
        op.drain(WAIT_S_MAX)
        seconds = time.perf_counter() - began
        return fed / seconds, _reported(side, op)


def _deployed(side: str, setting: StagesSetting) -> ElasticOperator:
    few = max(setting.nodes, setting.tasks // 4)
    tasks = {"generate": few, "detect": setting.tasks, "report": few}
    made = (
        FrequentPatterns(THRESHOLD)
        if side == "feeder"
        else frequent_patterns(THRESHOLD, tasks=tasks)
    )
    return deploy_local(
        made, tasks=setting.tasks, nodes=setting.nodes, output_rows_max=OUTPUT_ROWS_MAX
    )


def _rows(side: str, texts: pa.Array, sign: int) -> pa.RecordBatch:
    if side == "feeder":
        return generate(texts, PatternRules()).changes(sign)
    return pa.record_batch([texts, pa.array([sign] * len(texts), pa.int32())], schema=TEXTS)


def _sliding(steps: list[pa.Array]) -> Iterator[tuple[pa.Array, int]]:
    for at, texts in enumerate(steps):
        yield texts, 1
        if at >= STEPS:
            yield steps[at - STEPS], -1


def _reported(side: str, op: ElasticOperator) -> set[str]:
    if side == "topology":
        return set(op.state_table(WAIT_S_MAX, of="report")["pattern"].to_pylist())
    state = op.state_table(WAIT_S_MAX)
    return set(state.filter(state["reported"])["pattern"].to_pylist())


def _expected(window: list[pa.Array]) -> set[str]:
    """Name the maximal frequent patterns of some texts, without any of our counting."""
    found = generate(pa.concat_arrays(window), PatternRules()).patterns.value_counts()
    counts = zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)
    often = [frozenset(name.split(" ")) for name, count in counts if count > THRESHOLD]
    large = [some for some in often if len(some) > 1]
    inside = {word for some in large for word in some}
    single = {word for some in often if len(some) == 1 for word in some}
    return {" ".join(sorted(some, key=str.encode)) for some in large} | (single - inside)
