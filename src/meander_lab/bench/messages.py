"""What a message costs: `meander bench messages`.

Word count, 100 batches a second from one feeder with a process of its own; every row of the table is a
fresh deployment with so many nodes, rows a second and tasks. In the steady part (`message_load`)

    cores           time on the processor of all processes of the deployment, over the clock's
    latency         of rows, from when they were due until they were applied: the nodes' histograms
    us_per_message  time on the processor over messages: a message is what one batch has for one node,
                    with its acknowledgement. What a deployment costs at rest is in it.
    bare_…          the same batches over Flight alone, right after (`baselines.bare_stream`)

`m_4096_over_64` is the geometric mean, over all pairs of rows that differ in m alone, of the cores with
4,096 tasks over those with 64. Every count is compared with a plain one in the end.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa

from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher, WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.totals import measured
from meander.runtime.process.metrics import Histogram
from meander.runtime.process.warm import settle_heap, warm_up
from meander_lab.baselines.bare_stream import BareFigures, BareOrder, BareStream, cpu_s
from meander_lab.bench.closed_loop import equals_plain_count, rows_s
from meander_lab.bench.message_load import BATCHES_S, MessageLoad, PacedLoad
from meander_lab.bench.table import zipf_words

FEW, MANY = 64, 4096
"""The numbers of tasks that are compared."""
LEAD_S = 1.0
"""For the feeder's process to start and make its batches."""
READ_S = 0.01
"""Before the steady part: the system is asked for the processes' times."""
DONE_S_MAX = 120.0
FEEDER = "stream"
KINDS = ("feeder", "nodes", "server", "driver")
CLOSED_WORDS, CLOSED_BATCH_ROWS, CLOSED_RUNS = 1_000_000, 16_384, 3
CLOSED_TIMES = 20
"""So often they are fed in one run: nodes get behind only when it lasts."""
COMPARED = ("cores", "p50_ms", "p99_ms")

Say = Callable[[str], None]


@dataclass(frozen=True)
class MessagesSetting:
    """Which rows the table has."""

    nodes: tuple[int, ...] = (1, 4, 10)
    rates: tuple[int, ...] = (1_000, 20_000, 200_000)
    tasks: tuple[int, ...] = (FEW, MANY)
    seconds: float = 5.0
    """Measured of each row, and of the bare stream beside it."""
    closed: bool = True
    """Whether to measure the closed loop too, for every number of nodes and tasks."""

    def __post_init__(self) -> None:
        if max(self.nodes) > min(self.tasks):
            raise InputError(f"{max(self.nodes)} nodes need as many tasks, not {min(self.tasks)}")
        for rate in self.rates:
            MessageLoad(rate, self.seconds)


def table(setting: MessagesSetting, say: Say) -> dict[str, Any]:
    """Measure all rows, those with different m one after the other, and compare."""
    warm_up()
    settle_heap()
    rows, closed = list[dict[str, Any]](), list[dict[str, Any]]()
    with WarmLauncher() as launcher, BareStream(max(setting.nodes)) as bare:
        for nodes, rate, tasks in product(setting.nodes, setting.rates, setting.tasks):
            row = _row(nodes, tasks, MessageLoad(rate, setting.seconds), launcher, bare)
            rows.append(row)
            say(
                f"{nodes} nodes, {rate:,} rows a second, {tasks:,} tasks: {row['cores']:.2f} cores "
                f"(bare {row['bare_cores']:.2f}), p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f}"
            )
        for nodes, tasks in product(setting.nodes if setting.closed else (), setting.tasks):
            closed.append(_closed(nodes, tasks, launcher))
            say(
                f"{nodes} nodes, {tasks:,} tasks: at most {closed[-1]['rows_s']:,.0f} rows a second"
            )
    answer: dict[str, Any] = {"rows": rows}
    for figure in COMPARED:
        name = "" if figure == "cores" else f"_{figure.removesuffix('_ms')}"
        answer[f"m_4096_over_64{name}"] = ratio_of_tasks(rows, figure)
    if closed:
        answer["m_4096_over_64_rows_s"] = ratio_of_tasks(closed, "rows_s")
    exact = all(row["exact"] for row in (*rows, *closed))
    return {**answer, "closed": closed, "seconds": setting.seconds, "exact": exact}


def ratio_of_tasks(rows: Iterable[Mapping[str, Any]], figure: str) -> float | None:
    """Give the geometric mean of a figure with 4,096 tasks over that with 64; None without a pair.

    >>> rows = [{"nodes": 1, "tasks": 64, "cores": 0.5}, {"nodes": 1, "tasks": 4096, "cores": 0.6}]
    >>> ratio_of_tasks(rows, "cores"), ratio_of_tasks(rows[:1], "cores")
    (1.2, None)
    """
    found: dict[tuple[Any, Any], dict[int, float]] = {}
    for row in rows:
        found.setdefault((row["nodes"], row.get("rate")), {})[row["tasks"]] = row[figure]
    pairs = [by_tasks for by_tasks in found.values() if {FEW, MANY} <= set(by_tasks)]
    ratios = [pair[MANY] / pair[FEW] for pair in pairs if pair[FEW] > 0 and pair[MANY] > 0]
    return round(statistics.geometric_mean(ratios), 4) if ratios else None


# --------------------------------------------------------------------------- one row


def _row(
    nodes: int, tasks: int, load: MessageLoad, launcher: LocalLauncher, bare: BareStream
) -> dict[str, Any]:
    with deploy_local(WordCount(), tasks=tasks, nodes=nodes, launcher=launcher) as op:
        parts = load.parts(op.driver.owners())
        facts = _paced(op, launcher, load)
        exact = load.counted(op.state_table(DONE_S_MAX))
    messages = load.messages(parts)
    beside = bare.run(BareOrder(parts, 1 / BATCHES_S, load.warm_batches, load.batches))
    cost = 1e6 * facts["cores"] * load.seconds / messages
    return {
        "nodes": nodes, "rate": load.rate, "tasks": tasks,
        **{name: facts[name] for name in ("cores", "p50_ms", "p99_ms", "max_ms")},
        "us_per_message": cost, **_bare_figures(beside),
        "over_bare": facts["cores"] / beside.cores if beside.cores else None,
        "idle_cores": facts["idle_cores"],
        **{f"{kind}_cores": facts[f"{kind}_cores"] for kind in KINDS},
        "messages": messages, "latency_rows": facts["rows"], "exact": exact,
    }  # fmt: skip


def _bare_figures(found: BareFigures) -> dict[str, float]:
    return {
        "bare_cores": found.cores, "bare_p50_ms": found.percentile_ms(0.5),
        "bare_p99_ms": found.percentile_ms(0.99), "bare_max_ms": found.percentile_ms(1.0),
        "bare_us_per_message": 1e6 * found.cores * found.seconds / found.messages,
        "bare_client_cores": found.client_cpu_s / found.seconds,
    }  # fmt: skip


def _paced(op: ElasticOperator, launcher: LocalLauncher, load: MessageLoad) -> dict[str, Any]:
    """Let the stream flow from a process of its own; look at its rest, its steady part and its end."""
    start = time.time() + LEAD_S
    source = op.source(FEEDER, PacedLoad(load, start))
    rest_s = load.steady_at_s - load.warm_s
    _sleep_until(start + load.warm_s + rest_s / 10)
    before = _latency(op)
    pids = _processes(op, launcher)
    _sleep_until(start + load.warm_s + rest_s / 3)
    idle_at, idle = time.monotonic(), sum(_cpu(pids).values())
    _sleep_until(start + load.steady_at_s - READ_S)
    began, at_first = time.monotonic(), _cpu(pids)
    idle = (sum(at_first.values()) - idle) / (began - idle_at)
    _sleep_until(start + load.steady_at_s + load.seconds)
    seconds, at_last = time.monotonic() - began, _cpu(pids)
    source.wait(DONE_S_MAX)
    after = _latency(op).since(before)
    kinds = {f"{kind}_cores": (at_last[kind] - at_first[kind]) / seconds for kind in KINDS}
    figures = after.summary()
    return {
        "cores": sum(kinds.values()), "idle_cores": idle, **kinds,
        **{name: figures[name] for name in ("p50_ms", "p99_ms", "max_ms")}, "rows": after.count,
    }  # fmt: skip


def _latency(op: ElasticOperator) -> Histogram:
    return Histogram.load(measured(op.driver)["latency"])


def _processes(op: ElasticOperator, launcher: LocalLauncher) -> dict[str, list[int]]:
    """Name the processes by what they are; the driver's are this one and the nursery."""
    nodes = op.driver.nodes()
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    found["driver"] = [os.getpid(), launcher.nursery_pid]
    for (name, _), pid in launcher.pids.items():
        found["nodes" if name in nodes else "feeder" if name == FEEDER else "server"].append(pid)
    return found


def _cpu(pids: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {kind: cpu_s(each) for kind, each in pids.items()}


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


# --------------------------------------------------------------------------- as fast as it takes


def _closed(nodes: int, tasks: int, launcher: LocalLauncher) -> dict[str, Any]:
    words = zipf_words(CLOSED_WORDS, seed=1)
    batches = pa.table({"word": words}).to_batches(max_chunksize=CLOSED_BATCH_ROWS)
    op = deploy_local(WordCount(), tasks=tasks, nodes=nodes, launcher=launcher)
    with op, op.feeder(FEEDER) as feeder:
        rates = [rows_s(feeder, batches * CLOSED_TIMES) for _ in range(1 + CLOSED_RUNS)]
        exact = equals_plain_count(op.state_table(DONE_S_MAX), words, CLOSED_TIMES * len(rates))
    rate = statistics.median(rates[1:])  # the first fills the tables
    return {"nodes": nodes, "tasks": tasks, "rows_s": rate, "exact": exact}
