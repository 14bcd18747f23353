"""Outputs read by offset: every row once, across rescales and restarts of the reader."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime_kit import Stream, counted, until

from meander.errors import OutputsBrokenError, OutputsLostError
from meander.operators import Aggregate, KeyedAggregate, WordCount
from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.output_reader import OutputReader
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local

TASKS = 16


def deployed(launcher: WarmLauncher, **options: Any) -> ElasticOperator:
    operator = WordCount(emit_updates=True)
    return deploy_local(operator, tasks=TASKS, nodes=2, launcher=launcher, **options)


def reader_of(op: ElasticOperator, **options: Any) -> OutputReader:
    return OutputReader(DriverClient(op.address, op.driver.issue("query")), **options)


def read(reader: OutputReader, start: Any, end: Any) -> list[tuple[str, int]]:
    """Read as a query would after it was told its offsets again from a checkpoint."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return [
        (row["word"], row["count"])
        for spans in reader.spans(start, end)
        for table in reader.read(spans)
        for row in table.to_pylist()
    ]


def highest(rows: list[tuple[str, int]]) -> Counter[str]:
    """The last count of each word: updates of a word only grow."""
    found: Counter[str] = Counter()
    for word, count in rows:
        found[word] = max(found[word], count)
    return found


def test_every_output_is_read_once_while_tasks_move(launcher: WarmLauncher) -> None:
    """1. rows are fed while the operator grows and shrinks  2. a reader follows, and is replaced by
    another one in between  3. it has seen every update once, and a replay gives the same."""
    with deployed(launcher) as op, op.feeder("words") as feeder:
        stream, reader = Stream(), reader_of(op)
        start = at = reader.earliest()
        rows: list[tuple[str, int]] = []
        for nodes in (4, 1):
            moving = op.rescale(nodes, tasks_max=2)
            for batch in stream.batches(20):
                feeder.feed(batch)
                end = reader.latest(at)
                rows += read(reader, at, end)
                at = end
            moving.wait(60)
            reader = reader_of(op)
        feeder.flush()
        end = reader.latest(at)
        rows += read(reader, at, end)
        assert len(rows) == len(set(rows)), "an update came twice"
        assert highest(rows) == stream.counts == counted(op)
        assert sorted(read(reader, start, end)) == sorted(rows)
        assert reader.latest(end) == end
        reader.release(end)
        assert reader.earliest() == end
        with pytest.raises(OutputsLostError, match="are gone"):
            read(reader, start, end)
        assert read(reader_of(op, fail_on_data_loss=False), start, end) == []


def test_more_than_is_kept_is_dropped_and_said(launcher: WarmLauncher) -> None:
    with deployed(launcher, output_rows_max=50) as op:
        reader = reader_of(op)
        start, stream = reader.earliest(), Stream()
        with op.feeder("words", gather_rows=1) as feeder:
            for batch in stream.batches(30):
                feeder.feed(batch)
                feeder.flush()
        end = reader.latest(start)
        with pytest.raises(OutputsLostError, match="output_rows_max"):
            read(reader, start, end)
        rows = read(reader_of(op, fail_on_data_loss=False), start, end)
        assert 0 < len(rows) < 30 * 500


def test_offsets_of_another_life_are_told_from_ours(launcher: WarmLauncher) -> None:
    with deployed(launcher) as op, op.feeder("words") as feeder:
        feeder.feed(Stream().batch())
        feeder.flush()
        past = reader_of(op).latest()
    with deployed(launcher) as op, op.feeder("words") as feeder:
        stream = Stream(seed=2)
        feeder.feed(stream.batch())
        feeder.flush()
        with pytest.raises(OutputsLostError, match="new checkpoint"):
            reader_of(op).latest(past)
        reader = reader_of(op, fail_on_data_loss=False)
        assert highest(read(reader, past, reader.latest(past))) == stream.counts


def test_with_checkpoints_only_what_is_durable_is_shown(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    """1. outputs are read  2. the driver ends, and goes on from its checkpoint  3. so does the reader:
    nothing twice, nothing missing."""
    stream, rows = Stream(), list[tuple[str, int]]()
    at: Any = None
    for _ in range(2):
        options = {"checkpoint": str(tmp_path), "checkpoint_s": 0.1}
        with deployed(launcher, **options) as op:
            reader = reader_of(op)
            at = at or reader.earliest()
            with op.feeder("words") as feeder:
                for batch in stream.batches(5):
                    feeder.feed(batch)
                feeder.flush(durable=True)
            until(partial(_all_durable, reader))
            end = reader.latest(at)
            rows += read(reader, at, end)
            at = end
            assert highest(rows) == stream.counts
    assert len(rows) == len(set(rows))


def _all_durable(reader: OutputReader) -> bool:
    return all(ready == last for _, ready, last in reader.all_ends().values())


def test_what_feeds_the_operator_and_fails_is_told_to_readers(launcher: WarmLauncher) -> None:
    with deployed(launcher) as op:
        reader = reader_of(op)
        start = reader.earliest()
        op.driver.reception.troubles.append(lambda: "the query has failed: no such file")
        with pytest.raises(OutputsBrokenError, match="no such file"):
            reader.latest(start)


def test_states_say_their_moment_while_tasks_move(launcher: WarmLauncher) -> None:
    """Each task is there once, and its counts are of the moment that it tells."""
    with deployed(launcher) as op, op.feeder("words", gather_rows=1) as feeder:
        stream, sums = Stream(rows=100), [0]
        for batch in stream.batches(40):
            sums.append(sums[-1] + batch.num_rows)
            feeder.feed(batch)
        feeder.flush()
        moving = op.rescale(4, tasks_max=1)
        table = op.state()
        moving.wait(60)
        told = {row["task"]: json.loads(row["as_of"]) for row in table.to_pylist()}
        assert {fact["feeders"]["words"] for fact in told.values()} <= set(range(40))
        places = {(row["task"], row["node"], row["as_of"]) for row in table.to_pylist()}
        assert len(places) == len(told), "a task was read at two moments"
        assert sum(table["count"].to_pylist()) == sums[-1]


def test_a_target_behind_the_start_gives_nothing_twice(launcher: WarmLauncher) -> None:
    """`availableNow` fixes its target once; a task whose outputs were not durable then stands at 0."""
    with deployed(launcher) as op:
        reader = reader_of(op)
        zeros = [0] * (TASKS - 3)
        start, latest = (
            reader.scripts.offset([5, 5, 5, *zeros]),
            reader.scripts.offset([9, 7, 5, *zeros]),
        )
        target = reader.scripts.offset([7, 0, 0, *zeros])
        assert reader.upto(start, latest, target) == reader.scripts.offset([7, 5, 5, *zeros])


def test_columns_of_a_state_keep_their_names(launcher: WarmLauncher) -> None:
    """A state with a column `task` of its own: where it was read stands in `task_`."""
    schema = pa.schema({"task": pa.string()})
    operator = KeyedAggregate(schema, ["task"], {"node": Aggregate("count")})
    with deploy_local(operator, tasks=4, nodes=1, launcher=launcher) as op:
        with op.feeder("rows") as feeder:
            feeder.feed(pa.record_batch({"task": ["a", "b", "a"]}))
        table = op.state()
    assert table.schema.names == ["task", "node", "task_", "node_", "as_of"]
    assert dict(zip(table["task"].to_pylist(), table["node"].to_pylist(), strict=True)) == {
        "a": 2,
        "b": 1,
    }


def test_a_checkpoint_that_begins_anew_in_the_same_folder_is_another_life(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    """1. outputs of a first life are read  2. its folder is emptied, and a second life begins there and
    emits as much  3. a reader of the first is told, and skips nothing unsaid  4. a third that goes on
    from the second, under another name of the folder, is of the second's life."""
    folder = tmp_path / "checkpoint"
    options = {"checkpoint": str(folder), "checkpoint_s": 0.1}
    ends = []
    for seed, where in ((1, str(folder)), (2, str(folder)), (3, folder.as_uri())):
        with deployed(launcher, **options | {"checkpoint": where}) as op:
            reader = reader_of(op)
            if seed == 2:
                with pytest.raises(OutputsLostError, match="new checkpoint"):
                    reader.latest(ends[0])
            if seed == 3:
                assert reader.latest(ends[1]) == ends[1]
                continue
            with op.feeder("words") as feeder:
                feeder.feed(Stream(seed).batch())
            until(partial(_all_durable, reader))
            ends.append(reader.latest())
        if seed == 1:
            shutil.rmtree(folder)
    assert len({end["lineage"] for end in ends}) == 2
