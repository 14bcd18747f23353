"""The stream of `meander bench messages`: Zipf words, a batch every 10 ms, all made beforehand.

    warm-up │ rest: no rows │ steady │ tail: no rows
            └ metrics, idle └ measured

The rest tells the warm-up's latencies from those that are measured: nodes are asked for their
histograms while no row can wait for the answer. In the tail the feeder's process still lives, so that
its time on the processor can be read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import NodeId
from meander.operators.hashing import hash_columns, tasks_of
from meander.runtime.process.source import SourceBatch
from meander.sources.pacing import PacedPiece, paced
from meander_lab.baselines.bare_stream import Parts
from meander_lab.bench.closed_loop import equals_plain_count
from meander_lab.bench.table import zipf_words

BATCHES_S = 100
"""Batches a second."""
POOL_BATCHES = 100
"""Different ones; they come again and again."""
WARM_S_MAX, REST_S_MAX = 2.0, 3.0
"""Warm-up and rest take as long as what is measured, but no longer than that."""
TAIL_S = 1.0


@dataclass(frozen=True)
class MessageLoad:
    """So many rows a second for so long. A value: the feeder's process makes its batches itself."""

    rate: int
    seconds: float
    seed: int = 1

    def __post_init__(self) -> None:
        if self.rate < BATCHES_S or self.rate % BATCHES_S:
            raise InputError(f"rates are multiples of {BATCHES_S} rows a second, not {self.rate}")
        if not (math.isfinite(self.seconds) and self.seconds >= 1 / BATCHES_S):
            raise InputError(f"the seconds must be a positive number, not {self.seconds}")

    @property
    def warm_s(self) -> float:
        """How long rows come before the rest."""
        return min(self.seconds, WARM_S_MAX)

    @property
    def steady_at_s(self) -> float:
        """When the steady part begins, after the start."""
        return self.warm_s + min(self.seconds, REST_S_MAX)

    @property
    def warm_batches(self) -> int:
        """How many batches come first."""
        return round(self.warm_s * BATCHES_S)

    @property
    def batches(self) -> int:
        """How many batches are measured."""
        return round(self.seconds * BATCHES_S)

    def words(self) -> pa.Array:
        """Draw the rows of the pool, one after the other."""
        return zipf_words(POOL_BATCHES * (self.rate // BATCHES_S), self.seed)

    def pool(self) -> list[pa.RecordBatch]:
        """Make the batches."""
        rows, words = self.rate // BATCHES_S, self.words()
        slices = [words.slice(i * rows, rows) for i in range(POOL_BATCHES)]
        # Each with buffers of its own, as a source gives them.
        return [pa.record_batch({"word": pa.concat_arrays([part])}) for part in slices]

    def pieces(self, after: int = -1) -> Iterator[PacedPiece]:
        """Schedule the batches after an offset."""
        pool, warm = self.pool(), self.warm_batches
        for k in range(after + 1, warm + self.batches):
            at = k / BATCHES_S if k < warm else self.steady_at_s + (k - warm) / BATCHES_S
            yield PacedPiece(k, pool[k % POOL_BATCHES], at)

    def parts(self, owners: Sequence[NodeId]) -> Parts:
        """Cut each batch of the pool by who owns its keys; nodes that get nothing are left out."""
        nodes = {name: i for i, name in enumerate(dict.fromkeys(owners))}
        number = np.array([nodes[name] for name in owners])
        return [_cut(batch, number) for batch in self.pool()]

    def messages(self, parts: Parts) -> int:
        """Tell how many (batch, node with rows) the steady part has."""
        first = self.warm_batches
        return sum(len(parts[k % POOL_BATCHES]) for k in range(first, first + self.batches))

    def counted(self, state: Any) -> bool:
        """Whether a state has exactly the counts of the whole stream."""
        fed = np.arange(self.warm_batches + self.batches) % POOL_BATCHES
        times = np.bincount(fed, minlength=POOL_BATCHES)
        return equals_plain_count(state, self.words(), np.repeat(times, self.rate // BATCHES_S))


def _cut(batch: pa.RecordBatch, nodes: npt.NDArray[np.int64]) -> list[tuple[int, pa.RecordBatch]]:
    owners = nodes[tasks_of(hash_columns(batch), len(nodes))]
    present = np.unique(owners).tolist()
    return [(node, batch.take(pa.array(np.flatnonzero(owners == node)))) for node in present]


@dataclass(frozen=True)
class PacedLoad:
    """The stream as a feeder's process reads it."""

    load: MessageLoad
    start_s: float
    """When it begins, in seconds since 1970."""

    def __call__(self, after: int) -> Iterator[SourceBatch]:
        """Give the batches after an offset, each when it is due."""
        yield from paced(self.load.pieces(after), self.start_s)
        end = self.start_s + self.load.steady_at_s + self.load.seconds + TAIL_S
        time.sleep(max(0.0, end - time.time()))
