"""The Detector against Python dicts on the same sliding window, loop included, in one run."""

from __future__ import annotations

from statistics import median
from time import perf_counter, thread_time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from meander.operators.base import Context
from meander.operators.patterns.detector import FrequentPatterns
from meander.operators.patterns.rules import PatternRules
from meander.operators.patterns.table import PatternTable
from meander.operators.patterns.texts import generate
from meander_lab.bench.table import zipf_words

TEXTS, WORDS = 6000, 12
"""Texts of the stream, and words of each."""
STEP, WINDOW = 200, 10
"""Texts that come at once, and how many steps they stay."""
THRESHOLD = 15


def detector_over_dict(seconds: float = 4.0, seed: int = 1) -> dict[str, Any]:
    """Slide the same window over the same texts with the Detector and with dicts, in turn.

    Each begins anew in every run, so patterns come, cross the threshold, and are forgotten. The
    Detector gets Arrow batches as a node does; the dicts' strings are made from them on the clock
    (`dict`) or before it starts (`dict_strings`).

    Rates are rows (changes of pattern counts) per second of processor time of one core.
    """
    changes = _changes(seed)
    rows = sum(batch.num_rows for batch in changes)
    rates: dict[str, list[float]] = {"table": [], "dict": [], "dict_strings": []}
    _by_detector(changes[:2])  # compiles
    end = perf_counter() + seconds
    while not rates["table"] or perf_counter() < end:
        begin = thread_time()
        state = _by_detector(changes)
        rates["table"].append(rows / (thread_time() - begin))
        begin = thread_time()
        ready = [_strings(batch) for batch in changes]
        middle = thread_time()
        counts, supers = _by_dict(ready)
        rates["dict"].append(rows / (thread_time() - begin))
        rates["dict_strings"].append(rows / (thread_time() - middle))
    found = {f"{name}_rows_s": median(times) for name, times in rates.items()}
    shown = {p for p, n in counts.items() if n > THRESHOLD and not supers.get(p)}
    return {
        **found,
        "table_over_dict": found["table_rows_s"] / found["dict_rows_s"],
        "table_over_dict_strings": found["table_rows_s"] / found["dict_strings_rows_s"],
        "rows": rows,
        "keys": len(state),
        "runs": len(rates["table"]),
        "exact": _column(state.result(), "count") == counts
        and set(state.report()["pattern"].to_pylist()) == shown,
    }


def _changes(seed: int) -> list[pa.RecordBatch]:
    """Make the stream: texts come, and leave when the window has moved on."""
    words = zipf_words(TEXTS * WORDS, seed)
    offsets = pa.array(range(0, TEXTS * WORDS + 1, WORDS), pa.int32())
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")
    steps = [generate(texts.slice(at, STEP), PatternRules()) for at in range(0, TEXTS, STEP)]
    found = []
    for i, step in enumerate(steps):
        found.append(step.changes(1))
        if i >= WINDOW:
            found.append(steps[i - WINDOW].changes(-1))
    return found


def _by_detector(batches: list[pa.RecordBatch]) -> PatternTable:
    detector, here = FrequentPatterns(THRESHOLD), Context(0, 1)
    state = detector.create(here)
    for batch in batches:
        detector.process(state, batch, here)
        fed, here.fed = here.fed, []
        for back in fed:
            detector.process(state, back, here)
    return state


def _strings(batch: pa.RecordBatch) -> tuple[list[str], list[int]]:
    return batch["pattern"].to_pylist(), batch["count"].to_pylist()


def _by_dict(batches: list[tuple[list[str], list[int]]]) -> tuple[dict[str, int], dict[str, int]]:
    counts, supers = dict[str, int](), dict[str, int]()
    for names, changes in batches:
        for name, change in zip(names, changes, strict=True):
            before = counts.get(name, 0)
            now = before + change
            if now:
                counts[name] = now
            else:
                del counts[name]
            if (now > THRESHOLD) != (before > THRESHOLD):
                words = name.split(" ")
                for i in range(len(words) if len(words) > 1 else 0):
                    under = " ".join(words[:i] + words[i + 1 :])
                    supers[under] = supers.get(under, 0) + (1 if now > before else -1)
    return counts, supers


def _column(batch: pa.RecordBatch, name: str) -> dict[str, int]:
    return dict(zip(batch["pattern"].to_pylist(), batch[name].to_pylist(), strict=True))
