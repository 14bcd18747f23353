"""Every fault of the network does what its name says."""

from random import Random

import pytest

from meander.model import Epoch
from meander.protocol.messages import Envelope, Fence, Part, Put
from meander.protocol.state import checksum
from meander.testing.network import Network
from meander.testing.timeline import Timeline


class Wire:
    """A network with a record of what arrives when."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.came: list[tuple[float, Envelope]] = []
        self.network = Network(self.timeline, Random(1), self._deliver)

    def _deliver(self, pair):
        self.came.append((self.timeline.now, pair[1]))

    def send(self, body=None, sender="a", to="b", incarnation=1):
        body = Fence() if body is None else body
        self.network.send(Envelope(sender, incarnation, to, 0, Epoch(1, 1), body), None)

    def run(self, seconds=100.0):
        self.timeline.run(self.timeline.now + seconds)
        return self.came


@pytest.fixture
def wire():
    return Wire()


def part(size):
    data = bytes(size)
    return Part(0, Epoch(1, 1), 0, size, data, checksum(data))


def test_messages_keep_their_order_and_take_a_delay(wire):
    for number in range(1, 50):
        wire.send(incarnation=number)
    came = wire.run()
    assert [env.incarnation for _, env in came] == list(range(1, 50))
    assert all(time >= wire.network.delay_s for time, _ in came)


def test_bytes_take_time_on_the_link_of_either_end(wire):
    wire.network.bandwidth_bytes_s = 1000.0
    wire.send(part(1000))
    wire.send(to="c")
    (first, _), (second, _) = wire.run()
    assert first > 1.0
    assert second > 1.0  # the sender's link was busy


def test_a_narrow_link_is_slow_for_its_process_alone(wire):
    wire.network.speeds["b"] = 100.0
    wire.send(part(1000), to="b")
    wire.send(part(1000), sender="d", to="c")
    arrived = {env.to: time for time, env in wire.run()}
    assert arrived["b"] > 10.0
    assert arrived["c"] < 0.1


def test_lag_is_of_one_direction(wire):
    wire.network.lag["a", "b"] = 1.0
    wire.send()
    wire.send(sender="b", to="a")
    arrived = {env.to: time for time, env in wire.run()}
    assert arrived["b"] > 1.0 > arrived["a"]


def test_a_partition_is_of_one_direction_and_star_is_everybody(wire):
    wire.network.cut = {("a", "b"), ("*", "c")}
    wire.send()
    wire.send(to="c")
    wire.send(sender="b", to="a")
    assert [env.to for _, env in wire.run()] == ["a"]
    assert wire.network.lost == 2


def test_a_clogged_link_holds_everything_back_and_keeps_the_order(wire):
    wire.network.clogged["a", "b"] = 5.0
    wire.send(incarnation=1)
    wire.send(incarnation=2)
    came = wire.run()
    assert [env.incarnation for _, env in came] == [1, 2]
    assert came[0][0] >= 5.0


def test_loss_loses_and_duplication_doubles_about_as_many_as_they_say(wire):
    wire.network.loss = 0.3
    for _ in range(1000):
        wire.send()
    assert 600 < len(wire.run()) < 800
    wire.came.clear()
    wire.network.loss, wire.network.duplication = 0.0, 0.3
    for _ in range(1000):
        wire.send()
    assert 1200 < len(wire.run()) < 1400


def test_reordered_messages_overtake_one_another(wire):
    wire.network.reorder = 0.3
    for number in range(1, 100):
        wire.send(incarnation=number)
    numbers = [env.incarnation for _, env in wire.run()]
    assert sorted(numbers) == list(range(1, 100))
    assert numbers != sorted(numbers)


def test_corruption_changes_one_byte_of_a_state_so_that_its_checksum_tells(wire):
    wire.network.corruption = 1.0
    blob = bytes(100)
    wire.send(part(100))
    wire.send(Put(0, Epoch(1, 1), Epoch(1, 2), blob, checksum(blob)))
    wire.send(Fence())
    bodies = [env.body for _, env in wire.run()]
    changed = [body.data if isinstance(body, Part) else body.blob for body in bodies[:2]]
    assert [len(data) - data.count(0) for data in changed] == [1, 1]
    assert all(checksum(data) != checksum(blob) for data in changed)
    assert bodies[2] == Fence()


def test_healing_ends_all_of_it(wire):
    network = wire.network
    network.loss = network.duplication = network.reorder = network.corruption = 1.0
    network.cut.add(("a", "*"))
    network.lag["a", "b"] = network.clogged["a", "b"] = network.speeds["b"] = 9.0
    network.heal()
    wire.send(part(10))
    ((time, env),) = wire.run()
    assert time < 0.1
    assert env.body == part(10)
