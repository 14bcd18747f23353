"""When an export is there: not before it is known that it is of one moment. Without a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meander.errors import InputError
from meander.runtime.driver.reached import Reached
from meander.spark.deploy.export import FILE, export


class State:
    """Stands for a DataFrame of states; notes where it is written."""

    columns = ("word", "rows", "task", "node", "as_of")

    def __init__(self) -> None:
        self.dropped: tuple[str, ...] = ()
        self.written: list[str] = []

    def drop(self, *columns: str) -> State:
        self.dropped = columns
        return self

    @property
    def write(self) -> State:
        return self

    def mode(self, _: str) -> State:
        return self

    def parquet(self, path: str) -> None:
        self.written.append(path)


def test_what_was_not_of_one_moment_is_no_export_and_can_be_tried_again(tmp_path: Path) -> None:
    state: Any = State()
    reached = Reached({"q": 3}, {"words/0": 41}, {})

    def moved() -> None:
        assert state.written  # it is looked when all is written
        raise InputError("rows were taken in")

    with pytest.raises(InputError, match="rows were taken in"):
        export(state, {}, str(tmp_path), None, reached, moved)
    assert not (tmp_path / FILE).exists()
    told = export(state, {"keys": ["word"]}, str(tmp_path), None, reached, lambda: None)
    assert told == {"keys": ["word"], "queries": {"q": 3}, "feeders": {"words/0": 41}}
    assert json.loads((tmp_path / FILE).read_text()) == told
    assert state.dropped == ("task", "node", "as_of")
