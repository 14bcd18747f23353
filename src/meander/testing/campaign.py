"""Many seeds on many cores: what happened in all of them together, and which ones failed."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from meander.errors import InputError
from meander.testing.faults import ALL_FAULTS, FAULTS, TRIALS, WORLDS, Schedule, generate
from meander.testing.outcome import Outcome
from meander.testing.playing import minimise, play

PATHS: Final = (
    "schedules", "rescales", "vacates", "upgrades", "faults", "chunks", "reroutes", "waits",
    "second_moves", "aborts", "resumes", "replays", "loop_chunks", "staged_batches",
    "copied_ahead", "copies_resent", "spilled", "stand_ins", "hurried",
)  # fmt: skip
MUST_HAPPEN: Final = {
    "protocol": (
        *PATHS, "copies_slowed", "spill_damaged", "express_chunks", "joint_records",
        "packed_chunks", *FAULTS,
    ),
    "full": (
        *PATHS, "roll_backs", "restores", "snapshots", "deltas", "deltas_restored",
        "chains_moved", "joint_records", "express_chunks", "states_lost",
        "corrupt_refused", "seen_laid_on_disk", "writes_cut",
        "drivers", "drivers_beside", "ways_back", "noticed",
        "deployments_failed", "launches_failed", "hosts_lost_silently", "twins",
        "failed_attempts", "combined_rows", "outputs_shown", "outputs_gone", "reader_releases",
        "reader_kills", "reader_failures", "sink_kills", "sink_beside", "sink_commits",
        "calls", "pranks", "prank_dump", "prank_load", "prank_fire",
        "long_turns", "dropped", "malformed",
        "wire_peers_lost", "wire_pulse_alive", "wire_pulse_dead", "wire_pulse_ending",
        "wire_pulse_unknown", "wire_readers_waited", "wire_writers_waited", "wire_writes_failed",
        *(f"trial_{name}" for name in TRIALS),
        *ALL_FAULTS,
    ),
}  # fmt: skip
"""By world: a long campaign in which one of these never happened has not tested it."""
MUST_NOT_HAPPEN: Final = {
    "protocol": ("lost", "duplicated", "reordered", "stuck"),
    "full": ("lost", "stuck"),
}
THOROUGH_SEEDS: Final = 500
"""From so many seeds on, with all faults and trials, `MUST_HAPPEN` is demanded."""
FAILURES_MAX: Final = 100
"""More failures than these are counted, but not kept."""
MINIMISED_MAX: Final = 3
"""So many failing schedules are cut down; the others can be by their seed."""


class Scope(NamedTuple):
    """Which schedules a campaign runs."""

    nodes: int = 8
    tasks: int = 64
    faults: tuple[str, ...] = FAULTS
    seconds: float = 8.0
    world: str = "protocol"
    trial: str = ""

    def schedule(self, seed: int) -> Schedule:
        """Draw one."""
        return generate(
            seed, self.nodes, self.tasks, self.faults, self.seconds,
            world=self.world, trial=self.trial,
        )  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether everything can happen that its world knows."""
        return set(self.faults) == set(WORLDS[self.world]) and not self.trial


SCOPES: Final = {"full": Scope(3, 8, ALL_FAULTS, 2.0, "full"), "protocol": Scope()}
"""What is run in each world if nothing else is said."""


@dataclass
class Report:
    """What happened so far."""

    scope: Scope
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    failed: int = 0

    def add(self, counts: Counter[str], failures: list[Outcome]) -> None:
        """Take the outcome of some seeds."""
        self.counts.update(counts)
        self.failed += len(failures)
        self.failures = sorted(self.failures + failures, key=lambda f: f.schedule.seed)
        del self.failures[FAILURES_MAX:]

    def untested(self) -> list[str]:
        """Name what never happened, though so many schedules should have led to it."""
        if self.counts["schedules"] < THOROUGH_SEEDS or not self.scope.whole:
            return []
        return [name for name in MUST_HAPPEN[self.scope.world] if not self.counts[name]]

    def as_dict(self) -> dict[str, Any]:
        """Give the counters, those that must not happen after those that must."""
        world = self.scope.world
        named = {n: self.counts[n] for n in (*MUST_HAPPEN[world], *MUST_NOT_HAPPEN[world])}
        further = {n: c for n, c in sorted(self.counts.items()) if n not in named}
        return {
            "world": world,
            **named,
            "violations": [_told(failure) for failure in self.failures],
            "failed": self.failed,
            "untested": self.untested(),
            **further,
        }


def _told(failure: Outcome) -> dict[str, Any]:
    return {
        "seed": failure.schedule.seed,
        "caught_by": failure.caught_by,
        "accident": failure.accident,
        "violations": failure.violations,
    }


def run_seeds(first: int, count: int, scope: Scope) -> tuple[Counter[str], list[Outcome]]:
    """Run neighbouring seeds one after another.

    >>> counts, failures = run_seeds(0, 2, Scope(nodes=3, tasks=8, faults=("loss",), seconds=3.0))
    >>> counts["schedules"], failures
    (2, [])
    """
    counts: Counter[str] = Counter()
    failures = []
    with _collecting() as collect:
        for seed in range(first, first + count):
            outcome = play(scope.schedule(seed))
            counts.update(outcome.counts)
            if outcome.failed:
                failures.append(outcome)
            collect()
    return counts, failures


@contextmanager
def _collecting() -> Iterator[Callable[[], object]]:
    """Collect garbage between schedules alone, and only theirs: a fifth of the time otherwise.

    What is young is what was made since the last call; a full collection looks at every import.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield lambda: gc.collect(0)
    finally:
        if before:
            gc.enable()


def campaign(
    first: int,
    count: int,
    scope: Scope,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, failed: None,
    report: Report | None = None,
) -> Report:
    """Run many seeds in several processes.

    Args:
        first: the first seed.
        count: how many seeds.
        scope: what schedules.
        jobs: how many processes.
        progress: told how many seeds are done and how many have failed.
        report: is filled in; give one to have what was done so far after an interruption.
    """
    report = report if report is not None else Report(scope)
    batch = max(1, min(20, count // (4 * jobs)))
    batches = ((at, min(batch, first + count - at)) for at in range(first, first + count, batch))
    if jobs == 1:
        for at, size in batches:
            report.add(*run_seeds(at, size, scope))
            progress(report.counts["schedules"], report.failed)
        return report
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts)
    try:
        for counts, failures in _gather(pool, batches, scope, jobs):
            report.add(counts, failures)
            progress(report.counts["schedules"], report.failed)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return report


def _gather(
    pool: ProcessPoolExecutor, batches: Iterator[tuple[int, int]], scope: Scope, jobs: int
) -> Iterator[tuple[Counter[str], list[Outcome]]]:
    """Keep a few batches ahead of every process, and give results as they come."""
    waiting: set[Future[tuple[Counter[str], list[Outcome]]]] = set()
    while True:
        for at, size in batches:
            waiting.add(pool.submit(run_seeds, at, size, scope))
            if len(waiting) >= 3 * jobs:
                break
        if not waiting:
            return
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the parent, which says what was done so far."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def minimised(failure: Outcome, out: Path) -> str:
    """Cut a failure down to what it takes; give the file that it is written to.

    Raises:
        InputError: if it cannot be written.
    """
    path = out / f"meander-sim-{failure.schedule.seed}.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(minimise(failure.schedule).dump() + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from None
    return str(path)
