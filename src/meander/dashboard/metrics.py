"""What Prometheus scrapes: figures of a snapshot, in base units, never a label per task or key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from meander.dashboard.sections import cap_of
from meander.runtime.process.metrics import Histogram, highest_us

if TYPE_CHECKING:
    from prometheus_client import Metric

    from meander.dashboard.snapshot import Snapshot

BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Of histograms, in seconds."""

COUNTERS: Final = (
    ("rows", "meander_rows", "Rows applied; one that is applied again after a loss counts again."),
    ("busy_s", "meander_busy_seconds", "Time that the operator took, over all nodes."),
    ("chunks", "meander_chunks", "Chunks of rows applied."),
    ("waits", "meander_waited_chunks", "Chunks that waited for the state of their task."),
    ("reroutes", "meander_rerouted_chunks", "Chunks that a former owner passed on."),
    ("dropped", "meander_dropped_messages", "Messages that a full or broken queue lost."),
    ("malformed", "meander_malformed_messages", "Messages that could not be read."),
    ("refused", "meander_refused_messages", "Messages that were refused."),
    ("stale", "meander_stale_messages", "Messages of an older epoch or incarnation."),
    ("late_rows", "meander_late_rows", "Rows that came behind the watermark and were left out."),
)
"""What is counted, by its name in `op.metrics()`."""


class SnapshotCollector(Collector):
    """Gives the figures of one snapshot."""

    def __init__(self, now: Snapshot) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Give all families."""
        now = self._now
        about = now.deployed
        info = {"operator": about.operator, "run": about.run, "version": about.version,
                "policy": about.policy}  # fmt: skip
        yield InfoMetricFamily("meander_deployment", "What is deployed.", info)
        for name, metric, text in COUNTERS:
            yield CounterMetricFamily(metric, text, now.totals[name])
        yield from _histograms(now)
        yield from _gauges(now)
        yield from _checkpoints(now)
        yield from _rescales(now)


def _histograms(now: Snapshot) -> Iterator[Metric]:
    for name, metric, text in (
        ("latency", "meander_latency_seconds", "From when rows were due until they were applied."),
        ("waited", "meander_pause_seconds", "How long rows waited for a state that moved."),
    ):
        yield histogram(metric, text, Histogram.load(now.totals[name]))


def histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    """Write a histogram with Prometheus's cumulative buckets.

    A bucket of ours that lies across a bound counts above it: off by 3 % of the bound at most.
    """
    counts, ordered = list[int](), sorted(found.buckets)
    for bound in BOUNDS_S:
        below = (found.buckets[b] for b in ordered if highest_us(b) <= bound * 1e6)
        counts.append(sum(below))
    buckets = [*zip(map(str, BOUNDS_S), counts, strict=True), ("+Inf", found.count)]
    return HistogramMetricFamily(name, text, buckets, found.sum_us / 1e6)


def _gauges(now: Snapshot) -> Iterator[Metric]:
    look = now.look
    yield _gauge("meander_tasks", "m, the number of tasks.", look.tasks)
    nodes = GaugeMetricFamily("meander_nodes", "Nodes by what they do.", labels=["status"])
    for status in ("starting", "up", "leaving"):
        nodes.add_metric([status], sum(1 for node in look.nodes if node.status == status))
    yield nodes
    work, sizes = look.by_node(look.work), look.by_node(look.sizes)
    cap = cap_of(look, now.deployed.tau)
    yield _gauge("meander_state_bytes", "State of all tasks.", sum(look.sizes))
    yield _gauge("meander_node_state_bytes_max", "The most that a node has.", _most(sizes.values()))
    yield _gauge(
        "meander_node_load_ratio_max", "Work of the busiest node, over what one may have.",
        _most(work.values()) / cap if cap else 0.0,
    )  # fmt: skip
    yield _gauge("meander_moving_tasks", "Tasks whose state is on its way.", len(look.coming))
    yield _gauge("meander_lost_tasks", "Tasks whose state is gone for good.", len(now.lost_tasks))
    feeding = now.feeding.values()
    yield _gauge("meander_feeders", "Feeders at work.", len(look.feeders))
    yield _gauge(
        "meander_waiting_chunks", "Chunks that feeders keep: not durable yet.",
        sum(told.get("chunks", 0) for told in feeding),
    )  # fmt: skip
    yield _gauge(
        "meander_backpressure_ratio", "How full the fullest feeder is; at 1 it takes no more rows.",
        _most(told.get("full", 0.0) for told in feeding),
    )  # fmt: skip
    yield _gauge("meander_failed", "1 if the deployment cannot go on.", int(bool(now.failure)))


def _checkpoints(now: Snapshot) -> Iterator[Metric]:
    look, told = now.look, now.totals["checkpoint"]
    if not look.checkpointing:
        return
    yield CounterMetricFamily("meander_checkpoint_bytes", "Written in records.", told["bytes"])
    yield CounterMetricFamily("meander_checkpoint_files", "Written.", told["files"])
    if look.saved_s is not None:
        yield _gauge(
            "meander_checkpoint_age_seconds", "Since the manifest was written, if more is to say.",
            0.0 if look.saved else look.saved_s,
        )  # fmt: skip
    yield _gauge("meander_store_failing", "1 while the durable store fails.", int(bool(look.store)))
    yield histogram(
        "meander_checkpoint_durable_seconds", "From when a record was encoded until it counted.",
        Histogram.load(told["durable"]),
    )  # fmt: skip


def _rescales(now: Snapshot) -> Iterator[Metric]:
    look = now.look
    migration = look.migration
    ended = CounterMetricFamily("meander_rescales", "Rescales by their end.", labels=["end"])
    for end in ("completed", "rolled back", "superseded"):
        ended.add_metric([end.replace(" ", "_")], now.news.get(end, 0))
    yield ended
    yield CounterMetricFamily("meander_lost_nodes", "Nodes that died.", now.news.get("lost", 0))
    active = migration is not None and migration.active
    yield _gauge("meander_migration_active", "1 while states move.", int(active))
    rounds: tuple[dict[str, Any], ...] = () if migration is None else migration.rounds
    yield _gauge(
        "meander_migration_pause_predicted_seconds", "Of the last migration, its longest round.",
        _most(r["predicted_s"] for r in rounds),
    )  # fmt: skip
    yield _gauge(
        "meander_migration_pause_measured_seconds", "Of the last migration, its longest round.",
        _most(r["measured_s"] for r in rounds),
    )  # fmt: skip
    if migration is not None and migration.budget_s is not None:
        yield _gauge("meander_migration_pause_budget_seconds", "Allowed.", migration.budget_s)
    moved = sum(r["bytes"] for r in rounds)
    yield _gauge("meander_migration_bytes", "Moved by the last migration.", moved)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)


def _most(values: Iterable[float]) -> float:
    return max(values, default=0.0)


def exposition(now: Snapshot | None, accept: str = "") -> tuple[bytes, str]:
    """Write what Prometheus reads, in the format that it accepts; and the name of that format."""
    registry = CollectorRegistry(auto_describe=False)
    if now is not None:
        registry.register(SnapshotCollector(now))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
