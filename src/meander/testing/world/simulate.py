"""Run schedules in a world, and count what happened there."""

from __future__ import annotations

import logging
from collections import Counter
from hashlib import blake2b
from random import Random
from traceback import format_exc

from meander.errors import InputError
from meander.protocol.edges.server import StateServer
from meander.protocol.master.master import Master
from meander.protocol.node.node import Node
from meander.testing.checkers import ACCIDENT
from meander.testing.faults import ALL_FAULTS, Schedule
from meander.testing.outcome import Outcome
from meander.testing.world.judgement import Judgement
from meander.testing.world.trials import WorldTrial, named
from meander.testing.world.world import World

log = logging.getLogger("meander")


def run_world(
    schedule: Schedule, trial: WorldTrial | None = None, *, digest: bool = False
) -> Outcome:
    """Run one schedule with whole processes.

    Args:
        schedule: what happens.
        trial: the operator and its rows; the schedule's if not given, else drawn from its seed.
        digest: whether to hash all that was delivered, to compare runs bit for bit.

    Raises:
        InputError: if the trial is of another number of tasks, or needs what is not installed.

    >>> from meander.testing.faults import generate
    >>> outcome = run_world(generate(seed=1, nodes=2, tasks=4, faults=["crash"], seconds=2.0))
    >>> outcome.failed
    False
    """
    level = log.level
    log.setLevel(logging.CRITICAL)  # of what goes wrong on purpose nobody wants to read
    try:
        return _run(schedule, trial, digest=digest)
    finally:
        log.setLevel(level)


def _run(schedule: Schedule, trial: WorldTrial | None, *, digest: bool) -> Outcome:
    schedule = schedule._replace(world="full")
    if trial is None and schedule.trial:
        trial = named(schedule.trial, Random(schedule.seed), schedule.tasks)
    if trial is not None and trial.tasks != schedule.tasks:
        raise InputError(f"a trial of {trial.tasks} tasks, a schedule of {schedule.tasks}")
    world = World(schedule, trial)
    history = world.history = blake2b(digest_size=16) if digest else None
    checkers, counts = world.checkers, world.counts
    try:
        world.run()
        _judge(world)
    except Exception as error:  # a bug of ours is a finding like any other
        log.debug("a simulated world broke", exc_info=True)
        checkers.violated(ACCIDENT, f"{type(error).__name__}: {error} {format_exc()[-1500:]}")
    counts["lost"] = sum(v.by in ("end", "shown") for v in checkers.seen)
    _count(world, counts)
    violations = [str(violation) for violation in checkers.seen]
    digested = history.hexdigest() if history else ""
    world.timeline.clear()
    return Outcome(schedule, counts, violations, checkers.seen, digested)


def _judge(world: World) -> None:
    """Say what is wrong at the end of a run."""
    counts, checkers, people = world.counts, world.checkers, world.people
    quiet, judgement = people.quiet(), Judgement(world, checkers)
    judgement.posts()
    if people.given_up and not quiet:  # those tasks are not served again, and rows for them wait
        counts["states_lost"] = 1
        judgement.others()
        judgement.rest()
        return
    counts["stuck"] = 0 if quiet else 1
    if quiet:
        judgement.final()
    else:
        checkers.violated("stuck", people.why_stuck())


def _count(world: World, counts: Counter[str]) -> None:
    """Count what all processes did, also those that ended."""
    counts["schedules"] = 1
    for command in ("rescale", "vacate", "upgrade"):
        counts[f"{command}s"] = counts.pop(command, 0)
    counts["faults"] = sum(counts[kind] for kind in ALL_FAULTS)
    counts[f"trial_{world.trial.name.replace(' ', '_')}"] += 1
    for command in ("abort", "resume", "roll_back"):
        counts.pop(command, None)
    for resident in world.residents:
        if not resident.actor.begun:
            continue
        machine, over = resident.actor.machine, resident.actor.over
        if over is not None:
            counts[f"ended_{over[0].value.replace(' ', '_')}"] += 1
        counts["turns"] += resident.actor.turns
        counts["long_turns"] += resident.actor.long_turns
        for name in ("refused", "stale"):
            counts[name] += resident.actor.process.counts[name]
        counts["malformed"] += resident.post.malformed
        counts["dropped"] += resident.post.dropped
        if resident.mischief is not None:
            counts["pranks"] += len(resident.mischief.played)
        if isinstance(machine, Node):
            counts["chunks"] += machine.intake.applied_chunks
            counts["reroutes"] += machine.rerouter.rerouted
            counts["loop_chunks"] += machine.intake.loop_chunks
            counts["express_chunks"] += machine.intake.express.applied_chunks
            counts["waits"] += machine.intake.waits
            assert resident.node is not None
            counts["combined_rows"] += resident.node.adapter.work.combined
            counts["copied_ahead"] += machine.arrivals.completed
            counts["copies_resent"] += machine.copier.resent
            counts["copies_slowed"] += machine.copier.slowed
            counts["deltas"] += machine.checkpointer.counts["deltas"]
            counts["hurried"] += machine.checkpointer.counts["hurried"]
            counts["snapshots"] += machine.checkpointer.counts["snapshots"]
            counts["deltas_restored"] += machine.retriever.deltas
            counts["chains_moved"] += machine.retriever.chains
            counts["corrupt_refused"] += machine.retriever.bad_blobs
        elif isinstance(machine, StateServer) and machine.spill is not None:
            counts["spilled"] += getattr(machine.spill, "spilled", 0)
        elif isinstance(machine, Master):
            counts.update(machine.conductor.counts)
    people = world.people
    counts["joint_records"] = world.checkers.oracle.joint_records
    counts["staged_batches"] = people.query.batch
    counts["once_written"] = people.query.batch if people.query.once else 0
    counts["replays"] = people.query.replays + sum(source.replayed for source in people.sources)
    counts["twins"] = people.query.twins
    counts["failed_attempts"] = people.query.failed_attempts
    counts["outputs_shown"] = len(world.checkers.shown)
    counts["calls"] = sum(people.caller.counts.values())
    counts["drivers"] = len(world.user.drivers)
    counts["ways_back"] = sum(driver.ways_back for driver in world.user.drivers)
    counts["drivers_beside"] = world.user.beside
    counts["deployments_failed"] = len(world.user.failures)
    counts["outputs_lost"] = int(people.losses_told > 0)
    counts["outputs_gone"] = len(people.gone)
    for reader in people.readers:
        for name, count in reader.counts.items():
            counts[f"reader_{name}"] += count
    for sink in people.sinks:
        for name, count in (sink.counts + sink.topic.counts).items():
            counts[f"sink_{name}"] += count
    for name, count in people.caller.counts.items():
        if ":" in name:  # what went wrong for a caller
            counts[f"call_{name.replace(': ', '_').replace(' ', '_')}"] += count
    for name, count in world.wires.counts.items():
        counts[f"wire_{name}"] += count
