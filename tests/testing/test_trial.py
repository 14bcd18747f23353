"""An operator of one's own under faults."""

import json

import pytest

from meander.errors import InputError
from meander.protocol.state import Emission
from meander.testing import FAULTS, Incident, OperatorTrial, Schedule, generate, run

TASKS = 6
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "runs"]


class WordCount:
    """Counts words; every tenth count of a word is told to task 0."""

    def empty(self, task):
        return {}

    def apply(self, task, app, feeder, rows, after):
        emissions = []
        for row in rows:
            if feeder.startswith("loop/"):
                word = f"tens of {row}"
            elif isinstance(row, str):  # from a micro-batch
                word = row
            elif row[0] > after:
                word = row[1]
            else:
                continue
            app[word] = app.get(word, 0) + 1
            if not feeder.startswith("loop/") and app[word] % 10 == 0:
                emissions.append(Emission(0, (word,), 8))
        return emissions

    def dump(self, app):
        return json.dumps(app).encode()

    def load(self, task, blob):
        return json.loads(blob)

    def dump_rows(self, rows):
        return json.dumps(rows).encode()

    def load_rows(self, blob):
        return tuple(tuple(r) if isinstance(r, list) else r for r in json.loads(blob))

    def size(self, app):
        return 16 * len(app)


class CountsTwice(WordCount):
    """Does not look at `after`: what a feeder replays is counted again."""

    def apply(self, task, app, feeder, rows, after):
        return super().apply(task, app, feeder, rows, -1)


class Breaks(WordCount):
    def load(self, task, blob):
        raise ZeroDivisionError("this operator cannot read its own state")


def trial_of(make):
    spoken = [WORDS[i * i % len(WORDS)] for i in range(150)]
    routed = [(len(word) % TASKS, word) for word in spoken]
    return OperatorTrial(make, TASKS, {"left": routed, "right": routed[::2]}, [routed[:20]] * 3)


@pytest.mark.parametrize("seed", range(6))
def test_a_sound_operator_comes_through_all_faults(seed):
    outcome = run(generate(seed, 3, TASKS, FAULTS), trial=trial_of(WordCount))
    assert outcome.violations == []
    assert outcome.counts["chunks"] > 50


def test_an_operator_that_counts_a_replay_again_is_found_out():
    crashes = Schedule(1, 3, TASKS, 6.0, tuple(Incident(1 + i / 2, "feeder", i) for i in range(6)))
    assert run(crashes, trial=trial_of(WordCount)).violations == []
    violations = run(crashes, trial=trial_of(CountsTwice)).violations
    assert any("a sequential run" in text for text in violations)


def test_what_an_operator_raises_is_a_finding():
    schedule = Schedule(1, 2, TASKS, 4.0, (Incident(1.0, "rescale", 3),))
    assert any(
        "ZeroDivisionError" in text for text in run(schedule, trial=trial_of(Breaks)).violations
    )


def test_a_trial_must_fit_its_tasks():
    with pytest.raises(InputError, match="task that is not in"):
        OperatorTrial(WordCount, 2, {"left": [(2, "x")]})
    with pytest.raises(ValueError, match="same number of tasks"):
        run(generate(1, 2, 9, ()), trial=trial_of(WordCount))
