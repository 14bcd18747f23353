"""Demand, split, rental and the meter, each against something simpler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meander.autoscale.demand import Demand, SeasonalDemand
from meander.autoscale.rental import Rental
from meander.autoscale.season import Season
from meander.autoscale.signals import FeederHeard, Heard, Meter, NodeHeard
from meander.autoscale.split import Split
from meander.errors import InputError
from meander_lab.cli.bench_autoscale import recorded


@pytest.mark.parametrize("seed", range(20))
def test_the_busiest_share_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    work = rng.integers(0, 30, 9)
    weights = [int(w) + 1 for w in work]

    def least(first: int, nodes: int) -> int:
        if nodes == 1:
            return sum(weights[first:])
        ways = (
            max(sum(weights[first:cut]), least(cut, nodes - 1)) for cut in range(first, 10)
        )  # an interval may be empty
        return min(ways)

    split = Split(work)
    for nodes in range(1, 6):
        assert split.share(nodes) == pytest.approx(least(0, nodes) / sum(weights))
        room = split.share(nodes) * 1000
        assert split.smallest(1000, room, 1, 9) <= nodes


@pytest.mark.parametrize("seed", range(50))
def test_the_rental_costs_at_most_twice_the_best_in_hindsight(seed: int) -> None:
    """Random needs; the best in hindsight by dynamic programming, gap by gap a ski-rental."""
    rng = np.random.default_rng(seed)
    price = float(rng.integers(1, 20))
    needs = np.repeat(rng.integers(1, 9, 60), rng.integers(1, 30, 60))
    rental, nodes, ours = Rental(), int(needs[0]), 0.0
    for second, need in enumerate(needs.tolist()):
        rental.note(second, need)
        enough = rental.enough(second, price)
        before, nodes = nodes, max(need, min(nodes, enough if enough is not None else nodes))
        ours += nodes + price * max(0, nodes - before)
    from meander_lab.autoscale.clairvoyant import cheapest

    best, _ = cheapest(needs, 1, 8, price / 2)  # a node that goes and comes back is paid once
    assert ours <= 2 * best + price * 8


def test_the_largest_need_of_the_last_seconds_is_exact() -> None:
    rng = np.random.default_rng(3)
    rental, needs = Rental(), rng.integers(1, 50, 400).tolist()
    for second, need in enumerate(needs):
        rental.note(second, need)
        for price in (1, 7, 30):
            expected = max(needs[second - price : second + 1]) if second >= price else None
            assert rental.enough(second, price) == expected


def test_a_slope_is_followed_without_lag() -> None:
    demand = Demand()
    for second in range(400):
        demand.observe(second, 1000 + 5.0 * second)
    assert demand.expect(10.0).rows_s == pytest.approx(1000 + 5 * 409, rel=0.02)


def test_the_error_covers_what_is_expected() -> None:
    off = []
    for seed in range(40):
        rng, demand = np.random.default_rng(seed), Demand()
        for second in range(300):
            demand.observe(second, 1000 * float(rng.normal(1, 0.2)))
        found = demand.expect(4.0)
        off.append((found.rows_s - 1000) / found.error)
    assert np.std(off) < 1.5
    assert np.max(np.abs(off)) < 4.5


def test_noise_is_that_of_seconds_and_not_of_a_slope() -> None:
    rng, demand = np.random.default_rng(1), Demand()
    for second in range(600):
        demand.observe(second, (1000 + 10 * second) * float(rng.normal(1, 0.05)))
    assert demand.noise == pytest.approx(0.05, rel=0.4)


def test_a_season_is_trusted_when_it_helps() -> None:
    wave = [1000 + 800 * np.sin(2 * np.pi * s / 600) for s in range(600)]
    demand = SeasonalDemand(Season.of(wave, 1, 600))
    for second in range(1200):
        demand.observe(second + 1, wave[second % 600])
    assert demand.trusted
    assert demand.expect(60.0).rows_s == pytest.approx(wave[60], rel=0.05)


def test_a_season_needs_a_whole_period() -> None:
    with pytest.raises(InputError, match="not one whole period"):
        Season.of([1.0] * 10, 60, 3600)


# --------------------------------------------------------------------------- the meter


def heard(at_s: float, node: NodeHeard | None, feeder: FeederHeard) -> Heard:
    nodes = {} if node is None else {"n1": node}
    one = np.ones(1, np.int64)
    return Heard(at_s, nodes, {"f": feeder}, ["n1"], one, one, ["n1"])


def test_a_true_rate_and_the_offered_load_are_read_off_counters() -> None:
    meter = Meter()
    meter.read(heard(0.0, NodeHeard(0.0, 0, 0.0), FeederHeard(0.0, 0, 0, 0.0, 0.0, True)))
    seen = meter.read(
        heard(1.0, NodeHeard(1.0, 500, 0.25), FeederHeard(1.0, 600, 100, 1.0, 0.0, True))
    )
    assert seen.node_rows_s.tolist() == [500.0]
    assert seen.node_busy.tolist() == [0.25]
    assert (seen.offered_rows_s, seen.waiting_rows, seen.unheard) == (600.0, 100.0, 0)


def test_a_feeder_that_is_held_back_hides_nothing() -> None:
    """It gets rid of 1,000 rows in a second; they were due within a quarter of one."""
    meter = Meter()
    node = NodeHeard(0.0, 0, 0.0)
    meter.read(heard(0.0, node, FeederHeard(0.0, 0, 0, 0.0, 0.0, True)))
    seen = meter.read(
        heard(1.0, NodeHeard(1.0, 1000, 1.0), FeederHeard(1.0, 1000, 50, 0.25, 0.75, True))
    )
    assert seen.offered_rows_s == 4000.0
    assert seen.behind_s == 0.75
    assert seen.waiting_rows == 50 + 4000 * 0.75


def test_a_source_without_due_times_that_is_held_back_offers_more_than_it_gives() -> None:
    meter = Meter()
    meter.read(heard(0.0, NodeHeard(0.0, 0, 0.0), FeederHeard(0.0, 0, 0, 0.0, 0.0, False)))
    seen = meter.read(
        heard(1.0, NodeHeard(1.0, 1000, 1.0), FeederHeard(1.0, 1000, 0, 1.0, 0.9, False))
    )
    assert seen.offered_rows_s == 1500.0


def test_a_node_that_is_silent_is_not_known() -> None:
    meter = Meter()
    feeder = FeederHeard(0.0, 0, 0, 0.0, 0.0, True)
    meter.read(heard(0.0, NodeHeard(0.0, 0, 0.0), feeder))
    meter.read(heard(1.0, NodeHeard(1.0, 100, 0.5), feeder))
    assert meter.read(heard(9.0, NodeHeard(1.0, 100, 0.5), feeder)).unheard == 1
    assert meter.read(heard(10.0, None, feeder)).unheard == 1


def test_a_folder_without_recorded_loads_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no volumes\.parquet"):
        recorded(tmp_path)
