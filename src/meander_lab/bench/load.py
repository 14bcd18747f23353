"""The load of the live benches: a state of so many keys, a stream of Zipf keys, and its plain count."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.run.flow import TakesRows

DIGITS = 12
ENTRY_BYTES = 12
"""What an entry weighs beside its key: an offset and a counter."""
FILL_ROWS = 16_384
POOL_BATCHES = 64
FILL_S_MAX = 600.0
UNSEEN_POLL_S = 3600.0
"""Longer than a run: chunks are fetched at its end alone. To fetch them takes tens of milliseconds of
every node's and the feeder's time, which rows of that moment would show. A node that leaves hands
over its last 20,000."""


@dataclass(frozen=True)
class LiveSetting:
    """What is compared."""

    nodes: int = 10
    to: int = 8
    tasks: int = 64
    state_mb: float = 256.0
    key_bytes: int = 100
    seconds: float = 60.0
    pause_ms: float = 100.0
    rate: float | None = None
    """Rows a second; None: as many as keep the processors busy for the share `load` of the time."""
    load: float = 0.6
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("state_mb", "seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a positive number, not {value}")
        if not (math.isfinite(self.pause_ms) and self.pause_ms >= 0):
            raise InputError(f"pause_ms must be a number of at least 0, not {self.pause_ms}")
        if not 0 < self.load < 1:
            raise InputError(f"the load is a share of the processors, not {self.load}")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"the rate must be a positive number, not {self.rate}")
        if max(self.nodes, self.to) > self.tasks or min(self.nodes, self.to) < 1:
            raise InputError(f"nodes must be from 1 to the number of tasks ({self.tasks})")
        if self.key_bytes < DIGITS:
            raise InputError(f"keys have at least {DIGITS} bytes")

    @property
    def keys(self) -> int:
        """How many keys make up the state."""
        return max(1, int(self.state_mb * 2**20 / (self.key_bytes + ENTRY_BYTES)))

    def batch(self, ids: npt.NDArray[np.int64]) -> Any:
        """Make rows of keys: their number, padded.

        >>> LiveSetting(key_bytes=16).batch(np.array([7]))["word"].to_pylist()
        ['kkkk000000000007']
        """
        digits = pc.utf8_lpad(pa.array(ids).cast(pa.string()), DIGITS, "0")
        padding = pa.scalar("k" * (self.key_bytes - DIGITS))
        return pa.record_batch({"word": pc.binary_join_element_wise(padding, digits, "")})


class OpenLoad:
    """The stream: a few batches of Zipf keys, again and again."""

    def __init__(self, setting: LiveSetting, rows: int) -> None:
        draw = np.random.Generator(np.random.PCG64(setting.seed))
        shape = POOL_BATCHES, rows
        ranks = (setting.keys ** draw.random(shape)).astype(np.int64) - 1
        spread = draw.permutation(setting.keys)  # ranks say nothing about tasks
        self._ids = spread[np.clip(ranks, 0, setting.keys - 1)]
        self._batches = [setting.batch(ids) for ids in self._ids]
        self._fed = [0] * POOL_BATCHES
        """How often each batch was fed."""

    def __iter__(self) -> Iterator[Any]:
        return cycle(self._batches)

    def feed(self, feeder: TakesRows, k: int, due_s: float | None = None) -> None:
        """Feed the k-th batch, and count it."""
        feeder.feed(self._batches[k % POOL_BATCHES], due_s=due_s)
        self._fed[k % POOL_BATCHES] += 1

    @property
    def rows(self) -> int:
        """Rows that were fed."""
        return sum(self._fed) * int(self._ids.shape[1])

    def counts(self, keys: int) -> npt.NDArray[np.int64]:
        """How often each key was fed."""
        weights = np.repeat(self._fed, self._ids.shape[1])
        found = np.bincount(self._ids.reshape(-1), weights, minlength=keys)
        return found.astype(np.int64)


def fill(feeder: TakesRows, setting: LiveSetting) -> None:
    """Load the state: every key once."""
    for first in range(0, setting.keys, FILL_ROWS):
        feeder.feed(setting.batch(np.arange(first, min(first + FILL_ROWS, setting.keys))))
    feeder.flush(timeout_s=FILL_S_MAX)


def saturation(feeder: TakesRows, load: OpenLoad, seconds: float) -> float:
    """Feed as fast as there is room, and give rows a second."""
    feeder.flush()
    began, rows = time.perf_counter(), load.rows
    for k in count():
        load.feed(feeder, k)
        if time.perf_counter() - began >= seconds:
            break
    feeder.flush()
    return (load.rows - rows) / (time.perf_counter() - began)


def busy_share() -> float:
    """Tell how busy all processors of this machine were since this was last asked, on this thread."""
    percent: float = psutil.cpu_percent()
    return percent / 100


def rate_for(load: float, probes: Sequence[tuple[float, float]], most: float) -> float:
    """Tell how many rows a second keep the processors busy for a share of the time.

    Args:
        load: the share that is wanted.
        probes: two rates, and the shares that they were seen to take; between and around them a
            message costs a part that does not depend on its rows, so it is a line.
        most: not more than this.

    >>> rate_for(0.6, [(100_000.0, 0.4), (300_000.0, 0.8)], most=1e6)
    200000.0
    >>> rate_for(0.6, [(100_000.0, 0.7), (300_000.0, 0.9)], most=1e6)
    50000.0
    """
    (low, low_busy), (high, high_busy) = probes
    slope = max(1e-12, (high_busy - low_busy) / (high - low))
    return float(np.clip(low + (load - low_busy) / slope, low / 2, most))


def exact(setting: LiveSetting, table: Any, loads: list[OpenLoad]) -> bool:
    """Whether every count of a state is that of what was sent."""
    expected = np.ones(setting.keys, dtype=np.int64)
    for load in loads:
        expected += load.counts(setting.keys)
    whole = len(table) == setting.keys
    return whole and bool((counts_of(setting, table) == expected).all())


def counts_of(setting: LiveSetting, table: Any) -> npt.NDArray[np.int64]:
    """Give what a state has counted of every key, by its number."""
    ids = pc.utf8_slice_codeunits(table["word"], start=setting.key_bytes - DIGITS)
    found = np.zeros(setting.keys, dtype=np.int64)
    np.add.at(found, ids.cast(pa.int64()).to_numpy(), table["count"].to_numpy())
    return found
