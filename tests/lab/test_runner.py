"""Cells are measured once, again when what they depend on changes, and failures do not end a run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from meander.errors import InputError, MeanderError
from meander.show import provenance
from meander_lab.experiments import runner
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters, parameters
from meander_lab.experiments.registry import Experiment, experiment
from meander_lab.experiments.tables import Cell, ResultTable, Row, TableRows

COUNTED = Experiment("table3", "counts itself", "counted", live=False)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Put an experiment of two cells in the place of Table 3; give what it was asked to measure."""
    asked: list[Cell] = []
    module = ModuleType("meander_lab.experiments.counted")

    def cells(wanted: Parameters) -> list[Cell]:
        return [{"x": 1}, {"x": 2}]

    def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
        asked.append(cell)
        if cell["x"] == 2 and len(asked) == 2:
            raise MeanderError("a node is gone")
        return [{"y": 10 * cell["x"]}]

    vars(module).update(cells=cells, measure=measure)
    monkeypatch.setitem(__import__("sys").modules, "meander_lab.experiments.counted", module)
    return asked


def test_a_run_goes_on_where_it_stopped(
    measured: list[Cell], ground: ExperimentGround, tmp_path: Path
) -> None:
    said: list[str] = []
    trouble = runner.run([COUNTED], ground, tmp_path, said.append)
    assert len(trouble) == 1
    assert "a node is gone" in trouble[0]
    assert "to go" in said[0]
    assert runner.run([COUNTED], ground, tmp_path, said.append) == []
    assert [cell["x"] for cell in measured] == [1, 2, 2]
    assert runner.run([COUNTED], ground, tmp_path, said.append) == []
    assert len(measured) == 3
    assert ResultTable(tmp_path, "table3").read().line("x", "y") == ([1, 2], [10.0, 20.0])


def test_a_run_that_must_stop_begins_no_cell_and_the_next_goes_on(
    measured: list[Cell], ground: ExperimentGround, tmp_path: Path
) -> None:
    assert runner.run([COUNTED], ground, tmp_path, lambda _: None, stop_s=0.0) == []
    assert measured == []
    runner.run([COUNTED], ground, tmp_path, lambda _: None)
    assert len(measured) == 2


def test_the_code_of_the_laboratory_counts_but_not_how_it_draws() -> None:
    names = {(path.parent.name, path.name) for path in provenance._sources()}
    assert {("experiments", "fig12.py"), ("experiments", "ground.py"), ("exact", "ssm.py")} <= names
    assert not {("experiments", "report.py"), ("experiments", "claims_live.py")} & names
    drawn = {path.stem for path in (provenance.LAB / "experiments").glob("*.py")}
    assert drawn >= provenance.DRAWN


def test_other_code_is_measured_again_unless_its_cells_are_kept(
    measured: list[Cell], ground: ExperimentGround, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        runner.run([COUNTED], ground, tmp_path, lambda _: None)
    monkeypatch.setattr(runner, "code", lambda: "another")
    runner.run([COUNTED], ground, tmp_path, lambda _: None, keep=True)
    assert len(measured) == 3
    runner.run([COUNTED], ground, tmp_path, lambda _: None)
    assert len(measured) == 5


def test_other_data_is_measured_again(
    measured: list[Cell], ground: ExperimentGround, tmp_path: Path
) -> None:
    for _ in range(2):
        runner.run([COUNTED], ground, tmp_path, lambda _: None)
    other = ExperimentGround("toy", None, tmp_path)
    runner.run([COUNTED], other, tmp_path, lambda _: None)
    assert len(measured) == 5
    assert set(ResultTable(tmp_path, "table3").read().column("data")) == {other.data}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="choose from"):
        experiment("fig99")
    with pytest.raises(InputError, match="scale"):
        parameters("fig12", "huge")
    with pytest.raises(InputError, match="no parameters"):
        parameters("fig99", "quick")
    with pytest.raises(AttributeError, match="nothing"):
        parameters("fig12", "quick").nothing  # noqa: B018 - asking is the test


def test_a_table_keeps_columns_of_all_rows(tmp_path: Path) -> None:
    table = ResultTable(tmp_path, "t")
    table.put([{"cell": "a", "x": 1}])
    table.put([{"cell": "b", "y": [1.0]}])
    assert list(table.read()) == [
        {"cell": "a", "x": 1, "y": None}, {"cell": "b", "x": None, "y": [1.0]},
    ]  # fmt: skip
    table.put([{"cell": "a", "x": 3}])
    table.keep({"a"})
    assert table.read().column("x") == [3]
    table.path.write_text("damaged")
    with pytest.raises(InputError, match="no table"):
        table.read()


def test_rows_answer_questions() -> None:
    rows = TableRows([{"m": "b", "x": 2, "y": 4.0}, {"m": "a", "x": 1, "y": None}])
    assert rows.names("m") == ["b", "a"]
    assert rows.values("m") == ["a", "b"]
    assert rows.line("x", "y") == ([2], [4.0])
    with pytest.raises(LookupError):
        rows.mean("z")
