"""Code in the docs runs: blocks that need no Spark, and every command is understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import meander
from docs_kit import BY_THEIR_PAGE, ELSEWHERE, LOCALLY, ON_SPARK, PAGES, blocks, run
from meander.cli.main import build_parser
from meander.operators import Context, Operator, WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher

WORD = pa.schema({"word": pa.string()})
COUNTS = pa.schema({"word": pa.string(), "n": pa.int64()})
HOST = {'host="10.0.0.7"': "node=list(op.driver.nodes())[0]"}
"""There is one host here: one of its nodes stands for it."""
SPARKS = {
    ("from-a-query-and-back", 3), ("from-transform-with-state", 1), ("from-transform-with-state", 3),
    ("from-windows-and-joins", 0), ("from-windows-and-joins", 2), ("from-windows-and-joins", 3),
    ("from-windows-and-joins", 5), ("streaming", 0), ("streaming", 9), ("write-an-operator", 3),
}  # fmt: skip
"""Blocks marked `notest` that `spark/test_docs_on_spark.py` runs."""


class Counts(Operator[dict[str, int]]):
    """The operator that the page about long days upgrades."""

    schema, keys = WORD, ("word",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + 1

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch([list(state), list(state.values())], schema=COUNTS)]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, int]:
        return {row["word"]: row["n"] for batch in batches for row in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 32 * len(state)


class Clean(Counts):
    """The operator before the count: what it takes in, it gives away in small letters."""

    output_schema = WORD

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        context.emit(pa.record_batch([[w.lower() for w in batch["word"].to_pylist()]], schema=WORD))


@pytest.fixture
def stage(launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What readers have: an operator, and a `deploy` that is on this machine in place of Spark."""
    made: list[ElasticOperator] = []
    local = meander.deploy_local

    def deploy(_: Any, operator: Any, nodes: int = 4, **options: Any) -> ElasticOperator:
        return deploy_local(operator, nodes=nodes, **options)

    def deploy_local(operator: Any, nodes: int = 4, **options: Any) -> ElasticOperator:
        for before in made:  # a block may show the same twice
            before.stop()
        made.append(local(operator, nodes=min(2, nodes), launcher=launcher, **options))
        return made[-1]

    monkeypatch.setattr(meander, "deploy", deploy)
    monkeypatch.setattr(meander, "deploy_local", deploy_local)
    yield {"meander": meander, "pa": pa, "spark": None, "WordCount": WordCount, "Counts": Counts,
           "Clean": Clean, "operator": Counts(), "NewOperator": Counts}  # fmt: skip
    for op in made:
        op.stop()


def test_every_block_is_run_by_some_test() -> None:
    for block in blocks():
        where = block.page, block.number
        by_its_page = block.page in BY_THEIR_PAGE and not block.alone
        together = block.page in (*LOCALLY, *ON_SPARK, "README")
        times = [by_its_page, together, where in ELSEWHERE, where in SPARKS]
        assert times.count(True) == 1, f"{where}: {block.code}"


def test_the_first_lines_of_the_readme(
    stage: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run("README", stage, 0)
    assert "count: int64" in capsys.readouterr().out


def test_the_last_lines_of_the_readme(stage: dict[str, Any]) -> None:
    run("README", stage, 2, instead=HOST)


def test_the_autoscaler(
    stage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = {"slots": ["2020-01-01T00:00:00+00:00"], "volume": [*range(24)] * 14}
    Path("trace.json").write_text(json.dumps(trace))
    run("autoscaler", stage)
    assert stage["season"].at(2 * 3600.0) < stage["season"].at(20 * 3600.0)
    assert stage["op"].driver.nodes()


def test_checkpoints(stage: dict[str, Any], tmp_path: Path) -> None:
    run("checkpoints", stage, instead={"s3://bucket": str(tmp_path)})
    assert list((tmp_path / "word-count").iterdir())


def test_the_dashboard(stage: dict[str, Any]) -> None:
    pytest.importorskip("uvicorn")
    run("dashboard", stage, instead={"9471": "0"})
    assert "token=" in stage["op"].dashboard


def test_long_days(stage: dict[str, Any]) -> None:
    stage["op"] = meander.deploy(None, Counts(), tasks=8, nodes=2)
    with stage["op"].feeder() as feeder:
        feeder.feed([{"word": "to"}, {"word": "be"}, {"word": "to"}])
    run("days", stage, 0, 2, 1, instead=HOST)
    assert {r["word"]: r["n"] for r in stage["op"].state().to_pylist()} == {"to": 2, "be": 1}


def test_topologies(stage: dict[str, Any]) -> None:
    run("topologies", stage)


# --------------------------------------------------------------------------- commands


def commands() -> list[str]:
    """Find every command in the blocks of the docs that are no Python."""
    shell = re.compile(r"^```(?:console|sh|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    found = [
        text.replace("\\\n", " ") for page in PAGES for text in shell.findall(page.read_text())
    ]
    return re.findall(r"^(?:\$ )?(meander [a-z].*)", "\n".join(found), re.MULTILINE)


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_docs_is_understood(line: str) -> None:
    """Words in brackets may be left out, and are tried."""
    words = shlex.split(re.sub(r"[\[\]]", " ", line), comments=True)[1:]
    assert build_parser(words).parse_args(words)
