"""The real thing: an hour of tweets in minutes, a spike in it, the autoscaler on, every count compared.

The tweets are those of the busiest hour that was recorded, as fast as is asked for; without the
recording, generated ones. For every 12 s that it shall take there is one hour more, the next busiest,
laid over the others: then a second has so many words that those of one tweet are few among them, and
no node needs as long for a single tweet as it may take in all. In the spike every text comes several
times. Their words are counted by real nodes, each as slow as is needed for the mean to keep one and a
half of them busy at the utilisation (`slow`): then even two cores can run a dozen. With `kills`, nodes
are killed meanwhile, and the checkpoints must make up for it. With `standalone` they are Spark tasks,
on executors that come and go (`grounds`).
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from meander.autoscale import Action, Autoscale
from meander.errors import InputError
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor
from meander.sources.pacing import PacedPiece, paced
from meander_lab.autoscale.grounds import LiveGround, processes, standalone
from meander_lab.autoscale.slow import SlowCount

HOUR_S: Final = 3600.0
HOUR_EACH_S: Final = 12.0
"""For so much time there is one hour of tweets."""
PIECE_S: Final = 0.05
SPIKE: Final = (0.45, 0.6)
"""From when to when, as shares of the time."""
BUSY: Final = 1.5
"""Nodes that the mean of the hour needs."""
TASKS: Final = 48
TURN_S: Final = 0.05
"""What a node may take for the rows of one message."""


@dataclass(frozen=True)
class LiveSetting:
    """What is run."""

    seconds: float = 600.0
    """In which the hour is replayed."""
    spike: int = 5
    """How many times each text comes in the spike."""
    kills: int = 0
    """Nodes that are killed, one after the other."""
    nodes: tuple[int, int] = (2, 12)
    latency_ms: float = 200.0
    data: Path | None = None
    standalone: bool = False
    """On Spark Standalone with dynamic allocation; else without Spark."""


def texts(data: Path | None, hours: int = 1) -> list[tuple[float, str]]:
    """Give the texts of the busiest hours, one over the other, with their seconds since they began."""
    if data is None or not (data / "tweets.parquet").exists():
        rng = np.random.default_rng(1)
        words = [f"word{i}" for i in range(3000)]
        at = np.sort(rng.uniform(0, HOUR_S, 1700 * hours))
        return [(float(t), " ".join(words[k] for k in rng.zipf(1.3, 31) % 3000)) for t in at]
    import pyarrow.parquet as pq

    table = pq.read_table(data / "tweets.parquet", columns=["ts", "text"])
    when = table["ts"].to_numpy().astype("datetime64[s]").astype(np.int64)
    hour, second = np.divmod(when, int(HOUR_S))
    busiest = np.argsort(-np.bincount(hour - hour.min()), kind="stable")[:hours] + hour.min()
    rows = np.flatnonzero(np.isin(hour, busiest))
    at = second[rows] + np.random.default_rng(1).random(len(rows))  # recorded by the second
    order = np.argsort(at)
    found = table["text"].take(pa.array(rows[order])).to_pylist()
    return list(zip(at[order].tolist(), found, strict=True))


def pieces(setting: LiveSetting, counts: Counter[str]) -> list[tuple[float, list[str]]]:
    """Cut the hour into pieces of words, by when they are due; count them."""
    speed, by_piece = HOUR_S / setting.seconds, dict[int, list[str]]()
    low, high = (share * setting.seconds for share in SPIKE)
    hours = max(1, round(setting.seconds / HOUR_EACH_S))
    for at, text in texts(setting.data, hours):
        due_s = at / speed
        times = setting.spike if low <= due_s < high else 1
        words = text.lower().split() * times
        counts.update(words)
        by_piece.setdefault(int(due_s / PIECE_S), []).extend(words)
    return [(number * PIECE_S, words) for number, words in sorted(by_piece.items()) if words]


def live(setting: LiveSetting, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Run it; tell what was decided, how long rows took, and whether every count is right."""
    counts: Counter[str] = Counter()
    stream = pieces(setting, counts)
    if not stream:
        raise InputError("there are no tweets to replay")
    plain = sum(len(words) for at, words in stream if not _in_spike(setting, at))
    mean = plain / (setting.seconds * (1 - SPIKE[1] + SPIKE[0]))
    operator = SlowCount(0.7 * BUSY / mean)
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    options = Autoscale(setting.nodes, setting.latency_ms)
    say(f"{sum(counts.values()):,} words, {mean:,.0f} a second; {1 / operator.row_s:,.0f} a node")
    deployed = standalone if setting.standalone else processes
    with (
        tempfile.TemporaryDirectory() as folder,
        deployed(
            operator, TASKS, setting.nodes, autoscale=options,
            checkpoint=folder if setting.kills else None,
        ) as ground,
        Monitor(ground.op.driver, 2.0) as monitor,
    ):  # fmt: skip
        op = ground.op
        start, nodes, executors = _flow(ground, setting, stream, say)
        table = op.state_table()
        samples = monitor.samples()
        decisions = [decision.to_json() for decision in op.decisions()]
    found = dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
    late = [
        samples.due(start + s, start + s + 1).percentile_ms(0.99) > setting.latency_ms
        for s in range(int(setting.seconds))
    ]
    rescales = [d for d in decisions if d["carried_out"] and d["action"] != Action.ASK_AHEAD]
    return {
        "seconds": setting.seconds, "spike": setting.spike, "kills": setting.kills,
        "words": sum(counts.values()), "exact": found == dict(counts),
        "violation_s": sum(late), "late_seconds": [s for s, is_late in enumerate(late) if is_late],
        "violation_s_with_all_nodes": least_violation_s(setting, stream, operator.row_s),
        "node_s": sum(nodes), "most_nodes": max(nodes),
        "executors": executors, "latency": samples.summary(), "rescales": len(rescales),
        "decisions": [{**d, "when": d["when"] - start} for d in decisions],
    }  # fmt: skip


def least_violation_s(
    setting: LiveSetting, stream: list[tuple[float, list[str]]], row_s: float
) -> int:
    """Count the seconds in which rows are late though all nodes are there, and share them evenly.

    >>> calm, burst = (0.0, ["a"] * 20), (5.0, ["a"] * 100)
    >>> least_violation_s(LiveSetting(seconds=10.0, nodes=(1, 2)), [calm, burst], row_s=0.01)
    1
    """
    most_s, free_s, late = setting.latency_ms / 1000, 0.0, set[int]()
    for due_s, words in stream:
        free_s = max(free_s, due_s) + len(words) * row_s / setting.nodes[1]
        if free_s - due_s > most_s:
            late.add(int(due_s))
    return len(late)


def _in_spike(setting: LiveSetting, at_s: float) -> bool:
    return SPIKE[0] * setting.seconds <= at_s < SPIKE[1] * setting.seconds


def _flow(
    ground: LiveGround,
    setting: LiveSetting,
    stream: list[tuple[float, list[str]]],
    say: Callable[[str], None],
) -> tuple[float, list[int], list[int]]:
    """Feed; look every second; kill some. Give the start, and by second the nodes and executors."""
    op, nodes, executors, told = ground.op, list[int](), list[int](), 0
    operator = op.driver.operator
    assert isinstance(operator, SlowCount)
    gather = max(8, int(setting.nodes[0] * TURN_S / operator.row_s))
    kills = [setting.seconds * (k + 1) / (setting.kills + 1) for k in range(setting.kills)]
    with op.feeder("tweets", gather_rows=gather) as feeder:
        feeder.wait_ready(30.0)
        start = time.time() + 0.5
        for offset, batch, due_s in paced(_batches(stream), start):
            feeder.feed(batch, offset=offset, due_s=due_s)
            at = time.time() - start
            if len(nodes) < at:  # what was missed while it waited for room was as it is now
                missed = int(at) + 1 - len(nodes)
                nodes += [len(op.driver.nodes())] * missed
                executors += [ground.executors()] * missed
            for decision in op.decisions()[told:]:
                say(f"{decision.when - start:6.1f} s  {decision}")
                told += 1
            if kills and at >= kills[0]:
                kills.pop(0)
                say(f"{at:6.1f} s  killed {_kill_one(ground)}")
        feeder.flush()
    return start, nodes, executors


def _batches(stream: list[tuple[float, list[str]]]) -> Iterator[PacedPiece]:
    for number, (at_s, words) in enumerate(stream):
        yield PacedPiece(number, pa.record_batch({"word": words}), at_s)


def _kill_one(ground: LiveGround) -> str:
    """Kill a node's process, whichever."""
    serving = ground.op.driver.nodes()
    name, pid = random.choice([(n, p) for n, p in ground.pids().items() if n in serving])
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return name
