"""The trials of the full world: right operators pass, broken ones are noticed."""

import subprocess
import sys
from random import Random

import pyarrow as pa
import pytest
from adapter_bench import Bench

from meander.errors import OperatorError
from meander.operators import FrequentPatterns, WordCount
from meander.spark.processor import state as processor_state
from meander.spark.processor.trial import ProcessorTrial, only_brief
from meander.testing.world.trials import (
    METHODS,
    CascadeTrial,
    EmitTrial,
    Mischief,
    PatternTrial,
    Prank,
    RelayTrial,
    ReminderTrial,
    TrialSize,
    WindowTrial,
    WordTrial,
    draw,
)
from meander.testing.world.trials.emits import Answers
from meander.testing.world.trials.reminders import Reminders
from meander.testing.world.trials.trial import Count
from meander.testing.world.trials.windows import Windows

TASKS = 8
KINDS = [WordTrial, EmitTrial, PatternTrial, WindowTrial, ReminderTrial, ProcessorTrial]
TOPOLOGIES = [RelayTrial, CascadeTrial]
"""Of several operators: they are tried in the full world alone."""


def tried(trial, seed, make=None, steps=200):
    bench = Bench(trial, Random(seed), make)
    bench.run(steps)
    return bench


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_a_sound_operator_passes(kind, seed):
    assert tried(kind(Random(seed), TASKS), seed).verdict() == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_same_every_time_and_operators_are_not(kind):
    one, two = (kind(Random(5), TASKS) for _ in range(2))
    assert one.feeders == two.feeders
    assert one.batches == two.batches
    assert one.operator() is not one.operator()
    assert {batch.schema for source in one.feeders.values() for batch in source} == {
        one.operator().schema
    }
    assert {table.schema for table in one.batches} == {one.operator().schema}


def test_windows_end_and_rows_are_late():
    """The trial tries what it is for."""
    ended = late = 0
    for seed in range(20):
        trial = WindowTrial(Random(seed), TASKS)
        bench = tried(trial, seed)
        shown = [batch for shown in bench.outputs().values() for _, batch in shown]
        ended += sum(batch.num_rows for batch in shown)
        rows = [row for table in bench.states().values() if table for row in table.to_pylist()]
        late += sum(row["late_rows"] for row in rows)
    assert ended > 200
    assert late > 20


def test_every_trial_is_drawn_and_smaller_ones_can_be():
    found = [draw(Random(seed), TASKS, TrialSize(1, 2, 3, 0, 0)) for seed in range(60)]
    assert {type(trial) for trial in found} == {*KINDS, *TOPOLOGIES}
    assert all(len(trial.feeders) == 1 and not trial.batches for trial in found)
    assert all(len(trial.feeders["feeder0"]) == 2 for trial in found)


def test_pyspark_is_loaded_only_for_its_trial():
    said = "import sys, meander.testing.world.trials; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


# --------------------------------------------------------------------------- broken operators


class CountsTwice(WordCount):
    """Takes a row that comes alone twice."""

    def process_groups(self, states, bounds, batch, contexts, hashes=None):
        for _ in range(1 + (batch.num_rows == 1)):
            super().process_groups(states, bounds, batch, contexts, hashes)


class Deaf(FrequentPatterns):
    """Does not tell every sub-pattern."""

    def process_groups(self, states, bounds, batch, contexts, hashes=None):
        super().process_groups(states, bounds, batch, contexts, hashes)
        for context in contexts:
            context.fed[:] = [fed.slice(1) for fed in context.fed]


class Keeps(Windows):
    """Does not delete a window that has ended."""

    def on_timer(self, state, timer, context):
        before = dict(state)
        super().on_timer(state, timer, context)
        state.update(before)


class Patient(Windows):
    """Takes late rows for rows in time."""

    def process(self, state, batch, context):
        context.watermark_us = 0
        super().process(state, batch, context)


class Sleepy(Windows):
    """Forgets to set timers when it has been loaded."""

    def load(self, batches, context):
        return {**super().load(batches, context), ("", 0): [Count(), Count()]}

    def dump(self, state):
        return super().dump({slot: counts for slot, counts in state.items() if slot[0]})

    def process(self, state, batch, context):
        super().process(state, batch, context)
        if ("", 0) in state:
            for key, at_us in list(context.event_timers):
                context.event_timers.cancel(key, at_us)


class Undead(Answers):
    """Does not say that keys are gone."""

    def changes(self, state, since):
        return [batch.filter(pa.compute.field("n") > 0) for batch in super().changes(state, since)]


class Mute(Answers):
    """Leaves an answer out."""

    def process(self, state, batch, context):
        super().process(state, batch, context)
        context.emitted[:] = [batch.slice(batch.num_rows > 1) for batch in context.emitted]


class Repeats(Reminders):
    """Does not forget what it has told of."""

    def on_timer(self, state, timer, context):
        self._tell(timer.key[0], state[timer.key[0]], context)


BROKEN = {
    "counts twice": (WordTrial, lambda trial: CountsTwice(emit_updates=trial.updates)),
    "deaf": (PatternTrial, lambda trial: Deaf(trial.threshold)),
    "keeps": (WindowTrial, lambda trial: Keeps(trial.operator().feeders_min)),
    "patient": (WindowTrial, lambda trial: Patient(trial.operator().feeders_min)),
    "sleepy": (WindowTrial, lambda trial: Sleepy(trial.operator().feeders_min)),
    "undead": (EmitTrial, lambda trial: Undead()),
    "mute": (EmitTrial, lambda trial: Mute()),
    "repeats": (ReminderTrial, lambda trial: Repeats()),
}


def noticed(kind, make, enough):
    """Whether enough of twenty seeds notice something."""
    for seed in range(20):
        trial = kind(Random(seed), TASKS)
        enough -= bool(tried(trial, seed, lambda trial=trial: make(trial)).verdict())
        if not enough:
            return True
    return False


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_operator_is_noticed(name):
    assert noticed(*BROKEN[name], enough=5)


def test_deleted_keys_that_come_back_are_noticed(monkeypatch):
    """Changes that leave out which keys are gone."""
    sound = processor_state.ProcessorState.changes

    def changes(self, since):
        return [batch for batch in sound(self, since) if batch.num_columns > len(self.layout.key)]

    monkeypatch.setattr(processor_state.ProcessorState, "changes", changes)
    assert noticed(ProcessorTrial, lambda trial: trial.operator(), enough=5)


def test_removed_keys_that_are_forgotten_too_soon_are_noticed(monkeypatch):
    """A state that forgets removed keys and gives changes as if it knew all."""
    sound = processor_state.ProcessorState.remove

    def remove(self, key):
        sound(self, key)
        self.forgotten = 0

    monkeypatch.setattr(processor_state.ProcessorState, "remove", remove)
    assert noticed(ProcessorTrial, lambda trial: trial.operator(), enough=3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_to_states_and_outputs_is_noticed(kind):
    for seed in range(5):
        trial = kind(Random(seed), TASKS)
        bench = tried(trial, seed)
        states, outputs = bench.states(), bench.outputs()
        for task, table in states.items():
            if table is not None and len(table):
                swept = kind is ProcessorTrial and only_brief(table.slice(0, 1).to_pylist()[0])
                assert swept or trial.judge({**states, task: table.slice(1)}, outputs)
                twice = pa.concat_tables([table, table.slice(0, 1)])
                assert trial.judge({**states, task: twice}, outputs)
                assert trial.judge({**states, (task + 1) % TASKS: table}, outputs)
        for task, shown in outputs.items():
            if shown:
                assert trial.judge(states, {**outputs, task: shown[1:]})
                again = len(shown) + 1, shown[-1][1]
                assert trial.judge(states, {**outputs, task: [*shown, again]})
        some = {task: states[task] for task in range(3)}
        assert trial.judge(some, {task: outputs[task] for task in range(3)}) == []


# --------------------------------------------------------------------------- mischief


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_prank_everything_is_as_it_was(kind):
    trial, spent = kind(Random(3), TASKS), []

    def make():
        operator = trial.operator()
        Mischief(operator, spent.append)
        return operator

    plain, led = (Bench(trial, Random(3), m).nodes[0] for m in (None, make))
    for fact in ("timed", "defers", "gathers"):
        assert getattr(plain, fact) == getattr(led, fact)
    assert tried(trial, 3, make).verdict() == []
    assert spent == []


@pytest.mark.parametrize("kind", KINDS)
def test_pranks_fail_as_users_code_does_and_slow_ones_change_nothing(kind):
    failed = set()
    for seed in range(30):
        random, trial = Random(seed), kind(Random(seed), TASKS)
        prank, spent = Prank.draw(random, calls_max=5), []

        def make(trial=trial, prank=prank, spent=spent):
            operator = trial.operator()
            Mischief(operator, spent.append).plan(prank)
            return operator

        why = None
        try:
            found = tried(trial, seed, make).verdict()
        except (OperatorError, ValueError) as error:
            why, found = str(error), []
            failed.add(prank.method)
        assert found == []
        assert why is None or (prank.fails and "ArithmeticError" in why)
    assert "process_groups" in failed
    assert failed <= set(METHODS)
