"""What is drawn for a world before it begins: limits and delays, some of them tight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeAlias

from meander.protocol.settings import Settings
from meander.runtime.clients.combining import COMBINE, CombineLimits
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.wire.inbox import BYTES_MAX, EVENTS_MAX
from meander.runtime.wire.outgoing import IDLE_S, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX

NEEDS_RECORDS: Final = frozenset(
    {"master", "raise", "dump", "feeder", "query", "cut", "store", "attempt", "launch"}
)
"""Faults that take checkpoints: without them a user begins anew, and there is nothing to compare.
In a world that has none, a node crashes instead."""
FOLDER: Final = "/checkpoint"
"""Where the checkpoint is, on a disk; in an object store its bucket has the same name."""
HOME: Final = "h0"
"""Where drivers, feeders, queries and readers run; nodes run elsewhere."""
ROOM: Final = 16 * 2**30
"""Bytes that nodes may write of rows that wait for their commit, when they may write what they like."""
TICK_S: Final = 0.2
"""How often machines look at the clock: less often than in production, for speed."""
TICK_S_MIN: Final = 0.05
"""How often nodes do, some of the time: they write records as soon as there is something to write."""


Pace: TypeAlias = Callable[[float], float]
"""Says how many seconds a pause of so many seconds takes at this moment."""


def as_it_is(seconds: float) -> float:
    """Keep a pace."""
    return seconds


@dataclass(frozen=True)
class Limits:
    """What queues may hold."""

    inbox_events: int = EVENTS_MAX
    inbox_bytes: int = BYTES_MAX
    queue_messages: int = QUEUE_MESSAGES_MAX
    queue_bytes: int = QUEUE_BYTES_MAX
    window_bytes: int = 2**20
    output_rows: int = ROWS_MAX


class SinkKind(NamedTuple):
    """What a sink promises."""

    at_least_once: bool = False
    writes_through: bool = False


def draw_tick_s(random: Random) -> float:
    """Choose how often nodes look at the clock, in seconds."""
    return random.choice((TICK_S_MIN, TICK_S, TICK_S))


def draw_idle_s(seed: int) -> float:
    """Choose after how long a process hangs up on whom it need not keep, in seconds."""
    return Random(f"idle {seed}").choice((0.0, 0.0, 0.5, IDLE_S))


def draw_step_s(random: Random) -> float:
    """Choose how long a step of the store takes on average, in seconds: some are far away."""
    return random.choice((0.002, 0.002, 0.002, 0.002, 0.05, 0.4))


def draw_limits(random: Random, *, small: bool) -> Limits:
    """Choose what queues may hold; small: so little that they fill."""
    if not small:
        return Limits()
    return Limits(
        inbox_events=random.choice((4, 16)),
        inbox_bytes=random.choice((2_000, 100_000)),
        queue_messages=random.choice((16, 64)),
        queue_bytes=random.choice((4_000, 100_000)),
        window_bytes=random.choice((2_000, 50_000)),
        output_rows=random.choice((4, 50, ROWS_MAX)),
    )


def draw_combine(seed: int) -> CombineLimits:
    """Choose when feeders and queries combine rows: hardly ever, whenever it pays, or now and then."""
    return Random(f"combine {seed}").choice(
        (COMBINE, CombineLimits(1, 0, 0.6), CombineLimits(2, 2, 0.6))
    )


def draw_conditional(seed: int) -> bool:
    """Choose whether an object store has conditional writes."""
    return Random(f"conditional {seed}").random() < 0.5


def draw_sink(seed: int) -> SinkKind | None:
    """Choose whether a sink writes outputs, instead of readers, and what it promises."""
    chosen = Random(f"sink {seed}").random()
    shares = (0.15, SinkKind()), (0.22, SinkKind(True)), (0.3, SinkKind(True, True))
    return next((kind for share, kind in shares if chosen < share), None)


def draw_settings(random: Random, kinds: set[str], *, small: bool, seed: int) -> Settings:
    """Choose limits and delays of the protocol."""
    durable = random.random() < (0.75 if kinds & NEEDS_RECORDS else 0.3)
    lease_s = random.choice((1.0, 2.0))
    return Settings(
        beat_s=lease_s / 3,
        lease_s=lease_s,
        retry_s=0.3,
        window_chunks=random.choice((2, 4, 8)),
        retained_chunks_max=random.choice((6, 24, 512)),
        waiting_chunks_max=random.choice((4, 16, 256)),
        parked_messages_max=Random(f"parked {seed}").choice((1, 4, 64)),
        loop_chunks_max=random.choice((2, 8, 64)),
        part_bytes=random.choice((100, 300, 5000)),
        parts_max=random.choice((1, 4)),
        loads_max=Random(f"loads {seed}").choice((1, 3, 64)),
        server_bytes_max=random.choice((3_000, 10_000_000)),
        checkpoint_s=random.choice((TICK_S_MIN, 0.2, 0.3, 0.6)) if durable else 0.0,
        replace_s_max=Random(f"replace {seed}").choice((0.05, 0.15, 1.0)),
        launch_s_max=3.0,
        round_s_max=4.0,
        migration_s_max=30.0,
        closed_s=5.0,
        bandwidth_bytes_s=1e6,
        overhead_s=0.02,
        chain_records_max=random.choice((2, 4, 16)),
        record_bytes_turn=random.choice((1000, 16 * 2**20)),
        copy_bytes=random.choice((20, 200)),
        copy_bytes_max=200,
        copy_window_bytes=Random(f"copies {seed}").choice((200, 1000, 4000)),
        copy_bytes_min=random.choice((0, 0, 0, 300)),
        copy_s_max=random.choice((0.5, 2.0, 2.0)),
        staged_bytes_max=random.choice((0, 2_000)) if small else 256 * 2**20,
        spill_bytes_max=Random(f"spill {seed}").choice((1_000, 3_000, ROOM)) if small else ROOM,
    )
