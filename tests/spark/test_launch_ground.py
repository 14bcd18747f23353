"""The ground that nodes stand on: what is refused, what is only remarked, what is sent along."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander.spark.cluster import executors, ship
from meander.spark.cluster import session_check as ground


def test_too_few_slots_are_counted(spark: SparkSession) -> None:
    assert ground.check(spark, 4).slots == 6
    with pytest.raises(InputError, match="it has 6 slots and 10 are needed: 8 nodes"):
        ground.check(spark, 8)


def test_all_that_is_wrong_comes_in_one_message(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {
        "spark.speculation": "true",
        "spark.python.worker.idleTimeoutSeconds": "60",
        "spark.python.worker.killOnIdleTimeout": "true",
    }
    facts = ground._facts(spark.sparkContext.getConf())
    monkeypatch.setattr(ground, "_facts", lambda _: {**facts, **bad})
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(InputError) as caught:
        ground.check(spark, 8)
    lines = str(caught.value).splitlines()
    assert lines[0] == "this session cannot carry 8 nodes:"
    for word in ("speculation", "idleTimeoutSeconds is 60", "PYSPARK_PIN_THREAD", "6 slots"):
        assert sum(word in line for line in lines[1:]) == 1


def test_dynamic_allocation_must_be_able_to_grow_enough() -> None:
    facts = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.cores": "4",
        "spark.task.cpus": "2",
    }
    assert ground._slots_at_most(facts) == 4
    (told,) = ground._too_few(4, 6, 4, 1, facts)
    assert "4 slots (spark.task.cpus is 2)" in told
    assert "raise spark.dynamicAllocation.maxExecutors" in told


@pytest.mark.parametrize(("more", "asked"), [(1, []), (2, [1]), (4, [2])])
def test_executors_are_requested_for_the_slots_that_are_missing(
    more: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two executors of two slots, three in use: one more node has its place already."""
    there = [executors.Executor(f"{i}", "h", "h", 1, 2, used) for i, used in enumerate((2, 1))]
    monkeypatch.setattr(executors, "executors", lambda _: there)
    context = Mock()
    executors.ask_for_slots(context, more)
    assert [c.args[0] for c in context._jsc.sc().requestExecutors.call_args_list] == asked


def test_an_executor_that_is_just_coming_is_listed_when_it_can_be_reached() -> None:
    context = Mock()
    inner = context._jsc.sc()
    inner.taskScheduler().runningTasksByExecutors().contains.return_value = False
    inner.conf().get.return_value = "1"
    coming, there = (Mock(**{"hostPort.return_value": at}) for at in ("10.0.0.7", "10.0.0.7:4040"))
    for name, summary in (("1", coming), ("2", there)):
        summary.totalCores.return_value, summary.id.return_value = 2, name
    listed = inner.statusStore().executorList(True).iterator()
    listed.hasNext.side_effect, listed.next.side_effect = [True, True, False], [coming, there]
    (found,) = executors.executors(context)
    assert (found.name, found.address, found.port, found.slots) == ("2", "10.0.0.7", 4040, 2)


def test_a_session_of_the_user_is_told_once_what_it_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (daemon, once) = ground.remarks({"spark.master": "local[4]"})
    assert "spark.python.daemon.module=meander.spark.cluster.daemon" in daemon
    assert "local[4,4]" in once
    for _ in range(2):
        ground._say("app-1", daemon)
    assert len(caplog.records) == 1


def test_a_stopped_session_is_refused() -> None:
    class Stopped:
        class sparkContext:  # noqa: N801 - Spark's name
            _jsc = None

    with pytest.raises(InputError, match="was stopped"):
        ground.check(Stopped, 1)  # type: ignore[arg-type]


def test_an_executor_that_has_the_package_is_sent_nothing(spark: SparkSession) -> None:
    assert ship.equip(spark.sparkContext) is False


def test_other_versions_are_refused_by_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One executor of several is enough."""
    here = ship._looker()()
    monkeypatch.setattr(ship, "_ask", lambda _: [here, {**here, "numpy": "1.0", "numba": ""}])
    with pytest.raises(InputError, match=r"numpy: 1\.0 \(the driver has") as caught:
        ship.equip(spark.sparkContext)
    assert "numba: missing" in str(caught.value)


def test_the_zip_of_the_package_can_be_imported_without_an_installation() -> None:
    archive = ship.zip_package()
    code = (
        f"import sys; sys.path = [p for p in sys.path if not p.endswith('src')]; "
        f"sys.path.insert(0, {str(archive)!r}); import meander.spark.deploy.jobs; "
        "import meander.operators as o; import pyarrow as pa; "
        "o.tokenise(pa.array(['a b'])); print(o.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(archive)), done.stderr
