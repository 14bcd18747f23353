r"""Texts to words: a word is a match of `\w+` in the lower-cased text, as Python's `re` sees it.

So `tokenise` gives what `re.findall(r"\w+", text.lower())` gives, for all of Unicode, in one
compiled pass over the UTF-8 bytes: a table says for each code point what its lower case is and
whether that is part of a word. The table is made from `re` and `str.lower` themselves when it
is first used, so it knows the Unicode version of the running Python. In Spark SQL the same is
`regexp_extract_all(lower(text), '[\\p{L}\\p{N}_]+', 0)`, up to the Unicode version of its Java.

Two letters cannot be lower-cased on their own: Σ (σ, or ς at the end of a word) and İ (which
becomes two code points). A batch that holds one is lower-cased by Python first, which is exact
and some times slower.

>>> found = tokenise(pa.array(["To be, or NOT to be!", None, "Straße №5"]))
>>> found.words.to_pylist()
['to', 'be', 'or', 'not', 'to', 'be', 'straße', '5']
>>> found.rows.tolist()
[0, 0, 0, 0, 0, 0, 2, 2]
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError, TooLargeError
from meander.operators.columns import Bytes, bytes_of, plain
from meander.operators.kernels import text as kernel

TEXT_BYTES_MAX = 2**30
"""Text in one call: lower-cased it still fits the 32-bit offsets of its words."""

CONTEXTUAL = "\u0130\u03a3"
"""İ and Σ: their lower case is two code points, or depends on the neighbours."""


class Words(NamedTuple):
    """Words in the order of their texts."""

    words: pa.Array
    """A string array."""
    rows: npt.NDArray[np.int32]
    """For each word the row of its text."""


def tokenise(texts: pa.Array | pa.ChunkedArray) -> Words:
    """Cut a column of texts into words. A null has none.

    Raises:
        InputError: for a column that is not of strings, or broken offsets.
        TooLargeError: for more than TEXT_BYTES_MAX of text.
    """
    array = plain(texts)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise InputError(f"words are cut from a column of strings, not of {array.type}")
    found = _words(bytes_of(array))
    if found is None:
        lowered = [None if text is None else text.lower() for text in array.to_pylist()]
        found = _words(bytes_of(pa.array(lowered, array.type)))
    assert found is not None, "lower-cased text needs no context"
    return found


def _words(view: Bytes) -> Words | None:
    """Run the kernel; None if a letter needs its context."""
    size = _text_size(view)
    if size > TEXT_BYTES_MAX:
        raise TooLargeError(f"{size} bytes of text in one batch: give at most {TEXT_BYTES_MAX}")
    most = size // 2 + view.length + 1  # words are kept apart by a byte or by the end of a text
    out = np.empty(size + size // 2 + 8, dtype=np.uint8)  # lower-casing adds half at most
    ends, rows = np.empty(most + 1, dtype=np.int32), np.empty(most, dtype=np.int32)
    count = kernel.words(
        view.offsets, view.wide, view.data, view.size, *view.validity, view.length,
        letters(), out.ctypes.data, ends, rows,
    )  # fmt: skip
    if count == kernel.BAD_OFFSETS:
        raise InputError("a text has offsets outside its data")
    if count == kernel.NEEDS_CONTEXT:
        return None
    parts = [None, pa.py_buffer(ends[: count + 1]), pa.py_buffer(out[: ends[count]])]
    return Words(pa.Array.from_buffers(pa.string(), count, parts), rows[:count])


def _text_size(view: Bytes) -> int:
    """Bound the text that the rows can hold: what lies between the first and the last offset."""
    if not view.length:
        return 0
    item, dtype = (8, np.int64) if view.wide else (4, np.int32)
    raw = pa.foreign_buffer(view.offsets, (view.length + 1) * item, view.owner)
    offsets = np.frombuffer(raw, dtype)
    return max(int(offsets[-1]) - int(offsets[0]), 0)


@cache
def letters() -> npt.NDArray[np.int32]:
    """Tabulate, for every code point, its lower case if that is part of a word; else 0.

    >>> table = letters()
    >>> chr(table[ord("É")]), int(table[ord("!")]), int(table[ord("Σ")])
    ('é', 0, -1)
    """
    result = np.zeros(kernel.CODE_POINTS, dtype=np.int32)
    for first, last in ((0, 0xD800), (0xE000, kernel.CODE_POINTS)):  # between: no characters
        points = "".join(map(chr, range(first, last)))
        for letter in CONTEXTUAL:
            points = points.replace(letter, "\0")
        lower = points.lower()
        assert len(lower) == last - first, "a letter's lower case is one code point"
        lowered = np.frombuffer(lower.encode("utf-32-le"), dtype=np.int32)
        for match in re.finditer(r"\w+", lower):
            result[first + match.start() : first + match.end()] = lowered[slice(*match.span())]
    for letter in CONTEXTUAL:
        result[ord(letter)] = -1
    return result
