"""Run schedules, count what happened, and cut a failing schedule down to what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from meander.protocol.node import Node
from meander.testing.cluster import Classes, Cluster
from meander.testing.faults import FAULTS, Schedule, generate


@dataclass
class Outcome:
    """What became of one schedule."""

    schedule: Schedule
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything that must not happen did."""
        return bool(self.violations)


def run(schedule: Schedule, classes: type[Classes] = Classes) -> Outcome:
    """Run one schedule.

    >>> outcome = run(generate(seed=1, nodes=3, tasks=8, faults=["crash", "loss"], seconds=3.0))
    >>> outcome.failed, outcome.counts["lost"]
    (False, 0)
    """
    cluster = Cluster(schedule, classes=classes)
    try:
        cluster.run()
    except Exception as error:  # a bug in a machine is a finding like any other
        cluster.checkers.violated(f"{type(error).__name__}: {error}")
    counts = cluster.counts
    checkers = cluster.checkers
    counts["stuck"] = 0 if cluster.quiet() else 1
    if counts["stuck"]:
        checkers.violated("it did not come to its end: " + why_stuck(cluster))
    checkers.limits()
    counts["lost"] = 0
    if not counts["stuck"]:
        counts["lost"] = checkers.final()
    counts["duplicated"] = checkers.duplicated
    counts["reordered"] = checkers.reordered
    _count(cluster, counts)
    return Outcome(schedule, counts, checkers.violations)


def _count(cluster: Cluster, counts: Counter[str]) -> None:
    counts["schedules"] = 1
    counts["rescales"] = counts.pop("rescale", 0)
    counts["faults"] = sum(counts[kind] for kind in FAULTS)
    conductor = cluster.master.conductor.counts
    counts["second_moves"] = conductor["second_moves"]
    counts["aborts"] = conductor["aborts"] + conductor["roll_backs"]
    counts["resumes"] = conductor["resumes"]
    counts["restores"] = conductor["restores"]
    counts["staged_batches"] = cluster.query.batch
    counts["replays"] = cluster.query.replays + conductor["restores"] + counts["feeder"]
    counts["messages"] = cluster.network.sent
    for process in cluster.processes.values():
        if isinstance(process.machine, Node):
            counts["chunks"] += process.machine.applied_chunks
            counts["reroutes"] += process.machine.rerouter.rerouted
            counts["loop_chunks"] += process.machine.loop_chunks
            counts["waits"] += process.machine.waits


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


def minimise(schedule: Schedule, classes: type[Classes] = Classes, tries: int = 200) -> Schedule:
    """Leave incidents out as long as the schedule still fails."""
    shrunk = True
    while shrunk and tries > 0:
        shrunk = False
        for i in range(len(schedule.incidents)):
            incidents = schedule.incidents[:i] + schedule.incidents[i + 1 :]
            candidate = schedule._replace(incidents=incidents)
            tries -= 1
            if run(candidate, classes).failed:
                schedule, shrunk = candidate, True
                break
            if tries <= 0:
                break
    return schedule


def run_seeds(
    seeds: Iterable[int], nodes: int, tasks: int, faults: Iterable[str]
) -> Iterable[Outcome]:
    """Run the schedules of many seeds."""
    kinds = sorted(faults)
    for seed in seeds:
        yield run(generate(seed, nodes, tasks, kinds))
