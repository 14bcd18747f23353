"""Deployments that begin with a state from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime_kit import counted
from time_operators import Punctual

import meander
from meander.errors import InputError, QueryError
from meander.operators import Distinct, Topology, WordCount
from meander.operators.base import Operator
from meander.runtime.driver import initial
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local

WORDS = pa.table({"word": [f"w{i}" for i in range(500)], "count": list(range(1, 501))})
COUNTS = dict(zip(*WORDS.to_pydict().values(), strict=True))


def test_it_goes_on_from_there_across_rescales_and_restarts(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"launcher": launcher, "checkpoint": tmp_path}
    with deploy_local(WordCount(), 8, 1, initial_state=WORDS, **options) as op:
        with op.feeder() as feeder:
            feeder.feed([{"word": "w7"}, {"word": "new"}])
            op.rescale(2, pause_ms=100).wait(60)
        assert counted(op) == COUNTS | {"w7": 9, "new": 1}
    other = [{"word": "never", "count": 1}]
    with deploy_local(WordCount(), 8, 2, initial_state=other, **options) as op:
        assert counted(op) == COUNTS | {"w7": 9, "new": 1}  # the checkpoint goes before


def test_a_driver_that_ended_on_the_way_is_followed_by_one_that_writes_it_again(
    launcher: WarmLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"launcher": launcher, "checkpoint": tmp_path}

    def dies(driver: Any) -> None:
        initial.write_here(driver)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("meander.runtime.driver.local.write_here", dies)
        with pytest.raises(KeyboardInterrupt):
            deploy_local(WordCount(), 8, 1, initial_state=WORDS, **options)
    assert (tmp_path / initial.FILE).read_bytes() == initial.BEGUN
    with pytest.raises(QueryError, match="rows"):  # not the same rows
        deploy_local(WordCount(), 8, 1, initial_state=WORDS.slice(1), **options)
    with deploy_local(WordCount(), 8, 1, initial_state=WORDS, **options) as op:
        assert counted(op) == COUNTS
    assert (tmp_path / initial.FILE).read_bytes() == initial.DONE


def test_a_checkpoint_that_began_without_one_gets_none(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"launcher": launcher, "checkpoint": tmp_path}
    with deploy_local(WordCount(), 4, 1, **options) as op, op.feeder() as feeder:
        feeder.feed([{"word": "to"}])
    with deploy_local(WordCount(), 4, 1, initial_state=WORDS, **options) as op:
        assert counted(op) == {"to": 1}


def test_known_keys_are_a_state_too(launcher: WarmLauncher) -> None:
    operator, rows = Distinct(pa.schema({"k": pa.string()}), ["k"]), [{"k": "a", "#seen": 1}]
    with (
        meander.deploy_local(operator, 4, 1, launcher=launcher, initial_state=rows) as op,
        op.feeder() as feeder,
    ):
        feeder.feed([{"k": "a"}, {"k": "b"}])
        feeder.flush()
        assert op.outputs()["k"].to_pylist() == ["b"]  # nothing was emitted for what it began with


class Plain(Operator[dict[str, int]]):
    schema, keys = pa.schema({"k": pa.string()}), ("k",)

    def create(self, context: Any) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Any) -> None:
        pass

    def dump(self, state: dict[str, int]) -> list[Any]:
        return []

    def load(self, batches: Any, context: Any) -> dict[str, int]:
        return {}

    def size(self, state: dict[str, int]) -> int:
        return 0


def test_what_takes_none_says_so_before_anything_starts() -> None:
    with pytest.raises(InputError, match="Plain takes no initial state"):
        deploy_local(Plain(), 4, 1, initial_state=WORDS)
    several = Topology({"a": WordCount(), "b": WordCount()}, tasks=4)
    with pytest.raises(InputError, match="a topology takes no initial state"):
        deploy_local(several, initial_state=WORDS)
    with pytest.raises(InputError, match="no key column 'word'"):
        deploy_local(WordCount(), 4, 1, initial_state=[{"count": 1}])


def test_a_state_without_rows_has_its_watermark_all_the_same(launcher: WarmLauncher) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    none = pa.table({"user": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    given: dict[str, Any] = {"initial_state": none, "initial_watermark": at}
    with deploy_local(Punctual(), 4, 1, launcher=launcher, **given) as op, op.feeder() as feeder:
        moments = [at + timedelta(seconds=s) for s in (-1, 0, 1)]
        rows = [
            {"user": f"u{i}", "at": m.replace(tzinfo=None), "n": 1} for i, m in enumerate(moments)
        ]
        feeder.feed(rows)
        feeder.flush()
        assert op.metrics()["late_rows"] == 2
