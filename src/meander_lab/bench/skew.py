"""One key that is half of the stream, against keys that are all alike: `meander bench skew`.

Two feeders of one deployment, one stream each; their runs alternate, so that a noisy moment falls on
both alike. A run is rows fed as fast as there is room, over the time until all are applied. The share
is the median, over the pairs, of the skewed stream's rows a second over the uniform one's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.local import deploy_local
from meander_lab.bench.closed_loop import equals_plain_count, rows_s

BATCH_ROWS = 16_384
POOL_ROWS = 1_000_000
"""Different rows; they come again and again."""
STATE_S_MAX = 120.0
STREAMS = ("skewed", "uniform")


@dataclass(frozen=True)
class SkewSetting:
    """What is compared."""

    nodes: int = 4
    tasks: int = 64
    keys: int = 100_000
    rows: int = 10_000_000
    """Of a run; rounded up to whole pools."""
    pairs: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if self.nodes > self.tasks:
            raise InputError(f"{self.nodes} nodes need as many tasks, not {self.tasks}")

    def words(self, stream: str) -> pa.Array:
        """Draw the pool of a stream: keys that are all alike, every second of them the same one."""
        draw = np.random.default_rng(self.seed)
        ids = draw.integers(0, self.keys, min(self.rows, POOL_ROWS))
        if stream == "skewed":
            ids[draw.permutation(len(ids))[: len(ids) // 2]] = 0
        names = pc.binary_join_element_wise(
            "key", pa.array(np.arange(self.keys)).cast("string"), ""
        )
        return names.take(pa.array(ids))


def compare(setting: SkewSetting, say: Callable[[str], None]) -> dict[str, Any]:
    """Run both streams in turn, and compare their rates and every count."""
    words = {name: setting.words(name) for name in STREAMS}
    turns = -(-setting.rows // len(words["uniform"]))
    batches = {
        name: pa.table({"word": each}).to_batches(max_chunksize=BATCH_ROWS) * turns
        for name, each in words.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in STREAMS}
    with deploy_local(WordCount(), tasks=setting.tasks, nodes=setting.nodes) as op:
        feeders = {name: op.feeder(name) for name in STREAMS}
        for name, feeder in feeders.items():
            rows_s(feeder, batches[name])  # fills the tables
        for pair in range(setting.pairs):
            for name in sorted(STREAMS, reverse=bool(pair % 2)):
                rates[name].append(rows_s(feeders[name], batches[name]))
            say(f"pair {pair + 1} of {setting.pairs}")
        for feeder in feeders.values():
            feeder.close()
        every = pa.concat_arrays(list(words.values()))
        equal = equals_plain_count(op.state_table(STATE_S_MAX), every, turns * (setting.pairs + 1))
    shares = [a / b for a, b in zip(rates["skewed"], rates["uniform"], strict=True)]
    return {
        "share": statistics.median(shares), "equal": equal,
        **{f"{name}_rows_s": statistics.median(rates[name]) for name in STREAMS},
        "shares": shares, "rows": turns * len(words["uniform"]), **_plain(setting),
    }  # fmt: skip


def _plain(setting: SkewSetting) -> dict[str, int]:
    return {name: getattr(setting, name) for name in ("nodes", "tasks", "keys", "pairs")}
