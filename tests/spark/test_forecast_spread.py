"""The same projected costs on Spark as in one process."""

import numpy as np
import pytest

from meander.model import Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.forecast import make_forecast
from meander.planning.ahead.mdp import Model
from meander.planning.ahead.mtm import mtm_from_trace
from meander.planning.ahead.pmc import Choices, Frontier, improve, solve
from meander.planning.exact.partitions import Family
from meander.spark.pipeline import forecast as on_spark
from meander.spark.pipeline.forecast import Spread

TRACE = [3, 4, 5, 6, 5, 4, 3, 4, 5, 6, 4, 3, 5, 6, 5, 3, 4, 6, 5, 4, 3]


@pytest.fixture
def spread(spark, monkeypatch):
    monkeypatch.setattr(on_spark, "ROWS_MIN", 16)  # so that a small model is spread too
    made = Spread(spark)
    yield made
    made.close()


def model() -> Model:
    load = Workload(np.arange(14) % 4 + 5, np.arange(14) % 3 + 1)
    mtm = mtm_from_trace(TRACE, "direction")
    return Model.of(load, mtm, 0.8, Family.exact(load, mtm.nodes, "2/5"))


def test_a_sweep_on_spark_gives_the_choices_of_one_process(spread):
    it = model()
    rows, wanted = it.family.ends, it.next_labels[it.family.set_of_row]
    frontier = Frontier.of(it, np.linspace(0, 1, int(it.value_from[-1])))
    here, there = (Choices.empty(len(rows), it) for _ in range(2))
    seen = improve(it, frontier, rows, wanted, here)
    assert spread(it, frontier, rows, wanted, there) == seen
    assert np.array_equal(here.choice, there.choice)
    assert np.array_equal(here.cost, there.cost)


def test_projected_costs_on_spark_equal_those_of_one_process(spread):
    it = model()
    assert np.allclose(solve(it, sweep=spread).value, solve(it).value, atol=1e-8)


def test_candidates_grown_on_spark_are_those_of_one_process(spread):
    load, mtm = Workload([1] * 20, [1] * 20), mtm_from_trace(TRACE)
    effort = Effort(candidates=60, rounds=2, chains=6, steps=15, columns=20, pairs=60)
    made = [
        make_forecast(load, mtm, "2/5", 0.8, method="candidates", effort=effort, sweep=sweep)
        for sweep in (improve, spread)
    ]
    assert np.array_equal(made[0].model.family.ends, made[1].model.family.ends)
    assert np.allclose(made[0].value, made[1].value)
