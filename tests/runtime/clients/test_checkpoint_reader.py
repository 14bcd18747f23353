"""Looking into a checkpoint from outside."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from meander.errors import CheckpointError
from meander.operators.layout import ENTRY
from meander.runtime.clients.checkpoint_reader import CheckpointReader, _rows, lines_of


def test_where_there_is_none_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint under"):
        CheckpointReader(str(tmp_path))


def test_changed_cells_take_the_place_of_the_old_ones() -> None:
    """1. a snapshot of three  2. the second changes  3. another is new."""
    snapshot = pa.record_batch({"word": ["a", "b", "c"], "count": [1, 2, 3]})
    changed = pa.record_batch({ENTRY: [1], "count": [20]})
    new = pa.record_batch({"word": ["d"], "count": [4]})
    table = _rows([[snapshot], [changed, new]])
    assert table["count"].to_pylist() == [1, 20, 3, 4]
    assert table["record"].to_pylist() == [0, 1, 0, 1]


def test_a_listing_in_words_names_every_task_and_feeder() -> None:
    record = {"records": 2, "snapshot_bytes": 10, "changes_bytes": 5, "file": "log/1"}
    listing = {
        "where": "here", "generation": 3, "tasks": 8, "bytes": 15, "files": 2, "files_bytes": 20,
        "files_named": 1, "manifests": [{"file": "m", "bytes": 1, "age_s": 4.0}],
        "operator": {"name": "WordCount", "state_version": 1}, "offsets": {"words": 41},
        "records": {5: record},
    }  # fmt: skip
    text = "\n".join(lines_of(listing))
    for part in ("generation 3", "WordCount", "1 of 8 tasks", "1 not named", "offset 41", "log/1"):
        assert part in text
