"""The autoscaler's decisions, one rule at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
from autoscale_kit import RATE, WORK, made, second, watch

from meander.autoscale import Action, Autoscale, Autoscaler, Season
from meander.errors import InputError


def actions(found: list) -> list[Action]:
    return [decision.action for decision in found]


# --------------------------------------------------------------------------- up


def test_a_step_of_three_times_is_answered_within_five_seconds() -> None:
    autoscaler = made()
    assert watch(autoscaler, [1300.0] * 60, nodes=2) == []
    found = watch(autoscaler, [3900.0] * 5, nodes=2, from_s=60.0)
    assert actions(found[:1]) == [Action.UP]
    assert found[0].nodes_after >= 6
    assert found[0].reasons
    assert found[0].numbers["node_rate_rows_s"] == pytest.approx(RATE)


def test_it_is_the_smallest_number_whose_best_plan_is_within_the_utilisation() -> None:
    autoscaler = made()
    watch(autoscaler, [1300.0] * 60, nodes=2)
    (up, *_) = watch(autoscaler, [1900.0] * 8, nodes=2, from_s=60.0)
    load, share = up.numbers["expected_rows_s"], 1 / up.nodes_after
    assert load * share / RATE <= 0.7 * 1.03
    assert load / (up.nodes_after - 1) / RATE > 0.7


def test_one_second_alone_is_no_reason() -> None:
    assert watch(made(), [1300.0] * 60 + [6000.0] + [1300.0] * 60, nodes=2) == []


def test_a_true_rate_is_rows_over_busy_time() -> None:
    """A node that is full for half of its time and idle for the rest can do twice as much."""
    autoscaler = made()
    seen = second(1.0, 500.0, 1, node_busy=np.array([0.25]))
    for i in range(10):
        autoscaler.observe(second(1.0 + i, 500.0, 1, node_busy=seen.node_busy))
    assert autoscaler.rate == pytest.approx(2000.0)


def test_what_waits_is_worked_off_too() -> None:
    plain, late = made(), made()
    for autoscaler in (plain, late):
        watch(autoscaler, [1300.0] * 60, nodes=2)
    few = watch(plain, [2600.0] * 4, nodes=2, from_s=60.0)[0]
    many = watch(late, [2600.0] * 4, nodes=2, from_s=60.0, waiting_rows=30_000.0)[0]
    assert many.nodes_after > few.nodes_after


def test_a_rescale_under_way_is_replaced_only_by_a_much_larger_one() -> None:
    autoscaler = made()
    watch(autoscaler, [1300.0] * 60, nodes=2)
    assert watch(autoscaler, [2600.0] * 6, nodes=2, from_s=60.0, heading_for=4) == []
    found = watch(autoscaler, [7000.0] * 6, nodes=2, from_s=66.0, heading_for=4)
    assert actions(found[:1]) == [Action.UP]


def test_a_way_down_is_turned_round_when_the_load_comes_back() -> None:
    """Ten nodes serve and five will: what ten are needed for is not answered by those that go."""
    autoscaler = made(1, 32)
    watch(autoscaler, [2000.0] * 60, nodes=10)
    found = watch(autoscaler, [6500.0] * 6, nodes=10, from_s=60.0, heading_for=5)
    assert actions(found[:1]) == [Action.UP]
    assert found[0].when <= 63
    assert found[0].nodes_after >= 9
    calm = made(1, 32)
    watch(calm, [2000.0] * 60, nodes=10)
    assert watch(calm, [2000.0] * 30, nodes=10, from_s=60.0, heading_for=5) == []


@pytest.mark.parametrize("load", [0.0, 1300.0])
def test_fewer_nodes_than_asked_for_are_made_more_whatever_comes(load: float) -> None:
    found = watch(made(4, 12), [load] * 30, nodes=2)
    assert (found[0].action, found[0].nodes_after) == (Action.UP, 4)
    json.dumps(found[0].numbers, allow_nan=False)


def test_it_never_leaves_its_limits() -> None:
    autoscaler = made(2, 4)
    watch(autoscaler, [1300.0] * 60, nodes=2)
    found = watch(autoscaler, [9000.0] * 10, nodes=2, from_s=60.0)
    assert max(d.nodes_after for d in found) == 4
    assert watch(made(2, 4), [0.0] * 100, nodes=2) == []


# --------------------------------------------------------------------------- down, rebalance


def test_nodes_go_after_their_price_and_not_before() -> None:
    autoscaler = made()
    watch(autoscaler, [4000.0] * 60, nodes=6)
    found = watch(autoscaler, [1000.0] * 40, nodes=6, from_s=60.0)
    assert found[0].action is Action.DOWN
    assert found[0].when >= 60 + found[0].numbers["price_s"]
    assert found[0].nodes_after == 3  # no fewer than half at once


def test_nodes_that_nothing_came_to_go_too() -> None:
    found = watch(made(1, 12), [0.0] * 60, nodes=4)
    assert (found[0].action, found[0].nodes_after) == (Action.DOWN, 2)
    assert found[0].numbers["price_s"] > 0
    json.dumps(found[0].numbers, allow_nan=False)
    assert watch(made(1, 12), [1000.0] * 60, nodes=4, node_rows_s=np.zeros(4),
                 node_busy=np.zeros(4), waiting_rows=9000.0) == []  # fmt: skip


def test_nodes_that_worked_off_what_waited_stay_for_their_price() -> None:
    """The load alone needs three: the others were needed too, up to when nothing waited any more."""
    autoscaler = made()
    watch(autoscaler, [1900.0] * 60, nodes=3)
    watch(autoscaler, [1900.0] * 30, nodes=9, from_s=60.0, waiting_rows=30_000.0)
    found = watch(autoscaler, [1900.0] * 60, nodes=9, from_s=90.0)
    assert found[0].action is Action.DOWN
    assert found[0].when >= 90 + found[0].numbers["price_s"] - 1


def test_a_short_dip_is_waited_out() -> None:
    autoscaler = made()
    watch(autoscaler, [4000.0] * 60, nodes=6)
    assert watch(autoscaler, [1000.0] * 8 + [4000.0] * 30, nodes=6, from_s=60.0) == []


def test_nothing_goes_down_while_a_node_is_not_heard() -> None:
    autoscaler = made()
    watch(autoscaler, [4000.0] * 60, nodes=6)
    assert watch(autoscaler, [1000.0] * 60, nodes=6, from_s=60.0, unheard=1) == []


def test_a_bad_split_is_rebalanced_with_as_many_nodes() -> None:
    autoscaler = made()
    found = watch(autoscaler, [2000.0] * 60, nodes=4, busiest_share=0.5)
    assert actions(found) == [Action.REBALANCE, Action.REBALANCE]  # nobody carries it out here
    assert found[0].nodes_after == found[0].nodes_before == 4
    assert found[1].when - found[0].when >= 30


def test_a_split_that_a_loss_has_left_is_looked_at_once_more() -> None:
    """1. busy nodes are rebalanced at once  2. what that left is mended when the work is known."""
    autoscaler = made()
    watch(autoscaler, [2000.0] * 60, nodes=4)
    found = watch(autoscaler, [2000.0] * 5, nodes=4, from_s=60.0, busiest_share=0.7, losses=1)
    assert actions(found) == [Action.REBALANCE]
    found = watch(autoscaler, [2000.0] * 30, nodes=4, from_s=65.0, busiest_share=0.32, losses=1)
    assert actions(found) == [Action.REBALANCE]
    assert 72 <= found[0].when < 75
    even = made()
    watch(even, [2000.0] * 60, nodes=4)
    assert watch(even, [2000.0] * 60, nodes=4, from_s=60.0, losses=1) == []


def test_a_season_lets_nodes_go_at_once_and_asks_for_them_before() -> None:
    day = [500.0] * 100 + [4000.0] * 100
    season = Season.of(day * 2, 1, 200, steps=True)
    autoscaler = made(season=season)
    watch(autoscaler, day * 2, nodes=6)
    assert autoscaler.demand.trusted
    found = watch(autoscaler, day, nodes=1, from_s=400.0)
    assert found[0].action is Action.UP
    assert 490 <= found[0].when < 500


def test_a_season_that_does_not_hold_is_not_believed() -> None:
    season = Season(200.0, (0.2, 1.8), steps=True)
    autoscaler = made(season=season)
    assert watch(autoscaler, [2000.0] * 1000, nodes=3) == []
    assert not autoscaler.demand.trusted


# --------------------------------------------------------------------------- what nodes do not cure


def test_one_heavy_task_is_said_and_not_scaled_for() -> None:
    work = WORK.copy()
    work[7] = 20_000
    autoscaler = made()
    found = watch(autoscaler, [2000.0] * 60, nodes=4, work=work, busiest_share=0.77)
    said = [d for d in found if d.action is Action.CANNOT]
    assert "task 7 alone" in said[0].reasons[0]
    assert not said[0].carried_out
    assert max(d.nodes_after for d in found) <= 12


def test_a_slow_node_is_named() -> None:
    autoscaler = made()
    busy = np.array([0.2, 0.2, 0.2, 0.6])
    found = watch(autoscaler, [800.0] * 30, nodes=4, node_busy=busy)
    assert "node n3" in found[0].reasons[0]
    assert Action.UP not in actions(found)


def test_rows_that_wait_for_no_node_are_the_sources_business() -> None:
    found = watch(made(), [800.0] * 30, nodes=2, waiting_rows=9000.0, behind_s=9.0)
    assert actions(found) == [Action.CANNOT]
    assert "the source" in found[0].reasons[0]


def test_nodes_that_did_not_help_are_not_followed_by_more() -> None:
    """1. two nodes, full  2. four nodes, each half as fast: they share a sink  3. no more come."""
    autoscaler = made()
    watch(autoscaler, [1400.0] * 60, nodes=2)
    assert watch(autoscaler, [2600.0] * 6, nodes=2, from_s=60.0)
    autoscaler.rescaled(66.0, 2.0, 0, 2, 4)
    slow = {"node_rows_s": np.full(4, 480.0), "node_busy": np.full(4, 1.0)}
    found = watch(autoscaler, [2600.0] * 30, nodes=4, from_s=66.0, **slow)
    said = [d for d in found if d.action is Action.CANNOT]
    assert "they share something slow" in said[0].reasons[0]
    assert not [d for d in found if d.action is Action.UP and d.when > said[0].when]


# --------------------------------------------------------------------------- people


def test_a_persons_rescale_wins() -> None:
    autoscaler = made()
    watch(autoscaler, [1300.0] * 60, nodes=2)
    held = autoscaler.hold(60.0, 2, 3)
    assert (held.action, held.nodes_after, held.carried_out) == (Action.HELD, 3, False)
    found = watch(autoscaler, [3900.0] * 6, nodes=3, from_s=60.0)
    assert found
    assert not any(d.carried_out for d in found)


def test_a_dry_run_only_says() -> None:
    autoscaler = made(dry_run=True)
    watch(autoscaler, [1300.0] * 60, nodes=2)
    found = watch(autoscaler, [3900.0] * 6, nodes=2, from_s=60.0)
    assert found[0].action is Action.UP
    assert not found[0].carried_out
    assert "(not carried out)" in str(found[0])


def test_what_would_be_done_is_said_once_a_minute() -> None:
    autoscaler = made(dry_run=True)
    watch(autoscaler, [1300.0] * 60, nodes=2)
    found = watch(autoscaler, [3900.0] * 170, nodes=2, from_s=60.0)
    assert set(actions(found)) == {Action.UP}
    same = [d.when for d in found if d.nodes_after == found[-1].nodes_after]
    assert len(same) in (2, 3)
    assert min(np.diff(same)) >= 60


def test_a_decision_goes_into_json() -> None:
    autoscaler = made()
    watch(autoscaler, [1300.0] * 60, nodes=2)
    (up, *_) = watch(autoscaler, [3900.0] * 6, nodes=2, from_s=60.0)
    told = json.loads(json.dumps(up.to_json()))
    assert told["action"] == "up"
    assert {"when", "nodes_before", "nodes_after", "reasons", "numbers"} <= told.keys()


def test_room_is_asked_for_ahead_where_it_takes_long() -> None:
    autoscaler = Autoscaler(Autoscale((1, 12)), ahead_s=12.0)
    rising = [1000.0 + 20.0 * i for i in range(120)]
    found = watch(autoscaler, rising, nodes=3)
    first = {action: next(d.when for d in found if d.action is action) for action in actions(found)}
    assert first[Action.ASK_AHEAD] < first[Action.UP]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": (0, 3)}, "the fewest and the most"),
        ({"nodes": (3,)}, "the fewest and the most"),
        ({"nodes": (1, 3), "latency_ms": 0}, "latency_ms"),
        ({"nodes": (1, 3), "utilisation": 1.5}, "utilisation"),
        ({"nodes": (1, 3), "pause_ms": -1}, "pause_ms"),
        ({"nodes": (1, 3), "season": "daily"}, "season"),
        ({"nodes": (1, 3), "dry_run": 1}, "dry_run"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Autoscale(**options)
