"""Every limit and every delay of the protocol, with its unit last in the name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Numbers that all machines of one deployment share."""

    beat_s: float = 0.4
    """How often a process asks for its lease."""
    lease_s: float = 2.0
    """How long a grant lasts, counted by its holder from when it asked."""
    lease_margin: float = 1.25
    """The master waits this much longer before it counts a lease as run out: clocks drift."""
    gather_s: float = 0.05
    """Processes that register within this time of the last table stand together in the next one."""
    publish_bytes_s: float = 100e6
    """Tables that are not urgent take at most so much of the master's link; leases need the rest."""
    retry_s: float = 0.25
    """How long to wait for an answer before asking again."""
    window_chunks: int = 8
    """Most chunks of one feeder that one task may have un-applied: its credit."""
    retained_chunks_max: int = 512
    """Most chunks a feeder keeps because they are not durable; beyond it takes no more rows."""
    retained_bytes_max: int = 256 * 2**20
    """Most bytes of them; one offer may go beyond."""
    waiting_chunks_max: int = 4096
    """Most chunks of one task that a node keeps out of order or in the wait buffer."""
    parked_messages_max: int = 1024
    """Most messages of an epoch not yet known that a node keeps."""
    loop_chunks_max: int = 64
    """A task with so many unacknowledged loop chunks takes no external ones: the loop drains first."""
    part_bytes: int = 4 * 2**20
    """States travel in pieces of this size."""
    parts_max: int = 4
    """So many pieces a node asks state servers for at a time, of one state or of several."""
    loads_max: int = 64
    """Records that the store is asked for and has not given: enough to keep it busy however far it is,
    and what waits behind them can still be overtaken by a task that tuples wait for."""
    copy_bytes: int = 256 * 2**10
    """States are copied ahead in pieces of at least this size, one at a time where rows wait; smaller
    ones would cost more in turns than in bytes."""
    copy_bytes_max: int = 2 * 2**20
    """Where none do, pieces are of up to this size: a node has its rows in between."""
    copy_window_bytes: int = 8 * 2**20
    """So much of a copy may be under way from one node to another, where no row waits."""
    copy_wait_s: float = 0.01
    """Copies slow down when rows wait so much longer than usual for their turn, if the caller has said
    nothing; else at a tenth of the pause that it allows."""
    copy_bytes_min: int = 256 * 2**10
    """A smaller state is not copied ahead: to move it takes no longer than to catch up."""
    copy_s_max: float = 20.0
    """A round does not wait longer for the copies of its tasks."""
    server_bytes_max: int = 2**30
    """What one state server holds in memory (a single larger state is taken when it is empty)."""
    spill_bytes_max: int = 16 * 2**30
    """What it holds on disk beyond that; then it refuses, and nodes keep their states meanwhile."""
    staged_bytes_max: int = 256 * 2**20
    """What a node holds in memory of rows that wait for their commit; beyond that they are on disk, up
    to `spill_bytes_max`, and then not taken: their writers wait, and give up in time."""
    checkpoint_s: float = 0.0
    """How often a node writes the tasks that changed; 0: no checkpoints. What a micro-batch has
    changed is written when it commits."""
    chain_records_max: int = 16
    """A task whose chain is longer is written whole; also if its changes weigh more than its state."""
    record_bytes_turn: int = 2**20
    """A node looks at so many bytes of state in one turn before rows have theirs."""
    replace_s_max: float = 1.0
    """How long the tasks of a lost node wait for its successor to register before others take them."""
    launch_s_max: float = 8.0
    """How long the master waits for a launched node before it plans without it."""
    round_s_max: float = 6.0
    """How long a round may take before the master turns what is stuck around; then twice as long."""
    migration_s_max: float = 120.0
    """How long a migration may take before the master rolls it back."""
    closed_s: float = 20.0
    """How long a closed feeder is remembered, so that its late chunks are refused."""
    staged_s_max: float = 3600.0
    """How long staged rows stay whose query does nothing; they are dropped before twice this time."""
    bandwidth_bytes_s: float = 200e6
    """First guess of a link's speed; measured from then on."""
    overhead_s: float = 0.02
    """First guess of what a round costs besides its bytes; measured from then on."""
