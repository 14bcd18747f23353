"""Sources and queries in a whole world: they die, come back, and everything counts once."""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random

import pytest

from meander.testing.faults import Incident, Schedule
from meander.testing.world.judgement import Judgement
from meander.testing.world.trials.words import WordTrial
from meander.testing.world.world import World

TASKS = 8
KINDS = ("feeder", "query", "attempt")


def world(seed: int, *kinds: str) -> World:
    """Run a world to its end, in which some things happen, one after the other."""
    incidents = [
        Incident(0.7 + 0.4 * n, kind, target=n, other=n, seconds=0.5, amount=0.2)
        for n, kind in enumerate(kinds * 4)
    ]
    for number in count(seed, 100):  # the first of these seeds that has checkpoints
        schedule = Schedule(number, 2, TASKS, 6.0, tuple(incidents))
        found = World(schedule, WordTrial(Random(number), TASKS))
        if found.durable:
            break
    found.run()
    return found


def checked(world: World) -> World:
    people = world.people
    assert people.quiet(), people.why_stuck()
    Judgement(world, world.checkers).final()
    assert [str(violation) for violation in world.checkers.seen] == []
    assert all(source.finished for source in people.sources)
    assert people.query.finished
    return world


def test_without_faults_every_batch_is_fed_and_committed_in_one_life() -> None:
    people = checked(world(1)).people
    assert [source.lives for source in people.sources] == [1] * len(people.sources)
    assert sum(source.replayed for source in people.sources) == 0
    assert (people.query.lives, people.query.replays) == (1, 0)


def test_feeders_workers_and_queries_that_die_come_back_and_everything_counts_once() -> None:
    """The counts are compared in `checked`; here it is seen that all of it has happened."""
    seen: Counter[str] = Counter()
    for seed in range(6):
        people = checked(world(seed, *KINDS)).people
        query = people.query
        seen["source lives"] += sum(source.lives - 1 for source in people.sources)
        seen["replayed"] += sum(source.replayed for source in people.sources)
        seen["query lives"] += query.lives - 1
        seen["replays"] += query.replays
        seen["failed attempts"] += query.failed_attempts
        seen["twins"] += query.twins
    assert all(seen[what] for what in seen), seen
    assert len(seen) == 6


@pytest.mark.parametrize("seed", range(3))
def test_with_another_driver_sources_and_queries_go_on_where_they_were(seed: int) -> None:
    checked(world(seed, "master", "feeder"))


def test_a_seed_gives_the_same_life_every_time() -> None:
    def told() -> list[object]:
        people = world(3, *KINDS).people
        query = people.query
        lives = [(source.lives, source.replayed) for source in people.sources]
        return [*lives, query.lives, query.replays, query.failed_attempts, query.twins]

    assert told() == told()
