"""Watermarks and timers: at one adapter, on the wire, and in processes that are rescaled."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from runtime_kit import until
from time_operators import CLICKS, GAP_US, Reminders, Sessions, TimedCount

from meander.errors import InputError, MalformedMessage, OperatorError
from meander.model import Epoch
from meander.operators import Context, WordCount
from meander.operators.base import check_operator
from meander.operators.timers import Timers
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import ONCE, Envelope, Stage, Staged
from meander.protocol.state import Emission
from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.offers import offer_of, watermark_of
from meander.runtime.clients.query import QueryClient, new_attempt
from meander.runtime.clock import Clock
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.app_state import AppState
from meander.runtime.process.watermarks import END, TaskTime, WatermarkEmitter, latest_us
from meander.runtime.wire.codec import decode, encode
from meander.runtime.wire.rows import Mark, Rows

S = 1_000_000


def clicks(*rows: tuple[str, float]) -> pa.RecordBatch:
    users, ats = [user for user, _ in rows], [int(at * S) for _, at in rows]
    return pa.record_batch([users, ats, [10] * len(rows)], schema=CLICKS)


class Place:
    """One adapter with one task, and a clock."""

    def __init__(self, operator: Any) -> None:
        self.now = 0
        self.adapter = OperatorAdapter(operator, 1, Clock(lambda: self.now / S, lambda: self.now))
        self.app: AppState = self.adapter.empty(0)
        self.offset = 0

    def give(self, batch: Any, watermark: float | None = None, feeder: str = "f") -> list[Emission]:
        self.offset += 1
        marks = (Mark(self.offset, batch.num_rows, 0),) if batch.num_rows else ()
        if watermark is not None:
            marks += (Mark(self.offset, 0, watermark if watermark == END else int(watermark * S)),)
        rows = Rows(batch, 0, batch.num_rows, marks)
        found = list(self.adapter.apply(0, self.app, feeder, rows, -1))
        self.adapter.settle()
        return found

    def say(self, watermark: float, feeder: str = "f") -> None:
        self.give(clicks(), watermark, feeder)

    @property
    def watermark(self) -> float:
        assert self.app.time is not None
        return self.app.time.watermark_us / S

    def out(self) -> list[dict[str, Any]]:
        return [row for _, batch in self.app.outputs.after(0) for row in batch.to_pylist()]


# ---------------------------------------------------------------------- the watermark


def test_the_watermark_is_the_least_over_feeders_less_the_delay() -> None:
    place = Place(Sessions())
    place.say(10, "a")
    assert place.watermark == 8
    place.say(30, "a")
    place.say(12, "b")
    assert place.watermark == 28  # it never goes back
    place.say(50, "a")
    assert place.watermark == 28  # b holds it
    place.say(40, "b")
    assert place.watermark == 38


def test_a_feeder_that_said_its_last_and_replays_counts_once() -> None:
    """1. three feeders are waited for  2. one says its last watermark, is killed before
    that is durable, and comes back  3. it stands for one of the three, not for two."""
    operator = Sessions()
    operator.feeders_min = 3
    place = Place(operator)
    place.say(10, "a")
    for again in range(2):
        place.say(90 + again, "b")
        place.say(END, "b")
    assert place.watermark == 0, "the third has not been heard"
    place.say(12, "c")
    assert place.watermark == 8


def test_an_idle_feeder_is_left_out_until_it_speaks_again() -> None:
    place = Place(Sessions())
    place.say(10, "a")
    place.say(10, "b")
    place.now = 59 * S
    place.say(100, "a")
    assert place.watermark == 8
    place.now = 61 * S  # b was heard at 0, idle_s is 60
    assert place.adapter.elapse(0, place.app, 0.0) is not None
    assert place.watermark == 98
    place.say(99, "b")
    place.say(200, "a")
    assert place.watermark == 98
    assert place.adapter.elapse(0, place.app, 0.0) is None


def test_a_feeder_that_closed_leaves_the_minimum() -> None:
    place = Place(Sessions())
    place.say(10, "a")
    place.say(50, "b")
    place.say(END, "a")
    assert place.watermark == 48
    place.say(END, "b")
    assert place.watermark == 48


def test_the_watermark_starts_when_enough_feeders_have_been_heard() -> None:
    operator = Sessions()
    operator.feeders_min = 2
    place = Place(operator)
    place.say(100, "fast")
    assert place.watermark == 0
    place.say(20, "slow")
    assert place.watermark == 18
    lonely = Place(operator)
    lonely.say(100, "fast")
    lonely.now = 61 * S
    assert lonely.adapter.elapse(0, lonely.app, 0.0) is None  # idle itself: nothing to go by
    lonely.say(100, "fast")
    assert lonely.watermark == 98


def test_watermarks_move_with_the_state_and_feeders_get_their_time_anew() -> None:
    place = Place(Sessions())
    place.say(10, "a")
    place.say(20, "b")
    place.now = 59 * S
    place.app = place.adapter.load(0, place.adapter.dump(place.app))
    assert place.watermark == 8
    place.now = 61 * S
    place.say(100, "b")
    assert place.watermark == 8  # a is counted as heard when the state arrived
    place.say(90, "a")
    assert place.watermark == 88


# ---------------------------------------------------------------------- timers


def test_a_record_holds_the_watermarks_of_its_rows_and_none_that_came_before_it_was_written() -> (
    None
):
    place = Place(Sessions())
    place.give(clicks(("ada", 1.0)), 1.0)
    pieces = place.adapter.record(place.app, None)
    place.say(900.0)
    restored = place.adapter.revise(0, None, b"".join(pieces()))
    assert restored.time is not None
    assert restored.time.watermarks == {"f": 1 * S}


def test_event_timers_fire_behind_the_rows_that_came_before_the_watermark() -> None:
    place = Place(Sessions())
    place.give(clicks(("ann", 1), ("ann", 3), ("bob", 2)), 3)
    assert place.out() == []
    place.give(clicks(("ann", 20)), 20)  # the watermark is 18 only behind this row
    assert [(r["user"], r["clicks"]) for r in place.out()] == [("bob", 1)]
    place.say(40)
    assert [(r["user"], r["last"], r["clicks"]) for r in place.out()] == [
        ("bob", 2 * S, 1),
        ("ann", 20 * S, 3),
    ]


def test_timers_by_the_clock_fire_when_it_is_time_once_and_only_when_asked() -> None:
    place = Place(Reminders())
    place.give(clicks(("ann", 0)))
    place.now = 9_999
    assert place.adapter.elapse(0, place.app, 0.0) is None
    place.app = place.adapter.load(0, place.adapter.dump(place.app))
    place.now = 10_000
    assert place.adapter.elapse(0, place.app, 0.0) == []
    assert place.adapter.elapse(0, place.app, 0.0) is None
    assert place.out() == [{"user": "ann", "seen": 1}]


def test_an_operator_that_takes_many_tasks_at_once_hears_watermarks_in_order() -> None:
    place = Place(TimedCount())
    adapter, app = place.adapter, place.app
    assert adapter.defers
    for i, (batch, watermark) in enumerate([(clicks(("a", 1)), 9), (clicks(("a", 2)), 11)]):
        rows = Rows(batch, 0, 1, (Mark(i, 1, 0), Mark(i, 0, watermark * S)))
        assert not list(adapter.apply(0, app, "f", rows, -1))
    later = Rows(clicks(("a", 12)), 0, 1, (Mark(2, 1, 0),))
    assert not list(adapter.apply(0, app, "f", later, -1))
    adapter.settle()
    assert place.out()[0] == {"user": "a", "n": 2}  # not the row behind the watermark
    assert place.out()[1] == {"user": "a", "n": 3}  # which set the timer again: it was due at once


def test_a_micro_batch_is_one_call_and_its_watermark_comes_last() -> None:
    calls = []

    class Seen(Sessions):
        def process(self, state: Any, batch: Any, context: Context) -> None:
            calls.append((batch.num_rows, context.watermark_us))
            super().process(state, batch, context)

    place = Place(Seen())
    parts = [Rows(clicks(("a", i)), 0, 1) for i in (1, 2)]
    watermark = Rows(clicks(), 0, 0, (Mark(0, 0, 30 * S),))
    assert not list(place.adapter.apply_batch(0, place.app, "q", [*parts, watermark]))
    assert calls == [(2, 0)]
    assert place.watermark == 28
    assert place.out()[0]["clicks"] == 2
    assert not list(place.adapter.apply_batch(0, place.app, "q", [watermark]))


@pytest.mark.parametrize("defers", [True, False])
def test_a_write_without_a_query_leaves_with_its_batch(*, defers: bool) -> None:
    """Else each would be known for ever, and hold the watermark until it counts as idle."""
    place = Place(Sessions())
    place.adapter.defers = defers
    for at in (10, 30, 50):
        rows = Rows(clicks(("a", at)), 0, 1, (Mark(0, 0, at * S),))
        assert not list(place.adapter.apply_batch(0, place.app, f"{ONCE}{at}", [rows]))
        place.adapter.settle()
        assert place.watermark == at - 2
    assert place.app.time is not None
    assert place.app.time.watermarks == {}
    place.say(70, "f")
    assert place.watermark == 68, "nobody holds it"


def test_what_an_operator_raises_in_a_timer_names_the_key() -> None:
    class Broken(Sessions):
        def on_timer(self, state: Any, timer: Any, context: Context) -> None:
            raise KeyError("no such thing")

    place = Place(Broken())
    place.give(clicks(("ann", 1)))
    with pytest.raises(OperatorError, match=r"timer of \('ann',\) at 6000000 us: KeyError"):
        place.say(60)


def test_many_timers_for_one_key_are_one_set_each_and_survive_a_dump() -> None:
    timers = Timers()
    for at in (5, 3, 5, 4):
        timers.set(("k", 1), at)
    timers.cancel(("k", 1), 4)
    timers.cancel(("k", 2), 4)
    timers.set(("k", 1), 4)
    fields = [pa.field("a", pa.string()), pa.field("b", pa.int64())]
    again = Timers.load(timers.dump(fields), fields)
    assert list(again) == list(timers) == [(("k", 1), at) for at in (3, 4, 5)]
    for at in range(1000):
        timers.set(("x", 0), at)
        timers.cancel(("x", 0), at)
    assert len(timers._heap) < 200
    with pytest.raises(ValueError, match="timers of the columns"):
        Timers.load(timers.dump(fields), fields[:1])


# ---------------------------------------------------------------------- who says what


def test_operators_without_time_have_none() -> None:
    adapter = OperatorAdapter(WordCount(), 4)
    assert not adapter.timed
    assert adapter.empty(0).time is None
    assert adapter.elapse(0, adapter.empty(0), 0.0) is None
    with pytest.raises(InputError, match="write `on_timer`"):
        Context(0, 1).timers.set(("a",), 1)
    with pytest.raises(InputError, match="has no event time"):
        Context(0, 1).event_timers.set(("a",), 1)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"event_time": "when"}, "no event-time column 'when'"),
        ({"event_time": "n"}, "is int64, not a timestamp"),
        ({"delay_s": -1.0}, "delay_s is at least 0"),
    ],
)
def test_an_event_time_that_cannot_be_is_refused(change: dict[str, Any], what: str) -> None:
    operator = Sessions()
    vars(operator).update(change)
    with pytest.raises(InputError, match=what):
        check_operator(operator)


def test_a_herald_speaks_now_and_then_and_when_it_must() -> None:
    herald = WatermarkEmitter("at", every_s=1.0)
    assert herald.watermark(0.0, exactly=True) is None
    herald.see(clicks(("a", 5.06), ("b", 3)))
    assert herald.watermark(10.0) == 5 * S
    herald.see(clicks(("a", 4)))
    assert herald.watermark(10.5) is None
    assert herald.due_s() == 11.0
    assert herald.watermark(10.6, exactly=True) == 5.06 * S
    assert herald.watermark(20.0) is None
    herald.end()
    assert herald.watermark(20.0, exactly=True) == END
    assert latest_us(pa.array([None], pa.timestamp("us"))) is None


def envelope(body: Any) -> Envelope:
    return Envelope("f", 1, "n1", 0, Epoch(1, 1), body)


def test_watermarks_travel() -> None:
    gathered = [(6, 0, clicks(("a", 1), ("b", 2))), (7, 0, clicks(("a", 3)))]
    offer = offer_of(gathered, ("user",), 8, WatermarkEmitter("at"))
    chunks = [Chunk("f", 1, t, 1, first, last, r, s) for t, r, first, last, s in offer.groups]
    assert len(chunks) == 2
    wire = encode(envelope(Chunks(tuple(chunks))))
    found = decode(wire.header, wire.batch, [CLICKS]).body.chunks
    told = [[(part.count, watermark) for part, watermark in c.rows.parts()] for c in found]
    assert sorted(told) == [[(1, 2 * S), (1, 3 * S)], [(1, 3 * S)]]
    alone = watermark_of(CLICKS, 7, range(2), END).groups[1]
    chunk = Chunk("f", 1, 1, 2, 7, 7, alone[1], 0)
    wire = encode(envelope(Chunks((chunk,))))
    (again,) = decode(wire.header, wire.batch, [CLICKS]).body.chunks
    assert (again.rows.watermark, again.rows.count, again.size) == (END, 0, 0)
    staged = Staged("q", 0, 3, 0, 1, Rows(clicks(), 0, 0, (Mark(0, 0, 5),)), 0, 0)
    wire = encode(envelope(Stage((staged,), "q")))
    (item,) = decode(wire.header, wire.batch, [CLICKS]).body.items
    assert (item.rows.watermark, item.rows.count) == (5, 0)
    for broken in (
        (Mark(6, 0, 1),), (Mark(8, 0, 1),), (Mark(7, 0, 1), Mark(7, 0, 2)), (Mark(7, -1, 1),),
    ):  # fmt: skip
        rows = Rows(clicks(), 0, 0, broken)
        wire = encode(envelope(Chunks((chunk._replace(rows=rows),))))
        with pytest.raises(MalformedMessage):
            decode(wire.header, wire.batch, [CLICKS])


def test_a_time_that_is_none_is_refused() -> None:
    place = Place(Sessions())
    facts = place.adapter.timing.dump(place.app)[1]
    for broken in ([-1, True, 0, {}], [0, True, 0, {"a": "x"}], [0, True, 0]):
        with pytest.raises(ValueError):  # noqa: PT011
            TaskTime.load(Sessions(), [], broken, 0)
    assert TaskTime.load(Sessions(), [], facts, 0).watermark_us == 0


# ---------------------------------------------------------------------- processes


def emitted(op: ElasticOperator, have: dict[int, int]) -> list[dict[str, Any]]:
    found = op.driver.reader().outputs(op.driver.nodes(), have)
    return [row for table in found for row in table.to_pylist()]


def test_sessions_end_once_while_tasks_move_and_every_task_learns_the_watermark(
    launcher: WarmLauncher,
) -> None:
    """1. clicks of 200 users  2. rescale while more come  3. one user's click, far ahead, ends all."""
    users = [f"user{i}" for i in range(200)]
    have: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    with deploy_local(Sessions(), tasks=16, nodes=2, launcher=launcher) as op:
        with op.feeder("clicks") as feeder:
            feeder.feed(clicks(*((user, 1) for user in users)))
            handle = op.rescale(3)
            for second in range(2, 5):
                feeder.feed(clicks(*((user, second) for user in users)))
            handle.wait(60)
            feeder.flush()
            rows += emitted(op, have)
            assert rows == []
            handle = op.rescale(2)
            feeder.feed(clicks(("late riser", 100)))
            feeder.flush()
            handle.wait(60)
            rows += emitted(op, have)
        rows += emitted(op, have)
    assert Counter(row["user"] for row in rows) == Counter(users)
    assert {(row["clicks"], row["last"]) for row in rows} == {(4, 4 * S)}
    assert GAP_US == 5 * S


def test_what_comes_of_rows_does_not_depend_on_how_fast_they_are_fed(
    launcher: WarmLauncher,
) -> None:
    """1. Ann clicks  2. Bob clicks so late that her session is over  3. a late click of hers."""
    stream = [("ann", 1.0), ("bob", 30.0), ("ann", 2.0), ("cid", 60.0)]
    sessions: list[tuple[str, int]] = []
    with deploy_local(Sessions(), tasks=16, nodes=2, launcher=launcher) as op:
        have: dict[int, int] = {}
        for pause_s in (0.0, 0.3):
            feeder = op.feeder(f"pausing {pause_s}")
            for row in stream:
                feeder.feed(clicks((row[0] + str(pause_s), row[1] + 1000 * pause_s)))
                time.sleep(pause_s)
            feeder.flush()
            sessions += [(row["user"][:3], row["clicks"]) for row in emitted(op, have)]
            feeder.close()
    assert Counter(sessions) == {("ann", 1): 4, ("bob", 1): 2, ("cid", 1): 1}


def test_timers_by_the_clock_fire_once_while_their_tasks_move(launcher: WarmLauncher) -> None:
    users = [f"user{i}" for i in range(300)]
    have: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    with (
        deploy_local(Reminders(), tasks=16, nodes=2, launcher=launcher) as op,
        op.feeder("clicks") as feeder,
    ):
        for delay in (50, 500, 1500):
            batch = clicks(*((user, 0) for user in users))
            feeder.feed(batch.set_column(2, "n", pa.array([delay] * len(users), pa.int64())))
        op.rescale(3).wait(60)
        op.rescale(2).wait(60)

        def all_there() -> bool:
            rows.extend(emitted(op, have))
            return len(rows) >= 3 * len(users)

        until(all_there)
        op.rescale(1).wait(60)
        rows.extend(emitted(op, have))
    assert Counter(row["user"] for row in rows) == dict.fromkeys(users, 3)


def test_a_micro_batch_brings_the_watermark_to_every_task_and_a_replay_changes_nothing(
    launcher: WarmLauncher,
) -> None:
    users = [f"user{i}" for i in range(100)]
    have: dict[int, int] = {}
    with deploy_local(Sessions(), tasks=16, nodes=2, launcher=launcher) as op:
        about = DriverClient(op.address, op.driver.issue("query")).about()
        with QueryClient(about, op.address, op.driver.issue("query")) as client:

            def batch(number: int, *partitions: Any) -> None:
                parts = [
                    part
                    for i, rows in enumerate(partitions)
                    for part in client.write("q", number, i, new_attempt(), [rows])
                ]
                client.commit("q", number, parts)

            batch(0, clicks(*((u, 1) for u in users)), clicks(*((u, 2) for u in users[::-1])))
            handle = op.rescale(3)
            batch(1, clicks(("early bird", 3)))
            handle.wait(60)
            assert emitted(op, have) == []
            batch(2, clicks(("early bird", 4)), clicks(("late riser", 100)))
            rows = emitted(op, have)
            batch(2, clicks(("late riser", 100), ("early bird", 4)))
            rows += emitted(op, have)
    assert Counter(row["user"] for row in rows) == Counter([*users, "early bird"])
    assert {row["clicks"] for row in rows} == {2}
