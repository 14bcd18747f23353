"""Policies of a deployment: by name, and `mtm` with its forecast."""

import numpy as np
import pyarrow as pa
import pytest
from runtime_kit import counted

from meander.errors import InputError
from meander.model import Assignment, Problem, Workload
from meander.operators import WordCount
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.forecast import Forecast, make_forecast
from meander.planning.ahead.mtm import Label, mtm_from_trace
from meander.planning.ahead.policy import mtm_plan
from meander.protocol.master.pacer import PaceLimits
from meander.runtime.driver.local import deploy_local
from meander.runtime.store.forecast_file import write_forecast
from meander.wiring import Planners, carrier

TASKS = 16
LIGHT = Effort(candidates=40, rounds=1, chains=4, steps=10, columns=10, pairs=60)
NOW = Assignment.from_intervals([(0, 9), (9, 16)])


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    mtm = mtm_from_trace([2, 3, 4, 3, 2, 3, 4, 3, 2], "direction")
    return make_forecast(Workload([1] * TASKS, [5] * TASKS), mtm, "2/5", 0.9, 0, effort=LIGHT)


def problem(nodes: int, tau: str = "2/5", current: Assignment = NOW) -> Problem:
    return Problem(Workload([1] * TASKS, [5] * TASKS), current, nodes, tau)


def test_mtm_plans_as_the_forecast_says(forecast):
    found = Planners(TASKS, forecast).plan("mtm", problem(3))
    assert found.policy == "mtm"
    assert found.target == mtm_plan(problem(3), forecast, Label(3, "up")).target


def test_the_last_migration_is_remembered_and_a_preview_is_not(forecast):
    planners = Planners(TASKS, forecast)
    first = planners.plan("mtm", problem(4))
    planners.plan("mtm", problem(2), preview=True)
    assert planners._last == Label(4, "up")
    planners.plan("mtm", problem(3, current=first.target))
    assert planners._last == Label(3, "down")
    planners.plan("mtm", problem(3, current=first.target))
    assert planners._last == Label(3, "down")  # planned again: still the same migration


def test_a_tau_that_cannot_be_met_is_eased(forecast):
    found = Planners(TASKS, forecast).plan("mtm", problem(3, tau="0"))
    assert found.within_caps
    assert found.problem.tau > 0


def test_ahead_expects_the_deployments_own_tau_of_rescales_to_come():
    planners = Planners(TASKS, tau=0.4)
    for hour in range(24 * 20):
        planners.learner.see(3600.0 * hour, 2 + hour % 24 // 8)
    planners.plan("ahead", problem(3, tau="1/10"))
    learnt = planners.learner._ahead
    assert learnt is not None
    assert learnt.pools is not None
    assert max(int(np.diff(np.unique([0, *row])).max()) for row in learnt.pools.rows[2]) > 8


def test_policies_that_cannot_be_are_refused_at_the_call(forecast):
    with pytest.raises(InputError, match="needs a forecast"):
        deploy_local(WordCount(), tasks=TASKS, nodes=2, policy="mtm")
    with pytest.raises(InputError, match="for 16 tasks, but the operator has 64"):
        deploy_local(WordCount(), nodes=2, policy="mtm", forecast=forecast)
    with pytest.raises(InputError, match="unknown policy 'best'"):
        deploy_local(WordCount(), tasks=TASKS, nodes=2, policy="best")


def test_a_deployment_is_rescaled_by_its_forecast(forecast, tmp_path, launcher):
    path = tmp_path / "week.forecast"
    write_forecast(forecast, path)
    options = {"policy": "mtm", "forecast": path, "launcher": launcher}
    with (
        deploy_local(WordCount(), tasks=TASKS, nodes=2, **options) as op,
        op.feeder("words") as feeder,
    ):
        feeder.feed(pa.record_batch({"word": ["to", "be", "or", "not"] * 10}))
        assert op.plan(3).plan.policy == "mtm"
        with pytest.raises(InputError, match="unknown policy"):
            op.rescale(3, policy="best")
        op.rescale(3).wait(60)
        feeder.flush()
        assert counted(op) == dict.fromkeys(["to", "be", "or", "not"], 10)
        assert len(op.driver.nodes()) == 3


def test_transfers_between_two_hosts_share_their_link_and_those_on_a_host_do_not() -> None:
    now = Assignment.from_intervals({"a": (0, 1), "b": (1, 2)})
    then = Assignment.from_intervals({"c": (0, 1), "d": (1, 2)})
    apart = {"a": "h1", "b": "h1", "c": "h2", "d": "h2"}
    found = carrier(now, then, [5, 5], PaceLimits(), apart)
    assert found is not None
    assert found.busiest_bytes == 10
    assert sorted(found.ranks.values()) == [0, 1]
    for hosts in (dict.fromkeys("abcd", "h1"), {}):
        found = carrier(now, then, [5, 5], PaceLimits(), hosts)
        assert found is not None
        assert found.busiest_bytes == 5
        assert sorted(found.ranks.values()) == [0, 0]
    limits = PaceLimits(link_bytes_max=5)
    found = carrier(now, then, [5, 5], limits, apart)
    assert found is not None
    assert len(found.moves) == 1
    found = carrier(now, then, [5, 5], limits, dict.fromkeys("abcd", "h1"))
    assert found is not None
    assert len(found.moves) == 2
