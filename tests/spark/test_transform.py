"""The query that `op.transform` starts, without a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import InputError
from meander.spark.datasource import transform
from meander.spark.datasource.transform import Transforms


class Stream:
    """Stands for a streaming DataFrame, its writer and its reader: notes the options."""

    isStreaming = True  # noqa: N815

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    @property
    def writeStream(self) -> Stream:  # noqa: N802
        return self

    def format(self, _: str) -> Stream:
        return self

    def option(self, name: str, value: str) -> Stream:
        self.options[name] = value
        return self

    def start(self) -> Stream:
        return self

    load = start
    isActive = False  # noqa: N815


def test_rows_without_a_key_are_treated_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transform, "output_columns", lambda _: None)
    reception = SimpleNamespace(troubles=[], about=lambda _: None)
    driver: Any = SimpleNamespace(address="a:1", reception=reception)
    spark: Any = SimpleNamespace(readStream=Stream())
    found = Transforms(spark, driver)
    for mode in ("refuse", "keep", "drop"):
        rows: Any = Stream()
        found.start(rows, mode, str(tmp_path), {}, mode)
        assert rows.options["nullKeys"] == mode
    with pytest.raises(InputError, match="null_keys is one of refuse, keep, drop, not 'lose'"):
        found.start(rows, "more", str(tmp_path), {}, "lose")
