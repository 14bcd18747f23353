"""Words to patterns: the words that count of each text, and all their combinations.

Words are numbers here: their rank among the words of the batch in the order of their bytes, or -1
for a word that no pattern holds. So sorting words is sorting integers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import copy_bytes, store_u8


@njit(cache=True, nogil=True)
def choose(
    rows: np.ndarray, ranks: np.ndarray, words_max: int, kept: np.ndarray, ends: np.ndarray
) -> int:
    """Give each text's words: distinct, ascending, at most `words_max` of them.

    Args:
        rows: the text of each word, ascending.
        ranks: of each word.
        words_max: how many are kept.
        kept: room for all words; text t's are `kept[ends[t]:ends[t+1]]`.
        ends: zeros, one more than there are texts.

    Returns:
        How many texts had more.
    """
    used, at, cut = 0, 0, 0
    for text in range(len(ends) - 1):
        first = used
        while at < len(rows) and rows[at] == text:
            if ranks[at] >= 0:
                kept[used] = ranks[at]
                used += 1
            at += 1
        found = kept[first:used]
        found.sort()
        distinct = 0
        for i in range(len(found)):
            if i == 0 or found[i] != found[distinct - 1]:
                found[distinct] = found[i]
                distinct += 1
        if distinct > words_max:
            cut += 1
            distinct = words_max
        used = first + distinct
        ends[text + 1] = used
    return cut


@njit(cache=True, nogil=True)
def measure(
    kept: np.ndarray, ends: np.ndarray, lengths: np.ndarray, choices: np.ndarray, size_max: int
) -> tuple[int, int]:
    """Count the patterns of all texts, and their bytes; `choices[n, k]` is n over k."""
    patterns, size = 0, 0
    for text in range(len(ends) - 1):
        words = ends[text + 1] - ends[text]
        letters = 0
        for i in range(ends[text], ends[text + 1]):
            letters += lengths[kept[i]]
        for k in range(1, min(words, size_max) + 1):
            patterns += choices[words, k]
            size += letters * choices[words - 1, k - 1] + (k - 1) * choices[words, k]
    return patterns, size


@njit(cache=True, nogil=True)
def combine(
    kept: np.ndarray,
    ends: np.ndarray,
    offsets: np.ndarray,
    data: int,
    size_max: int,
    target: int,
    out: np.ndarray,
    rows: np.ndarray,
) -> None:
    """Write all patterns: text by text, smaller ones first.

    Args:
        kept: what `choose` gave.
        ends: the same.
        offsets: of the words by rank.
        data: address of their bytes.
        size_max: most words in a pattern.
        target: address for the bytes.
        out: zero, then where each pattern ends.
        rows: the text of each pattern.
    """
    pick = np.zeros(size_max, dtype=np.int64)
    row, used = 0, 0
    for text in range(len(ends) - 1):
        first, words = ends[text], ends[text + 1] - ends[text]
        for k in range(1, min(words, size_max) + 1):
            for i in range(k):
                pick[i] = i
            while True:
                for i in range(k):
                    if i:
                        store_u8(target + used, np.uint8(32))
                        used += 1
                    word = kept[first + pick[i]]
                    length = offsets[word + 1] - offsets[word]
                    copy_bytes(target + used, data + offsets[word], length)
                    used += length
                out[row + 1] = used
                rows[row] = text
                row += 1
                last = k - 1  # the rightmost word that can be followed by another choice
                while last >= 0 and pick[last] == words - k + last:
                    last -= 1
                if last < 0:
                    break
                pick[last] += 1
                for i in range(last + 1, k):
                    pick[i] = pick[i - 1] + 1
