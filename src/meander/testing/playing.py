"""Play a schedule in its own world, and cut a failing one down to what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from meander.testing.faults import Incident, Schedule
from meander.testing.outcome import Outcome
from meander.testing.simulate import run


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
