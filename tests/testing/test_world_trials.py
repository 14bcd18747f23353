"""The trials of the full world: right operators pass, broken ones are noticed."""

from random import Random

import pytest
from adapter_bench import Bench

from meander.operators import WordCount
from meander.testing.world.trials.words import WordTrial

TASKS = 8


def tried(trial, seed, make=None, steps=200):
    bench = Bench(trial, Random(seed), make)
    bench.run(steps)
    return bench.verdict()


@pytest.mark.parametrize("kind", [WordTrial])
@pytest.mark.parametrize("seed", range(20))
def test_a_sound_operator_passes(kind, seed):
    assert tried(kind(Random(seed), TASKS), seed) == []


@pytest.mark.parametrize("kind", [WordTrial])
def test_rows_and_rules_are_the_same_every_time(kind):
    one, two = (kind(Random(5), TASKS) for _ in range(2))
    assert one.feeders == two.feeders
    assert one.batches == two.batches
    assert one.operator() is not one.operator()


class CountsTwice(WordCount):
    """Takes a row that comes alone twice."""

    def process_groups(self, states, bounds, batch, contexts, hashes=None):
        for _ in range(1 + (batch.num_rows == 1)):
            super().process_groups(states, bounds, batch, contexts, hashes)


BROKEN = {"words": (WordTrial, lambda trial: CountsTwice(emit_updates=trial.updates))}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_operator_is_noticed(name):
    kind, make = BROKEN[name]
    found = []
    for seed in range(10):
        trial = kind(Random(seed), TASKS)
        found += tried(trial, seed, lambda trial=trial: make(trial))
    assert found
