"""A run repeats itself bit for bit, counts what it did, and a failure is cut down."""

import os
import subprocess
import sys
from collections import Counter

from mutants_for_testing import Forgetful

from meander.testing.campaign import SCOPES, Report, Scope, campaign, run_seeds
from meander.testing.faults import FAULTS, generate
from meander.testing.playing import minimise
from meander.testing.simulate import run

DIGESTS = """
from meander.testing import FAULTS, generate, run
print([run(generate(seed, 4, 12, FAULTS), digest=True).digest for seed in range(4)])
"""


def test_the_same_seed_is_the_same_run_bit_for_bit():
    schedule = generate(3, 4, 12, FAULTS)
    first, second = run(schedule, digest=True), run(schedule, digest=True)
    assert first.digest == second.digest != ""
    assert first.counts == second.counts
    assert run(generate(4, 4, 12, FAULTS), digest=True).digest != first.digest


def test_a_run_does_not_depend_on_how_python_hashes():
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "4711")
    }  # fmt: skip
    assert len(found) == 1


def test_what_ended_processes_did_is_counted_too():
    for seed in range(20):
        schedule = generate(seed, 3, 6, ["crash"])
        outcome = run(schedule)
        if outcome.counts["restores"]:
            assert outcome.counts["chunks"] >= outcome.counts["loop_chunks"] > 0
            assert outcome.counts["replays"] >= outcome.counts["restores"]
            return
    raise AssertionError("no crash led to a restore")


def test_a_failing_schedule_is_cut_down_to_what_it_takes():
    schedule = next(
        s for s in (generate(i, 3, 6, ["loss", "slow"]) for i in range(20))
        if run(s, Forgetful).failed
    )  # fmt: skip
    small = minimise(schedule, lambda s: run(s, Forgetful))
    assert run(small, Forgetful).failed
    assert set(small.incidents) <= set(schedule.incidents)
    for left_out in small.incidents:
        rest = tuple(i for i in small.incidents if i is not left_out)
        assert not run(small._replace(incidents=rest), Forgetful).failed


def test_a_campaign_comes_to_the_same_in_one_process_and_in_two():
    scope = Scope(3, 6, ("crash", "loss"), 3.0)
    alone, failures = run_seeds(5, 6, scope)
    told = []
    together = campaign(5, 6, scope, 2, lambda done, failed: told.append((done, failed)))
    assert together.counts == alone
    assert together.failures == failures == []
    assert told[-1] == (6, 0)


def test_a_long_campaign_in_which_something_never_happened_says_so():
    report = Report(Scope())
    report.add(Counter(schedules=500, rescales=3), [])
    assert "reroutes" in report.untested()
    assert "rescales" not in report.untested()
    assert Report(Scope(), Counter(schedules=499)).untested() == []
    assert Report(Scope(faults=("loss",)), Counter(schedules=500)).untested() == []
    full = Report(SCOPES["full"], Counter(schedules=500, host=3))
    assert "writes_cut" in full.untested()
    assert "spot" in full.untested()
    assert "host" not in full.untested()
    one = SCOPES["full"]._replace(trial="words")
    assert Report(one, Counter(schedules=500)).untested() == []
