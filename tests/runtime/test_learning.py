"""A deployment learns from its own days, and remembers them in its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime_kit import until

from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local


def slots(op: ElasticOperator) -> int:
    return op.driver.deployment.planners.learner.slots


def test_what_is_learnt_outlives_the_driver(tmp_path: Path) -> None:
    """A slot is a second here."""
    with deploy_local(
        WordCount(), tasks=16, nodes=2, policy="ahead", slot_s=1.0, checkpoint=tmp_path
    ) as op:
        until(lambda: slots(op) >= 2)
        until(lambda: len(op.driver.master.archive.learnt.get("need", ())) >= 2)
        op.rescale(3).wait(60.0)
        assert op.plan(2).plan.policy == "ahead"
        learnt = dict(op.driver.master.archive.learnt)
    with deploy_local(
        WordCount(), tasks=16, nodes=2, policy="ahead", slot_s=1.0, checkpoint=tmp_path
    ) as op:
        until(lambda: slots(op) > len(learnt["need"]))
        assert op.driver.deployment.planners.learner.facts()["first"] == learnt["first"]
        assert op.driver.deployment.planners.learner.facts()["need"][:2] == learnt["need"][:2]


def test_a_day_has_a_whole_number_of_slots() -> None:
    with pytest.raises(InputError, match="slot_s divides a day"):
        deploy_local(WordCount(), tasks=4, nodes=1, slot_s=7000.0)
