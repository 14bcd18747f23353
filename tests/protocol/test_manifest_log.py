"""The manifest as a log: a whole, then what has changed; what is read is what was to be said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import InputError
from meander.model import Epoch
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import CHANGES_MAX, Manifest, ManifestLog, ManifestReader


def manifest(records: dict[int, Kept], offset: int = 0) -> Manifest:
    return Manifest(3, 8, ("n1",), dict(records), {"f": offset}, {"name": "WordCount"}, "line")


def name(number: int) -> str:
    return f"log/3/n1.1/{number}#8-99-0a1b2c3d"


step = st.tuples(
    st.integers(0, 7), st.sampled_from(["whole", "more", "gone", "back"]), st.booleans()
)


@given(st.lists(step, max_size=80))
def test_what_is_read_is_what_was_written_last(steps: list[tuple[int, str, bool]]) -> None:
    """Records come, go, and go back to older ones; a write that fails is there, or not."""
    log, said, held, older = ManifestLog(), b"", dict[int, Kept](), dict[int, Kept]()
    reader = ManifestReader()
    for number, (task, what, done) in enumerate(steps, start=1):
        kept = held.get(task)
        if what == "whole" or (what == "more" and kept is None):
            older, held[task] = dict(held), Kept(Epoch(3, 1), number, (name(number),))
        elif what == "more" and kept is not None:
            held[task] = Kept(kept.tenure, number, (*kept.chain, name(number)))
        elif what == "gone":
            held.pop(task, None)
        else:
            held = dict(older)
        data, append = log.next(manifest(held, number))
        if done:
            said = said + data if append else data
            assert Manifest.load(said) == reader.read(said) == manifest(held, number)
        else:
            log.forget()
            said = said + data if append and task % 2 else said  # nobody builds on that
    assert not said or Manifest.load(said)


def test_a_change_costs_what_has_changed_and_a_log_has_an_end() -> None:
    held = {task: Kept(Epoch(3, 1), 1, (name(1),)) for task in range(8)}
    log = ManifestLog()
    data, append = log.next(manifest(held))
    whole = len(data)
    assert not append
    for number in range(2, 2 * CHANGES_MAX):
        held[0] = Kept(Epoch(3, 1), number, (name(number),))
        data, append = log.next(manifest(held, number))
        if not append:
            break
        assert len(data) < whole / 2
    assert number <= CHANGES_MAX + 2


def test_neighbours_with_the_same_records_stand_on_one_line() -> None:
    """1. tasks 0 to 3 share a record, 5 has one  2. tasks 1 and 2 go on together, from what they share,
    and 3 from another  3. each has what it had."""
    first, other = Kept(Epoch(3, 1), 1, (name(1),)), Kept(Epoch(3, 1), 2, (name(2),))
    held, log = {**dict.fromkeys(range(4), first), 5: other}, ManifestLog()
    whole, _ = log.next(manifest(held))
    assert [part in whole for part in (b'"0-3": {', b'"5": {', b'"1": {')] == [True, True, False]
    held.update(dict.fromkeys((1, 2), Kept(Epoch(3, 1), 3, (name(1), name(3)))))
    held[3] = Kept(Epoch(3, 2), 4, (name(4),))
    change, _ = log.next(manifest(held))
    assert b'"1-2": {' in change
    assert Manifest.load(whole + change).records == held


def test_a_log_that_lacks_its_beginning_or_is_broken_is_none() -> None:
    held = {0: Kept(Epoch(3, 1), 1, (name(1),))}
    log = ManifestLog()
    whole, _ = log.next(manifest(held))
    held[0] = Kept(Epoch(3, 1), 2, (name(1), name(2)))
    change, append = log.next(manifest(held))
    assert append
    assert b'"more"' in change
    assert Manifest.load(whole + change).records == held
    for blob in (
        change,
        whole + whole,
        whole + change[:-9],
        whole + change.replace(b'2, "', b'3, "'),
    ):
        with pytest.raises(InputError, match="no manifest"):
            Manifest.load(blob)


def test_who_reads_along_begins_anew_behind_what_cannot_be_read() -> None:
    held, log, reader = {0: Kept(Epoch(3, 1), 1, (name(1),))}, ManifestLog(), ManifestReader()
    whole, _ = log.next(manifest(held))
    held[1] = first = Kept(Epoch(3, 1), 2, (name(2),))
    change, _ = log.next(manifest(held))
    kept = reader.read(whole).records[0]
    assert reader.read(whole + change).records[0] is kept  # that part was not read again
    with pytest.raises(InputError, match="no manifest"):
        reader.read(whole + change + change[:-9])
    assert reader.read(whole + change).records == held == {0: kept, 1: first}
    endless = Manifest(3, 8, (), {**held, 2: first}, {"f": float("inf")}).change(held)  # type: ignore[dict-item]
    with pytest.raises(InputError, match="no manifest"):
        reader.read(whole + change + endless)
    assert reader.read(whole + change).records == held
