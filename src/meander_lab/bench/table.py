"""The keyed table against a Python dict on the same words, in one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import pyarrow as pa

from meander.operators.keyed import WordCount
from meander.operators.table import KeyedTable

BATCH_ROWS = 8_192
VOCABULARY = 50_000


def table_over_dict(
    seconds: float = 4.0, words: pa.Array | None = None, seed: int = 1
) -> dict[str, Any]:
    """Count the same words with the table and with Python's dict, in turn, and compare.

    This is the steady state of a long stream: each counts the same Arrow batches again and again
    into what it already holds. The table hashes and counts them where they lie; the dict
    (`d[w] = d.get(w, 0) + 1`) and the Counter need Python strings first, which is part of their
    time. `dict_strings_rows_s` leaves that part out: strings are made before the clock starts,
    anew for each run, so that no hash is known from an earlier one.

    Rates are rows per second of processor time of one core, so that other programs on the
    machine blur them less.

    Args:
        seconds: about how long to measure.
        words: a string array; by default Zipf-distributed words under the seed.
        seed: of those words.

    Returns:
        Median rates, `table_over_dict` and `table_over_dict_strings` (ratios of rates), and
        whether all counts were equal in the end.
    """
    column = zipf_words(500_000, seed) if words is None else words
    batches = pa.table({"word": column}).to_batches(max_chunksize=BATCH_ROWS)
    table, counts, counter = KeyedTable(WordCount().layout), dict[str, int](), Counter[str]()
    rivals: dict[str, Callable[[], None]] = {
        "table": lambda: _by_table(table, batches),
        "dict": lambda: _by_dict(counts, _strings(batches)),
        "counter": lambda: _by_counter(counter, _strings(batches)),
    }
    for count in rivals.values():
        count()  # compiles and fills
    rates: dict[str, list[float]] = {name: [] for name in (*rivals, "dict_strings")}
    apart, end = dict(counts), perf_counter() + seconds
    while not rates["table"] or perf_counter() < end:
        for name, count in rivals.items():
            rates[name].append(_rate(count, len(column)))
        ready = list(_strings(batches))
        rates["dict_strings"].append(_rate(partial(_by_dict, apart, ready), len(column)))
    middle = {f"{name}_rows_s": median(found) for name, found in rates.items()}
    return {
        **middle,
        "table_over_dict": middle["table_rows_s"] / middle["dict_rows_s"],
        "table_over_dict_strings": middle["table_rows_s"] / middle["dict_strings_rows_s"],
        "rows": len(column),
        "keys": len(table),
        "runs": len(rates["table"]),
        "exact": _as_dict(table) == counts == counter == apart,
    }


def zipf_words(rows: int, seed: int) -> pa.Array:
    """Draw words whose frequency falls as 1/rank, with the lengths of English ones.

    >>> len(zipf_words(1000, seed=1))
    1000
    """
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    lengths = rng.integers(2, 10, VOCABULARY).tolist()
    drawn = ["".join(row) for row in rng.choice(letters, (VOCABULARY, 9))]
    vocabulary = [word[:length] for word, length in zip(drawn, lengths, strict=True)]
    ranks = rng.choice(VOCABULARY, rows, p=weights / weights.sum())
    return pa.array(vocabulary).take(pa.array(ranks))


def _by_table(table: KeyedTable, batches: list[pa.RecordBatch]) -> None:
    for batch in batches:
        table.update(batch)


def _strings(batches: list[pa.RecordBatch]) -> Iterator[list[str]]:
    return (batch["word"].to_pylist() for batch in batches)


def _by_dict(counts: dict[str, int], batches: Iterable[list[str]]) -> None:
    for words in batches:
        for word in words:
            counts[word] = counts.get(word, 0) + 1


def _by_counter(counter: Counter[str], batches: Iterable[list[str]]) -> None:
    for words in batches:
        counter.update(words)


def _as_dict(table: KeyedTable) -> dict[str, int]:
    found = table.result()
    return dict(zip(found["word"].to_pylist(), found["count"].to_pylist(), strict=True))


def _rate(count: Callable[[], None], rows: int) -> float:
    begin = thread_time()
    count()
    return rows / (thread_time() - begin)
