"""A windowed source as the Detector's feeder reads it: paced, its texts made into patterns.

    window ─► wait until due ─► Pattern Generator (the stateless stage) ─► feeder

A block's patterns are made once for each cursor, when its first slice comes; slices then share them.
Parallelism of the stage is the number of parts, as for words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from meander.operators import KeyedTable, WordCount
from meander.operators.patterns.rules import PatternRules
from meander.operators.patterns.texts import Patterns, generate
from meander.operators.words import tokenise
from meander.runtime.process.source import SourceBatch
from meander.sources.files import TextSource
from meander.sources.pacing import PacedPiece, paced
from meander.sources.windows import Slice, Window
from meander.sources.words import SourcePart, SourceProgress

BLOCK_PATTERNS_MAX = 500_000
"""Of one block, if all its texts are as long as they may be: some ten megabytes."""
TEXTS_MAX = 2000


def window_of(source: Any, rules: PatternRules, *, drains: bool = False) -> Window:
    """Make the window that the rules ask for, with blocks whose patterns fit into memory.

    >>> from meander.sources.generated import Tweets
    >>> window_of(Tweets(1.0), PatternRules(size_max=3)).block_texts_max
    370
    """
    texts = max(1, min(TEXTS_MAX, BLOCK_PATTERNS_MAX // rules.patterns_max))
    return Window(source, rules.window_s, texts, drains)


@dataclass(frozen=True)
class PatternSource:
    """One part of a window, as changes of pattern counts. A value: it is sent to where it is read."""

    window: Window
    rules: PatternRules
    of: SourcePart

    def __call__(self, offset: int) -> Iterator[SourceBatch]:
        """Give the changes after an offset, each when it is due."""
        slices = self.window.read(offset, self.of.part, self.of.parts)
        pieces = (PacedPiece(found.offset, found, found.after_s) for found in slices)
        making = Making(self.rules)
        with SourceProgress(self.of) as progress:
            for number, found, due_s in paced(pieces, self.of.start_s, progress.stop.is_set):
                rows = making.changes(found)
                progress.count(number, due_s, **making.facts(found), patterns=rows.num_rows)
                yield SourceBatch(number, rows, due_s)


class Making:
    """Makes patterns of slices; remembers the block that each cursor is in."""

    def __init__(self, rules: PatternRules) -> None:
        self._rules = rules
        self._made: dict[int, tuple[int, Patterns, pa.RecordBatch]] = {}
        """By sign: the number of the block, its patterns, the same as changes."""
        self._fresh: Patterns | None = None

    def changes(self, found: Slice) -> pa.RecordBatch:
        """Give a slice's patterns as changes of their counts."""
        made = self._made.get(found.sign)
        self._fresh = None
        if made is None or made[0] != found.block.number:
            patterns = generate(found.block.texts, self._rules)
            made = found.block.number, patterns, patterns.changes(found.sign)
            self._made[found.sign] = made
            self._fresh = patterns
        start, end = np.searchsorted(made[1].rows, (found.start, found.end)).tolist()
        return made[2].slice(start, end - start)

    def facts(self, found: Slice) -> dict[str, int]:
        """Count what came in with the last slice: texts, and of fresh blocks words and cut texts."""
        if found.sign < 0:
            return {}
        facts = {"texts": found.end - found.start}
        if self._fresh is not None:
            facts |= {"words": self._fresh.words, "cut": self._fresh.cut}
        return facts


def top_words(source: TextSource, count: int, rules: PatternRules) -> frozenset[str]:
    """Give the most frequent words of a source that the rules take; of equals the lesser ones.

    Reads the whole source.
    """
    table = KeyedTable(WordCount().layout)
    for piece in source.read():
        table.update(pa.record_batch({"word": tokenise(piece.batch.column("text")).words}))
    found = table.result()
    names, counts = found.column("word").to_pylist(), found.column("count").to_pylist()
    ranked = sorted((-n, word) for n, word in zip(counts, names, strict=True) if rules.takes(word))
    return frozenset(word for _, word in ranked[:count])


def with_top_words(source: TextSource, count: int, rules: PatternRules) -> PatternRules:
    """Take only the most frequent words of a source into patterns."""
    return replace(rules, dictionary=top_words(source, count, rules))
