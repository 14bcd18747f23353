"""Totals never fall, whatever becomes of nodes."""

from __future__ import annotations

from meander.runtime.driver.totals import Totals, summed_up
from meander.runtime.process.metrics import Histogram


def rows(totals: Totals) -> int:
    return int(totals.total()["rows"])


def test_a_node_that_goes_stays_in_the_sum_with_its_newest_word() -> None:
    """1. beats  2. a successor beats, too  3. the first ends, with last words  4. late words of it."""
    totals = Totals()
    totals.hear("n1", 1, {"rows": 5, "not a measure": 1})
    totals.hear("n1", 1, {"rows": 7})
    totals.hear("n1", 2, {"rows": 10})
    assert rows(totals) == 17
    totals.end("n1", 1, {"rows": 8})
    assert rows(totals) == 18
    totals.hear("n1", 1, {"rows": 99})
    totals.end("n1", 1, {"rows": 99})
    assert rows(totals) == 18
    totals.end("n1", 2, {})
    assert rows(totals) == 18


def test_histograms_are_added_and_summed_up() -> None:
    totals, part = Totals(), Histogram()
    part.record(1000, 3)
    totals.hear("n1", 1, {"latency": part.dump()})
    totals.end("n2", 1, {"latency": part.dump()})
    found = summed_up(totals.total())
    assert found["latency"]["count"] == 6
    assert found["waited"]["count"] == 0
