"""`meander checkpoint`: what is in a checkpoint, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.cli.main import main
from meander.model import Epoch
from meander.operators import WordCount
from meander.protocol import records
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import Manifest
from meander.protocol.messages import Store
from meander.protocol.records import Base, Ref
from meander.protocol.state import Position, TaskState
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.store.durable import FileStore
from meander.runtime.store.resume import describe
from meander.runtime.wire.rows import Mark, Rows


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A checkpoint of one task with a snapshot and two changes, and one of an empty task."""
    store, adapter = FileStore(tmp_path), OperatorAdapter(WordCount(), 1)
    mark = None
    state, base, chain = TaskState(0, adapter.empty(0), gated=True), None, tuple[str, ...]()
    for number, words in enumerate((["a", "b", "c"], ["b", "d"], ["d", "d"]), start=1):
        batch = pa.record_batch({"word": words})
        rows = Rows(batch, 0, len(words), (Mark(number, len(words), 0),))
        assert list(adapter.apply(0, state.app, "f", rows, -1)) == []
        state.positions["f"] = Position(1, number, number)
        part = records.write(0, state, adapter, base, mark)
        mark = adapter.seal(state.app)
        key = f"log/1/n1.1/{number}"
        (extent,) = store.write(Store(key, (part,))).extents
        chain = (*chain, str(Ref(key, *extent)))
        base = Base(chain, {})
    manifest = Manifest(
        1, 2, ("n1",), {0: Kept(Epoch(1, 1), 3, chain)}, {"f": 3}, describe(WordCount())
    )
    assert store.write(Store("generation", b"", fence=1)).done
    assert store.write(Store("manifest", manifest.dump(), fence=1)).done
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    code = main(["checkpoint", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_ls_tells_tasks_files_and_bytes(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = told(capsys, "ls", str(where))
    assert code == 0
    assert (found["tasks"], found["files"], found["files_named"]) == (2, 3, 3)
    assert found["operator"]["name"] == "WordCount"
    assert found["records"]["0"]["records"] == 3
    assert found["bytes"] == sum(
        found["records"]["0"][part] for part in ("snapshot_bytes", "changes_bytes")
    )
    assert main(["checkpoint", "ls", where.as_uri()]) == 0
    assert "all up to offset 3 is durable" in capsys.readouterr().out


def test_show_gives_the_newest_rows_of_a_task(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = told(capsys, "show", str(where), "--task", "0")
    rows = [(row["word"], row["rows"], row["record"]) for row in found["rows"]]
    assert rows == [("a", 1, 0), ("b", 2, 1), ("c", 1, 0), ("d", 3, 2)]
    assert (code, found["positions"], found["row_count"]) == (0, {"f": [1, 3, 3]}, 4)
    assert main(["checkpoint", "show", str(where), "--task", "0", "--rows", "1"]) == 0
    assert "1 of 4 rows, 3 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "cut short"),
        (lambda file: file.write_bytes(file.read_bytes()[:-3] + b"xyz"), "wrong checksum"),
        (lambda file: file.write_bytes(b"ELSEWHAT" + file.read_bytes()[8:]), "no file of records"),
    ],
)
def test_verify_names_what_is_broken(
    where: Path, capsys: pytest.CaptureFixture[str], damage: Any, why: str
) -> None:
    assert told(capsys, "verify", str(where)) == (0, {"records": 3, "broken": 0, "faults": []})
    damage(where / "log/1/n1.1/2")
    code, found = told(capsys, "verify", str(where))
    assert (code, found["broken"]) == (1, 1)
    assert (found["faults"][0]["task"], found["faults"][0]["file"]) == (0, "log/1/n1.1/2")
    assert why in found["faults"][0]["why"]
    assert main(["checkpoint", "verify", str(where)]) == 1


def test_a_manifest_that_was_changed_is_no_manifest(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = (where / "manifest").iterdir()
    file.write_text(file.read_text().replace('"tasks": 2', '"tasks": 3'))
    assert main(["checkpoint", "verify", str(where)]) == 2
    assert "manifest/00000001-00000001-00000000.json" in capsys.readouterr().err


def test_what_is_no_checkpoint_is_wrong_input(
    tmp_path: Path, where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "ls", str(tmp_path / "empty")]) == 2
    assert main(["checkpoint", "show", str(where), "--task", "1"]) == 2
    assert main(["checkpoint", "ls", "nosuch://x"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
