"""Writing and committing as scripts: against a machine whose nodes are the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import (
    OperatorGoneError,
    ProtocolError,
    QueryError,
    ReplayError,
    RolledBackError,
    RowsLostError,
)
from meander.model import Assignment, Epoch
from meander.protocol.messages import News, Tell
from meander.protocol.settings import Settings
from meander.protocol.table import Table
from meander.runtime.clients.driver_client import DeploymentInfo, Part
from meander.runtime.clients.query_process import (
    PIECES_MAX,
    READY_S,
    SILENT_S,
    QueryProcess,
)
from meander.runtime.clock import Clock
from meander.runtime.process.script import Ask, Call, Command, Script, Until, run

TASKS = 4
WORDS = pa.schema({"word": pa.string()})
PARTS: list[Part] = [(0, 7, ((1, 2),))]


class World:
    """A query process whose machine is asked at once, and whose time passes while it waits."""

    def __init__(self) -> None:
        self.now = 0.0
        clock = Clock(lambda: self.now, lambda: int(self.now * 1e6))
        about = DeploymentInfo(
            "Words", "run", "run", 1, TASKS, ("word",), WORDS, None, None, None, None, None, Settings(),
            False, "", {},
        )  # fmt: skip
        self.queries = QueryProcess(about, "master:1", "query/1", clock=clock)
        self.machine = self.queries.machine
        self.machine.turn.table = Table(
            Assignment.from_intervals({"n1": (0, TASKS)}, TASKS, Epoch(1, 1)), (), (), {}, {}
        )
        self.given: list[Any] = []
        self.waits: list[float] = []
        """How long the machine may take for what it is asked."""
        self.meanwhile: list[Callable[[], None]] = []
        """What happens, one by one, while a script waits."""
        self.failure: Any = None
        self.refuse: Exception | None = None

    def tell(self, what: News, **facts: Any) -> None:
        if what in (News.COMMITTED, News.FAILED, News.DIFFERS):
            self.machine.sealed.pop(facts["query"], None)
            self.machine.orders.pop(facts["query"], None)
        self.queries._hear(Tell(what, facts))

    def carry_out(self, step: Any) -> Any:
        if isinstance(step, Call | Command):
            self.waits.append(step.timeout_s)
        if isinstance(step, Call):
            return step.function(self.machine)
        if isinstance(step, Command):
            self.queries.book.see(step.event)
            if self.refuse is not None:
                raise self.refuse
            self.given.append(step.event)
            return None
        if isinstance(step, Ask):
            assert (step.address, step.what) == ("master:1", "failure")
            if isinstance(self.failure, Exception):
                raise self.failure
            return self.failure
        assert isinstance(step, Until)
        while not step.true():
            if not self.meanwhile:
                self.now += step.timeout_s
                return False
            self.meanwhile.pop(0)()
        return True

    def advance(self, script: Script[Any]) -> Until:
        """Carry a script out up to where it waits."""
        step = script.send(None)
        while not isinstance(step, Until) or step.true():
            step = script.send(self.carry_out(step))
        return step

    def run(self, script: Script[Any]) -> Any:
        return run(script, self.carry_out)


def words(*found: str) -> pa.RecordBatch:
    return pa.record_batch({"word": found}, schema=WORDS)


@pytest.fixture
def world() -> World:
    return World()


def written(world: World, batch: int = 3) -> Callable[[], None]:
    """Have every piece that was given laid by."""

    def lay() -> None:
        for event in world.given:
            about = {"batch": batch, "partition": event.partition, "attempt": event.attempt}
            world.tell(News.WRITTEN, query="q", **about)

    return lay


def test_a_partition_is_given_in_pieces_of_which_few_are_on_their_way(world: World) -> None:
    world.queries.piece_rows = 1
    waits = list[int]()

    def lay() -> None:
        waits.append(len(world.given))
        written(world)()

    world.meanwhile = [lay, lay, lay]
    parts = world.run(world.queries.write("q", 3, 2, 7, [words("a", "b")] * 10))
    assert [piece - 2 * PIECES_MAX for piece, _, _ in parts] == list(range(10))
    assert waits == [4, 8, 10]
    assert [event.groups[0][0] for event in world.given] == [parts[0][2][0][0]] * 10


def test_what_was_written_of_a_partition_that_fails_is_abandoned(world: World) -> None:
    with pytest.raises(QueryError, match=r"rows are not laid by at tasks .* in 5 s"):
        world.run(world.queries.write("q", 3, 0, 7, [words("a")], 5.0))
    write, abandon = world.given
    assert abandon.attempts == ((write.partition, 7, tuple(t for t, *_ in write.groups)),)
    assert world.queries.book.open("q", 3, 7) == 0
    assert world.now == 5.0, "nobody waits for what is on its way: nodes drop it"
    assert world.waits == [READY_S, SILENT_S, READY_S], "to write, to say why not, to abandon"


def test_an_interrupted_writer_abandons_and_a_killed_one_does_nothing(world: World) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    world.meanwhile = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        world.run(world.queries.write("q", 3, 0, 7, [words("a")]))
    assert [type(event).__name__ for event in world.given] == ["Write", "Abandon"]
    killed = world.queries.write("q", 4, 0, 8, [words("a")])
    next(killed)
    killed.close()


def test_a_failed_deployment_and_an_old_batch_end_the_wait(world: World) -> None:
    world.failure = OperatorGoneError("master:1")
    with pytest.raises(QueryError, match="in 3 s"):
        world.run(world.queries.write("q", 3, 0, 7, [words("a")], 3.0))
    world.failure = "the operator raised"
    with pytest.raises(QueryError, match="at master:1 has failed: the operator raised"):
        world.run(world.queries.write("q", 3, 0, 7, [words("a")]))
    told = {"batch": 3, "partition": 0, "attempt": 9, "task": 1, "last": 5}
    world.meanwhile = [lambda: world.tell(News.OUTDATED, query="q", **told)]
    with pytest.raises(RolledBackError):
        world.run(world.queries.write("q", 3, 0, 9, [words("a")]))


def test_a_commit_is_begun_once_and_waited_for_by_all(world: World) -> None:
    queries = world.queries
    assert not world.run(queries.begin("q", 3, PARTS, 1.0))
    assert not world.run(queries.begin("q", 3, PARTS, 1.0))
    assert world.machine.sealed == {"q": 3}
    with pytest.raises(QueryError, match="batch 3 of q is still being committed"):
        world.run(queries.begin("q", 4, PARTS, 1.0))
    world.meanwhile = [lambda: world.tell(News.COMMITTED, query="q", batch=3)]
    assert world.run(queries.begin("q", 3, PARTS, 1.0))
    world.meanwhile = [lambda: world.tell(News.FAILED, query="q", batch=4, task=2)]
    with pytest.raises(RowsLostError):
        world.run(queries.begin("q", 4, PARTS, 1.0))
    world.meanwhile = [lambda: world.tell(News.DIFFERS, query="q", batch=4, task=2, had=1, rows=2)]
    with pytest.raises(ReplayError):
        world.run(queries.commit("q", 4, PARTS))


def test_who_waits_for_a_commit_that_failed_hears_so_also_when_it_was_begun_again(
    world: World,
) -> None:
    """1. one waits for batch 3  2. its rows are lost  3. another commits it again before the first
    has looked  4. the first must not take the new one, or nothing, for its own."""
    queries = world.queries
    first = queries.begin("q", 3, PARTS, 60.0)
    step = world.advance(first)
    world.tell(News.FAILED, query="q", batch=3, task=2)
    assert not world.run(queries.begin("q", 3, PARTS, 1.0))
    with pytest.raises(RowsLostError):
        first.send(step.true())


def test_a_commit_that_is_refused_leaves_the_way_free(world: World) -> None:
    twice = [*PARTS, *PARTS]
    with pytest.raises(ProtocolError, match="a partition stands twice"):
        world.run(world.queries.begin("q", 3, twice, 1.0))
    assert not world.run(world.queries.begin("q", 4, PARTS, 1.0)), "the way is free"


@pytest.mark.parametrize("why", [TimeoutError, KeyboardInterrupt])
def test_a_commit_that_was_not_waited_for_goes_on_and_ends_as_itself(
    world: World, why: type[BaseException]
) -> None:
    """1. the machine is busy, and whoever commits 3 loses patience  2. the machine takes it up
    3. committing 3 again waits for it  4. its end is heard once, and not taken for that of 4."""
    queries = world.queries
    script = queries.begin("q", 3, PARTS, 60.0)
    step: Any = script.send(None)
    while not isinstance(step, Call):
        step = script.send(world.carry_out(step))
    with pytest.raises((QueryError, KeyboardInterrupt)):
        script.throw(why())
    world.carry_out(step)
    assert not world.run(queries.begin("q", 3, PARTS, 1.0))
    with pytest.raises(QueryError, match="batch 3 of q is still being committed"):
        world.run(queries.begin("q", 4, PARTS, 1.0))
    world.tell(News.COMMITTED, query="q", batch=3)
    assert not world.run(queries.begin("q", 4, PARTS, 1.0))
    world.tell(News.COMMITTED, query="q", batch=3)
    assert not world.run(queries.begin("q", 4, PARTS, 1.0)), "3 is not 4"
    world.tell(News.COMMITTED, query="never entered", batch=3)


def test_a_process_that_ended_or_is_refused_says_so(world: World) -> None:
    world.refuse = RuntimeError("query/1 has ended: closed")
    with pytest.raises(QueryError, match="query/1 cannot go on"):
        world.run(world.queries.abandon("q", 3, PARTS))
    world.queries.process.stop("closed")
    world.queries.process.close()
    with pytest.raises(QueryError, match="the connection to the operator at master:1 has ended"):
        world.run(world.queries.ready())
