"""The driver's book of seats, without Spark: who starts where, and that every end is told once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from agents import until

from meander.protocol.settings import Settings
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.wire.credentials import Credentials
from meander.spark.cluster.executors import Executor
from meander.spark.deploy import seat
from meander.spark.deploy import seats as book
from meander.spark.deploy.jobs import JobEnd, JobOutcome, cancelled
from meander.spark.deploy.seats import Seats

N1 = ProcessSpec("node", "r", "n1", 1, 1, "127.0.0.1:1", Credentials("t"), 64, Settings())


def life(incarnation: int, **changes: Any) -> ProcessSpec:
    return replace(N1, incarnation=incarnation, **changes)


class Ground:
    """Jobs that only exist on paper."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        """Job → seat."""
        self.cancelled: list[str] = []
        self.ahead = False
        self.lost: set[str] = set()
        """Jobs whose task has no slot."""
        self.unplugged: set[str] = set()
        """Addresses of hosts that are not to be reached."""
        self.told: list[tuple[int, Reason, str]] = []
        self.ahead_s = 0.0
        """Of the system's clock."""
        now = Clock(lambda: self.ahead_s + REAL.monotonic(), REAL.wall_us)
        self.seats = Seats(self, self._hear, now)

    def open_seat(self, job: str, seat: str, spec: ProcessSpec) -> None:
        self.jobs[job] = seat

    def cancel_seat(self, job: str) -> None:
        self.cancelled.append(job)

    def queued(self, job: str) -> bool:
        return job in self.lost

    def reachable(self, address: str) -> bool:
        return address not in self.unplugged

    def _hear(self, ended: ProcessExit) -> None:
        self.told.append((ended.incarnation, ended.reason, ended.detail))

    def ask(
        self, job: str, attempt: int = 0, ended: str = "", how: str = "killed", host: str = "h1"
    ) -> int | None:
        fields = {
            "seat": self.jobs[job],
            "attempt": attempt,
            "pid": 7,
            "host": host,
            "ended": ended,
            "how": how,
        }
        return self.seats.ask(fields)

    def left(self, job: str, ending: JobEnd | None = None) -> None:
        self.seats.left(self.jobs[job], ending or JobEnd(job, JobOutcome.LOST, trouble="lost"))


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(book, "HOLD_S", 0.05)
    monkeypatch.setattr(book, "GRACE_S", 60.0)
    return Ground()


def test_a_successor_starts_in_the_seat_of_the_one_before(ground: Ground) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    assert list(ground.jobs) == ["n1-1"], "no second job"
    assert ground.ask("n1-1") == 2
    assert ground.told == [(1, Reason.KILLED, "killed")]


def test_last_words_arrive_and_are_believed_only_of_oneself(ground: Ground) -> None:
    for said, reason in ((1, Reason.CRASHED), (7, Reason.KILLED)):
        ground.told.clear()
        ground.seats = Seats(ground, ground._hear)
        ground.seats.want(life(1))
        job = list(ground.jobs)[-1]
        assert ground.ask(job) == 1
        ground.seats.want(life(2))
        words = ProcessExit("node", "n1", said, Reason.CRASHED, "boom").json()
        assert ground.ask(job, ended=words) == 2
        assert ground.told[0][:2] == (1, reason)


def test_a_seat_waits_for_a_wish_and_then_leaves(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    assert ground.ask("n1-1") is None, "nobody wished for another"
    ground.seats.want(life(2))
    assert list(ground.jobs) == ["n1-1", "n1-2"], "who was told to leave gets no more"
    ground.left("n1-1", JobEnd("n1-1", JobOutcome.RETURNED))
    assert ground.ask("n1-2") == 2
    monkeypatch.setattr(book, "HOLD_S", 30.0)
    threading.Timer(0.1, ground.seats.want, args=(life(3),)).start()
    assert ground.ask("n1-2") == 3
    assert [incarnation for incarnation, *_ in ground.told] == [1, 2]


def test_a_seat_that_is_lost_with_its_child_is_the_same_seat_in_the_next_attempt(
    ground: Ground,
) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    assert ground.ask("n1-1", attempt=1, how="") == 2
    assert ground.ask("n1-1", attempt=0) is None, "the first attempt lives on somewhere, cut off"
    ground.seats.want(life(3))
    assert ground.ask("n1-1", attempt=1) == 3
    assert [incarnation for incarnation, *_ in ground.told] == [1, 2]


def test_a_job_that_ends_has_the_next_one_started_in_a_new_one(ground: Ground) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    ground.left("n1-1")
    assert list(ground.jobs) == ["n1-1", "n1-2"]
    assert ground.ask("n1-2") == 2
    done = ProcessExit("node", "n1", 2, Reason.DRAINED)
    ground.left("n1-2", JobEnd("n1-2", JobOutcome.RETURNED, done))
    assert [told[:2] for told in ground.told] == [(1, Reason.KILLED), (2, Reason.DRAINED)]


def test_a_job_that_never_asked_is_the_end_of_what_it_was_for(ground: Ground) -> None:
    ground.seats.want(life(1))
    gone = ProcessExit("node", "n1", 0, Reason.DRIVER_LOST, "no answer")
    ground.left("n1-1", JobEnd("n1-1", JobOutcome.RETURNED, gone))
    assert ground.told == [(1, Reason.DRIVER_LOST, "no answer")]
    assert list(ground.jobs) == ["n1-1"], "whether it is tried again is not decided here"


def test_who_does_not_ask_in_time_gets_a_rival_and_the_first_to_ask_wins(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    monkeypatch.setattr(book, "GRACE_S", 0.0)
    ground.seats.want(life(2))
    assert until(lambda: list(ground.jobs) == ["n1-1", "n1-2"])
    assert ground.ask("n1-1") == 2, "its child has ended after all"
    assert ground.cancelled == ["n1-2"]
    assert ground.ask("n1-2") is None
    ground.left("n1-2", cancelled("n1-2"))
    assert [incarnation for incarnation, *_ in ground.told] == [1]


HOSTS = [Executor(str(i), f"h{i}", f"10.0.0.{i}", 7, 8, 0) for i in (1, 2, 3)]


def placed(ground: Ground, job: str) -> str:
    return ground.seats.place(ground.jobs[job], HOSTS)


def test_nodes_are_spread_and_a_successor_is_placed_away_from_a_host_that_is_silent(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. four nodes on three hosts  2. that of n1 falls silent, and n1 is wanted again  3. it is to be
    elsewhere, and so is whoever comes  4. somebody asks from that host: it is as good as others."""
    places = {}
    for i in (1, 2, 3, 4):
        ground.seats.want(life(1, name=f"n{i}"))
        places[i] = placed(ground, f"n{i}-{i}")
    assert sorted(places.values()) == ["h1", "h1", "h2", "h3"]
    (twice,) = {places[i] for i in (1, 2, 3)} & {places[4]}
    for i in (1, 2, 3, 4):
        assert ground.ask(f"n{i}-{i}", host=f"10.0.0.{places[i][1]}") == 1
    monkeypatch.setattr(book, "GRACE_S", 0.0)
    ground.unplugged = {f"10.0.0.{places[1][1]}"}
    ground.seats.want(life(2))
    assert until(lambda: "n1-5" in ground.jobs)
    assert placed(ground, "n1-5") not in (places[1], twice)
    ground.seats.want(life(1, name="n6"))
    assert placed(ground, "n6-6") != places[1]
    full = [e if e.host == places[1] else e._replace(running=8) for e in HOSTS]
    assert ground.seats.place(ground.jobs["n6-6"], full) == "", "nowhere, so anywhere"
    ground.ask("n1-1", host=f"10.0.0.{places[1][1]}")
    assert ground.seats.place(ground.jobs["n6-6"], full) == places[1]


def test_a_new_seat_that_never_asks_is_followed_by_another_unless_it_waits_for_a_slot(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "LATE_S", 0.05)
    ground.lost, ground.unplugged = {"n1-1"}, {"10.0.0.1"}
    ground.seats.want(life(1))
    assert placed(ground, "n1-1") == "h1"
    assert not until(lambda: len(ground.jobs) > 1, 0.3), "it has no slot"
    ground.lost = set()
    assert until(lambda: "n1-2" in ground.jobs)
    assert placed(ground, "n1-2") != "h1"
    assert ground.ask("n1-2", host="10.0.0.2") == 1
    assert "n1-1" in ground.cancelled


def test_a_feeder_on_a_host_that_has_fallen_silent_is_told_of_as_lost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would say so a minute later. Nobody hears of it twice; nodes are their leases' business."""
    feeder, other = replace(N1, kind="feeder", name="f"), life(1, name="n2")
    for number, spec in enumerate((life(1), feeder, other), 1):
        ground.seats.want(spec)
        ground.ask(f"{spec.name}-{number}", host="10.0.0.1")
    monkeypatch.setattr(book, "GRACE_S", 0.0)
    ground.unplugged = {"10.0.0.1"}
    ground.seats.want(life(2))
    assert until(lambda: "n1-4" in ground.jobs)
    assert ground.told == [(1, Reason.KILLED, "its host has fallen silent")]
    assert ground.cancelled == ["f-2"]
    ground.seats.want(replace(feeder, incarnation=2))
    assert ground.ask("f-5", host="10.0.0.2") == 2
    assert ground.ask("f-2", host="10.0.0.1") is None
    ground.left("f-2", cancelled("f-2"))
    assert len(ground.told) == 1


def test_a_state_server_is_placed_where_its_nodes_are(ground: Ground) -> None:
    ground.seats.want(replace(N1, kind="server", name="server@10.0.0.3"))
    assert placed(ground, "server@10.0.0.3-1") == "h3"
    assert ground.seats.place("no such seat", HOSTS) == ""
    assert ground.seats.place(ground.jobs["server@10.0.0.3-1"], HOSTS[:1]) == "", "one host"


def test_cancelling_ends_what_runs_and_what_only_waits(ground: Ground) -> None:
    ground.seats.want(life(1))
    ground.seats.cancel("n1", 1)
    assert ground.told == [(1, Reason.KILLED, "cancelled")]
    assert ground.ask("n1-1") is None
    ground.seats.want(life(2))
    assert ground.ask("n1-2") == 2
    ground.seats.cancel("n1", 2)
    assert ground.cancelled == ["n1-1", "n1-2"]
    ground.left("n1-2", cancelled("n1-2"))
    assert ground.told[1:] == [(2, Reason.KILLED, "cancelled")]


def test_another_source_under_the_same_name_needs_a_job_of_its_own(ground: Ground) -> None:
    ground.seats.want(life(1, source=b"one"))
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2, source=b"two"))
    assert list(ground.jobs) == ["n1-1", "n1-2"]
    assert ground.ask("n1-1") is None
    assert ground.ask("n1-2") == 2


def test_a_stranger_and_a_stopped_deployment_get_nothing(ground: Ground) -> None:
    assert ground.seats.ask({"seat": "?", "attempt": 0, "host": "", "ended": "", "how": ""}) is None
    ground.seats.want(life(1))
    ground.seats.close()
    assert ground.ask("n1-1") is None


def test_room_is_made_for_who_waits_for_sparks_retry_one_at_a_time(ground: Ground) -> None:
    ground.seats.want(life(1))
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    ground.ahead_s = 5.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "its task runs: a hung child holds the slot"
    ground.lost.add("n1-1")
    assert ground.seats.claim_slot(60.0, 20.0) is None, "it has not waited long"
    assert ground.seats.claim_slot(1.0, 20.0) == "n1"
    assert ground.seats.claim_slot(1.0, 20.0) is None, "somebody was asked just now"
    ground.ahead_s = 30.0
    assert ground.seats.claim_slot(1.0, 20.0) == "n1"
    assert ground.ask("n1-1", attempt=1) == 2
    assert ground.seats.waiting(0.0) == []


def test_nobody_makes_room_for_a_new_job(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would give the slot back to the older job, whose task was to make room."""
    ground.lost = {"n1-1", "n1-2", "n1-3"}
    ground.seats.want(life(1))
    ground.ahead_s = 60.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "a node that comes with a rescale"
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    ground.left("n1-1")
    ground.ahead_s = 120.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "Spark has given its job up"
    assert ground.ask("n1-2") == 2
    ground.seats.cancel("n1", 2)
    ground.seats.want(life(3))
    ground.ahead_s = 180.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "its seat was closed"
    monkeypatch.setattr(book, "GRACE_S", 0.0)
    assert ground.ask("n1-3") == 3
    ground.lost = {"n1-4"}
    ground.seats.want(life(4))
    assert until(lambda: "n1-4" in ground.jobs)
    ground.ahead_s = 240.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "only its rival waits"


def test_where_nodes_come_first_room_is_made_for_a_new_job_of_a_lost_one(ground: Ground) -> None:
    ground.ahead, ground.lost = True, {"n1-1", "n1-2"}
    ground.seats.want(life(1))
    ground.ahead_s = 60.0
    assert ground.seats.claim_slot(1.0, 20.0) is None, "a node that comes with a rescale can wait"
    assert ground.ask("n1-1") == 1
    ground.seats.want(life(2))
    ground.left("n1-1")
    ground.ahead_s = 120.0
    assert ground.seats.claim_slot(1.0, 20.0) == "n1"


def test_a_worker_that_becomes_a_seat_closes_its_clients_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is busy for long, and killed with the node: who waits for its clients would wait a lease."""
    steps: list[str] = []

    def forked(_: str) -> seat.Last:
        steps.append("fork")
        return seat.Last(True, seat.LEFT, "")

    monkeypatch.setattr(seat, "leave_all", lambda: steps.append("leave"))
    monkeypatch.setattr(seat, "_forked", forked)
    assert seat.hold("seat-1", N1) is None
    assert steps == ["leave", "fork"]
