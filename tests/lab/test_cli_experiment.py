"""`meander experiment`: what it lists, and exit code 2 for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.cli.main import main


def test_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("fig11", "fig17", "table3", "appendix-a", "rounds"))


def test_run_measures_into_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["experiment", "run", "table3", "--scale", "toy", "--out", str(tmp_path)]
    assert main(argv) == 0
    assert (tmp_path / "toy" / "table3.parquet").exists()
    assert (tmp_path / "toy" / "table3.csv").exists()
    capsys.readouterr()
    docs = tmp_path / "docs"
    assert main(["experiment", "report", "--scale", "toy", "--out", str(tmp_path),
                 "--docs", str(docs)]) == 0  # fmt: skip
    assert str(docs / "experiments.md") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["run", "fig99"], "no experiment 'fig99'"),
        (["run", "fig12", "--data", "/nowhere/at/all.parquet"], "no such file"),
        (["run", "fig12", "--scale", "huge"], "invalid choice"),
        (["report", "--out", "/nowhere/at/all"], "no tables"),
        ([], "required"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", *argv]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
