"""Texts of files, sockets and generators for `op.source`: rows of `ts` and `text`, when due."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from meander.runtime.process.source import Given
from meander.sources.files import TextSource
from meander.sources.pacing import paced


@dataclass(frozen=True)
class Texts:
    """A source of texts, read in so many partitions side by side.

    >>> from meander.sources.generated import Tweets
    >>> tweets = Texts(Tweets(seconds=0.1, tweets_s=500.0), 2, start_s=0.0)
    >>> [found.offset for found in tweets.read("1", after=1, schema=None)]
    [3]
    """

    source: TextSource
    parts: int = 1
    start_s: float = field(default_factory=time.time)
    """When the stream begins, in seconds since 1970."""

    def check(self) -> None:
        """Refuse what cannot be read."""
        self.source.check()

    def partitions(self) -> Sequence[str]:
        """Number the parts."""
        return [str(part) for part in range(self.parts)]

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        """Give the batches of a part, each when it is due."""
        pieces = self.source.read(after, int(partition), self.parts)
        return paced(pieces, self.start_s)
