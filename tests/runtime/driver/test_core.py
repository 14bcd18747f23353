"""What a driver decides, without a thread, a socket or a clock: turn by turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import (
    DeployError,
    MalformedMessage,
    MigrationError,
    OperatorFailedError,
    TooLargeError,
)
from meander.model import Assignment, Epoch, Problem, Workload
from meander.operators import WordCount
from meander.protocol.master.pacer import Pacer
from meander.protocol.messages import (
    MASTER,
    Abort,
    Beat,
    Bye,
    Envelope,
    Hello,
    Installed,
    Load,
    Loaded,
    News,
    Resume,
    Store,
    Stored,
)
from meander.protocol.settings import Settings
from meander.runtime.clock import Clock
from meander.runtime.driver import books, ending, replacing
from meander.runtime.driver.core import STAFF_S, STOPPED, TIDY_S, DriverCore
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.preview import Preview, preview
from meander.runtime.driver.rescales import Rescaling, wish
from meander.runtime.driver.supervisor import FAILED_STARTS_MAX, SERVER_S_MIN
from meander.runtime.driver.versions import Version
from meander.runtime.process.script import Call, Sleep, Step, Together, Until, run
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.wire.credentials import Credentials
from meander.wiring import planner


class Office:
    """A post that keeps what it is given."""

    def __init__(self) -> None:
        self.address, self.dropped, self.malformed = "sim:1", 0, 0
        self.refusals: dict[str, str] = {}
        self.kept: list[set[str]] = []

    def post(self, address: str | None, envelope: Envelope) -> None:
        pass

    def keep(self, addresses: set[str]) -> None:
        self.kept.append(addresses)


class Nowhere:
    """A store that does nothing: there are no checkpoints."""

    def start(self, deliver: Any) -> None:
        pass

    def give(self, action: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def idle(self) -> bool:
        return True


class Shelf(Nowhere):
    """A store that does what it is asked; once it is `fenced`, nothing is written any more."""

    def __init__(self) -> None:
        self.fenced = False
        self.asked: list[Store | Load] = []

    def give(self, action: Any) -> None:
        if isinstance(action, Store | Load):
            self.asked.append(action)


class Town:
    """A driver whose time, launches and mail are lists."""

    def __init__(self, nodes: int = 2, shelf: Shelf | None = None, tell: Any = None) -> None:
        every_s = 0.0 if shelf is None else 1.0
        self.now, self.failures = 100.0, list[Exception]()
        self.launched: list[ProcessSpec] = []
        self.office = Office()
        self.core = DriverCore(
            Deployment(
                WordCount(),
                tasks=8,
                nodes=nodes,
                settings=Settings(lease_s=60.0, checkpoint_s=every_s),
                tell=tell,
            ),
            run="r1",
            generation=1,
            store=shelf or Nowhere(),
            issue=lambda kind, name: Credentials("token"),
            launch=self.launched.append,
            failed=self.failures.append,
            clock=Clock(lambda: self.now, lambda: round(self.now * 1e6)),
        )
        self.core.open(self.office)
        self.core.process.open(self.office)
        self.turn()

    def turn(self, later_s: float = STAFF_S) -> None:
        self.now += later_s
        self.core.process.turn()

    def answer(self, shelf: Shelf) -> None:
        """The store does all that it was asked for, and what that leads to."""
        while shelf.asked:
            action = shelf.asked.pop(0)
            if isinstance(action, Load):
                self.core.process.give(Loaded(action.key, None))
            else:
                done = not shelf.fenced
                self.core.process.give(Stored(action.key, done=done, fenced=shelf.fenced))
            self.turn()

    def names(self) -> list[tuple[str, str, int]]:
        return [(s.kind, s.name, s.incarnation % 1000) for s in self.launched]

    def register(self, spec: ProcessSpec, server: str = "server@a") -> None:
        """A node or a state server says hello."""
        hello = Hello(spec.kind, f"i{spec.name}", server if spec.kind == "node" else "", "a:9")
        number = spec.incarnation if spec.kind == "node" else 0
        self.core.process.give(Envelope(spec.name, number, MASTER, 0, Epoch(1, 0), hello))
        self.turn()

    def end(self, spec: ProcessSpec, reason: Reason, detail: str = "why", **facts: Any) -> None:
        ended = ProcessExit(spec.kind, spec.name, spec.incarnation, reason, detail, facts=facts)
        self.core.process_ended(ended)
        self.turn()

    def rescale(self, nodes: int) -> tuple[Rescaling, list[str]]:
        told: list[str] = []
        rescaling = Rescaling(nodes, lambda: told.append("over"))
        answer = self.core.rescale(rescaling, wish(8, nodes))
        self.turn()
        answer.result(0)
        return rescaling, told


def test_the_first_nodes_are_launched_and_their_state_servers_when_they_name_them() -> None:
    town = Town()
    assert town.names() == [("node", "n1", 1), ("node", "n2", 1)]
    spec = town.launched[0]
    assert (spec.run, spec.master, spec.tasks) == ("r1", "sim:1", 8)
    town.register(town.launched[0])
    assert town.names()[2:] == [("server", "server@a", 1)]
    assert town.launched[-1].host == "a"
    assert not books.serving(town.core.master)


def test_a_state_server_that_ends_is_started_again_but_not_in_haste() -> None:
    town = Town()
    town.register(town.launched[0])
    for number in (1, 2, 3):
        assert town.names()[-1] == ("server", "server@a", number)
        town.end(town.launched[-1], Reason.KILLED)
        town.turn(SERVER_S_MIN / 2)
        assert town.names()[-1][2] == number, "not yet"
        town.turn(SERVER_S_MIN)


def test_a_node_that_ends_is_replaced_and_what_it_counted_stays() -> None:
    town = Town()
    for spec in town.launched[:2]:
        town.register(spec)
    town.end(town.launched[0], Reason.KILLED, metrics={"rows": 7})
    again = [name for kind, name, _ in town.names() if kind == "node"]
    assert again == ["n1", "n2", "n1"]
    assert town.core.totals.total()["rows"] == 7
    assert town.core.failure is None
    assert [ended.name for ended in town.core.staff.exits] == ["n1"]


@pytest.mark.parametrize(
    ("fenced", "why"), [(False, "n1: task 3: gone"), (True, "a later driver has taken over")]
)
def test_a_broken_checkpoint_is_believed_when_the_store_says_whose_it_is(
    fenced: bool, why: str
) -> None:
    """1. a driver serves  2. perhaps a later one has taken over, and let a record go  3. a node says
    that the record is missing: that is the failure only if the next manifest can be written."""
    shelf = Shelf()
    town = Town(shelf=shelf)
    town.answer(shelf)
    for spec in town.launched[:2]:
        town.register(spec)
    town.answer(shelf)
    shelf.fenced = fenced
    town.end(town.launched[0], Reason.CHECKPOINT_FAILED, "task 3: gone")
    assert town.core.failure is None
    town.turn()
    town.answer(shelf)
    assert why in str(town.core.failure)


def test_processes_that_never_register_end_it_and_everybody_who_waits_is_told_once() -> None:
    """1. a rescale is under way  2. launches fail again and again  3. nothing more is launched, and a
    rescale that is asked for afterwards is told the same."""
    town = Town()
    for spec in town.launched[:2]:
        town.register(spec)
    before, told = town.rescale(4)
    assert not before.over
    for _ in range(FAILED_STARTS_MAX):
        newest = [s for s in town.launched if s.kind == "node"][-1]
        town.end(newest, Reason.KILLED)
    assert isinstance(town.core.failure, DeployError)
    assert town.failures == [town.core.failure]
    assert (before.over, told) == (True, ["over"])
    with pytest.raises(DeployError, match="before they register"):
        before.check()
    launched = len(town.launched)
    after, told = town.rescale(5)
    assert (after.error, told) == (town.core.failure, ["over"])
    assert len(town.launched) == launched
    assert town.core.rescales.under_way() == []
    with pytest.raises(DeployError):
        town.core.check()


def test_an_operator_that_raises_ends_it_by_what_the_node_says_or_by_its_exit() -> None:
    by_word, by_exit = Town(), Town()
    by_word.register(by_word.launched[0])
    spec = by_word.launched[0]
    bye = Bye(failure="boom", trace=("line 1",))
    epoch = by_word.core.master.epoch
    by_word.core.process.give(Envelope("n1", spec.incarnation, MASTER, 0, epoch, bye))
    by_word.turn()
    by_exit.end(by_exit.launched[0], Reason.OPERATOR_FAILED, "boom")
    for town in (by_word, by_exit):
        with pytest.raises(OperatorFailedError, match="n1: boom"):
            town.core.check()


def test_a_bug_of_the_master_is_told_to_all() -> None:
    town = Town()
    rescaling, _ = town.rescale(3)
    town.core.process.fail(KeyError("ledger"))
    town.core.process.close()
    with pytest.raises(DeployError, match="the master has ended: KeyError"):
        rescaling.check()
    answer = town.core.rescale(Rescaling(4), wish(8, 4))
    with pytest.raises(RuntimeError, match="has ended"):
        answer.result(0)


def test_a_rescale_that_another_follows_is_superseded_and_commands_are_answered() -> None:
    town = Town()
    for spec in town.launched[:2]:
        town.register(spec)
    first, _ = town.rescale(3)
    assert first.progress(town.core.master)["left"] > 0
    second, _ = town.rescale(4)
    assert (first.stage, second.over) == (News.SUPERSEDED, False)
    with pytest.raises(MigrationError, match="superseded"):
        first.check()
    aborted = town.core.process.command(Abort())
    town.turn()
    assert aborted.exception(0) is None
    assert town.core.rescales.under_way() == [second]
    stale = town.core.command(first, Resume())
    town.turn()
    assert str(stale.exception(0)) == "migration 1 was superseded: it cannot resume"
    assert second.stage == News.ABORTED  # whoever holds the first one has no say in the second


def test_after_an_abort_as_many_nodes_are_wanted_as_it_headed_for() -> None:
    town = Town(nodes=6)
    for spec in list(town.launched):
        town.register(spec)
    command = wish(8, 6)
    replacing.upgrade(town.core, Rescaling(6), Version(WordCount(), b"2"), command, one_way=False)
    town.turn()
    town.core.process.command(Abort())
    town.turn()
    assert len(town.core.master.membership.nodes()) == 12  # old and new ones, and 8 tasks
    assert books.wanted(town.core.master) == 6


def test_an_upgrade_that_the_master_refuses_leaves_everything_as_it_was() -> None:
    town = Town(nodes=2)
    core, command = town.core, wish(8, 2)
    upgrade = Rescaling(2)
    version = Version(WordCount(), b"2")
    replacing.upgrade(core, upgrade, version, command, one_way=True)
    town.turn()
    begun = upgrade.number
    back = replacing.upgrade(
        core,
        upgrade,
        Version(WordCount(), b"1"),
        command._replace(nodes=9),
        one_way=True,
        back=True,
    )
    town.turn()
    assert isinstance(back.exception(), MalformedMessage)
    assert (upgrade.number, upgrade.reverse) == (begun, False)
    assert core.rescales.of(begun) is upgrade
    assert [v.pickled for v in core.versions[1:]] == [b"2"]


def test_whoever_asks_while_an_upgrade_is_planned_finds_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The master names the new version before it plans, and planning takes a while."""
    town = Town(nodes=2)
    core, new, found = town.core, WordCount(), list[Any]()
    plan = core.deployment.planners.plan

    def ask(*args: Any, **options: Any) -> Any:
        found.extend((core.operator, core.topology.parts[0].operator))
        found.append(core.spec("node", "n9", 1).operator)
        return plan(*args, **options)

    monkeypatch.setattr(core.deployment.planners, "plan", ask)
    replacing.upgrade(core, Rescaling(2), Version(new, b"2"), wish(8, 2), one_way=False)
    town.turn()
    assert found == [new, new, b"2"]


def test_an_upgrade_whose_plan_cannot_be_made_leaves_a_version_for_all_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    town = Town(nodes=2)
    core, new = town.core, Version(WordCount(), b"2")

    def plan(*_: Any, **__: Any) -> Any:
        raise TooLargeError("there are too many tasks")

    monkeypatch.setattr(core.deployment.planners, "plan", plan)
    failed = replacing.upgrade(core, Rescaling(2), new, wish(8, 2), one_way=False)
    town.turn()
    assert isinstance(failed.exception(), TooLargeError)
    assert not core.process.ended
    assert core.spec("node", "n9", 1).operator == core.versions[-1].pickled


def test_a_preview_changes_nothing() -> None:
    town = Town()
    script = town.core.preview(wish(8, 4, pause_ms=50.0))
    call = next(script)
    assert isinstance(call, Call)
    with pytest.raises(StopIteration) as end:
        script.send(call.function(town.core.master))
    assert len(end.value.value.moves) == 4
    assert town.core.master.conductor.migration is None


def test_a_preview_says_when_a_pause_and_a_time_cannot_both_be_had() -> None:
    work, size = [1] * 8, [10_000_000] * 8
    now = Assignment.from_intervals([(0, 4), (4, 8)])
    problem = Problem(Workload(work, size), now, nodes=1, tau=1)
    pacer = Pacer(bandwidth_bytes_s=1e9, overhead_s=0.001)
    pacer.observe_install(10_000_000, 0.01)

    def look(pause_ms: float | None, within_s: float | None) -> Preview:
        return preview(problem, pacer, planner(), pause_ms, within_s)

    both, time, pause = look(20.0, 0.5), look(None, 0.5), look(20.0, None)
    assert (time.conflict, pause.conflict) == ("", "")
    assert time.duration_s < 0.5 < pause.duration_s == both.duration_s
    assert pause.pause_s <= 0.02 < time.pause_s
    assert "within 0.5 s rows would wait up to" in both.conflict
    assert look(20.0, 60.0).conflict == ""
    assert "however long rows wait" in look(None, 0.01).conflict
    assert look(None, 60.0).rounds == 4, "as many rounds as there are tasks: there is time"


def test_links_are_kept_to_those_who_are_there() -> None:
    town = Town()
    town.register(town.launched[0])
    town.turn(TIDY_S + 0.1)
    assert town.office.kept[-1] == {"a:9"}


@pytest.mark.parametrize("name", ["given", "waiting", "turn_s", "rows", "paced", "who knows"])
def test_a_beat_whose_counts_are_not_whole_ends_nobody(name: str) -> None:
    """A feeder may be anybody's program: one that told a part of its counts ended the master."""
    town = Town()
    node, epoch = town.launched[0], town.core.master.epoch
    town.register(node)
    hello = Hello("feeder", "ifed", "", "a:8")
    town.core.process.give(Envelope("fed", 0, MASTER, 0, epoch, hello))
    town.turn()
    fed = town.core.master.membership.peers["fed"]
    beat = Beat(1.0, counts=((name, 1.0),))
    for sender, number in (("fed", fed.incarnation), (node.name, node.incarnation)):
        town.core.process.give(Envelope(sender, number, MASTER, 0, epoch, beat))
        town.turn()
    assert town.core.feeding["fed"] == {name: 1}
    assert (town.core.failure, town.core.process.error) == (None, None)


def test_whoever_raises_when_told_something_ends_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A print to a pipe that nobody reads any more ended the deployment."""

    def raises(*_: Any) -> None:
        raise BrokenPipeError(32, "nobody reads")

    town = Town(tell=raises)
    core = town.core
    for heard in (core.plan_heard, core.install_heard, core.news_heard):
        heard.append(raises)
    core.tell_people("started", {})
    for spec in town.launched[:2]:
        town.register(spec)
    installed = Installed(())
    core.process.give(Envelope("n1", 1, MASTER, 0, core.master.epoch, installed))
    town.turn()
    rescaling, _ = town.rescale(3)
    assert (rescaling.number, core.news[News.RESCALING]) == (1, 1)
    assert (core.failure, core.process.error) == (None, None)
    assert caplog.text.count("raised; more is not logged") == 1


def test_to_stop_saves_ends_the_master_asks_the_others_and_waits_for_those() -> None:
    """1. the master's books  2. the master ends  3. who is there is asked  4. until they have ended."""
    town = Town()
    town.register(town.launched[0])
    town.core.stopping = True
    steps: list[str] = []

    def step(step: Step) -> Any:
        steps.append(type(step).__name__)
        if isinstance(step, Call):
            assert step.timeout_s <= 10.0, "a master that hangs holds nobody up for long"
            return step.function(town.core.master)
        if isinstance(step, Together):
            assert [(ask.address, ask[1]) for ask in step.steps] == [("a:9", "stop")]
            return ["stopping"]
        assert isinstance(step, Until | Sleep)
        if isinstance(step, Until) and "Together" not in steps:
            steps[-1] = "stored" if town.core.process.ended else "ended"
            assert step.true() == town.core.process.ended
            town.core.process.close()
        elif isinstance(step, Until):
            assert not step.true()
            spec = town.launched[0]
            exit_ = ProcessExit(spec.kind, spec.name, spec.incarnation, Reason.STOPPED, "told to")
            town.core.process_ended(exit_)
            assert step.true()
        return True

    closing: Any = SimpleNamespace(close=lambda *_: steps.append("close"))
    script = ending.stop(town.core, closing, closing, lambda: steps.append("hang up"), 5.0)
    run(script, step)
    order = ["close", "Call", "Call", "ended", "stored", "Together", "Until", "close", "hang up"]
    assert steps == order
    with pytest.raises(DeployError, match=STOPPED):
        town.core.check()
    assert len(town.names()) == 3, "nothing is started again"
