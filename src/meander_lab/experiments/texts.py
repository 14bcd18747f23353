"""From tweets to units of work: words and patterns, with hour, hash and weight, as NumPy columns.

The same words, hashes and weights as the batch pipeline and the runtime have (`operators`), but in one
process: a few hundred thousand tweets take seconds, and experiments need nothing larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from meander.operators import tokenise
from meander.operators.hashing import Hashes, hash_columns
from meander.operators.patterns.rules import PatternRules
from meander.operators.patterns.texts import generate

if TYPE_CHECKING:
    import pyarrow as pa

ENTRY_BYTES = 16
"""What an entry of a state table weighs beside its key: a counter and a hash."""

TEXTS_AT_ONCE = 20_000
"""Their patterns fit into one Arrow array."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units:
    """Occurrences of keys, by ascending time."""

    us: Longs
    """When, in microseconds since 1970."""
    hashes: Hashes
    bytes: Longs
    """What the key weighs in a state table."""

    def between(self, begin_us: int, end_us: int) -> Units:
        """Keep those of a span of time."""
        a, b = np.searchsorted(self.us, [begin_us, end_us])
        return Units(self.us[a:b], self.hashes[a:b], self.bytes[a:b])


def word_units(us: Longs, texts: pa.Array) -> Units:
    """Cut texts into words.

    >>> import pyarrow as pa
    >>> found = word_units(np.array([5, 7]), pa.array(["a b", "a"]))
    >>> found.us.tolist(), found.bytes.tolist()
    ([5, 5, 7], [17, 17, 17])
    """
    found = tokenise(texts)
    return _units(us[found.rows], found.words)


def pattern_units(us: Longs, texts: pa.Array, rules: PatternRules) -> Units:
    """Cut texts into patterns.

    >>> import pyarrow as pa
    >>> found = pattern_units(np.array([5, 7]), pa.array(["b a b", "c"]), PatternRules())
    >>> found.us.tolist(), found.bytes.tolist()  # a, b, "a b"; c
    ([5, 5, 5, 7], [17, 17, 19, 17])
    """
    parts = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = generate(texts.slice(start, TEXTS_AT_ONCE), rules)
        parts.append(_units(us[start + some.rows], some.patterns))
    return Units(
        *(np.concatenate([getattr(p, c) for p in parts]) for c in ("us", "hashes", "bytes"))
    )


def _units(us: Longs, keys: pa.Array) -> Units:
    weight = pc.binary_length(keys).to_numpy().astype(np.int64) + ENTRY_BYTES
    return Units(us, hash_columns([keys]), weight)
