"""Two drivers race for one checkpoint on a real S3 server, with conditional writes and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from files_kit import blind, local, memory, on_s3, s3_server

from meander.cli.main import main
from meander_lab.bench.store import Race
from meander_lab.servers.s3 import S3


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as running:
        yield running


def check(race: Race, rounds: int, *, alone: bool) -> None:
    told = race.run()
    assert told["rounds"] == rounds
    assert told["granted_twice"] == told["manifests_lost"] == 0, told
    assert told["granted"] == rounds or (not alone and told["granted"] > 0)
    assert told["manifests_acknowledged"] > 0


@pytest.mark.parametrize("conditional", [True, False])
def test_no_generation_has_two_winners_and_no_manifest_that_counts_is_lost(
    server: S3, conditional: bool
) -> None:
    check(
        Race(on_s3(server, f"race-{conditional}", conditional=conditional), 40),
        40,
        alone=conditional,
    )


@pytest.mark.slow
@pytest.mark.parametrize("conditional", [True, False])
def test_a_thousand_rounds(server: S3, conditional: bool) -> None:
    race = Race(on_s3(server, f"long-{conditional}", conditional=conditional), 1000)
    check(race, 1000, alone=conditional)


@pytest.mark.parametrize("kind", [local, memory, blind])
def test_nor_where_there_is_no_server(kind: object, tmp_path: Path) -> None:
    assert callable(kind)
    check(Race(kind(tmp_path), 40), 40, alone=kind is not blind)


def test_the_command_measures_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "store", "--where", str(tmp_path), "--commits", "40", "--races", "5"]
    assert main([*command, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["commit"]["steps"] == row["records"]["steps"] + row["manifest"]["steps"]
    assert row["race"]["granted"] == 5
    assert main(command) == 0
    assert "granted_twice 0" in capsys.readouterr().out
