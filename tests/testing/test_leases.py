"""Leases and causes, as the checkers count them from outside."""

from meander.model import Epoch
from meander.protocol.edges.feeder import Feeder
from meander.protocol.messages import MASTER, Beat, Envelope, Grant
from meander.protocol.settings import Settings
from meander.testing.causes import Causes
from meander.testing.leases import Leases
from meander.testing.process import SimProcess

SETTINGS = Settings()


class Told:
    """Stands for a table: leases look at its epoch alone."""

    def __init__(self, number):
        self.epoch = Epoch(1, number)


def process(name="f", skew=(0.0, 1.0)):
    return SimProcess(name, Feeder(name, SETTINGS, 1, "i1"), skew)


def grant(sent, table=None, epoch=1, to_incarnation=0):
    told = None if table is None else Told(table)
    body = Grant(sent, SETTINGS.lease_s, told)
    return Envelope(MASTER, 1, "f", to_incarnation, Epoch(1, epoch), body)


def test_a_lease_counts_from_the_question_on_its_holders_clock():
    said = []
    leases, holder = Leases(SETTINGS, lambda *text: said.append(text)), process(skew=(10.0, 1.0))
    leases.asked(holder, Beat(11.0), now=1.0)
    leases.given(holder, grant(11.0, table=1))
    assert leases.holds(holder, 2.9)
    assert not leases.holds(holder, 3.1)
    assert said == []


def test_who_asks_from_the_future_is_seen():
    said = []
    Leases(SETTINGS, lambda *text: said.append(text)).asked(process(), Beat(1.5), now=1.0)
    assert [by for by, _ in said] == ["lease"]


def test_a_lease_for_another_or_for_an_older_table_does_not_hold():
    leases, holder = Leases(SETTINGS, print), process()
    leases.given(holder, grant(1.0, table=1, to_incarnation=7))
    assert not leases.holds(holder, 1.5)
    leases.given(holder, grant(1.0, table=1, epoch=2))
    assert (leases.holds(holder, 1.5), leases.welcome(holder)) == (False, True)
    leases.given(holder, grant(1.0, epoch=1))
    assert leases.holds(holder, 1.5)
    leases.given(holder, grant(-1.0, table=2, epoch=2))
    assert not leases.holds(holder, 3.1)  # news are no answer


def test_nobody_is_dead_without_a_cause_and_a_cause_is_forgotten():
    causes, node = Causes(SETTINGS), process("n1")
    assert not causes.excuse(node, "n1", 1.0)
    causes.link("feeder0", "n1", 1.0)
    assert not causes.excuse(node, "n1", 1.0)  # the master hears it all the same
    causes.link(MASTER, "n1", 1.0)
    assert causes.excuse(node, "n1", 2.0)
    assert not causes.excuse(node, "n2", 2.0)
    assert not causes.excuse(node, "n1", 2.0 + causes.late_s)


def test_what_happens_to_the_master_happens_to_all():
    causes, node = Causes(SETTINGS), process("n1")
    causes.link(MASTER, "*", 1.0)
    assert causes.excuse(node, "n1", 2.0)
    again = Causes(SETTINGS)
    again.process(process(MASTER), 1.0)
    assert again.excuse(node, "n1", 2.0)


def test_the_dead_are_dead():
    causes, node = Causes(SETTINGS), process("n1")
    node.killed = True
    assert causes.excuse(node, "n1", 1.0)
