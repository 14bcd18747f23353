"""Where a source began at the newest is kept: what comes while a program is away is read later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from files_kit import AT_HAND, Open

from meander.errors import DeployError
from meander.runtime.driver import begun
from meander.runtime.driver.begun import BegunPlaces
from meander.runtime.process.source import Given


@dataclass(frozen=True)
class Log:
    """A log that has so many rows by now; as a reader of it, it begins behind them."""

    rows: int
    name: str = "clicks"
    begin: int | None = None

    def check(self) -> None:
        pass

    def partitions(self) -> Sequence[str]:
        return ["0"]

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        yield None

    def begun(self) -> Log:
        return replace(self, begin=self.rows)

    def places(self) -> Any:
        return {"name": self.name, "begin": self.begin}

    def placed(self, places: Any) -> Log:
        return replace(self, begin=places["begin"]) if places["name"] == self.name else self.begun()


def begin_of(places: BegunPlaces, log: Log, name: str = "words") -> int | None:
    found = places.begin(name, log)
    assert isinstance(found, Log)
    return found.begin


@pytest.mark.parametrize("kind", AT_HAND)
def test_the_next_run_from_a_checkpoint_begins_where_the_first_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], Open]
) -> None:
    """1. a source begins, nothing of it is durable, the program ends  2. rows come  3. it runs again;
    its source began behind them."""
    folder, opened = "the checkpoint", kind(tmp_path)
    monkeypatch.setattr(begun, "open_files", lambda _: opened())
    assert begin_of(BegunPlaces(folder, lambda: "line"), Log(17)) == 17
    later = BegunPlaces(folder, lambda: "line")
    assert begin_of(later, Log(99)) == 17
    assert begin_of(later, Log(99), "../others/") == 99
    assert begin_of(BegunPlaces(folder, lambda: "line"), Log(120), "../others/") == 99
    assert len(opened().list("source/line")) == 1  # the other begins with a dot


def test_a_checkpoint_made_anew_begins_anew_also_in_the_same_folder(tmp_path: Path) -> None:
    folder = str(tmp_path)
    begin_of(BegunPlaces(folder, lambda: "line"), Log(17))
    assert begin_of(BegunPlaces(folder, lambda: "another"), Log(99)) == 99


def test_another_log_under_the_name_begins_anew_and_is_what_counts_from_then_on(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path)
    begin_of(BegunPlaces(folder, lambda: "line"), Log(17))
    assert begin_of(BegunPlaces(folder, lambda: "line"), Log(5, "views")) == 5
    assert begin_of(BegunPlaces(folder, lambda: "line"), Log(9, "views")) == 5


def test_without_a_checkpoint_it_is_known_for_as_long_as_the_driver_lives() -> None:
    places = BegunPlaces()
    assert [begin_of(places, Log(17)), begin_of(places, Log(99))] == [17, 17]
    assert begin_of(BegunPlaces(), Log(99)) == 99


def test_a_folder_that_cannot_be_used_refuses_the_source_and_nothing_has_begun(
    tmp_path: Path,
) -> None:
    places, inside = BegunPlaces(str(tmp_path), lambda: "line"), tmp_path / "source"
    inside.touch()
    with pytest.raises(DeployError, match=r"where the source words begins is kept in .* again"):
        begin_of(places, Log(17))
    inside.unlink()
    assert begin_of(places, Log(20)) == 20


def test_a_file_that_is_damaged_refuses_the_source_and_does_not_begin_it_anew(
    tmp_path: Path,
) -> None:
    begin_of(BegunPlaces(str(tmp_path), lambda: "line"), Log(17))
    (tmp_path / "source" / "line" / "words.json").write_text("{")
    with pytest.raises(DeployError, match="where the source words begins is kept in"):
        begin_of(BegunPlaces(str(tmp_path), lambda: "line"), Log(99))
