"""The autoscaler with real processes: it is switched on, decides, rescales, and gives way to people."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meander
from meander.autoscale import Action, Autoscale
from meander.errors import InputError
from meander.model import Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.forecast import make_forecast
from meander.planning.ahead.mtm import mtm_from_trace
from meander.runtime.driver.autoscaling import NEWS
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander_lab.autoscale.slow import SlowCount

WORDS = np.array([f"word{i}" for i in range(500)])
PIECE_S = 0.02
EVENTS_MAX = 120.0
"""Seconds until something must have been decided: far more than it takes."""


class Stream:
    """Words at a rate that can change, as they are due."""

    def __init__(self, op: ElasticOperator) -> None:
        self.op, self.counts, self.rate = op, Counter[str](), 600
        self._random = np.random.default_rng(1)

    def flow(self, feeder: Any, until: Any, seconds_max: float) -> bool:
        """Feed until something holds; tell whether it does."""
        began, piece = time.time(), 0
        while not until() and piece * PIECE_S < seconds_max:
            due_s = began + piece * PIECE_S
            if (left := due_s - time.time()) > 0:
                time.sleep(left)
            words = WORDS[self._random.integers(0, len(WORDS), int(self.rate * PIECE_S))]
            self.counts.update(words.tolist())
            feeder.feed(pa.record_batch({"word": words}), due_s=due_s)
            piece += 1
        return bool(until())

    def acted(self, action: Action) -> bool:
        return any(decision.action is action for decision in self.op.decisions())


def test_a_step_is_answered_and_every_count_is_right(launcher: WarmLauncher) -> None:
    """1. a load for one node  2. three times as much  3. more nodes come  4. all is counted once."""
    told = []
    with meander.deploy_local(
        SlowCount(0.001), 16, 1, launcher=launcher, autoscale=Autoscale((1, 4)),
        tell=lambda what, facts: told.append((what, facts)),
    ) as op:  # fmt: skip
        stream = Stream(op)
        with op.feeder() as feeder:
            stream.flow(feeder, lambda: op.driver.core.autoscaling.signals is not None, 60.0)
            stream.flow(feeder, lambda: False, 6.0)
            stream.rate = 1800
            assert stream.flow(feeder, lambda: stream.acted(Action.UP), EVENTS_MAX)
            assert stream.flow(feeder, lambda: len(op.driver.nodes()) > 1, EVENTS_MAX)
        table = op.state_table()
        found = dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
        assert found == dict(stream.counts)
        up = next(d for d in op.decisions() if d.action is Action.UP)
        assert up.carried_out
        assert up.reasons
        assert 300 < up.numbers["node_rate_rows_s"] < 1100
        assert (NEWS, up.to_json()) in told
        assert up.to_json() in [facts for _, what, facts in op.driver.events if what == NEWS]


def test_people_win_and_can_switch_it(launcher: WarmLauncher) -> None:
    with meander.deploy_local(meander.WordCount(), 8, 2, launcher=launcher) as op:
        assert op.decisions() == []
        op.autoscale(Autoscale((2, 4)))
        op.autoscale(utilisation=0.5)
        scaling = op.driver.core.autoscaling
        assert scaling.options == Autoscale((2, 4), utilisation=0.5)
        op.rescale(1, pause_ms=100).wait(60)
        (held,) = op.decisions()
        assert (held.action, held.nodes_before, held.nodes_after) == (Action.HELD, 2, 1)
        time.sleep(2.5)  # it would go back to 2, and only says so
        assert len(op.driver.nodes()) == 1
        op.autoscale(None)
        assert scaling.options is None
        with pytest.raises(InputError, match="more than the 8 tasks"):
            op.autoscale(nodes=(1, 9))
        with pytest.raises(InputError, match="options are nodes"):
            op.autoscale(node=(1, 2))


def test_it_goes_to_the_fewest_that_are_asked_for(launcher: WarmLauncher) -> None:
    with meander.deploy_local(SlowCount(0.001), 8, 1, launcher=launcher) as op:
        op.autoscale(nodes=(2, 4))
        stream = Stream(op)
        with op.feeder() as feeder:
            assert stream.flow(feeder, lambda: len(op.driver.nodes()) == 2, EVENTS_MAX)
        assert op.decisions()[0].reasons == ("at least 2 nodes are asked for",)
        rescaling = op.driver.rescales.of(1)
        assert rescaling is not None
        told = (rescaling.by, rescaling.why)
        assert told == ("the autoscaler", "at least 2 nodes are asked for")


def test_with_a_forecast_it_plans_with_that(launcher: WarmLauncher) -> None:
    mtm = mtm_from_trace([1, 2, 3, 2, 1, 2, 3, 2, 1], "direction")
    light = Effort(candidates=20, rounds=1, chains=2, steps=5, columns=5, pairs=30)
    forecast = make_forecast(Workload([1] * 8, [5] * 8), mtm, "2/5", 0.9, 0, effort=light)
    with meander.deploy_local(
        SlowCount(0.001), 8, 1, launcher=launcher, forecast=forecast, autoscale=Autoscale((2, 4))
    ) as op:
        stream = Stream(op)
        with op.feeder() as feeder:
            assert stream.flow(feeder, lambda: len(op.driver.nodes()) == 2, EVENTS_MAX)
        assert op.driver.core.policy == "mtm"
        assert sum(op.state_table()["count"].to_pylist()) == sum(stream.counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--kills", "2"), ("--standalone",)], ids=" ".join)
def test_the_busiest_hour_in_half_a_minute_is_counted_right(more: tuple[str, ...]) -> None:
    """In a process of its own, as people run it: nodes are killed, or executors come."""
    program = "import sys; from meander.cli.main import main; sys.exit(main())"
    order = ["bench", "autoscale-live", "--seconds", "30", "--json", *more]
    done = subprocess.run(
        [sys.executable, "-c", program, *order], stdout=subprocess.PIPE, timeout=400, check=True
    )
    found = json.loads(done.stdout)
    assert found["exact"]
    assert found["rescales"]
    assert (max(found["executors"]) > 0) == ("--standalone" in more)
