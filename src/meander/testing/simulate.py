"""Run schedules with the protocol's machines, and count what happened (`world.simulate`: processes)."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from meander.errors import BrokenRuleError, ProtocolError
from meander.protocol.edges.server import StateServer
from meander.protocol.master.master import Master
from meander.protocol.node.node import Node
from meander.testing.cellar import Cellar
from meander.testing.checkers import ACCIDENT
from meander.testing.cluster import Cluster
from meander.testing.faults import FAULTS, Schedule
from meander.testing.outcome import Outcome
from meander.testing.process import Classes
from meander.testing.trial import Trial


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
    counts["joint_records"] = checkers.oracle.joint_records if checkers.oracle else 0
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
    for command in ("rescale", "vacate", "upgrade"):
        counts[f"{command}s"] = counts.pop(command, 0)
    counts["faults"] = sum(counts[kind] for kind in FAULTS)
    for command in ("abort", "resume", "roll_back"):  # the conductors say how many took effect
        counts.pop(command, None)
    for process in cluster.everyone:
        machine = process.machine
        if isinstance(machine, Node):
            counts["chunks"] += machine.intake.applied_chunks
            counts["reroutes"] += machine.rerouter.rerouted
            counts["loop_chunks"] += machine.intake.loop_chunks
            counts["express_chunks"] += machine.intake.express.applied_chunks
            counts["waits"] += machine.intake.waits
            counts["copied_ahead"] += machine.arrivals.completed
            counts["copies_resent"] += machine.copier.resent
            counts["copies_slowed"] += machine.copier.slowed
            counts["corrupt_refused"] += machine.retriever.bad_blobs
            counts["deltas"] += machine.checkpointer.counts["deltas"]
            counts["hurried"] += machine.checkpointer.counts["hurried"]
            counts["snapshots"] += machine.checkpointer.counts["snapshots"]
            counts["deltas_restored"] += machine.retriever.deltas
            counts["chains_moved"] += machine.retriever.chains
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
