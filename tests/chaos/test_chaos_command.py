"""`meander chaos` and `meander soak`, short: the long ones are run by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meander.cli.main import main


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_wrong_wishes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--app", "nothing"]) == 2
    assert "word-count" in capsys.readouterr().err
    assert main(["chaos", "--seconds", "0"]) == 2
    assert main(["soak", "--minutes", "0"]) == 2
    assert "--minutes" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("app", ["word-count", "frequent-patterns"])
def test_counts_are_right_whatever_is_harmed(capsys: pytest.CaptureFixture[str], app: str) -> None:
    code, report = told(capsys, "chaos", "--seconds", "20", "--seed", "1", "--app", app)
    assert code == 0, report
    assert report["exact"]
    assert report["lost"] == report["duplicated"] == 0
    assert report["rows"] > 10_000
    assert min(report["kills"], report["rescales"], report["cuts"]) > 0
    assert report["recovery_s_max"] >= report["recovery_s_p50"] > 0


@pytest.mark.slow
def test_nothing_grows_in_a_short_soak(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = told(capsys, "soak", "--minutes", "1", "--every", "0.2")
    assert report["exact"]
    assert report["rescales"] >= 6
    assert report["grown"] == []
    assert code == 0
