"""The queues against the real runtime: the same load, once simulated and once for real.

Nodes of the real runtime count words slowly (`slow`), so that a small machine can run them. First the
rate of a node is measured by feeding as fast as there is room. Then a load goes up and down, once
beyond what the nodes can take, and a rescale is made in it; latencies are taken second by second from
when rows were due. The queues are given what some quiet seconds have shown (the rate by busy time, what
a row takes where none waits) and what the rescale took, and go through the same load.

    rate_error      the true rate, from busy time at 70 % of the load, against the rate at saturation
    latency_error   the mean difference of both latencies, over the mean of the real one
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from meander.autoscale.signals import Floats, Signals
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor
from meander.sources.pacing import PacedPiece, paced
from meander_lab.autoscale.policies import Base
from meander_lab.autoscale.queueing import Ground, Order, Play
from meander_lab.autoscale.slow import SlowCount
from meander_lab.autoscale.traces import Trace

TASKS: Final = 32
WORDS: Final = np.array([f"word{i:04}" for i in range(4000)])
ROW_S: Final = 0.0005
"""What a row takes."""
PIECE_S: Final = 0.02
GATHER_ROWS: Final = 200
"""In one message: a turn takes a tenth of a second at most."""
SATURATION_S: Final = 5.0
PROFILE: Final = ((8, 0.35), (8, 0.7), (5, 1.25), (9, 0.9), (10, 0.5))
"""Seconds, and the load as a share of what the first nodes can take."""
NODES: Final = 2
RESCALE: Final = (19.0, 3)
"""When, and to how many."""
QUIET_S: Final = (8, 16)
"""The seconds of the profile that show what nodes can do; what is before them is not compared."""


def checked(say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Compare; give both errors and what they were made from."""
    say("the queues against the real runtime")
    operator = SlowCount(ROW_S)
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    with WarmLauncher() as launcher, deploy_local(operator, TASKS, NODES, launcher=launcher) as op:
        saturated = _saturate(op)
        real = _real(op, saturated)
    ground = Ground(
        rate=real.rate, base_s=real.base_s, launch_s=0.0, move_s=real.rescale_s, bytes_s=1e12,
        tasks=TASKS, nodes=(1, 8), skew=0.0, pause_s=0.0, copying=0.0,
    )  # fmt: skip
    model = Play(ground, Trace("profile", real.rows_s), _Script(ground)).run()
    seen, told = real.latency_s[QUIET_S[0] :], model.latency_s[QUIET_S[0] :]
    return {
        "rate_error": abs(NODES * real.rate - saturated) / saturated,
        "latency_error": float(np.abs(seen - told).mean() / seen.mean()),
        "saturation_rows_s": saturated,
        "true_rate_rows_s": real.rate,
        "base_ms": 1000 * real.base_s,
        "rescale_s": real.rescale_s,
        "latency_real_s": [round(x, 3) for x in real.latency_s.tolist()],
        "latency_model_s": [round(x, 3) for x in model.latency_s.tolist()],
    }


@dataclass(frozen=True)
class Real:
    """What was seen."""

    rows_s: Floats
    latency_s: Floats
    """The 95th percentile of the rows due in each second."""
    rate: float
    base_s: float
    rescale_s: float


def _batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"word": WORDS[rng.integers(0, len(WORDS), rows)]})


def _saturate(op: ElasticOperator) -> float:
    """Feed what nodes need some seconds for, at once; give rows a second until all is applied."""
    rng, batches = np.random.default_rng(1), int(SATURATION_S * NODES / ROW_S / GATHER_ROWS)
    with op.feeder("saturation", gather_rows=GATHER_ROWS) as feeder:
        feeder.feed(_batch(rng, GATHER_ROWS))
        feeder.flush()
        began = time.perf_counter()
        for _ in range(batches):
            feeder.feed(_batch(rng, GATHER_ROWS))
        feeder.flush()
        return batches * GATHER_ROWS / (time.perf_counter() - began)


def _pieces(rows_s: Floats) -> Iterator[PacedPiece]:
    rng, owed, number = np.random.default_rng(2), 0.0, 0
    for second, rate in enumerate(rows_s.tolist()):
        for k in range(round(1 / PIECE_S)):
            owed += rate * PIECE_S
            rows, owed = int(owed), owed % 1
            if rows:
                yield PacedPiece(number, _batch(rng, rows), second + k * PIECE_S)
                number += 1


def _real(op: ElasticOperator, saturated: float) -> Real:
    """Let the profile come to real nodes; rescale in the middle of it."""
    rows_s = np.concatenate([np.full(seconds, share * saturated) for seconds, share in PROFILE])
    at_s, to = RESCALE
    handle, busy = None, list[tuple[float, float]]()
    with Monitor(op.driver) as monitor, op.feeder("profile", gather_rows=GATHER_ROWS) as feeder:
        feeder.wait_ready(10.0)
        start = time.time() + 0.5
        for offset, batch, due_s in paced(_pieces(rows_s), start):
            feeder.feed(batch, offset=offset, due_s=due_s)
            now = time.time() - start
            if handle is None and now >= at_s:
                handle = op.rescale(to, pause_ms=100)
            if len(busy) < 2 and now >= QUIET_S[len(busy)] - 0.3 * len(busy):
                found = op.metrics()
                busy.append((found["rows"], found["turn_s"]))
        assert handle is not None
        report = handle.wait(60.0)
        feeder.flush()
        samples = monitor.samples()
    latency = np.array(
        [
            samples.due(start + s, start + s + 1).percentile_ms(0.95) / 1000
            for s in range(len(rows_s))
        ]
    )
    (rows, turn_s), (rows_later, turn_s_later) = busy
    base_s = float(np.median(latency[slice(*QUIET_S)]))
    rate = (rows_later - rows) / (turn_s_later - turn_s)
    return Real(rows_s, latency, rate, base_s, report.seconds)


class _Script(Base):
    """Rescales when the real one did."""

    name = "script"

    def first(self, load: float) -> int:
        """Begin as the real one."""
        return NODES

    def step(self, seen: Signals) -> Order | None:
        """Order it once."""
        at_s, to = RESCALE
        return Order(to) if seen.at_s == at_s else None
