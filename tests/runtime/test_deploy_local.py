"""`meander.deploy_local`: the whole thing on this machine, without Spark."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime_kit import Stream, counted, until

import meander
from meander.errors import DeployError, InputError
from meander.operators import Context, Operator, WordCount
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.options import OPTIONS, Deployment
from meander.runtime.process.source import SourceBatch

PAGE = Path(__file__).parents[2] / "docs" / "write-an-operator.md"


# --------------------------------------------------------------------------- what it gives


def test_it_gives_what_users_hold(launcher: WarmLauncher) -> None:
    stream = Stream(5)
    with meander.deploy_local(WordCount(), 8, 2, launcher=launcher) as op:
        assert repr(op) == f"<WordCount on 2 nodes, 8 tasks, at {op.address}>"
        with op.feeder() as feeder:
            for batch in stream.batches(5):
                feeder.feed(batch)
            assert op.plan(3).rounds >= 1
            assert op.rescale(3, pause_ms=100).wait(60).nodes == 3
        assert counted(op) == stream.counts
        assert op.status()["lost tasks"] == []
        assert op.metrics()["rows"] == sum(stream.counts.values())
        token = op.driver.credentials.token
        assert token in op.credentials
        assert token not in repr(op)
    assert repr(op) == "<WordCount, stopped>"
    with pytest.raises(DeployError, match="was stopped"):
        op.feeder()


def test_who_waits_until_rows_are_durable_does_not_wait_for_the_next_round(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    stream, options = Stream(3), {"checkpoint": str(tmp_path), "checkpoint_s": 600.0}
    with (
        meander.deploy_local(WordCount(), 8, 2, launcher=launcher, **options) as op,
        op.feeder() as feeder,
    ):
        for batch in stream.batches(3):
            feeder.feed(batch)
            feeder.flush(durable=True, timeout_s=60.0)
        assert counted(op) == stream.counts


class Untyped(Operator[dict[str, int]]):
    """Leaves the types of its columns to Arrow, which finds none where there are no words."""

    schema, keys = pa.schema({"word": pa.string()}), ("word",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + 1

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"word": [*state], "n": [*state.values()]})]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, int]:
        return {row["word"]: row["n"] for batch in batches for row in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 32 * len(state)


def test_a_state_can_be_read_whose_empty_tasks_have_columns_without_a_type(
    launcher: WarmLauncher,
) -> None:
    with meander.deploy_local(Untyped(), 8, 2, launcher=launcher) as op:
        with op.feeder() as feeder:
            feeder.feed([{"word": "to"}, {"word": "be"}, {"word": "to"}])
        assert {row["word"]: row["n"] for row in op.state().to_pylist()} == {"to": 2, "be": 1}


def words_after(offset: int) -> Iterator[SourceBatch]:
    stream = Stream(6, rows=200)
    for number in range(10):
        batch = stream.batch()
        if number > offset:
            yield SourceBatch(number, batch)


def test_a_source_feeds_from_a_process_of_its_own(launcher: WarmLauncher) -> None:
    wanted: Counter[str] = Counter()
    for _, batch, _ in words_after(-1):
        wanted.update(batch["word"].to_pylist())
    with deploy_local(WordCount(), 8, 2, launcher=launcher) as op:
        source = op.source("words", words_after, linger_ms=1.0)
        assert source.wait(60).detail == "fed 2000 rows"
        assert counted(op) == wanted
        assert op.source("words", words_after).wait(60).clean  # all of it is known by now
        assert counted(op) == wanted
        with pytest.raises(InputError, match=r"a feeder has the options .* not 'linger'"):
            op.source("more", words_after, linger=1)


def for_ever(offset: int) -> Iterator[SourceBatch]:
    stream, number = Stream(7, rows=10), offset
    while True:
        number += 1
        yield SourceBatch(number, stream.batch())


def test_a_source_that_is_killed_is_started_again_and_one_that_is_cancelled_is_not(
    launcher: WarmLauncher,
) -> None:
    with deploy_local(WordCount(), 8, 1, launcher=launcher) as op:
        source = op.source("words", for_ever)
        with pytest.raises(InputError, match="a source 'words' at work"):
            op.feeder("words")
        until(lambda: ("words", 1) in launcher.pids and op.metrics()["rows"] > 0)
        os.kill(launcher.pids["words", 1], signal.SIGKILL)
        until(lambda: ("words", 2) in launcher.pids)
        assert source.restarts == 1
        source.cancel()
        with pytest.raises(DeployError, match="the source words ended: killed"):
            source.wait(30)
        last = op.source("words", for_ever)
    with pytest.raises(DeployError, match="the source words ended"):
        last.wait(1)


# --------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"chekpoint": "x"}, "there is no option 'chekpoint': did you mean 'checkpoint'?"),
        ({"colour": "red"}, "there is no option 'colour': say checkpoint, "),
        ({"tasks": 0}, "tasks is a whole number from 1 on, not 0"),
        ({"nodes": 65}, "nodes is a whole number from 1 to 64, not 65"),
        ({"checkpoint": 7}, "checkpoint is a path or a URI, not 7"),
        ({"checkpoint_s": 0}, "checkpoint_s is a number of seconds above 0, not 0"),
        ({"host": None}, "host is an address of this machine, not None"),
        ({"host": "0.0.0.0"}, "that all processes reach, for example its own one"),
        ({"host": ""}, "that all processes reach, for example its own one"),
        ({"host": "[::1]"}, "a name or an IPv4 address without a port, not"),
        ({"host": "10.0.0.7:7077"}, "a name or an IPv4 address without a port, not"),
        ({"policy": "best"}, "best"),
        ({"policy": "mtm"}, "policy 'mtm' needs a forecast"),
        ({"forecast": 3}, "forecast is a file or a Forecast, not 3"),
        ({"tau": -1}, "tau is a number from 0 on, not -1"),
        ({"settings": {}}, "settings is a Settings, or None, not {}"),
        ({"registration_s_max": "1"}, "registration_s_max is a number of seconds above 0, not '1'"),
        ({"zookeeper": 2181}, "zookeeper is host:port"),
        ({"output_rows_max": 0}, "output_rows_max is a whole number from 1 on, not 0"),
        ({"tls": "yes"}, "tls is True, False, or None, not 'yes'"),
        ({"insecure": 1}, "insecure is True or False, not 1"),
        ({"tell": "me"}, "tell is a function of what happened and its facts, not 'me'"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(options: dict[str, Any], right: str) -> None:
    with pytest.raises(InputError, match=re.escape(right)) as caught:
        deploy_local(WordCount(), **options)
    assert "\n" not in str(caught.value)


def test_options_are_described_once_and_shown_to_whoever_asks() -> None:
    described = [f.name for f in fields(Deployment) if f.init]
    assert described == ["operator", "tasks", "nodes", *OPTIONS]
    for function in (meander.deploy_local, meander.deploy):
        shown = inspect.signature(function).parameters
        assert [name for name in shown if name in OPTIONS] == list(OPTIONS)
        assert shown["checkpoint_s"].default == 1.0
        for name in OPTIONS:
            assert f"    {name}: " in (function.__doc__ or ""), name
    assert Deployment(WordCount(), tau=0.2).unevenness == Fraction(1, 5)


# --------------------------------------------------------------------------- from anywhere

SCRIPT = """
import sys
import meander
assert "pyspark" not in sys.modules and "numba" not in sys.modules

class Shouted(meander.WordCount):
    pass

if __name__ == "__main__":
    with meander.deploy_local(Shouted(), 4, 2) as op:
        with op.feeder() as feeder:
            feeder.feed([{"word": "a"}, {"word": "b"}, {"word": "a"}])
        print(sorted((r["word"], r["count"]) for r in op.state().to_pylist()), op.driver.operator.name)
    assert "pyspark" not in sys.modules
"""
CELL = "scope = {'__name__': '__main__'}; exec(compile(SCRIPT, '<cell 1>', 'exec'), scope)"


@pytest.mark.parametrize("way", ["file", "standard input", "cell"])
def test_an_operator_may_be_defined_where_it_is_deployed(way: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    cell = f"SCRIPT = {SCRIPT!r}\n{CELL}"
    command, text = {
        "file": ([str(file)], ""), "standard input": (["-"], SCRIPT), "cell": (["-c", cell], ""),
    }[way]  # fmt: skip
    done = subprocess.run(
        [sys.executable, *command], input=text, capture_output=True, text=True, timeout=120,
        cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('a', 2), ('b', 1)] Shouted\n"


def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    end = next(i for i, example in enumerate(examples) if "deploy_local" in example)
    show = "\nprint([tuple(r.values())[:2] for t in (found, bids) for r in t.to_pylist()])"
    file = tmp_path / "page.py"
    file.write_text("\n".join(examples[: end + 1]) + show)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for row in (("lamp", 5.0), ("rug", 90.0), ("lamp", 7.5)):
        assert repr(row) in done.stdout
