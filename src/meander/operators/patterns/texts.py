"""The Pattern Generator: texts to patterns (the stateless stage of the paper's Figure 10).

A pattern is a set of 1 … `size_max` distinct words of one text, written in ascending order (of
their bytes) with one space between them. Words are those of `tokenise`; the rules say which count.

Growth. c words have c + c(c-1)/2 + … patterns, so of a text with more than `words_max` words that
count only the first ones are taken, in ascending order (as in `spark/pipeline/patterns.py`); `cut` has
the number of such texts. All sub-patterns of a pattern are patterns of the same text, cut or not, so a
pattern never comes more often than any of its sub-patterns.

>>> found = generate(pa.array(["Storm, Apache Storm!"]), PatternRules(size_max=2))
>>> found.patterns.to_pylist()
['apache', 'storm', 'apache storm']
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import TooLargeError
from meander.operators.columns import plain
from meander.operators.kernels import combine as kernel
from meander.operators.patterns.rules import PatternRules
from meander.operators.words import tokenise

BATCH_BYTES_MAX = 2**30
"""Patterns of one call: they fit 32-bit offsets."""

SCHEMA = pa.schema({"pattern": pa.string(), "count": pa.int32(), "supers": pa.int32()})
"""What the Detector takes: by how much a pattern's two counters change."""


class Patterns(NamedTuple):
    """The patterns of some texts, text by text."""

    patterns: pa.Array
    """A string array."""
    rows: npt.NDArray[np.int32]
    """For each pattern the row of its text."""
    words: int
    """How many words the texts have, of all kinds."""
    cut: int
    """How many texts had more words than are taken."""

    def changes(self, count: int) -> pa.RecordBatch:
        """Make rows for the Detector: every pattern comes `count` times more (-1: once less).

        >>> generate(pa.array(["apache"]), PatternRules()).changes(-1).to_pylist()
        [{'pattern': 'apache', 'count': -1, 'supers': 0}]
        """
        rows = len(self.patterns)
        counts = np.full(rows, count, dtype=np.int32)
        zeros = np.zeros(rows, dtype=np.int32)
        return pa.record_batch([self.patterns, pa.array(counts), pa.array(zeros)], schema=SCHEMA)


def generate(texts: pa.Array | pa.ChunkedArray, rules: PatternRules) -> Patterns:
    """Give all patterns of a column of texts.

    Raises:
        InputError: for a column that is not of strings.
        TooLargeError: for more than BATCH_BYTES_MAX of patterns.
    """
    found = tokenise(texts)
    encoded = found.words.dictionary_encode()
    names, ranks = _ranked(encoded.dictionary, rules)
    codes = np.asarray(encoded.indices)
    of_words = ranks[codes] if len(codes) else np.zeros(0, dtype=np.int32)
    kept, ends = np.empty(len(codes), dtype=np.int32), np.zeros(len(texts) + 1, dtype=np.int64)
    cut = kernel.choose(found.rows, of_words, rules.words_max, kept, ends)
    offsets = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1)
    choices = _choices(rules)
    count, size = kernel.measure(kept, ends, np.diff(offsets), choices, rules.size_max)
    if size > BATCH_BYTES_MAX:
        raise TooLargeError(
            f"the patterns of {len(texts)} texts take {size} bytes: give fewer texts at a time"
        )
    out, rows = np.zeros(count + 1, dtype=np.int32), np.empty(count, dtype=np.int32)
    letters = np.empty(size, dtype=np.uint8)
    data = names.buffers()[2]
    where = 0 if data is None else data.address
    kernel.combine(kept, ends, offsets, where, rules.size_max, letters.ctypes.data, out, rows)
    parts = [None, pa.py_buffer(out), pa.py_buffer(letters)]
    patterns = pa.Array.from_buffers(pa.string(), count, parts)
    return Patterns(patterns, rows, len(found.words), int(cut))


def _ranked(distinct: pa.Array, rules: PatternRules) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Give the words that count in ascending order, and each word's rank there or -1."""
    wanted = np.fromiter(map(rules.takes, distinct.to_pylist()), dtype=bool, count=len(distinct))
    order = np.asarray(pc.sort_indices(distinct))  # by their bytes, as Spark sorts
    chosen = order[wanted[order]]
    ranks = np.full(len(distinct), -1, dtype=np.int32)
    ranks[chosen] = np.arange(len(chosen), dtype=np.int32)
    names = plain(distinct.take(pa.array(chosen)))
    if names.offset or names.buffers()[1] is None:  # an empty one may have no offsets at all
        names = pa.concat_arrays([names, pa.array([""])]).slice(0, len(names))
    return names, ranks


def _choices(rules: PatternRules) -> npt.NDArray[np.int64]:
    """Tabulate n over k, for all texts there can be."""
    return np.array(
        [[comb(n, k) for k in range(rules.size_max + 1)] for n in range(rules.words_max + 1)],
        dtype=np.int64,
    )
