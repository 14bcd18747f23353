"""Partitioned sources: shared among processes, re-shared, lost, with partitions that come later."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from runtime_kit import counted, until

from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.reached import reached
from meander.runtime.process.source import Given, SourceRows

ROWS = 400


@dataclass(frozen=True)
class Numbered:
    """Partitions as a file names them; row k of each is always the same, and is cut off anyhow."""

    names: Path
    pause_s: float = 0.002

    def check(self) -> None:
        if not self.names.exists():
            raise InputError(f"{self.names} names no partitions")

    def partitions(self) -> Sequence[str]:
        return self.names.read_text().split()

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        assert schema.names == ["word"]
        drawn = random.Random()  # otherwise in every life
        at = after + 1
        while at < ROWS:
            upto = min(ROWS, at + drawn.randint(1, 30))
            rows = pa.record_batch({"word": [word(partition, k) for k in range(at, upto)]})
            yield SourceRows(np.arange(at, upto), rows, np.full(upto - at, time.time()))
            yield None
            time.sleep(self.pause_s)
            at = upto


def word(partition: str, k: int) -> str:
    return f"{partition}-{k % 7}" if k % 3 else f"all-{k % 5}"


def wanted(partitions: Sequence[str]) -> Counter[str]:
    return Counter(word(partition, k) for partition in partitions for k in range(ROWS))


@pytest.fixture(scope="module")
def launcher() -> Iterator[WarmLauncher]:
    with WarmLauncher() as shared:
        yield shared


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names"
    path.write_text("a b c d e")
    return path


def test_partitions_are_shared_and_every_row_counts_once(
    launcher: WarmLauncher, names: Path
) -> None:
    with deploy_local(WordCount(), 8, 2, launcher=launcher) as op:
        source = op.source("rows", Numbered(names), tasks=2)
        source.wait(60)
        assert source.ended is not None
        assert source.ended.clean
        assert counted(op) == wanted("abcde")
        assert op.source("rows", Numbered(names), tasks=3).wait(60).clean  # all is there by now
        assert counted(op) == wanted("abcde")


def test_a_source_that_finishes_leaves_no_row_on_its_way_and_goes_on_from_there(
    launcher: WarmLauncher, names: Path
) -> None:
    with deploy_local(WordCount(), 8, 2, launcher=launcher) as op:
        source = op.source("rows", Numbered(names, pause_s=0.02), tasks=2)
        until(lambda: op.metrics()["rows"] > 200)
        assert source.finish(30).clean
        told = reached(op.driver, range(8)).feeders
        assert set(told) == {f"rows/{name}" for name in "abcde"}
        assert sum(told.values()) < 5 * (ROWS - 1)
        upto = Counter[str]()
        for name, at in told.items():
            partition = name.partition("/")[2]
            upto.update(word(partition, k) for k in range(at + 1))
        assert counted(op) == upto  # all rows up to the offsets, and none behind them
        assert op.source("rows", Numbered(names), tasks=1).wait(60).clean
        assert counted(op) == wanted("abcde")


def test_a_row_counts_once_whoever_is_killed_and_however_partitions_are_shared_anew(
    launcher: WarmLauncher, names: Path, tmp_path: Path
) -> None:
    with deploy_local(
        WordCount(), 8, 2, launcher=launcher, checkpoint=tmp_path / "kept", checkpoint_s=0.05
    ) as op:
        source = op.source("rows", Numbered(names, 0.02), tasks=2)
        until(lambda: op.metrics()["rows"] > 200)
        os.kill(pid_of(launcher, "rows#1"), signal.SIGKILL)
        until(lambda: source.restarts == 1)
        until(lambda: op.metrics()["rows"] > 500)
        source.rescale(3)
        until(lambda: op.metrics()["rows"] > 800)
        os.kill(next(pid for (name, _), pid in launcher.pids.items() if name[0] == "n"), 9)
        names.write_text("a b c d e f")
        source.rescale(1)
        source.wait(90)
        assert counted(op) == wanted("abcdef")


def test_a_partition_that_comes_while_others_flow_is_found(
    launcher: WarmLauncher, names: Path
) -> None:
    names.write_text("a")
    with deploy_local(WordCount(), 8, 1, launcher=launcher) as op:
        source = op.source("rows", Numbered(names, 0.1))
        until(lambda: op.metrics()["rows"] > 0)
        names.write_text("a b")
        source.wait(60)
        assert counted(op) == wanted("ab")


def test_what_cannot_be_read_is_refused_before_a_process_is_started(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    with deploy_local(WordCount(), 8, 1, launcher=launcher) as op:
        with pytest.raises(InputError, match="names no partitions"):
            op.source("rows", Numbered(tmp_path / "none"))
        with pytest.raises(InputError, match="tasks is a whole number"):
            op.source("rows", Numbered(tmp_path), tasks=0)
        assert not [name for name, _ in launcher.pids if name.startswith("rows")]


def test_offsets_of_rows_are_one_for_each_and_ascend(launcher: WarmLauncher) -> None:
    with deploy_local(WordCount(), 8, 1, launcher=launcher) as op, op.feeder() as feeder:
        rows = pa.record_batch({"word": ["a", "b", None]})
        for offsets in ([3, 2], [3, 4, 5]):
            with pytest.raises(InputError, match="one for each, and none is lower"):
                feeder.feed(rows[:2], offset=np.array(offsets))
        feeder.feed(rows[:2], offset=np.array([3, 3]))
        with pytest.raises(InputError, match="offset 3 was fed before"):
            feeder.feed(rows[:1], offset=np.array([3]))
        feeder.feed(rows[:0], offset=np.array([], np.int64))
        feeder.flush()
        assert counted(op) == {"a": 1, "b": 1}
        with op.feeder("drops", null_keys="drop") as other:
            other.feed(rows, offset=np.array([1, 2, 3]))


def pid_of(launcher: WarmLauncher, name: str) -> int:
    return next(pid for (found, _), pid in launcher.pids.items() if found == name)


@dataclass(frozen=True)
class FromNow(Numbered):
    """The same; where rows begin is known once it has begun."""

    begin: int | None = None

    def begun(self) -> FromNow:
        return replace(self, begin=100)

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        assert self.begin is not None
        return super().read(partition, max(after, self.begin - 1), schema)


@dataclass(frozen=True)
class FromNewest(FromNow):
    """The same; a file says what is newest, and nobody reads a row while another says so."""

    def begun(self) -> FromNewest:
        return replace(self, begin=int(self.names.with_name("newest").read_text()))

    def places(self) -> int | None:
        return self.begin

    def placed(self, places: int) -> FromNewest:
        return replace(self, begin=places)

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        self.names.with_name("read").touch()
        while self.names.with_name("shut").exists():
            yield None
            time.sleep(0.05)
        yield from super().read(partition, after, schema)


def test_what_came_while_a_program_was_away_is_read_though_nothing_was_durable(
    launcher: WarmLauncher, names: Path, tmp_path: Path
) -> None:
    """1. a source begins at the newest, and the program ends before it has a row  2. rows come  3. the
    program runs again: it began behind them."""
    newest, shut, kept = names.with_name("newest"), names.with_name("shut"), tmp_path / "kept"
    newest.write_text("100")
    shut.touch()
    with deploy_local(WordCount(), 8, 1, launcher=launcher, checkpoint=kept) as op:
        op.source("rows", FromNewest(names))
        until(names.with_name("read").exists)
    newest.write_text("300")
    shut.unlink()
    with deploy_local(WordCount(), 8, 1, launcher=launcher, checkpoint=kept) as op:
        op.source("rows", FromNewest(names)).wait(60)
        late = Counter(word(partition, k) for partition in "abcde" for k in range(100, ROWS))
        assert counted(op) == late


def test_a_source_that_has_begun_is_what_all_its_processes_read(
    launcher: WarmLauncher, names: Path
) -> None:
    with deploy_local(WordCount(), 8, 1, launcher=launcher) as op:
        source = op.source("rows", FromNow(names), tasks=2)
        source.rescale(1)
        source.wait(60)
        late = Counter(word(partition, k) for partition in "abcde" for k in range(100, ROWS))
        assert counted(op) == late
