"""Run schedules, count what happened, and cut a failing schedule down to what it takes.

The world of the protocol's machines is run here, the full one in `world.simulate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import combinations

from meander.errors import BrokenRuleError, ProtocolError
from meander.protocol.edges.server import StateServer
from meander.protocol.master.master import Master
from meander.protocol.node.node import Node
from meander.testing.cellar import Cellar
from meander.testing.checkers import ACCIDENT, Violation
from meander.testing.cluster import Cluster
from meander.testing.faults import FAULTS, Incident, Schedule
from meander.testing.process import Classes
from meander.testing.trial import Trial


@dataclass
class Outcome:
    """What became of one schedule."""

    schedule: Schedule
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    """What was seen, for people; `seen` has the same with the names of the checkers."""
    seen: list[Violation] = field(default_factory=list)
    digest: str = ""
    """Of every event that any machine handled, if it was asked for."""

    @property
    def failed(self) -> bool:
        """Whether anything that must not happen did."""
        return bool(self.violations)

    @property
    def caught_by(self) -> str:
        """The checker that saw something first; empty: none did. An accident is no catch."""
        return next((v.by for v in self.seen if v.by != ACCIDENT), "")

    @property
    def accident(self) -> bool:
        """Whether all that happened is an exception that is none of ours."""
        return self.failed and not self.caught_by


def run(
    schedule: Schedule,
    classes: type[Classes] = Classes,
    trial: Trial | None = None,
    *,
    digest: bool = False,
) -> Outcome:
    """Run one schedule.

    Args:
        schedule: what happens.
        classes: which machines the cluster is made of.
        trial: the operator and its rows; the simulator's own if not given.
        digest: whether to hash the whole history, to compare runs bit for bit.

    >>> from meander.testing.faults import generate
    >>> outcome = run(generate(seed=1, nodes=3, tasks=8, faults=["crash", "loss"], seconds=3.0))
    >>> outcome.failed, outcome.counts["lost"]
    (False, 0)
    """
    schedule = schedule._replace(world="protocol", trial="")
    cluster = Cluster(schedule, classes=classes, trial=trial)
    history = cluster.history = blake2b(digest_size=16) if digest else None
    try:
        cluster.run()
        _judge(cluster)
    except (BrokenRuleError, ProtocolError) as error:  # a machine has seen that it is broken
        cluster.checkers.violated("rules", f"{type(error).__name__}: {error}")
    except Exception as error:  # a bug in a machine is a finding like any other
        cluster.checkers.violated(ACCIDENT, f"{type(error).__name__}: {error}")
    counts, checkers = cluster.counts, cluster.checkers
    counts["duplicated"] = checkers.duplicated
    counts["reordered"] = checkers.reordered
    _count(cluster, counts)
    told = history.hexdigest() if history else ""
    return Outcome(schedule, counts, checkers.violations, checkers.seen, told)


def _judge(cluster: Cluster) -> None:
    """Say what is wrong at the end of a run."""
    counts, checkers = cluster.counts, cluster.checkers
    if cluster.given_up and not cluster.quiet():
        counts["states_lost"] = 1
        checkers.limits()
        checkers.rest()
        return
    counts["stuck"] = 0 if cluster.quiet() else 1
    if counts["stuck"]:
        checkers.violated("stuck", "it did not come to its end: " + why_stuck(cluster))
    checkers.limits()
    counts["lost"] = 0 if counts["stuck"] else checkers.final()


def _count(cluster: Cluster, counts: Counter[str]) -> None:
    """Count what all processes did, also those that ended."""
    counts["schedules"] = 1
    counts["rescales"] = counts.pop("rescale", 0)
    counts["faults"] = sum(counts[kind] for kind in FAULTS)
    for command in ("abort", "resume", "roll_back"):  # the conductors say how many took effect
        counts.pop(command, None)
    for process in cluster.everyone:
        machine = process.machine
        if isinstance(machine, Node):
            counts["chunks"] += machine.intake.applied_chunks
            counts["reroutes"] += machine.rerouter.rerouted
            counts["loop_chunks"] += machine.intake.loop_chunks
            counts["waits"] += machine.intake.waits
            counts["copied_ahead"] += machine.arrivals.completed
            counts["corrupt_refused"] += machine.retriever.bad_blobs
            counts["deltas"] += machine.checkpointer.counts["deltas"]
            counts["snapshots"] += machine.checkpointer.counts["snapshots"]
            counts["deltas_restored"] += machine.retriever.deltas
        elif isinstance(machine, StateServer) and isinstance(machine.spill, Cellar):
            counts["spilled"] += machine.spill.spilled
            counts["spill_damaged"] += machine.spill.damaged
        elif isinstance(machine, Master):
            counts.update(machine.conductor.counts)
    counts["staged_batches"] = cluster.query.committed
    counts["replays"] = cluster.query.replays + counts["restores"] + counts["feeder"]
    counts["messages"] = cluster.network.sent


def why_stuck(cluster: Cluster) -> str:
    """Say what a cluster is still waiting for."""
    master = cluster.master
    migration = master.conductor.migration
    parts = [
        f"sources {[s.name for s in cluster.sources if not s.finished]}",
        f"query batch {cluster.query.batch} of {cluster.query.batches}",
        f"under way {sorted(master.ledger.chain)[:8]}",
        f"migration {None if migration is None else migration.stage.value}",
    ]
    return "; ".join(parts)


def play(schedule: Schedule, *, digest: bool = False) -> Outcome:
    """Run a schedule in its own world."""
    if schedule.world == "protocol":
        return run(schedule, digest=digest)
    from meander.testing.world.simulate import run_world  # Arrow, and the whole runtime

    return run_world(schedule, digest=digest)


def minimise(
    schedule: Schedule, play: Callable[[Schedule], Outcome] = play, tries: int = 200
) -> Schedule:
    """Find the fewest incidents with which the same checker still sees something.

    First none at all, then incidents are left out one by one, then all smaller choices are tried.

    Args:
        schedule: one that fails.
        play: runs one; give your own if it fails with your machines or your operator only.
        tries: how many runs this may take.
    """
    first = next(iter(play(schedule).seen), None)
    if first is None:
        return schedule
    budget = iter(range(tries))

    def fails(incidents: tuple[Incident, ...]) -> bool:
        outcome = play(schedule._replace(incidents=incidents))
        return any(violation.by == first.by for violation in outcome.seen)

    if fails(()):
        return schedule._replace(incidents=())
    least = _thinned(schedule.incidents, fails, budget)
    for size in range(1, len(least)):
        for choice in combinations(schedule.incidents, size):
            if next(budget, None) is None:
                break
            if fails(choice):
                return schedule._replace(incidents=choice)
    return schedule._replace(incidents=least)


def _thinned(
    incidents: tuple[Incident, ...],
    fails: Callable[[tuple[Incident, ...]], bool],
    budget: Iterator[int],
) -> tuple[Incident, ...]:
    """Leave incidents out one by one, until none can be."""
    shrunk = True
    while shrunk:
        shrunk = False
        for left_out in reversed(incidents):
            fewer = tuple(incident for incident in incidents if incident is not left_out)
            if next(budget, None) is None:
                return incidents
            if fails(fewer):
                incidents, shrunk = fewer, True
    return incidents
