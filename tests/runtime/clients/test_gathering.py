"""What a feeder gathers and cuts, and how it waits: without a thread, on a clock of the test's."""

from __future__ import annotations

from math import inf
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import FeederError, InputError
from meander.model import Assignment, Epoch
from meander.operators import WordCount
from meander.protocol.blocks import Offer
from meander.protocol.edges.offered import Offered
from meander.protocol.messages import Ending, Envelope, Exit
from meander.protocol.table import Table
from meander.runtime.clients import gathering as gathered_by
from meander.runtime.clients.feeder_process import LINGER_S_MAX, FeederProcess
from meander.runtime.clients.gathering import GATHER_MORE, OFFERS_MAX, RowGathering
from meander.runtime.clock import Clock
from meander.runtime.process.script import Call, Command, Until, run
from meander.runtime.process.spec import live_settings
from meander.runtime.process.watermarks import END

TASKS = 8
WORDS = pa.schema({"word": pa.string()})


class Now:
    """A clock that is set."""

    def __init__(self) -> None:
        self.s = 100.0
        self.clock = Clock(lambda: self.s, lambda: int(self.s * 1e6))


class Room:
    """As much of a feeder's machine as `pump` looks at."""

    def __init__(self) -> None:
        self.outbox = Offered("f", 1, TASKS)
        self.room = True


class Nowhere:
    """A post that sends nothing."""

    dropped = malformed = 0
    address = "here:1"

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        self.sent: list[Envelope] = []

    def post(self, address: str | None, envelope: Envelope) -> None:
        self.sent.append(envelope)

    def keep(self, addresses: set[str]) -> None:
        pass


def timed() -> WordCount:
    """Words that happen."""
    operator: Any = WordCount()
    operator.schema = pa.schema({"word": pa.string(), "at": pa.timestamp("us")})
    operator.event_time = "at"
    return operator  # type: ignore[no-any-return]


def words(*found: str | None) -> pa.RecordBatch:
    return pa.record_batch({"word": found}, schema=WORDS)


def made(now: Now, operator: Any = None, **options: Any) -> RowGathering:
    gathering = RowGathering(
        operator or WordCount(), TASKS, live_settings(TASKS), now.clock, **options
    )
    gathering.begin(-1)
    return gathering


def fed(gathering: RowGathering, batch: Any, offset: int | None = None) -> None:
    item = gathering.check(batch, offset)
    assert item is not None
    gathering.add(item)


def cut(gathering: RowGathering, *, say: bool = False) -> list[Offer]:
    offers = gathering.offers_of(gathering.take(), say=say)
    gathering.put(offers)
    return offers


def process(now: Now, operator: Any = None) -> FeederProcess:
    feeder = FeederProcess(
        "f", "f/1", operator or WordCount(), master="master:1", tasks=TASKS,
        settings=live_settings(TASKS), clock=now.clock,
    )  # fmt: skip
    feeder.process.open(Nowhere())
    return feeder


def never(step: Any) -> Any:
    raise AssertionError(f"nothing is to be waited for, but: {step}")


def register(feeder: FeederProcess) -> None:
    """Let the master know it."""
    feeder.machine.turn.table = Table(
        Assignment.from_intervals({"n1": (0, TASKS)}, TASKS, Epoch(1, 1)), (), (), {}, {}
    )


def test_rows_wait_for_others_until_they_are_enough_or_their_time_is_over() -> None:
    now = Now()
    gathering = made(now, gather_rows=3, linger_ms=5.0)
    assert gathering.cut_at() == inf
    fed(gathering, words("x"))
    assert (gathering.cut_at(), gathering.due) == (now.s, True), "what comes alone leaves at once"
    cut(gathering)
    now.s += 0.001
    fed(gathering, words("a"))
    assert gathering.cut_at() == pytest.approx(now.s + 0.004), "what follows soon after waits"
    now.s += 0.003
    fed(gathering, words("b"))
    assert gathering.cut_at() == pytest.approx(now.s + 0.001)
    assert not gathering.full
    fed(gathering, words("c"))
    assert gathering.full
    (offer,) = cut(gathering)
    assert (offer.last, sum(rows.count for _, rows, *_ in offer.groups)) == (3, 3)
    assert gathering.cut_at() == inf
    assert cut(gathering) == []
    assert gathering.rows == 4


def test_many_bytes_fill_a_message_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_by, "GATHER_BYTES", 1000)
    gathering = made(Now())
    fed(gathering, words("x" * 2000))
    assert gathering.full


def test_rows_are_due_when_they_were_given_not_when_there_was_room() -> None:
    now = Now()
    gathering = made(now)
    item = gathering.check(words("a"), None)
    assert item is not None
    now.s += 9.0
    gathering.add(item)
    (offer,) = cut(gathering)
    assert offer.groups[0][1].marks[0].due_us == 100_000_000
    assert gathering.check(words("a"), None, 7.5)[1] == 7_500_000  # type: ignore[index]


def test_offsets_of_a_former_life_are_skipped_and_those_of_this_one_ascend() -> None:
    gathering = made(Now())
    gathering.begin(4)
    assert gathering.check(words("a"), 4) is None
    fed(gathering, words("a"), 7)
    assert gathering.check(words("a"), 3) is None
    with pytest.raises(InputError, match="offset 6 was fed before: the last one was 7"):
        gathering.check(words("a"), 6)
    fed(gathering, words("a"))
    assert cut(gathering)[0].last == 8


def test_rows_without_a_key_are_as_the_caller_wants() -> None:
    with pytest.raises(InputError, match="1 of 2 rows have no value"):
        made(Now()).check(words("a", None), None)
    dropping = made(Now(), null_keys="drop")
    fed(dropping, words(None))
    assert (dropping.rows, dropping.cut_at()) == (0, inf)
    with pytest.raises(InputError, match="null_keys is one of"):
        made(Now(), null_keys="never")


def test_there_is_room_until_the_machine_takes_no_more() -> None:
    gathering, machine, taken = made(Now()), Room(), list[Any]()
    machine.room = False
    for _ in range(OFFERS_MAX):
        assert gathering.room
        fed(gathering, words("a"))
        cut(gathering)
    assert not gathering.room
    assert not gathering.pump(machine, taken.append)  # type: ignore[arg-type]
    assert not gathering.settled(machine, durable=False)  # type: ignore[arg-type]
    machine.room = True
    assert gathering.pump(machine, taken.append)  # type: ignore[arg-type]
    assert [offer.last for offer in taken] == list(range(OFFERS_MAX))
    assert gathering.room
    assert gathering.settled(machine, durable=True)  # type: ignore[arg-type]
    gathering.paused = True
    assert not gathering.room


def test_while_nodes_are_behind_more_is_gathered_and_for_longer() -> None:
    now, machine = Now(), Room()
    gathering = made(now, gather_rows=2, linger_ms=5.0)
    for n in range(gathered_by.BEHIND_OFFERS):
        machine.outbox.offer(Offer([(3, None, n, n, 10)], n))
    assert gathering.pump(machine, print)  # type: ignore[arg-type]
    assert not gathering.pump(machine, print), "nothing has changed"  # type: ignore[arg-type]
    fed(gathering, words("a"))
    cut(gathering)
    fed(gathering, words("a"))
    assert gathering.cut_at() == now.s + GATHER_MORE * 0.005
    cut(gathering)
    for _ in range(GATHER_MORE - 1):
        fed(gathering, words("a", "b"))
        assert not gathering.full
    fed(gathering, words("a", "b"))
    assert gathering.full


def test_a_watermark_is_owed_said_in_time_and_the_last_one_ends_the_stream() -> None:
    now = Now()
    gathering = made(now, timed())
    at = pa.array([1_230_000], pa.timestamp("us"))
    fed(gathering, pa.record_batch({"word": ["a"], "at": at}))
    rows, watermark = cut(gathering)
    assert (len(rows.groups), len(watermark.groups)) == (1, TASKS)
    assert watermark.groups[0][1].marks[0].due_us == 1_200_000
    fed(gathering, pa.record_batch({"word": ["a"], "at": at}))
    assert len(cut(gathering)) == 1, "not so soon again"
    assert now.s < gathering.cut_at() < inf
    (said,) = cut(gathering, say=True)
    assert said.groups[0][1].marks[0].due_us == 1_230_000
    gathering.end()
    assert cut(gathering, say=True)[0].groups[0][1].marks[0].due_us == END


def test_a_feeder_that_came_back_with_nothing_left_to_feed_still_ends_its_stream() -> None:
    """1. all rows are durable  2. the feeder is killed before its last watermark  3. it comes back."""
    gathering = made(Now(), timed())
    gathering.begin(4)
    gathering.end()
    (last,) = cut(gathering)
    assert [(first, last, rows.watermark) for _, rows, first, last, _ in last.groups] == [
        (4, 4, END)
    ] * TASKS
    never = made(Now(), timed())
    never.end()
    assert cut(never, say=True) == [], "tasks have never heard of it"


# --------------------------------------------------------------------------- a feeder's process


def test_rows_are_taken_at_once_while_there_is_room_and_wait_for_it_else() -> None:
    feeder = process(Now())
    register(feeder)
    gathering, waits = feeder.gathering, list[Until]()

    def make_room(step: Any) -> Any:
        assert isinstance(step, Until)
        waits.append(step)
        if len(waits) > 2:
            gathering.paused = False
        return step.true()

    run(feeder.ready(1.0), lambda step: step.true())
    run(feeder.feed(words("a"), 0), never)
    gathering.paused = True
    run(feeder.feed(words("b", "c"), 1), make_room)
    assert (gathering.rows, len(waits)) == (3, 3)
    assert all(wait.told for wait in waits), "nobody looks who need not"
    run(feeder.feed(words("a"), -1), never)
    assert gathering.rows == 3, "durable already from a former life"


def test_rows_of_one_that_ends_while_they_are_looked_at_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is abandoned by another thread after the caller was let in and before rows are added."""
    feeder = process(Now())
    feeder.gathering.begin(-1)
    check = feeder.gathering.check

    def checked(*given: Any) -> Any:
        feeder.closed = True
        return check(*given)

    monkeypatch.setattr(feeder.gathering, "check", checked)
    with pytest.raises(FeederError, match="f has ended: it was closed"):
        run(feeder.feed(words("a"), None), never)
    assert feeder.gathering.rows == 0


def test_what_lingers_is_cut_when_its_time_is_over_and_the_first_row_wakes_who_waits() -> None:
    now = Now()
    feeder = process(now)
    register(feeder)
    run(feeder.ready(1.0), lambda step: step.true())
    lingering = feeder.linger()
    idle: Any = next(lingering)
    assert (idle.true(), idle.timeout_s, idle.told) == (False, LINGER_S_MAX, True)
    run(feeder.feed(words("a"), 0), never)
    assert (idle.true(), len(feeder.gathering._offers)) == (False, 1), "the first leaves at once"
    run(feeder.feed(words("b"), 1), never)
    assert idle.true(), "the time to cut is another one now"
    gathered: Any = lingering.send(True)
    assert gathered.timeout_s == pytest.approx(gathered_by.LINGER_MS / 1000)
    now.s += gathered.timeout_s
    assert not gathered.true()
    idle = lingering.send(False)
    assert (len(feeder.gathering._offers), idle.timeout_s) == (2, LINGER_S_MAX)
    feeder.closed = True
    assert idle.true()
    with pytest.raises(StopIteration):
        lingering.send(True)


def test_a_watermark_that_is_all_but_due_is_waited_for() -> None:
    """It is not said before its time, and a clock that stands still must not be looked at for ever."""
    now = Now()
    feeder = process(now, timed())
    register(feeder)
    run(feeder.ready(1.0), lambda step: step.true())
    at = pa.array([1_230_000], pa.timestamp("us"))
    for offset in range(2):
        run(feeder.feed(pa.record_batch({"word": ["a"], "at": at}), offset), never)
        feeder.cut()
    now.s = feeder.gathering.cut_at() - 1e-5
    step: Any = next(feeder.linger())
    assert 1e-5 <= step.timeout_s < 0.001


def test_a_machine_that_ends_during_a_flush_is_an_error_of_the_feeder() -> None:
    """It has ended after the caller has looked and before the machine was asked."""
    feeder = process(Now())

    def carry_out(step: Any) -> Any:
        assert isinstance(step, Call)
        feeder.process.stop("it was told to")
        feeder.process.turn()
        feeder.process.close()
        return step.process.call(step.function).result(0)

    with pytest.raises(FeederError, match="f has ended: it was told to"):
        run(feeder.flush(1.0), carry_out)


def test_a_feeder_that_is_refused_or_failed_says_so_to_whoever_waits() -> None:
    def look(step: Any) -> Any:
        assert isinstance(step, Until)
        return step.true()

    feeder = process(Now())
    with pytest.raises(FeederError, match="the master did not answer in 3 s"):
        run(feeder.ready(3.0), look)
    feeder.process.refusals["master:1"] = "refused: the token"  # type: ignore[index]
    with pytest.raises(FeederError, match="f: refused: the token"):
        run(feeder.ready(3.0), look)
    feeder.fail(InputError("the deployment has failed"))
    with pytest.raises(InputError, match="the deployment has failed"):
        feeder.check()


def test_a_flush_that_takes_too_long_says_what_is_known() -> None:
    now = Now()
    feeder = process(now)
    feeder.gathering.begin(-1)
    run(feeder.feed(words("a"), None), never)
    feeder.machine.trouble = "the store is full"

    def carry_out(step: Any) -> Any:
        if isinstance(step, Call):
            future = step.process.call(step.function)
            feeder.process.turn()
            return future.result(0)
        now.s += step.timeout_s
        return step.true()

    with pytest.raises(FeederError, match=r"on their way after 2 s; the store is full"):
        run(feeder.flush(2.0), carry_out)


def test_whoever_flushes_is_told_by_the_turn_in_which_all_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. a row is on its way  2. its caller waits to be told, and looks now and then  3. the row is
    acknowledged: the turn that hears it says so."""
    feeder, there = process(Now()), list[bool]()
    monkeypatch.setattr(feeder.gathering, "settled", lambda *_, durable: bool(there))
    waits = list[bool]()

    def carry_out(step: Any) -> Any:
        if isinstance(step, Call):
            future = step.process.call(step.function)
            feeder.process.turn()
            return future.result(0)
        assert step.told
        waits.append(step.true())
        there.append(True)
        feeder.process.turn()
        waits.append(step.true())
        return True

    run(feeder.flush(2.0), carry_out)
    assert waits == [False, True]


def test_one_that_comes_back_only_to_leave_ends_the_stream_of_its_former_life() -> None:
    """As `run_feeder` with no batch left: `wait_ready`, then `close`."""
    feeder = process(Now(), timed())
    register(feeder)
    feeder.machine.offset = 4
    watermarks = list[Any]()

    def carry_out(step: Any) -> Any:
        if isinstance(step, Call | Command):
            assert step.timeout_s == 3.0, "the caller's"
        if isinstance(step, Call):
            watermarks.extend(rows.watermark for o in feeder.gathering._offers
                              for _, rows, *_ in o.groups)  # fmt: skip
            feeder.gathering._offers.clear()
            return step.function(feeder.machine)
        if isinstance(step, Until) and not step.true():
            feeder.process.inbox.put(Exit(Ending.FINISHED, "all is durable"))
            feeder.process.turn()
            feeder.process.close()
        return True

    assert run(feeder.ready(1.0), carry_out) == 4
    run(feeder.close(3.0), carry_out)
    assert watermarks == [END] * TASKS


def test_one_that_loses_its_driver_while_it_leaves_has_not_left() -> None:
    feeder = process(Now())
    register(feeder)

    def carry_out(step: Any) -> Any:
        if isinstance(step, Call):
            return step.function(feeder.machine)
        if isinstance(step, Until) and not step.true():
            feeder.process.inbox.put(Exit(Ending.DRIVER_SILENT, "the driver is silent"))
            feeder.process.turn()
            feeder.process.close()
            assert step.true()
        return True

    with pytest.raises(FeederError, match="f has ended: the driver is silent"):
        run(feeder.close(1.0), carry_out)


def test_what_waits_is_told_while_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. two offers wait  2. a beat counts what waits  3. meanwhile another thread lays one by."""
    gathering, room = made(Now()), Room()

    def another(*_: Any) -> int:
        monkeypatch.undo()
        lay_by()
        return 2

    def lay_by() -> None:
        gathering.add((gathering.rows, 0, words("a", "b")))
        gathering.put(gathering.offers_of(gathering.take()))

    lay_by()
    lay_by()
    monkeypatch.setattr(gathered_by, "rows_of", another)
    assert gathering.waiting(room) == 4  # type: ignore[arg-type]
    monkeypatch.undo()
    room.room = True
    taken = list[Any]()
    gathering.pump(room, taken.append)  # type: ignore[arg-type]
    assert len(taken) == 2
    assert gathering.waiting(room) == 0  # type: ignore[arg-type]
