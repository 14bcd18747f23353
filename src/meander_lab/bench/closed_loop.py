"""Word count as fast as it takes, and the plain count that every bench compares with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.run.flow import TakesRows

FLUSH_S_MAX = 600.0


def rows_s(feeder: TakesRows, batches: Sequence[pa.RecordBatch]) -> float:
    """Feed batches as there is room; give rows a second until all are applied."""
    began = time.perf_counter()
    for batch in batches:
        feeder.feed(batch)
    feeder.flush(timeout_s=FLUSH_S_MAX)
    return float(sum(batch.num_rows for batch in batches)) / (time.perf_counter() - began)


def equals_plain_count(state: Any, words: pa.Array, times: int | npt.NDArray[np.int64]) -> bool:
    """Whether a state has exactly the counts of words, each of which came so many times.

    >>> state = pa.table({"word": ["be", "to"], "count": [4, 2]})
    >>> equals_plain_count(state, pa.array(["to", "be", "be"]), 2)
    True
    >>> equals_plain_count(state, pa.array(["to", "be", "be"]), np.array([2, 4, 1]))
    False
    """
    coded = words.dictionary_encode()
    weights = np.broadcast_to(times, len(words))
    counts = np.bincount(coded.indices.to_numpy(), weights).astype(np.int64).tolist()
    pairs = zip(coded.dictionary.to_pylist(), counts, strict=True)
    expected = {word: count for word, count in pairs if count}
    found = dict(zip(state["word"].to_pylist(), state["count"].to_pylist(), strict=True))
    return bool(state.num_rows == len(expected)) and found == expected
