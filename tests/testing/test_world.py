"""The full world: seeds pass, what is broken is found and cut down."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.model import Epoch, TaskId
from meander.operators import WordCount
from meander.protocol.edges.server import StateServer
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import Manifest
from meander.protocol.messages import MASTER, Bye, Envelope
from meander.protocol.node.node import Node
from meander.runtime.process.keeping import OutputKeeper
from meander.runtime.process.spec import Reason
from meander.testing import ALL_FAULTS, TRIALS, Incident, OwnTrial, Schedule, generate, minimise
from meander.testing.campaign import MUST_NOT_HAPPEN, SCOPES, run_seeds
from meander.testing.world.injector import comes_not
from meander.testing.world.judgement import Judgement
from meander.testing.world.simulate import run_world
from meander.testing.world.trials import named
from meander.testing.world.world import World

BATCH = 6


def none_failed(first, count):
    counts, failures = run_seeds(first, count, SCOPES["full"])
    assert [(f.schedule.seed, f.violations[0]) for f in failures] == []
    assert [name for name in MUST_NOT_HAPPEN["full"] if counts[name]] == []
    assert counts["schedules"] == count


@pytest.mark.parametrize(
    "first",
    [first if first < 30 else pytest.param(first, marks=pytest.mark.slow)
     for first in range(0, 60, BATCH)],
)  # fmt: skip
def test_a_deployment_keeps_its_promises_whatever_happens(first):
    none_failed(first, BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_two_thousand_seeds(first):
    none_failed(first, 100)


@pytest.mark.parametrize("trial", TRIALS)
def test_without_faults_every_operator_comes_to_its_end(trial):
    outcome = run_world(generate(3, 3, 8, (), 1.5, world="full", trial=trial))
    assert outcome.violations == []
    assert outcome.counts["chunks"] > 0
    assert outcome.counts[f"trial_{trial}"] == 1


def test_a_loop_that_goes_on_slowly_is_not_taken_for_one_that_stands_still():
    slow = run_world(generate(90005101, 3, 8, ALL_FAULTS, 2.0, world="full"))
    assert slow.violations == []
    assert slow.counts["loop_chunks"] > 250


# --------------------------------------------------------------------------- an own operator


def counted(rows, state, outputs):
    wanted = rows.group_by("word").aggregate([("word", "count")]).to_pylist()
    found = state.to_pylist() if state is not None else []
    assert {r["word"]: r["count"] for r in found} == {r["word"]: r["word_count"] for r in wanted}


def own(make=WordCount, judge=counted):
    words = [{"word": [f"w{i % 7}", "the"]} for i in range(12)]
    more = pa.table({"word": ["w1", "end"]})
    return OwnTrial(make, {"texts": words}, [more, more], judge=judge, tasks=8)


class Forgets(WordCount):
    """Loses all that was written down."""

    def load(self, batches, context):
        return self.create(context)

    def apply_changes(self, state, batches, context):
        return state


CRASH = Schedule(4, 2, 8, 2.0, (Incident(0.5, "lag"), Incident(1.2, "crash")), world="full")


def test_an_own_operator_is_tried():
    outcome = run_world(CRASH, own())
    assert outcome.violations == []
    assert outcome.counts["trial_WordCount"] == 1


def test_an_own_operator_that_is_wrong_is_found_and_cut_down_to_nothing():
    """What a checkpoint alone would restore is looked at: it takes no crash to find that."""
    outcome = run_world(CRASH, own(Forgets))
    assert outcome.caught_by in ("end", "store")
    assert outcome.violations[0].count("of Forgets") == 1
    small = minimise(CRASH, lambda schedule: run_world(schedule, own(Forgets)))
    assert len(small.incidents) <= 1


def test_rows_and_tasks_must_fit():
    with pytest.raises(InputError, match="these are no rows of"):
        OwnTrial(WordCount, {"texts": [{"text": ["a"]}]}, judge=counted, tasks=8)
    with pytest.raises(InputError, match="a trial of 8 tasks, a schedule of 4"):
        run_world(CRASH._replace(tasks=4), own())


# --------------------------------------------------------------------------- what is broken


def test_outputs_that_are_shown_too_early_are_found_and_the_schedule_is_cut_down(monkeypatch):
    """Outputs that count as durable as soon as they are there."""

    def keep(self, app, emitted, aside=()):
        sound(self, app, emitted, aside)
        app.outputs.durable = app.outputs.last

    sound = OutputKeeper.keep
    schedules = [generate(s, 3, 8, ["loss", "slow"], 1.5, trial="emits") for s in range(6)]
    assert not run_world(schedules[0]).failed
    monkeypatch.setattr(OutputKeeper, "keep", keep)
    found = next(o for o in map(run_world, schedules) if o.caught_by == "shown")
    assert found.schedule.world == "full"
    small = minimise(found.schedule, tries=40)
    assert len(small.incidents) <= 1 < len(found.schedule.incidents)
    assert run_world(Schedule.load(small.dump())).caught_by == "shown"


def test_all_kinds_are_known_to_the_injector():
    from meander.testing.world.injector import WorldInjector

    assert [kind for kind in ALL_FAULTS if not hasattr(WorldInjector, f"_do_{kind}")] == []


def test_a_driver_that_was_replaced_is_given_time_to_find_that_out():
    """Its rescale waits for a node that never comes, so it has nothing to write that would tell it."""
    incidents = (
        Incident(1.435, "rescale", 2, 1),
        Incident(1.576, "launch", 398, 113, 0.392, 0.177),
        Incident(1.943, "store", 393, 146, 0.398, 0.273),
    )
    outcome = run_world(Schedule(8900002, 3, 8, 2.0, incidents, "full"))
    assert (outcome.violations, outcome.counts["drivers_beside"] > 0) == ([], True)


def test_a_calendar_that_jumps_back_holds_up_no_watermark_between_operators():
    jump = Incident(1.2, "jump", 3, 100)
    assert run_world(Schedule(14, 2, 6, 1.5, (jump,), "full", "cascades")).violations == []


def test_a_driver_that_came_too_late_for_its_generation_is_nobodys() -> None:
    """Two head for generation 3: one gets it, launches a node and dies; the other never starts."""

    def driver(*, started: bool, present: bool) -> Any:
        core = SimpleNamespace(master=SimpleNamespace(started=started))
        return SimpleNamespace(
            generation=3, core=core, present=present, stopping=False,
            actor=SimpleNamespace(over=None),
        )  # fmt: skip

    late, dead = driver(started=False, present=True), driver(started=True, present=False)
    world: Any = SimpleNamespace(user=SimpleNamespace(drivers=[late, dead]))
    epoch = SimpleNamespace(generation=3)
    node: Any = SimpleNamespace(actor=SimpleNamespace(machine=SimpleNamespace(epoch=epoch)))
    assert World.driver_lost(world, node)
    dead.present = True
    assert not World.driver_lost(world, node)


@pytest.mark.parametrize(("generation", "anew"), [(1, False), (2, True)])
def test_only_another_driver_begins_a_checkpoint_anew(generation: int, anew: bool) -> None:
    """Two manifests name records of a node that is lost before it hears so; the third names none."""
    world = World(Schedule(1, 2, 4, 1.0, (), "full", "words"))
    checkers: Any = world.checkers
    for number, by in ((1, 1), (2, 1), (0, generation)):
        records = {TaskId(0): Kept(Epoch(1, 1), number, ())} if number else {}
        checkers.oracle.manifest = Manifest(by, 4, ("n1",), records, {})
        checkers._whole()
    assert [violation.by for violation in checkers.seen] == ["store"] * anew


def test_a_message_that_cannot_be_put_into_words_is_seen() -> None:
    world = World(Schedule(1, 2, 4, 1.0, (), "full", "words"))
    letter: Any = SimpleNamespace(body="no message")
    Judgement(world, world.checkers).posts()
    world.residents[0].post.unwritten(letter, ValueError("there are no words for it"))
    assert world.checkers.seen == []
    Judgement(world, world.checkers).posts()
    assert [violation.by for violation in world.checkers.seen] == ["crash"]


@pytest.mark.parametrize("hasty", [0, 1])
@pytest.mark.parametrize("spoilt", [True, False])
def test_whoever_refuses_a_message_that_is_whole_is_seen(spoilt: bool, hasty: int) -> None:
    """But that of a query which leaves before it is welcome (seed 7300155)."""
    incidents = (Incident(0.5, "corrupt"),) * spoilt
    world = World(Schedule(1, 2, 4, 1.0, incidents, "full", "words"))
    master = world.resident(world.driver.actor)
    goodbye = Envelope("query/q", 0, MASTER, 0, Epoch(1, 0), Bye())
    for _ in range(hasty):
        world.checkers.delivered(master, goodbye)
    master.actor.process.counts["refused"] += 1
    Judgement(world, world.checkers).posts()
    assert len(world.checkers.seen) == (not spoilt and not hasty)
    master.post.malformed = 2
    Judgement(world, world.checkers).posts()
    assert any("cannot read 2" in str(seen) for seen in world.checkers.seen) is not spoilt


def test_a_node_that_is_launched_later_has_the_bug_that_nobody_has_met() -> None:
    """1. states cannot be read  2. a node is killed  3. its successor is the first to read one."""
    incidents = (Incident(0.8, "dump", 0, 1), Incident(1.0, "crash", 0, 3))
    outcome = run_world(Schedule(7, 2, 8, 1.5, incidents, "full", "words"))
    assert outcome.violations == []
    assert outcome.counts["prank_load"] > 0
    assert outcome.counts["deployments_failed"] == 1


def test_what_a_query_is_told_is_committed_is_in_the_store() -> None:
    world = served()
    assert world.durable
    assert world.people.query.finished
    assert world.checkers.seen == []
    batch = max(world.people.query.batches, key=lambda rows: rows.num_rows)
    world.checkers.called_committed("query0", 99, batch)
    assert {violation.by for violation in world.checkers.seen} == {"oracle"}
    assert "calls batch 99 of query0 durable" in world.checkers.seen[0].text


def served() -> World:
    """A world in which all is done, and everybody lives."""
    world = World(Schedule(3, 2, 4, 0.5, (), "full"), named("words", Random(3), 4))
    world.run()
    assert world.people.quiet()
    return world


@pytest.mark.parametrize("reason", [Reason.DRAINED, Reason.REPLACED])
def test_a_node_that_ends_though_it_is_counted_on_is_no_excuse_for_itself(reason: Reason) -> None:
    world = served()
    node = next(r for r in world.living() if r.node is not None)
    node.actor.over = reason, "it says so", ""
    world.checkers.ended(node)
    assert [violation.by for violation in world.checkers.seen] == ["cause"]
    world.checkers.seen.clear()
    table: Any = world.checkers.owners.table(world.resident(world.driver.actor))
    table.members.clear()
    world.checkers.ended(node)
    assert world.checkers.seen == []


@pytest.mark.parametrize("lost", [False, True])
def test_of_a_run_that_has_lost_states_the_others_are_judged(lost: bool) -> None:
    """A task that was never lost has counted words too often; of one that was lost nothing is said."""
    world = served()
    states = world.people.states()
    task = next(task for task, rows in states.items() if rows is not None and rows.num_rows)
    Judgement(world, world.checkers).others()
    assert world.checkers.seen == []
    rows: Any = states[task]
    states[task] = rows.set_column(1, "count", pa.compute.add(rows["count"], 1))
    people: Any = world.people
    people.states = lambda: states
    world.checkers.lost_tasks |= {task} if lost else set()
    Judgement(world, world.checkers).others()
    assert {violation.by for violation in world.checkers.seen} == (set() if lost else {"end"})


def test_what_is_kept_for_tasks_that_moved_is_let_go() -> None:
    world = served()
    Judgement(world, world.checkers).final()
    assert world.checkers.seen == []
    node: Any = next(r for r in world.living() if r.node is not None)
    node.node.node.handover.frozen[0, Epoch(1, 1)] = "a state"
    server: Any = next(r for r in world.living() if isinstance(r.actor.machine, StateServer))
    server.actor.machine.held[0, Epoch(1, 1)] = "a state"
    Judgement(world, world.checkers).final()
    left = [v.text.partition(": ")[0] for v in world.checkers.seen if v.by == "left"]
    assert left == [node.name, server.name]


def test_a_node_that_is_lost_with_its_host_before_it_registered_was_not_launched() -> None:
    node: Any = object.__new__(Node)
    resident: Any = SimpleNamespace(actor=SimpleNamespace(machine=node))
    node.turn = SimpleNamespace(table=None)
    assert comes_not(resident)
    node.turn.table = "some"
    assert not comes_not(resident)
    resident.actor.machine = object.__new__(StateServer)
    assert not comes_not(resident)
