"""The wires of a simulated world: bytes, streams that end, readers that wait, requests."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from meander.errors import OperatorGoneError, OperatorRefusedError
from meander.model import Epoch
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import MASTER, Bye, Envelope, Part, PeerLost
from meander.protocol.state import checksum
from meander.runtime.process.hands import Post
from meander.runtime.process.script import Ask, FetchRows, Script, Sleep
from meander.runtime.wire.presence import Presence, Question
from meander.runtime.wire.rows import Mark, Rows
from meander.testing.network import Network
from meander.testing.timeline import Timeline
from meander.testing.world.wires import Wires

WORDS = pa.schema({"word": pa.string()})
AT = Epoch(1, 1)


class End:
    """A tiny process: what comes to it is kept."""

    def __init__(self, world: World, peer: str, incarnation: int = 1, host: str = "h1") -> None:
        self.world, self.came, self.holds = world, list[Any](), False
        self.post = world.wires.open(
            peer, incarnation, host, self.came.append, lambda: self.holds, (WORDS,)
        )
        self.sends: Post = self.post

    def send(self, to: End, body: Any) -> None:
        me = self.post.identity
        envelope = Envelope(me.peer, me.incarnation, to.post.peer, 0, AT, body)
        self.sends.post(to.post.address, envelope)

    @property
    def numbers(self) -> list[int]:
        return [e.body.offset for e in self.came if type(e) is Envelope and type(e.body) is Bye]

    @property
    def losses(self) -> list[PeerLost]:
        return [event for event in self.came if type(event) is PeerLost]

    def ask(self, to: str, what: str, timeout_s: float = 5.0, **fields: Any) -> list[Any]:
        answers: list[Any] = []
        step = Ask(to, what, fields, timeout_s)
        self.world.wires.ask(self.post, step, lambda *answer: answers.append(answer))
        return answers


class World:
    """A network with time."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(1), print)
        self.wires = Wires(self.timeline, self.network, Random(2))

    def run(self, seconds: float = 1.0) -> None:
        self.timeline.run(self.timeline.now + seconds)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ends(world: World) -> tuple[End, End]:
    return End(world, "a"), End(world, "b", host="h2")


def rows(number: int) -> Chunks:
    batch = pa.record_batch({"word": ["x", "y"]}, schema=WORDS)
    mark = Mark(number, 2, 0)
    return Chunks((Chunk("f", 1, 0, number, number, number, Rows(batch, 0, 2, (mark,))),))


def part(data: bytes) -> Part:
    return Part(1, AT, 0, len(data), data, checksum(data))


def test_messages_cross_as_bytes_in_the_order_of_their_stream(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    seen: list[tuple[str, str]] = []
    world.wires.sent = lambda post, envelope: seen.append(("sent", post.peer))
    world.wires.delivered = lambda post, envelope: seen.append(("delivered", post.peer))
    for number in range(1, 30):
        a.send(b, rows(number))
        a.send(b, Bye(number))
        a.send(b, part(bytes(number)))
    world.run()
    bodies = [event.body for event in b.came]
    assert b.numbers == list(range(1, 30))
    assert [m.chunks[0].number for m in bodies if isinstance(m, Chunks)] == list(range(1, 30))
    assert [len(m.data) for m in bodies if isinstance(m, Part)] == list(range(1, 30))
    assert bodies[0] is not None
    assert seen.count(("sent", "a")) == seen.count(("delivered", "b")) == 87
    assert world.wires.open_streams() == {"a": 0, "b": 2}
    assert world.wires.waiting() == {}


def test_a_process_that_is_killed_is_lost_to_those_it_had_dialled(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    a.send(b, Bye(1))
    world.run()
    world.wires.kill(a.post)
    world.run()
    assert b.losses == [PeerLost("a", 1)]
    assert world.wires.open_streams() == {"b": 0}


def test_a_host_that_is_lost_says_nothing(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    a.send(b, Bye(1))
    b.send(a, Bye(2))
    world.run()
    assert world.wires.lose_host("h1") == [a.post]
    world.run(10.0)
    assert b.losses == []
    assert world.wires.reset(a.post, b.post) == 1
    world.run(10.0)
    assert b.losses == []
    assert world.wires.counts["pulse_unknown"] == 1


def test_a_host_that_comes_back_knows_nothing_of_its_processes(
    world: World, ends: tuple[End, End]
) -> None:
    world.wires.window_bytes = 100
    a, b = ends
    b.send(a, Bye(1))
    world.run()
    world.wires.lose_host("h1")
    for number in range(2, 10):
        b.send(a, Bye(number))
    world.run(60.0)
    assert b.post.dropped == 0  # what waits may wait for long
    End(world, "a", 2)
    b.send(a, Bye(10))
    world.run()
    assert b.post.dropped > 0


def test_a_world_repeats_itself(world: World) -> None:
    def story(world: World) -> list[Any]:
        network, ends = world.network, [End(world, f"n{n}", host=f"h{n}") for n in range(4)]
        network.loss, network.duplication, network.reorder = 0.1, 0.2, 0.1
        for number in range(200):
            one, other = ends[number % 4], ends[(number * 7 + 1) % 4]
            one.send(other, (Bye(number), rows(number), part(bytes(number)))[number % 3])
            if number % 20 == 0:
                world.wires.reset(one.post, other.post)
                one.sends.keep({end.post.address for end in ends})
            world.run(0.01)
        world.wires.kill(ends[0].post)
        world.run()
        return [[type(e).__name__, getattr(e, "sender", e)] for end in ends for e in end.came]

    assert story(world) == story(World())


def test_a_stream_that_breaks_is_no_death(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    a.send(b, Bye(1))
    world.run()
    a.send(b, Bye(2))
    assert world.wires.reset(a.post, b.post) == 1
    world.run()
    for number in (3, 4):
        a.send(b, Bye(number))
        world.run()
    assert b.numbers == [1, 4]  # 2 was under way, 3 found out
    assert b.losses == []
    assert world.wires.counts["pulse_alive"] == 1
    assert a.post.dropped == 1


def test_that_one_broken_stream_were_a_death_would_be_seen(
    world: World, ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(self: Presence, question: Question, found: object) -> PeerLost:
        return PeerLost(question.whom.peer, question.whom.incarnation)

    a, b = ends
    monkeypatch.setattr(Presence, "heard", hasty)
    a.send(b, Bye(1))
    world.run()
    world.wires.reset(a.post, b.post)
    world.run()
    assert b.losses == [PeerLost("a", 1)]


def test_who_cannot_be_reached_is_not_known_to_be_dead(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    a.send(b, Bye(1))
    world.run()
    world.wires.reset(a.post, b.post)
    world.network.cut.add(("b", "a"))
    world.run()
    assert b.losses == []
    assert world.wires.counts["pulse_unknown"] == 1


def test_a_process_that_ends_in_order_writes_what_waits(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    for number in range(1, 100):
        a.send(b, Bye(number))
    world.wires.close(a.post)
    world.run()
    assert b.numbers == list(range(1, 100))
    assert b.losses == [PeerLost("a", 1)]


def test_nothing_reaches_an_address_where_nobody_listens(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    world.wires.kill(b.post)
    successor = End(world, "b", 2)
    for number in (1, 2):
        a.send(b, Bye(number))
        world.run()
    assert a.post.dropped == 2
    assert successor.came == []
    a.send(successor, Bye(3))
    world.run()
    assert successor.numbers == [3]


def test_one_that_was_replaced_is_refused_but_what_it_sent_before_still_comes(
    world: World, ends: tuple[End, End]
) -> None:
    old, b = ends
    old.send(b, Bye(1))
    world.run()
    old.send(b, Bye(2))
    assert world.wires.hold(old.post, b.post, 3.0) == 1
    new = End(world, "a", 2)
    new.send(b, Bye(3))
    world.run()
    old.send(b, Bye(4))
    world.run(1.0)
    old.send(b, Bye(5))
    world.run(5.0)
    assert b.numbers == [1, 3, 2]  # 4 found out that its stream broke, 5 was refused
    assert old.post.dropped == 2
    assert b.losses == []
    world.wires.kill(old.post)
    b.post.post(None, Envelope("b", 1, "a", 2, AT, Bye(6)))
    world.run()
    assert new.numbers == [6]


def test_a_full_process_holds_up_who_sends_to_it_but_not_the_master(
    world: World, ends: tuple[End, End]
) -> None:
    world.wires.window_bytes, world.wires.queue_messages_max = 1000, 5
    a, b = ends
    master = End(world, MASTER)
    b.holds = True
    for number in range(1, 101):
        a.send(b, Bye(number))
        master.send(b, Bye(1000 + number))
        world.run(0.01)
    world.run()
    assert b.numbers == list(range(1001, 1101))
    assert a.post.dropped > 50
    assert world.wires.waiting() == {("a", b.post.address): 5}
    b.holds = False
    world.run()
    assert b.numbers[100:] == list(range(1, 101 - a.post.dropped))
    assert world.wires.waiting() == {}


def test_a_paused_process_reads_later_and_a_slow_one_bit_by_bit(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    a.send(b, Bye(1))
    world.run()
    world.wires.pause(b.post)
    a.send(b, Bye(2))
    b.send(a, Bye(9))
    world.run(10.0)
    assert b.numbers == [1]
    b.post.slow_s = 1.0
    world.wires.go_on(b.post)
    a.send(b, Bye(3))
    world.run(0.5)
    assert b.numbers == [1, 2]
    world.run(1.0)
    assert b.numbers == [1, 2, 3]
    assert a.numbers == [9]


def test_corruption_is_noticed(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    a.send(b, rows(1))
    a.send(b, part(b"x"))
    world.run()
    b.came.clear()
    world.network.corruption = 1.0
    a.send(b, part(bytes(100)))
    a.send(b, Bye(1))
    a.send(b, rows(2))
    world.run()
    (state,) = b.came
    assert len(state.body.data) - state.body.data.count(0) == 1
    assert checksum(state.body.data) != state.body.checksum
    assert b.post.malformed == 2


def test_a_message_in_another_name_or_of_other_rows_is_malformed(
    world: World, ends: tuple[End, End]
) -> None:
    a, b = ends
    a.post.post(b.post.address, Envelope("c", 1, "b", 0, AT, Bye(1)))
    b.post.schemas = (pa.schema({"word": pa.int64()}),)
    a.send(b, rows(1))
    a.send(b, Part(1, AT, 0, 9, "no bytes", 0))  # type: ignore[arg-type]
    world.run()
    assert b.came == []
    assert b.post.malformed == 2
    assert len(a.post.unwritable) == a.post.dropped == 1


def test_what_is_not_kept_is_left_and_that_is_no_death(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    a.post.keep({b.post.address})
    world.run()
    assert world.wires.open_streams() == {"a": 0, "b": 1}
    a.send(b, Bye(1))
    a.post.keep(set())
    world.run()
    assert list(a.post.links) == [b.post.address]  # it was used just now
    world.wires.idle_s = 0.0
    a.post.keep(set())
    world.run()
    assert a.post.links == {}
    assert world.wires.open_streams() == {"a": 0, "b": 0}
    assert b.numbers == [1]
    assert b.losses == []


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_everything_flows_again_and_only_the_dead_are_lost(
    world: World, seed: int
) -> None:
    random, wires, network = Random(seed), world.wires, world.network
    wires.window_bytes, wires.queue_messages_max = random.choice([300, 10**6]), 20
    ends = [End(world, f"n{n}", host=f"h{n}") for n in range(4)]
    posts = [end.post for end in ends]
    for number in range(300):
        one, other = random.sample(ends, 2)
        match random.randrange(12):
            case 0:
                wires.reset(one.post, other.post)
            case 1:
                wires.hold(one.post, other.post, random.random())
            case 2:
                (wires.pause, wires.go_on)[random.randrange(2)](one.post)
            case 3:
                one.holds = not one.holds
            case 4:
                network.cut = random.choice([set(), {(one.post.peer, other.post.peer)}])
            case 5:
                one.sends.keep({post.address for post in random.sample(posts, 2)})
            case 6:
                network.loss, network.duplication, network.corruption, network.reorder = (
                    random.choice([0.0, 0.2]) for _ in range(4)
                )
            case _:
                one.send(other, random.choice([Bye(number), rows(number), part(bytes(number))]))
        world.run(random.random() * 0.05)
    network.heal()
    for end in ends:
        end.holds = False
        wires.go_on(end.post)
    world.run(5.0)
    assert wires.waiting() == {}
    assert not [event for end in ends for event in end.losses]
    for end in ends:
        end.came.clear()
    for number in (1, 2, 3):  # the first may find a stream that broke, the second nobody to dial
        for one in ends:
            for other in ends:
                one.send(other, Bye(number))
        world.run()
    assert all(end.numbers.count(3) == 4 for end in ends)
    wires.kill(posts[0])
    world.run(1.0)
    assert [end.losses for end in ends[1:]] == [[PeerLost("n0", 1)]] * 3


# --------------------------------------------------------------------------- requests


def facts(fields: Any) -> Script[Any]:
    yield Sleep(0.5)
    return {"told": tuple(fields["list"])}


def table(_: Any) -> Script[Any]:
    yield Sleep(0.0)
    return pa.table({"word": ["x"]})


def test_requests_are_answered_with_what_bytes_say(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    b.post.requests = {"facts": facts, "table": table}
    answers = a.ask(b.post.address, "facts", list=(1, 2))
    found: list[Any] = []
    fetch = FetchRows(b.post.address, {"kind": "table"}, 1.0)
    world.wires.ask(a.post, fetch, lambda *answer: found.append(answer))
    world.run(0.4)
    assert answers == []
    world.run(10.0)
    assert answers == [({"told": [1, 2]}, None)]
    assert found == [(pa.table({"word": ["x"]}), None)]


def test_a_request_is_refused_with_the_reason(world: World, ends: tuple[End, End]) -> None:
    a, b = ends

    def refuse(_: Any) -> Script[Any]:
        yield Sleep(0.0)
        raise flight.FlightServerError("not now")

    b.post.requests["refuse"] = refuse
    answers = a.ask(b.post.address, "refuse"), a.ask(b.post.address, "nothing")
    world.run()
    for found, text in zip(answers, ("not now", "knows no 'nothing'"), strict=True):
        ((_, error),) = found
        assert isinstance(error, OperatorRefusedError)
        assert text in str(error)


@pytest.mark.parametrize("how", ["nobody", "killed", "host", "cut", "breaks", "raises"])
def test_where_nobody_answers_the_asker_hears_that_once(
    world: World, ends: tuple[End, End], how: str
) -> None:
    a, b = ends

    def broken(_: Any) -> Script[Any]:
        yield Sleep(0.0)
        raise KeyError("a bug")

    b.post.requests = {"facts": broken if how == "raises" else facts}
    address = "h9:99" if how == "nobody" else b.post.address
    if how == "cut":
        world.network.cut.add(("b", "a"))
    if how == "breaks":
        world.network.loss = 1.0
    answers = a.ask(address, "facts", list=[])
    world.run(0.1)
    if how == "killed":
        world.wires.kill(b.post)
    if how == "host":
        world.wires.lose_host("h2")
    late = how in ("host", "cut")
    world.run(1.0)
    assert len(answers) == (not late)
    world.run(10.0)
    ((_, error),) = answers
    assert isinstance(error, OperatorGoneError)
    assert error.address == address


def test_what_a_process_was_at_ends_with_it(world: World, ends: tuple[End, End]) -> None:
    a, b = ends
    done: list[str] = []

    def slow(_: Any) -> Script[Any]:
        try:
            yield Sleep(0.5)
            done.append("never")
        finally:
            done.append("cleaned up")

    b.post.requests["slow"] = slow
    a.post.requests["slow"] = slow
    a.ask(b.post.address, "slow")
    b.ask(a.post.address, "slow")
    world.run(0.1)
    world.wires.kill(b.post)
    world.run(0.1)
    assert done == []
    world.run(10.0)
    assert done == ["never", "cleaned up"]  # a carries out what b had asked for
