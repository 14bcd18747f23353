"""Sinks: every output is out once, whoever is killed, and wherever tasks go meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from runtime_kit import Stream, until

from meander.errors import (
    InputError,
    OperatorGoneError,
    OutputsBrokenError,
    OutputsLostError,
    SinkError,
)
from meander.model import Ints
from meander.operators import WordCount
from meander.protocol.settings import Settings
from meander.runtime.clients.carrier import HERE
from meander.runtime.clients.following import NOWHERE, Following
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.script import Script, Sleep, run
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles import sinking
from meander.runtime.roles.sinking import Sinking, SinkPosition, SinkShare, write_outputs
from meander.runtime.wire.credentials import Credentials
from meander.sinks import Files
from meander.sinks.files import FileWriter


@pytest.fixture(scope="module")
def launcher() -> Iterator[WarmLauncher]:
    with WarmLauncher() as shared:
        yield shared


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def deployed(launcher: WarmLauncher, tmp_path: Path, nodes: int = 2) -> ElasticOperator:
    return deploy_local(
        WordCount(emit_updates=True), 8, nodes, launcher=launcher,
        checkpoint=tmp_path / "kept", checkpoint_s=0.05,
    )  # fmt: skip


def written(out: Path) -> list[tuple[str, int]]:
    """Give all updates, file by file."""
    found = []
    for path in sorted(out.glob("*.parquet")):
        table = parquet.read_table(path)
        found += list(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
    return found


def is_out(out: Path, counts: Counter[str]) -> bool:
    return dict(sorted(written(out), key=lambda pair: pair[1])) == counts


def check(out: Path, counts: Counter[str]) -> None:
    """See that no update came twice, those of a word in order, the last one right."""
    updates, last = written(out), dict[str, int]()
    for word, count in updates:
        assert count > last.get(word, 0), f"{word} went from {last.get(word)} to {count}"
        last[word] = count
    assert last == counts


def kill(launcher: WarmLauncher, name: str) -> None:
    os.kill(next(pid for (found, _), pid in launcher.pids.items() if found == name), signal.SIGKILL)


@dataclass(frozen=True)
class Deadly(Files):
    """Files whose writer is killed with rows taken and the file half done, a few times."""

    kills: int = 2

    def open(self, writer: str) -> FileWriter:
        return DeadlyWriter(Path(self.path), writer, self.kills)


class DeadlyWriter(FileWriter):
    def __init__(self, folder: Path, name: str, kills: int) -> None:
        super().__init__(folder, name)
        self._kills = kills

    def commit(self, position: str) -> None:
        marks = list(self._folder.glob("killed-*"))
        if len(marks) < self._kills and self._next > len(marks):
            (self._folder / f"killed-{len(marks)}").touch()
            self._beside.write_bytes(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(position)


def test_every_output_is_out_once_though_writers_die_between_write_and_commit(
    launcher: WarmLauncher, tmp_path: Path, out: Path
) -> None:
    """Two lives of the deployment; a writer is killed twice, a node once; tasks move."""
    stream = Stream(5, rows=100)
    with deployed(launcher, tmp_path) as op, op.feeder() as feeder:
        sink = op.sink("counts", Deadly(str(out)))
        end = time.monotonic() + 60
        while sink.restarts < 2 and time.monotonic() < end:
            feeder.feed(stream.batch())
            time.sleep(0.05)
        op.rescale(3).wait(60)
        for batch in stream.batches(10):
            feeder.feed(batch)
        kill(launcher, "n1")
        feeder.flush(durable=True)
        until(lambda: is_out(out, stream.counts))
        check(out, stream.counts)
        with pytest.raises(InputError, match="a sink 'counts' at work"):
            op.sink("counts", Files(str(out)))
        with pytest.raises(InputError, match="the sink 'counts' writes these outputs"):
            op.sink("beside", Files(str(out)))  # neither would have all of them
    with deployed(launcher, tmp_path, 1) as op, op.feeder("more") as feeder:
        op.sink("counts", Files(str(out)))
        for batch in stream.batches(5):
            feeder.feed(batch)
        until(lambda: is_out(out, stream.counts))
    check(out, stream.counts)


def test_of_two_writers_of_one_name_only_one_gets_the_next_number(out: Path) -> None:
    sink, rows = Files(str(out)), pa.table({"word": ["a"], "rows": [1]})
    sink.check(None)
    first, second = sink.open("counts.0"), sink.open("counts.0")
    for writer in (first, second):
        assert writer.recover() is None
        writer.write(rows)
    second.commit("1")
    with pytest.raises(SinkError, match="took the place of"):
        first.commit("1")
    first.close()
    assert [path.name for path in out.iterdir()] == ["counts.0-000000000001.parquet"]


def test_rows_that_nodes_emit_with_other_columns_go_into_one_file(out: Path) -> None:
    """Of an operator that does not say what it emits; the sink ended, and ended again."""
    sink = Files(str(out))
    sink.check(None)
    writer = sink.open("counts.0")
    writer.write(pa.table({"word": ["a"], "n": pa.nulls(1)}))
    writer.write(pa.table({"word": ["b"], "n": [2], "more": [True]}))
    writer.commit("1")
    (file,) = out.iterdir()
    assert parquet.read_table(file).to_pylist() == [
        {"word": "a", "n": None, "more": None},
        {"word": "b", "n": 2, "more": True},
    ]
    writer.write(pa.table({"word": ["a"]}))
    writer.write(pa.table({"word": [1]}))
    with pytest.raises(SinkError, match=r"not of one type: .*word.* an output_schema"):
        writer.commit("2")


@pytest.mark.parametrize("name", ["counts[1].0", "c*.0", "c?unts.0"])
def test_a_writer_finds_its_own_files_whatever_its_name_is(out: Path, name: str) -> None:
    """1. it found none of its own, and took itself for replaced  2. it took others' position."""
    sink = Files(str(out))
    sink.check(None)
    for writer, position in ((sink.open("counts.0"), "theirs"), (sink.open(name), "mine")):
        assert writer.recover() is None
        writer.write(pa.table({"word": ["a"]}))
        writer.commit(position)
    again = sink.open(name)
    assert again.recover() == "mine"
    again.write(pa.table({"word": ["b"]}))
    again.commit("next")


def test_two_processes_share_the_tasks_and_stay_two(
    launcher: WarmLauncher, tmp_path: Path, out: Path
) -> None:
    stream = Stream(6, rows=200)
    with deployed(launcher, tmp_path) as op, op.feeder() as feeder:
        sink = op.sink("counts", Files(str(out)), tasks=2)
        feeder.feed(stream.batch())
        until(lambda: is_out(out, stream.counts))
        assert {path.name[:8] for path in out.glob("*.parquet")} == {"counts.0", "counts.1"}
        sink.cancel()
        until(lambda: not sink.running)
        other = op.sink("counts", Files(str(out)))
        until(lambda: other.ended is not None)
        assert other.ended is not None
        assert "this sink was begun with tasks=2" in other.ended.detail


def test_at_least_once_nothing_is_missing_when_a_node_is_lost(
    launcher: WarmLauncher, tmp_path: Path, out: Path
) -> None:
    stream = Stream(7, rows=50)
    with deploy_local(
        WordCount(emit_updates=True), 8, 2, launcher=launcher,
        checkpoint=tmp_path / "kept", checkpoint_s=0.5,
    ) as op, op.feeder() as feeder:  # fmt: skip
        op.sink("counts", Files(str(out), at_least_once=True))
        for k, batch in enumerate(stream.batches(30)):
            feeder.feed(batch)
            time.sleep(0.02)
            if k == 15:
                kill(launcher, "n2")
        until(lambda: is_out(out, stream.counts))


def test_a_position_is_of_one_line_of_deployments_and_of_one_number_of_processes() -> None:
    mine = SinkPosition("line", 2, range(4, 6))
    assert mine.parse(mine.text(np.array([3, 0]))) == [3, 0]
    with pytest.raises(OutputsLostError, match="deployed anew"):
        SinkPosition("other", 2, range(4, 6)).parse(mine.text(np.array([3, 0])))
    with pytest.raises(InputError, match="begun with tasks=2"):
        SinkPosition("line", 1, range(4, 6)).parse(mine.text(np.array([3, 0])))


def test_a_sink_goes_on_after_a_driver_that_was_away_and_a_query_that_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Writer:
        def close(self) -> None:
            closed.append(self)

    def fail(*_: object) -> None:
        raise errors.pop()

    errors: list[Exception] = [
        ConnectionError("x"), OperatorGoneError("there:1"),
        OutputsBrokenError("the query that feeds it has failed"),
    ]  # fmt: skip
    closed = list[object]()
    monkeypatch.setattr(sinking, "_write", fail)
    monkeypatch.setattr(sinking, "AGAIN_S", 0.0)
    share = SinkShare(SimpleNamespace(open=lambda _: Writer()), "counts")  # type: ignore[arg-type]
    spec = ProcessSpec("sink", "r", "counts", 1, 1, "there:1", Credentials("t"), 4, Settings())
    assert write_outputs(share, spec, lambda: not errors)[0] is Reason.DRIVER_LOST
    assert len(closed) == 3


class Scripted:
    """It is followed as a test says, and it is a writer: both note what is asked of them."""

    def __init__(self, takes: list[int], *, writes_through: bool) -> None:
        self.takes, self.writes_through = takes, writes_through
        self.log: list[str] = []
        self.numbers = np.zeros(2, np.int64)
        self.before = self.numbers

    def take(self, timeout_s: float) -> Script[list[pa.Table]]:
        count = self.takes.pop(0) if self.takes else 0
        if not count:
            yield Sleep(timeout_s)
        self.before = self.numbers.copy()
        self.numbers[0] += count
        return self.told(count) if count else []

    def told(self, count: int) -> list[pa.Table]:
        return [told({}, [(0, n) for n in range(count)])]

    def settled(self, numbers: Ints) -> Ints:
        return numbers

    def release(self, _: Ints) -> None:
        self.log.append("release")

    def recover(self) -> None:
        return None

    def write(self, rows: pa.Table) -> None:
        self.log.append(f"write {rows.num_rows}")

    def commit(self, position: str) -> None:
        self.log.append(f"commit {json.loads(position)['numbers'][0]}")

    def run(self) -> list[str]:
        about = SimpleNamespace(first=0, tasks=2, lineage="line")
        share = SinkShare(SimpleNamespace(at_least_once=True), "counts")  # type: ignore[arg-type]
        sinking = Sinking(share, self, about)  # type: ignore[arg-type]
        script = sinking.write(self, lambda: not self.takes)  # type: ignore[arg-type]
        run(script, HERE)
        return self.log


def test_what_is_out_as_it_is_written_waits_for_no_commit() -> None:
    """1. outputs come closely: all are written, none waits for a commit  2. none come for a while: what
    was written is confirmed, and nodes may forget it."""
    log = Scripted([2, 1, 3, 0], writes_through=True).run()
    assert log == ["write 2", "write 1", "write 3", "commit 6", "release"]


def test_what_is_out_as_it_is_written_is_confirmed_before_the_end() -> None:
    log = Scripted([2, 1], writes_through=True).run()
    assert log == ["write 2", "write 1", "commit 3", "release"]


def test_others_commit_whatever_they_have_written() -> None:
    log = Scripted([2, 1], writes_through=False).run()
    assert log == ["write 2", "commit 2", "release", "write 1", "commit 3", "release"]


def test_what_takes_long_to_write_is_committed_between_two_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinking, "ROWS_ONCE", 2)
    monkeypatch.setattr(sinking, "TRANSACTION_S_MAX", -1.0)
    scripted = Scripted([6], writes_through=False)
    batches = [(0, 1), (0, 1), (0, 1), (0, 2), (0, 3), (1, 7)]
    monkeypatch.setattr(scripted, "told", lambda _: [told({}, batches)])
    scripted.numbers[:] = -3, 7
    log = scripted.run()
    assert log == [
        "write 3",
        "commit 1",
        "write 2",
        "commit 3",
        "write 1",
        "commit 3",
        "release",
    ]


def test_what_two_nodes_tell_comes_once_and_what_is_gone_is_an_error() -> None:
    following = Following(range(8, 10), [0, 4])
    rows = told({"9": [5, 6, 1, 1]}, [(9, 5), (9, 6)])
    assert following._new(rows).num_rows == 2
    assert following._new(rows).num_rows == 0
    with pytest.raises(OutputsLostError, match="outputs 1 to 2 of task 8 are gone"):
        following._new(told({"8": [3, 4, 1, 1]}, [(8, 3)]))


def test_early_outputs_are_read_again_from_what_was_durable_when_their_task_was_restored() -> None:
    following = Following(range(1), [0], early=True)
    assert following._new(told({"0": [1, 2, 1, 1]}, [(0, n) for n in (1, 2, 3, 4)])).num_rows == 4
    assert following._new(told({"0": [1, 3, 1, 1]}, [])).num_rows == 0
    assert following._new(told({"0": [1, 3, 1, 9]}, [(0, 5)])).num_rows == 0  # restored meanwhile
    late = told({"0": [1, 3, 1, 1]}, [(0, 5), (0, 6)])  # of one who was its owner
    assert following._new(late).num_rows == 0
    again = following._new(told({"0": [1, 3, 1, 9]}, [(0, 4), (0, 5)]))
    assert again["number"].to_pylist() == [4, 5]


def test_early_outputs_are_let_go_of_and_said_to_be_out_once_they_are_durable() -> None:
    """1. three outputs come, none durable, and are written  2. their node dies; in its successor others
    have their numbers  3. these must be there, and read."""
    following = Following(range(1), [0], early=True)
    assert following._new(told({"0": [1, 0, 1, 1]}, [(0, n) for n in (1, 2, 3)])).num_rows == 3
    following.numbers[0] = 3
    assert following.settled(following.numbers).tolist() == [0]
    assert following._new(told({"0": [1, 1, 1, 1]}, [])).num_rows == 0
    out = following.settled(following.numbers)
    assert out.tolist() == [1]
    following.release(out)
    assert following._question(0.0)["release"] == [1]
    assert following._new(told({"0": [2, 4, 1, 9]}, [])).num_rows == 0  # the term is a new one
    again = following._new(told({"0": [2, 4, 1, 9]}, [(0, 2), (0, 3), (0, 4)]))
    assert again["number"].to_pylist() == [2, 3, 4]
    with pytest.raises(OutputsLostError, match="outputs 5 to 7 of task 0 are gone"):
        following._new(told({"0": [8, 8, 1, 9]}, [(0, 8)]))


def test_what_stands_in_line_is_not_said_to_be_out_after_a_restore() -> None:
    """1. four outputs are taken, two of them durable  2. while they are written their task is restored,
    and others come under 3 and 4, durable  3. what is committed, and let go of, is the first two."""
    following = Following(range(1), [0], early=True)
    following._hear(told({"0": [1, 2, 1, 1]}, [(0, n) for n in (1, 2, 3, 4)]))
    assert len(take(following)) == 1
    following._hear(told({"0": [1, 2, 1, 9]}, []))
    following._hear(told({"0": [1, 4, 1, 9]}, [(0, 3), (0, 4)]))
    assert following.settled(np.array([4])).tolist() == [2]
    (rows,) = take(following)
    assert (rows["number"].to_pylist(), following.before.tolist()) == ([3, 4], [2])
    assert following.settled(following.before).tolist() == [2]
    assert following.settled(following.numbers).tolist() == [4]


def test_what_stands_in_line_of_a_task_that_was_restored_is_forgotten() -> None:
    following = Following(range(2), [0, 0], early=True)
    following._hear(told({"0": [1, 1, 1, 1], "1": [1, 0, 1, 1]}, [(0, 1), (0, 2), (1, 1)]))
    following._hear(told({"0": [1, 1, 1, 9]}, []))
    (rows,) = take(following)
    assert list(zip(rows["task"].to_pylist(), rows["number"].to_pylist(), strict=True)) == [
        (0, 1),
        (1, 1),
    ]


def test_a_task_of_which_nothing_was_heard_begins_with_what_there_is_also_in_the_next_life() -> (
    None
):
    """1. a sink begins; of one task it hears, and commits  2. it begins anew; of the other task much is
    gone, which nobody was to write: that is no error, in the first task it is one."""
    following = Following(range(2))
    assert following._question(0.0)["after"] == [0, 0]
    following._hear(told({"0": [36, 40, 1, 1]}, [(0, 36)]))
    take(following)
    position = SinkPosition("line", 1, range(2))
    kept = position.parse(position.text(following.settled(following.numbers)))
    assert kept == [36, NOWHERE]
    again = Following(range(2), kept)
    again._hear(told({"1": [51, 60, 1, 1]}, [(1, 51)]))
    assert take(again)[0]["number"].to_pylist() == [51]
    with pytest.raises(OutputsLostError, match="outputs 37 to 39 of task 0 are gone"):
        again._hear(told({"0": [40, 60, 1, 1]}, [(0, 40)]))


def take(following: Following) -> list[pa.Table]:
    return run(following.take(0.0), HERE)


def told(kept: dict[str, list[int]], rows: list[tuple[int, int]]) -> pa.Table:
    tasks, numbers = [t for t, _ in rows], [n for _, n in rows]
    table = pa.table({
        "word": pa.array(["w"] * len(rows), pa.string()),
        "task": pa.array(tasks, pa.int32()),
        "number": pa.array(numbers, pa.int64()),
    })  # fmt: skip
    return table.replace_schema_metadata({"kept": json.dumps(kept)})


PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


def test_the_source_and_the_sink_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads((tmp_path / "lines/counts.0/0.json").read_text())[0], str)
