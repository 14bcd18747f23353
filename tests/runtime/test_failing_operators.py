"""An operator that raises is named, with what it raised, wherever somebody waits."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from failing_operators import Diary, Fragile, Sleeps
from runtime_kit import doomed, until

from meander.errors import OperatorError, OperatorRefusedError, QueryError
from meander.runtime.clients.driver_client import DriverClient, pack
from meander.runtime.clients.query import QueryClient, new_attempt
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import live_settings

WORDS = pa.record_batch({"word": [f"word{i}" for i in range(40)]}, schema=Fragile.schema)
WAIT_S = 30.0
"""Long enough for a busy machine, and shorter than any patience of the product's own."""


METHODS = {
    "process": "LookupError: boom",
    "on_timer": "LookupError: boom",
    "dump": "dump: LookupError: boom",
    "dump type": "dump: it gave a",
    "load": "load: LookupError: boom",
    "size": "size: LookupError: boom",
    "size type": "size: TypeError",
}


def move_until_it_fails(op: ElasticOperator) -> None:
    """Move to and fro: sizes are asked for once a second, and one move may be over before."""
    for step in range(200):
        op.rescale(2 - step % 2).wait(WAIT_S)


@pytest.mark.parametrize("checkpoint", [False, True], ids=["plain", "checkpoint"])
@pytest.mark.parametrize("method", METHODS)
def test_whoever_waits_hears_what_the_operator_raised(
    method: str, checkpoint: bool, launcher: WarmLauncher, tmp_path: Path
) -> None:
    directory = str(tmp_path) if checkpoint else None
    op = deploy_local(Fragile(method), tasks=4, nodes=1, launcher=launcher, checkpoint=directory)
    named = rf"Fragile failed in task \d.*{METHODS[method]}"
    with doomed(op):
        feeder = op.feeder("words")
        feeder.wait_ready()
        feeder.feed(WORDS)
        with suppress(OperatorError):  # with some methods only a move makes it fail
            feeder.flush(timeout_s=WAIT_S)
        with pytest.raises(OperatorError, match=named):
            move_until_it_fails(op)
        with pytest.raises(OperatorError, match=named):
            feeder.flush(timeout_s=WAIT_S)
        with pytest.raises(OperatorError, match=named):
            feeder.close(WAIT_S)
        with pytest.raises(OperatorError, match=named):
            op.state(WAIT_S)
        with pytest.raises(OperatorError, match=named):
            op.rescale(1)
        assert "boom" in op.status()["failure"] or "type" in method


def test_whoever_reads_a_state_hears_that_it_cannot_be_dumped(launcher: WarmLauncher) -> None:
    with doomed(deploy_local(Fragile("dump"), tasks=4, nodes=1, launcher=launcher)) as op:
        feeder = op.feeder("words")
        feeder.feed(WORDS)
        feeder.flush(timeout_s=WAIT_S)
        with pytest.raises(OperatorError, match="dump: LookupError: boom"):
            op.state(WAIT_S)


def test_a_node_whose_operator_takes_long_keeps_its_lease(launcher: WarmLauncher) -> None:
    settings = live_settings(1, beat_s=0.2, lease_s=1.0, lease_margin=1.25)
    operator = Sleeps(4.0)
    with deploy_local(operator, tasks=1, nodes=1, launcher=launcher, settings=settings) as op:
        feeder = op.feeder("words")
        feeder.feed(WORDS)
        feeder.close(WAIT_S)
        until(lambda: op.state(WAIT_S).num_rows == WORDS.num_rows)
        assert [e.name for e in op.driver.exits if e.kind == "node"] == []
        assert op.driver.lost_tasks == set()


@pytest.mark.parametrize("checkpoint", [False, True], ids=["plain", "checkpoint"])
def test_a_query_hears_what_the_operator_raised(
    checkpoint: bool, launcher: WarmLauncher, tmp_path: Path
) -> None:
    """Not that rows were lost and it should start again: it would run into the same for ever."""
    directory = str(tmp_path) if checkpoint else None
    op = deploy_local(Fragile("process"), tasks=4, nodes=1, launcher=launcher, checkpoint=directory)
    with doomed(op):
        desk = DriverClient(op.address, op.driver.issue("query"))
        with QueryClient(desk.about(), op.address, op.driver.issue("query")) as client:
            parts = client.write("q", 0, 0, new_attempt(), [WORDS])
            request = {"query": "q", "batch": 0, "parts": pack(parts)}
            with pytest.raises(OperatorRefusedError, match="LookupError: boom"):
                until(lambda: "lost" in desk.ask("commit", request), WAIT_S)
            with pytest.raises(QueryError, match="LookupError: boom"):
                client.write("q", 1, 0, new_attempt(), [WORDS])
            with pytest.raises(OperatorRefusedError, match="LookupError: boom"):
                desk.ask("owners")


def test_an_operator_is_opened_frozen_and_closed(launcher: WarmLauncher, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with deploy_local(Diary(str(diary)), tasks=2, nodes=2, launcher=launcher) as op:
        feeder = op.feeder("words")
        feeder.feed(WORDS)
        feeder.close(WAIT_S)
        op.rescale(1).wait(WAIT_S)
        assert op.state(WAIT_S).num_rows == WORDS.num_rows
    said = Counter(diary.read_text().split())
    assert said == {"open": 2, "freeze": 1, "close": 2}
