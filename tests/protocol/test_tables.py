"""Every row of the transition tables is walked, and the docs draw them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire import Books, Settings, Town, chunk

from meander.protocol.diagrams import TABLES, mermaid, redraw
from meander.protocol.master.membership import STATUS, Peer
from meander.protocol.master.migration import STAGES, Migration
from meander.protocol.messages import MASTER, PeerLost, Put, Rescale, RollBack
from meander.protocol.node.slot import TRANSITIONS, Slot
from meander.testing.faults import FAULTS, generate
from meander.testing.simulate import run

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.fixture
def walked(monkeypatch):
    """Note every change of phase, status and stage."""
    found = set()
    for kind, field in ((Slot, "phase"), (Peer, "status"), (Migration, "stage")):

        def go(self, cause, go=kind.go, field=field):
            found.add((getattr(self, field), cause))
            go(self, cause)

        monkeypatch.setattr(kind, "go", go)
    return found


def serve_and_regain():
    """A task is restored at the very node that serves it."""
    books = Books("aab")
    books.send("a", chunk(1))
    books.ledger.restore(0, "a", books.epoch.next())
    books.publish()
    assert books.notes(0) == []


def roll_back_while_draining():
    """A feeder that cannot be heard keeps n2 from being dismissed; meanwhile, back."""
    town = Town()
    town.feeder()
    town.settle(1.0)
    town.kill("f")
    town.give(MASTER, Rescale(1))
    town.settle(1.5)
    town.give(MASTER, RollBack())
    town.settle(4.0)
    assert town.stage() == "rolled back"


def lose_while_leaving():
    """A node that hands its tasks over dies, with its states at nobody's."""
    town = Town(settings=Settings(checkpoint_s=0.3))
    town.settle(1.0)
    town.give(MASTER, Rescale(1))
    for _ in range(3):
        town.lose(Put)
        town.deliver()
    incarnation = town.kill("n2").incarnation
    town.give(MASTER, PeerLost("n2", incarnation))
    town.settle(4.0)
    assert town.owners() == "1111"


def test_every_row_of_the_tables_is_walked(walked):
    serve_and_regain()
    roll_back_while_draining()
    lose_while_leaving()
    rows = {*TRANSITIONS, *STATUS, *STAGES}
    for seed in range(80):
        if rows <= walked:
            break
        run(generate(seed, 4, 12, sorted(FAULTS)))
    assert rows - walked == set()


def test_the_page_draws_the_tables_as_they_are():
    text = PAGE.read_text()
    assert redraw(text) == text, "run: python scripts/diagrams.py docs/protocol.md"
    for table in TABLES.values():
        assert mermaid(table) in text
